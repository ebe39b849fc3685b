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
    /// 5: the sender can copy from the receiver's memory.
    Fetches,
    /// 6 `index[4] bytes[4] address[8]`: the next bytes of the stream lie in memory of the sender, until they were fetched.
    Lies { index: u32, bytes: u32, address: u64 },
    /// 7 `index[4] whole[1]`: they were fetched, or with 0, as many as there were.
    Fetched { index: u32, is_whole: bool },
    /// 8 `cut[1]`: those that were missing are gone, and stand for zeros; or with 0, are to be fetched again.
    Rest { is_cut: bool },
}

/// Longest head.
const HEAD_BYTES: usize = 17;

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
            Head::Fetches => out.push(5),
            Head::Lies { index, bytes, address } => {
                out.push(6);
                out.extend_from_slice(&index.to_le_bytes());
                out.extend_from_slice(&bytes.to_le_bytes());
                out.extend_from_slice(&address.to_le_bytes());
            }
            Head::Fetched { index, is_whole } => {
                out.push(7);
                out.extend_from_slice(&index.to_le_bytes());
                out.push(is_whole.into());
            }
            Head::Rest { is_cut } => out.extend_from_slice(&[8, is_cut.into()]),
        }
        out
    }

    /// What it is, of bytes that nobody changes any more. `None` when it is nothing.
    pub fn decode(head: &[u8]) -> Option<Head> {
        let (number, fields) = head.split_first()?;
        let mut fields = Fields(fields);
        let head = match number {
            1 => Head::Bytes,
            2 => Head::Landed { block: fields.u32()?, bytes: fields.u32()? },
            3 => Head::Free,
            4 => Head::Credit { bytes: fields.u64()? },
            5 => Head::Fetches,
            6 => Head::Lies { index: fields.u32()?, bytes: fields.u32()?, address: fields.u64()? },
            7 => Head::Fetched { index: fields.u32()?, is_whole: fields.bool()? },
            8 => Head::Rest { is_cut: fields.bool()? },
            _ => return None,
        };
        fields.0.is_empty().then_some(head)
    }
}

/// What is left of a head.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn bool(&mut self) -> Option<bool> {
        self.take().filter(|[byte]| *byte < 2).map(|[byte]| byte == 1)
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
        let table: [(Head, &[u8]); 8] = [
            (Head::Bytes, &[1]),
            (Head::Landed { block: 7, bytes: 0x10_0000 }, &[2, 7, 0, 0, 0, 0, 0, 0x10, 0]),
            (Head::Free, &[3]),
            (Head::Credit { bytes: 0x8001 }, &[4, 1, 0x80, 0, 0, 0, 0, 0, 0]),
            (Head::Fetches, &[5]),
            (
                Head::Lies { index: 3, bytes: 0x10_0000, address: 0x7f00_0000_1000 },
                &[6, 3, 0, 0, 0, 0, 0, 0x10, 0, 0, 0x10, 0, 0, 0, 0x7f, 0, 0],
            ),
            (Head::Fetched { index: 3, is_whole: true }, &[7, 3, 0, 0, 0, 1]),
            (Head::Rest { is_cut: false }, &[8, 0]),
        ];
        for (head, bytes) in table {
            assert_eq!(head.encode(), bytes);
            assert_eq!(Head::decode(bytes), Some(head));
            let longer = [bytes, &[0]].concat();
            assert_eq!(Head::decode(&longer), None);
            assert_eq!(Head::decode(&bytes[..bytes.len() - 1]), None);
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
