//! `covey kill`: end a job on all its nodes.

use super::Context;
use super::job::find::{self, Found};
use crate::error::{Error, Result};
use futures_util::future::join_all;

/// End every part of a job, or send it a signal
///
/// Without -s the job is killed and removed, on every node that can be reached. With it, each rank
/// gets the signal and may do what it likes.
///
/// EXAMPLES
///
///     covey kill 3f2a9c01
///     covey kill -s USR1 3f2a9c01
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Send this signal instead, such as TERM or 15
    #[arg(short, long, value_name = "SIGNAL")]
    signal: Option<String>,
    /// Of this user's job, where several users have one of this name
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
    /// The jobs
    #[arg(value_name = "JOB", required = true)]
    jobs: Vec<String>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    let mut failed = 0;
    let what = args.signal.as_ref().map_or("end".to_owned(), |name| format!("send {name} to"));
    for job in &args.jobs {
        let found = find::parts(&config, context, job, args.user.as_deref()).await?;
        let ended = join_all(found.iter().map(|found| end(found, args.signal.as_deref()))).await;
        for (found, why) in
            found.iter().zip(ended).filter_map(|(found, end)| Some((found, end.err()?)))
        {
            failed += 1;
            context
                .output
                .say(format!("covey: cannot {what} a part of {job} on {}: {why}", found.node.name));
        }
    }
    match failed {
        0 => Ok(()),
        _ => Err(Error::told()),
    }
}

async fn end(
    found: &Found,
    signal: Option<&str>,
) -> std::result::Result<(), covey_ninep::tree::Errno> {
    let session = found.node.session(found.part.number).await?;
    match (signal, find::rank(found.part.part)) {
        (Some(signal), Some(_)) => session.signal(signal).await,
        // MPI's servers are not the program's.
        (Some(_), None) => Ok(()),
        (None, _) => session.command(&["wipe"]).await,
    }
}
