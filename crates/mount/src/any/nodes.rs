//! What the kernel knows, and by which numbers.

use covey_ninep::message::Qid;
use covey_ninep::tree::Errno;
use covey_wire::Name;
use std::collections::HashMap;

/// A name with the file behind it: the directory's number, the name, and what it leads to.
pub type Place = (u64, Name, Qid);

/// Files that the kernel holds.
pub struct Nodes<N> {
    known: HashMap<u64, Known<N>>,
    places: HashMap<(u64, Name, u8, u64), u64>,
    last: u64,
}

struct Known<N> {
    node: N,
    place: (u64, Name, u8, u64),
    /// How often it was sent to the kernel.
    lookups: u64,
}

impl<N: Clone> Nodes<N> {
    /// The root alone, which is never forgotten.
    pub fn new(qid: Qid, root: N) -> Nodes<N> {
        let place = key((ROOT, Name::EMPTY, qid));
        let root = Known { node: root, place, lookups: u64::MAX };
        Nodes { known: HashMap::from([(ROOT, root)]), places: HashMap::new(), last: ROOT }
    }

    /// The file of a number: ESTALE when it was forgotten.
    pub fn find(&self, id: u64) -> Result<N, Errno> {
        self.known.get(&id).map(|known| known.node.clone()).ok_or(Errno::ESTALE.into())
    }

    /// The kernel is told of what a place leads to. Answers its number, and what stood for the file before where that is
    /// known already: the new one is used from now on, since the server of the old one may have restarted.
    pub fn enter(&mut self, place: Place, node: N) -> (u64, Option<N>) {
        let place = key(place);
        if let Some(&id) = self.places.get(&place)
            && let Some(known) = self.known.get_mut(&id)
        {
            known.lookups += 1;
            return (id, Some(std::mem::replace(&mut known.node, node)));
        }
        self.last += 1;
        self.places.insert(place.clone(), self.last);
        self.known.insert(self.last, Known { node, place, lookups: 1 });
        (self.last, None)
    }

    /// A name has moved: the number goes with the file.
    pub fn rename(&mut self, (dir, name): (u64, &Name), (to, new): (u64, &Name)) {
        let moved = |(at, called, ..): &(u64, Name, u8, u64)| *at == dir && called == name;
        let Some(old) = self.places.keys().find(|place| moved(place)).cloned() else { return };
        let Some(id) = self.places.remove(&old) else { return };
        let place = (to, new.clone(), old.2, old.3);
        if let Some(known) = self.known.get_mut(&id) {
            known.place = place.clone();
        }
        self.places.insert(place, id);
    }

    /// The kernel drops `count` references; answers the file when these were the last.
    pub fn forget(&mut self, id: u64, count: u64) -> Option<N> {
        let known = self.known.get_mut(&id).filter(|_| id != ROOT)?;
        known.lookups = known.lookups.saturating_sub(count);
        if known.lookups > 0 {
            return None;
        }
        let gone = self.known.remove(&id)?;
        // The place may be another file's by now.
        if self.places.get(&gone.place) == Some(&id) {
            self.places.remove(&gone.place);
        }
        Some(gone.node)
    }
}

fn key((dir, name, qid): Place) -> (u64, Name, u8, u64) {
    (dir, name, qid.kind, qid.path)
}

/// FUSE_ROOT_ID.
const ROOT: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn place(dir: u64, name: &str, path: u64) -> Place {
        (dir, name.into(), Qid { kind: Qid::FILE, version: 0, path })
    }

    #[test]
    fn a_file_is_held_for_as_long_as_the_kernel_counts() {
        let mut nodes = Nodes::new(Qid::default(), "root");
        assert_eq!(nodes.enter(place(ROOT, "a", 7), "a"), (2, None));
        assert_eq!(nodes.enter(place(ROOT, "a", 7), "again"), (2, Some("a")));
        assert_eq!(nodes.find(2), Ok("again"));
        assert_eq!(nodes.forget(2, 1), None);
        assert_eq!(nodes.forget(2, 1), Some("again"));
        assert_eq!(nodes.find(2).map_err(|error| error.code), Err(Errno::ESTALE));
        assert_eq!(nodes.forget(ROOT, u64::MAX), None);
        assert_eq!(nodes.find(ROOT), Ok("root"));
        assert_eq!(nodes.enter(place(ROOT, "a", 7), "new"), (3, None), "no number is used twice");
    }

    #[test]
    fn another_file_of_the_same_name_has_another_number() {
        let mut nodes = Nodes::new(Qid::default(), "root");
        let (old, _) = nodes.enter(place(ROOT, "a", 7), "old");
        let (new, _) = nodes.enter(place(ROOT, "a", 8), "new");
        assert_ne!(old, new);
        assert_eq!((nodes.find(old), nodes.find(new)), (Ok("old"), Ok("new")));
    }

    #[test]
    fn a_number_goes_with_its_file_when_the_name_moves() {
        let mut nodes = Nodes::new(Qid::default(), "root");
        let (id, _) = nodes.enter(place(ROOT, "a", 7), "file");
        nodes.rename((ROOT, &"a".into()), (5, &"b".into()));
        assert_eq!(nodes.enter(place(5, "b", 7), "spare"), (id, Some("file")));
        assert_eq!(nodes.forget(id, 2), Some("spare"));
        assert_ne!(nodes.enter(place(ROOT, "a", 7), "file").0, id);
    }
}
