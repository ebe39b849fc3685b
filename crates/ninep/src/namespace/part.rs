//! The object-safe form of a tree.

use super::file::{Handle, Visit};
use crate::message::Qid;
use crate::tree::{Attach, Outcome, Tree, User};
use std::rc::Rc;

/// A tree to be bound: every [`Tree`] is one.
pub trait Part: 'static {
    /// Enters it; answers as whom, and its root.
    fn visit(self: Rc<Self>, entrance: Entrance) -> Outcome<(User, Qid, Handle)>;

    /// What its root is, for listings.
    fn kind(&self) -> u8;
}

/// Who comes into a part, and how.
pub struct Entrance {
    /// The user whom the namespace has admitted.
    pub(super) user: Rc<User>,
    /// The attach that led to the namespace.
    pub(super) attach: Attach,
    /// The directory that it is bound in, if the client came that way.
    pub(super) above: Option<(Qid, Handle)>,
    /// What the numbers of its files are scrambled with.
    pub(super) salt: u64,
}

impl Entrance {
    /// The name of the client's connection.
    pub fn peer(&self) -> &str {
        &self.attach.peer.name
    }
}

impl<T: Tree> Part for T {
    fn visit(self: Rc<Self>, entrance: Entrance) -> Outcome<(User, Qid, Handle)> {
        let Entrance { user, attach, above, salt } = entrance;
        let entered = self.enter(&user, attach);
        entered.map(move |(user, qid, node)| {
            let (tree, root) = (self, qid.path);
            let visit = Visit { tree, user: Rc::new(user.clone()), root, above, salt };
            let (qid, handle) = Rc::new(visit).file(qid, node);
            (user, qid, handle)
        })
    }

    fn kind(&self) -> u8 {
        self.root_kind()
    }
}
