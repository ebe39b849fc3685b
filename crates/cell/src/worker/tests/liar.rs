//! Workers over a host that lies: a worker ends with an error, or goes on, and nothing worse.

use super::*;

/// What a host says instead of the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// The answer, and the same again.
    Twice,
    /// More data than was asked for.
    Longer,
    /// An answer to something else.
    OtherKind,
    /// An answer to somebody else.
    OtherTag,
    /// In the slot of somebody else.
    OtherSlot,
    /// The slot comes back without an answer.
    Nothing,
    /// The length is that of another message.
    OtherLength,
    /// One bit is wrong.
    Bit,
}

const ALL: [Lie; 8] = [
    Lie::Twice,
    Lie::Longer,
    Lie::OtherKind,
    Lie::OtherTag,
    Lie::OtherSlot,
    Lie::Nothing,
    Lie::OtherLength,
    Lie::Bit,
];

impl ToyServer {
    /// Posts a reply, or what stands for it.
    pub fn answer(&mut self, mut reply: Vec<u8>) {
        let is_errand = reply[6] == 0xff;
        let Some(lie) = self.lie.filter(|_| is_errand && self.rng.index(4) == 0) else {
            let posted = self.mailbox.reply(&reply);
            // After a lie it may have none.
            assert!(posted.is_ok() || self.lies > 0, "a slot for each reply");
            return;
        };
        let tag = u16::from_le_bytes([reply[5], reply[6]]);
        let Some(slot) = self.mailbox.slot_of_tag(tag) else { return };
        self.lies += 1;
        let other = self.rng.index(16);
        let bit = self.rng.index(reply.len() * 8);
        let (mut slots, mut bytes) = (vec![slot], None);
        match lie {
            Lie::Twice => slots.push(slot),
            Lie::Longer => {
                reply.extend([0xee; 900]);
                let data = (reply.len() - 11) as u32;
                reply[7..11].copy_from_slice(&data.to_le_bytes());
            }
            Lie::OtherKind => reply[4] = [121, 109, 13, 117, 119][other % 5],
            Lie::OtherTag => reply[5] = reply[5].wrapping_add(1 + other as u8),
            Lie::OtherSlot => slots = vec![other],
            Lie::Nothing => bytes = Some(0),
            Lie::OtherLength => bytes = Some(other as u32 * 3000 + 1),
            Lie::Bit => reply[bit / 8] ^= 1 << (bit % 8),
        }
        let size = reply.len() as u32;
        if lie != Lie::Bit {
            reply[..4].copy_from_slice(&size.to_le_bytes());
        }
        slots.into_iter().for_each(|slot| self.mailbox.forge(slot, &reply, bytes.unwrap_or(size)));
    }
}

/// What each of four coroutines does, whatever it is answered: short transfers at odd places.
fn restless(me: Me) {
    let fd = me.open("#r/all", mode::ANY);
    for cor in 0..4_u64 {
        me.spawn(move |me| {
            let (at, count) = (cor * 4096, 48 + cor);
            for step in 0..20 {
                let from = me.put(at, &[cor as u8; 64]);
                let from = Span::new(from.address, count);
                let _ = me.ask(Request::Write { fd, from, at: Some(step * 3 + 1) });
                me.put(at + count, &[0xab; 1024]);
                let read = Request::Read { fd, to: Span::new(at, count), at: Some(step * 5 + 1) };
                if let Ok(got) = me.ask(read) {
                    assert!(got as u64 <= count);
                }
                assert_eq!(me.get(at + count, 1024), [0xab; 1024], "behind what was asked for");
            }
        })
        .unwrap();
    }
}

/// How the worker ends, and how often it was lied to.
fn lied_to(lie: Lie, seed: u64) -> (StdResult<(), Ended>, u32) {
    let toy = toy(1);
    let servers = Rc::new(RefCell::new(vec![ToyServer::new(&toy, 0, seed)]));
    let mut worker = worker(&toy, 0, &servers, Trace::off());
    servers.borrow_mut()[0].lie = Some(lie);
    let me = Me(worker.ground().local.clone());
    worker.start(new(move || restless(me))).unwrap();
    let ended = worker.run();
    worker.stop();
    let lies = servers.borrow()[0].lies;
    (ended, lies)
}

#[test]
fn a_host_that_lies_ends_its_worker_with_the_reason() {
    for lie in ALL {
        let (mut told, mut refused) = (0, Vec::new());
        for seed in 1..=200 {
            let (ended, lies) = lied_to(lie, seed);
            told += lies;
            match ended {
                Ok(()) => assert!(lies == 0 || lie == Lie::Bit || lie == Lie::Longer, "{lie:?}"),
                Err(Ended::Host(why)) => refused.push(why),
                Err(other) => panic!("{lie:?} {seed}: {other}"),
            }
        }
        assert!(told >= 100, "{lie:?}: {told}");
        let words: &[&str] = match lie {
            Lie::Twice => &["is not in use", "answers no request", "was not answered", "none to a"],
            Lie::Longer => &["none to a"],
            Lie::OtherKind => &["none to a"],
            Lie::OtherTag => &["answers no request", "none to a"],
            Lie::OtherSlot => &["is not in use", "none to a", "holds no message"],
            Lie::Nothing => &["was not answered"],
            Lie::OtherLength => &["is broken"],
            Lie::Bit => &["is broken", "none to a", "answers no request"],
        };
        for why in &refused {
            assert!(words.iter().any(|words| why.contains(words)), "{lie:?}: {why}");
        }
    }
}
