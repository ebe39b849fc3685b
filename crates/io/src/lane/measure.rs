//! Which of two ways to a peer is faster: a few round trips by each, in turn, and the best of either counts.
//!
//! A peer answers while it polls, so most round trips measure what its program does; the best ones measure the way. Half of
//! the wire's carry the longest frame: a network that loses those is not used.

/// Round trips by each way.
const ROUNDS: u32 = 16;
/// An answer by the wire that takes longer is compared with one by the stream: only a peer that answers there has lost it.
const PATIENCE_NS: u64 = 1_000_000;
/// Lost round trips after which the wire is given up.
const LOST_MAX: u32 = 3;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait for an answer.
    Nothing,
    PingStream,
    /// In this round, by a frame of this length.
    PingWire(u32, Length),
    Done(Outcome),
}

/// How long a frame is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    Shortest,
    Longest,
}

/// The best round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// By the stream, in nanoseconds.
    pub stream_ns: u64,
    /// By the wire; none where too little came back.
    pub wire_ns: Option<u64>,
}

impl Outcome {
    /// Whether the wire is clearly better.
    pub fn is_wire_better(&self) -> bool {
        self.wire_ns.is_some_and(|wire| wire < self.stream_ns - self.stream_ns / 10)
    }
}

#[derive(Debug)]
pub(super) struct Measure {
    round: u32,
    state: State,
    stream_ns: u64,
    wire_ns: Option<u64>,
    lost: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Begins,
    Stream {
        since: u64,
    },
    Wire {
        since: u64,
    },
    /// The wire's answer is late: is the peer there at all?
    Doubts {
        since: u64,
        has_answer: bool,
    },
    Done,
}

impl Measure {
    pub fn new() -> Measure {
        let state = State::Begins;
        Measure { round: 0, state, stream_ns: u64::MAX, wire_ns: None, lost: 0 }
    }

    /// Time has passed.
    pub fn go_on(&mut self, now: u64) -> Next {
        match self.state {
            State::Begins => {
                self.state = State::Stream { since: now };
                Next::PingStream
            }
            State::Wire { since } if now > since + PATIENCE_NS => {
                self.state = State::Doubts { since, has_answer: false };
                Next::PingStream
            }
            _ => Next::Nothing,
        }
    }

    /// The stream has brought an answer.
    pub fn by_stream(&mut self, now: u64) -> Next {
        match self.state {
            State::Stream { since } => {
                self.stream_ns = self.stream_ns.min(now.saturating_sub(since));
                self.state = State::Wire { since: now };
                let is_even = self.round.is_multiple_of(2);
                Next::PingWire(self.round, if is_even { Length::Shortest } else { Length::Longest })
            }
            State::Doubts { has_answer, .. } => {
                self.lost += u32::from(!has_answer);
                self.end_round(now)
            }
            _ => Next::Nothing,
        }
    }

    /// The wire has brought an answer to this round's question.
    pub fn by_wire(&mut self, round: u32, now: u64) -> Next {
        match self.state {
            State::Wire { since } if round == self.round => {
                self.took(now.saturating_sub(since));
                self.end_round(now)
            }
            // It is late: the round ends with what the stream answers, so that nothing is under way then.
            State::Doubts { since, .. } if round == self.round => {
                self.took(now.saturating_sub(since));
                self.state = State::Doubts { since, has_answer: true };
                Next::Nothing
            }
            _ => Next::Nothing,
        }
    }

    fn took(&mut self, ns: u64) {
        self.wire_ns = Some(self.wire_ns.map_or(ns, |best| best.min(ns)));
    }

    fn end_round(&mut self, now: u64) -> Next {
        self.round += 1;
        if self.round < ROUNDS && self.lost < LOST_MAX {
            self.state = State::Stream { since: now };
            return Next::PingStream;
        }
        self.state = State::Done;
        let wire_ns = self.wire_ns.filter(|_| self.lost < LOST_MAX);
        Next::Done(Outcome { stream_ns: self.stream_ns, wire_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs one over ways that take so long, the wire by the length of the frame; none where it loses it.
    fn run(stream: u64, wire: impl Fn(Length) -> Option<u64>) -> Outcome {
        let (mut measure, mut now) = (Measure::new(), 0);
        let mut next = measure.go_on(now);
        loop {
            next = match next {
                Next::PingStream => {
                    now += stream;
                    measure.by_stream(now)
                }
                Next::PingWire(round, length) => match wire(length) {
                    Some(wire) => {
                        now += wire;
                        measure.by_wire(round, now)
                    }
                    None => {
                        now += PATIENCE_NS + 1;
                        measure.go_on(now)
                    }
                },
                Next::Done(outcome) => return outcome,
                Next::Nothing => panic!("it waits for nothing"),
            }
        }
    }

    #[test]
    fn the_wire_is_taken_where_it_is_clearly_better_and_not_where_it_is_lost() {
        assert!(run(10_000, |_| Some(8_999)).is_wire_better());
        assert!(!run(10_000, |_| Some(9_000)).is_wire_better());
        let lost = run(10_000, |_| None);
        assert_eq!(lost, Outcome { stream_ns: 10_000, wire_ns: None });
        assert!(!lost.is_wire_better());
    }

    #[test]
    fn a_wire_that_loses_long_frames_is_not_taken() {
        let lost = run(10_000, |length| (length == Length::Shortest).then_some(1_000));
        assert_eq!(lost.wire_ns, None);
        // A long one takes longer, which is no reason against the wire.
        let best =
            run(10_000, |length| Some(if length == Length::Shortest { 1_000 } else { 20_000 }));
        assert_eq!(best.wire_ns, Some(1_000));
    }

    #[test]
    fn a_peer_that_computes_has_lost_nothing() {
        let mut measure = Measure::new();
        assert_eq!(measure.go_on(0), Next::PingStream);
        assert_eq!(measure.by_stream(5_000), Next::PingWire(0, Length::Shortest));
        // It answers neither way for a second; then both come.
        assert_eq!(measure.go_on(1_000_000_000), Next::PingStream);
        assert_eq!(measure.go_on(2_000_000_000), Next::Nothing);
        assert_eq!(measure.by_wire(0, 2_000_000_000), Next::Nothing);
        assert_eq!(measure.by_stream(2_000_000_000), Next::PingStream);
        assert_eq!(measure.lost, 0);
    }
}
