//! What the nodes of a job tell each other: by files in a directory of the job's file system, so that it needs the key
//! to be believed.
//!
//! ```text
//!   /.covey-job/NODE.up     this node is ready: its server answers, and it has mounted what it was to
//!   /.covey-job/stage-out   how the first node's stage-out goes
//! ```
//!
//! `covey down --job --stage-out` may be run on all nodes at the same time. The first one copies; the others keep their
//! servers until the file says that all is out.

use crate::cmd::path::{Follow, kind};
use crate::cmd::{Context, Session};
use crate::error::{Cannot, Error, Result};
use covey_ninep::tree::{Errno, Removal};
use covey_stripe::client::{Taken, access};
use covey_stripe::ops::{Id, ROOT};
use covey_wire::{Bytes, Name, Payload};
use std::time::{Duration, Instant};

/// The directory.
pub const DIR: &str = ".covey-job";
const STAGE_OUT: &str = "stage-out";
/// How often it is written and read.
const EVERY: Duration = Duration::from_millis(200);
/// How long the first node may say nothing new.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long its server may not be reached at all.
const ABSENCE: Duration = Duration::from_secs(10);
/// How long it is not reached when it has ended.
const GONE: Duration = Duration::from_secs(1);
/// How long a failure that was told is taken for that of an earlier try.
const OLD_NEWS: Duration = Duration::from_secs(5);
/// Bytes of the file, whatever it says: writing it again takes no space.
const BYTES: usize = 32;

/// What the first node says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// It copies; the number grows.
    Copying(u64),
    /// All is out.
    Done,
    /// Something is not.
    Failed,
}

impl Word {
    fn text(self) -> String {
        let text = match self {
            Word::Copying(count) => format!("copying {count}"),
            Word::Done => "done".to_string(),
            Word::Failed => "failed".to_string(),
        };
        format!("{text:<width$}\n", width = BYTES - 1)
    }

    fn read(text: &[u8]) -> Option<Word> {
        let text = std::str::from_utf8(text).ok()?.trim();
        match (text, text.strip_prefix("copying ")) {
            ("done", _) => Some(Word::Done),
            ("failed", _) => Some(Word::Failed),
            (_, Some(count)) => count.parse().ok().map(Word::Copying),
            _ => None,
        }
    }
}

/// Says that this node is ready.
pub async fn say_ready(session: &Session, node: &str) -> Result<()> {
    write(session, &format!("{node}.up"), "").await
}

/// Waits until these nodes have said that they are ready; answers those that have not.
pub async fn wait_ready(
    session: &Session,
    nodes: &[String],
    limit: Duration,
) -> Result<Vec<String>> {
    let begin = Instant::now();
    loop {
        let dir = place(session).await?;
        let found = session.entries(dir).await.cannot(|| format!("list :/{DIR}"))?;
        let is_ready = |node: &str| {
            found.iter().any(|(name, _)| name.as_bytes() == format!("{node}.up").as_bytes())
        };
        let missing: Vec<String> = nodes.iter().filter(|node| !is_ready(node)).cloned().collect();
        if missing.is_empty() || begin.elapsed() > limit {
            return Ok(missing);
        }
        tokio::time::sleep(EVERY / 4).await;
    }
}

/// Does the first node's work, and tells the others how it goes.
pub async fn telling(session: &Session, work: impl Future<Output = Result<()>>) -> Result<()> {
    let (mut work, mut count) = (std::pin::pin!(work), 0);
    let result = loop {
        count += 1;
        // A full file system must not keep its files from being copied out: the others give up then.
        let text = Word::Copying(count).text();
        let tell = write(session, STAGE_OUT, &text);
        let (_, done) = tokio::join!(tell, tokio::time::timeout(EVERY, &mut work));
        if let Ok(result) = done {
            break result;
        }
    };
    let word = if result.is_ok() { Word::Done } else { Word::Failed };
    let _ = write(session, STAGE_OUT, &word.text()).await;
    result
}

/// Takes back what an earlier stage-out has said: the file system is used again.
pub async fn forget_stage_out(session: &Session) -> Result<()> {
    let dir = place(session).await?;
    let name = Name::from(STAGE_OUT);
    match session.fs.unlink(&session.who, dir, &name, Removal::File).await {
        Err(error) if error.code() == Errno::ENOENT => Ok(()),
        other => other.cannot(|| format!("remove :/{DIR}/{STAGE_OUT}")),
    }
}

/// Waits, on another node, until all is out.
pub async fn wait(context: &Context) -> Result<()> {
    let mut session: Option<Session> = None;
    let begin = Instant::now();
    let (mut news, mut heard, mut ear) = (begin, begin, Ear::default());
    loop {
        if session.is_none() {
            let asked = tokio::time::timeout(PATIENCE, context.session()).await;
            session = asked.ok().and_then(Result::ok);
        }
        let word = match &session {
            Some(session) => {
                tokio::time::timeout(PATIENCE, read(session)).await.unwrap_or(Ok(None)).ok()
            }
            None => None,
        };
        if let Some(word) = word {
            heard = Instant::now();
            if ear.hear(word) {
                news = heard;
            }
        }
        match ear.last {
            Some(Word::Done) if ear.is_fresh || heard.elapsed() > GONE => return Ok(()),
            Some(Word::Failed) if begin.elapsed() > OLD_NEWS => return Err(failed()),
            None if session.is_none() && news.elapsed() > ABSENCE => return Err(absent()),
            last if news.elapsed() > PATIENCE => return Err(silent(last.is_some())),
            _ => tokio::time::sleep(EVERY).await,
        }
    }
}

/// What was heard of the first node. A `done` that was there from the start may be that of an earlier try: it counts when
/// the first node's server has ended, as it does after a good end.
#[derive(Debug, Default)]
struct Ear {
    last: Option<Word>,
    has_listened: bool,
    is_fresh: bool,
}

impl Ear {
    /// Whether it is news.
    fn hear(&mut self, word: Option<Word>) -> bool {
        let is_news = word.is_some() && word != self.last;
        self.is_fresh =
            word == Some(Word::Done) && (self.is_fresh || (self.has_listened && is_news));
        self.has_listened = true;
        self.last = word;
        is_news
    }
}

fn failed() -> Error {
    Error::work("cannot remove this node's part: the first node could not stage out")
        .hint("it says why; the same command on all nodes tries again")
}

fn absent() -> Error {
    let seconds = ABSENCE.as_secs();
    let what = "cannot remove this node's part: the first node's server";
    Error::work(format!("{what} was not reached for {seconds} s"))
        .hint("`covey up --job` there starts it; then the same command on all nodes tries again")
        .hint("where it has ended well there, `covey down --job --discard` removes the rest here")
}

fn silent(has_begun: bool) -> Error {
    let (seconds, what) = (PATIENCE.as_secs(), "cannot remove this node's part: the first node");
    let why = if has_begun { "stopped staging out" } else { "did not stage out" };
    Error::work(format!("{what} {why} within {seconds} s"))
        .hint("the same command on all nodes, at the same time, tries again")
        .hint("where it has ended well there, `covey down --job --discard` removes the rest here")
}

/// The directory, made if missing.
async fn place(session: &Session) -> Result<Id> {
    let what = || format!("make directory :/{DIR}");
    let mode = kind::DIR | 0o700;
    match session.fs.make(&session.who, ROOT, &DIR.into(), mode, 0, Name::from("")).await {
        Ok(inode) => Ok(inode.id),
        Err(error) if error.code() == Errno::EEXIST => {
            let path = format!("/{DIR}");
            Ok(session.resolve(path.as_bytes(), Follow::NotLast).await.cannot(what)?.id)
        }
        Err(error) => Err(error).cannot(what),
    }
}

async fn write(session: &Session, name: &str, text: &str) -> Result<()> {
    let what = || format!("write :/{DIR}/{name}");
    let (fs, who) = (&session.fs, &session.who);
    let dir = place(session).await?;
    let name = Name::from(name);
    let made = fs.create(who, dir, &name, 0o600, Taken::Open, access::WRITE);
    let (_, file) = made.await.cannot(what)?;
    if !text.is_empty() {
        let text = Payload::from(Bytes::from(text.to_string().into_bytes()));
        file.write_at(0, text).await.cannot(what)?;
    }
    file.flush().await.cannot(what)
}

/// None where nothing was said.
async fn read(session: &Session) -> Result<Option<Word>> {
    let path = format!("/{DIR}/{STAGE_OUT}");
    let what = || format!("read :{path}");
    let inode = match session.resolve(path.as_bytes(), Follow::NotLast).await {
        Err(error) if error.code() == Errno::ENOENT => return Ok(None),
        other => other.cannot(what)?,
    };
    let file = session.fs.open(&session.who, inode.id, access::READ).await.cannot(what)?;
    let text = file.read_at(0, BYTES).await.cannot(what)?;
    Ok(Word::read(&text.into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_reads_back_and_has_the_same_length() {
        for word in [Word::Copying(7), Word::Copying(u64::MAX), Word::Done, Word::Failed] {
            assert_eq!(Word::read(word.text().as_bytes()), Some(word));
            assert_eq!(word.text().len(), BYTES);
        }
        assert_eq!(Word::read(b"don"), None);
    }

    #[test]
    fn a_done_that_was_there_before_is_not_believed() {
        let mut ear = Ear::default();
        assert!(ear.hear(Some(Word::Done)));
        assert!(!ear.hear(Some(Word::Done)) && !ear.is_fresh);
        assert!(ear.hear(Some(Word::Copying(1))) && !ear.is_fresh);
        assert!(ear.hear(Some(Word::Done)) && ear.is_fresh);
        assert!(!ear.hear(Some(Word::Done)) && ear.is_fresh);
        let mut ear = Ear::default();
        assert!(!ear.hear(None));
        assert!(ear.hear(Some(Word::Done)) && ear.is_fresh);
    }
}
