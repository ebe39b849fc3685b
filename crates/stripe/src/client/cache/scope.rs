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
        self.ids.is_empty()
    }

    fn file(id: Id) -> Scope {
        Scope { ids: vec![id], ..Scope::default() }
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

    /// The file that the name leads to changes too.
    fn add_named(&mut self, named: Option<Id>) {
        match named {
            Some(id) => self.add(id),
            None => self.changes_unknown = true,
        }
    }
}

/// The scope of an operation; `id_of` tells where a name leads, if that is known.
pub(super) fn of(op: &Op, id_of: &mut dyn FnMut(Id, &Name) -> Option<Id>) -> Scope {
    let mut scope = Scope::default();
    match op {
        // An ACL sets permission bits, too.
        Op::Setattr { id, .. } | Op::Setxattr { id, .. } => {
            return Scope { forgets: true, ..Scope::file(*id) };
        }
        Op::Extend { id, .. }
        | Op::WriteInline { id, .. }
        | Op::AppendInline { id, .. }
        | Op::Reserve { id, .. }
        | Op::Commit { id, .. }
        | Op::SetLayout { id, .. }
        | Op::SetConsistency { id, .. }
        | Op::Touch { id }
        | Op::Removexattr { id, .. }
        | Op::Dense { id, .. } => return Scope::file(*id),
        Op::Create { parent, name, .. } | Op::CreateWrite { parent, name, .. } => {
            scope.add_name(*parent, name)
        }
        Op::Link { id, parent, name } => {
            scope.add_name(*parent, name);
            scope.add(*id);
        }
        Op::Unlink { parent, name, .. } => {
            scope.add_named(id_of(*parent, name));
            scope.add_name(*parent, name);
        }
        Op::Rename { parent, name, to, to_name, .. } => {
            scope.add_named(id_of(*parent, name));
            scope.add_named(id_of(*to, to_name));
            scope.add_name(*parent, name);
            scope.add_name(*to, to_name);
        }
        Op::Mend { finding } => {
            return Scope { changes_unknown: true, forgets: true, ..Scope::file(finding.parent) };
        }
        Op::Hello { .. }
        | Op::Bye { .. }
        | Op::Walk { .. }
        | Op::Getattr { .. }
        | Op::Open { .. }
        | Op::OpenRead { .. }
        | Op::ReadInline { .. }
        | Op::Release { .. }
        | Op::Close { .. }
        | Op::Readdir { .. }
        | Op::Statfs { .. }
        | Op::Lock { .. }
        | Op::Unlock { .. }
        | Op::Getlock { .. }
        | Op::Fsync { .. }
        | Op::Reclaimed { .. }
        | Op::SessionOver { .. }
        | Op::Cluster { .. }
        | Op::Exist { .. }
        | Op::Drop { .. }
        | Op::Recut { .. }
        | Op::KnowStore { .. }
        | Op::AcceptStore { .. }
        | Op::Stores { .. }
        | Op::Getxattr { .. }
        | Op::Listxattr { .. }
        | Op::Tmpfile { .. }
        | Op::Check { .. }
        | Op::Look { .. }
        | Op::Rows { .. }
        | Op::Lookup { .. }
        | Op::Revokes { .. }
        | Op::StillOpen { .. } => {}
    }
    scope
}
