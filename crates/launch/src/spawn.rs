//! Spreading a session to many nodes down a tree.
//!
//! With a fan-out of `n`, the destinations are split into `n` groups of equal length. The first of each
//! group gets the session from here and has the rest of its group to serve, with the same fan-out.
//!
//! ```text
//!   clone 2 b/1,c/4,d/2,e/0   a ──┬─► b ──► c      a chunk that b has got is on its way to c
//!                                 └─► d ──► e      while a still sends b the next
//! ```
//!
//! Every chunk has a hash that the first node made and each node checks, so that no node passes on a wrong byte.
//! A node that fails is reported with the reason, and whom it was to serve is served by others.
//! [`flow`] is that of one node, [`message`] what nodes say to each other, [`manifest`] what is spread.

pub mod flow;
pub mod manifest;
pub mod message;

use covey_ninep::control::refuse;
use covey_ninep::tree::{Errno, Result};

/// A destination that got no copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// `NODE/SESSION`.
    pub destination: String,
    /// Why.
    pub reason: String,
}

impl Failure {
    fn new(destination: &str, error: &Errno) -> Failure {
        Failure { destination: destination.to_owned(), reason: error.to_string() }
    }
}

/// The destinations of a comma-separated list, `NODE/SESSION` each. EINVAL for anything else, and for one
/// that is there twice.
pub fn destinations(list: &str) -> Result<Vec<String>> {
    let words: Vec<String> =
        list.split(',').filter(|word| !word.is_empty()).map(str::to_owned).collect();
    if words.len() > DESTINATIONS_MAX {
        return refuse(format!("{} destinations, limit is {DESTINATIONS_MAX}", words.len()));
    }
    let mut seen = std::collections::HashSet::new();
    for word in &words {
        if parts(word).is_none() {
            return refuse(format!("destination {word:?}: NODE/SESSION is wanted"));
        }
        if !seen.insert(word) {
            return refuse(format!("destination {word:?} is there twice"));
        }
    }
    Ok(words)
}

/// The node and the session of a destination.
pub fn parts(destination: &str) -> Option<(&str, u64)> {
    let (node, session) = destination.split_once('/')?;
    let is_name = !node.is_empty() && !node.contains(char::is_whitespace);
    Some((node, session.parse().ok()?)).filter(|_| is_name)
}

/// Most destinations of one spawn.
pub const DESTINATIONS_MAX: usize = 4096;

/// The groups that `destinations` are split into: the one that is served from here, and those that it serves.
/// There are at most `fan_out` groups (a fan-out of 0 counts as 1), none empty, whose lengths differ by
/// less than a group's length.
pub fn groups<T>(destinations: &[T], fan_out: usize) -> impl Iterator<Item = (&T, &[T])> {
    let length = destinations.len().div_ceil(fan_out.max(1)).max(1);
    destinations.chunks(length).filter_map(<[T]>::split_first)
}

/// The fan-out that makes a tree of two levels: the square root of the number of nodes, rounded up.
pub fn square_root(nodes: usize) -> usize {
    let root = nodes.isqrt();
    if root * root < nodes { root + 1 } else { root }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// How many hops the farthest node is away, and everyone who was reached.
    fn walk(nodes: &[u32], fan_out: usize, reached: &mut Vec<u32>) -> usize {
        let below = groups(nodes, fan_out).map(|(first, rest)| {
            reached.push(*first);
            1 + walk(rest, fan_out, reached)
        });
        below.max().unwrap_or(0)
    }

    #[test]
    fn nobody_is_served_with_no_destination() {
        assert_eq!(groups::<u32>(&[], 3).count(), 0);
        assert_eq!(groups(&[1, 2], 0).count(), 1);
    }

    #[test]
    fn the_square_root_makes_two_levels() {
        for (nodes, root) in
            [(0, 0), (1, 1), (2, 2), (4, 2), (5, 3), (245, 16), (256, 16), (257, 17)]
        {
            assert_eq!(square_root(nodes), root);
        }
        let nodes: Vec<u32> = (0..245).collect();
        assert_eq!(walk(&nodes, 16, &mut Vec::new()), 2);
    }

    proptest! {
        #[test]
        fn everyone_is_reached_once_and_no_node_serves_more_than_the_fan_out(
            count in 0u32..600, fan_out in 1usize..40,
        ) {
            let nodes: Vec<u32> = (0..count).collect();
            prop_assert!(groups(&nodes, fan_out).count() <= fan_out);
            let mut reached = Vec::new();
            let depth = walk(&nodes, fan_out, &mut reached);
            reached.sort_unstable();
            prop_assert_eq!(reached, nodes);
            // A fan-out of one is a chain.
            let most = if fan_out == 1 { count as usize } else {
                let mut reach = 0u64;
                (1..).find(|_| { reach = (reach + 1) * fan_out as u64; reach >= count.into() })
                    .unwrap_or(0)
            };
            prop_assert!(depth <= most.max(1), "{depth} hops for {count} nodes, {most} expected");
        }
    }
}
