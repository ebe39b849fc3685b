//! The connection to the first server, which is made again for as long as it is needed: to be told sources, and to
//! be one.

use super::{End, Failure, Host, SUMS, Want, within};
use crate::image::held::Image;
use crate::image::source::{self, O_RDWR, O_WRONLY};
use crate::image::{Event, Source, Sum};
use covey_ninep::client::{CallError, Conn, Fid};
use covey_ninep::tree::{Bell, Errno};
use covey_wire::Name;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Finds the image at the first server, for the first architecture of those wanted that it has.
pub async fn find(host: &Rc<dyn Host>, want: &Want) -> std::result::Result<(Sum, Name), End> {
    let by = host.now() + want.patience;
    let mut pause = PAUSE_MIN;
    loop {
        let why = match within(host, ATTEMPT_MAX, attempt(host, want)).await {
            Some(Ok(found)) => return Ok(found),
            Some(Err(Attempt::End(end))) => return Err(end),
            Some(Err(Attempt::Again(why))) => why,
            None => NO_ANSWER.to_owned(),
        };
        if host.now() >= by {
            return Err(super::give_up(want, &why).into());
        }
        host.tell(Event::Waiting(why));
        host.sleep(pause).await;
        pause = (pause * 3 / 2).min(PAUSE_MAX);
    }
}

enum Attempt {
    End(End),
    Again(String),
}

impl From<Failure> for Attempt {
    fn from(failure: Failure) -> Attempt {
        Attempt::End(failure.into())
    }
}

impl From<CallError> for Attempt {
    fn from(error: CallError) -> Attempt {
        match error {
            CallError::Errno(errno) => Failure::Refused(errno).into(),
            lost => Attempt::Again(lost.to_string()),
        }
    }
}

async fn attempt(host: &Rc<dyn Host>, want: &Want) -> Result<(Sum, Name), Attempt> {
    let conn = match within(host, ANSWER_MAX, host.dial(&Source::First)).await {
        Some(Ok(conn)) => conn,
        Some(Err(error)) if is_final(&error) => return Err(Failure::Refused(error).into()),
        Some(Err(error)) => return Err(Attempt::Again(error.to_string())),
        None => return Err(Attempt::Again(NO_ANSWER.into())),
    };
    for arch in &want.archs {
        let names = [want.image.clone(), arch.clone(), "sum".into()];
        match source::read_text(&conn, &names, SUMS).await {
            Ok(text) => {
                let sum = Sum::parse(&text).map_err(Failure::Wrong)?;
                return Ok((sum, arch.clone()));
            }
            Err(CallError::Errno(errno)) if errno.code == Errno::ENOENT => {}
            Err(error) => return Err(error.into()),
        }
    }
    let archs: Vec<_> = want.archs.iter().map(|arch| arch.lossy().into_owned()).collect();
    let what = format!("it has no image {} for {}", want.image.lossy(), archs.join(" or "));
    Err(Failure::Refused(Errno::because(Errno::ENOENT, what)).into())
}

/// Whether it is of no use to ask again.
fn is_final(error: &Errno) -> bool {
    matches!(error.code, Errno::EACCES | Errno::EPERM | Errno::ENOENT | Errno::EINVAL)
}

/// Keeps the connection.
pub struct Keeper {
    host: Rc<dyn Host>,
    image: Rc<Image>,
    /// The image and its architecture.
    names: Vec<Name>,
    /// Where we serve it.
    port: Option<u16>,
    link: RefCell<Option<Rc<Link>>>,
    /// Rings when there is a connection, or none any more.
    changed: Bell,
}

struct Link {
    conn: Conn,
    redir: Fid,
    avail: Option<Fid>,
}

impl Keeper {
    pub fn new(
        host: Rc<dyn Host>,
        image: Rc<Image>,
        names: Vec<Name>,
        port: Option<u16>,
    ) -> Rc<Keeper> {
        let (link, changed) = (RefCell::default(), Bell::default());
        Rc::new(Keeper { host, image, names, port, link, changed })
    }

    /// Connects, renews and connects again. Ends only when the image is another one by then.
    pub async fn run(&self) -> End {
        let mut pause = PAUSE_MIN;
        loop {
            if self.link().is_none() {
                let attempt = within(&self.host, ATTEMPT_MAX, self.connect()).await;
                match attempt.unwrap_or_else(|| Err(Attempt::Again(NO_ANSWER.into()))) {
                    Ok(link) => {
                        *self.link.borrow_mut() = Some(Rc::new(link));
                        self.changed.ring();
                        pause = PAUSE_MIN;
                    }
                    Err(Attempt::End(end)) => return end,
                    Err(Attempt::Again(why)) => {
                        self.host.tell(Event::Waiting(why));
                        self.host.sleep(pause).await;
                        pause = (pause * 3 / 2).min(PAUSE_MAX);
                        continue;
                    }
                }
            }
            let gone = self.changed.wait(|| self.link().is_none().then_some(()));
            within(&self.host, RENEWAL, gone).await;
            self.renew().await;
        }
    }

    async fn connect(&self) -> Result<Link, Attempt> {
        // What refuses now took us before: it may be starting.
        let again = |why: &dyn ToString| Attempt::Again(why.to_string());
        let dialled = within(&self.host, ANSWER_MAX, self.host.dial(&Source::First)).await;
        let conn = dialled.ok_or_else(|| again(&NO_ANSWER))?.map_err(|error| again(&error))?;
        let head = self.image.sum().head();
        match source::read_text(&conn, &self.path("sum"), head.len()).await {
            Ok(theirs) if theirs == head => {}
            Ok(_) => return Err(Attempt::End(End::Replaced)),
            Err(error) => return Err(again(&error)),
        }
        // Registered before anything is asked for: others can be sent here at once.
        let avail = self.volunteer(&conn).await;
        let redir = source::open(&conn, &self.path("redir"), O_RDWR).await;
        let redir = redir.map_err(|error| again(&error))?;
        Ok(Link { conn, redir, avail })
    }

    /// Offers to serve; a server that wants no help is asked for none.
    async fn volunteer(&self, conn: &Conn) -> Option<Fid> {
        let offer = self.offer()?;
        let avail = source::open(conn, &self.path("avail"), O_WRONLY).await.ok()?;
        source::write(conn, avail.number(), offer).await.ok()?;
        Some(avail)
    }

    fn offer(&self) -> Option<String> {
        let (port, bytes) = (self.port?, self.image.arrived());
        Some(format!("{port} {} {bytes}\n", LEASE.as_secs()))
    }

    fn path(&self, file: &str) -> Vec<Name> {
        [self.names.clone(), vec![file.into()]].concat()
    }

    /// Says how far we are.
    pub async fn renew(&self) {
        let Some(link) = self.link() else { return };
        if link.conn.is_lost() {
            return self.lose();
        }
        let (Some(offer), Some(avail)) = (self.offer(), &link.avail) else { return };
        let written = source::write(&link.conn, avail.number(), offer);
        match within(&self.host, ANSWER_MAX, written).await {
            // It has expired, as when this machine was stopped, or was dropped.
            Some(Err(CallError::Errno(errno))) if errno.code == Errno::ESTALE => self.lose(),
            Some(Ok(()) | Err(CallError::Errno(_))) => {}
            Some(Err(_)) | None => self.lose(),
        }
    }

    fn link(&self) -> Option<Rc<Link>> {
        self.link.borrow().clone()
    }

    /// The connection is no good.
    pub fn lose(&self) {
        self.link.borrow_mut().take();
        self.changed.ring();
    }

    /// The connection, if there is one.
    pub fn conn(&self) -> Option<Conn> {
        self.link().map(|link| link.conn.clone())
    }

    /// Whom to read from next.
    pub async fn next_source(&self) -> Source {
        loop {
            let link = self.changed.wait(|| self.link()).await;
            let asked = source::read(&link.conn, link.redir.number(), 0, 512);
            let answer = within(&self.host, ANSWER_MAX, asked).await;
            let text = answer.and_then(|answer| answer.ok()).unwrap_or_default();
            if let Some((_, source)) = Source::parse(&String::from_utf8_lossy(&text)) {
                return source;
            }
            self.lose();
            self.host.sleep(PAUSE_MIN).await;
        }
    }

    /// Says what is wrong with the source that we were told last.
    pub async fn complain(&self, why: &str) {
        let Some(link) = self.link() else { return };
        let complaint = source::write(&link.conn, link.redir.number(), format!("bad {why}\n"));
        // It helps others only.
        let _ = within(&self.host, ANSWER_MAX, complaint).await;
    }
}

/// How often a volunteer says that it is there, and how far.
const RENEWAL: Duration = Duration::from_secs(2);
/// For how long that holds.
const LEASE: Duration = Duration::from_secs(10);
const NO_ANSWER: &str = "the server does not answer";
/// How long the first server may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long all may take together that is asked of it at first.
const ATTEMPT_MAX: Duration = Duration::from_secs(30);
/// Between attempts to reach the first server.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
