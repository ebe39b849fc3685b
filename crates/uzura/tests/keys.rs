//! Keys that their users choose, where peers see registrations and where they ask for them.

use covey_io::sim::{CarrierProfile, Carriers, SimMemory, SimTransport};
use covey_uzura::{Completion, Config, Engine, Fault, Key, Local, Remote, Rights, Started};
use covey_wire::Span;

type Half = Engine<SimTransport, SimMemory>;

/// The second one has the memory, the first one reaches for it.
struct Two {
    carriers: Carriers,
    ends: [Half; 2],
}

fn two(published: bool) -> Two {
    let profile = CarrierProfile {
        packet_bytes_max: 256,
        post_bytes_max: 0,
        packets_max: 64,
        refused_permille: 0,
        delay_max: 2,
        lost_permille: 0,
        view: published,
        shared_permille: 0,
        one_copy: false,
        published,
        card: None,
    };
    let carriers = Carriers::new(3, 2, 1 << 16, profile);
    let ends = [0, 1].map(|index| {
        let (transport, memory) = carriers.end(index);
        Engine::new(transport, memory, Config::default())
    });
    let mut two = Two { carriers, ends };
    two.go_on();
    two
}

impl Two {
    fn go_on(&mut self) {
        for _ in 0..200 {
            self.carriers.step();
            for end in &mut self.ends {
                end.poll();
            }
        }
    }

    /// Puts one byte to where `at` says.
    fn put(&mut self, key: Key, at: u64, byte: u8) -> Result<(), Fault> {
        self.carriers.look(0, |memory| memory[0] = byte);
        let from = Local::bytes(Span::new(Carriers::address(0), 1));
        let to = Remote { peer: Carriers::peer(0, 1), key, at, form: None };
        let completion: Completion = match self.ends[0].put(from, to, 0)? {
            Started::Done(completion) => completion,
            Started::Pending(_) => {
                self.go_on();
                self.ends[0].completion().expect("it ends")
            }
        };
        completion.result
    }

    fn byte(&self, at: usize) -> u8 {
        self.carriers.look(1, |memory| memory[at])
    }
}

fn there(at: u64) -> Span {
    Span::new(Carriers::address(1) + at, 64)
}

#[test]
fn memory_is_reached_by_a_chosen_key_until_it_is_revoked_and_then_what_the_key_means_next() {
    for published in [false, true] {
        let mut two = two(published);
        for (place, key) in [0, 1, 1 << 20, 0xc0de, u64::MAX].into_iter().enumerate() {
            let (key, at) = (Key(key), 128 * place as u64);
            assert_eq!(two.put(key, 3, 9), Err(Fault::WrongKey));
            assert_eq!(two.ends[1].register_as(key, there(at), Rights::ALL), Ok(()));
            let again = two.ends[1].register_as(key, there(4096), Rights::ALL);
            assert_eq!(again, Err(Fault::KeyTaken));
            assert_eq!(two.put(key, 3, 10), Ok(()));
            assert_eq!(two.put(key, 64, 10), Err(Fault::OutOfRange));
            assert_eq!(two.ends[1].revoke(key), Ok(()));
            assert_eq!(two.put(key, 3, 11), Err(Fault::WrongKey));
            assert_eq!(two.ends[1].register_as(key, there(4096), Rights::ALL), Ok(()));
            assert_eq!(two.put(key, 3, 12), Ok(()));
            assert_eq!((two.byte(at as usize + 3), two.byte(4096 + 3)), (10, 12));
            assert_eq!(two.ends[1].revoke(key), Ok(()));
        }
        let is_seen = two.ends[0].stats().direct > 0;
        assert_eq!(is_seen, published);
    }
}

#[test]
fn memory_that_is_registered_by_address_is_put_to_by_address() {
    for published in [false, true] {
        let mut two = two(published);
        let rights = Rights::WRITE.and(Rights::BY_ADDRESS);
        let key = two.ends[1].register(there(256), rights).expect("there is room");
        let address = there(256).address;
        assert_eq!(two.put(key, address + 5, 8), Ok(()));
        assert_eq!(two.byte(256 + 5), 8);
        for at in [0, 5, address - 1, address + 64, u64::MAX] {
            assert_eq!(two.put(key, at, 9), Err(Fault::OutOfRange));
        }
        assert_eq!(two.ends[0].stats().direct > 0, published);
    }
}
