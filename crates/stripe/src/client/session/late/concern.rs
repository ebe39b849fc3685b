//! Of what an operation may tell, so that it has to be said before.

use crate::ops::{Id, Op};
use covey_wire::Name;

/// The files of which an operation may tell, or on which it depends.
pub(super) enum Concern<'a> {
    Nothing,
    /// It has to be there, whatever is kept of it.
    Being(Id),
    /// Nothing may be kept of a file by this name in a directory.
    Name(Id, &'a Name),
    /// A file, and a directory with what is made in it.
    One(Id),
    All,
}

pub(super) fn concern(op: &Op) -> Concern<'_> {
    match op {
        // They are about the session, the servers, or what nobody has yet.
        Op::Hello { .. }
        | Op::StillOpen { .. }
        | Op::Revokes { .. }
        | Op::Cluster {}
        | Op::Stores {}
        | Op::Places {}
        | Op::Chains {}
        | Op::Alone { .. }
        | Op::Close { .. } => Concern::Nothing,
        // A name that is taken is refused, whatever it leads to.
        Op::MakeDir { parent, name, .. }
        | Op::Create { exclusive: true, parent, name, .. }
        | Op::CreateWrite { exclusive: true, parent, name, .. } => Concern::Name(*parent, name),
        Op::Lock { id, .. }
        | Op::Unlock { id, .. }
        | Op::Getlock { id, .. }
        | Op::Release { id } => Concern::Being(*id),
        Op::Tmpfile { parent: id, .. }
        | Op::Getattr { id }
        | Op::Room { id, .. }
        | Op::Setattr { id, .. }
        | Op::Open { id, .. }
        | Op::Extend { id, .. }
        | Op::Reserve { id, .. }
        | Op::Commit { id, .. }
        | Op::EndAppend { id, .. }
        | Op::SetStriping { id, .. }
        | Op::Touch { id }
        | Op::Dense { id, .. }
        | Op::Recut { id, .. }
        | Op::Fence { id }
        | Op::SetConsistency { id, .. }
        | Op::Setxattr { id, .. }
        | Op::Removexattr { id, .. }
        | Op::Getxattr { id, .. }
        | Op::Listxattr { id }
        | Op::WriteInline { id, .. }
        | Op::AppendInline { id, .. }
        | Op::ReadInline { id, .. }
        | Op::Readdir { id, plus: false, .. } => Concern::One(*id),
        _ => Concern::All,
    }
}
