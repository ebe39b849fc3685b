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
        match perturbation > 0 && step > perturbation + 1 {
            true => sizes.extend([bytes - perturbation, bytes, bytes + perturbation]),
            false => sizes.push(bytes),
        }
        let Some(next) = bytes.checked_add(step) else { break };
        bytes = next;
    }
    // Neighbours of a wide perturbation meet.
    sizes.sort_unstable();
    sizes.dedup();
    sizes
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
        fn sizes_rise_and_stay_near_the_limit(most in 1u64..u64::MAX, perturbation in 0u64..8) {
            let sizes = sizes(most, perturbation);
            prop_assert!(sizes.windows(2).all(|pair| pair[0] < pair[1]), "{sizes:?}");
            prop_assert!(sizes.iter().all(|size| *size <= most.saturating_add(perturbation)));
        }
    }
}
