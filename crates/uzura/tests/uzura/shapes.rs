//! Layouts of which a list of displacements is known, byte by byte, without asking the crate that is tested.

use covey_io::sim::Rng;
use covey_layout::{Block, Element, Layout};

/// A layout, and where each of its packed bytes lies.
#[derive(Clone, Debug)]
pub struct Shape {
    /// `None`: contiguous bytes.
    pub layout: Option<Layout>,
    pub places: Vec<i64>,
    /// Bytes of memory that it needs.
    pub span: u64,
}

/// Rows, columns and bytes of an element: what two sides of an operation have in common.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub rows: u64,
    pub columns: u64,
    pub element: Element,
}

impl Size {
    pub fn random(rng: &mut Rng) -> Size {
        let element = *rng.pick(&[Element::U8, Element::U16, Element::U32, Element::U64]);
        let large = if rng.chance(150) { 40 } else { 9 };
        Size { rows: 8 + rng.below(large), columns: 1 + rng.below(large), element }
    }

    pub fn bytes(self) -> u64 {
        self.rows * self.columns * self.element.bytes()
    }
}

impl Shape {
    pub fn plain(bytes: u64) -> Shape {
        Shape { layout: None, places: (0..bytes as i64).collect(), span: bytes }
    }

    pub fn random(rng: &mut Rng, size: Size) -> Shape {
        let Size { rows, columns, element } = size;
        let (bytes, one) = (element.bytes() as i64, Layout::element(element));
        let blocks = |at: &[i64], length: i64| -> Vec<i64> {
            at.iter().flat_map(|at| (0..length).map(move |by| at + by)).collect()
        };
        match rng.below(4) {
            0 => Shape::plain(size.bytes()),
            1 => {
                let pitch = columns as i64 + rng.below(3) as i64;
                let layout = Layout::vector(rows, columns, pitch, &one);
                let at: Vec<i64> = (0..rows as i64).map(|row| row * pitch * bytes).collect();
                Shape::of(layout, blocks(&at, columns as i64 * bytes))
            }
            2 => {
                let column = Layout::vector(rows, 1, columns as i64, &one).expect("it is small");
                let layout = Layout::hvector(columns, 1, bytes, &column);
                let at = (0..columns as i64)
                    .flat_map(|x| (0..rows as i64).map(move |y| (y * columns as i64 + x) * bytes));
                Shape::of(layout, blocks(&at.collect::<Vec<_>>(), bytes))
            }
            _ => {
                let mut order: Vec<i64> = (0..rows as i64).collect();
                rng.shuffle(&mut order);
                let gap = rng.below(2) as i64 * bytes;
                let pitch = columns as i64 * bytes + gap;
                let at: Vec<i64> = order.iter().map(|row| row * pitch).collect();
                let list: Vec<Block> = at
                    .iter()
                    .map(|displacement| Block { count: columns, displacement: *displacement })
                    .collect();
                Shape::of(Layout::hindexed(&list, &one), blocks(&at, columns as i64 * bytes))
            }
        }
    }

    fn of(layout: Result<Layout, covey_layout::Error>, places: Vec<i64>) -> Shape {
        let span = places.iter().max().map_or(0, |last| *last as u64 + 1);
        Shape { layout: Some(layout.expect("it is well made")), places, span }
    }

    /// The packed bytes of memory that begins at `at`.
    pub fn pack(&self, memory: &[u8], at: usize) -> Vec<u8> {
        self.places.iter().map(|by| memory[at + *by as usize]).collect()
    }

    /// Puts the first packed bytes into memory that begins at `at`.
    pub fn unpack(&self, packed: &[u8], memory: &mut [u8], at: usize) {
        for (by, byte) in self.places.iter().zip(packed) {
            memory[at + *by as usize] = *byte;
        }
    }
}
