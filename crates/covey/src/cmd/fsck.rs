//! `covey fsck`: is the file system sound, and if not, make it so.

pub mod lost;

use super::Context;
use crate::error::{Cannot, Error, Result};
use crate::output::counted;
use covey_serve::meta::offline::Offline;
use covey_stripe::check::{self, Options, Outcome, Report, Told};
use covey_stripe::ops::check::Severity;
use serde_json::{Value, json};
use std::io::Write;
use std::path::PathBuf;

/// Check the file system, and repair it
///
/// Checks all metadata and all objects while the cluster works: every name leads to a file, counts
/// of links and entries are right, nothing is left over, and every file has its bytes. Each finding
/// was seen twice. With --store, it checks the metadata of a stopped server, without the objects.
///
/// EXAMPLES
///
///     covey fsck
///     covey fsck --repair            then once more without: it must find nothing
///     covey --json fsck | jq .findings
///     covey fsck --store /srv/covey/meta
///     covey fsck --accept-loss io2   its disk was replaced: list the losses, and serve again
///     covey fsck --adopt io2         the metadata came back from an old copy: io2's store is its own
///
/// EXIT CODES
///
/// 0 nothing was found, or all of it was repaired; 1 there are findings, or a server could not be
/// asked; 2 the command was wrong.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Repair what is found
    #[arg(long)]
    repair: bool,
    /// List at most N findings per class, and count the rest; losses are always listed
    #[arg(long, value_name = "N", default_value_t = 20)]
    tell: u64,
    /// Accept the loss of the data of I/O server NODE, after its disk was replaced, and let it
    /// serve again. First the files that had bytes there are listed by path
    #[arg(long, value_name = "NODE", conflicts_with_all = ["repair", "store"])]
    accept_loss: Option<String>,
    /// Take the store of the I/O server NODE, which names another metadata server, for this one's: after the metadata store
    /// was restored from a copy that an older version has made. Objects of files that the copy does not know are removed
    #[arg(long, value_name = "NODE", conflicts_with_all = ["repair", "store", "accept_loss"])]
    adopt: Option<String>,
    /// Check the metadata store in DIR, whose server is stopped
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
}

/// Passes of a repair: what one pass repairs may show more.
const PASSES_MAX: usize = 8;

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    if let Some(node) = &args.accept_loss {
        return lost::accept(node, context).await;
    }
    if let Some(node) = &args.adopt {
        return lost::adopt(node, context).await;
    }
    let (report, told, servers) = match &args.store {
        Some(dir) => {
            let store = Offline::open(dir).cannot(|| format!("check {}", dir.display()));
            let store = store.map_err(|error| {
                error.hint(
                    "--store is for a server that is stopped; without it the running one is asked",
                )
            })?;
            let (report, told) = passes(&store, &args).await?;
            if report.found() > report.left() {
                store.save().cannot(|| format!("repair {}", dir.display()))?;
            }
            (report, told, Vec::new())
        }
        None => {
            let session = context.session().await?;
            let result = passes(&session.fs, &args).await;
            let servers = session.fs.servers();
            let (report, told) = session.close(result).await?;
            keep(&report, context).await?;
            (report, told, servers)
        }
    };
    context.output.result(&json_of(&report, &told, &servers), |out| {
        write(out, &report, &told, &servers, args.repair)
    })?;
    if !report.unasked.is_empty() {
        return Err(Error::work("cannot check everything: not every I/O server answers")
            .hint("`covey status` shows which, and why"));
    }
    match report.left() {
        0 => Ok(()),
        _ => Err(Error::told()),
    }
}

/// The metadata server keeps what was found, for `covey dash`; who may not tell it so has checked all the same.
async fn keep(report: &Report, context: &Context) -> Result<()> {
    let config = context.config()?;
    let (found, left, unasked) = (report.found(), report.left(), report.unasked.len());
    let command = format!("checked {found} {left} {unasked}");
    let kept = covey_cluster::reach::write_ctl(&config, &config.meta().name, &command);
    let _ = tokio::time::timeout(super::ping::LIMIT, kept).await;
    Ok(())
}

/// One pass; with `--repair`, as many as find something that can be repaired.
async fn passes<A: check::Access>(access: &A, args: &Args) -> Result<(Report, Vec<Told>)> {
    let mut told: Vec<Told> = Vec::new();
    let mut tell = |one: &Told| {
        let so_far = told.iter().filter(|other| other.class == one.class).count() as u64;
        // What is lost is named whatever its number.
        if so_far < args.tell || one.class.severity() == Severity::Loss {
            told.push(one.clone());
        }
    };
    let options = || Options { repair: args.repair, ..Options::default() };
    let mut report =
        check::run(access, options(), &mut tell).await.cannot(|| "check the file system")?;
    let mut repaired = report.found() - report.left();
    for _ in 1..PASSES_MAX {
        if !args.repair || repaired == 0 {
            break;
        }
        let next =
            check::run(access, options(), &mut tell).await.cannot(|| "check the file system")?;
        repaired = next.found() - next.left();
        report.add_pass(next);
    }
    Ok((report, told))
}

fn json_of(report: &Report, told: &[Told], servers: &[String]) -> Value {
    let class = |(class, (found, repaired)): (&covey_stripe::ops::check::Class, &(u64, u64))| {
        json!({ "class": class.word(), "severity": class.severity().word(),
                "found": found, "repaired": repaired })
    };
    let one = |one: &Told| {
        let finding = &one.finding;
        json!({
            "class": one.class.word(), "severity": one.class.severity().word(), "id": finding.id,
            "what": check::describe(one, servers), "repaired": one.outcome == Outcome::Repaired,
            "paths": one.paths.iter().map(|path| text(path)).collect::<Vec<_>>(),
            "reason": match &one.outcome { Outcome::Left(why) => Some(why), _ => None },
        })
    };
    let unasked = |(server, why): &(String, String)| json!({ "server": server, "reason": why });
    json!({
        "clean": report.found() == 0 && report.unasked.is_empty(), "left": report.left(),
        "rows": report.rows, "files": report.files, "objects": report.objects,
        "busy": report.busy,
        "classes": report.findings.iter().map(class).collect::<Vec<_>>(),
        "findings": told.iter().map(one).collect::<Vec<_>>(),
        "unasked": report.unasked.iter().map(unasked).collect::<Vec<_>>(),
    })
}

fn text(path: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(path)
}

fn write(
    out: &mut Vec<u8>,
    report: &Report,
    told: &[Told],
    servers: &[String],
    repair: bool,
) -> std::io::Result<()> {
    for one in told {
        let end = match &one.outcome {
            Outcome::Found => String::new(),
            Outcome::Repaired => ": repaired".into(),
            Outcome::Left(why) => format!(": not repaired: {why}"),
        };
        let what = check::describe(one, servers);
        writeln!(out, "{}: {what}{end}", one.class.word())?;
    }
    if !report.findings.is_empty() {
        writeln!(out)?;
        let row = |(class, (found, repaired)): (&covey_stripe::ops::check::Class, &(u64, u64))| {
            let does = if class.repair().is_empty() { "nothing can" } else { class.repair() };
            let (found, repaired) = (found.to_string(), repaired.to_string());
            let (class, severity) = (class.word().to_owned(), class.severity().word().to_owned());
            vec![class, severity, found, repaired, does.to_owned()]
        };
        let rows: Vec<_> = report.findings.iter().map(row).collect();
        let heading = ["CLASS", "SEVERITY", ">FOUND", ">REPAIRED", "WHAT REPAIRING DOES"];
        crate::output::table(out, &heading, &rows);
        writeln!(out)?;
    }
    for (server, why) in &report.unasked {
        writeln!(out, "{server} was not asked: {why}")?;
    }
    if report.busy > 0 {
        let being = if report.busy == 1 {
            "is being changed, and was"
        } else {
            "are being changed, and were"
        };
        writeln!(out, "{} {being} not judged", counted(report.busy, "file"))?;
    }
    let (files, objects) = (counted(report.files, "file"), counted(report.objects, "object"));
    let findings = counted(report.found(), "finding");
    let verdict = match (report.found(), report.left()) {
        (0, _) if !report.unasked.is_empty() => "nothing found where it could be looked".to_owned(),
        (0, _) => "clean".to_owned(),
        (_, 0) => format!("{findings}, all repaired"),
        (_, left) if repair => format!("{findings}, {left} left"),
        _ => format!("{findings}; `covey fsck --repair` repairs them"),
    };
    writeln!(out, "{files}, {objects}: {verdict}")
}
