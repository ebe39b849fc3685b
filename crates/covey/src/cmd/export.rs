//! `covey export`: any directory over 9P.

use super::Context;
use crate::config::Address;
use crate::error::{Cannot, Error, Result};
use crate::output::announce;
use std::path::PathBuf;

/// Serve a directory of this machine over 9P, without any cluster
///
/// Does the work of diod: Linux mounts it (`mount -t 9p`), `covey 9p` reads and writes it. The
/// kernel vouches for the identity of clients. They cannot leave the directory through symbolic
/// links or `..`; devices are not opened. Stays in the foreground until SIGTERM or SIGINT.
///
/// EXAMPLES
///
///     covey export /srv/data                                at tcp!127.0.0.1!5640
///     covey export /srv/data --listen 'unix!/run/data.sock' --read-only
///     mount -t 9p -o trans=tcp,port=5640,version=9p2000.L 127.0.0.1 /mnt
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The directory
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Where to listen, tcp!HOST!PORT or unix!PATH; may be repeated [default: tcp!127.0.0.1!5640]
    #[arg(long, value_name = "ADDR")]
    listen: Vec<Address>,
    /// Refuse every change
    #[arg(long)]
    read_only: bool,
}

/// Runs the command.
pub async fn run(args: Args, _context: &Context) -> Result<()> {
    let dir = args.dir.canonicalize().cannot(|| format!("export {}", args.dir.display()))?;
    if !dir.is_dir() {
        return Err(Error::user(format!("cannot export {}: it is not a directory", dir.display()))
            .hint("name the directory that holds it"));
    }
    // What could only be refused to every client is better said now.
    std::fs::read_dir(&dir).and_then(|_| dir.join(".").metadata()).map_err(|error| {
        let told = Err::<(), _>(error).cannot(|| format!("export {}", dir.display()));
        told.expect_err("it was an error").hint("run as its owner, or let this user read it")
    })?;
    let listen = if args.listen.is_empty() {
        vec![Address::tcp("127.0.0.1", crate::config::PORT_DEFAULT)]
    } else {
        args.listen
    };
    if let Some(open) = listen.iter().find(|address| !address.is_local()) {
        return Err(Error::user(format!(
            "cannot export at {open}: other machines could reach it without proving a key"
        ))
        .hint("listen at a loopback address or a unix socket, and let ssh carry it: ssh -L"));
    }
    let served = covey_serve::node::export(&dir, &listen, args.read_only, |text| {
        announce(format_args!("covey: {text}"))
    })
    .await;
    let is_busy = served.as_ref().is_err_and(is_address_in_use);
    let result = served.cannot(|| format!("export {}", dir.display()));
    if is_busy {
        result.map_err(|error| {
            error.hint("name another place: --listen tcp!127.0.0.1!PORT, or unix!PATH")
        })
    } else {
        result
    }
}

fn is_address_in_use(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let cause = cause.downcast_ref::<std::io::Error>();
        cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::AddrInUse)
    })
}
