//! HPL, from the HPC Challenge. Debian's `hpcc` is linked with Open MPI and any BLAS; it cannot run HPL alone, so
//! the rest of it runs too.

use super::blas::Blas;
use crate::error::{Cannot, Error, Result};
use crate::tune::child::{self, Watched};
use crate::tune::hosts::Hosts;
use crate::tune::mpi::{self, Library, Wait};
use crate::tune::programs;
use crate::tune::scratch::Scratch;
use crate::tune::stop::Stop;
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
    let absent = |what: &str, package: &str| {
        Error::work(format!("cannot run HPL: {what}")).hint(format!("apt-get install {package}"))
    };
    let program = programs::find(PROGRAM).ok_or_else(|| absent("there is no hpcc", "hpcc"))?;
    let open = mpi::installed().into_iter().find(|one| one.library == Library::Openmpi);
    let open =
        open.ok_or_else(|| absent("hpcc needs Open MPI, which is not installed", "openmpi-bin"))?;
    let scratch = Scratch::new()?;
    let file = scratch.file("hpccinf.txt");
    std::fs::write(&file, input(dealt)).cannot(|| format!("write {}", file.display()))?;
    let ranks = (dealt.rows * dealt.columns) as usize;
    let mut command = open.launch(&Hosts::Here, ranks, Wait::Poll, &scratch)?;
    command.current_dir(scratch.path()).arg("env").args(blas.environment()).arg(program);
    let (output, talk) = (scratch.file(OUTPUT), scratch.file("talk"));
    let watched = Watched { records: &output, talk: &talk, silence: LIMIT, limit: LIMIT };
    let mut said = String::new();
    let failure = child::run(command, &watched, stop, |new| {
        said.push_str(new);
        Ok(new.len())
    })?;
    let found = parse(&said, dealt, &blas.name);
    found.ok_or_else(|| {
        let why = failure.unwrap_or_else(|| "there is no result of HPL in what it says".into());
        Error::work(format!("cannot run HPL: {why}"))
    })
}

/// The input, in the form of hpcc's example.
fn input(dealt: Dealt) -> String {
    let Dealt { order, block, rows, columns } = dealt;
    format!(
        "HPLinpack benchmark input file\nInput made by covey tune app\n\
         HPL.out      output file name (if any)\n8            device out\n\
         1            # of problems sizes (N)\n{order}         Ns\n\
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

/// `T/V N NB P Q Time Gflops` and what follows it, in what hpcc writes.
fn parse(said: &str, dealt: Dealt, blas: &str) -> Option<Hpl> {
    let Dealt { order, block, rows, columns } = dealt;
    let wanted = [order, block, rows, columns].map(|number| number.to_string());
    let mut lines = said.lines();
    let (seconds, gflops) = lines.by_ref().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_it = words.len() == 7 && words[0].starts_with('W') && words[1..5] == wanted;
        is_it.then(|| Some((words[5].parse().ok()?, words[6].parse().ok()?))).flatten()
    })?;
    let verdict = lines.find(|line| line.contains("PASSED") || line.contains("FAILED"));
    Some(Hpl {
        blas: blas.to_string(),
        order,
        block,
        rows,
        columns,
        gflops,
        seconds,
        is_passed: verdict.is_some_and(|line| line.contains("PASSED")),
        share_of_peak: None,
    })
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
        let found = parse(&said("PASSED"), DEALT, "ATLAS").unwrap();
        assert_eq!((found.gflops, found.seconds, found.is_passed), (5.571, 0.12, true));
        assert!(!parse(&said("FAILED"), DEALT, "ATLAS").unwrap().is_passed);
        assert_eq!(parse("PASSED\n", DEALT, "ATLAS"), None);
    }

    #[test]
    fn its_input_has_the_separator_where_hpcc_wants_it() {
        let input = input(DEALT);
        assert!(input.lines().nth(31).unwrap().contains("no. 32"), "{input}");
        assert!(input.lines().nth(5).unwrap().starts_with("1000 "));
    }
}
