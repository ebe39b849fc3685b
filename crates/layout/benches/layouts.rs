//! Layouts beside memcpy, a plain loop and the bare kernels: `cargo bench -p covey-layout [WORD]`.
//!
//! All contestants of a group take turns in short batches, so that what else the machine does falls on
//! all of them alike. Prints the median and the tenth percentile of a batch's time for one call, and the
//! median beside memcpy's.
//!
//! The transposition is that of MPI's textbooks: a vector of vectors to contiguous bytes (`pack`) and
//! back (`unpack`). Making the plan is measured apart.

use covey_layout::{Element, Layout, Level, Member, Op, Plan, Signature, Target, transpose};
#[cfg(target_arch = "x86_64")]
#[path = "layouts/by_hand.rs"]
mod by_hand;

use std::hint::black_box;
use std::time::{Duration, Instant};

fn main() {
    let word = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let wants = |name: &str| word.as_ref().is_none_or(|word| name.contains(word.as_str()));
    println!("kernels: {:?}", Level::best());
    for side in [100, 1000] {
        let name = format!("transposition {side} x {side} f32");
        if wants(&name) {
            transposition(&name, side);
        }
    }
    for element in [1, 2, 8, 16] {
        let name = format!("transposition 300 x 300, {element} bytes");
        if wants(&name) {
            elements(&name, element);
        }
    }
    for block in [4, 8, 16, 24, 64, 100, 1024] {
        let name = format!("vector of {block} every {} bytes", 2 * block);
        if wants(&name) {
            vector(&name, block);
        }
    }
    if wants("array of structures") {
        structures();
    }
    if wants("descriptions") {
        descriptions();
    }
}

/// A name and what is measured.
type Contestant<'a> = (String, Box<dyn FnMut() + 'a>);

fn contestant<'a>(name: &str, run: impl FnMut() + 'a) -> Contestant<'a> {
    (name.to_owned(), Box::new(run))
}

/// Lets the contestants take turns, and prints what each took. The first one is the measure.
fn compete(name: &str, bytes: usize, mut contestants: Vec<Contestant<'_>>) {
    println!(
        "\n{name}\n  {:32} {:>10} {:>10} {:>8} {:>7}",
        "", "median us", "p10 us", "GB/s", "ratio"
    );
    let calls: Vec<u32> = contestants.iter_mut().map(|(_, run)| calls_of_batch(run)).collect();
    let mut times = vec![Vec::new(); contestants.len()];
    for _ in 0..BATCHES {
        for (at, (_, run)) in contestants.iter_mut().enumerate() {
            times[at].push(time(run, calls[at]).as_secs_f64() * 1e6 / f64::from(calls[at]));
        }
    }
    let mut first = None;
    for ((name, _), mut times) in contestants.into_iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let (median, p10) = (times[BATCHES / 2], times[BATCHES / 10]);
        let ratio = median / *first.get_or_insert(median);
        let rate = bytes as f64 / median / 1e3;
        println!("  {name:32} {median:10.3} {p10:10.3} {rate:8.1} {ratio:7.2}");
    }
}

/// As many as take a batch's time, after some to warm up.
fn calls_of_batch(run: &mut dyn FnMut()) -> u32 {
    let mut calls = 1;
    while time(run, calls) < BATCH && calls < 1 << 20 {
        calls *= 2;
    }
    calls
}

fn time(run: &mut dyn FnMut(), calls: u32) -> Duration {
    let start = Instant::now();
    (0..calls).for_each(|_| run());
    start.elapsed()
}

const BATCHES: usize = 400;
const BATCH: Duration = Duration::from_micros(100);

fn transposition(name: &str, side: usize) {
    let bytes = 4 * side * side;
    let from = noise(bytes);
    let mut buffers: Vec<Vec<u8>> = (0..10).map(|_| vec![1; bytes]).collect();
    let layout = columns(side as u64);
    let target = Target::new(&layout, 1).expect("no overlap");
    let plan = target.plan();
    let signature = Signature::new(&layout, 1).expect("it is small");
    let zero = vec![0; bytes];
    let numbers: Vec<f32> = (0..side * side).map(|at| at as f32).collect();
    let (mut transposed, mut by_hand) = (numbers.clone(), numbers.clone());

    let mut contestants = Vec::new();
    let mut buffers = buffers.iter_mut();
    let mut next = || buffers.next().expect("enough buffers");
    let to = next();
    contestants.push(contestant("memcpy", || black_box(&mut *to).copy_from_slice(&from)));
    contestants.push(contestant("plain loop", || {
        naive(black_box(&numbers), black_box(&mut transposed), side);
    }));
    #[cfg(target_arch = "x86_64")]
    if Level::best() >= Level::Avx2 {
        let (from, to) = (&numbers, &mut by_hand);
        contestants.push(contestant("by hand, AVX 8 x 8", move || {
            by_hand::transpose(black_box(from), to, side);
        }));
    }
    for level in Level::ALL {
        let (from, to) = (&from, next());
        contestants.push(contestant(&format!("kernel, {level:?}"), move || {
            transpose(level, 4, black_box(from), to, [side, side]);
        }));
    }
    let to = next();
    contestants.push(contestant("pack", || {
        plan.pack(black_box(&from[..]), 0, to).expect("it fits");
    }));
    let to = next();
    contestants.push(contestant("unpack", || {
        target.unpack(black_box(&from), 0, &mut to[..]).expect("it fits");
    }));
    let to = next();
    contestants.push(contestant("pack in messages of 64 KiB", || {
        for (index, part) in to.chunks_mut(65536).enumerate() {
            plan.pack(black_box(&from[..]), index as u64 * 65536, part).expect("it fits");
        }
    }));
    let to = next();
    contestants.push(contestant("accumulate", || {
        let done = target.accumulate(Op::Bor, &signature, black_box(&zero), 0, &mut to[..]);
        done.expect("it is defined");
    }));
    compete(name, bytes, contestants);
}

/// The kernels for elements of other sizes.
fn elements(name: &str, element: usize) {
    let bytes = 300 * 300 * element;
    let from = noise(bytes);
    let mut buffers: Vec<Vec<u8>> = (0..5).map(|_| vec![1; bytes]).collect();
    let mut buffers = buffers.iter_mut();
    let mut contestants = Vec::new();
    let (source, to) = (&from, buffers.next().expect("enough buffers"));
    contestants.push(contestant("memcpy", move || black_box(&mut *to).copy_from_slice(source)));
    for (level, to) in Level::ALL.into_iter().zip(buffers) {
        let from = &from;
        contestants.push(contestant(&format!("kernel, {level:?}"), move || {
            transpose(level, element, black_box(from), to, [300, 300]);
        }));
    }
    compete(name, bytes, contestants);
}

fn columns(side: u64) -> Layout {
    let row = Layout::vector(side, 1, side as i64, &Layout::element(Element::U32));
    Layout::hvector(side, 1, 4, &row.expect("it is small")).expect("it is small")
}

fn naive(from: &[f32], to: &mut [f32], side: usize) {
    for column in 0..side {
        for row in 0..side {
            to[column * side + row] = from[row * side + column];
        }
    }
}

fn vector(name: &str, block: usize) {
    let count = (256 << 10) / block;
    let bytes = count * block;
    let element = Layout::bytes(block as u64).expect("it is small");
    let layout = Layout::vector(count as u64, 1, 2, &element).expect("it is small");
    let target = Target::new(&layout, 1).expect("no overlap");
    let from = noise(2 * bytes);
    let (mut a, mut b, mut c) = (vec![1; bytes], vec![1; bytes], vec![1; bytes]);
    let mut scattered = from.clone();
    let contestants = vec![
        contestant("memcpy", || black_box(&mut a).copy_from_slice(&from[..bytes])),
        contestant("plain loop", || {
            let blocks = black_box(&from).chunks_exact(2 * block);
            for (to, from) in b.chunks_exact_mut(block).zip(blocks) {
                to.copy_from_slice(&from[..block]);
            }
        }),
        contestant("pack", || {
            target.plan().pack(black_box(&from[..]), 0, &mut c).expect("it fits");
        }),
        contestant("unpack", || {
            target.unpack(black_box(&from[..bytes]), 0, &mut scattered[..]).expect("it fits");
        }),
    ];
    compete(name, bytes, contestants);
}

/// What a C program has of an `int`, a `double` and three `char`.
fn structures() {
    let member = |displacement, count, element| Member {
        count,
        displacement,
        layout: Layout::element(element),
    };
    let members =
        [member(0, 1, Element::I32), member(8, 1, Element::F64), member(16, 3, Element::I8)];
    let layout = Layout::structure(&members).expect("it is small");
    let target = Target::new(&layout, 10_000).expect("no overlap");
    let bytes = target.plan().size() as usize;
    let from = noise(240_000);
    let (mut a, mut b, mut c) = (vec![1; bytes], vec![1; bytes], vec![1; bytes]);
    let mut scattered = from.clone();
    let contestants = vec![
        contestant("memcpy", || black_box(&mut a).copy_from_slice(&from[..bytes])),
        contestant("plain loop", || {
            for (to, from) in b.chunks_exact_mut(15).zip(black_box(&from).chunks_exact(24)) {
                to[..4].copy_from_slice(&from[..4]);
                to[4..].copy_from_slice(&from[8..19]);
            }
        }),
        contestant("pack", || {
            target.plan().pack(black_box(&from[..]), 0, &mut c).expect("it fits");
        }),
        contestant("unpack", || {
            target.unpack(black_box(&from[..bytes]), 0, &mut scattered[..]).expect("it fits");
        }),
    ];
    compete("array of structures of 4, 8 and 3 bytes", bytes, contestants);
}

fn descriptions() {
    let layout = columns(1000);
    let bytes = layout.encode().expect("it is small");
    let contestants = vec![
        contestant("plan", || drop(black_box(Plan::new(black_box(&layout), 1)))),
        contestant("target", || drop(black_box(Target::new(black_box(&layout), 1)))),
        contestant("encode", || drop(black_box(black_box(&layout).encode()))),
        contestant("decode", || drop(black_box(Layout::decode(bytes.clone().into())))),
    ];
    compete("description of a transposition", bytes.len(), contestants);
}

fn noise(bytes: usize) -> Vec<u8> {
    (0..bytes as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect()
}
