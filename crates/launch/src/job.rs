//! A job: one program as many ranks on many nodes. Where the ranks go, what their ends come to, and what an
//! interrupted user wants.
//!
//! ```text
//!   nodes, -n, --ppn ──► Placement ──► a rank's node, a node's ranks
//!   wait status      ──► End ──┐
//!   lost node        ──► End ──┴► Ends ──► the command's exit code
//!   ^C               ──► Interrupts ──► ask, then kill, then leave
//! ```

mod end;
mod interrupts;
mod placement;

pub use end::{End, Ends};
pub use interrupts::{Interrupts, Wish};
pub use placement::{Placement, PlacementError, RANKS_MAX};

/// Whether a text can be a job's name: it stands before the `/` of each session's `id`.
pub fn is_name(name: &str) -> bool {
    let letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with(['-', '.'])
        && name.chars().all(letter)
}

/// What a session of a job is for, from the text of its `id` file: the job's name, and which part it is. None for what
/// no job has, such as a rank of [`RANKS_MAX`] or more.
pub fn part_of(id: &str) -> Option<(&str, Part)> {
    let (job, part) = id.trim_end().split_once('/')?;
    if !is_name(job) {
        return None;
    }
    match part.strip_prefix("mpi") {
        Some(node) => Some((job, Part::Starter(node.parse().ok()?))),
        None => {
            let rank = part.parse().ok().filter(|rank| *rank < RANKS_MAX)?;
            Some((job, Part::Rank(rank)))
        }
    }
}

/// A part of a job, as it stands behind the `/` of a session's `id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The rank of this number.
    Rank(u32),
    /// What starts the MPI library of the ranks on the job's node of this index.
    Starter(u32),
}

impl Part {
    /// The text of the session's `id` file.
    pub fn id(self, job: &str) -> String {
        match self {
            Part::Rank(rank) => format!("{job}/{rank}"),
            Part::Starter(node) => format!("{job}/mpi{node}"),
        }
    }
}

/// The longest name of a job.
pub const NAME_BYTES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_part_is_read_back() {
        for part in [Part::Rank(0), Part::Rank(1023), Part::Starter(7)] {
            assert_eq!(part_of(&format!("{}\n", part.id("a1"))), Some(("a1", part)));
        }
    }

    #[test]
    fn other_ids_belong_to_no_job() {
        for id in [
            "",
            "7",
            "/1",
            "a/",
            "a/x",
            "a/mpi",
            "a b/1",
            "../1",
            "a/-1",
            "a/1/2",
            "a/16384",
            "a/4294967295",
        ] {
            assert_eq!(part_of(id), None, "{id:?}");
        }
        assert!(is_name(&"x".repeat(64)) && !is_name(&"x".repeat(65)));
    }
}
