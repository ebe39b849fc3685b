//! Reads and writes that a transport does later, as verbs does: each has the number of its operation, and they end in any
//! order. One may be refused when its turn comes, because the registration that was seen is there no more. Then the peer
//! is asked instead: it knows why, and says it.

use super::Engine;
use crate::Fault;
use crate::api::{Local, Remote, Started};
use crate::core::Core;
use crate::direct::Far;
use crate::numbers::OpIndex;
use crate::ops::{State, What};
use covey_wire::transport::{Refused, Transfer};
use covey_wire::{Memory, Span, Transport};

/// Memory of ours in one piece, and where in the peer's it belongs.
struct Piece {
    ours: Span,
    theirs: Vec<Span>,
}

impl<T: Transport, M: Memory> Engine<T, M> {
    /// Has the transport get or put, begun while the registration is seen. `None` where the two sides have no pieces that
    /// are worth naming.
    pub(super) fn post_all(
        &mut self,
        what: What,
        local: Local,
        remote: Remote,
        far: &Far,
        data: Option<u64>,
        context: u64,
    ) -> Result<Option<Started>, Fault> {
        let Some(pieces) = self.core.pieces(&local, far)? else { return Ok(None) };
        let peer = remote.peer;
        let index = self.core.ops.add(what, peer, context, local).ok_or(Fault::Busy)?;
        let op = &mut self.core.ops[index];
        (op.bytes, op.wanted, op.state) = (far.bytes, far.bytes, State::Away);
        op.more().remote = Some(remote);
        op.tells(data);
        let token = self.core.ops.wire(index).token();
        for Piece { ours, theirs } in pieces {
            let posted = match what {
                What::Get => self.transport.read(token, peer, &theirs, ours),
                _ => self.transport.write(token, peer, ours, &theirs),
            };
            let op = &mut self.core.ops[index];
            match posted {
                Ok(Transfer::Started) => op.posted += 1,
                Ok(Transfer::Done) => {}
                // What was posted before goes on; then the peer does it all.
                Err(_) => {
                    op.more().is_refused = true;
                    break;
                }
            }
        }
        let id = self.core.ops.id(index);
        if self.core.ops[index].posted == 0 {
            self.core.posted_all_ended(index);
        }
        Ok(Some(Started::Pending(id)))
    }
}

impl<M: Memory> Core<M> {
    /// One of the reads or writes of an operation has ended.
    #[cold]
    pub fn posted_ended(&mut self, index: OpIndex, result: Result<(), Refused>) {
        let op = &mut self.ops[index];
        op.posted = op.posted.saturating_sub(1);
        if result.is_err() {
            op.more().is_refused = true;
        }
        if op.posted == 0 {
            self.posted_all_ended(index);
        }
    }

    /// Nothing of an operation is the transport's any more: it is done, or the peer is asked.
    fn posted_all_ended(&mut self, index: OpIndex) {
        let op = &mut self.ops[index];
        let peer = op.peer;
        if !op.more().is_refused {
            self.stats.direct += u64::from(op.fault.is_none());
            return self.complete_or_tell(index);
        }
        op.state = State::Waiting;
        if self.peer(peer).is_err() {
            return self.fail(index, Fault::PeerDead);
        }
        self.peers[peer.0 as usize].backlog.push_back(index);
        self.enqueue(peer);
    }

    /// Both sides in pieces; `None` where they are short, or many.
    fn pieces(&self, local: &Local, far: &Far) -> Result<Option<Vec<Piece>>, Fault> {
        let Some(theirs) = far.worth_naming(FEW, PIECE_BYTES_MIN) else { return Ok(None) };
        let ours = match local.form {
            None => vec![(0, local.span.part(0, far.bytes).ok_or(Fault::OutOfRange)?)],
            Some(form) => {
                let origin = local.span.address.checked_add(local.origin);
                let origin = origin.ok_or(Fault::OutOfRange)?;
                let form = Some(self.forms.find(form)?.clone());
                let here = Far { peer: far.peer, origin, form, bytes: far.bytes };
                let Some(ours) = here.worth_naming(FEW, PIECE_BYTES_MIN) else { return Ok(None) };
                ours
            }
        };
        let piece = |(at, ours): (u64, Span)| Piece { ours, theirs: cut(&theirs, at, ours.bytes) };
        Ok(Some(ours.into_iter().map(piece).collect()))
    }
}

/// The parts of runs that have packed bytes from `at` on.
fn cut(runs: &[(u64, Span)], at: u64, bytes: u64) -> Vec<Span> {
    let first = runs.partition_point(|(packed, run)| packed + run.bytes <= at);
    let within = runs[first..].iter().take_while(|(packed, _)| *packed < at + bytes);
    within
        .filter_map(|(packed, run)| {
            let (begin, end) = (at.max(*packed), (at + bytes).min(packed + run.bytes));
            run.part(begin - packed, end - begin)
        })
        .collect()
}

/// A request takes a card some 100 ns, as long as it takes to copy this.
const PIECE_BYTES_MIN: u64 = 64;
/// So many are named at once, and the peer need not be asked.
const FEW: u64 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_has_the_parts_of_runs_that_belong_to_it() {
        let runs = [(0, Span::new(100, 10)), (10, Span::new(200, 10)), (20, Span::new(300, 5))];
        assert_eq!(cut(&runs, 0, 25).len(), 3);
        assert_eq!(cut(&runs, 5, 10), [Span::new(105, 5), Span::new(200, 5)]);
        assert_eq!(cut(&runs, 10, 10), [Span::new(200, 10)]);
        assert_eq!(cut(&runs, 19, 3), [Span::new(209, 1), Span::new(300, 2)]);
    }
}
