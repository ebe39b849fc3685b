//! `covey reproduce`: what papers measured, measured again in labs.

use super::Context;
use crate::error::{Error, Result};
use covey_measure::btio::Class;
use covey_measure::provenance::Provenance;
use covey_measure::reproduce::bench::Wish;
use covey_measure::reproduce::{Bench, Reproduction, erato, ip_san, kisti, lanl, uzura};
use covey_measure::stop::interruptible;
use covey_tune::papers::Paper;
use std::time::Duration;

/// Repeat the measurements of a paper, and print both results side by side
///
/// `erato` is Okuno et al., Tuning and Evaluation of the Beowulf-Class Cluster ERATO-1; `kisti` is
/// Cha, Cho and Kim, Installation and Performance of PVFS2 and Infiniband, 2007. Each part is
/// measured in a separate lab, which is taken down at the end, and when this is interrupted.
/// Numbers are printed beside the paper's, with ratios. Where a paper's curves are lost, its claims
/// about them are judged: a claim holds, does not hold, or is not shown here.
///
/// PARTS OF ERATO
///
///     fig5-7    bandwidth, latency, saturation point of TCP, MPI, PVM; cable and two switches
///     fig1-4    what the text says of these curves, and of four pairs at once
///     fig8-9    a bad card, planted: where the curve collapses, and whether the diagnosis names it
///     fig10-13  matrices multiplied and systems solved: data types, sizes, blocks, BLAS, overhead
///     table1    rates of pdgemm and of the linear solver, and their share of the peak
///
/// PARTS OF IP-SAN
///
///     table2    what BTIO writes
///     fig5      a file in sequence, by the size of the blocks, on a local disk and over iSCSI
///     fig8-9    BTIO epio: local, 1:1 and N:1 iSCSI, parallel file system; one network and two
///     fig10-11  BTIO simple, and full
///     fig12-13  BTIO fortran
///     fig14-15  BTIO epio on one node and on four, read back from the disks
///     future    many nodes at one target, with and without the pacer
///     traffic   bytes by class on each cable, in each phase of a run
///
/// PARTS OF KISTI
///
///     table1    Bonnie on 4 I/O servers; metadata server apart or shared; two networks
///     fig1      what Gigabit gains over Fast Ethernet
///     fig2      what a metadata server apart changes
///     fig3      MPI collectives on three networks, through each MPI
///     fig4      HPL on two networks; a solver of ScaLAPACK on three, through each MPI
///     fig5      BT, and kernels that communicate as four of NAS do, on three networks, each MPI
///     fig6      basic commands on three networks
///
/// PARTS OF LANL
///
///     table2    a program spread to 245 nodes, by its size
///     fig2      by the number of nodes, to 1,024
///     fig3      by its size, on 32 nodes
///     table3    bandwidth of mapped files: 1-8 workers, 1-7 coroutines, and two buffers by hand
///     table4    matrices multiplied through files, and by hand
///     fig4      how much longer that takes through files
///
/// PARTS OF UZURA
///
///     table2    a packet from card to card, part by part
///     table3    the bus while the host reaches a register
///     fig5      bytes moved by the card, or through registers
///     fig6      how long bytes hold the bus
///     table4    interrupts, registers and flags in memory
///     table5    a message of 64 bytes; Covey's engine and MPIs on this machine beside it
///     table6    blocks of 4 KiB; the same
///
/// `lanl` is Ionkov, Minnich and others, 9P in high-performance computing: its launcher, simulated
/// in virtual time, and its workers, measured on this machine; both without a lab. `bench/launch`
/// measures real daemons. `uzura` is Nakashima and others on a network card for cluster computers:
/// the card by a model (see `covey uzura model`), and `covey uzura bench` beside it.
///
/// `ip-san` is Kamisaka and others, A study of traffic characteristics and I/O performance on an
/// IP-SAN consolidated PC cluster. Its lab has four nodes that compute and four that store. It
/// needs root, mkfs.ext4 and an MPI with its compiler. BTIO is run in classes W and A, with --quick
/// in W; --class chooses others, such as the paper's B, which takes minutes for each run.
///
/// Figures 3 to 5 of KISTI divide each difference into the parts of the wire and of the MPI. They run
/// several processes on each network, so they need MPI's compilers (and hpcc for HPL); missing ones
/// are left out.
///
/// A part that cannot be measured here is left out, with the reason. Exit code 0 when anything was
/// measured, 1 when nothing could be, or when this was interrupted.
///
/// EXAMPLES
///
///     covey reproduce erato --only fig5-7 --quick
///     covey reproduce kisti --only table1 --only fig1
///     covey reproduce kisti --only fig3 --quick
///     covey reproduce ip-san --only fig8-9 --quick
///     covey reproduce ip-san --only fig8-9 --class B
///     covey reproduce lanl --only table2
///     covey reproduce lanl --only table3 --only fig4
///     covey reproduce uzura --only table5 --quick
///     covey --json reproduce erato > erato.json
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Which paper
    #[arg(value_enum)]
    paper: Which,
    /// Only this part; may be given several times
    #[arg(long, value_name = "PART")]
    only: Vec<String>,
    /// Of ip-san: run BTIO in this class; may be given several times, or separated by commas
    #[arg(long, value_enum, value_name = "CLASS", ignore_case = true, value_delimiter = ',')]
    class: Vec<Class>,
    /// A short measurement: a first look, with wide intervals
    #[arg(long)]
    quick: bool,
    /// Start no new part after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400))]
    budget: Option<u32>,
    /// Also judge claims by measurements on a busy machine
    #[arg(long)]
    anyway: bool,
}

#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Erato,
    IpSan,
    Kisti,
    Lanl,
    Uzura,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let known: &[&str] = match args.paper {
        Which::Erato => &erato::PARTS,
        Which::IpSan => &ip_san::PARTS,
        Which::Kisti => &kisti::PARTS,
        Which::Lanl => &lanl::PARTS,
        Which::Uzura => &uzura::PARTS,
    };
    let parts = chosen(known, &args.only)?;
    if !args.class.is_empty() && args.paper != Which::IpSan {
        return Err(
            Error::user("cannot choose a class: only ip-san runs BTIO").hint("leave out --class")
        );
    }
    let wish = Wish {
        is_quick: args.quick,
        is_anyway: args.anyway,
        budget: args.budget.map(|seconds| Duration::from_secs(seconds.into())),
    };
    let output = context.output;
    let mut bench = Bench::new(wish, Box::new(move |text| output.say(text)))?;
    let (paper, parts) = match args.paper {
        Which::Erato => (Paper::Erato1, erato::run(&mut bench, &parts).await),
        Which::IpSan => (Paper::IpSan, ip_san::run(&mut bench, &parts, &args.class).await),
        Which::Kisti => (Paper::Kisti, kisti::run(&mut bench, &parts).await),
        Which::Uzura => (Paper::Uzura, uzura::run(&mut bench, &parts).await),
        Which::Lanl => {
            let is_quick = args.quick;
            let simulated = interruptible(move |stop| {
                let parts = lanl::run(&parts, is_quick, stop, &move |text| output.say(text))?;
                Ok((parts, stop.is_asked()))
            });
            let (parts, is_interrupted) = simulated.await?;
            bench.interrupted_if(is_interrupted);
            (Paper::Lanl, parts)
        }
    };
    bench.close().await?;
    let is_interrupted = bench.is_interrupted();
    let found = Reproduction {
        kind: "reproduce",
        paper: paper.name(),
        is_quick: args.quick,
        parts,
        environment: bench.environment(),
        provenance: Provenance::here(),
    };
    context.output.result(&found, |out| found.tell(out))?;
    if is_interrupted {
        Err(Error::work("cannot reproduce all of it: interrupted"))
    } else {
        measured_anything(&found)
    }
}

/// The parts that were asked for, in the order of the paper.
fn chosen(known: &'static [&'static str], only: &[String]) -> Result<Vec<&'static str>> {
    if let Some(wrong) = only.iter().find(|part| !known.contains(&part.as_str())) {
        return Err(Error::user(format!("cannot reproduce part `{wrong}`: there is none"))
            .hint(format!("the parts are {}", known.join(", "))));
    }
    let is_wanted = |part: &&str| only.is_empty() || only.iter().any(|one| one == *part);
    Ok(known.iter().copied().filter(is_wanted).collect())
}

fn measured_anything(found: &Reproduction) -> Result<()> {
    match found.first_reason_of_nothing() {
        None => Ok(()),
        Some(why) => Err(Error::work(format!("cannot reproduce anything of it: {why}"))
            .hint("`covey lab up 2` says what a lab needs; --only chooses other parts")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_tune::papers::CLAIMS;

    #[test]
    fn parts_are_chosen_in_the_order_of_the_paper() {
        let only = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            chosen(&erato::PARTS, &words)
        };
        assert_eq!(only(&[]).unwrap(), erato::PARTS);
        assert_eq!(only(&["table1", "fig5-7"]).unwrap(), ["fig5-7", "table1"]);
        let error = only(&["fig99"]).unwrap_err();
        assert!(error.hints[0].contains("fig8-9"), "{error:?}");
    }

    #[test]
    fn every_claim_belongs_to_a_part() {
        for claim in CLAIMS {
            let parts: &[&str] = match claim.source.paper {
                Paper::Erato1 => &erato::PARTS,
                Paper::IpSan => &ip_san::PARTS,
                Paper::Kisti => &kisti::PARTS,
                Paper::Lanl => &lanl::PARTS,
                Paper::Uzura => &uzura::PARTS,
            };
            assert!(parts.contains(&claim.part), "{claim:?}");
        }
    }
}
