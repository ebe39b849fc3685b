//! Buffers that take many messages. Each message has an operation of its own while it is not whole; the buffer's own one
//! stays among the posted receives until too little is left, and ends after the last of them.

use super::Core;
use crate::numbers::OpIndex;
use crate::ops::{Many, State};
use covey_wire::Memory;

impl<M: Memory> Core<M> {
    /// The next part of a buffer, for a message of this many bytes: as many of them as are left. `None` when there is no
    /// number for it.
    pub fn part_of(&mut self, parent: OpIndex, bytes: u64) -> Option<OpIndex> {
        let mut local = self.ops[parent].local;
        let Many { used, left_min, .. } = self.many(parent);
        let left = local.span.bytes - used;
        let bytes = bytes.min(left);
        local.span = local.span.part(used, bytes)?;
        let part = self.ops.add_part(parent, used, local)?;
        let many = &mut self.ops[parent].more().many;
        (many.used, many.parts) = (used + bytes, many.parts + 1);
        if left - bytes < left_min {
            self.close_many(parent);
        }
        Some(part)
    }

    /// A buffer takes no more messages. It ends when those that it has are whole.
    pub fn close_many(&mut self, parent: OpIndex) {
        let op = &self.ops[parent];
        let (state, queue) = (op.state, op.traits.queue());
        if state == State::Posted {
            self.queues[queue].posted.remove(&mut self.ops, parent);
        }
        self.ops[parent].state = State::Closing;
        self.release_many(parent);
    }

    /// A message in a buffer has ended.
    #[cold]
    pub fn part_ended(&mut self, parent: OpIndex) {
        self.ops[parent].more().many.parts -= 1;
        self.release_many(parent);
    }

    fn release_many(&mut self, parent: OpIndex) {
        let Many { used, parts, .. } = self.many(parent);
        if parts == 0 && self.ops[parent].state == State::Closing {
            self.ops[parent].bytes = used;
            self.complete(parent);
        }
    }

    fn many(&self, parent: OpIndex) -> Many {
        self.ops[parent].more.as_ref().map_or_else(Many::default, |more| more.many)
    }
}
