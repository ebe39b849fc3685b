//! `covey salvage`: files from storage directories whose metadata store is lost.

mod files;
mod rows;
mod stores;

use super::Context;
use crate::error::{Cannot, Error, Result};
use crate::output::counted;
use covey_stripe::ops::{Id, ROOT};
use files::Salvage;
use rows::Rows;
use std::io::Write;
use std::path::PathBuf;
use stores::Stores;

/// Recover files from the stores of I/O servers when the metadata is lost
///
/// Reads the storage directories of stopped I/O servers, or copies of them, and writes the files
/// they hold below OUT. Names and layouts come from a dump (`covey fs-dump`), or else from the
/// newest copy of the metadata that the metadata server leaves on I/O servers each hour. Files made
/// since then have neither: they go to OUT/lost+found by number, put together by the layout of the
/// root directory, as far as their bytes lie on I/O servers. The stores are not changed.
///
/// EXAMPLES
///
///     covey salvage /srv/io1 /srv/io2 /srv/io3 --to /restored
///     covey salvage /srv/io* --dump covey.jsonl --to /restored
///
/// EXIT CODES
///
/// 0 all files are whole; 1 some are not, or have no name; 2 the command was wrong.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Storage directories of I/O servers
    #[arg(value_name = "DIR", required = true)]
    stores: Vec<PathBuf>,
    /// Where the files go; a new or empty directory
    #[arg(long, value_name = "OUT")]
    to: PathBuf,
    /// Take names and layouts from this output of `covey fs-dump`
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let cannot = |what: &str| format!("salvage {what}");
    let rows = match &args.dump {
        Some(file) => Rows::of_dump(file).cannot(|| cannot(&file.display().to_string()))?,
        None => Rows::of_copies(&args.stores).cannot(|| cannot("the metadata's copy"))?,
    };
    let head = |chain| rows.server_of(chain);
    let stores = Stores::open(&args.stores, &rows.servers, head).cannot(|| cannot("the stores"))?;
    std::fs::create_dir_all(&args.to).cannot(|| format!("make {}", args.to.display()))?;
    if args.to.read_dir().cannot(|| format!("read {}", args.to.display()))?.next().is_some() {
        return Err(Error::user(format!(
            "cannot salvage to {}: it is not empty",
            args.to.display()
        )));
    }
    let mut salvage =
        Salvage { rows: &rows, stores: &stores, faults: Vec::new(), files: 0, bytes: 0 };
    salvage.directory(ROOT, &args.to, 0).cannot(|| "write the salvaged files")?;
    let unnamed: Vec<Id> = stores.ids().filter(|id| !rows.is_known(*id)).collect();
    let lost = args.to.join("lost+found");
    if !unnamed.is_empty() {
        std::fs::create_dir_all(&lost).cannot(|| format!("make {}", lost.display()))?;
    }
    for id in &unnamed {
        salvage.unnamed(*id, &lost).cannot(|| "write the salvaged files")?;
    }
    let Salvage { faults, files, bytes, .. } = salvage;
    let value = serde_json::json!({
        "files": files, "bytes": bytes, "unnamed": unnamed.len(), "faults": faults,
        "metadata": rows.source, "missing_servers": stores.missing,
    });
    context.output.result(&value, |out| {
        faults.iter().try_for_each(|fault| writeln!(out, "{fault}"))?;
        let (unnamed, faults) = (unnamed.len(), faults.len());
        writeln!(out, "names and layouts: {}", rows.source)?;
        if !stores.missing.is_empty() {
            writeln!(out, "stores that are missing: {}", stores.missing.join(", "))?;
        }
        let files = counted(files, "file");
        writeln!(out, "{files}, {bytes} bytes; {unnamed} without a name; {faults} not whole")
    })?;
    match (unnamed.len(), faults.len()) {
        (0, 0) => Ok(()),
        _ => Err(Error::told()),
    }
}
