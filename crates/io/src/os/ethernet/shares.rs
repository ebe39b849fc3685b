//! How many frames each peer may have under way to one socket: together they find room in its ring, also where all go again
//! because their receiver computes.

/// Frames of a peer, by how many others there are: the first ones may have more.
const WINDOWS: [(usize, u16); 4] = [(2, 32), (4, 16), (8, 8), (32, 2)];

/// What is given to the peers of a socket.
#[derive(Debug, Default)]
pub(super) struct Shares {
    taken: Vec<bool>,
}

/// What one peer has of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    at: usize,
    /// Frames.
    pub window: u16,
}

impl Shares {
    /// The largest share that is left; none where no peer more can be let in.
    pub fn take(&mut self) -> Option<Share> {
        let at = self.taken.iter().position(|is_taken| !is_taken).unwrap_or(self.taken.len());
        let mut before = at;
        for (count, window) in WINDOWS {
            if before < count {
                self.taken.resize(self.taken.len().max(at + 1), false);
                self.taken[at] = true;
                return Some(Share { at, window });
            }
            before -= count;
        }
        None
    }

    /// Its peer is gone.
    pub fn give_back(&mut self, share: Share) {
        self.taken[share.at] = false;
    }
}

#[cfg(test)]
mod tests {
    use super::super::keeper::TIMES;
    use super::super::ring::SLOTS_MIN;
    use super::*;

    #[test]
    fn all_peers_together_have_room_in_the_ring() {
        let mut shares = Shares::default();
        let all: Vec<Share> = std::iter::from_fn(|| shares.take()).collect();
        let frames: usize = all.iter().map(|share| usize::from(share.window)).sum();
        assert_eq!((all.len(), frames), (46, 256));
        assert!(frames * TIMES + all.len() * 4 <= SLOTS_MIN, "and what they acknowledge");
        assert_eq!(shares.take(), None);
        shares.give_back(all[3]);
        assert_eq!(shares.take(), Some(all[3]));
    }
}
