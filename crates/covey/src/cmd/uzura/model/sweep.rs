//! `covey uzura model --sweep`: a range of one thing.

use super::tell::{gb, us};
use super::{Args, Bus};
use crate::cmd::Context;
use crate::error::Result;
use crate::output::table;
use covey_lab::units::rate_text;
use covey_plot::graph::{Axis, plot};
use serde_json::json;

/// What is gone through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum What {
    /// Length of message and block, 64 bytes to 1 MiB
    Block,
    /// MTU, 512 bytes to 64 KiB, for blocks of 1 MiB
    Mtu,
    /// Link, 1 to 400 Gbit/s
    Link,
    /// PCI Express, generation 1 to 5, 8 lanes
    Pcie,
    /// Memory in use, 256 MiB to 64 GiB, with a near table that may be too small
    WorkingSet,
    /// The near table, 512 KiB to 64 MiB, for 16 GiB in use or --working-set
    Table,
}

/// A point: its name, its place on the axis, and what to compute.
type Point = (String, f64, Args);

fn points(what: What, args: &Args) -> Vec<Point> {
    let sized = |from: u32, to: u32, set: fn(&mut Args, u64)| -> Vec<Point> {
        let point = |power: u32| {
            let (mut args, size) = (args.clone(), 1u64 << power);
            set(&mut args, size);
            (indicatif::BinaryBytes(size).to_string(), size as f64, args)
        };
        (from..=to).map(point).collect()
    };
    match what {
        What::Block => sized(6, 20, |args, size| (args.message, args.block) = (size, size)),
        What::Mtu => sized(9, 16, |args, size| (args.mtu, args.block) = (size, 1 << 20)),
        What::WorkingSet => sized(28, 36, |args, size| args.working_set = Some(size)),
        What::Table => sized(19, 26, |args, size| {
            args.table = size;
            args.working_set = Some(args.working_set.unwrap_or(16 << 30));
        }),
        What::Link => [1u64, 10, 25, 40, 100, 200, 400]
            .into_iter()
            .map(|gbit| {
                let link = gbit * 1_000_000_000;
                (rate_text(Some(link)), link as f64, Args { link, ..args.clone() })
            })
            .collect(),
        What::Pcie => (1..=5)
            .map(|generation| {
                let bus = Bus::PciExpress(generation, 8);
                let name = format!("generation {generation}");
                (name, f64::from(generation), Args { bus, ..args.clone() })
            })
            .collect(),
    }
}

/// Runs the command.
pub fn run(what: What, args: &Args, context: &Context) -> Result<()> {
    let mut found = Vec::new();
    for (name, place, args) in points(what, args) {
        let computed = args.compute()?;
        found.push((name, place, computed));
    }
    let value: Vec<_> = found
        .iter()
        .map(|(name, place, computed)| {
            json!({
                "at": name,
                "value": place,
                "message_us": computed.message.arrival_ps as f64 / 1e6,
                "bytes_per_s": computed.rdma.bytes_per_s,
                "bottleneck": computed.rdma.bottleneck,
            })
        })
        .collect();
    context.output.result(&value, |out| {
        let rows: Vec<Vec<String>> = found
            .iter()
            .map(|(name, _, computed)| {
                vec![
                    name.clone(),
                    us(computed.message.arrival_ps),
                    gb(computed.rdma.bytes_per_s),
                    computed.rdma.bottleneck.to_string(),
                ]
            })
            .collect();
        let name = match what {
            What::Block => "BLOCK",
            What::Mtu => "MTU",
            What::Link => "LINK",
            What::Pcie => "PCI EXPRESS, 8 LANES",
            What::WorkingSet => "MEMORY IN USE",
            What::Table => "NEAR TABLE",
        };
        table(out, &[name, ">MESSAGE, us", ">BLOCKS, GB/s", "HELD UP BY"], &rows);
        let points: Vec<(f64, f64)> = found
            .iter()
            .map(|(_, place, computed)| (*place, computed.rdma.bytes_per_s / 1e9))
            .collect();
        let x = Axis {
            name: "",
            is_log: what != What::Pcie,
            write: |value| match value {
                value if value < 1000.0 => format!("{value:.0}"),
                value => format!("{value:.0e}"),
            },
        };
        let y = Axis { name: "GB/s", is_log: false, write: |value| format!("{value:.2}") };
        out.extend_from_slice(format!("\n{}", plot(&points, x, y)).as_bytes());
        Ok(())
    })
}
