//! `covey wait`: wait for the end of a job that was left running.

use super::Context;
use super::job::{find, follow};
use crate::error::{Cannot, Result};
use covey_launch::job::{End, Ends};
use futures_util::future::join_all;

/// Wait for the end of a job that was left running
///
/// Its output stays where it is: `covey attach` shows it, and `covey kill` removes the job.
///
/// EXAMPLES
///
///     job=$(covey run --all --detach ./work); covey wait $job
///
/// EXIT CODES
///
/// As those of `covey run`.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Give up after so many seconds, with exit code 1
    #[arg(long, value_name = "SECONDS")]
    timeout: Option<u64>,
    /// Of this user's job, where several users have one of this name
    #[arg(short, long, value_name = "USER")]
    user: Option<String>,
    /// The job
    #[arg(value_name = "JOB")]
    job: String,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    let found = find::parts(&config, context, &args.job, args.user.as_deref()).await?;
    let labels = super::attach::labels(&found);
    let ends = join_all(found.iter().filter_map(|found| {
        let rank = find::rank(found.part.part)?;
        Some(async move {
            let end = match found.node.session(found.part.number).await {
                Ok(session) => follow::read_end(&session).await,
                Err(error) => Err(error),
            };
            (rank, end.unwrap_or_else(|error| End::Lost(error.to_string())))
        })
    }));
    let ends = match args.timeout {
        Some(seconds) => {
            let limit = std::time::Duration::from_secs(seconds);
            let late = |_| std::io::Error::other(format!("it has not ended within {seconds} s"));
            let ends = tokio::time::timeout(limit, ends).await.map_err(late);
            ends.cannot(|| format!("wait for job {}", args.job))?
        }
        None => ends.await,
    };
    let mut all = Ends::new(ends.iter().map(|(rank, _)| rank + 1).max().unwrap_or(0));
    ends.into_iter().for_each(|(rank, end)| all.note(rank, end));
    for rank in 0..all.iter().count() as u32 {
        all.note(rank, End::Lost("no node has it any more".into()));
    }
    let label = |rank| labels.get(&rank).cloned().unwrap_or_else(|| format!("rank {rank}"));
    follow::tell_ends(&all, label, context);
    follow::verdict(&all)
}
