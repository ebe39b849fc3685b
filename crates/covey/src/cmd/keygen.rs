//! `covey keygen`: the cluster key.

use super::Context;
use crate::config::random_hex;
use crate::error::{Cannot, Error, Result, reason};
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The key's length in bytes.
const KEY_BYTES: usize = 32;

/// Make a cluster key
///
/// Servers that listen beyond their own machine, and their clients, prove that they hold the same
/// key. It is 32 random bytes in hexadecimal, in a file that only its owner may read. Copy the file
/// to every node by a trusted method, such as scp. An existing file is never overwritten.
///
/// EXAMPLES
///
///     covey keygen                     at the key_file of covey.toml
///     covey keygen /etc/covey/key
///     covey keygen --next              the key that is to replace it, see `covey help key`
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Where to write it [default: key_file of covey.toml]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// Make the key that replaces the cluster's, beside it: see `covey help key`
    #[arg(long, conflicts_with = "file")]
    next: bool,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let file = match args.file {
        Some(file) => file,
        None if args.next => covey_cluster::key::beside(&from_config(context)?),
        None => from_config(context)?,
    };
    if let Some(dir) = file.parent() {
        std::fs::create_dir_all(dir).cannot(|| format!("make directory {}", dir.display()))?;
    }
    write_new(&file)?;
    context.output.result(&serde_json::json!({ "key_file": file }), |text| {
        writeln!(
            text,
            "wrote a new key to {}: copy it to every node, readable by root only",
            file.display()
        )
    })
}

/// Writes a new key to a file that must not be there yet.
pub fn write_new(file: &Path) -> Result<()> {
    let key = random_hex(KEY_BYTES)?;
    let mut out = match File::options().write(true).create_new(true).mode(0o600).open(file) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(exists(file));
        }
        other => other.cannot(|| format!("write {}", file.display()))?,
    };
    let written = writeln!(out, "{key}").and_then(|()| out.sync_all());
    written.map_err(|error| {
        // Half a key would be taken for a whole one later.
        let _ = std::fs::remove_file(file);
        Error::work(format!("cannot write {}: {}", file.display(), reason(&error)))
    })
}

fn from_config(context: &Context) -> Result<PathBuf> {
    let config = context.config()?;
    config.key_file.clone().ok_or_else(|| {
        Error::user(format!("cannot choose a file: {} names no key_file", config.file.display()))
            .hint("`covey keygen FILE` writes it there")
    })
}

fn exists(file: &Path) -> Error {
    Error::user(format!("cannot write {}: it exists already", file.display())).hint(
        "servers that run with this key would refuse one with another: remove it \
               yourself if that is meant",
    )
}
