//! Layouts that a peer describes.

use covey_layout::{Axis, Block, Element, Layout, Member, Order, Plan, Signature, Target};
use covey_wire::Bytes;

/// A description is refused with words, or it is within the limits, and reading and writing by it stays within a
/// buffer.
pub fn description(data: &[u8]) {
    let layout = match Layout::decode(Bytes::copy_from_slice(data)) {
        Ok(layout) => layout,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            return;
        }
    };
    if let Ok(bytes) = layout.encode() {
        assert_eq!(Layout::decode(bytes.into()).as_ref(), Ok(&layout));
    }
    let count = u64::from(data.last().copied().unwrap_or(1) % 4);
    let Ok(plan) = Plan::new(&layout, count) else { return };
    let size = plan.size();
    let signature = Signature::new(&layout, count).expect("as the plan");
    assert_eq!(signature.size(), size);
    let middle = signature.boundary(size / 2);
    let forward: u64 =
        plan.runs(middle..size).expect("within").take(100).map(|run| run.bytes).sum();
    let mut back = plan.runs(0..middle).expect("within").rev().take(100);
    assert!(forward <= size - middle && back.all(|run| run.packed < middle));
    let (mut buffer, mut packed) = ([0; 4096], vec![0; size.min(8192) as usize]);
    let _ = plan.pack(&buffer[..], 0, &mut packed);
    if let Ok(target) = Target::try_from(plan) {
        let _ = target.unpack(&packed, 0, &mut buffer[..]);
    }
}

/// One of each kind of node.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let build = || {
        let float = Layout::element(Element::F32);
        let row = Layout::vector(10, 1, 10, &float)?;
        let columns = Layout::hvector(10, 1, 4, &row)?;
        let blocks = [(3, -4), (1, 60)].map(|(count, displacement)| Block { count, displacement });
        let listed = Layout::hindexed(&blocks, &float)?;
        let even = Layout::indexed(
            &[0, 5, 7].map(|displacement| Block { count: 2, displacement }),
            &float,
        )?;
        let member = |displacement, layout: &Layout| Member {
            count: 2,
            displacement,
            layout: layout.clone(),
        };
        let members = [member(0, &columns), member(1000, &listed), member(2000, &even)];
        let structure = Layout::structure(&members)?;
        let axes = [Axis { size: 4, start: 1, part: 2 }, Axis { size: 8, start: 3, part: 5 }];
        let part = Layout::subarray(&axes, Order::C, &Layout::element(Element::I64))?;
        [columns, listed, even, structure, part]
            .iter()
            .map(Layout::encode)
            .collect::<Result<Vec<_>, _>>()
    };
    let seeds = build().expect("they are small");
    seeds.into_iter().map(|seed| ("layout_description", seed)).collect()
}
