//! Ranks that run: their output is printed, their ends are collected, signals are passed on, until all have ended.

use super::mpi::{Heard, Starters};
use super::print::{Form, Piece, Printer, Stream, is_unread};
use super::stdin::{self, Whom};
use super::terminal;
use super::tree::Session;
use crate::cmd::Context;
use crate::error::{Cannot, Error, Result};
use covey_launch::exchange::Event;
use covey_launch::job::{End, Ends, Interrupts, Wish};
use covey_launch::output::fold;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::Instant;

/// A rank that runs.
pub struct Rank {
    /// Its number.
    pub rank: u32,
    /// What it is called before its lines.
    pub label: String,
    /// Its session.
    pub session: Rc<Session>,
}

/// What is to be followed, and how.
pub struct Following {
    /// The ranks.
    pub ranks: Vec<Rank>,
    /// Ranks that have ended before, or never began, have their ends here.
    pub ends: Ends,
    /// How their output is shown.
    pub form: Form,
    /// Who gets our input; None leaves theirs as it is.
    pub stdin: Option<Whom>,
    /// Their output is not read.
    pub leaves_output: bool,
    /// One rank has our terminal.
    pub has_terminal: bool,
    /// What serves MPI to them.
    pub starters: Option<Starters>,
    /// The program cannot do without PMIx.
    pub needs_pmix: bool,
    /// They go on when their output can no longer be printed.
    pub outlive_us: bool,
}

/// What a task has noticed.
enum News {
    /// A rank has ended.
    Ended(u32, End),
    /// One of the outputs of a rank has ended.
    Silent,
    /// A starter has said something.
    Starter(usize, Heard),
}

/// Follows ranks to their ends.
pub async fn follow(following: Following, context: &Context) -> Result<Ends> {
    let names = following.ranks.iter().map(|rank| rank.label.clone()).collect();
    let printer = Printer::start(following.form, names);
    // Bounded: what a starter says waits here.
    let (tell, news) = channel(256);
    let mut signals = Signals::new().cannot(|| "listen to signals")?;
    let mut follower = Follower::new(following, &printer.pieces, tell, context);
    let goes = follower.run(news, &mut signals, &printer.pieces).await;
    // The tasks that read outputs end with their sessions.
    drop(follower.tasks);
    let printed = match goes {
        Goes::On => finish(printer, &mut signals).await,
        Goes::Off => Ok(()),
    };
    // What a program says of itself counts more than that nobody reads it, but not more than lost output.
    if is_unread(&printed) && follower.ends.is_complete() && follower.ends.exit_code() != 0 {
        return Ok(follower.ends);
    }
    printed.map(|()| follower.ends)
}

/// Waits until all output is printed, on a terminal that may be stopped; an interrupt gives the rest up.
async fn finish(printer: Printer, signals: &mut Signals) -> Result<()> {
    let mut printed = std::pin::pin!(printer.finish());
    loop {
        tokio::select! {
            printed = &mut printed => return printed,
            signal = signals.next() => if matches!(signal, Got::Interrupt | Got::Terminate) {
                return Ok(());
            },
        }
    }
}

struct Follower<'a> {
    ranks: Vec<Rank>,
    ends: Ends,
    starters: Option<Starters>,
    needs_pmix: bool,
    outlive_us: bool,
    has_terminal: bool,
    has_aborted: bool,
    interrupts: Interrupts,
    terminations: u32,
    /// When those who were asked to end are killed.
    kill_at: Option<Instant>,
    /// Outputs that have not ended.
    outputs: usize,
    /// When output last came.
    heard_at: Rc<Cell<Instant>>,
    context: &'a Context,
    tasks: tokio::task::JoinSet<()>,
}

impl<'a> Follower<'a> {
    fn new(
        following: Following,
        pieces: &Sender<Piece>,
        tell: Sender<News>,
        context: &'a Context,
    ) -> Self {
        let Following { ranks, ends, form: _, stdin, leaves_output, outlive_us, .. } = following;
        let Following { has_terminal, mut starters, needs_pmix, .. } = following;
        let streams: &[Stream] = if leaves_output { &[] } else { &[Stream::Out, Stream::Err] };
        let heard_at = Rc::new(Cell::new(Instant::now()));
        let mut tasks = tokio::task::JoinSet::new();
        for (writer, rank) in ranks.iter().enumerate() {
            tasks.spawn_local(await_end(rank.rank, rank.session.clone(), tell.clone()));
            for stream in streams {
                let source = Source {
                    session: rank.session.clone(),
                    writer,
                    stream: *stream,
                    heard_at: heard_at.clone(),
                };
                tasks.spawn_local(source.pass_on(pieces.clone(), tell.clone()));
            }
        }
        if let Some(whom) = stdin {
            let (fed, unfed): (Vec<_>, Vec<_>) =
                ranks.iter().partition(|rank| whom.includes(rank.rank));
            let sessions: Vec<_> = fed.iter().map(|rank| rank.session.clone()).collect();
            if !sessions.is_empty() {
                tasks.spawn_local(stdin::feed(sessions));
            }
            for rank in unfed {
                let session = rank.session.clone();
                tasks.spawn_local(async move { stdin::close(&session).await });
            }
        }
        if let Some(starters) = &mut starters {
            for (node, mut heard) in starters.take_ears() {
                let tell = tell.clone();
                tasks.spawn_local(async move {
                    while let Some(heard) = heard.recv().await {
                        if tell.send(News::Starter(node, heard)).await.is_err() {
                            return;
                        }
                    }
                });
            }
        }
        let outputs = streams.len() * ranks.len();
        Follower {
            ranks,
            ends,
            starters,
            needs_pmix,
            outlive_us,
            has_terminal,
            has_aborted: false,
            interrupts: Interrupts::default(),
            terminations: 0,
            kill_at: None,
            outputs,
            heard_at,
            context,
            tasks,
        }
    }

    async fn run(
        &mut self,
        mut news: Receiver<News>,
        signals: &mut Signals,
        pieces: &Sender<Piece>,
    ) -> Goes {
        while !self.is_over() {
            let tick = self.next_look();
            let kill_at = self.kill_at;
            tokio::select! {
                Some(news) = news.recv() => self.note(news),
                signal = signals.next() => if self.pass_on(signal) == Goes::Off { return Goes::Off },
                () = pieces.closed(), if self.outlive_us => return Goes::On,
                () = pieces.closed(), if !self.ends.is_ending() => self.end_all(None),
                () = tokio::time::sleep_until(kill_at.unwrap_or(tick)), if kill_at.is_some() => self.kill_all(),
                () = tokio::time::sleep_until(tick), if self.ends.is_complete() => {}
            }
        }
        Goes::On
    }

    /// All have ended, and so has their output; or what they have left behind holds it open and says nothing.
    fn is_over(&self) -> bool {
        self.ends.is_complete() && (self.outputs == 0 || self.heard_at.get().elapsed() > SILENCE)
    }

    fn next_look(&self) -> Instant {
        (self.heard_at.get() + SILENCE).max(Instant::now() + Duration::from_millis(20))
    }

    fn note(&mut self, news: News) {
        match news {
            News::Silent => self.outputs -= 1,
            News::Ended(rank, end) => self.ended(rank, end),
            News::Starter(node, heard) => self.heard(node, heard),
        }
    }

    fn ended(&mut self, rank: u32, end: End) {
        // Of an MPI program the others may wait for it for ever.
        let is_fatal = !end.is_success() && self.starters.as_ref().is_some_and(Starters::are_used);
        self.ends.note(rank, end);
        if self.ends.is_complete() {
            self.heard_at.set(Instant::now());
        } else if is_fatal && !self.ends.is_ending() {
            self.end_all(None);
        }
    }

    fn heard(&mut self, node: usize, heard: Heard) {
        let Some(starters) = &mut self.starters else { return };
        match starters.handle(node, heard) {
            // The first one is the reason; the others abort since they are told to end.
            Some(Event::Abort { rank, code, why }) if !self.has_aborted => {
                self.has_aborted = true;
                let colon = if why.is_empty() { "" } else { ": " };
                self.context
                    .output
                    .say(format!("covey: rank {rank} has aborted the job{colon}{why}"));
                self.end_all(Some(code));
            }
            Some(Event::Gone { rank }) if !self.ends.is_ending() => {
                self.ends.fail();
                self.context
                    .output
                    .say(format!("covey: rank {rank} has left without MPI_Finalize"));
                self.end_all(None);
            }
            Some(Event::Unable { why }) if self.needs_pmix => {
                let what = "each rank is a job of its own there";
                self.context.output.say(format!("warning: {why}; {what}"));
            }
            Some(Event::Unable { why }) => self.context.output.detail(why),
            _ => {}
        }
    }

    /// Asks all to end, and kills them soon.
    fn end_all(&mut self, code: Option<u8>) {
        let is_first = !self.ends.is_ending();
        self.ends.end_all(code);
        if is_first {
            self.signal_all("TERM");
            self.kill_at = Some(Instant::now() + END_GRACE);
        }
    }

    fn kill_all(&mut self) {
        self.signal_all("KILL");
        // Once more where it did not arrive.
        self.kill_at = Some(Instant::now() + END_GRACE);
    }

    fn signal_all(&mut self, name: &'static str) {
        for rank in self.ranks.iter().filter(|rank| self.ends.of(rank.rank).is_none()) {
            let session = rank.session.clone();
            self.tasks.spawn_local(async move {
                // It may have ended meanwhile.
                let _ = session.signal(name).await;
            });
        }
    }

    fn pass_on(&mut self, signal: Got) -> Goes {
        let open = self.ends.open();
        match signal {
            Got::Interrupt => match self.interrupts.press() {
                Wish::Ask => {
                    self.context.output.say(format!(
                        "covey: interrupted: {open} ranks were asked to end; once more kills them"
                    ));
                    self.signal_all("INT");
                }
                Wish::Kill => self.signal_all("KILL"),
                Wish::Leave => return Goes::Off,
            },
            Got::Terminate => {
                self.terminations += 1;
                self.signal_all(if self.terminations > 1 { "KILL" } else { "TERM" });
            }
            Got::Other(name) => self.signal_all(name),
            Got::Resize if self.has_terminal => self.resize(),
            Got::Resize => {}
        }
        Goes::On
    }

    fn resize(&mut self) {
        let (Some(rank), Ok([rows, columns])) = (self.ranks.first(), terminal::size()) else {
            return;
        };
        let session = rank.session.clone();
        self.tasks.spawn_local(async move {
            let _ = session.command(&["winsize", &rows, &columns]).await;
        });
    }
}

/// Whether the command stays.
#[derive(PartialEq, Eq)]
enum Goes {
    On,
    Off,
}

/// One output of a rank.
struct Source {
    session: Rc<Session>,
    writer: usize,
    stream: Stream,
    heard_at: Rc<Cell<Instant>>,
}

impl Source {
    async fn pass_on(self, pieces: Sender<Piece>, tell: Sender<News>) {
        let file = if self.stream == Stream::Out { "stdout" } else { "stderr" };
        // That it cannot be read is what the reader of `wait` will hear, too.
        if let Ok(fid) = self.session.open(file, 0).await {
            let mut offset = 0;
            while let Ok(data) = self.session.read(&fid, offset, 64 << 10).await {
                offset += data.len() as u64;
                let (writer, stream, is_end) = (self.writer, self.stream, data.is_empty());
                self.heard_at.set(Instant::now());
                if pieces.send(Piece { writer, stream, data }).await.is_err() || is_end {
                    break;
                }
                self.heard_at.set(Instant::now());
            }
        }
        let _ = tell.send(News::Silent).await;
    }
}

async fn await_end(rank: u32, session: Rc<Session>, tell: Sender<News>) {
    let end = match read_end(&session).await {
        Ok(end) => end,
        Err(error) => End::Lost(error.to_string()),
    };
    let _ = tell.send(News::Ended(rank, end)).await;
}

/// Waits for a session's end.
pub async fn read_end(session: &Session) -> std::result::Result<End, covey_ninep::tree::Errno> {
    let fid = session.open("wait", 0).await?;
    let text = session.read(&fid, 0, 64).await?;
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(End::from_wait(&text).unwrap_or_else(|| End::Lost(format!("its wait file says {text:?}"))))
}

/// Says how those ended that did not end well, but for those that were ended with the job: equal ends in one line.
pub fn tell_ends(ends: &Ends, label: impl Fn(u32) -> String, context: &Context) {
    let mut bad: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (rank, end) in ends.iter() {
        let is_ours = |end: &&End| ends.is_ending() && matches!(end, End::Signal(9 | 15));
        if let Some(end) = end.filter(|end| !end.is_success() && !is_ours(end)) {
            bad.entry(end.to_string()).or_default().push(label(rank));
        }
    }
    for (end, labels) in bad {
        context.output.say(format!("covey: {}: {end}", fold(&labels)));
    }
}

/// What the ends come to for the command: the program's exit code is its own.
pub fn verdict(ends: &Ends) -> Result<()> {
    match (ends.is_complete(), ends.exit_code()) {
        (true, 0) => Ok(()),
        (true, code) => Err(Error::program(code)),
        (false, _) => Err(Error::program(INTERRUPTED)),
    }
}

/// A signal that has come.
enum Got {
    Interrupt,
    Terminate,
    Resize,
    Other(&'static str),
}

/// Those that are passed on.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    quit: Signal,
    user1: Signal,
    user2: Signal,
    resize: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            user1: signal(SignalKind::user_defined1())?,
            user2: signal(SignalKind::user_defined2())?,
            resize: signal(SignalKind::window_change())?,
        })
    }

    async fn next(&mut self) -> Got {
        tokio::select! {
            _ = self.interrupt.recv() => Got::Interrupt,
            _ = self.terminate.recv() => Got::Terminate,
            _ = self.hangup.recv() => Got::Other("HUP"),
            _ = self.quit.recv() => Got::Other("QUIT"),
            _ = self.user1.recv() => Got::Other("USR1"),
            _ = self.user2.recv() => Got::Other("USR2"),
            _ = self.resize.recv() => Got::Resize,
        }
    }
}

/// How long ranks that were asked to end may take.
const END_GRACE: Duration = Duration::from_secs(2);
/// How long the output of ranks that have ended may be silent before it is taken for ended.
const SILENCE: Duration = Duration::from_secs(2);
/// As a shell says that ^C has ended a command.
const INTERRUPTED: u8 = 130;
