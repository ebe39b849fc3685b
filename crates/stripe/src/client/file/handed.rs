//! What a file that is open owes to its programs when another process goes on with it.

use super::OpenFile;
use crate::client::Unsynced;
use covey_wire::List;

impl OpenFile {
    /// What an fsync would have to see to.
    pub fn unsynced(&self) -> Unsynced {
        let state = self.lock();
        let (server_start, machine_start) = state.starts;
        let slots = List(state.slots.iter().map(|slot| slot.unsynced()).collect());
        Unsynced { id: self.id, server_start, machine_start, is_lost: state.is_told_lost, slots }
    }

    /// Takes it on, before the first request.
    pub fn owe(&self, before: &Unsynced) {
        let mut state = self.lock();
        state.starts = (before.server_start, before.machine_start);
        state.is_told_lost |= before.is_lost;
        // A file of another striping has moved since: nothing is known of its objects.
        if before.slots.0.len() == state.slots.len() {
            for (slot, before) in state.slots.iter_mut().zip(&before.slots.0) {
                slot.owe(before);
            }
        }
    }
}
