//! What the nodes of a job tell each other: by files in a directory of the job's file system, so that it needs the key
//! to be believed.
//!
//! ```text
//!   /.covey-job/NODE.up     this node is ready: its server answers, and it has mounted what it was to
//!   /.covey-job/staged-in   the stage-in has come to a good end; for scripts
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
const STAGED_IN: &str = "staged-in";
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
/// How long a stage-out may copy nothing: syncing a large file takes its time.
const STALL: Duration = Duration::from_secs(300);
/// How long a question may take that is not worth waiting for.
const QUESTION: Duration = Duration::from_secs(5);
/// Bytes of the file, whatever it says: writing it again takes no space.
const BYTES: usize = 64;

/// What the first node says. The tick grows with each time it says so: a word that stays the same is an old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// It copies; the count grows with what it has copied.
    Copying { count: u64, tick: u64 },
    /// All is out, for the stage-out of this number.
    Done { wanted: u64, tick: u64 },
    /// Something is not.
    Failed,
}

impl Word {
    fn text(self) -> String {
        let text = match self {
            Word::Copying { count, tick } => format!("copying {count} {tick}"),
            Word::Done { wanted, tick } => format!("done {wanted} {tick}"),
            Word::Failed => "failed".to_string(),
        };
        format!("{text:<width$}\n", width = BYTES - 1)
    }

    fn read(text: &[u8]) -> Option<Word> {
        let words: Vec<&str> = std::str::from_utf8(text).ok()?.split_whitespace().collect();
        match words[..] {
            ["copying", count, tick] => {
                Some(Word::Copying { count: count.parse().ok()?, tick: tick.parse().ok()? })
            }
            ["done", wanted, tick] => {
                Some(Word::Done { wanted: wanted.parse().ok()?, tick: tick.parse().ok()? })
            }
            ["failed"] => Some(Word::Failed),
            _ => None,
        }
    }

    /// Whether it is about this stage-out: the good end of another one says nothing.
    fn is_about(self, stage_out: u64) -> bool {
        !matches!(self, Word::Done { wanted, .. } if wanted != stage_out)
    }
}

/// Says that the stage-in has come to a good end.
pub async fn say_staged_in(session: &Session) -> Result<()> {
    write(session, STAGED_IN, "").await
}

/// Takes that back, where a later one has not.
pub async fn forget_staged_in(session: &Session) {
    let _ = forget(session, STAGED_IN).await;
}

/// Says, while the first node waits for the others, that all is out.
pub async fn say_done(session: &Session, wanted: u64, tick: u64) {
    let text = Word::Done { wanted, tick }.text();
    let _ = tokio::time::timeout(QUESTION, write(session, STAGE_OUT, &text)).await;
}

/// What another node learns about results that are nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A stage-out has begun, and has not come to a good end.
    Unsaved,
    /// There is none that failed.
    Free,
    /// The first node's server does not answer.
    Unknown,
}

/// Asks how a stage-out went.
pub async fn verdict(context: &Context) -> Verdict {
    let asked = async { read(&context.session().await?).await };
    match tokio::time::timeout(QUESTION, asked).await {
        Ok(Ok(Some(Word::Copying { .. } | Word::Failed))) => Verdict::Unsaved,
        Ok(Ok(_)) => Verdict::Free,
        _ => Verdict::Unknown,
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

/// The first node's work, as the others learn of it.
pub struct Work<'a, Copy, Record> {
    /// The number of the stage-out.
    pub wanted: u64,
    /// How far it is.
    pub count: &'a dyn Fn() -> u64,
    /// What is to be done.
    pub copy: Copy,
    /// Puts the good end on record, before the others are told: they go then.
    pub record: Record,
}

/// Does the first node's work, and tells the others how it goes.
pub async fn telling<Copy, Record>(session: &Session, work: Work<'_, Copy, Record>) -> Result<()>
where
    Copy: Future<Output = Result<()>>,
    Record: FnOnce() -> Result<()>,
{
    let (mut copy, mut tick) = (std::pin::pin!(work.copy), 0);
    let result = loop {
        tick += 1;
        // A full file system must not keep its files from being copied out: the others give up then.
        let text = Word::Copying { count: (work.count)(), tick }.text();
        let tell = write(session, STAGE_OUT, &text);
        let (_, done) = tokio::join!(tell, tokio::time::timeout(EVERY, &mut copy));
        if let Ok(result) = done {
            break result;
        }
    };
    let result = result.and_then(|()| (work.record)());
    let done = Word::Done { wanted: work.wanted, tick };
    let word = if result.is_ok() { done } else { Word::Failed };
    let _ = write(session, STAGE_OUT, &word.text()).await;
    result
}

/// Takes back what an earlier stage-out has said: the file system is used again.
pub async fn forget_stage_out(session: &Session) -> Result<()> {
    forget(session, STAGE_OUT).await
}

async fn forget(session: &Session, file: &str) -> Result<()> {
    let dir = place(session).await?;
    match session.fs.unlink(&session.who, dir, &Name::from(file), Removal::File).await {
        Err(error) if error.code() == Errno::ENOENT => Ok(()),
        other => other.cannot(|| format!("remove :/{DIR}/{file}")),
    }
}

/// Waits, on another node, until all of this stage-out is out.
pub async fn wait(context: &Context, wanted: u64) -> Result<()> {
    let mut session: Option<Session> = None;
    let begin = Instant::now();
    let (mut news, mut heard, mut moved, mut ear) = (begin, begin, begin, Ear::default());
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
            let word: Option<Word> = word.filter(|word| word.is_about(wanted));
            heard = Instant::now();
            if count_of(word) != count_of(ear.last) {
                moved = heard;
            }
            if ear.hear(word) {
                news = heard;
            }
        }
        match ear.last {
            Some(Word::Done { .. }) if ear.is_fresh || heard.elapsed() > GONE => return Ok(()),
            Some(Word::Failed) if begin.elapsed() > OLD_NEWS => return Err(failed()),
            None if session.is_none() && news.elapsed() > ABSENCE => return Err(absent()),
            Some(Word::Copying { .. }) if moved.elapsed() > STALL => return Err(stalled()),
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
        self.is_fresh = matches!(word, Some(Word::Done { .. }))
            && (self.is_fresh || (self.has_listened && is_news));
        self.has_listened = true;
        self.last = word;
        is_news
    }
}

fn count_of(word: Option<Word>) -> Option<u64> {
    match word {
        Some(Word::Copying { count, .. }) => Some(count),
        _ => None,
    }
}

fn stalled() -> Error {
    let seconds = STALL.as_secs();
    let what = "cannot remove this node's part: the first node";
    Error::work(format!("{what} has copied nothing out for {seconds} s")).hint(
        "does the file system that it copies to hang? the same command on all nodes tries again",
    )
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

    fn done(tick: u64) -> Option<Word> {
        Some(Word::Done { wanted: 5, tick })
    }

    #[test]
    fn each_word_reads_back_and_has_the_same_length() {
        let most = u64::MAX;
        let copying = [7, most].map(|count| Word::Copying { count, tick: most });
        let done = Word::Done { wanted: most, tick: most };
        for word in [copying[0], copying[1], done, Word::Failed] {
            assert_eq!(Word::read(word.text().as_bytes()), Some(word));
            assert_eq!(word.text().len(), BYTES);
        }
        assert_eq!(Word::read(b"don"), None);
    }

    #[test]
    fn a_done_that_was_there_before_is_not_believed() {
        let mut ear = Ear::default();
        assert!(ear.hear(done(1)));
        assert!(!ear.hear(done(1)) && !ear.is_fresh);
        assert!(ear.hear(Some(Word::Copying { count: 0, tick: 1 })) && !ear.is_fresh);
        assert!(ear.hear(done(2)) && ear.is_fresh);
        assert!(!ear.hear(done(2)) && ear.is_fresh);
        let mut ear = Ear::default();
        assert!(!ear.hear(None));
        assert!(ear.hear(done(1)) && ear.is_fresh);
        // A first node that has ended well and waits says so again and again.
        let mut ear = Ear::default();
        assert!(ear.hear(done(8)) && !ear.is_fresh);
        assert!(ear.hear(done(9)) && ear.is_fresh);
    }

    #[test]
    fn the_good_end_of_another_stage_out_says_nothing() {
        let done = Word::Done { wanted: 5, tick: 1 };
        assert!(done.is_about(5) && !done.is_about(6) && Word::Failed.is_about(6));
    }
}
