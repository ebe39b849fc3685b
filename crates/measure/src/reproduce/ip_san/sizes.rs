//! Table 2: what BTIO writes.

use super::part;
use super::runs::library;
use crate::btio::{self, Class, Extras, Io};
use crate::error::{Cannot, Error, Result};
use crate::hosts::Hosts;
use crate::reproduce::bench::Bench;
use crate::reproduce::told::Part;
use crate::scratch::Scratch;
use crate::stop::Stop;
use covey_tune::Estimate;
use covey_tune::papers::ip_san::{SIZES, written_bytes};
use covey_tune::reproduce::{Beside, Unit};

/// Runs BT here, without a lab, and looks how long its file is. What is too large for that is computed.
pub async fn table(bench: &mut Bench, classes: &[Class]) -> Part {
    let mut part = part("table2", "BTIO's sizes: what a run writes");
    for size in SIZES {
        let class = [Class::W, Class::A, Class::B]
            .into_iter()
            .find(|class| class.letter().starts_with(size.class));
        let is_run = class == Some(Class::W)
            || (class == Some(Class::A) && classes.contains(&Class::A) && !bench.wish.is_quick);
        let computed = written_bytes(size.side, class.map_or(0, Class::steps)) as f64;
        let mut how = "computed";
        let mut bytes = computed;
        if let Some(class) = class.filter(|_| is_run) {
            match bench.work(move |stop| length(class, stop)).await {
                Ok(length) => (how, bytes) = ("length of the file", length as f64),
                Err(error) => part.fail(format!("a run of class {}", size.class), &error),
            }
        }
        let of = format!("class {}, {side} x {side} x {side}, {how}", size.class, side = size.side);
        let ours = Estimate { value: bytes, low: bytes, high: bytes };
        let what = ("written", Unit::Bytes);
        part.beside.push(Beside::new("table 2", of, what, ours, size.written_mb * 1e6));
    }
    part.differs("the paper's are rounded to 10,000 bytes; epio adds eight bytes to each record of a process");
    part
}

/// How long the one file of a run is.
fn length(class: Class, stop: &Stop) -> Result<u64> {
    let scratch = Scratch::new()?;
    let plan = btio::Plan {
        class,
        ranks: 4,
        ios: vec![Io::Fortran],
        mpi: None,
        hosts: Hosts::Here,
        place: btio::Place::Directory(scratch.path().to_owned()),
        extras: Extras { keeps: true, ..Extras::default() },
    };
    let run = btio::run(&plan, &library()?, Io::Fortran, stop, &|_| {})?;
    if !run.is_verified {
        return Err(Error::work("its norms are not NASA's"));
    }
    let file = scratch.file("btio.fortran.out");
    Ok(std::fs::metadata(&file).cannot(|| format!("look at {}", file.display()))?.len())
}
