//! The table of operations: beside the codec, what holds for each of them, said once.

use super::Id;
use covey_wire::Name;

/// What an operation changes that a client may remember, by number and by name.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes<'a> {
    /// Files and directories whose attributes or content change.
    pub content: Vec<Id>,
    /// Names in directories that come to be; their directories change.
    pub made: Vec<(Id, &'a Name)>,
    /// Names in directories that go or come to lead elsewhere; what they lead to changes, too.
    pub moved: Vec<(Id, &'a Name)>,
}

impl Changes<'_> {
    /// Every number that is known without looking a name up: files first, then directories.
    pub fn ids(&self) -> impl Iterator<Item = Id> {
        let names = self.made.iter().chain(&self.moved);
        self.content.iter().copied().chain(names.map(|(dir, _)| *dir))
    }
}

/// Declares the operations as [`covey_wire::messages!`] does, and after the fields of each:
///
/// - `logged`: unless it was refused it is in the log before it is acknowledged. Others are reads, or
///   volatile: what they leave does not outlive the server.
/// - `own`: the server's own; from a client it is refused.
/// - `grows`: takes space in the store, so a full one refuses it.
/// - `opens`: what the session has open makes a difference to it.
/// - `owner`: owner and permission bits may change.
/// - `content(..)`, `content_all(..)`, `makes(dir name, ..)`, `moves(dir name, ..)`: its [`Changes`].
macro_rules! operations {
    (
        $(#[$meta:meta])*
        $vis:vis enum $enum:ident for $context:ty {
            $(
                $(#[$doc:meta])*
                $number:literal $name:ident { $($field:ident : $type:ty),* $(,)? }
                $([$($property:ident)*])?
                $(content($($id:ident),*))?
                $(content_all($all:ident))?
                $(makes($($made_in:ident $made:ident),*))?
                $(moves($($moved_in:ident $moved:ident),*))?
                $(moves_all($all_moved_in:ident $all_moved:ident))?
                $(moves_each($each_moved_in:ident $each_moved:ident))?
            ),* $(,)?
        }
    ) => {
        covey_wire::messages! {
            $(#[$meta])*
            $vis enum $enum for $context {
                $($(#[$doc])* $number $name { $($field: $type),* },)*
            }
        }

        impl $enum {
            /// What the table says of it.
            fn properties(&self) -> $crate::ops::table::Properties {
                #[allow(unused_mut)]
                match self {
                    $($enum::$name { .. } => {
                        let mut said = $crate::ops::table::Properties::default();
                        $($(said.$property = true;)*)?
                        said
                    })*
                }
            }

            /// What it changes that a client may remember, as far as its fields say so.
            #[allow(unused_variables, unused_mut)]
            pub fn changes(&self) -> $crate::ops::table::Changes<'_> {
                let mut changes = $crate::ops::table::Changes::default();
                match self {
                    $($enum::$name { $($field),* } => {
                        $($(changes.content.push(*$id);)*)?
                        $(changes.content.extend(&$all.0);)?
                        $($(changes.made.push((*$made_in, $made));)*)?
                        $($(changes.moved.push((*$moved_in, $moved));)*)?
                        $(changes.moved.extend($all_moved.0.iter().map(|name| (*$all_moved_in, name)));)?
                        $(changes.moved.extend($each_moved_in.0.iter().copied().zip(&$each_moved.0));)?
                    })*
                }
                changes
            }
        }
    };
}

pub(super) use operations;

/// What holds for an operation whatever its fields.
#[derive(Default)]
pub struct Properties {
    pub logged: bool,
    pub own: bool,
    pub grows: bool,
    pub opens: bool,
    pub owner: bool,
    pub takes: bool,
}

impl super::Op {
    /// Whether it, unless it was refused, must be in the log before it is acknowledged.
    pub fn is_logged(&self) -> bool {
        self.properties().logged
    }

    /// Whether others have to give leases back before it is applied, as far as they hold some on what it concerns.
    pub fn takes_leases(&self) -> bool {
        let said = self.properties();
        said.logged || said.takes
    }

    /// Whether it is the server's own: from a client it must be refused.
    pub fn is_internal(&self) -> bool {
        self.properties().own
    }

    /// Whether a full store refuses it; whatever gives space back is let through.
    pub fn grows(&self) -> bool {
        // A name takes space, its removal does not.
        let is_link = |steps: &[u8]| steps.contains(&super::step::LINK);
        self.properties().grows
            || matches!(self, super::Op::Names { steps, .. } if is_link(&steps.0))
    }

    /// Whether what the session has open makes a difference to it.
    pub fn minds_opens(&self) -> bool {
        self.properties().opens
    }

    /// Whether owner and permission bits may change, which otherwise hold throughout a lease.
    pub fn may_change_owner(&self) -> bool {
        self.properties().owner
    }
}
