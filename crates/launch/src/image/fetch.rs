//! Fetching an image: from whom, in what order, and what to do about those who fail.
//!
//! ```text
//!   keep: the first server ── sums compared, avail renewed, connected again ── for as long as we serve
//!   pull: redir ──► source ──► chunks in order ── hash right? ──► written ──► Image::has_arrived
//!           ▲                                       │ wrong: complained about, never read from again
//!           └────── lost, silent, wrong ◄───────────┘        the next source goes on at the same chunk
//! ```

mod keep;

use super::held::{Content, Image};
use super::source::{self, O_RDONLY};
use super::sum::hex;
use super::{Digest, LocalFuture, SUM_BYTES_MAX, Source, Sum};
use covey_ninep::client::{CallError, Conn};
use covey_ninep::tree::{Errno, Result};
use covey_wire::{Bytes, Name};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use futures_util::stream::FuturesOrdered;
use keep::Keeper;
use sha2::{Digest as _, Sha256};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What fetching asks of the world.
pub trait Host: 'static {
    /// The clock.
    fn now(&self) -> Instant;
    /// Completes after `time`.
    fn sleep(&self, time: Duration) -> LocalFuture<()>;
    /// Connects to a source and attaches the root of its images as fid 0. EACCES, where the first server wants
    /// another token, ends everything.
    fn dial(&self, source: &Source) -> LocalFuture<Result<Conn>>;
    /// Makes the place for an image; what an attempt before has put there is forgotten.
    fn prepare(&self, sum: &Sum) -> LocalFuture<Result<Rc<dyn Content>>>;
    /// Serves the image to others, in place of what was served before; answers at which port. None to help
    /// nobody.
    fn serve(&self, name: &Name, arch: &Name, image: &Rc<Image>) -> LocalFuture<Option<u16>>;
    /// Something happened.
    fn tell(&self, event: Event);
}

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Want {
    /// The image.
    pub image: Name,
    /// For which machine; the first of these that there is.
    pub archs: Vec<Name>,
    /// The hash that it must have, where that is known from elsewhere.
    pub sha256: Option<Digest>,
    /// For how long to serve it afterwards; else as long as it took, and 5 s at least.
    pub serve: Option<Duration>,
    /// How long to go on without a byte.
    pub patience: Duration,
}

/// What happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The image was found.
    Found {
        /// For which machine.
        arch: Name,
        /// Its length.
        bytes: u64,
    },
    /// It is read from here on.
    From(Source),
    /// So much has arrived.
    Arrived(u64),
    /// A source was left, for this reason.
    Left(Source, String),
    /// The first server does not answer; it is tried again.
    Waiting(String),
    /// All has arrived; it is served for so long.
    Whole(Duration),
}

/// What it came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was fetched.
    pub sum: Sum,
    /// How long it took, without serving others.
    pub time: Duration,
    /// Bytes that the first server has sent.
    pub bytes_from_first: u64,
    /// Sources that were left.
    pub left: usize,
}

/// Why there is no image.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The first server has no such image, or lets nobody in who asks like this.
    Refused(Errno),
    /// What the first server offers is not what was asked for, or contradicts itself.
    Wrong(String),
    /// The image cannot be put where it is to be put.
    Local(Errno),
    /// No byte has come for as long as one is to wait; the last reason.
    Lost(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Refused(why) => write!(f, "the server refuses: {why}"),
            Failure::Wrong(why) => f.write_str(why),
            Failure::Local(why) => write!(f, "cannot write it: {why}"),
            Failure::Lost(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for Failure {}

/// Most chunks in memory: one is being received while the one before is looked at and written.
pub const CHUNKS_AHEAD: usize = 2;

/// Fetches an image, and serves it to others meanwhile and for some time after.
pub async fn fetch(host: Rc<dyn Host>, want: Want) -> std::result::Result<Report, Failure> {
    let mut restarts = 0;
    loop {
        match once(&host, &want).await {
            Err(End::Replaced) if restarts < RESTARTS_MAX => restarts += 1,
            Err(End::Replaced) => {
                let what = format!("the image was replaced {restarts} times while it was fetched");
                return Err(Failure::Lost(what));
            }
            Err(End::Failed(failure)) => return Err(failure),
            Ok(report) => return Ok(report),
        }
    }
}

/// Why one attempt has ended.
pub(super) enum End {
    /// The first server has another image under this name by now.
    Replaced,
    Failed(Failure),
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(failure)
    }
}

async fn once(host: &Rc<dyn Host>, want: &Want) -> std::result::Result<Report, End> {
    let begun = host.now();
    let (sum, arch) = keep::find(host, want).await?;
    check_pin(want, &sum.sha256)?;
    host.tell(Event::Found { arch: arch.clone(), bytes: sum.bytes });
    let content = host.prepare(&sum).await.map_err(Failure::Local)?;
    let image = Image::arriving(sum, content.clone());
    let port = host.serve(&want.image, &arch, &image).await;
    let names = vec![want.image.clone(), arch];
    let keeper = Keeper::new(host.clone(), image.clone(), names.clone(), port);
    let pull = Pull {
        host: host.clone(),
        keeper: keeper.clone(),
        image: image.clone(),
        content,
        names,
        whole: want.sha256.map(|_| RefCell::default()),
        bytes_from_first: Cell::new(0),
        left: Cell::new(0),
        stalls: RefCell::default(),
        rates: RefCell::default(),
    };
    let report = {
        let work = pull.run(want);
        match select(pin!(work), pin!(keeper.run())).await {
            Either::Left((done, _)) => done.inspect_err(|_| {
                image.fail(Errno::because(Errno::EIO, "this volunteer could not go on"));
            })?,
            Either::Right((end, _)) => return Err(end),
        }
    };
    let time = host.now().saturating_duration_since(begun);
    let serve = want.serve.unwrap_or(time.max(SERVE_MIN));
    let serve = if port.is_some() { serve } else { Duration::ZERO };
    host.tell(Event::Whole(serve));
    keeper.renew().await;
    // An image that is replaced meanwhile does not make what is here worse.
    select(pin!(keeper.run()), host.sleep(serve)).await;
    Ok(Report { time, ..report })
}

fn check_pin(want: &Want, found: &Digest) -> std::result::Result<(), Failure> {
    match &want.sha256 {
        Some(wanted) if wanted != found => Err(Failure::Wrong(format!(
            "the image is another one: its SHA-256 is {}, {} is wanted",
            hex(found),
            hex(wanted)
        ))),
        _ => Ok(()),
    }
}

/// What `future` answers within `time`, or None.
async fn within<T>(
    host: &Rc<dyn Host>,
    time: Duration,
    future: impl Future<Output = T>,
) -> Option<T> {
    match select(pin!(future), host.sleep(time)).await {
        Either::Left((answer, _)) => Some(answer),
        Either::Right(_) => None,
    }
}

/// Why a source was left.
pub(super) enum Trouble {
    /// It is gone, or says that it cannot.
    Lost(String),
    /// It has been silent.
    Silent,
    /// It sends so many bytes a second, and another source may send more.
    Slow(u64),
    /// It has sent what is not the image.
    Bad(String),
    /// Nothing is wrong with it.
    Local(Errno),
}

impl From<CallError> for Trouble {
    fn from(error: CallError) -> Trouble {
        Trouble::Lost(error.to_string())
    }
}

/// Brings the image here.
struct Pull {
    host: Rc<dyn Host>,
    keeper: Rc<Keeper>,
    image: Rc<Image>,
    content: Rc<dyn Content>,
    names: Vec<Name>,
    /// The hash of what has arrived, where the whole must have one that is known from elsewhere.
    whole: Option<RefCell<Sha256>>,
    bytes_from_first: Cell<u64>,
    left: Cell<usize>,
    /// How often each source was silent.
    stalls: RefCell<BTreeMap<Source, u32>>,
    /// What each source has sent that was left, in bytes a second.
    rates: RefCell<BTreeMap<Source, u64>>,
}

impl Pull {
    async fn run(&self, want: &Want) -> std::result::Result<Report, End> {
        let mut progress = (self.image.arrived(), self.host.now());
        let (mut pause, mut wrong_first) = (PAUSE_MIN, 0);
        let mut why = "no server has answered".to_owned();
        while !self.image.is_whole() {
            let left = (progress.1 + want.patience).saturating_duration_since(self.host.now());
            let source = within(&self.host, left, self.keeper.next_source()).await;
            let source = source.ok_or_else(|| give_up(want, &why))?;
            self.host.tell(Event::From(source.clone()));
            let trouble = match self.read_from(&source).await {
                Ok(()) => break,
                Err(trouble) => trouble,
            };
            wrong_first += u32::from(source == Source::First && matches!(trouble, Trouble::Bad(_)));
            why = self.leave(&source, trouble).await?;
            if wrong_first >= WRONG_FIRST_MAX {
                // It may have another image by now, which the keeper has not heard of.
                if keep::find(&self.host, want).await?.0 != *self.image.sum() {
                    return Err(End::Replaced);
                }
                return Err(Failure::Wrong(format!(
                    "the first server's image is not as its sums say: {why}"
                ))
                .into());
            }
            if self.image.arrived() > progress.0 {
                progress = (self.image.arrived(), self.host.now());
                pause = PAUSE_MIN;
            }
            if self.host.now() >= progress.1 + want.patience {
                return Err(give_up(want, &why).into());
            }
            self.host.sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        if let Some(whole) = &self.whole {
            check_pin(want, &whole.borrow().clone().finalize().into())?;
        }
        self.content.sync().await.map_err(Failure::Local)?;
        Ok(Report {
            sum: self.image.sum().clone(),
            time: Duration::ZERO,
            bytes_from_first: self.bytes_from_first.get(),
            left: self.left.get(),
        })
    }

    /// Has done with a source; answers why, or that nothing will help.
    async fn leave(&self, source: &Source, trouble: Trouble) -> std::result::Result<String, End> {
        let (why, is_bad) = match trouble {
            Trouble::Local(error) => return Err(Failure::Local(error).into()),
            Trouble::Bad(why) => (why, true),
            Trouble::Lost(why) => {
                if *source == Source::First {
                    self.keeper.lose();
                }
                (why, false)
            }
            Trouble::Silent => {
                let mut stalls = self.stalls.borrow_mut();
                let count = stalls.entry(source.clone()).or_default();
                *count += 1;
                // Once it may have waited itself.
                ("it has been silent".to_owned(), *count > 1)
            }
            // Whoever is slow may be all that there is: the next choice is the server's, in turn.
            Trouble::Slow(rate) => {
                self.rates.borrow_mut().insert(source.clone(), rate);
                (format!("it sends {} KiB/s only", rate >> 10), false)
            }
        };
        if is_bad {
            self.keeper.complain(&why).await;
        }
        self.left.set(self.left.get() + 1);
        self.host.tell(Event::Left(source.clone(), why.clone()));
        Ok(format!("{source}: {why}"))
    }

    async fn read_from(&self, source: &Source) -> std::result::Result<(), Trouble> {
        let conn = self.connect(source).await?;
        let path = |file: &str| [self.names.clone(), vec![file.into()]].concat();
        if *source != Source::First {
            let head = self.image.sum().head();
            let names = path("sum");
            let theirs = self.in_time(source::read_text(&conn, &names, head.len())).await?;
            if theirs != head {
                return Err(Trouble::Bad("it has another image of this name".into()));
            }
        }
        let data = self.in_time(source::open(&conn, &path("data"), O_RDONLY)).await?;
        let sum = self.image.sum();
        let mut next = (self.image.arrived() / u64::from(sum.chunk_bytes)) as usize;
        let mut asked = next;
        let (mut chunks, arrived) = (FuturesOrdered::new(), Rc::new(Cell::new(0)));
        let begun = self.host.now();
        while next < sum.count() {
            while asked < sum.count() && chunks.len() < CHUNKS_AHEAD {
                let (begin, length) = sum.chunk(asked);
                let (conn, fid) = (conn.clone(), data.number());
                chunks.push_back(source::read_range(conn, fid, begin, length, arrived.clone()));
                asked += 1;
            }
            let pieces = loop {
                let before = arrived.get();
                match within(&self.host, SILENCE_MAX, chunks.next()).await {
                    Some(pieces) => break pieces.expect("one was asked for"),
                    None if arrived.get() == before => return Err(Trouble::Silent),
                    // A part of it has come.
                    None => self.check_rate(source, begun, arrived.get())?,
                }
            };
            let pieces = pieces.map_err(|error| match error {
                CallError::Errno(errno) if errno.code == Errno::EPROTO => {
                    Trouble::Bad(format!("it sends too little: {errno}"))
                }
                error => error.into(),
            })?;
            self.take(next, pieces, source).await?;
            next += 1;
            self.check_rate(source, begun, arrived.get())?;
        }
        Ok(())
    }

    /// A volunteer that is slow is left, once, and again where another has been twice as fast: a machine with a bad
    /// cable keeps no other from what the rest could send.
    fn check_rate(
        &self,
        source: &Source,
        begun: Instant,
        bytes: u64,
    ) -> std::result::Result<(), Trouble> {
        let time = self.host.now().saturating_duration_since(begun);
        if *source == Source::First || time < RATE_TIME {
            return Ok(());
        }
        let rate = (bytes as f64 / time.as_secs_f64()) as u64;
        let rates = self.rates.borrow();
        let others = rates.iter().filter(|(other, _)| *other != source);
        let best = others.map(|(_, rate)| *rate).max().unwrap_or(0);
        let is_new = !rates.contains_key(source);
        if rate < SLOW_RATE && (is_new || best / 2 > rate) {
            return Err(Trouble::Slow(rate));
        }
        Ok(())
    }

    async fn connect(&self, source: &Source) -> std::result::Result<Conn, Trouble> {
        if *source == Source::First {
            return self.keeper.conn().ok_or_else(|| Trouble::Lost("not connected".into()));
        }
        let why = match within(&self.host, DIAL_MAX, self.host.dial(source)).await {
            Some(Ok(conn)) => return Ok(conn),
            Some(Err(error)) => error.to_string(),
            None => "no answer".to_owned(),
        };
        Err(Trouble::Bad(format!("cannot connect: {why}")))
    }

    async fn in_time<T>(
        &self,
        call: impl Future<Output = source::Result<T>>,
    ) -> std::result::Result<T, Trouble> {
        let answer = within(&self.host, SILENCE_MAX, call).await;
        Ok(answer.ok_or(Trouble::Silent)??)
    }

    /// Looks at a chunk, and only then keeps it.
    async fn take(
        &self,
        index: usize,
        pieces: Vec<Bytes>,
        source: &Source,
    ) -> std::result::Result<(), Trouble> {
        let sum = self.image.sum();
        if !sum.is_chunk(index, &pieces) {
            let count = sum.count();
            return Err(Trouble::Bad(format!("chunk {index} of {count} has another hash")));
        }
        if let Some(whole) = &self.whole {
            pieces.iter().for_each(|piece| whole.borrow_mut().update(piece));
        }
        let (begin, length) = sum.chunk(index);
        self.content.write(begin, pieces).await.map_err(Trouble::Local)?;
        let end = begin + u64::from(length);
        self.image.has_arrived(end);
        if *source == Source::First {
            self.bytes_from_first.set(self.bytes_from_first.get() + u64::from(length));
        }
        self.host.tell(Event::Arrived(end));
        Ok(())
    }
}

fn give_up(want: &Want, why: &str) -> Failure {
    let seconds = want.patience.as_secs();
    Failure::Lost(format!("no byte has come for {seconds} s; last: {why}"))
}

/// How long a source may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(5);
/// What a volunteer sends at least, in bytes a second, or another is asked for: a tenth of Fast Ethernet.
const SLOW_RATE: u64 = 1 << 20;
/// For how long that is watched.
const RATE_TIME: Duration = Duration::from_secs(10);
/// How long a volunteer may take to accept a connection.
const DIAL_MAX: Duration = Duration::from_secs(3);
/// The least time to serve others afterwards.
const SERVE_MIN: Duration = Duration::from_secs(5);
/// How long to wait before another source is asked for.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often a fetch begins anew because the image was replaced.
const RESTARTS_MAX: u32 = 3;
/// How often the first server may send a chunk that its own sums do not fit.
const WRONG_FIRST_MAX: u32 = 3;
/// Used by [`keep`]: longest sums.
pub(super) const SUMS: usize = SUM_BYTES_MAX;
