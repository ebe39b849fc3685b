//! Which block sizes are tried.

/// NetPIPE's sizes up to `most` bytes: powers of two and those half way between, and from 16 bytes on each of
/// them with `perturbation` bytes less and more, so that a link that likes round numbers is found
/// out. The last may exceed `most` by the perturbation. `perturbation` 0 leaves the neighbours out.
pub fn sizes(most: u64, perturbation: u64) -> Vec<u64> {
    let mut sizes = Vec::new();
    let (mut bytes, mut step) = (1u64, 1u64);
    for turn in 0u32.. {
        if bytes > most {
            break;
        }
        if turn > 2 && turn % 2 == 1 {
            step *= 2;
        }
        if perturbation > 0 && step > perturbation + 1 {
            sizes.extend([bytes - perturbation, bytes, bytes + perturbation])
        } else {
            sizes.push(bytes)
        }
        let Some(next) = bytes.checked_add(step) else { break };
        bytes = next;
    }
    // Neighbours of a wide perturbation meet.
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// All pairs of so many nodes in rounds, in each of which no node is in two pairs: as few rounds as can be.
/// The first of a pair is the lower one.
pub fn rounds(nodes: usize) -> Vec<Vec<(usize, usize)>> {
    // One stands still and the others walk around a circle; with an odd number, one rests.
    let seats = nodes + nodes % 2;
    (1..seats.max(1))
        .map(|turn| {
            let at = |seat: usize| if seat == 0 { 0 } else { 1 + (seat - 1 + turn) % (seats - 1) };
            (0..seats / 2)
                .map(|seat| (at(seat), at(seats - 1 - seat)))
                .map(|(one, other)| (one.min(other), one.max(other)))
                .filter(|(_, other)| *other < nodes)
                .collect()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_sizes_are_those_of_netpipe() {
        // What NPtcp 3.7.2 prints.
        let golden = [
            1, 2, 3, 4, 6, 8, 12, 13, 16, 19, 21, 24, 27, 29, 32, 35, 45, 48, 51, 61, 64, 67, 93,
            96, 99, 125, 128, 131,
        ];
        assert_eq!(sizes(128, 3), golden);
        assert_eq!(sizes(8 << 20, 3).len(), 124);
        assert_eq!(sizes(64, 0), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64]);
        assert!(sizes(0, 3).is_empty());
    }

    proptest! {
        #[test]
        fn every_pair_is_in_one_round_and_no_node_in_two_pairs_of_one(nodes in 0usize..40) {
            let rounds = rounds(nodes);
            let mut all: Vec<(usize, usize)> = rounds.concat();
            all.sort_unstable();
            let wanted: Vec<(usize, usize)> =
                (0..nodes).flat_map(|one| (one + 1..nodes).map(move |other| (one, other))).collect();
            prop_assert_eq!(all, wanted);
            for round in rounds {
                let mut busy: Vec<usize> = round.iter().flat_map(|(a, b)| [*a, *b]).collect();
                let count = busy.len();
                busy.sort_unstable();
                busy.dedup();
                prop_assert_eq!(busy.len(), count);
            }
        }

        #[test]
        fn sizes_rise_and_stay_near_the_limit(most in 1u64..u64::MAX, perturbation in 0u64..8) {
            let sizes = sizes(most, perturbation);
            prop_assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]), "{sizes:?}");
            prop_assert!(sizes.iter().all(|size| *size <= most.saturating_add(perturbation)));
        }
    }
}
