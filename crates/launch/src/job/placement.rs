//! Which rank runs on which node: in blocks, so that neighbours in number share a node's memory.

use std::fmt;

/// The nodes of a job, and the ranks of each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The nodes that have ranks, in the order they were named.
    nodes: Vec<String>,
    /// The first rank of each node, and behind them the number of ranks.
    firsts: Vec<u32>,
}

impl Placement {
    /// Places `ranks` ranks on nodes, at most `per_node` on each. Without a number of ranks every node is filled,
    /// with one where nothing else is said; without a limit the ranks are spread evenly, and nodes that are
    /// left without are not part of the job.
    pub fn new(
        nodes: &[String],
        ranks: Option<u32>,
        per_node: Option<u32>,
    ) -> Result<Placement, PlacementError> {
        if nodes.is_empty() {
            return Err(PlacementError::NoNodes);
        }
        if ranks == Some(0) || per_node == Some(0) {
            return Err(PlacementError::NoRanks);
        }
        let count = nodes.len() as u64;
        let wanted = ranks.map_or(count * u64::from(per_node.unwrap_or(1)), u64::from);
        if wanted > u64::from(RANKS_MAX) {
            return Err(PlacementError::TooMany { ranks: wanted });
        }
        let room = per_node.map(|per_node| count * u64::from(per_node));
        if let (Some(room), Some(per_node)) = (room, per_node)
            && wanted > room
        {
            return Err(PlacementError::NoRoom { ranks: wanted, nodes: nodes.len(), per_node });
        }
        let share = |node: u64| match (ranks, per_node) {
            (Some(_), Some(most)) => {
                wanted.saturating_sub(node * u64::from(most)).min(u64::from(most))
            }
            _ => wanted / count + u64::from(node < wanted % count),
        };
        let mut placement = Placement { nodes: Vec::new(), firsts: vec![0] };
        let mut next = 0;
        for (node, name) in (0..count).zip(nodes).filter(|(node, _)| share(*node) > 0) {
            next += share(node) as u32;
            placement.nodes.push(name.clone());
            placement.firsts.push(next);
        }
        Ok(placement)
    }

    /// With so many ranks on each node, at least one. None when the lists do not fit, or there are too many.
    pub fn with_shares(nodes: &[String], shares: &[u32]) -> Option<Placement> {
        let mut firsts = vec![0u32];
        for share in shares {
            let next = firsts[firsts.len() - 1].checked_add(*share)?;
            firsts.push(next);
        }
        let is_whole = !nodes.is_empty() && nodes.len() == shares.len() && !shares.contains(&0);
        let placement = Placement { nodes: nodes.to_vec(), firsts };
        (is_whole && placement.ranks() <= RANKS_MAX).then_some(placement)
    }

    /// The nodes that have ranks.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// How many ranks there are.
    pub fn ranks(&self) -> u32 {
        *self.firsts.last().expect("the number of ranks is always there")
    }

    /// The ranks of the node of this index.
    pub fn of_node(&self, node: usize) -> std::ops::Range<u32> {
        self.firsts[node]..self.firsts[node + 1]
    }

    /// The index of a rank's node.
    ///
    /// # Panics
    ///
    /// When there is no such rank.
    pub fn node_of(&self, rank: u32) -> usize {
        assert!(rank < self.ranks(), "rank {rank} of {}", self.ranks());
        self.firsts.partition_point(|first| *first <= rank) - 1
    }

    /// A rank's number among those of its node.
    pub fn local_rank(&self, rank: u32) -> u32 {
        rank - self.firsts[self.node_of(rank)]
    }

    /// Whether some node has more than one rank.
    pub fn shares_nodes(&self) -> bool {
        self.ranks() as usize > self.nodes.len()
    }

    /// How the ranks lie, as PMI-1's `PMI_process_mapping` says it: `(vector,(0,3,2),(3,1,1))` is two ranks on each
    /// of nodes 0 to 2, and one on node 3.
    pub fn process_mapping(&self) -> String {
        let sizes: Vec<u32> =
            (0..self.nodes.len()).map(|node| self.of_node(node).len() as u32).collect();
        let mut blocks = String::new();
        let mut node = 0;
        for same in sizes.chunk_by(|left, right| left == right) {
            blocks += &format!(",({node},{},{})", same.len(), same[0]);
            node += same.len();
        }
        format!("(vector{blocks})")
    }
}

/// Why ranks cannot be placed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlacementError {
    /// There is no node.
    NoNodes,
    /// No rank was asked for.
    NoRanks,
    /// More than a job may have.
    TooMany {
        /// How many were asked for.
        ranks: u64,
    },
    /// More than the nodes may have.
    NoRoom {
        /// How many were asked for.
        ranks: u64,
        /// On how many nodes.
        nodes: usize,
        /// With how many on each.
        per_node: u32,
    },
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlacementError::NoNodes => f.write_str("there is no node to run on"),
            PlacementError::NoRanks => f.write_str("no rank was asked for"),
            PlacementError::TooMany { ranks } => {
                write!(f, "{ranks} ranks were asked for, limit is {RANKS_MAX}")
            }
            PlacementError::NoRoom { ranks, nodes, per_node } => {
                write!(f, "{ranks} ranks do not fit on {nodes} nodes with {per_node} each")
            }
        }
    }
}

impl std::error::Error for PlacementError {}

/// More ranks than any cluster of this kind has CPUs.
pub const RANKS_MAX: u32 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn nodes(count: usize) -> Vec<String> {
        (0..count).map(|node| format!("n{node}")).collect()
    }

    fn shares(count: usize, ranks: Option<u32>, per_node: Option<u32>) -> Vec<u32> {
        let placed = Placement::new(&nodes(count), ranks, per_node).unwrap();
        (0..placed.nodes().len()).map(|node| placed.of_node(node).len() as u32).collect()
    }

    #[test]
    fn ranks_fill_nodes_or_are_spread_evenly() {
        assert_eq!(shares(3, None, None), [1, 1, 1]);
        assert_eq!(shares(3, None, Some(2)), [2, 2, 2]);
        assert_eq!(shares(3, Some(7), None), [3, 2, 2]);
        assert_eq!(shares(3, Some(2), None), [1, 1]);
        assert_eq!(shares(3, Some(5), Some(4)), [4, 1]);
        assert_eq!(shares(1, Some(4), None), [4]);
    }

    #[test]
    fn what_cannot_be_placed_is_refused_from_both_sides() {
        let place = |count, ranks, per_node| Placement::new(&nodes(count), ranks, per_node);
        assert_eq!(place(0, None, None), Err(PlacementError::NoNodes));
        assert_eq!(place(1, Some(0), None), Err(PlacementError::NoRanks));
        assert!(place(2, Some(4), Some(2)).is_ok());
        let error = place(2, Some(5), Some(2)).unwrap_err();
        assert_eq!(error.to_string(), "5 ranks do not fit on 2 nodes with 2 each");
        assert!(place(1, Some(RANKS_MAX), None).is_ok());
        assert!(place(1, Some(RANKS_MAX + 1), None).is_err());
        assert!(place(4096, None, Some(u32::MAX)).is_err());
    }

    #[test]
    fn the_mapping_is_the_one_that_mpich_reads() {
        let mapping = |count, ranks, per_node| {
            Placement::new(&nodes(count), ranks, per_node).unwrap().process_mapping()
        };
        assert_eq!(mapping(1, Some(4), None), "(vector,(0,1,4))");
        assert_eq!(mapping(4, Some(8), None), "(vector,(0,4,2))");
        assert_eq!(mapping(4, Some(7), None), "(vector,(0,3,2),(3,1,1))");
    }

    #[test]
    fn a_placement_is_made_again_from_its_shares() {
        let placed = Placement::new(&nodes(3), Some(7), None).unwrap();
        assert_eq!(Placement::with_shares(&nodes(3), &[3, 2, 2]), Some(placed));
        for shares in [&[][..], &[1], &[1, 0, 1], &[u32::MAX, 1, 1], &[RANKS_MAX, 1, 1]] {
            assert_eq!(Placement::with_shares(&nodes(3), shares), None);
        }
    }

    proptest! {
        #[test]
        fn every_rank_is_on_one_node(
            count in 1usize..40, ranks in proptest::option::of(1u32..200), per_node in proptest::option::of(1u32..9),
        ) {
            let Ok(placed) = Placement::new(&nodes(count), ranks, per_node) else { return Ok(()) };
            let all: Vec<u32> = (0..placed.nodes().len()).flat_map(|node| placed.of_node(node)).collect();
            prop_assert_eq!(all, (0..placed.ranks()).collect::<Vec<_>>());
            for rank in 0..placed.ranks() {
                let node = placed.node_of(rank);
                prop_assert!(placed.of_node(node).contains(&rank));
                prop_assert_eq!(placed.of_node(node).start + placed.local_rank(rank), rank);
            }
            if let Some(ranks) = ranks { prop_assert_eq!(placed.ranks(), ranks); }
        }
    }
}
