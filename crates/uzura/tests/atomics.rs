//! Atomic operations between two engines of either byte order, against arithmetic by hand.

use covey_io::sim::{CarrierProfile, Carriers, SimMemory, SimTransport};
use covey_layout::{ByteOrder, Element, Layout, Op};
use covey_uzura::{
    Compare, Completion, Config, Engine, Fault, Key, Local, Remote, Rights, Started,
};
use covey_wire::Span;
use proptest::prelude::*;

const COUNT_MAX: usize = 9;
/// Where the second one's elements lie: nothing is aligned.
const PLACE: u64 = 3;
const OPERAND: u64 = 0;
const NEW: u64 = 128;
const BEFORE: u64 = 256;

struct Two {
    carriers: Carriers,
    ends: [Engine<SimTransport, SimMemory>; 2],
    key: Key,
}

fn two(orders: [ByteOrder; 2]) -> Two {
    let profile = CarrierProfile {
        packet_bytes_max: 256,
        post_bytes_max: 0,
        packets_max: 64,
        refused_permille: 100,
        delay_max: 2,
        lost_permille: 0,
        view: false,
        shared_permille: 0,
        one_copy: false,
        published: false,
        card: None,
    };
    let carriers = Carriers::new(3, 2, 1 << 14, profile);
    let mut ends = [0, 1].map(|index| {
        let (transport, memory) = carriers.end(index);
        Engine::new(transport, memory, Config { order: orders[index], ..Config::default() })
    });
    let key = ends[1].register(Span::new(Carriers::address(1), 512), Rights::ALL);
    let key = key.expect("there is room");
    let mut two = Two { carriers, ends, key };
    two.go_on();
    two
}

impl Two {
    fn go_on(&mut self) {
        for _ in 0..40 {
            self.carriers.step();
            for end in &mut self.ends {
                end.poll();
            }
        }
    }

    fn end(&mut self, begun: Result<Started, Fault>) -> Result<Completion, Fault> {
        let Started::Pending(_) = begun? else { panic!("the peer does it") };
        self.go_on();
        let completion = self.ends[0].completion().expect("it ends");
        completion.result.map(|()| completion)
    }

    fn write(&self, at: usize, place: u64, bytes: &[u8]) {
        let place = place as usize;
        self.carriers.look(at, |memory| memory[place..place + bytes.len()].copy_from_slice(bytes));
    }

    fn bytes(&self, at: usize, place: u64, count: usize) -> Vec<u8> {
        let place = place as usize;
        self.carriers.look(at, |memory| memory[place..place + count].to_vec())
    }

    fn there(&self) -> Remote {
        Remote { peer: Carriers::peer(0, 1), key: self.key, at: PLACE, form: None }
    }
}

fn here(at: u64, bytes: usize) -> Local {
    Local::bytes(Span::new(Carriers::address(0) + at, bytes as u64))
}

#[derive(Clone, Copy, Debug)]
enum What {
    Update(Op),
    Fetch(Op),
    Compare(Compare),
}

impl What {
    fn is_defined_for(self, element: Element) -> bool {
        match self {
            What::Update(op) | What::Fetch(op) => op.is_defined_for(element),
            What::Compare(compare) => compare.is_defined_for(element),
        }
    }
}

fn is_float(element: Element) -> bool {
    matches!(element, Element::F32 | Element::F64)
}

/// A small number as an element of a byte order.
fn encode(element: Element, order: ByteOrder, value: i64) -> Vec<u8> {
    let mut bytes = match element {
        Element::F32 => (value as f32).to_le_bytes().to_vec(),
        Element::F64 => (value as f64).to_le_bytes().to_vec(),
        _ => value.to_le_bytes()[..element.bytes() as usize].to_vec(),
    };
    if order == ByteOrder::Big {
        bytes.reverse();
    }
    bytes
}

/// The value that an element has, which keeps only the last bytes of an integer.
fn value(element: Element, number: i64) -> i128 {
    let bits = 64 - 8 * element.bytes() as u32;
    match element {
        Element::F32 | Element::F64 => number.into(),
        Element::I8 | Element::I16 | Element::I32 | Element::I64 => (number << bits >> bits).into(),
        _ => ((number as u64) << bits >> bits).into(),
    }
}

/// What is stored after an operation, as the low bits of a number.
fn after(what: What, element: Element, stored: i64, first: i64, new: i64) -> i64 {
    let (a, b) = (value(element, stored), value(element, first));
    let truth = |is: bool| i64::from(is);
    match what {
        What::Update(op) | What::Fetch(op) => match op {
            Op::Sum => stored.wrapping_add(first),
            Op::Prod => stored.wrapping_mul(first),
            Op::Min => {
                if b < a {
                    first
                } else {
                    stored
                }
            }
            Op::Max => {
                if b > a {
                    first
                } else {
                    stored
                }
            }
            Op::Land => truth(a != 0 && b != 0),
            Op::Lor => truth(a != 0 || b != 0),
            Op::Lxor => truth((a != 0) != (b != 0)),
            Op::Band => stored & first,
            Op::Bor => stored | first,
            Op::Bxor => stored ^ first,
            Op::Replace => first,
            _ => stored,
        },
        What::Compare(compare) => {
            let passes = match compare {
                Compare::Equal => b == a,
                Compare::NotEqual => b != a,
                Compare::LessOrEqual => b <= a,
                Compare::Less => b < a,
                Compare::GreaterOrEqual => b >= a,
                Compare::Greater => b > a,
                Compare::Masked => return new & first | stored & !first,
            };
            if passes { new } else { stored }
        }
    }
}

fn what() -> impl Strategy<Value = What> {
    prop_oneof![
        prop::sample::select(&Op::ALL[..]).prop_map(What::Update),
        prop::sample::select(&Op::ALL[..]).prop_map(What::Fetch),
        prop::sample::select(Compare::ALL).prop_map(What::Compare),
    ]
}

/// Stored, operand and new value of each element: small for floats, so that every sum is exact.
fn values() -> impl Strategy<Value = Vec<[i64; 3]>> {
    let number = || prop_oneof![-3..3_i64, any::<i64>()];
    prop::collection::vec([number(), number(), number()], 1..COUNT_MAX)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]

    #[test]
    fn every_operation_does_what_arithmetic_by_hand_does(
        what in what(),
        element in prop::sample::select(Element::ALL),
        values in values(),
        is_big: [bool; 2],
    ) {
        let orders = is_big.map(|is| if is { ByteOrder::Big } else { ByteOrder::Little });
        let mut two = two(orders);
        // No product is a negative zero.
        let is_product = matches!(what, What::Update(Op::Prod) | What::Fetch(Op::Prod));
        let small = |values: [i64; 3]| match is_float(element) {
            true if is_product => values.map(|one| (one % 100).abs()),
            true => values.map(|one| one % 100),
            false => values,
        };
        let values: Vec<[i64; 3]> = values.into_iter().map(small).collect();
        let encoded = |order, which: &dyn Fn(&[i64; 3]) -> i64| -> Vec<u8> {
            values.iter().flat_map(|one| encode(element, order, which(one))).collect()
        };
        let stored = |order| encoded(order, &|one| one[0]);
        two.write(1, PLACE, &stored(orders[1]));
        two.write(0, OPERAND, &encoded(orders[0], &|one| one[1]));
        two.write(0, NEW, &encoded(orders[0], &|one| one[2]));
        let bytes = values.len() * element.bytes() as usize;
        let [operand, new, before] = [OPERAND, NEW, BEFORE].map(|at| here(at, bytes));
        let there = two.there();
        let engine = &mut two.ends[0];
        let begun = match what {
            What::Update(op) => engine.atomic(op, element, operand, there, 7),
            What::Fetch(op) => engine.atomic_fetch(op, element, operand, before, there, 7),
            What::Compare(compare) => {
                engine.atomic_compare(compare, element, [operand, new], before, there, 7)
            }
        };
        if !what.is_defined_for(element) {
            prop_assert_eq!(begun, Err(Fault::Operation));
            return Ok(());
        }
        let done = two.end(begun).expect("it is done");
        prop_assert_eq!((done.context, done.bytes), (7, bytes as u64));
        let expected = encoded(orders[1], &|one| after(what, element, one[0], one[1], one[2]));
        prop_assert_eq!(two.bytes(1, PLACE, bytes), expected);
        if !matches!(what, What::Update(_)) {
            prop_assert_eq!(two.bytes(0, BEFORE, bytes), stored(orders[0]));
        }
    }
}

#[test]
fn atomic_operations_with_a_peer_take_place_in_the_order_in_which_they_were_begun() {
    let mut two = two([ByteOrder::Little; 2]);
    let there = two.there();
    // Far more than may be under way at once: each adds to what the one before has left.
    two.write(0, OPERAND, &1_u64.to_le_bytes());
    for number in 0..1000_u64 {
        let into = here(512 + number * 8, 8);
        let op = if number.is_multiple_of(2) { Op::Sum } else { Op::Prod };
        let begun =
            two.ends[0].atomic_fetch(op, Element::U64, here(OPERAND, 8), into, there, number);
        assert!(matches!(begun, Ok(Started::Pending(_))), "{begun:?}");
    }
    (0..50).for_each(|_| two.go_on());
    let ends: Vec<u64> =
        std::iter::from_fn(|| two.ends[0].completion()).map(|done| done.context).collect();
    assert!(ends.iter().copied().eq(0..1000));
    let before = two.bytes(0, 512, 8000);
    let before = before.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    assert!(before.eq((0..1000).map(|number: u64| number.div_ceil(2))));
}

#[test]
fn what_cannot_be_done_atomically_is_refused_and_touches_nothing() {
    let mut two = two([ByteOrder::NATIVE; 2]);
    two.write(1, PLACE, &[5; 256]);
    let there = two.there();
    let form = two.ends[0].commit(&Layout::element(Element::U64), 1).expect("it is small");
    let max = two.ends[0].atomic_bytes_max(there.peer);
    let mut sum = |bytes, to| {
        let begun = two.ends[0].atomic(Op::Sum, Element::U64, here(0, bytes), to, 0);
        two.end(begun).map(|_| ())
    };
    assert_eq!(sum(8, Remote { form: Some(form), ..there }), Err(Fault::Layout));
    assert_eq!(sum(12, there), Err(Fault::Sizes));
    assert_eq!(sum(max + 8, there), Err(Fault::TooLong));
    assert_eq!(sum(8, Remote { at: 505, ..there }), Err(Fault::OutOfRange));
    assert_eq!(sum(8, Remote { key: Key(9), ..there }), Err(Fault::WrongKey));
    let begun =
        two.ends[0].atomic_fetch(Op::NoOp, Element::U64, here(0, 16), here(64, 8), there, 0);
    assert_eq!(begun, Err(Fault::Sizes));
    let span = Span::new(Carriers::address(1), 64);
    let key = two.ends[1].register(span, Rights::READ.and(Rights::WRITE)).expect("there is room");
    let begun = two.ends[0].atomic(Op::Sum, Element::U8, here(0, 8), Remote { key, ..there }, 0);
    assert_eq!(two.end(begun), Err(Fault::Denied));
    assert_eq!(two.bytes(1, PLACE, 256), [5; 256]);
}
