//! Layouts as MPI's standard defines them: a list of elements with displacements. Slow and plain, it
//! shares no code with what it checks.

use covey_layout::{Axis, Block, Element, Layout, Member, Order};
use covey_wire::Rng;

/// A type map: every element with its displacement, and the marks that `resized` sets.
#[derive(Clone, Debug, Default)]
pub struct TypeMap {
    pub elements: Vec<(Element, i64)>,
    pub marks: Option<(i64, i64)>,
}

impl TypeMap {
    pub fn one(element: Element) -> TypeMap {
        TypeMap { elements: vec![(element, 0)], marks: None }
    }

    pub fn true_bounds(&self) -> (i64, i64) {
        let end = |&(element, at): &(Element, i64)| at + element.bytes() as i64;
        let low = self.elements.iter().map(|one| one.1).min();
        (low.unwrap_or(0), self.elements.iter().map(end).max().unwrap_or(0))
    }

    pub fn bounds(&self) -> (i64, i64) {
        if let Some(marks) = self.marks {
            return marks;
        }
        let (low, mut high) = self.true_bounds();
        let align = self.elements.iter().map(|one| one.0.bytes() as i64).max().unwrap_or(1);
        while (high - low) % align != 0 {
            high += 1;
        }
        (low, high)
    }

    pub fn extent(&self) -> i64 {
        self.bounds().1 - self.bounds().0
    }

    pub fn size(&self) -> u64 {
        self.elements.iter().map(|one| one.0.bytes()).sum()
    }

    /// Takes in `other`, displaced.
    fn add(&mut self, other: &TypeMap, at: i64) {
        self.elements.extend(other.elements.iter().map(|&(element, by)| (element, at + by)));
        if let Some((low, high)) = other.marks {
            let (a, b) = self.marks.unwrap_or((low + at, high + at));
            self.marks = Some((a.min(low + at), b.max(high + at)));
        }
    }

    fn add_copies(&mut self, other: &TypeMap, count: u64, at: i64) {
        for copy in 0..count as i64 {
            self.add(other, at + copy * other.extent());
        }
    }

    /// `count` copies in a row.
    pub fn repeated(&self, count: u64) -> TypeMap {
        let mut all = TypeMap::default();
        all.add_copies(self, count, 0);
        all
    }

    /// The offset of every packed byte.
    pub fn bytes(&self) -> Vec<i64> {
        let each =
            |&(element, at): &(Element, i64)| (0..element.bytes() as i64).map(move |by| at + by);
        self.elements.iter().flat_map(each).collect()
    }
}

/// Random numbers as layouts need them.
pub struct Dice(Rng);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(Rng::new(seed))
    }

    pub fn roll(&mut self) -> u64 {
        self.0.next()
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    pub fn within(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }

    pub fn element(&mut self) -> Element {
        Element::ALL[self.below(Element::ALL.len() as u64) as usize]
    }
}

/// A random layout both ways, of at most some 300 elements.
pub fn random(dice: &mut Dice, depth: u64) -> (Layout, TypeMap) {
    if depth == 0 || dice.below(12) == 0 {
        let element = dice.element();
        return (Layout::element(element), TypeMap::one(element));
    }
    let (inner, map) = random(dice, depth - 1);
    // A small layout may be repeated more often than a large one.
    let most = match map.elements.len() {
        // Now and then large enough for tiles of any width.
        1..=40 if dice.below(100) == 0 => 40,
        0..=3 => 7,
        4..=30 => 4,
        31..=80 => 2,
        _ => 1,
    };
    match dice.below(9) {
        0 => contiguous(dice, most, &inner, &map),
        1 => vector(dice, most, &inner, &map, false),
        2 | 3 => vector(dice, most, &inner, &map, true),
        4 => blocks(dice, most, &inner, &map, false),
        5 => blocks(dice, most, &inner, &map, true),
        6 => structure(dice, depth, (inner, map)),
        7 => subarray(dice, most, &inner, &map),
        _ => resized(dice, &inner, &map),
    }
}

type Both = (Layout, TypeMap);

fn contiguous(dice: &mut Dice, most: u64, inner: &Layout, map: &TypeMap) -> Both {
    let count = dice.below(most + 1);
    (Layout::contiguous(count, inner).expect("it is small"), map.repeated(count))
}

fn vector(dice: &mut Dice, most: u64, inner: &Layout, map: &TypeMap, in_bytes: bool) -> Both {
    let count = dice.below(most + 1);
    let block = 1 + dice.below(3).min(most - 1) - dice.below(12) / 11;
    let row = block as i64 * map.extent().abs();
    let (layout, stride) = if in_bytes {
        // Often the strides that merge, interleave or transpose.
        let stride = match dice.below(5) {
            0 => row,
            1 => map.elements.first().map_or(1, |one| one.0.bytes() as i64),
            2 => row + dice.within(0, 9),
            3 => -row - dice.within(0, 9),
            _ => dice.within(-40, 40),
        };
        (Layout::hvector(count, block, stride, inner), stride)
    } else {
        let stride = dice.within(-5, 6);
        (Layout::vector(count, block, stride, inner), stride * map.extent())
    };
    let mut all = TypeMap::default();
    for index in 0..count as i64 {
        all.add_copies(map, block, index * stride);
    }
    (layout.expect("it is small"), all)
}

fn blocks(dice: &mut Dice, most: u64, inner: &Layout, map: &TypeMap, in_bytes: bool) -> Both {
    let unit = if in_bytes { 1 } else { map.extent() };
    let is_even = dice.below(2) == 0;
    let is_regular = dice.below(3) == 0;
    let step = dice.within(-30, 60);
    let listed: Vec<Block> = (0..dice.below(most + 1) as i64)
        .map(|index| {
            let count = if is_even { 1 } else { dice.below(3) };
            let random = if in_bytes { dice.within(-80, 160) } else { dice.within(-4, 8) };
            Block { count, displacement: if is_regular { index * step } else { random } }
        })
        .collect();
    let mut all = TypeMap::default();
    for block in &listed {
        all.add_copies(map, block.count, block.displacement * unit);
    }
    let made =
        if in_bytes { Layout::hindexed(&listed, inner) } else { Layout::indexed(&listed, inner) };
    (made.expect("it is small"), all)
}

fn structure(dice: &mut Dice, depth: u64, first: Both) -> Both {
    let mut members = Vec::new();
    let mut all = TypeMap::default();
    let mut next = Some(first);
    let mut at = dice.within(-16, 16);
    while let Some((layout, map)) = next.take() {
        let count = if map.elements.len() > 20 { 1 } else { dice.below(3) };
        // Mostly one behind the other.
        let displacement = if dice.below(4) == 0 { dice.within(-60, 60) } else { at };
        at = displacement + count as i64 * map.extent().abs() + dice.within(0, 3);
        all.add_copies(&map, count, displacement);
        members.push(Member { count, displacement, layout });
        if members.len() < 4 && all.elements.len() < 60 && dice.below(3) > 0 {
            next = Some(random(dice, (depth - 1).min(1)));
        }
    }
    (Layout::structure(&members).expect("it is small"), all)
}

fn subarray(dice: &mut Dice, most: u64, inner: &Layout, map: &TypeMap) -> Both {
    let count = 1 + dice.below(3) as usize;
    let most = if count == 3 { most.min(3) } else { most };
    let axes: Vec<Axis> = (0..count)
        .map(|_| {
            let part = 1 + dice.below(most);
            let start = dice.below(3);
            Axis { size: start + part + dice.below(3), start, part }
        })
        .collect();
    let order = if dice.below(2) == 0 { Order::C } else { Order::Fortran };
    // Odometer over the part, the fastest axis first.
    let fastest: Vec<Axis> = match order {
        Order::C => axes.iter().rev().copied().collect(),
        Order::Fortran => axes.clone(),
    };
    let mut all = TypeMap::default();
    let total: u64 = fastest.iter().map(|axis| axis.part).product();
    for mut index in 0..total {
        let (mut at, mut scale) = (0, map.extent());
        for axis in &fastest {
            at += (axis.start + index % axis.part) as i64 * scale;
            index /= axis.part;
            scale *= axis.size as i64;
        }
        all.add(map, at);
    }
    let whole: i64 = fastest.iter().map(|axis| axis.size as i64).product();
    let low = map.bounds().0;
    all.marks = Some((low, low + whole * map.extent()));
    (Layout::subarray(&axes, order, inner).expect("it is small"), all)
}

fn resized(dice: &mut Dice, inner: &Layout, map: &TypeMap) -> Both {
    let lower = dice.within(-10, 10);
    let extent = if dice.below(2) == 0 { dice.within(0, 40) } else { map.extent() };
    let mut all = map.clone();
    all.marks = Some((lower, lower + extent));
    (Layout::resized(lower, extent, inner).expect("it is small"), all)
}

/// A layout of `size` bytes without overlaps: loops in any order, so that copying to it transposes.
pub fn shuffled(dice: &mut Dice, size: u64) -> Layout {
    let mut left = size;
    let mut digits = Vec::new();
    while left > 1 {
        let divisor = (2..=left).find(|&one| left.is_multiple_of(one)).expect("it divides itself");
        digits.push(divisor);
        left /= divisor;
    }
    // Strides by a random order of the digits, with gaps; nested in another.
    let mut strides = Vec::new();
    let mut stride = 1;
    let mut order: Vec<usize> = (0..digits.len()).collect();
    for at in (1..order.len()).rev() {
        order.swap(at, dice.below(at as u64 + 1) as usize);
    }
    for &digit in &order {
        strides.push((digit, stride));
        stride = stride * digits[digit] as i64 + dice.within(0, 2);
    }
    let mut layout = Layout::element(Element::Byte);
    strides.sort_by_key(|(digit, _)| *digit);
    for (digit, stride) in strides {
        layout = Layout::hvector(digits[digit], 1, stride, &layout).expect("it is small");
    }
    layout
}
