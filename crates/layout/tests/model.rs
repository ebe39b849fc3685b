//! Random nested layouts beside a list of their elements: bounds, runs in both directions, packing and
//! unpacking from any offset, copies, overlaps, accumulation, byte order, and the way over the wire.
//!
//! `COVEY_LAYOUT_CASES` says how many, 20000 unless told; `COVEY_LAYOUT_SEED` which.

#[path = "model/garbage.rs"]
mod garbage;
#[path = "model/toy.rs"]
mod toy;

use covey_layout::{
    Element, Error, Layout, Op, Plan, Run, Signature, Strips, Target, View, ViewMut,
};
use std::collections::HashSet;
use toy::{Dice, TypeMap};

#[test]
fn random_layouts_do_what_a_list_of_their_elements_says() {
    let number = |name: &str, default: u64| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
    };
    let first = number("COVEY_LAYOUT_SEED", 1) << 32;
    let mut seen = HashSet::new();
    for case in first..first + number("COVEY_LAYOUT_CASES", 20_000) {
        let check = std::panic::AssertUnwindSafe(|| Case::new(case).check());
        match std::panic::catch_unwind(check) {
            Ok(shape) => _ = seen.insert(shape),
            Err(panic) => {
                eprintln!("case {case}: {:?}", Case::new(case).layout);
                std::panic::resume_unwind(panic);
            }
        }
    }
    // The generator reaches every kind of shape, and both answers.
    assert!(seen.len() >= 12, "{seen:?}");
}

struct Case {
    dice: Dice,
    layout: Layout,
    map: TypeMap,
    count: u64,
    /// The offset of every packed byte.
    bytes: Vec<i64>,
    /// Where the origin lies in a buffer that just holds it.
    origin: usize,
    length: usize,
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut dice = Dice::new(seed);
        let depth = dice.below(6);
        let (layout, map) = toy::random(&mut dice, depth);
        let count = 1 + dice.below(3);
        let bytes = map.repeated(count).bytes();
        let low = bytes.iter().copied().min().unwrap_or(0).min(0);
        let high = bytes.iter().copied().max().map_or(0, |last| last + 1).max(0);
        Case {
            dice,
            layout,
            map,
            count,
            bytes,
            origin: -low as usize,
            length: (high - low) as usize,
        }
    }

    /// Checks all there is; answers what it was.
    fn check(mut self) -> (String, bool) {
        self.check_bounds();
        let plan = Plan::new(&self.layout, self.count).expect("it is small");
        self.check_wire(&plan);
        self.check_description(&plan);
        self.check_runs(&plan);
        self.check_pack(&plan);
        let distinct = self.bytes.iter().collect::<HashSet<_>>().len() == self.bytes.len();
        let target = Target::try_from(plan.clone());
        match &target {
            Ok(target) => {
                assert!(distinct, "an overlap was not seen");
                self.check_unpack(target);
                self.check_accumulate(target);
            }
            Err(Error::Overlap { offset }) => {
                assert!(!distinct, "no byte is named twice");
                let named = self.bytes.iter().filter(|at| *at == offset).count();
                assert!(named >= 2, "offset {offset} is named {named} times");
            }
            Err(other) => panic!("{other}"),
        }
        self.check_copy(&plan);
        self.check_signature();
        let shape = format!("{:?}", plan.shape());
        (shape.split([' ', '{']).next().unwrap_or("").to_owned(), target.is_ok())
    }

    fn check_bounds(&self) {
        let bounds = self.layout.bounds();
        assert_eq!((bounds.lower, bounds.upper), self.map.bounds());
        assert_eq!((bounds.true_lower, bounds.true_upper), self.map.true_bounds());
        assert_eq!(self.layout.size(), self.map.size());
    }

    fn check_wire(&self, plan: &Plan) {
        let bytes = self.layout.encode().expect("it is small");
        let back = Layout::decode(bytes.clone().into()).expect("it was encoded");
        assert_eq!(back, self.layout);
        assert_eq!(&Plan::new(&back, self.count).expect("it is small"), plan);
        assert_eq!(back.encode().expect("it is small"), bytes);
    }

    /// The shortest description of the same bytes is one, goes over the wire, and is no longer.
    fn check_description(&self, plan: &Plan) {
        let (first, short) = plan.describe().expect("it is small");
        let bytes = short.encode().expect("it is small");
        let back = Layout::decode(bytes.into()).expect("it was encoded");
        let again = Plan::new(&back, 1).expect("it is small");
        let runs: Vec<Run> = again.runs(0..again.size()).expect("within").collect();
        let found: Vec<i64> = self.expand(&runs).into_iter().map(|at| at + first).collect();
        assert_eq!(found, self.bytes);
        assert_eq!(again.run_count(), plan.run_count());
        assert!(self.bytes.first().is_none_or(|at| *at == first));
    }

    fn check_runs(&mut self, plan: &Plan) {
        let size = self.bytes.len() as u64;
        assert_eq!(plan.size(), size);
        let lowest = self.bytes.iter().min().copied().unwrap_or(0);
        let end = self.bytes.iter().max().map_or(0, |last| last + 1);
        assert_eq!(plan.hull(), (lowest, end));
        let (from, to) = self.cut();
        for (from, to) in [(0, size), (from, to)] {
            let forward: Vec<Run> = plan.runs(from..to).expect("within").collect();
            assert_eq!(self.expand(&forward), self.bytes[from as usize..to as usize]);
            let mut backward: Vec<Run> = plan.runs(from..to).expect("within").rev().collect();
            backward.reverse();
            assert_eq!(self.expand(&backward), self.bytes[from as usize..to as usize]);
        }
        assert_eq!(plan.runs(0..size).expect("within").count() as u64, plan.run_count());
        assert!(plan.runs(0..size + 1).is_err());
        // From both ends at once.
        let mut runs = plan.runs(from..to).expect("within");
        let (mut front, mut back) = (Vec::new(), Vec::new());
        loop {
            let run = if self.dice.below(2) == 0 {
                runs.next().inspect(|run| front.push(*run))
            } else {
                runs.next_back().inspect(|run| back.push(*run))
            };
            if run.is_none() {
                break;
            }
        }
        front.extend(back.into_iter().rev());
        assert_eq!(self.expand(&front), self.bytes[from as usize..to as usize]);
        self.check_passing(plan, lowest, end);
    }

    /// What is passed lies in the range; all else comes.
    fn check_passing(&mut self, plan: &Plan, lowest: i64, end: i64) {
        let (from, to) = self.cut();
        let reach = (end - lowest) as u64 + 1;
        let low = lowest + self.dice.below(reach) as i64;
        let range = low..low + self.dice.below(reach) as i64;
        let mut runs = plan.runs(from..to).expect("within");
        let mut at = from;
        loop {
            let next = runs.next();
            let here = next.map_or(to, |run| run.packed);
            let passed = &self.bytes[at as usize..here as usize];
            assert!(passed.iter().all(|byte| range.contains(byte)), "{range:?} {passed:?}");
            let Some(run) = next else { break };
            at = run.packed + run.bytes;
            assert_eq!(self.expand(&[run]), self.bytes[here as usize..at as usize]);
            if self.dice.below(2) == 0 {
                runs.pass(range.clone());
            }
        }
    }

    fn expand(&self, runs: &[Run]) -> Vec<i64> {
        runs.iter().flat_map(|run| (0..run.bytes as i64).map(|by| run.offset + by)).collect()
    }

    fn check_pack(&mut self, plan: &Plan) {
        let buffer = self.noise(self.length);
        let expected: Vec<u8> = self.bytes.iter().map(|at| self.byte(&buffer, *at)).collect();
        let mut packed = vec![0; expected.len()];
        plan.pack(self.view(&buffer), 0, &mut packed).expect("it fits");
        assert_eq!(packed, expected);
        // In two messages, cut anywhere; each boundary of a few layouts.
        let cuts: Vec<usize> = if self.dice.below(64) == 0 {
            (0..=expected.len()).collect()
        } else {
            vec![self.dice.below(expected.len() as u64 + 1) as usize]
        };
        for cut in cuts {
            let mut parts = vec![0; expected.len()];
            let (head, tail) = parts.split_at_mut(cut);
            plan.pack(self.view(&buffer), cut as u64, tail).expect("it fits");
            plan.pack(self.view(&buffer), 0, head).expect("it fits");
            assert_eq!(parts, expected, "cut at {cut}");
        }
        if !self.bytes.is_empty() && self.length > 0 {
            let needs_end = plan.hull().1 == (self.length - self.origin) as i64;
            let short = View::at(&buffer[..self.length - 1], self.origin.min(self.length - 1));
            if needs_end && plan.hull().1 > 0 {
                let refused = plan.pack(short.expect("within"), 0, &mut packed);
                assert!(matches!(refused, Err(Error::OutOfBounds { .. })), "{refused:?}");
            }
            if self.origin > 0 && plan.hull().0 == -(self.origin as i64) {
                let late = View::at(&buffer[1..], self.origin - 1).expect("within");
                assert!(plan.pack(late, 0, &mut packed).is_err());
            }
            let mut more = vec![0; expected.len() + 1];
            assert!(plan.pack(self.view(&buffer), 0, &mut more).is_err());
        }
    }

    fn check_unpack(&mut self, target: &Target) {
        let packed = self.noise(self.bytes.len());
        let before = self.noise(self.length);
        let mut expected = before.clone();
        for (at, byte) in self.bytes.iter().zip(&packed) {
            expected[(self.origin as i64 + at) as usize] = *byte;
        }
        let mut buffer = before.clone();
        target.unpack(&packed, 0, self.view_mut(&mut buffer)).expect("it fits");
        assert_eq!(buffer, expected);
        let cut = self.dice.below(packed.len() as u64 + 1) as usize;
        let mut buffer = before.clone();
        let (head, tail) = packed.split_at(cut);
        target.unpack(tail, cut as u64, self.view_mut(&mut buffer)).expect("it fits");
        target.unpack(head, 0, self.view_mut(&mut buffer)).expect("it fits");
        assert_eq!(buffer, expected);
        if !packed.is_empty() && target.plan().hull().1 == (self.length - self.origin) as i64 {
            let mut buffer = before.clone();
            let short = self.length - 1;
            if self.origin <= short {
                let view = ViewMut::at(&mut buffer[..short], self.origin).expect("within");
                assert!(target.unpack(&packed, 0, view).is_err());
                assert_eq!(buffer, before, "refused and yet touched");
            }
        }
    }

    fn check_accumulate(&mut self, target: &Target) {
        let signature = Signature::new(&self.layout, self.count).expect("it is small");
        let elements = self.map.repeated(self.count).elements;
        let op = Op::ALL[self.dice.below(Op::ALL.len() as u64) as usize];
        let packed = self.noise(self.bytes.len());
        let before = self.noise(self.length);
        // From one boundary between elements to another.
        let mut ends = vec![0];
        for (element, _) in &elements {
            ends.push(ends.last().expect("one") + element.bytes() as usize);
        }
        let a = self.dice.below(ends.len() as u64) as usize;
        let b = self.dice.below(ends.len() as u64) as usize;
        let (a, b) = (a.min(b), a.max(b));
        let mut expected = before.clone();
        let mut is_defined = true;
        for (index, (element, at)) in elements.iter().enumerate() {
            is_defined &= op.is_defined_for(*element);
            if is_defined && (a..b).contains(&index) {
                let at = (self.origin as i64 + at) as usize;
                let there = at..at + element.bytes() as usize;
                let come = &packed[ends[index]..ends[index + 1]];
                let result = combined(op, *element, &before[there.clone()], come);
                expected[there].copy_from_slice(&result);
            }
        }
        let mut buffer = before.clone();
        let part = &packed[ends[a]..ends[b]];
        let done =
            target.accumulate(op, &signature, part, ends[a] as u64, self.view_mut(&mut buffer));
        if is_defined {
            done.expect("it is defined");
            for (element, at) in &elements {
                let at = (self.origin as i64 + at) as usize;
                let there = at..at + element.bytes() as usize;
                // Which of two numbers that are none a sum or a product keeps is the compiler's choice.
                if is_nan(*element, &expected[there.clone()])
                    && is_nan(*element, &buffer[there.clone()])
                {
                    buffer[there.clone()].copy_from_slice(&expected[there]);
                }
            }
            assert_eq!(buffer, expected, "{op}");
        } else {
            assert!(matches!(done, Err(Error::Operation { .. })), "{done:?}");
            assert_eq!(buffer, before);
        }
    }

    /// To a layout of as many bytes, and from it.
    fn check_copy(&mut self, plan: &Plan) {
        let size = self.bytes.len() as u64;
        if size == 0 {
            return;
        }
        let other = toy::shuffled(&mut self.dice, size);
        let other = Target::new(&other, 1).expect("no overlap");
        let order: Vec<i64> = other
            .plan()
            .runs(0..size)
            .expect("all")
            .flat_map(|run| (0..run.bytes as i64).map(move |by| run.offset + by))
            .collect();
        let there = other.plan().hull().1 as usize;
        let source = self.noise(self.length);
        let before = self.noise(there);
        let mut expected = before.clone();
        for (from, to) in self.bytes.iter().zip(&order) {
            expected[*to as usize] = self.byte(&source, *from);
        }
        let mut buffer = before;
        let mut in_strips = buffer.clone();
        other.copy_from(&mut buffer[..], plan, self.view(&source)).expect("it fits");
        assert_eq!(buffer, expected);
        if let Some(strips) = Strips::new(Some(plan), Some(&other), 24) {
            for strip in strips {
                let (begin, end) = strip.reads();
                let near: Vec<u8> = (begin..end).map(|at| self.byte(&source, at)).collect();
                strip.copy(&near[..], &mut in_strips[..]).expect("it fits");
            }
            assert_eq!(in_strips, expected);
        }
        if let Ok(target) = Target::try_from(plan.clone()) {
            let mut back = vec![0; self.length];
            target.copy_from(self.view_mut(&mut back), other.plan(), &buffer[..]).expect("it fits");
            for at in &self.bytes {
                assert_eq!(self.byte(&back, *at), self.byte(&source, *at));
            }
        }
    }

    fn check_signature(&mut self) {
        let signature = Signature::new(&self.layout, self.count).expect("it is small");
        let elements = self.map.repeated(self.count).elements;
        let set: HashSet<Element> = elements.iter().map(|one| one.0).collect();
        assert_eq!(signature.elements().collect::<HashSet<_>>(), set);
        let packed = self.noise(self.bytes.len());
        let mut expected = Vec::new();
        for (element, _) in &elements {
            let start = expected.len();
            let end = start + element.bytes() as usize;
            expected.extend(packed[start..end].iter().rev());
            let inside = start as u64 + self.dice.below(element.bytes());
            assert_eq!(signature.boundary(inside), start as u64);
            if inside > start as u64 {
                let refused = signature.swap(&mut packed[..inside as usize].to_vec(), 0);
                let at = inside;
                assert_eq!(refused, Err(Error::Split { at, element: *element }));
            }
        }
        let cut = signature.boundary(self.dice.below(packed.len() as u64 + 1)) as usize;
        let mut swapped = packed;
        let (head, tail) = swapped.split_at_mut(cut);
        signature.swap(head, 0).expect("whole elements");
        signature.swap(tail, cut as u64).expect("whole elements");
        assert_eq!(swapped, expected);
    }

    /// A range of the packed bytes.
    fn cut(&mut self) -> (u64, u64) {
        let end = self.bytes.len() as u64 + 1;
        let (a, b) = (self.dice.below(end), self.dice.below(end));
        (a.min(b), a.max(b))
    }

    fn noise(&mut self, bytes: usize) -> Vec<u8> {
        (0..bytes.div_ceil(8)).flat_map(|_| self.dice.roll().to_le_bytes()).take(bytes).collect()
    }

    fn byte(&self, buffer: &[u8], at: i64) -> u8 {
        buffer[(self.origin as i64 + at) as usize]
    }

    fn view<'a>(&self, buffer: &'a [u8]) -> View<'a> {
        View::at(buffer, self.origin).expect("the origin lies within")
    }

    fn view_mut<'a>(&self, buffer: &'a mut [u8]) -> ViewMut<'a> {
        ViewMut::at(buffer, self.origin).expect("the origin lies within")
    }
}

/// Whether one element is a float that is no number.
#[allow(clippy::host_endian_bytes)]
fn is_nan(element: Element, bytes: &[u8]) -> bool {
    match element {
        Element::F32 => f32::from_ne_bytes(bytes.try_into().expect("one element")).is_nan(),
        Element::F64 => f64::from_ne_bytes(bytes.try_into().expect("one element")).is_nan(),
        _ => false,
    }
}

/// One element, by way of its type.
#[allow(clippy::host_endian_bytes)]
fn combined(op: Op, element: Element, a: &[u8], b: &[u8]) -> Vec<u8> {
    macro_rules! as_number {
        ($type:ty, $sum:expr, $product:expr, $bits:expr) => {{
            let a = <$type>::from_ne_bytes(a.try_into().expect("one element"));
            let b = <$type>::from_ne_bytes(b.try_into().expect("one element"));
            let result: $type = match op {
                Op::Sum => $sum(a, b),
                Op::Prod => $product(a, b),
                Op::Min => {
                    if b < a {
                        b
                    } else {
                        a
                    }
                }
                Op::Max => {
                    if b > a {
                        b
                    } else {
                        a
                    }
                }
                Op::Replace => b,
                Op::NoOp => a,
                _ => $bits(a, b),
            };
            result.to_ne_bytes().to_vec()
        }};
    }
    macro_rules! as_integer {
        ($type:ident) => {
            as_number!($type, $type::wrapping_add, $type::wrapping_mul, |a: $type, b: $type| {
                match op {
                    Op::Band => a & b,
                    Op::Bor => a | b,
                    Op::Bxor => a ^ b,
                    Op::Land => $type::from(a != 0 && b != 0),
                    Op::Lor => $type::from(a != 0 || b != 0),
                    _ => $type::from((a != 0) != (b != 0)),
                }
            })
        };
    }
    let no_bits = "bits of a float";
    match element {
        Element::Byte | Element::U8 => as_integer!(u8),
        Element::I8 => as_integer!(i8),
        Element::I16 => as_integer!(i16),
        Element::U16 => as_integer!(u16),
        Element::I32 => as_integer!(i32),
        Element::U32 => as_integer!(u32),
        Element::I64 => as_integer!(i64),
        Element::U64 => as_integer!(u64),
        Element::F32 => {
            as_number!(f32, |a, b| a + b, |a, b| a * b, |_: f32, _: f32| panic!("{no_bits}"))
        }
        Element::F64 => {
            as_number!(f64, |a, b| a + b, |a, b| a * b, |_: f64, _: f64| panic!("{no_bits}"))
        }
    }
}
