//! Which node or cable explains the bad pairs of many: what all of them have in common, and no sound pair
//! has.
//!
//! Each pair goes over things: its two nodes, their cables, switches, what joins these. Things over which
//! exactly the same pairs go cannot be told apart and are named together: a node, its cable and the
//! port behind it. Pairs of which nothing is known speak neither for nor against anything.

use crate::diagnose::Cause;
use serde::{Deserialize, Serialize};

/// A pair that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// Its nodes.
    pub nodes: [String; 2],
    /// What it goes over, the nodes among them.
    pub path: Vec<String>,
    /// What is wrong with it; `None` where nothing can be said.
    pub causes: Option<Vec<Cause>>,
}

/// What explains bad pairs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspicion {
    /// The cause that these pairs show.
    pub cause: Cause,
    /// Things that cannot be told apart by these pairs; one of them is it.
    pub suspects: Vec<String>,
    /// How many pairs over these are bad.
    pub bad_pairs: usize,
    /// How many others are sound.
    pub sound_pairs: usize,
    /// From what it follows.
    pub evidence: String,
}

impl Suspicion {
    /// What a person reads first.
    pub fn words(&self) -> String {
        format!("{}: {}", self.suspects.join(" or "), self.cause.words())
    }
}

/// Explains every cause by as few things as can be. What only one bad pair shows, and no sound pair
/// narrows down, is laid to all that it goes over.
pub fn eliminate(pairs: &[Pair]) -> Vec<Suspicion> {
    let mut causes: Vec<Cause> =
        pairs.iter().filter_map(|pair| pair.causes.as_ref()).flatten().copied().collect();
    causes.sort_unstable();
    causes.dedup();
    causes.into_iter().flat_map(|cause| of_cause(pairs, cause)).collect()
}

fn of_cause(pairs: &[Pair], cause: Cause) -> Vec<Suspicion> {
    let known = |pair: &&Pair| pair.causes.is_some();
    let is_bad = |pair: &&Pair| pair.causes.as_ref().is_some_and(|all| all.contains(&cause));
    let (mut bad, sound): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().filter(known).partition(is_bad);
    let mut found = Vec::new();
    while !bad.is_empty() {
        let things = suspects(&bad, &sound);
        let over = |pair: &&Pair| things.iter().any(|thing| pair.path.contains(thing));
        let (explained, rest): (Vec<&Pair>, Vec<&Pair>) = bad.iter().copied().partition(over);
        if explained.is_empty() {
            break;
        }
        found.push(Suspicion {
            cause,
            evidence: evidence(&explained, &sound, &things, pairs.len()),
            bad_pairs: explained.len(),
            sound_pairs: sound.len(),
            suspects: things,
        });
        bad = rest;
    }
    found
}

/// The things over which most bad pairs go and no sound one does; where every thing is in a sound pair too,
/// those of the first bad pair which are in the fewest: then it is that pair's own.
fn suspects(bad: &[&Pair], sound: &[&Pair]) -> Vec<String> {
    let over = |pairs: &[&Pair], thing: &String| {
        pairs.iter().filter(|pair| pair.path.contains(thing)).count()
    };
    let mut things: Vec<&String> = bad.iter().flat_map(|pair| &pair.path).collect();
    let mut seen = Vec::new();
    things.retain(|thing| {
        let is_new = !seen.contains(thing);
        seen.push(thing);
        is_new
    });
    let fewest = things.iter().map(|thing| over(sound, thing)).min().unwrap_or(0);
    let rank = |thing: &&String| (over(sound, thing) == fewest).then(|| over(bad, thing));
    let most = things.iter().filter_map(rank).max().unwrap_or(0);
    let Some(first) = things.iter().find(|thing| rank(thing) == Some(most)) else {
        return Vec::new();
    };
    // Others are in as many pairs but not the same: they come next, for what is left.
    let is_alike = |thing: &&String| {
        bad.iter().chain(sound).all(|pair| pair.path.contains(thing) == pair.path.contains(first))
    };
    things.iter().copied().filter(is_alike).cloned().collect()
}

fn evidence(bad: &[&Pair], sound: &[&Pair], things: &[String], all: usize) -> String {
    let over_sound =
        sound.iter().filter(|pair| things.iter().any(|thing| pair.path.contains(thing))).count();
    let names = |pairs: &[&Pair]| -> String {
        pairs.iter().map(|pair| pair.nodes.join("-")).collect::<Vec<_>>().join(", ")
    };
    let here = match (bad.len(), over_sound) {
        (1, 0) => format!("the pair {} shows it", names(bad)),
        (count, 0) => format!("all {count} pairs over it show it ({})", names(bad)),
        (count, fine) => {
            format!("{count} of {} pairs over it show it ({})", count + fine, names(bad))
        }
    };
    let elsewhere = match sound.len() - over_sound {
        0 if all == bad.len() => ", and there are no other pairs to compare with".to_string(),
        0 => ", and there is no sound pair to compare with".to_string(),
        1 => ", the 1 other pair does not".to_string(),
        count => format!(", none of the {count} others does"),
    };
    here + &elsewhere
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All pairs of nodes at one switch; those that `bad` names lose long packets.
    fn star(nodes: usize, bad: impl Fn(usize, usize) -> bool) -> Vec<Pair> {
        let mut pairs = Vec::new();
        for one in 1..=nodes {
            for other in one + 1..=nodes {
                let path = [
                    format!("n{one}"),
                    format!("n{one}-sw1"),
                    "sw1".to_string(),
                    format!("n{other}-sw1"),
                    format!("n{other}"),
                ];
                let causes = bad(one, other).then_some(Cause::LengthDependentLoss);
                pairs.push(Pair {
                    nodes: [format!("n{one}"), format!("n{other}")],
                    path: path.into(),
                    causes: Some(causes.into_iter().collect()),
                });
            }
        }
        pairs
    }

    #[test]
    fn a_node_whose_pairs_are_all_bad_is_named_with_its_cable() {
        let found = eliminate(&star(4, |one, other| one == 3 || other == 3));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].suspects, ["n3-sw1", "n3"]);
        assert_eq!(
            found[0].evidence,
            "all 3 pairs over it show it (n1-n3, n2-n3, n3-n4), none of the 3 others does"
        );
        assert!(eliminate(&star(4, |_, _| false)).is_empty());
    }

    #[test]
    fn two_bad_nodes_are_found_one_after_the_other() {
        let found =
            eliminate(&star(6, |one, other| [one, other].iter().any(|node| [2, 5].contains(node))));
        let suspects: Vec<&str> =
            found.iter().map(|one| one.suspects.last().unwrap().as_str()).collect();
        assert_eq!(found.len(), 2, "{found:#?}");
        assert!(suspects.contains(&"n2") || found[0].suspects.contains(&"n2".to_string()));
        assert!(found.iter().any(|one| one.suspects.contains(&"n5".to_string())));
    }

    #[test]
    fn what_lies_between_two_switches_is_told_from_the_nodes() {
        let mut pairs = star(4, |one, other| one <= 2 && other > 2);
        for pair in &mut pairs {
            if pair.causes.as_ref().unwrap().is_empty() {
                pair.path.retain(|thing| thing != "sw1");
            } else {
                pair.path.push("sw1-sw2".to_string());
                pair.path.retain(|thing| thing != "sw1");
            }
        }
        let found = eliminate(&pairs);
        assert_eq!(found[0].suspects, ["sw1-sw2"]);
        assert_eq!((found.len(), found[0].bad_pairs), (1, 4));
    }

    #[test]
    fn one_pair_alone_says_no_more_than_itself() {
        let found = eliminate(&star(2, |_, _| true));
        assert_eq!(found[0].suspects, ["n1", "n1-sw1", "sw1", "n2-sw1", "n2"]);
        assert!(found[0].evidence.contains("no other pairs"));
        // A pair that is bad among sound ones of the same nodes is its own.
        let found = eliminate(&star(4, |one, other| (one, other) == (1, 2)));
        assert_eq!((found.len(), found[0].bad_pairs), (1, 1));
        assert!(found[0].evidence.starts_with("1 of "), "{}", found[0].evidence);
    }

    #[test]
    fn a_pair_of_which_nothing_is_known_is_no_witness() {
        let mut pairs = star(4, |one, other| one == 3 || other == 3);
        pairs.iter_mut().filter(|pair| pair.nodes[0] == "n1").for_each(|pair| pair.causes = None);
        let found = eliminate(&pairs);
        assert!(found[0].suspects.contains(&"n3".to_string()), "{found:#?}");
        assert_eq!((found[0].bad_pairs, found[0].sound_pairs), (2, 1));
    }
}
