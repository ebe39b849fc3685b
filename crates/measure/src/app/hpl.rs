//! HPL, from the HPC Challenge. Debian's `hpcc` is linked with Open MPI and any BLAS; it cannot run HPL alone, so
//! the rest of it runs too.

use super::blas::Blas;
use crate::child::{self, Watched};
use crate::error::{Cannot, Error, Result};
use crate::hosts::Hosts;
use crate::mpi::{self, Library, Wait};
use crate::programs;
use crate::scratch::Scratch;
use crate::stop::Stop;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What HPL says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hpl {
    /// The BLAS it ran with.
    pub blas: String,
    /// Order of the system.
    pub order: u64,
    /// Order of the blocks.
    pub block: u64,
    /// Rows of the grid of processes.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
    /// In 10^9 operations a second.
    pub gflops: f64,
    /// How long it took.
    pub seconds: f64,
    /// Whether its own test of the result was passed.
    pub is_passed: bool,
    /// Share of the peak of the cores used, where that is known.
    pub share_of_peak: Option<f64>,
}

/// What the HPC Challenge says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Challenge {
    /// HPL, once for each time that it was asked for.
    pub hpl: Vec<Hpl>,
    /// Its other results by their names in its summary, such as `PTRANS_GBs`. None unless it came to its end.
    pub summary: Vec<(String, f64)>,
    /// Why it broke off.
    pub failure: Option<String>,
}

/// How to deal the system out.
#[derive(Clone, Copy, Debug)]
pub struct Dealt {
    /// Order of the system.
    pub order: u64,
    /// Order of the blocks.
    pub block: u64,
    /// Rows of the grid.
    pub rows: u64,
    /// Columns.
    pub columns: u64,
}

const PROGRAM: &str = "hpcc";
const OUTPUT: &str = "hpccoutf.txt";
const LIMIT: Duration = Duration::from_secs(900);

/// Runs it on this machine.
pub fn measure(dealt: Dealt, blas: &Blas, stop: &Stop) -> Result<Hpl> {
    let found = challenge(&Hosts::Here, dealt, 1, blas, stop)?;
    found.hpl.into_iter().next().ok_or_else(|| {
        let why =
            found.failure.unwrap_or_else(|| "there is no result of HPL in what it says".into());
        Error::work(format!("cannot run HPL: {why}"))
    })
}

/// Runs it on hosts, HPL several times.
pub fn challenge(
    hosts: &Hosts,
    dealt: Dealt,
    times: usize,
    blas: &Blas,
    stop: &Stop,
) -> Result<Challenge> {
    let absent = |what: &str, package: &str| {
        Error::work(format!("cannot run HPL: {what}")).hint(format!("apt-get install {package}"))
    };
    let program = programs::find(PROGRAM).ok_or_else(|| absent("there is no hpcc", "hpcc"))?;
    let open = mpi::installed().into_iter().find(|one| one.library == Library::Openmpi);
    let open =
        open.ok_or_else(|| absent("hpcc needs Open MPI, which is not installed", "openmpi-bin"))?;
    let scratch = Scratch::new()?;
    let file = scratch.file("hpccinf.txt");
    std::fs::write(&file, input(dealt, times)).cannot(|| format!("write {}", file.display()))?;
    let ranks = (dealt.rows * dealt.columns) as usize;
    let mut command = open.launch(hosts, ranks, Wait::Poll, &scratch)?;
    command.current_dir(scratch.path()).arg("env").args(blas.environment()).arg(program);
    let (output, talk) = (scratch.file(OUTPUT), scratch.file("talk"));
    let watched =
        Watched { records: &output, output: &talk, talk: &talk, silence: LIMIT, limit: LIMIT };
    let mut said = String::new();
    let failure = child::run(command, &watched, stop, |new| {
        said.push_str(new);
        Ok(new.len())
    })?;
    Ok(Challenge { hpl: results(&said, dealt, &blas.name), summary: summary(&said), failure })
}

/// The input, in the form of hpcc's example.
fn input(dealt: Dealt, times: usize) -> String {
    let Dealt { order, block, rows, columns } = dealt;
    let orders = vec![order.to_string(); times].join(" ");
    format!(
        "HPLinpack benchmark input file\nInput made by covey tune app\n\
         HPL.out      output file name (if any)\n8            device out\n\
         {times}            # of problems sizes (N)\n{orders}         Ns\n\
         1            # of NBs\n{block}           NBs\n\
         0            PMAP process mapping (0=Row-,1=Column-major)\n\
         1            # of process grids (P x Q)\n{rows}            Ps\n{columns}            Qs\n\
         16.0         threshold\n\
         1            # of panel fact\n2            PFACTs\n\
         1            # of recursive stopping criterium\n4            NBMINs\n\
         1            # of panels in recursion\n2            NDIVs\n\
         1            # of recursive panel fact.\n1            RFACTs\n\
         1            # of broadcast\n1            BCASTs\n\
         1            # of lookahead depth\n1            DEPTHs\n\
         2            SWAP\n64           swapping threshold\n\
         0            L1 in transposed form\n0            U  in transposed form\n\
         1            Equilibration\n8            memory alignment in double\n\
         ##### This line (no. 32) is ignored (it serves as a separator). ######\n\
         0            Number of additional problem sizes for PTRANS\n1200         values of N\n\
         0            number of additional blocking sizes for PTRANS\n40           values of NB\n"
    )
}

/// Each `T/V N NB P Q Time Gflops` of the system, and the verdict that follows it.
fn results(said: &str, dealt: Dealt, blas: &str) -> Vec<Hpl> {
    let Dealt { order, block, rows, columns } = dealt;
    let wanted = [order, block, rows, columns].map(|number| number.to_string());
    let mut all: Vec<Hpl> = Vec::new();
    let mut is_judged = true;
    for line in said.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = words.len() == 7 && words[0].starts_with('W') && words[1..5] == wanted;
        let numbers = || Some((words[5].parse().ok()?, words[6].parse().ok()?));
        match (is_it.then(numbers).flatten(), all.last_mut()) {
            (Some((seconds, gflops)), _) => {
                let blas = blas.to_string();
                let (is_passed, share_of_peak) = (false, None);
                all.push(Hpl {
                    blas,
                    order,
                    block,
                    rows,
                    columns,
                    gflops,
                    seconds,
                    is_passed,
                    share_of_peak,
                });
                is_judged = false;
            }
            (None, Some(last)) if !is_judged => {
                is_judged = line.contains("PASSED") || line.contains("FAILED");
                last.is_passed = line.contains("PASSED");
            }
            _ => {}
        }
    }
    all
}

/// The lines `NAME=NUMBER` of its summary.
fn summary(said: &str) -> Vec<(String, f64)> {
    let lines = said.lines().skip_while(|line| !line.contains("Begin of Summary section"));
    let one = |line: &str| {
        let (name, number) = line.split_once('=')?;
        Some((name.trim().to_string(), number.trim().parse().ok()?))
    };
    lines.filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEALT: Dealt = Dealt { order: 1000, block: 64, rows: 1, columns: 2 };

    #[test]
    fn its_line_and_its_verdict_are_found() {
        let said = |verdict: &str| {
            format!(
                "PTRANS ... PASSED\nT/V                N    NB     P     Q               Time                 Gflops\n\
                 WR11R2C4        1000    64     1     2               0.12             5.571e+00\n\
                 ||Ax-b||_oo/(eps*(||A||_oo*||x||_oo+||b||_oo)*N)=        0.0056 ...... {verdict}\n"
            )
        };
        let found = results(&said("PASSED"), DEALT, "ATLAS").remove(0);
        assert_eq!((found.gflops, found.seconds, found.is_passed), (5.571, 0.12, true));
        assert!(!results(&said("FAILED"), DEALT, "ATLAS")[0].is_passed);
        assert_eq!(results("PASSED\n", DEALT, "ATLAS"), []);
        let twice = format!("{}{}", said("FAILED"), said("PASSED"));
        let passed: Vec<bool> =
            results(&twice, DEALT, "ATLAS").iter().map(|one| one.is_passed).collect();
        assert_eq!(passed, [false, true]);
    }

    #[test]
    fn its_summary_is_read() {
        let said = "x=3\nBegin of Summary section.\nVersionMajor=1\nPTRANS_GBs=0.19\nLanguage=C\n\
                    Success=1\nEnd of Summary section.\n";
        let found = summary(said);
        assert_eq!(found[1], ("PTRANS_GBs".to_string(), 0.19));
        assert_eq!(found.len(), 3);
        assert_eq!(summary("PTRANS_GBs=0.19\n"), []);
    }

    #[test]
    fn its_input_has_the_separator_where_hpcc_wants_it() {
        let input = input(DEALT, 3);
        assert!(input.lines().nth(31).unwrap().contains("no. 32"), "{input}");
        assert!(input.lines().nth(4).unwrap().starts_with("3 "));
        assert!(input.lines().nth(5).unwrap().starts_with("1000 1000 1000 "));
    }
}
