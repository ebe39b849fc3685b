//! `covey push`: a file of this machine on many nodes.

use super::Context;
use super::job::follow::read_end;
use super::job::parcel::Parcel;
use super::job::pick;
use super::job::spread::spread;
use super::job::tree::{NodeTree, OnNode, Session};
use super::run::{fan_out, fan_out_of};
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use covey_launch::job::End;
use covey_launch::spawn::flow::Source;
use covey_ninep::control::quote;
use covey_ninep::tree::Errno;
use futures_util::future::join_all;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Copy a file to many nodes at the same time
///
/// One copy leaves this machine; the nodes pass it on among themselves while it arrives. It has the name and mode that it has here, or another name with --to, and belongs to you. A file
/// that is there is replaced in one step when all of the new one has arrived.
///
/// EXAMPLES
///
///     covey push /etc/hosts node[1-16]
///     covey push --to /opt/app/model.bin model.bin --all
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// To every node of the cluster
    #[arg(long, conflicts_with = "nodes")]
    all: bool,
    /// Put it there on each node [default: where it is here]
    #[arg(long, value_name = "PATH")]
    to: Option<String>,
    /// To how many others a node passes it on [default: that of tune.toml, else 2]
    #[arg(long, value_name = "N", value_parser = fan_out)]
    fan_out: Option<usize>,
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The nodes
    #[arg(value_name = "NODES", required_unless_present = "all")]
    nodes: Option<String>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    let names = pick::nodes(&config, args.nodes.as_deref(), args.all)?;
    let shown = args.file.display().to_string();
    let found = std::fs::metadata(&args.file).cannot(|| format!("look at {shown}"))?;
    // Files of /proc say that they are empty.
    if !found.is_file() || shown_empty_but_is_not(&args.file, found.len()) {
        return Err(Error::user(format!("cannot copy {shown}: it is no ordinary file"))
            .hint("cat it into a file first: its length must be known"));
    }
    let mode = found.permissions().mode();
    let absolute = std::path::absolute(&args.file).cannot(|| format!("find {shown}"))?;
    let to = args.to.clone().unwrap_or_else(|| absolute.display().to_string());
    if !to.starts_with('/') {
        return Err(Error::user(format!("cannot copy to {to}: that is no absolute path"))
            .hint("a node has no current directory: --to /PATH"));
    }
    let mut parcel = Parcel::default();
    parcel.add_file("file", &args.file, 0o600)?;
    let fan_out = fan_out_of(args.fan_out, &config, context);
    let bar = context.output.progress(Some(parcel.bytes()));
    bar.set_message("copying");
    let what = |name: &str| format!("copy {shown} to {name}");
    let mut sessions = join_all(names.iter().map(|name| session_on(&config, name, what))).await;
    bring(parcel.close(), &mut sessions, fan_out, &bar, what).await;
    bar.finish_and_clear();
    let mode = mode & 0o7777;
    let placed = join_all(sessions.into_iter().map(|session| async {
        let session = session?;
        put(&session, (&to, mode)).await.on_node(|| what(&session.node.name))
    }));
    let failed: Vec<Error> = placed.await.into_iter().filter_map(Result::err).collect();
    failed.iter().for_each(|error| context.output.tell(error));
    match failed.len() {
        0 => Ok(()),
        _ => Err(Error::told()),
    }
}

/// A file whose length is not what it says.
fn shown_empty_but_is_not(file: &Path, length: u64) -> bool {
    let first = || std::fs::File::open(file)?.read(&mut [0]);
    length == 0 && first().is_ok_and(|count| count > 0)
}

async fn session_on(
    config: &Config,
    name: &str,
    what: impl Fn(&str) -> String,
) -> Result<Rc<Session>> {
    let tree = NodeTree::reach(config, name).await?;
    tree.make().await.map(Rc::new).on_node(|| what(name))
}

/// The bytes go into the sessions' own directories. A session that got none becomes an error.
async fn bring(
    source: Rc<dyn Source>,
    sessions: &mut [Result<Rc<Session>>],
    fan_out: usize,
    bar: &indicatif::ProgressBar,
    what: impl Fn(&str) -> String,
) {
    let mut places = Vec::new();
    let mut there = Vec::new();
    for (at, session) in sessions.iter().enumerate() {
        if let Ok(session) = session {
            places.push(at);
            there.push(session.clone());
        }
    }
    for (at, why) in spread(&source, &there, fan_out, bar).await {
        let failed: std::result::Result<Rc<Session>, _> = Err(Errno::because(Errno::EIO, why));
        sessions[places[at]] = failed.on_node(|| what(&there[at].node.name));
    }
}

/// A shell of the user's puts the file that has come in its place.
async fn put(session: &Session, (to, mode): (&str, u32)) -> std::result::Result<(), Errno> {
    let words = ["sh", "-c", PLACE, "sh", to, &format!("{mode:o}")].map(quote).join(" ");
    session.write("argv", words.into()).await?;
    session.command(&["exec", "/bin/sh"]).await?;
    match read_end(session).await? {
        End::Code(0) => Ok(()),
        end => {
            let said = session.open("stderr", 0).await?;
            let said = session.read(&said, 0, 4096).await?;
            let why = String::from_utf8_lossy(&said).trim().to_owned();
            let why = if why.is_empty() { end.to_string() } else { why };
            Err(Errno::because(Errno::EIO, why))
        }
    }
}

/// Beside its place first: a rename is one step, also from another file system. Only an ordinary file is replaced.
const PLACE: &str = r#"
if [ -d "$1" ]; then echo "it is a directory there: name the file in it" >&2; exit 1; fi
if [ -e "$1" ] && ! [ -f "$1" ]; then echo "it is no ordinary file there" >&2; exit 1; fi
new="$1.covey-$$"
cp file "$new" && chmod "$2" "$new" && mv -fT "$new" "$1" || { rm -f "$new"; exit 1; }
"#;
