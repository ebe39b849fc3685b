//! Things by small numbers, which are used again.

#[derive(Debug)]
pub struct Slab<T> {
    all: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Slab<T> {
    fn default() -> Slab<T> {
        Slab { all: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// The number that the next one gets.
    #[inline]
    pub fn next(&self) -> usize {
        self.free.last().copied().unwrap_or(self.all.len())
    }

    #[inline(always)]
    pub fn add(&mut self, what: T) -> usize {
        match self.free.pop() {
            Some(at) => {
                self.all[at] = Some(what);
                at
            }
            None => {
                self.all.push(Some(what));
                self.all.len() - 1
            }
        }
    }

    #[inline(always)]
    pub fn remove(&mut self, at: usize) -> Option<T> {
        let removed = self.all.get_mut(at)?.take();
        if removed.is_some() {
            self.free.push(at);
        }
        removed
    }

    #[inline]
    pub fn find(&mut self, at: usize) -> Option<&mut T> {
        self.all.get_mut(at)?.as_mut()
    }

    #[inline]
    pub fn look(&self, at: usize) -> Option<&T> {
        self.all.get(at)?.as_ref()
    }

    pub fn each(&self) -> impl Iterator<Item = (usize, &T)> {
        self.all.iter().enumerate().filter_map(|(at, one)| Some((at, one.as_ref()?)))
    }

    pub fn each_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        self.all.iter_mut().enumerate().filter_map(|(at, one)| Some((at, one.as_mut()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again() {
        let mut slab = Slab::default();
        assert_eq!((slab.add('a'), slab.add('b'), slab.next()), (0, 1, 2));
        assert_eq!((slab.remove(0), slab.remove(0), slab.next()), (Some('a'), None, 0));
        assert_eq!(slab.add('c'), 0);
        assert_eq!(
            slab.each().map(|(at, one)| (at, *one)).collect::<Vec<_>>(),
            [(0, 'c'), (1, 'b')]
        );
    }
}
