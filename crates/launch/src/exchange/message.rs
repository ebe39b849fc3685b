//! The messages.

use covey_wire::{Blame, List, Name, Payload, messages};

messages! {
    /// From a starter to the launcher.
    pub enum Up for () {
        /// The ranks may be started, with these variables in their environments, `NAME=VALUE`: some for all,
        /// some for each rank of the node in order.
        1 Ready { all: List<Name>, each: List<List<Name>> },
        /// These ranks' part on this node has arrived at a fence: all ranks of the job when there is none in
        /// the list.
        2 Fence { space: u8, ranks: List<u32>, data: Payload },
        /// What has that rank put? Answered with the same token.
        3 Ask { token: u32, rank: u32 },
        /// The answer to an [`Down::Ask`].
        4 Answer { asker: u32, token: u32, ok: bool, data: Payload },
        /// A rank wants the job to end with this exit code.
        5 Abort { rank: u32, code: u32, why: Name },
        /// A rank has left without a word: others may wait for it for ever.
        6 Gone { rank: u32 },
        /// The MPI library cannot be served here; ranks that need it will not find each other.
        7 Unable { why: Name },
        /// A rank has begun to use the library.
        8 Joined { rank: u32 },
    }
}

messages! {
    /// From the launcher to a starter.
    pub enum Down for () {
        /// The job: its name, its nodes, the number of ranks on each, and which of the nodes this is.
        1 Start { job: Name, node: u32, nodes: List<Name>, ranks: List<u32> },
        /// Everybody has arrived at that fence, and this is what all of them brought; or not all can, and the
        /// fence has failed.
        2 Fenced { space: u8, ranks: List<u32>, ok: bool, data: Payload },
        /// What has that rank of this node put?
        3 Ask { asker: u32, token: u32, rank: u32 },
        /// The answer to an [`Up::Ask`].
        4 Answer { token: u32, ok: bool, data: Payload },
    }
}

/// Fences of different libraries do not meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Space {
    /// PMI-1's barrier.
    Pmi = 1,
    /// PMIx.
    Pmix = 2,
}

impl Space {
    /// The space of this number.
    pub fn of(number: u8) -> Result<Space, Blame> {
        match number {
            1 => Ok(Space::Pmi),
            2 => Ok(Space::Pmix),
            other => Err(Blame::Malformed(format!("Fence: space is {other}"))),
        }
    }
}
