//! `covey volume`: block volumes for iSCSI initiators.

mod attach;
mod change;
mod show;
mod which;

use super::Context;
use crate::config::{Config, size};
use crate::error::{Error, Result};
use covey_cluster::reach::write_control;
use covey_ninep::control::{quote, words};
use std::path::PathBuf;
use which::{all, find};

/// Make disks of the cluster's space, and serve them to machines by iSCSI
///
/// A volume is a disk that initiators log in to: Linux (open-iscsi), QEMU, VMware, Windows. It is kept in a file
/// of the cluster's own file system, striped over all I/O servers, or in a file or a block device of one node.
/// The node that it was made on serves it.
///
/// Beyond this machine a volume is served only to who proves a secret (CHAP), unless its owner names the
/// initiators and says that their names are trusted.
///
/// EXAMPLES
///
///     covey volume create disk --size 10G
///     covey volume export disk --listen 127.0.0.1:3260
///     iscsi-ls iscsi://127.0.0.1
///     covey volume acl disk --chap alice --secret-file secret
///     covey volume export disk --listen 0.0.0.0:3260
///     covey volume resize disk 20G
///     covey volume unexport disk
///     covey volume rm disk
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Create(change::Create),
    Ls(show::Ls),
    Show(show::Show),
    Resize(change::Resize),
    Rm(change::Rm),
    Clone(change::CloneOf),
    Export(change::Export),
    Unexport(change::Unexport),
    Attach(attach::Attach),
    Detach(attach::Detach),
    Acl(change::Acl),
    ClearReservations(change::ClearReservations),
    Stats(show::Stats),
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    match args.command {
        Command::Create(args) => change::create(args, &config, context).await,
        Command::Ls(_) => show::ls(&config, context).await,
        Command::Show(args) => show::show(args, &config, context).await,
        Command::Resize(args) => change::resize(args, &config).await,
        Command::Rm(args) => change::rm(args, &config, context).await,
        Command::Clone(args) => change::clone_of(args, &config).await,
        Command::Export(args) => change::export(args, &config, context).await,
        Command::Unexport(args) => change::unexport(args, &config).await,
        Command::Attach(args) => attach::attach(args, config, context).await,
        Command::Detach(args) => attach::detach(args, &config, context).await,
        Command::Acl(args) => change::acl(args, &config).await,
        Command::ClearReservations(args) => change::clear_reservations(args, &config).await,
        Command::Stats(args) => show::stats(args, &config, context).await,
    }
}

/// A volume as its node tells of it.
#[derive(Clone, Debug, Default, serde::Serialize)]
struct Volume {
    name: String,
    node: String,
    backing: String,
    path: String,
    bytes: Option<u64>,
    block_bytes: u32,
    read_only: bool,
    removable: bool,
    write_through: bool,
    serial: String,
    exports: Vec<String>,
    initiators: Vec<String>,
    chap: Option<String>,
    mutual: Option<String>,
    trusts_names: bool,
    /// Why it is not open, if so.
    closed: Option<String>,
    /// Another node serves it, and this one would if that died.
    stands_by: bool,
}

/// The names of all volumes that can be read.
pub async fn names(config: &Config, context: &Context) -> Vec<String> {
    all(config, context).await.0.into_iter().map(|volume| volume.name).collect()
}

/// Has a node do a command.
async fn command(config: &Config, node: &str, words: &[&str]) -> Result<()> {
    let line: Vec<String> = words.iter().map(|word| quote(word)).collect();
    let done = write_control(config, node, "vol/ctl", &line.join(" ")).await;
    done.map_err(|error| {
        // A hint that the node gives is one of ours.
        let text = error.message;
        let (why, hint) = match text.split_once("; hint: ") {
            Some((why, hint)) => (why.to_owned(), Some(hint.to_owned())),
            None => (text, None),
        };
        let what = match words {
            ["acl", name, ..] => format!("change who may use volume {name}"),
            words => words.iter().take(2).copied().collect::<Vec<_>>().join(" volume "),
        };
        let error = Error::work(format!("cannot {what}: {why}"));
        hint.into_iter().fold(error, Error::hint)
    })
}

/// The volumes in a node's text.
fn parse(text: &str, node: &str) -> Vec<Volume> {
    let mut volumes: Vec<Volume> = Vec::new();
    for line in text.lines() {
        // For people to read: no words.
        if let Some(state) = line.strip_prefix("# ") {
            let (state, rest) = state.split_once(' ').unwrap_or_default();
            let (name, why) = rest.split_once(' ').unwrap_or((rest, ""));
            let is_told = ["closed", "stands-by"].contains(&state);
            for one in volumes.iter_mut().filter(|one| is_told && one.name == name) {
                one.stands_by = state == "stands-by";
                one.closed = Some(why.to_owned());
            }
            continue;
        }
        let Ok(line) = words(line) else { continue };
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        let mut of = |name: &str, change: &dyn Fn(&mut Volume)| {
            volumes.iter_mut().filter(|one| one.name == name).for_each(change);
        };
        match &line[..] {
            ["create", name, backing, path, options @ ..] => {
                volumes.push(one([name, backing, path], options, node));
            }
            ["export", name, address] => of(name, &|one| one.exports.push((*address).to_owned())),
            ["acl", name, "allow", who] => of(name, &|one| one.initiators.push((*who).to_owned())),
            ["acl", name, "chap", user, _] => of(name, &|one| one.chap = Some((*user).to_owned())),
            ["acl", name, "mutual", user, _] => {
                of(name, &|one| one.mutual = Some((*user).to_owned()));
            }
            ["acl", name, "trust-names"] => of(name, &|one| one.trusts_names = true),
            _ => {}
        }
    }
    volumes
}

fn one([name, backing, path]: [&str; 3], options: &[&str], node: &str) -> Volume {
    let value = |key: &str| {
        let at = options.iter().position(|word| *word == key)?;
        options.get(at + 1).copied()
    };
    let has = |word: &str| options.contains(&word);
    Volume {
        name: name.to_owned(),
        node: node.to_owned(),
        backing: backing.to_owned(),
        path: path.to_owned(),
        bytes: value("size").and_then(|text| text.parse().ok()),
        block_bytes: value("block").and_then(|text| text.parse().ok()).unwrap_or(512),
        serial: value("serial").unwrap_or_default().to_owned(),
        read_only: has("read-only"),
        removable: has("removable"),
        write_through: has("write-through"),
        ..Volume::default()
    }
}

fn parse_size(text: &str) -> std::result::Result<u64, String> {
    size::parse(text)
}

/// A path as the node is given it.
fn path_text(path: &PathBuf) -> Result<String> {
    let whole = std::path::absolute(path)?;
    let text = whole.to_str().map(str::to_owned);
    text.ok_or_else(|| Error::user(format!("{}: the path is no UTF-8 text", path.display())))
}
