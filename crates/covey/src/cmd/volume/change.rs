//! Commands that change volumes.

use super::which::{check_is_free, find_for};
use super::{Volume, all, command, find, parse_size, path_text};
use crate::cmd::Context;
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use std::io::Read;
use std::path::{Path, PathBuf};

/// Make a volume
///
/// Without --file or --device it is a file of the cluster's file system, /volumes/NAME, which takes
/// space only as it is written. A file that is there already becomes a volume when no --size is given.
///
/// EXAMPLES
///
///     covey volume create disk --size 10G
///     covey volume create disk --size 10G --block 4096 --file /srv/disk.img
///     covey volume create disk --device /dev/sdb
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Create {
    /// Its name: small letters, digits, dots and dashes
    name: String,
    /// How large it is, such as 512M or 2T
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// Keep it in this file of the cluster's file system
    #[arg(long, value_name = "PATH")]
    striped: Option<String>,
    /// Keep it in this file of the node
    #[arg(long, value_name = "FILE", conflicts_with = "striped")]
    file: Option<PathBuf>,
    /// Keep it on this block device of the node, whose content is then the volume's
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["striped", "file", "size"])]
    device: Option<PathBuf>,
    /// Bytes of a block, 512 or 4096
    #[arg(long, value_name = "BYTES", default_value_t = 512)]
    block: u32,
    /// Let nobody write
    #[arg(long)]
    read_only: bool,
    /// Let initiators eject it, as a disk that is taken out
    #[arg(long)]
    removable: bool,
    /// Answer writes only when they are on stable storage
    #[arg(long)]
    write_through: bool,
    /// The node that is to serve it; without, the first that has a store
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Go on where a node does not answer. If it has a volume of this name, there are two, with one target name: an initiator
    /// that knows the addresses of both may write to the wrong one
    #[arg(long)]
    force: bool,
}

/// Make a volume longer, seen by initiators at once
#[derive(clap::Args, Debug)]
pub struct Resize {
    /// The volume
    name: String,
    /// Its new size
    #[arg(value_parser = parse_size)]
    size: u64,
    /// It may become shorter, and lose what is at its end
    #[arg(long)]
    shrink: bool,
    /// The node that has it, where nodes have different volumes of this name
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

/// Remove a volume and its bytes; those of a device, or of a file that was there before it, are left
#[derive(clap::Args, Debug)]
pub struct Rm {
    /// The volume
    name: String,
    /// Keep the file that it is in
    #[arg(long)]
    keep: bool,
    /// The node that has it, where nodes have different volumes of this name
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

/// Make a new volume with the bytes of another, which is not exported
#[derive(clap::Args, Debug)]
pub struct CloneOf {
    /// The volume
    name: String,
    /// The new one
    new: String,
    /// Its file; without, beside that of the volume
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// The node that has the volume, where nodes have different volumes of this name
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
    /// Go on where a node does not answer. If it has a volume of the new name, there are two, with one target name: an initiator
    /// that knows the addresses of both may write to the wrong one
    #[arg(long)]
    force: bool,
}

/// Serve a volume by iSCSI
///
/// Beyond this machine only with CHAP (`covey volume acl NAME --chap USER`), or to initiators that are
/// named and trusted by their names.
///
/// With --node another node than the one that serves a striped volume stands by: it sends initiators there, and serves the
/// volume itself, under the same name, when that node is gone for 12 s.
///
/// EXAMPLES
///
///     covey volume export disk
///     covey volume export disk --listen 10.0.0.1:3260
///     covey volume export disk --listen 10.0.0.2:3260 --node io2
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Export {
    /// The volume
    name: String,
    /// Where to listen
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:3260")]
    listen: String,
    /// The node that listens there; without, the one that serves the volume
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

/// Serve a volume no more
#[derive(clap::Args, Debug)]
pub struct Unexport {
    /// The volume
    name: String,
    /// Only there
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<String>,
    /// At this node; without, the one that serves the volume
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

/// Say who may use a volume
///
/// Without --allow all initiators may. Changes hold at once: sessions that would not be let in any more are ended. A
/// secret has 12 to 128 bytes and is read from a file, or from stdin.
///
/// EXAMPLES
///
///     covey volume acl disk --allow iqn.1993-08.org.debian:01:abc
///     covey volume acl disk --chap alice --secret-file secret
///     covey volume acl disk --no-chap --allow iqn.2026-01.a:b --trust-initiator-names
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
#[command(arg_required_else_help = true)]
pub struct Acl {
    /// The volume
    name: String,
    /// Let this initiator in
    #[arg(long, value_name = "IQN")]
    allow: Vec<String>,
    /// Let this initiator in no more
    #[arg(long, value_name = "IQN")]
    deny: Vec<String>,
    /// Ask initiators to prove USER's secret
    #[arg(long, value_name = "USER", conflicts_with = "no_chap")]
    chap: Option<String>,
    /// Prove USER's secret to initiators that ask for it
    #[arg(long, value_name = "USER", conflicts_with_all = ["no_mutual", "chap"])]
    mutual: Option<String>,
    /// The file with the secret; without, stdin
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Ask for no proof
    #[arg(long)]
    no_chap: bool,
    /// Prove nothing to initiators
    #[arg(long)]
    no_mutual: bool,
    /// Trust the names of initiators beyond this machine, which anybody there may claim
    #[arg(long, conflicts_with = "no_trust_initiator_names")]
    trust_initiator_names: bool,
    /// Trust them no more
    #[arg(long)]
    no_trust_initiator_names: bool,
    /// The node that has it, where nodes have different volumes of this name
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

/// Make all reservations of a volume void
///
/// Initiators that share a volume lock each other out by reservations, which last. This takes all of them away, where the
/// initiator that holds the volume does not come back, or a volume is closed because the saved ones cannot be read.
/// Initiators that are logged in are told.
#[derive(clap::Args, Debug)]
pub struct ClearReservations {
    /// The volume
    name: String,
    /// The node that has it, where nodes have different volumes of this name
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

/// Makes a volume.
pub async fn create(args: Create, config: &Config, context: &Context) -> Result<()> {
    let first = || {
        let node = config.nodes.iter().find(|node| node.store.is_some());
        node.map(|node| node.name.clone()).ok_or_else(|| Error::config("no node has a store"))
    };
    let node = match args.node {
        Some(node) => config.node(&node)?.name.clone(),
        None => first()?,
    };
    let (backing, path) = match (&args.file, &args.device, args.striped) {
        (Some(file), ..) => ("file", path_text(file)?),
        (_, Some(device), _) => ("device", path_text(device)?),
        (.., Some(path)) => ("striped", path),
        _ => ("striped", format!("/volumes/{}", args.name)),
    };
    check_is_free(config, &args.name, "create", args.force).await?;
    let (size, block) = (args.size.map(|size| size.to_string()), args.block.to_string());
    let mut words = vec!["create", &args.name, backing, &path, "block", &block];
    if let Some(size) = &size {
        words.extend(["size", size]);
    }
    let flags = [
        (args.read_only, "read-only"),
        (args.removable, "removable"),
        (args.write_through, "write-through"),
    ];
    words.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| *word));
    command(config, &node, &words).await?;
    context.output.say(format!("volume {} is in {backing} {path}, served by {node}", args.name));
    Ok(())
}

/// Changes a volume's size.
pub async fn resize(args: Resize, config: &Config) -> Result<()> {
    let volume = find(config, &args.name, args.node.as_deref()).await?;
    let size = args.size.to_string();
    let mut words = vec!["resize", &args.name, &size];
    words.extend(args.shrink.then_some("shrink"));
    command(config, &volume.node, &words).await
}

/// Removes a volume.
pub async fn rm(args: Rm, config: &Config, context: &Context) -> Result<()> {
    let volume = find(config, &args.name, args.node.as_deref()).await?;
    check_removable(&volume, &args)?;
    // Whoever stands by would serve it as soon as it is free.
    for other in all(config, context).await.0 {
        let is_it = other.name == args.name && other.is_same_as(&volume);
        if is_it && other.node != volume.node && other.stands_by {
            command(config, &other.node, &["unexport", &args.name]).await?;
            command(config, &other.node, &["rm", &args.name, "keep"]).await?;
        }
    }
    let mut words = vec!["rm", &args.name];
    words.extend(args.keep.then_some("keep"));
    command(config, &volume.node, &words).await
}

/// What the volume's node will refuse is refused before the others are told to stand by no more.
fn check_removable(volume: &Volume, args: &Rm) -> Result<()> {
    let name = &args.name;
    if volume.stands_by && !args.keep {
        let why = "no node that serves it answers";
        return Err(Error::work(format!("cannot rm volume {name}: {why}")).hint(
            "start its node; --keep leaves the file and removes the volume where it stands by",
        ));
    }
    if volume.exports.is_empty() {
        return Ok(());
    }
    let what = format!("cannot rm volume {name}: volume {name} is exported");
    Err(Error::work(what).hint(format!("`covey volume unexport {name}` first")))
}

/// Copies a volume.
pub async fn clone_of(args: CloneOf, config: &Config) -> Result<()> {
    let volume = find(config, &args.name, args.node.as_deref()).await?;
    check_is_free(config, &args.new, "make", args.force).await?;
    let beside = || {
        let name = Path::new(&args.new);
        Path::new(&volume.path).with_file_name(name).to_string_lossy().into_owned()
    };
    let path = match &args.path {
        Some(path) if volume.backing == "file" => path_text(&PathBuf::from(path))?,
        Some(path) => path.clone(),
        None => beside(),
    };
    command(config, &volume.node, &["clone", &args.name, &args.new, &path]).await
}

/// Serves a volume.
pub async fn export(args: Export, config: &Config, context: &Context) -> Result<()> {
    let (volume, node) = match &args.node {
        Some(node) => {
            let node = config.node(node)?.name.clone();
            (find_for(config, &args.name, &node).await?, node)
        }
        None => {
            let volume = find(config, &args.name, None).await?;
            let node = volume.node.clone();
            (volume, node)
        }
    };
    if node != volume.node {
        if volume.backing != "striped" {
            let why = "it is kept on one node, and only that one can serve it";
            return Err(Error::user(format!("cannot export volume {}: {why}", args.name)));
        }
        command(config, &node, &["join", &args.name, &volume.path]).await?;
    }
    command(config, &node, &["export", &args.name, &args.listen]).await?;
    let file = format!("vol/{}/iqn", args.name);
    let iqn = covey_cluster::reach::read_of(config, &node, &file).await?;
    let value = serde_json::json!({ "listen": args.listen, "iqn": iqn.trim(), "node": node });
    context.output.result(&value, |out| {
        use std::io::Write;
        writeln!(out, "iscsi://{}/{}/0", args.listen, iqn.trim())
    })
}

/// Serves a volume no more.
pub async fn unexport(args: Unexport, config: &Config) -> Result<()> {
    let node = match &args.node {
        Some(node) => config.node(node)?.name.clone(),
        None => find(config, &args.name, None).await?.node,
    };
    let mut words = vec!["unexport", args.name.as_str()];
    words.extend(args.listen.as_deref());
    command(config, &node, &words).await
}

/// Changes who may use a volume.
pub async fn acl(args: Acl, config: &Config) -> Result<()> {
    let node = find(config, &args.name, args.node.as_deref()).await?.node;
    let secret = if args.chap.is_some() || args.mutual.is_some() {
        Some(secret(args.secret_file.as_deref())?)
    } else {
        None
    };
    // What lets fewer in comes last, so that a volume that is exported is never refused on the way.
    let mut changes: Vec<Vec<&str>> = Vec::new();
    changes.extend(args.allow.iter().map(|who| vec!["allow", who]));
    if args.trust_initiator_names {
        changes.push(vec!["trust-names"]);
    }
    for (what, user) in [("chap", &args.chap), ("mutual", &args.mutual)] {
        if let (Some(user), Some(secret)) = (user, &secret) {
            changes.push(vec![what, user, secret]);
        }
    }
    changes.extend(args.deny.iter().map(|who| vec!["deny", who]));
    let flags = [
        (args.no_chap, "no-chap"),
        (args.no_mutual, "no-mutual"),
        (args.no_trust_initiator_names, "no-trust-names"),
    ];
    changes.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| vec![*word]));
    for change in changes {
        let mut words = vec!["acl", args.name.as_str()];
        words.extend(change);
        command(config, &node, &words).await?;
    }
    Ok(())
}

/// Makes all reservations void.
pub async fn clear_reservations(args: ClearReservations, config: &Config) -> Result<()> {
    let node = find(config, &args.name, args.node.as_deref()).await?.node;
    command(config, &node, &["clear-reservations", &args.name]).await
}

/// A secret from a file, or from stdin: one line.
pub fn secret(file: Option<&Path>) -> Result<String> {
    let (name, from): (String, Box<dyn Read>) = match file {
        Some(path) => {
            let name = path.display().to_string();
            let open = std::fs::File::open(path).cannot(|| format!("read {name}"))?;
            (name, Box::new(open))
        }
        None => ("stdin".to_owned(), Box::new(std::io::stdin())),
    };
    let mut text = String::new();
    let read = from.take(SECRET_BYTES_MAX + 3).read_to_string(&mut text);
    read.cannot(|| format!("read the secret from {name}"))?;
    let secret = text.trim_end_matches(['\n', '\r']);
    if secret.len() as u64 > SECRET_BYTES_MAX || secret.chars().any(char::is_control) {
        let why = format!("{name} has no secret: one line of up to {SECRET_BYTES_MAX} bytes");
        return Err(Error::user(why).hint("head -c 12 /dev/urandom | base64 > FILE makes one"));
    }
    Ok(secret.to_owned())
}

/// Longer ones are of no use: CHAP hashes them.
const SECRET_BYTES_MAX: u64 = 255;

#[cfg(test)]
mod tests {
    use super::*;

    /// Refused by its node after the others stand by no more, the volume would be without them.
    #[test]
    fn a_volume_that_will_not_be_removed_keeps_the_nodes_that_stand_by() {
        let args = |keep| Rm { name: "disk".into(), keep, node: None };
        let mut volume = Volume { name: "disk".into(), ..Volume::default() };
        check_removable(&volume, &args(false)).unwrap();
        volume.exports.push("127.0.0.1:3260".into());
        for keep in [false, true] {
            let refused = check_removable(&volume, &args(keep)).unwrap_err();
            assert_eq!(refused.message, "cannot rm volume disk: volume disk is exported");
            assert_eq!(refused.hints, ["`covey volume unexport disk` first"]);
        }
        // What only stands by is another node's to remove.
        let volume = Volume { stands_by: true, ..Volume::default() };
        check_removable(&volume, &args(false)).unwrap_err();
        check_removable(&volume, &args(true)).unwrap();
    }
}
