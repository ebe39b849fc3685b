//! The client's machine: bytes and time.

use super::Config;
use super::state::{Shared, State};
use crate::frame::{self, RREAD_PAYLOAD_AT};
use covey_wire::{Blame, Bytes, BytesMut, Deposit, Landing, Machine, Segments};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// The machine of one connection, to be driven by a loop. Dropped, all calls are lost.
pub struct Client {
    shared: Arc<Shared>,
    config: Config,
    /// The last receipt, or the first request after an idle time.
    quiet_since: Instant,
}

impl Client {
    pub(super) fn new(shared: Arc<Shared>, config: Config, now: Instant) -> Client {
        // A long past instant means that no time is known yet: the first request asks for
        // `handle_timeout` at once.
        let quiet_since = now.checked_sub(Duration::from_secs(86400)).unwrap_or(now);
        Client { shared, config, quiet_since }
    }

    /// Requests this soon after a receipt count from the receipt: a busy connection is not asked
    /// for the time at each request.
    fn slack(&self) -> Duration {
        self.config.heartbeat / 4
    }

    fn deadline(&self, state: &State) -> Option<Instant> {
        let watches = state.due > 0 || (self.config.heartbeat_idle && state.dialect.is_some());
        if state.lost.is_some() || !watches {
            return None;
        }
        let can_ask = state.dialect.is_some() && !state.has_heartbeat;
        let silence = if state.is_unstamped {
            self.slack() / 2
        } else if can_ask {
            self.config.heartbeat.min(self.config.dead_after)
        } else {
            self.config.dead_after
        };
        Some(self.quiet_since + silence)
    }

    /// Ends the connection for all.
    fn lose(&mut self, blame: Blame) -> Blame {
        let reason = blame.to_string();
        self.shared.with(|state| state.lose(&reason));
        blame
    }
}

impl Machine for Client {
    fn handle_input(&mut self, now: Instant, input: &mut BytesMut) -> Result<(), Blame> {
        self.handle_placed(now, input, Bytes::new())
    }

    fn handle_placed(
        &mut self,
        now: Instant,
        input: &mut BytesMut,
        mut placed: Bytes,
    ) -> Result<(), Blame> {
        let quiet_since = &mut self.quiet_since;
        let result = self.shared.with(|state| {
            if let Some(reason) = &state.lost {
                return Err(Blame::Io(reason.clone()));
            }
            if !input.is_empty() || !placed.is_empty() {
                // A part of a message is a sign of life too.
                (*quiet_since, state.is_unstamped) = (now, false);
            }
            while let Some(frame) = frame::next(input, &mut placed, state.msize)? {
                state.handle_reply(frame)?;
            }
            Ok(())
        });
        result.map_err(|blame| self.lose(blame))
    }

    fn handle_timeout(&mut self, now: Instant) -> Result<(), Blame> {
        let Some(deadline) = self.poll_deadline().filter(|deadline| *deadline <= now) else {
            return Ok(());
        };
        let slack = self.slack();
        let (config, quiet_since) = (&self.config, &mut self.quiet_since);
        let result = self.shared.with(|state| {
            if state.is_unstamped {
                state.is_unstamped = false;
                if now > *quiet_since + slack {
                    *quiet_since = now;
                }
                return Ok(());
            }
            // So late a call means that this side slept, not the peer: the peer gets its time
            // again.
            if now > deadline + config.heartbeat {
                *quiet_since = now;
            }
            if now >= *quiet_since + config.dead_after {
                state.is_silent = state.lost.is_none();
                let silence = config.dead_after.as_secs_f64();
                return Err(Blame::Io(format!("server has been silent for {silence} s")));
            }
            state.send_heartbeat();
            Ok(())
        });
        result.map_err(|blame| self.lose(blame))
    }

    fn poll_output(&mut self, out: &mut Segments, bytes_max: usize) -> bool {
        self.shared.with(|state| state.poll_output(out, bytes_max))
    }

    fn poll_deadline(&self) -> Option<Instant> {
        self.shared.with(|state| self.deadline(state))
    }

    fn poll_user(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Blame>> {
        self.shared.with(|state| state.poll_machine(context))
    }

    fn landing(&mut self, input: &mut BytesMut) -> Option<Landing> {
        // Looked at first without the lock: mostly nothing is there.
        if input.len() < RREAD_PAYLOAD_AT {
            return None;
        }
        let landing = self.shared.with(|state| {
            let (tag, bytes) = frame::begun_read(input, state.msize)?;
            state.landing(tag, bytes)
        });
        landing.map(|mut landing| {
            landing.put(&input[RREAD_PAYLOAD_AT..]);
            input.truncate(RREAD_PAYLOAD_AT);
            landing
        })
    }

    fn landed(
        &mut self,
        now: Instant,
        input: &mut BytesMut,
        landing: Landing,
    ) -> Result<(), Blame> {
        let (tag, _) = frame::begun_read(input, u32::MAX).expect("it was one before");
        input.clear();
        let quiet_since = &mut self.quiet_since;
        let result = self.shared.with(|state| {
            if let Some(reason) = &state.lost {
                return Err(Blame::Io(reason.clone()));
            }
            (*quiet_since, state.is_unstamped) = (now, false);
            state.handle_landed(tag, landing)
        });
        result.map_err(|blame| self.lose(blame))
    }

    /// While a payload may come that has a place to go to, headers are received alone.
    fn deposit(&mut self, input: &[u8]) -> Deposit {
        let (rooms, msize) = self.shared.with(|state| (state.rooms, state.msize));
        match RREAD_PAYLOAD_AT.checked_sub(input.len()) {
            _ if rooms == 0 => Deposit::No,
            Some(missing @ 1..) => Deposit::UpTo(missing),
            _ => Deposit::UpTo(frame::bytes_wanted(input, msize).max(1)),
        }
    }

    fn bytes_wanted(&self, input: &[u8]) -> usize {
        frame::bytes_wanted(input, self.shared.with(|state| state.msize))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.shared.with(|state| state.lose("connection closed"));
    }
}
