//! Spreading a session to many nodes down a tree.
//!
//! With a fan-out of `n`, the destinations are split into `n` groups of equal length. The first of each
//! group gets the session from here and has the rest of its group to serve, with the same fan-out.

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
