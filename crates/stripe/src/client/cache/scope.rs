//! What an operation of this client's own changes of what it remembers.

use crate::ops::{Id, Op};
use covey_wire::Name;

/// Files whose attributes change, and names in directories.
#[derive(Default)]
pub(super) struct Scope {
    pub ids: Vec<Id>,
    pub names: Vec<(Id, Name)>,
    /// Files change of which the numbers are not known: any may be one of them.
    pub changes_unknown: bool,
    /// Owner and permission bits may change, which otherwise hold throughout a lease.
    pub forgets: bool,
}

impl Scope {
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.names.is_empty()
    }

    /// The same for one more operation, of other files.
    pub fn join(&mut self, other: Scope) {
        self.ids.extend(other.ids);
        self.names.extend(other.names);
        self.changes_unknown |= other.changes_unknown;
        self.forgets |= other.forgets;
    }

    fn add(&mut self, id: Id) {
        if !self.ids.contains(&id) {
            self.ids.push(id);
        }
    }

    fn add_name(&mut self, dir: Id, name: &Name) {
        self.add(dir);
        self.names.push((dir, name.clone()));
    }

    /// The file that the name leads to changes too, if it leads to one.
    fn add_named(&mut self, named: Option<Option<Id>>) {
        match named {
            Some(id) => id.into_iter().for_each(|id| self.add(id)),
            None => self.changes_unknown = true,
        }
    }
}

/// The scope of an operation; `id_of` tells where a name leads, or that it leads nowhere, if that is known.
pub(super) fn of(op: &Op, id_of: &mut dyn FnMut(Id, &Name) -> Option<Option<Id>>) -> Scope {
    let mut scope = Scope { forgets: op.may_change_owner(), ..Scope::default() };
    if let Op::Mend { finding } = op {
        scope.add(finding.parent);
        scope.changes_unknown = true;
    }
    let changes = op.changes();
    changes.content.iter().for_each(|id| scope.add(*id));
    for (dir, name) in &changes.moved {
        scope.add_named(id_of(*dir, name));
    }
    for (dir, name) in changes.made.iter().chain(&changes.moved) {
        scope.add_name(*dir, name);
    }
    scope
}
