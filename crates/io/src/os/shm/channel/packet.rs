//! The heads of a channel's packets, and what may be on its way.

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// 1: the payload is the next bytes of the stream.
    Bytes,
    /// 2 `block[4] bytes[4]`: the next bytes of the stream are the first ones of a block of the receiver.
    Landed { block: u32, bytes: u32 },
    /// 3: the payload has the numbers, `[4]` each, of blocks of the sender that may be filled again.
    Free,
    /// 4 `bytes[8]`: so much of the window may be used again.
    Credit { bytes: u64 },
}

/// Longest head.
const HEAD_BYTES: usize = 9;

impl Head {
    /// Its bytes.
    pub fn encode(self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD_BYTES);
        match self {
            Head::Bytes => out.push(1),
            Head::Landed { block, bytes } => {
                out.push(2);
                out.extend_from_slice(&block.to_le_bytes());
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Head::Free => out.push(3),
            Head::Credit { bytes } => {
                out.push(4);
                out.extend_from_slice(&bytes.to_le_bytes());
            }
        }
        out
    }

    /// What it is, of bytes that nobody changes any more. `None` when it is nothing.
    pub fn decode(head: &[u8]) -> Option<Head> {
        match *head {
            [1] => Some(Head::Bytes),
            [2, a, b, c, d, e, f, g, h] => Some(Head::Landed {
                block: u32::from_le_bytes([a, b, c, d]),
                bytes: u32::from_le_bytes([e, f, g, h]),
            }),
            [3] => Some(Head::Free),
            [4, a, b, c, d, e, f, g, h] => {
                Some(Head::Credit { bytes: u64::from_le_bytes([a, b, c, d, e, f, g, h]) })
            }
            _ => None,
        }
    }
}

/// What both directions may have on their way: each packet of the stream costs its payload and a little. So neither the
/// lines nor the bytes of a ring are ever all taken, with what its reader has read and not yet told.
#[derive(Debug, Default)]
pub(super) struct Credit {
    /// Sent by us and not told to have been taken.
    spent: u64,
    /// Taken by us and not told.
    taken: u64,
    /// Sent by the peer and not told to have been taken.
    open: u64,
}

/// What may be on its way.
const WINDOW: u64 = 128 << 10;
/// What a packet costs beside its payload.
const PACKET_COST: u64 = 512;

impl Credit {
    /// Whether a packet of so many bytes may be sent.
    pub fn permits(&self, bytes: usize) -> bool {
        self.spent + PACKET_COST + bytes as u64 <= WINDOW
    }

    /// A packet was sent.
    pub fn spend(&mut self, bytes: usize) {
        self.spent += PACKET_COST + bytes as u64;
    }

    /// The peer has taken so much. False when it had not been sent.
    pub fn refund(&mut self, bytes: u64) -> bool {
        let left = self.spent.checked_sub(bytes);
        self.spent = left.unwrap_or(self.spent);
        left.is_some()
    }

    /// A packet of the peer has come. False when it was not permitted.
    pub fn receive(&mut self, bytes: usize) -> bool {
        self.open += PACKET_COST + bytes as u64;
        self.open <= WINDOW
    }

    /// A packet of the peer was taken.
    pub fn take(&mut self, bytes: usize) {
        self.taken += PACKET_COST + bytes as u64;
    }

    /// What the peer should be told.
    pub fn due(&self) -> Option<u64> {
        (self.taken >= WINDOW / 4).then_some(self.taken)
    }

    /// It was told.
    pub fn told(&mut self) {
        self.open -= self.taken;
        self.taken = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_have_these_bytes_and_no_others_are_heads() {
        let table: [(Head, &[u8]); 4] = [
            (Head::Bytes, &[1]),
            (Head::Landed { block: 7, bytes: 0x10_0000 }, &[2, 7, 0, 0, 0, 0, 0, 0x10, 0]),
            (Head::Free, &[3]),
            (Head::Credit { bytes: 0x8001 }, &[4, 1, 0x80, 0, 0, 0, 0, 0, 0]),
        ];
        for (head, bytes) in table {
            assert_eq!(head.encode(), bytes);
            assert_eq!(Head::decode(bytes), Some(head));
            let longer = [bytes, &[0]].concat();
            assert_eq!(Head::decode(&longer), None);
            assert_eq!(Head::decode(&bytes[1..]), None);
        }
    }

    #[test]
    fn the_window_is_full_and_opens_again() {
        let (mut ours, mut theirs) = (Credit::default(), Credit::default());
        let mut sent = 0;
        while ours.permits(32 << 10) {
            ours.spend(32 << 10);
            assert!(theirs.receive(32 << 10));
            sent += 1;
        }
        assert_eq!(sent, 3);
        assert_eq!(theirs.due(), None);
        theirs.take(32 << 10);
        let told = theirs.due().expect("a quarter was taken");
        theirs.told();
        assert!(ours.refund(told) && ours.permits(32 << 10));
        assert!(theirs.receive(32 << 10) && !theirs.receive(32 << 10), "one was told of");
        assert!(!ours.refund(WINDOW), "nobody takes what was not sent");
    }
}
