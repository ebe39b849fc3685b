//! `covey push`: a file of this machine on many nodes.

use super::Context;
use super::job::follow::read_end;
use super::job::pick;
use super::job::tree::{NodeTree, OnNode};
use crate::error::{Cannot, Error, Result};
use covey_launch::job::End;
use covey_ninep::control::quote;
use covey_ninep::tree::Errno;
use covey_wire::Bytes;
use futures_util::future::join_all;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::rc::Rc;

/// Copy a file to many nodes at the same time
///
/// It has the name and mode that it has here, or another name with --to, and belongs to you. A file
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
    let bytes: Bytes = std::fs::read(&args.file).cannot(|| format!("read {shown}"))?.into();
    let mode =
        std::fs::metadata(&args.file).cannot(|| format!("look at {shown}"))?.permissions().mode();
    let absolute = std::path::absolute(&args.file).cannot(|| format!("find {shown}"))?;
    let to = args.to.clone().unwrap_or_else(|| absolute.display().to_string());
    if !to.starts_with('/') {
        return Err(Error::user(format!("cannot copy to {to}: that is no absolute path"))
            .hint("a node has no current directory: --to /PATH"));
    }
    let bar = context.output.progress(bytes.len() as u64 * names.len() as u64);
    bar.set_message("copying");
    let reached = pick::reach_each(&config, &names).await;
    let copies = join_all(reached.into_iter().map(|tree| async {
        let tree = tree?;
        let what = || format!("copy {shown} to {}", tree.name);
        copy(&tree, &bytes, (&to, mode & 0o7777), &bar).await.on_node(what)
    }));
    let copied = copies.await;
    bar.finish_and_clear();
    let failed: Vec<Error> = copied.into_iter().filter_map(std::result::Result::err).collect();
    failed.iter().for_each(|error| context.output.tell(error));
    match failed.len() {
        0 => Ok(()),
        _ => Err(Error::told()),
    }
}

/// The bytes go into a session's own directory, from where a shell of the user's puts them in their place.
async fn copy(
    tree: &Rc<NodeTree>,
    bytes: &Bytes,
    (to, mode): (&str, u32),
    bar: &indicatif::ProgressBar,
) -> std::result::Result<(), Errno> {
    let session = tree.make().await?;
    let file = session.create("fs/file", 0o600).await?;
    for at in (0..bytes.len()).step_by(BLOCK_BYTES) {
        let piece = bytes.slice(at..bytes.len().min(at + BLOCK_BYTES));
        let count = piece.len() as u64;
        session.put(&file, at as u64, piece).await?;
        bar.inc(count);
    }
    file.clunk().await.map_err(Errno::from)?;
    let words = ["sh", "-c", PLACE, "sh", to, &format!("{mode:o}")].map(quote).join(" ");
    session.write("argv", words.into()).await?;
    session.command(&["exec", "/bin/sh"]).await?;
    match read_end(&session).await? {
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

/// Beside its place first: a rename is one step, also from another file system.
const PLACE: &str = "new=\"$1.covey-$$\" && cp file \"$new\" && chmod \"$2\" \"$new\" && mv -f \"$new\" \"$1\" || { rm -f \"$new\"; exit 1; }";
const BLOCK_BYTES: usize = 1 << 20;
