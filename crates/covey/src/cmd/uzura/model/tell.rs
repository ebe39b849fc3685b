//! What a person is told of the model.

use super::{Computed, accesses};
use crate::output::table;
use covey_uzura::model::{Nic, Notice, Origin, Start, Translation, Unit, Way, message, rdma};
use std::io::{Result, Write};

/// A time in microseconds.
pub fn us(ps: u64) -> String {
    format!("{:.2}", ps as f64 / 1e6)
}

/// A rate in gigabytes (10^9) per second.
pub fn gb(bytes_per_s: f64) -> String {
    format!("{:.2}", bytes_per_s / 1e9)
}

/// What a unit is called.
pub fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Picoseconds => "ps",
        Unit::BytesPerSecond => "B/s",
        Unit::BitsPerSecond => "bit/s",
        Unit::Bytes => "B",
    }
}

/// Every number, and where it comes from.
pub fn components(out: &mut Vec<u8>, nic: &Nic) -> Result<()> {
    let value = |value: u64, of: Unit| match of {
        Unit::Picoseconds => format!("{} us", value as f64 / 1e6),
        Unit::BytesPerSecond => format!("{} MB/s", value as f64 / 1e6),
        Unit::BitsPerSecond => format!("{} Gbit/s", value as f64 / 1e9),
        Unit::Bytes => format!("{value} B"),
    };
    let row = |one: &covey_uzura::model::Component| {
        let origin = match one.origin {
            Origin::Paper(place) => format!("the paper, {place}"),
            Origin::Derived(from) => format!("derived: {from}"),
            Origin::Assumed(why) => format!("assumed: {why}"),
            Origin::Changed => "changed".to_string(),
        };
        vec![one.name.to_string(), value(one.value, one.unit), origin]
    };
    let rows: Vec<Vec<String>> = nic.components().iter().map(row).collect();
    table(out, &["COMPONENT", ">VALUE", "FROM"], &rows);
    writeln!(
        out,
        "\nThe paper's 24 ns until a DMA starts and 35.3 ns for a read of the card's memory are \
         contained\nin its times for DMA and for a near lookup."
    )
}

/// Everything.
pub fn all(out: &mut Vec<u8>, computed: &Computed) -> Result<()> {
    let is_papers = computed.is_papers();
    of_message(out, computed, is_papers)?;
    of_rdma(out, computed, is_papers)?;
    choices(out, computed)?;
    let rows: Vec<Vec<String>> = accesses(&computed.nic)
        .into_iter()
        .map(|(bytes, found)| {
            let times =
                [found.dma_in_ps, found.register_in_ps, found.dma_out_ps, found.register_out_ps];
            [bytes.to_string()].into_iter().chain(times.map(us)).collect()
        })
        .collect();
    writeln!(out, "\nMoving bytes between a host and its card, us:\n")?;
    table(out, &[">BYTES", ">DMA IN", ">REGISTERS IN", ">DMA OUT", ">REGISTERS OUT"], &rows);
    writeln!(
        out,
        "\nThe paper's 4.03 us and 1.02 GB/s are predictions from its components, as these are; \
         its\nfigures 5 and 6 are lost. `--components` says where each number comes from."
    )
}

fn of_message(out: &mut Vec<u8>, computed: &Computed, is_papers: bool) -> Result<()> {
    let paper = |time: Option<u64>| match (is_papers, time) {
        (true, Some(time)) => us(time),
        _ => String::new(),
    };
    writeln!(out, "A message of {} bytes, us:\n", computed.message_bytes)?;
    let mut rows: Vec<Vec<String>> = computed
        .message
        .lines
        .iter()
        .map(|line| vec![line.name.to_string(), us(line.time_ps), paper(line.paper_ps)])
        .collect();
    let behind = computed.message.arrival_ps - computed.message.first_cell_ps;
    if behind > 0 {
        rows.push(vec!["what comes behind its first 64 bytes".into(), us(behind), String::new()]);
    }
    let is_timed = computed.message_bytes == covey_uzura::model::CELL_BYTES;
    let total = paper(is_timed.then_some(4_030_000));
    rows.push(vec!["one way".to_string(), us(computed.message.arrival_ps), total]);
    table(out, &["PART", ">MODEL", ">PAPER"], &rows);
    Ok(())
}

fn of_rdma(out: &mut Vec<u8>, computed: &Computed, is_papers: bool) -> Result<()> {
    let rdma = &computed.rdma;
    writeln!(out, "\nRDMA in blocks of {} bytes, us for a packet:\n", computed.block_bytes)?;
    let rows: Vec<Vec<String>> = rdma
        .stages
        .iter()
        .map(|stage| {
            let paper = stage.paper_ps.filter(|_| is_papers);
            let note = match (paper, stage.name) {
                (None, _) => "",
                (Some(_), "link") => "impossible: 4096 bytes at 10 Gbit/s take 3.28 at least",
                (Some(_), _) => "an input here, solved from the paper's table 6",
            };
            vec![stage.name.into(), us(stage.hold_ps), paper.map_or(String::new(), us), note.into()]
        })
        .collect();
    table(out, &["STAGE", ">MODEL", ">PAPER", ""], &rows);
    let paper = if is_papers && computed.block_bytes == 4096 { " (the paper: 1.02)" } else { "" };
    writeln!(
        out,
        "\n{} GB/s{paper}, as fast as the {} lets them through; a block alone takes {} us",
        gb(rdma.bytes_per_s),
        rdma.bottleneck,
        us(rdma.block_ps)
    )
}

/// What each other choice would make of it.
fn choices(out: &mut Vec<u8>, computed: &Computed) -> Result<()> {
    let (nic, way) = (&computed.nic, computed.way);
    let ways = [
        ("as above", way),
        ("start: a register written", Way { start: Start::Register, ..way }),
        ("start: memory polled", Way { start: Start::Poll, ..way }),
        ("notice: payload polled", Way { notice: Notice::Payload, ..way }),
        ("notice: flag polled", Way { notice: Notice::Flag, ..way }),
        ("notice: register polled", Way { notice: Notice::Register, ..way }),
        ("notice: interrupt", Way { notice: Notice::Interrupt, ..way }),
        ("lookups: none", Way { translation: Translation::None, ..way }),
        ("lookups: near", Way { translation: Translation::Near, ..way }),
        ("lookups: far", Way { translation: Translation::Far, ..way }),
    ];
    let mut rows = Vec::new();
    for (at, (name, other)) in ways.into_iter().enumerate() {
        if at > 0 && other == way {
            continue;
        }
        let (Ok(message), Ok(rdma)) =
            (message(nic, &other, computed.message_bytes), rdma(nic, &other, computed.block_bytes))
        else {
            continue;
        };
        rows.push(vec![name.to_string(), us(message.arrival_ps), gb(rdma.bytes_per_s)]);
    }
    writeln!(out, "\nOther choices:\n")?;
    table(out, &["CHOICE", ">MESSAGE, us", ">BLOCKS, GB/s"], &rows);
    Ok(())
}
