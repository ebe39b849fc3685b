//! Frames that belong to no connection that is known: a difference of counters, of which only a part is traffic.
//!
//! The counters of an interface and those of connections are not read at the same instant, and what a connection has handed
//! to its own card waits there before the interface counts it. So the difference wavers, without growing. A connection
//! that nobody has listed yet makes it grow as well as a message does: it has to be listed before the rest is believed.

use super::{Carried, Rest};

/// Sums of what is not explained, in one direction of an interface.
#[derive(Clone, Copy, Debug, Default)]
pub struct Strays {
    /// Frames and bytes since the beginning; what waits in the card's own queue is missing.
    sum: Carried,
    /// What of it is settled: believed, or forgiven.
    settled: Carried,
    /// By how many frames the last readings may be wrong.
    slack: f64,
}

impl Strays {
    /// Takes in a difference. Answers what of it is messages.
    pub fn take(&mut self, rest: Carried, what: Rest, between: f64, seconds: f64) -> Carried {
        self.sum = add(self.sum, rest);
        self.slack = SLACK_PACKETS + between;
        if what == Rest::Changed {
            self.settled = self.sum;
        }
        let above = self.sum.packets - self.settled.packets;
        let over = if above > 0.0 { FORGIVEN_OVER_S } else { LOST_OVER_S };
        self.settle(above.min(SLACK_PACKETS) * (seconds / over).min(1.0));
        let surplus = self.sum.packets - self.settled.packets - self.slack;
        if what != Rest::Messages || surplus <= 0.0 {
            return Carried::default();
        }
        self.settle(surplus)
    }

    /// Whether there is more than the readings may be wrong by.
    pub fn has_some(&self) -> bool {
        self.sum.packets - self.settled.packets > self.slack
    }

    /// Settles frames, and as many of the bytes. Answers how much that was.
    fn settle(&mut self, packets: f64) -> Carried {
        let above = Carried {
            packets: self.sum.packets - self.settled.packets,
            bytes: self.sum.bytes - self.settled.bytes,
        };
        if above.packets == 0.0 {
            return Carried::default();
        }
        let each = (above.bytes / above.packets).clamp(FRAME_BYTES_MIN, FRAME_BYTES_MAX);
        let settled = Carried { packets, bytes: packets * each };
        self.settled.packets += packets;
        self.settled.bytes += packets / above.packets * above.bytes;
        settled
    }
}

fn add(one: Carried, other: Carried) -> Carried {
    Carried { packets: one.packets + other.packets, bytes: one.bytes + other.bytes }
}

/// Frames by which readings at one instant may still be wrong.
const SLACK_PACKETS: f64 = 4.0;
/// Frames of the link itself come now and then: what they are too few for is forgotten within this time.
const FORGIVEN_OVER_S: f64 = 1.0;
/// Frames that were dropped before the interface counted them are missing for ever, those in its queue are not.
const LOST_OVER_S: f64 = 20.0;
/// The shortest frame as an interface counts it, and an ordinary long one.
const FRAME_BYTES_MIN: f64 = 60.0;
const FRAME_BYTES_MAX: f64 = 1514.0;

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(packets: f64) -> Carried {
        Carried { packets, bytes: packets * 100.0 }
    }

    fn taken(strays: &mut Strays, each: f64, intervals: u32, what: Rest) -> f64 {
        (0..intervals).map(|_| strays.take(frames(each), what, 0.0, 0.01).packets).sum()
    }

    #[test]
    fn messages_without_a_connection_are_believed_but_for_the_slack() {
        let mut strays = Strays::default();
        let sum = taken(&mut strays, 10.0, 100, Rest::Messages);
        assert!((985.0..=996.0).contains(&sum), "{sum}");
    }

    #[test]
    fn what_wavers_or_drips_is_no_message() {
        let mut strays = Strays::default();
        for at in 0..1000 {
            let skew = if at % 2 == 0 { 3.5 } else { -3.5 };
            let taken = strays.take(frames(skew), Rest::Messages, 0.0, 0.01);
            assert_eq!(taken.packets, 0.0, "{at}");
        }
        // Two frames a second.
        assert_eq!(taken(&mut strays, 0.02, 1000, Rest::Messages), 0.0);
    }

    #[test]
    fn a_queue_in_the_card_that_drains_is_no_message() {
        let mut strays = Strays::default();
        let mut sum = 0.0;
        for _ in 0..50 {
            sum += taken(&mut strays, -4.0, 10, Rest::Messages);
            sum += taken(&mut strays, 4.0, 10, Rest::Messages);
        }
        // 2,000 frames have waited there, in 10 s.
        assert!(sum < 10.0, "{sum}");
    }

    #[test]
    fn nothing_is_believed_before_connections_were_listed() {
        let mut strays = Strays::default();
        assert_eq!(taken(&mut strays, 10.0, 5, Rest::Unknown), 0.0);
        assert!(strays.has_some());
        // There is a new connection: it was that.
        assert_eq!(taken(&mut strays, 10.0, 1, Rest::Changed), 0.0);
        assert!(!strays.has_some());
        assert_eq!(taken(&mut strays, 10.0, 5, Rest::Unknown), 0.0);
        // There is none: these were messages.
        assert!(taken(&mut strays, 10.0, 1, Rest::Messages) > 50.0);
    }

    #[test]
    fn a_reading_that_was_held_up_is_allowed_for() {
        let mut strays = Strays::default();
        let late = strays.take(frames(40.0), Rest::Messages, 80.0, 0.01);
        let next = strays.take(frames(-40.0), Rest::Messages, 0.0, 0.01);
        assert_eq!((late.packets, next.packets), (0.0, 0.0));
    }
}
