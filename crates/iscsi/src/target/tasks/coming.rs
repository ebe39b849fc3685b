//! Data that comes for tasks: asking for it, taking it, and handing it on.

use super::*;

impl<D: Device> Tasks<D> {
    /// Gives tasks what has come for them: one turn late where there is output, because the initiator can work on what it is
    /// asked for meanwhile. Whether it gave any.
    pub(super) fn hand_over(&mut self, link: &Link<D>, wire: &mut Wire) -> bool {
        if self.ready.is_empty() {
            return false;
        }
        self.is_late = !self.is_late && !wire.out.is_empty();
        if self.is_late {
            return false;
        }
        while let Some(itt) = self.ready.pop_front() {
            let Some(running) = self.running.get_mut(&itt) else { continue };
            let State::Streaming(block_bytes) = running.state else { continue };
            if running.out.is_broken() && running.out.is_complete() {
                self.end(link, wire, itt, broken());
            } else if let Some(data) = running.out.collect_some(block_bytes) {
                running.state = State::Waiting;
                self.go_on(link, wire, itt, Input::Data(data));
            }
        }
        true
    }

    /// Asks for data, for as many tasks as there is memory for.
    pub(super) fn ask_for_data(&mut self, link: &Link<D>, wire: &mut Wire) {
        let mut is_first = true;
        let most = self.at_most(COLLECT_BYTES_MAX);
        let mut outstanding = if link.credit.has_window() { self.outstanding() } else { 0 };
        self.is_waiting_for_turn = false;
        for itt in &self.collecting {
            let Some(running) = self.running.get_mut(itt) else { continue };
            while let Some(wanted) = running.out.next_r2t_bytes(&link.parameters) {
                if !is_first && self.asked_bytes + wanted > most {
                    return;
                }
                let bytes = self.turn.admit(&link.credit, wanted, outstanding, wire.now);
                if bytes == 0 {
                    // Where it is the window, what comes makes room.
                    self.is_waiting_for_turn = self.turn.next().is_some_and(|at| at > wire.now);
                    return;
                }
                outstanding += bytes;
                self.next_ttt = next_tag(self.next_ttt);
                let r2t = running.out.ask(self.next_ttt, bytes);
                running.asked_bytes += bytes;
                self.asked_bytes += bytes;
                put_r2t(link, wire, running.lun, *itt, &r2t);
            }
            is_first = false;
        }
    }

    /// Asked for and not yet here.
    fn outstanding(&self) -> u64 {
        let running = self.collecting.iter().filter_map(|itt| self.running.get(itt));
        running.map(|running| running.out.outstanding()).sum()
    }

    /// When data may be asked for again that somebody waits for.
    pub fn turn(&self) -> Option<Instant> {
        self.turn.next().filter(|_| self.is_waiting_for_turn)
    }

    /// Asks for what it was too early for.
    pub fn take_turn(&mut self, link: &Link<D>, wire: &mut Wire) {
        if self.is_waiting_for_turn {
            self.ask_for_data(link, wire);
        }
    }

    /// Takes a Data-Out. An error is the reason of a Reject.
    pub fn data_out(&mut self, link: &Link<D>, wire: &mut Wire, pdu: &Pdu) -> Result<(), u8> {
        let Ok(Header::DataOut { flags: bits, itt, ttt, data_sn, offset, .. }) = &pdu.header else {
            return Err(reject::PROTOCOL);
        };
        // The data of a task that was aborted is on its way still.
        let Some(running) = self.running.get_mut(itt) else { return Ok(()) };
        running.out.take(Arrived {
            ttt: *ttt,
            data_sn: *data_sn,
            offset: (*offset).into(),
            data: pdu.data.clone(),
            is_final: bits & flags::FINAL != 0,
            is_sound: pdu.is_sound,
        })?;
        running.come_bytes += pdu.data.len() as u64;
        self.come_bytes += pdu.data.len() as u64;
        self.data_has_come(link, wire, *itt);
        Ok(())
    }

    fn data_has_come(&mut self, link: &Link<D>, wire: &mut Wire, itt: u32) {
        let Some(running) = self.running.get_mut(&itt) else { return };
        match &running.state {
            State::Draining(_) if !running.out.is_owed() => {
                let State::Draining(completion) =
                    std::mem::replace(&mut running.state, State::Waiting)
                else {
                    return;
                };
                self.finish(link, wire, itt, completion);
            }
            State::Collecting if running.out.is_complete() => {
                let (is_broken, data) = (running.out.is_broken(), running.out.collect());
                self.stop_collecting(itt);
                if is_broken {
                    self.end(link, wire, itt, broken())
                } else {
                    self.go_on(link, wire, itt, Input::Data(data))
                }
                self.ask_for_data(link, wire);
            }
            State::Streaming(_) => self.more_has_come(link, wire, itt),
            State::Collecting | State::Waiting => {
                // All of it may have come while the store has the part before.
                if running.out.is_complete() {
                    self.stop_collecting(itt);
                }
                self.ask_for_data(link, wire);
            }
            State::Draining(_) => {}
        }
    }

    pub(super) fn more_has_come(&mut self, link: &Link<D>, wire: &mut Wire, itt: u32) {
        if self.running.get(&itt).is_some_and(|running| running.out.is_complete()) {
            self.stop_collecting(itt);
        }
        self.ready.push_back(itt);
        self.ask_for_data(link, wire);
    }

    /// Whether data was asked for, or was to be.
    pub(super) fn stop_collecting(&mut self, itt: u32) -> bool {
        let before = self.collecting.len();
        self.collecting.retain(|other| *other != itt);
        if let Some(running) = self.running.get_mut(&itt) {
            self.asked_bytes -= std::mem::take(&mut running.asked_bytes);
        }
        self.collecting.len() != before
    }
}
