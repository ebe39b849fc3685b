//! `covey uzura model`: what the paper's card does, and what another one would.

mod sweep;
mod tell;

use crate::cmd::Context;
use crate::config::size;
use crate::error::{Error, Result};
use covey_lab::units::{parse_rate, parse_time_ns};
use covey_uzura::model::{
    Access, Line, Message, Nic, Notice, Origin, Rdma, Start, Translation, Way, access, message,
    rdma,
};
use serde_json::{Value, json};

/// Model the UZURA network card
///
/// The paper (Nakashima et al.) predicts 4.03 us for a message of 64 bytes and 1.02 GB/s for blocks
/// of 4 KiB, from the times of the card's parts; both are predictions, not measurements. This
/// command makes the same predictions with a discrete-event simulation, and others for changed
/// parts. --components says for each number whether it is the paper's, follows from it, or is
/// assumed.
///
/// EXAMPLES
///
///     covey uzura model
///     covey uzura model --notice interrupt
///     covey uzura model --bus pcie:3:8 --mac-inside --link 100gbit
///     covey uzura model --lookups far --sweep block
///     covey uzura model --sweep working-set
#[derive(clap::Args, Clone, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Length of the message, its header included
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = size::parse)]
    message: u64,
    /// Length of the blocks of RDMA
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = size::parse)]
    block: u64,
    /// The bus: pci-x, or pcie:GENERATION:LANES
    #[arg(long, value_name = "BUS", default_value = "pci-x", value_parser = parse_bus)]
    bus: Bus,
    /// The link's rate
    #[arg(long, value_name = "RATE", default_value = "10gbit", value_parser = parse_link)]
    link: u64,
    /// The longest payload of a frame
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = size::parse)]
    mtu: u64,
    /// The MAC inside the FPGA: no PL4 between them
    #[arg(long)]
    mac_inside: bool,
    /// Time of both MACs together
    #[arg(long, value_name = "TIME", default_value = "1560ns", value_parser = parse_time_ns)]
    mac: u64,
    /// How the card learns that there is something to send
    #[arg(long, value_enum, default_value_t = StartBy::Register)]
    start: StartBy,
    /// How the host learns that something has come
    #[arg(long, value_enum, default_value_t = NoticeBy::Payload)]
    notice: NoticeBy,
    /// Where the card finds physical addresses
    #[arg(long, value_enum, default_value_t = Lookups::None)]
    lookups: Lookups,
    /// Memory that is used evenly; decides which lookups are near
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with = "lookups")]
    working_set: Option<u64>,
    /// The card's own table, 8 bytes for each page of 4 KiB
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = size::parse)]
    table: u64,
    /// Let the register write that starts a block hold the bus too, which the paper leaves out
    #[arg(long)]
    count_requests: bool,
    /// Say where every number comes from
    #[arg(long)]
    components: bool,
    /// Go through a range of one thing
    #[arg(long, value_enum, value_name = "WHAT")]
    sweep: Option<sweep::What>,
}

/// Where the card sits.
#[derive(Clone, Copy, Debug)]
enum Bus {
    PciX,
    PciExpress(u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum StartBy {
    /// The host writes a register
    Register,
    /// The card polls the host's memory
    Poll,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum NoticeBy {
    /// It polls the payload
    Payload,
    /// It polls a flag that the card writes
    Flag,
    /// It polls a register of the card
    Register,
    /// The card interrupts it
    Interrupt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Lookups {
    /// Needs none, as the paper predicts
    None,
    /// In its own table
    Near,
    /// In the host's memory
    Far,
}

fn parse_bus(text: &str) -> std::result::Result<Bus, String> {
    let words: Vec<&str> = text.split(':').collect();
    let number = |word: &str| word.parse::<u32>().map_err(|_| format!("`{word}` is no number"));
    match words.as_slice() {
        ["pci-x"] => Ok(Bus::PciX),
        ["pcie", generation, lanes] => {
            let (generation, lanes) = (number(generation)?, number(lanes)?);
            Nic::paper().on_pci_express(generation, lanes)?;
            Ok(Bus::PciExpress(generation, lanes))
        }
        _ => Err(format!("`{text}` is neither pci-x nor pcie:GENERATION:LANES")),
    }
}

fn parse_link(text: &str) -> std::result::Result<u64, String> {
    parse_rate(text)?.ok_or_else(|| "a link has a rate".to_string())
}

/// One computation.
struct Computed {
    nic: Nic,
    way: Way,
    message_bytes: u64,
    block_bytes: u64,
    message: Message,
    rdma: Rdma,
}

impl Args {
    fn nic(&self) -> Result<Nic> {
        let nic = Nic {
            link_bits_per_s: self.link,
            mtu_bytes: self.mtu,
            mac_ps: self.mac * 1000,
            table_bytes: self.table,
            ..Nic::paper()
        };
        let nic = match self.bus {
            Bus::PciX => nic,
            Bus::PciExpress(generation, lanes) => {
                nic.on_pci_express(generation, lanes).map_err(refused)?
            }
        };
        Ok(if self.mac_inside { nic.with_mac_inside() } else { nic })
    }

    fn way(&self) -> Way {
        let translation = match (self.working_set, self.lookups) {
            (Some(working_set_bytes), _) => Translation::Of { working_set_bytes },
            (None, Lookups::None) => Translation::None,
            (None, Lookups::Near) => Translation::Near,
            (None, Lookups::Far) => Translation::Far,
        };
        Way {
            start: if self.start == StartBy::Poll { Start::Poll } else { Start::Register },
            notice: match self.notice {
                NoticeBy::Payload => Notice::Payload,
                NoticeBy::Flag => Notice::Flag,
                NoticeBy::Register => Notice::Register,
                NoticeBy::Interrupt => Notice::Interrupt,
            },
            translation,
            counts_requests: self.count_requests,
        }
    }

    fn compute(&self) -> Result<Computed> {
        let (nic, way) = (self.nic()?, self.way());
        Ok(Computed {
            message: message(&nic, &way, self.message).map_err(refused)?,
            rdma: rdma(&nic, &way, self.block).map_err(refused)?,
            message_bytes: self.message,
            block_bytes: self.block,
            nic,
            way,
        })
    }
}

fn refused(why: String) -> Error {
    Error::user(format!("cannot compute it: {why}"))
        .hint("`covey uzura model --components` shows the paper's numbers")
}

/// Runs the command.
pub fn run(args: &Args, context: &Context) -> Result<()> {
    if let Some(what) = args.sweep {
        return sweep::run(what, args, context);
    }
    let computed = args.compute()?;
    context.output.result(&computed.json(), |out| {
        if args.components {
            return tell::components(out, &computed.nic);
        }
        tell::all(out, &computed)
    })
}

impl Computed {
    /// Whether everything is as in the paper.
    fn is_papers(&self) -> bool {
        self.nic == Nic::paper() && self.way == Way::paper()
    }

    fn json(&self) -> Value {
        let us = |ps: u64| ps as f64 / 1e6;
        let origin = |origin: Origin| match origin {
            Origin::Paper(place) => json!({ "paper": place }),
            Origin::Derived(from) => json!({ "derived": from }),
            Origin::Assumed(why) => json!({ "assumed": why }),
            Origin::Changed => json!("changed"),
        };
        let line = |Line { name, time_ps, paper_ps }: &Line| json!({ "name": name, "us": us(*time_ps), "paper_us": paper_ps.map(us) });
        json!({
            "message": {
                "bytes": self.message_bytes,
                "lines": self.message.lines.iter().map(line).collect::<Vec<_>>(),
                "first_cell_us": us(self.message.first_cell_ps),
                "arrival_us": us(self.message.arrival_ps),
            },
            "rdma": {
                "block_bytes": self.block_bytes,
                "stages": self.rdma.stages.iter().map(|stage| json!({
                    "name": stage.name, "us": us(stage.hold_ps), "paper_us": stage.paper_ps.map(us),
                })).collect::<Vec<_>>(),
                "bytes_per_s": self.rdma.bytes_per_s,
                "bottleneck": self.rdma.bottleneck,
                "block_us": us(self.rdma.block_ps),
            },
            "components": self.nic.components().iter().map(|one| json!({
                "name": one.name, "value": one.value, "unit": tell::unit(one.unit), "origin": origin(one.origin),
            })).collect::<Vec<_>>(),
        })
    }
}

/// Both ways to move bytes, for a few lengths.
fn accesses(nic: &Nic) -> Vec<(u64, Access)> {
    [8, 64, 256, 1024, 4096].map(|bytes| (bytes, access(nic, bytes))).to_vec()
}
