//! The flow of a spawn at one node: it serves the first of each group while its own copy still comes.
//!
//! Each group is served by itself. Its head is told who the rest is, and given the chunks as they are there, a
//! few on their way at once. When the head fails, it is reported, and the next of its group becomes head of
//! what is left, served from here again from the first chunk.

use super::manifest::Manifest;
use super::message::{Hash, Question, Turn, decode_failures, sum};
use super::{Failure, groups};
use covey_ninep::tree::{Errno, Result};
use covey_wire::Bytes;
use futures_util::future::{Either, join_all, select};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::Duration;

/// A future without a name.
pub type Later<T> = Pin<Box<dyn Future<Output = T>>>;

/// What a spawn asks of the network and the clock.
pub trait Net: 'static {
    /// Reaches the control file of the session `NODE/SESSION`.
    fn reach(&self, destination: &str) -> Later<Result<Rc<dyn Below>>>;

    /// Completes after `time`.
    fn sleep(&self, time: Duration) -> Later<()>;

    /// A number that no other spread has.
    fn unique(&self) -> u64;
}

/// The control file of a session on another node. Dropping it ends what was asked of it.
pub trait Below: 'static {
    /// Asks a question; see [`super::message`].
    fn ask(&self, question: Bytes) -> Later<Result<Bytes>>;
}

/// A session that is here, or comes.
pub trait Source: 'static {
    /// What it is.
    fn manifest(&self) -> Rc<Manifest>;

    /// A chunk and its hash, as soon as it is here.
    fn chunk(&self, index: usize) -> Later<Result<(Hash, Bytes)>>;
}

/// Gives every destination a copy, as the part `turn` of a spread; answers who got none, and why.
pub async fn spread(
    net: Rc<dyn Net>,
    source: Rc<dyn Source>,
    destinations: Vec<String>,
    fan_out: usize,
    turn: &Turn,
) -> Vec<Failure> {
    let branches = groups(&destinations, fan_out).map(|(head, rest)| {
        branch(net.clone(), source.clone(), head.clone(), rest.to_vec(), fan_out, turn)
    });
    join_all(branches).await.into_iter().flatten().collect()
}

/// The same from a place that is no node and may be far away: one copy leaves it, to a node that serves the rest.
pub async fn hand_over(
    net: Rc<dyn Net>,
    source: Rc<dyn Source>,
    destinations: Vec<String>,
    fan_out: usize,
    turn: &Turn,
) -> Vec<Failure> {
    match destinations.split_first() {
        Some((head, rest)) => branch(net, source, head.clone(), rest.to_vec(), fan_out, turn).await,
        None => Vec::new(),
    }
}

/// The same, and asks each node that was served what it has: one that got other bytes from the node above it has failed.
pub async fn hand_over_checked(
    net: Rc<dyn Net>,
    source: Rc<dyn Source>,
    destinations: Vec<String>,
    fan_out: usize,
    turn: &Turn,
) -> Vec<Failure> {
    if destinations.len() < 2 {
        // Nothing was passed on.
        return hand_over(net, source, destinations, fan_out, turn).await;
    }
    let source = Rc::new(Recorded::new(source));
    let mut failures =
        hand_over(net.clone(), source.clone(), destinations.clone(), fan_out, turn).await;
    let is_served = |name: &&String| failures.iter().all(|failure| failure.destination != **name);
    let served = destinations.iter().filter(is_served);
    let Some(expected) = source.sum() else { return failures };
    let checked = join_all(served.map(|name| check(&net, name, &expected))).await;
    failures.extend(checked.into_iter().flatten());
    failures
}

async fn check(net: &Rc<dyn Net>, name: &str, expected: &Hash) -> Option<Failure> {
    let asked = async {
        let below = within(net, net.reach(name)).await?;
        let sum = within(net, below.ask(Question::Sum.encode())).await?;
        if sum[..] != expected[..] {
            return Err(Errno::because(Errno::EIO, "a node before it passed on other bytes"));
        }
        Ok(())
    };
    asked.await.err().map(|error| Failure::new(name, &error))
}

/// A source of which it is known what it gave.
struct Recorded {
    source: Rc<dyn Source>,
    hashes: Rc<RefCell<Vec<Option<Hash>>>>,
}

impl Recorded {
    fn new(source: Rc<dyn Source>) -> Recorded {
        let hashes = vec![None; source.manifest().chunks()];
        Recorded { source, hashes: Rc::new(RefCell::new(hashes)) }
    }

    /// None while there are chunks that nobody has asked for.
    fn sum(&self) -> Option<Hash> {
        let chunks: Option<Vec<Hash>> = self.hashes.borrow().iter().copied().collect();
        Some(sum(&self.source.manifest(), &chunks?))
    }
}

impl Source for Recorded {
    fn manifest(&self) -> Rc<Manifest> {
        self.source.manifest()
    }

    fn chunk(&self, index: usize) -> Later<Result<(Hash, Bytes)>> {
        let (chunk, hashes) = (self.source.chunk(index), self.hashes.clone());
        Box::pin(async move {
            let (hash, data) = chunk.await?;
            hashes.borrow_mut()[index] = Some(hash);
            Ok((hash, data))
        })
    }
}

/// Serves one group, with one head after the other until there is one that serves the rest.
async fn branch(
    net: Rc<dyn Net>,
    source: Rc<dyn Source>,
    mut head: String,
    mut rest: Vec<String>,
    fan_out: usize,
    turn: &Turn,
) -> Vec<Failure> {
    let mut failures = Vec::new();
    for failed in 0.. {
        match serve(&net, &source, (&head, &rest), fan_out, turn.after(failed)).await {
            Ok(below) => {
                failures.extend(below);
                return failures;
            }
            Err(error) => failures.push(Failure::new(&head, &error)),
        }
        if rest.is_empty() {
            return failures;
        }
        head = rest.remove(0);
    }
    failures
}

/// Serves one node, which serves the rest; answers who of them got no copy.
async fn serve(
    net: &Rc<dyn Net>,
    source: &Rc<dyn Source>,
    (head, rest): (&str, &[String]),
    fan_out: usize,
    turn: Turn,
) -> Result<Vec<Failure>> {
    let below = within(net, net.reach(head)).await?;
    let manifest = (*source.manifest()).clone();
    let chunks = manifest.chunks();
    let begin = Question::Begin { fan_out, rest: rest.to_vec(), turn, manifest };
    within(net, below.ask(begin.encode())).await?;
    let mut report = pin!(below.ask(Question::Report.encode()));
    let sent = pin!(send(net, source, &*below, chunks));
    let failures = match select(sent, report.as_mut()).await {
        Either::Left((sent, report)) => {
            sent?;
            // Its own part is done. What it waits for now is nodes below, which have limits of their own.
            report.await
        }
        Either::Right((Err(error), _)) => Err(error),
        // Its report may overtake what it answers to the last chunks.
        Either::Right((Ok(report), sent)) => sent.await.map(|()| report),
    }?;
    let failures = decode_failures(&failures)?;
    match failures.iter().find(|failure| !rest.contains(&failure.destination)) {
        None => Ok(failures),
        Some(odd) => {
            let what = format!("it reported of {}, which it was not to serve", odd.destination);
            Err(Errno::because(Errno::EPROTO, what))
        }
    }
}

/// Sends the chunks as they come, at most [`WINDOW`] of them unanswered.
async fn send(
    net: &Rc<dyn Net>,
    source: &Rc<dyn Source>,
    below: &dyn Below,
    chunks: usize,
) -> Result<()> {
    let mut under_way = FuturesUnordered::new();
    for index in 0..chunks {
        // Waited for as long as it takes: who sends it to us has limits.
        let (hash, data) = source.chunk(index).await?;
        let question = Question::Chunk { index, hash, data }.encode();
        under_way.push(within(net, below.ask(question)));
        while under_way.len() >= WINDOW {
            answered(under_way.next().await)?;
        }
    }
    while !under_way.is_empty() {
        answered(under_way.next().await)?;
    }
    Ok(())
}

fn answered(answer: Option<Result<Bytes>>) -> Result<()> {
    answer.map_or(Ok(()), |answer| answer.map(drop))
}

/// The answer, unless it takes longer than [`PATIENCE`].
async fn within<T: 'static>(net: &Rc<dyn Net>, answer: Later<Result<T>>) -> Result<T> {
    match select(answer, net.sleep(PATIENCE)).await {
        Either::Left((answer, _)) => answer,
        Either::Right(_) => {
            let what = format!("no answer for {} s", PATIENCE.as_secs());
            Err(Errno::because(Errno::ETIMEDOUT, what))
        }
    }
}

/// Chunks on their way to one node: while one is written there, another travels. More would fill the port with
/// chunks for one group while the others wait, at each hop.
pub const WINDOW: usize = 3;
/// How long a node may take to accept a chunk, with a window of others before it.
pub const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests;
