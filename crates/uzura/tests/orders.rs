//! Two engines whose memories have different byte orders: numbers arrive as numbers wherever one side says what they
//! are, bytes as bytes, and layouts that contradict each other end the one operation.

use covey_io::sim::{CarrierProfile, Carriers, SimMemory, SimTransport};
use covey_layout::{Block, ByteOrder, Element, Layout, Op};
use covey_uzura::{
    Completion, Config, Engine, Fault, Form, Key, Local, Remote, Rights, Rule, Source, Started, Tag,
};
use covey_wire::transport::{Sink, Transport};
use covey_wire::{Peer, Span};

type End = Engine<SimTransport, SimMemory>;
type Begun = Result<Started, Fault>;

/// The first process is little-endian, the second big-endian.
struct Two {
    carriers: Carriers,
    ends: [End; 2],
    key: Key,
}

const ORDERS: [ByteOrder; 2] = [ByteOrder::Little, ByteOrder::Big];
const MEMORY_BYTES: usize = 1 << 20;
/// What is registered of the second process, and how many numbers are moved by short and by long operations.
const REGISTERED: u64 = 256 << 10;
const COUNTS: [u64; 3] = [3, 200, 5000];
const TAG: u64 = 1;

fn profile(posted: usize) -> CarrierProfile {
    CarrierProfile {
        // Not a whole number of elements.
        packet_bytes_max: 1021,
        post_bytes_max: posted,
        packets_max: 64,
        refused_permille: 100,
        delay_max: 2,
        lost_permille: 0,
        view: false,
        one_copy: false,
        shared_permille: 0,
        published: false,
        card: None,
    }
}

fn two(posted: usize) -> Two {
    let carriers = Carriers::new(1, 2, MEMORY_BYTES, profile(posted));
    let ends = [0, 1].map(|index| {
        let (transport, memory) = carriers.end(index);
        Engine::new(transport, memory, Config { order: ORDERS[index], ..Config::default() })
    });
    let mut two = Two { carriers, ends, key: Key(0) };
    two.go_on();
    let whole = Span::new(Carriers::address(1), REGISTERED);
    two.key = two.ends[1].register(whole, Rights::ALL).expect("there is room");
    two
}

impl Two {
    fn go_on(&mut self) {
        for _ in 0..400 {
            self.carriers.step();
            for end in &mut self.ends {
                end.poll();
            }
        }
    }

    fn end(&mut self, at: usize, begun: Begun) -> Result<Completion, Fault> {
        let completion = match begun? {
            Started::Done(completion) => completion,
            Started::Pending(_) => {
                self.go_on();
                self.ends[at].completion().expect("it ends")
            }
        };
        completion.result.map(|()| completion)
    }

    /// Numbers in the order of a process, and what it finds there.
    fn write(&self, at: usize, place: usize, numbers: &[u32]) {
        self.carriers.look(at, |memory| {
            let room = memory[place..].as_chunks_mut::<4>().0;
            room.iter_mut().zip(numbers).for_each(|(room, number)| *room = in_order(at, *number));
        });
    }

    fn numbers(&self, at: usize, place: usize, count: u64) -> Vec<u32> {
        self.carriers.look(at, |memory| {
            let found = &memory[place..].as_chunks::<4>().0[..count as usize];
            found
                .iter()
                .map(|bytes| u32::from_le_bytes(in_order(at, u32::from_le_bytes(*bytes))))
                .collect()
        })
    }

    fn form(&mut self, at: usize, element: Element, count: u64) -> Form {
        self.ends[at].commit(&Layout::element(element), count).expect("it is small")
    }

    fn remote(&self, form: Option<Form>) -> Remote {
        Remote { peer: Peer(0), key: self.key, at: 0, form }
    }

    /// A message from the first to the second, awaited or not.
    fn pass(
        &mut self,
        what: Local,
        into: Local,
        is_awaited: bool,
    ) -> [Result<Completion, Fault>; 2] {
        let receive = |two: &mut Two| two.ends[1].receive(Source::Any, Tag::exact(TAG), into, 0);
        let early = is_awaited.then(|| receive(self));
        let sent = self.ends[0].send(Peer(0), TAG, what, 0);
        if !is_awaited {
            self.go_on();
        }
        let received = early.unwrap_or_else(|| receive(self));
        self.go_on();
        let sent = self.end(0, sent);
        [sent, self.end(1, received)]
    }
}

/// A number as bytes of a process.
fn in_order(at: usize, number: u32) -> [u8; 4] {
    let mut bytes = number.to_le_bytes();
    if ORDERS[at] == ByteOrder::Big {
        bytes.reverse();
    }
    bytes
}

fn local(at: usize, place: u64, bytes: u64, form: Option<Form>) -> Local {
    let span = Span::new(Carriers::address(at) + place, bytes);
    Local { span, origin: 0, form }
}

fn numbers(count: u64) -> Vec<u32> {
    (0..count as u32).map(|at| 0x0102_0304 + 7 * at).collect()
}

fn swapped(numbers: &[u32]) -> Vec<u32> {
    numbers.iter().map(|number| number.swap_bytes()).collect()
}

#[test]
fn numbers_arrive_as_numbers_where_one_side_says_so_and_bytes_as_bytes() {
    for (posted, count) in
        [0, 4000].into_iter().flat_map(|posted| COUNTS.map(|count| (posted, count)))
    {
        let mut two = two(posted);
        let (numbers, bytes) = (numbers(count), 4 * count);
        two.write(0, 0, &numbers);
        let forms = [0, 1].map(|at| two.form(at, Element::U32, count));
        for sides in 0..8 {
            let is_typed = [sides & 1 != 0, sides & 2 != 0];
            let [from, to] = [0, 1].map(|at| Some(forms[at]).filter(|_| is_typed[at]));
            two.write(1, 0, &vec![0; count as usize]);
            let ends = two.pass(local(0, 0, bytes, from), local(1, 0, bytes, to), sides & 4 != 0);
            assert!(ends.iter().all(Result::is_ok), "{is_typed:?} {count}: {ends:?}");
            let expected = if sides & 3 == 0 { swapped(&numbers) } else { numbers.clone() };
            assert_eq!(two.numbers(1, 0, count), expected, "{is_typed:?}, {count} numbers");
        }
    }
}

#[test]
fn a_matrix_is_transposed_and_turned_by_whoever_knows_its_layout() {
    const SIDE: u64 = 60;
    let (column, bytes) =
        (Layout::vector(SIDE, 1, SIDE as i64, &Layout::element(Element::U32)), 4 * SIDE * SIDE);
    let columns = column.and_then(|column| Layout::hvector(SIDE, 1, 4, &column)).expect("small");
    let mut two = two(4000);
    let matrix = numbers(SIDE * SIDE);
    let side = SIDE as usize;
    let transposed: Vec<u32> =
        (0..side * side).map(|at| matrix[at % side * side + at / side]).collect();
    two.write(0, 0, &matrix);
    let [ours, theirs] = [0, 1].map(|at| two.ends[at].commit(&columns, 1).expect("small"));
    for (from, to) in [(Some(ours), None), (None, Some(theirs))] {
        let ends = two.pass(local(0, 0, bytes, from), local(1, 0, bytes, to), true);
        assert!(ends.iter().all(Result::is_ok), "{ends:?}");
        assert_eq!(two.numbers(1, 0, SIDE * SIDE), transposed);
    }
    // The type is known here only: it runs in the other's memory.
    let remote = two.remote(Some(ours));
    let put = two.ends[0].put(local(0, 0, bytes, None), remote, 0);
    two.end(0, put).expect("it is put");
    assert_eq!(two.numbers(1, 0, SIDE * SIDE), transposed);
    let got = two.ends[0].get(local(0, bytes, bytes, None), remote, 0);
    two.end(0, got).expect("it is got");
    assert_eq!(two.numbers(0, bytes as usize, SIDE * SIDE), matrix);
}

#[test]
fn put_and_get_turn_what_either_side_says_and_nothing_else() {
    for count in COUNTS {
        let mut two = two(0);
        let (numbers, bytes) = (numbers(count), 4 * count);
        two.write(0, 0, &numbers);
        let form = two.form(0, Element::U32, count);
        // Bytes in blocks: a layout that says nothing of elements.
        let blocks: Vec<Block> =
            (0..count as i64).map(|at| Block { count: 4, displacement: 4 * at }).collect();
        let pieces =
            Layout::hindexed(&blocks, &Layout::element(Element::Byte)).expect("it is small");
        let pieces = two.ends[0].commit(&pieces, 1).expect("it is small");
        for (here, there, is_turned) in [
            (None, None, false),
            (Some(form), None, true),
            (None, Some(form), true),
            (Some(form), Some(form), true),
            (Some(form), Some(pieces), true),
            (Some(pieces), None, false),
        ] {
            let expected = if is_turned { numbers.clone() } else { swapped(&numbers) };
            let remote = two.remote(there);
            let put = two.ends[0].put(local(0, 0, bytes, here), remote, 0);
            two.end(0, put).expect("it is put");
            assert_eq!(two.numbers(1, 0, count), expected, "{here:?} to {there:?}, {count}");
            two.write(0, 1 << 16, &vec![0; count as usize]);
            let get = two.ends[0].get(local(0, 1 << 16, bytes, here), remote, 0);
            two.end(0, get).expect("it is got");
            assert_eq!(two.numbers(0, 1 << 16, count), numbers, "{here:?} from {there:?}");
        }
    }
}

#[test]
fn sums_are_made_of_numbers_and_what_was_there_comes_back_as_numbers() {
    for count in COUNTS {
        let mut two = two(0);
        let (numbers, bytes) = (numbers(count), 4 * count);
        two.write(0, 0, &numbers);
        two.write(1, 0, &numbers);
        let form = two.form(0, Element::U32, count);
        let remote = two.remote(Some(form));
        let begun = two.ends[0].accumulate(Op::Sum, local(0, 0, bytes, None), remote, 0);
        two.end(0, begun).expect("it is added");
        let times = |n: u32| numbers.iter().map(|one| one * n).collect::<Vec<u32>>();
        assert_eq!(two.numbers(1, 0, count), times(2));
        let before = local(0, 1 << 16, bytes, None);
        let begun = two.ends[0].fetch(Op::Sum, local(0, 0, bytes, Some(form)), before, remote, 0);
        two.end(0, begun).expect("it is added");
        assert_eq!(two.numbers(1, 0, count), times(3));
        assert_eq!(two.numbers(0, 1 << 16, count), times(2));
        // Bits of bytes: the elements are those of the side that names some.
        let begun =
            two.ends[0].accumulate(Op::Bxor, local(0, 0, bytes, Some(form)), two.remote(None), 0);
        two.end(0, begun).expect("it is combined");
        let mixed: Vec<u32> = numbers.iter().map(|one| (one * 3) ^ one).collect();
        assert_eq!(two.numbers(1, 0, count), mixed);
    }
}

#[test]
fn a_comparison_is_one_of_numbers() {
    let mut two = two(0);
    let form = two.form(0, Element::U32, 2);
    let [expected, new, before] = [0, 64, 128].map(|place| local(0, place, 8, None));
    two.write(1, 0, &[1, 2]);
    two.write(0, 0, &[1, 2]);
    two.write(0, 64, &[3, 4]);
    let remote = two.remote(Some(form));
    for (found, after) in [([1, 2], [3, 4]), ([3, 4], [3, 4])] {
        let begun = two.ends[0].compare_swap(expected, new, before, remote, 0);
        two.end(0, begun).expect("it is compared");
        assert_eq!(two.numbers(0, 128, 2), found);
        assert_eq!(two.numbers(1, 0, 2), after);
    }
}

#[test]
fn elements_of_different_sizes_end_the_one_operation_and_touch_nothing() {
    for count in [4, 2000] {
        let mut two = two(0);
        let (numbers, bytes) = (numbers(count), 4 * count);
        two.write(0, 0, &numbers);
        two.write(1, 0, &numbers);
        let shorts = two.form(0, Element::U16, 2 * count);
        let words = two.form(0, Element::F32, count);
        let theirs = two.form(1, Element::F32, count);
        for is_awaited in [false, true] {
            let [sent, received] = two.pass(
                local(0, 0, bytes, Some(shorts)),
                local(1, 0, bytes, Some(theirs)),
                is_awaited,
            );
            assert!(sent.is_ok(), "{sent:?}");
            assert_eq!(received, Err(Fault::Elements));
        }
        let (here, remote) = (local(0, 0, bytes, Some(shorts)), two.remote(Some(words)));
        let other = local(0, 1 << 16, bytes, None);
        let begun = two.ends[0].put(here, remote, 0);
        assert_eq!(two.end(0, begun), Err(Fault::Elements));
        let begun = two.ends[0].get(here, remote, 0);
        assert_eq!(two.end(0, begun), Err(Fault::Elements));
        let begun = two.ends[0].accumulate(Op::Sum, here, remote, 0);
        assert_eq!(two.end(0, begun), Err(Fault::Elements));
        let begun = two.ends[0].fetch(Op::Sum, other, here, remote, 0);
        assert_eq!(two.end(0, begun), Err(Fault::Elements));
        assert_eq!(two.numbers(1, 0, count), numbers, "nothing was touched");
        let put = two.ends[0].put(local(0, 0, bytes, None), remote, 0);
        two.end(0, put).expect("everything else goes on");
        assert_eq!(two.numbers(1, 0, count), numbers);
    }
}

#[test]
fn what_is_there_of_a_longer_message_is_turned() {
    for count in [200, 3000] {
        let mut two = two(0);
        let (numbers, bytes) = (numbers(count), 4 * count);
        two.write(0, 0, &numbers);
        let form = two.form(0, Element::U32, count);
        // The last element is cut.
        let room = local(1, 0, bytes - 6, None);
        let [sent, received] = two.pass(local(0, 0, bytes, Some(form)), room, true);
        assert!(sent.is_ok(), "{sent:?}");
        assert_eq!(received, Err(Fault::Truncated));
        assert_eq!(two.numbers(1, 0, count - 2), numbers[..count as usize - 2]);
    }
}

#[test]
fn headers_are_compared_as_they_were_sent_and_what_follows_them_is_turned() {
    for count in [3, 3000] {
        let mut two = two(4000);
        let (numbers, bytes) = (numbers(count), 4 * count);
        two.write(0, 0, &numbers);
        let form = two.form(0, Element::U32, count);
        let rule = Rule {
            from: Source::Any,
            tag: Tag::exact(TAG),
            mask: &[0xff, 0xff, 0, 0, 0],
            value: b"RD...",
            header: local(1, 1 << 16, 5, None).span,
            payload: local(1, 0, bytes, None),
        };
        let placed = two.ends[1].place(&rule, 0);
        let sent =
            two.ends[0].send_headed(Peer(0), TAG, b"RDabc", local(0, 0, bytes, Some(form)), 0);
        two.go_on();
        two.end(0, sent).expect("it is sent");
        two.end(1, placed).expect("it is placed");
        let header = two.carriers.look(1, |memory| memory[1 << 16..][..5].to_vec());
        assert_eq!(header, b"RDabc");
        assert_eq!(two.numbers(1, 0, count), numbers);
    }
}

/// A peer keeps 64 layouts: whoever sends packets of one for long tells it again when others took its place.
#[test]
fn a_layout_that_lost_its_slot_while_it_is_used_is_told_again() {
    let mut two = two(0);
    let (count, gap) = (30_000, 8);
    let vector = |count, pitch| {
        Layout::vector(count, 1, pitch, &Layout::element(Element::U32)).expect("small")
    };
    let long = two.ends[0].commit(&vector(count, 2), 1).expect("small");
    let others: Vec<Form> =
        (0..200).map(|_| two.ends[0].commit(&vector(2, 2), 1).expect("small")).collect();
    let numbers = numbers(count);
    two.write(0, 0, &numbers);
    let mut begun = vec![two.ends[0].put(local(0, 0, 4 * count, None), two.remote(Some(long)), 0)];
    for form in others {
        let remote = Remote { at: REGISTERED - gap * 2, ..two.remote(Some(form)) };
        begun.push(two.ends[0].put(local(0, 0, 8, None), remote, 0));
    }
    for _ in 0..40 {
        two.go_on();
    }
    for begun in begun {
        let done = matches!(begun, Ok(Started::Done(_)))
            || two.ends[0].completion().is_some_and(|done| done.result.is_ok());
        assert!(done, "it is put");
    }
    let found = two.numbers(1, 0, 2 * count);
    assert!(found.iter().step_by(2).eq(&numbers), "all are in their places");
}

/// A peer without an engine: it keeps the kinds of the packets that come.
#[derive(Default)]
struct Kinds(Vec<u8>);

impl Sink for Kinds {
    fn packet(&mut self, _peer: Peer, head: &[u8], _payload: &[u8]) {
        self.0.push(head[0]);
    }

    fn dead(&mut self, _peer: Peer) {}
}

/// The peer's first packet is there, and ours may have been refused for want of room: nothing goes before it, or the peer would
/// not know the order of what comes.
#[test]
fn nothing_goes_before_the_packet_that_tells_the_order() {
    const HELLO: u8 = 1;
    let mut overtaken = 0;
    for seed in 0..100 {
        let profile = CarrierProfile { refused_permille: 700, delay_max: 0, ..profile(0) };
        let carriers = Carriers::new(seed, 2, MEMORY_BYTES, profile);
        let (transport, memory) = carriers.end(0);
        let mut engine = Engine::new(transport, memory, Config::default());
        let (mut raw, _) = carriers.end(1);
        let (us, it) = (Carriers::peer(1, 0), Carriers::peer(0, 1));
        let mut kinds = Kinds::default();
        raw.poll(9, &mut kinds);
        let hello = [&[HELLO, 2, 0][..], &(1_u64 << 20).to_le_bytes()].concat();
        while raw.send(us, &hello, 0, |_| ()).is_err() {}
        engine.poll();
        for (tag, bytes) in [(1, 8), (2, 100_000)] {
            let what = Local::bytes(Span::new(Carriers::address(0), bytes));
            assert!(engine.send(it, tag, what, tag).is_ok());
        }
        raw.poll(9, &mut kinds);
        overtaken += u32::from(kinds.0.is_empty());
        for _ in 0..100 {
            engine.poll();
            raw.poll(9, &mut kinds);
        }
        assert_eq!(kinds.0.first(), Some(&HELLO), "seed {seed}");
        assert!(kinds.0.len() >= 3, "seed {seed}: {:?}", kinds.0);
    }
    assert!(overtaken > 0, "the first packet was never late");
}
