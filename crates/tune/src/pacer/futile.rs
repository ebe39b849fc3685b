//! Orders that nobody follows.
//!
//! A sender that does not read them, such as a kernel's own client, takes whatever the others leave. Cutting those does not empty
//! the queue then: messages wait as before, and storage that obeys has next to nothing. Where that is so all are free for a
//! while, as they would be without a pacer, and then it is tried again.

/// Whether orders are of use.
#[derive(Clone, Debug, Default)]
pub struct Futile {
    /// For how long they have been in vain, in seconds.
    in_vain: f64,
    /// Seconds until they are tried again; zero while they are given.
    free: f64,
    /// How long it was the last time.
    hold: f64,
    /// For how long they have been of use since.
    calm: f64,
}

impl Futile {
    /// Takes in an interval: whether senders exceeded their orders, and the port was full although all were cut.
    pub fn step(&mut self, is_in_vain: bool, seconds: f64) {
        if self.free > 0.0 {
            self.free = (self.free - seconds).max(0.0);
            return;
        }
        let change = if is_in_vain { seconds } else { -seconds };
        self.in_vain = (self.in_vain + change).max(0.0);
        self.calm = if is_in_vain { 0.0 } else { self.calm + seconds };
        if self.calm > HOLD_MAX_S {
            self.hold = 0.0;
        }
        if self.in_vain >= IN_VAIN_S {
            self.hold = (2.0 * self.hold).clamp(HOLD_S, HOLD_MAX_S);
            (self.free, self.in_vain) = (self.hold, 0.0);
        }
    }

    /// Whether they have turned out to be in vain lately.
    #[cfg(test)]
    pub fn is_known(&self) -> bool {
        self.hold > 0.0
    }

    /// Whether none are given now.
    pub fn is_free(&self) -> bool {
        self.free > 0.0
    }
}

/// How much longer orders may be in vain than of use.
const IN_VAIN_S: f64 = 0.3;
/// For how long none are given then; twice as long each time, up to a limit.
const HOLD_S: f64 = 2.0;
const HOLD_MAX_S: f64 = 64.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_tried_again_ever_later_and_soon_after_they_were_of_use() {
        let mut futile = Futile::default();
        let mut free_for = |is_in_vain: bool, seconds: f64| {
            let steps = (seconds / 0.01) as u32;
            (0..steps)
                .filter(|_| {
                    futile.step(is_in_vain, 0.01);
                    futile.is_free()
                })
                .count() as f64
                * 0.01
        };
        assert_eq!(free_for(true, 0.25) + free_for(false, 0.25) + free_for(true, 0.25), 0.0);
        free_for(false, 1.0);
        assert!((free_for(true, 7.0) - 6.0).abs() < 0.7, "2 s, and 4 s");
        assert!(free_for(true, 300.0) > 290.0);
        free_for(false, 140.0);
        assert!((free_for(true, 2.5) - 2.0).abs() < 0.3);
    }
}
