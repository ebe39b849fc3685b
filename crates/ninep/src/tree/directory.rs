//! The names in a directory that is kept in memory: what most synthetic trees need.

use super::{Attr, Entry, Errno, Result};
use covey_wire::Name;
use std::collections::{BTreeMap, HashMap};

/// Names and the nodes that they lead to, each with a cookie that is never used again.
#[derive(Clone, Debug)]
pub struct Directory<N> {
    nodes: BTreeMap<u64, (Name, N)>,
    cookies: HashMap<Name, u64>,
    cookie_last: u64,
}

impl<N> Default for Directory<N> {
    fn default() -> Self {
        Directory { nodes: BTreeMap::new(), cookies: HashMap::new(), cookie_last: DOT_DOT }
    }
}

impl<N: Clone> Directory<N> {
    /// Adds a name; EEXIST when it is there.
    pub fn insert(&mut self, name: Name, node: N) -> Result<()> {
        if self.cookies.contains_key(&name) {
            return Err(Errno::EEXIST.into());
        }
        self.cookie_last += 1;
        self.cookies.insert(name.clone(), self.cookie_last);
        self.nodes.insert(self.cookie_last, (name, node));
        Ok(())
    }

    /// Takes a name off; ENOENT when it is not there.
    pub fn remove(&mut self, name: &Name) -> Result<N> {
        let cookie = self.cookies.remove(name);
        let found = cookie.and_then(|cookie| self.nodes.remove(&cookie));
        found.map(|(_, node)| node).ok_or(Errno::ENOENT.into())
    }

    /// What a name leads to; ENOENT when it is not there.
    pub fn find(&self, name: &Name) -> Result<N> {
        let found = self.cookies.get(name).and_then(|cookie| self.nodes.get(cookie));
        found.map(|(_, node)| node.clone()).ok_or(Errno::ENOENT.into())
    }

    /// ENOTEMPTY when there is a name.
    pub fn check_empty(&self) -> Result<()> {
        if self.nodes.is_empty() { Ok(()) } else { Err(Errno::ENOTEMPTY.into()) }
    }

    /// What [`Tree::readdir`](super::Tree::readdir) answers: entries after `cookie`, in the order
    /// in which they came, as many as fit. `dots` are the directory itself and the one above.
    pub fn list(
        &self,
        cookie: u64,
        bytes_max: u32,
        dots: [N; 2],
        attr: impl Fn(&N) -> Attr,
    ) -> Vec<Entry> {
        let [dot, dot_dot] = [".", ".."].map(Name::from);
        let dots = [(DOT, &dot, &dots[0]), (DOT_DOT, &dot_dot, &dots[1])];
        let names = self.nodes.iter().map(|(at, (name, node))| (*at, name, node));
        let mut left = bytes_max as usize;
        let fits = |entry: &Entry| {
            let rest = left.checked_sub(24 + entry.name.len());
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        let all = dots.into_iter().chain(names).filter(|(at, ..)| *at > cookie);
        let all = all.map(|(at, name, node)| {
            let Attr { qid, mode, .. } = attr(node);
            Entry { qid, cookie: at, kind: (mode >> 12) as u8, name: name.clone() }
        });
        all.take_while(fits).collect()
    }
}

const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn names(directory: &Directory<u8>, cookie: u64) -> Vec<String> {
        let entries = directory.list(cookie, 4096, [0, 0], |_| Attr::default());
        entries.into_iter().map(|entry| entry.name.to_string()).collect()
    }

    #[test]
    fn a_listing_goes_on_after_a_cookie_whose_name_is_gone() {
        let mut directory = Directory::default();
        for name in ["a", "b", "c"] {
            directory.insert(name.into(), 7).unwrap();
        }
        assert_eq!(names(&directory, 0), [".", "..", "a", "b", "c"]);
        let cookie = directory.list(2, 25, [0, 0], |_| Attr::default())[0].cookie;
        assert_eq!(directory.remove(&"a".into()), Ok(7));
        assert_eq!(names(&directory, cookie), ["b", "c"]);
        directory.insert("a".into(), 8).unwrap();
        assert_eq!(names(&directory, cookie), ["b", "c", "a"]);
        assert!(names(&directory, u64::MAX).is_empty());
    }

    #[test]
    fn a_name_is_there_once() {
        let mut directory = Directory::default();
        directory.insert("a".into(), 1).unwrap();
        assert_eq!(directory.insert("a".into(), 2), Err(Errno::EEXIST.into()));
        assert_eq!(directory.find(&"a".into()), Ok(1));
        assert_eq!(directory.check_empty(), Err(Errno::ENOTEMPTY.into()));
        directory.remove(&"a".into()).unwrap();
        assert_eq!(directory.remove(&"a".into()), Err(Errno::ENOENT.into()));
        directory.check_empty().unwrap();
    }
}
