//! Images as files: the tree that first servers and volunteers serve.

use super::held::Image;
use super::roster::{Offer, Party};
use super::{LocalFuture, Source};
use covey_ninep::control::Lines;
use covey_ninep::message::Qid;
use covey_ninep::tree::{
    Attach, Attr, Data, Directory, Entry, Errno, Opened, Outcome, Read, Result, S_IFDIR, S_IFREG,
    SetAttr, Time, Tree, User, Write, Written,
};
use covey_wire::{Bytes, Name, fnv1a};
use futures_util::future::{Either, select};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What the tree asks of the world.
pub trait World: 'static {
    /// The clock.
    fn now(&self) -> Instant;
    /// Completes after `time`.
    fn sleep(&self, time: Duration) -> LocalFuture<()>;
    /// Something worth a line in the server's log.
    fn report(&self, line: &str);
}

/// Which images there are.
pub trait Library: 'static {
    /// The images as they are now: by name, and by machine architecture.
    fn look(&self) -> Outcome<Rc<Catalogue>>;
}

/// Images by name and by machine architecture.
pub type Catalogue = BTreeMap<Name, BTreeMap<Name, Rc<Image>>>;

impl Library for Rc<Catalogue> {
    fn look(&self) -> Outcome<Rc<Catalogue>> {
        Ok(self.clone()).into()
    }
}

/// The tree.
pub struct Images {
    inner: Rc<Inner>,
}

struct Inner {
    world: Box<dyn World>,
    library: Box<dyn Library>,
    log: RefCell<VecDeque<String>>,
    /// Since when, and how many lines were reported since.
    reported: Cell<(Option<Instant>, u32)>,
    /// A volunteer: it has no volunteers of its own.
    is_volunteer: bool,
}

/// A file of the tree, held by somebody.
#[derive(Clone)]
pub struct Node {
    at: At,
    party: Rc<Party>,
}

#[derive(Clone)]
enum At {
    Root,
    Log(Rc<RefCell<Lines>>),
    /// An image's name.
    Image(Name),
    /// One image for one architecture.
    Arch(Name, Rc<Image>),
    File(Kind, Name, Rc<Image>),
    /// Open.
    Avail(Rc<Avail>),
    Redir(Rc<Redir>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Data,
    Avail,
    Redir,
    Sum,
}

const KINDS: [(&str, Kind); 4] =
    [("data", Kind::Data), ("avail", Kind::Avail), ("redir", Kind::Redir), ("sum", Kind::Sum)];

/// An open `avail`: a registration that lasts as long.
struct Avail {
    name: Name,
    image: Rc<Image>,
    number: Cell<Option<u64>>,
}

/// An open `redir`: a reader's place.
struct Redir {
    name: Name,
    image: Rc<Image>,
    number: u64,
    /// What was answered, for the rest of a reading.
    text: RefCell<Bytes>,
}

impl Images {
    /// The tree of a first server.
    pub fn new(world: impl World, library: impl Library) -> Images {
        Images::with(world, library, false)
    }

    /// The tree of a volunteer, which names no other source.
    pub fn of_volunteer(world: impl World, library: impl Library) -> Images {
        Images::with(world, library, true)
    }

    fn with(world: impl World, library: impl Library, is_volunteer: bool) -> Images {
        let (world, library) = (Box::new(world), Box::new(library));
        let (log, reported) = (RefCell::default(), Cell::default());
        let inner = Inner { world, library, log, reported, is_volunteer };
        Images { inner: Rc::new(inner) }
    }

    /// Volunteers and readers of each image, as lines `IMAGE/ARCH BYTES VOLUNTEERS READERS`.
    pub fn state(catalogue: &Catalogue) -> String {
        let mut text = String::new();
        for (name, archs) in catalogue {
            for (arch, image) in archs {
                let (volunteers, readers) = image.roster.borrow().counts();
                let bytes = image.sum().bytes;
                text += &format!("{name}/{arch} {bytes} {volunteers} {readers}\n");
            }
        }
        text
    }
}

impl Tree for Images {
    type Node = Node;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Node)> {
        let uid = attach.peer.uid.unwrap_or(NOBODY);
        let user = User { uid, gid: uid, groups: vec![uid] };
        self.enter(&user, attach)
    }

    fn enter(&self, user: &User, attach: Attach) -> Outcome<(User, Qid, Node)> {
        let node = Node { at: At::Root, party: Rc::new(party(&attach.peer.name)) };
        Ok((user.clone(), node.qid(), node)).into()
    }

    fn walk(&self, _: &Rc<User>, from: &Node, names: &[Name]) -> Outcome<Vec<(Qid, Node)>> {
        // Below an architecture, and where nothing is named, no library needs to be looked at.
        let is_held =
            matches!(from.at, At::Arch(..)) && names.iter().all(|name| name.as_bytes() != b"..");
        if names.is_empty() || is_held {
            return walk((from.clone(), names.to_vec(), Rc::default())).into();
        }
        let (from, names) = (from.clone(), names.to_vec());
        self.inner.library.look().map(move |catalogue| (from, names, catalogue)).and(walk)
    }

    fn getattr(&self, _: &Rc<User>, node: &Node) -> Outcome<Attr> {
        Ok(node.attr(&self.inner)).into()
    }

    /// A shell that redirects to a file truncates it, which changes nothing.
    fn setattr(&self, _: &Rc<User>, node: &Node, _: SetAttr) -> Outcome<()> {
        match &node.at {
            At::Log(_) | At::Avail(_) | At::Redir(_) => Ok(()).into(),
            At::File(Kind::Avail | Kind::Redir, ..) => Ok(()).into(),
            _ => Errno::EROFS.into(),
        }
    }

    fn open(&self, _: &Rc<User>, node: &Node, flags: u32) -> Outcome<Opened<Node>> {
        Outcome::now(|| {
            let is_read_only = flags & O_ACCMODE == 0;
            let at = match &node.at {
                At::Log(_) => At::Log(Rc::default()),
                At::File(Kind::Avail, ..) if self.inner.is_volunteer => {
                    return Err(Errno::because(Errno::EPERM, "a volunteer has no volunteers"));
                }
                At::File(Kind::Avail, name, image) => At::Avail(Rc::new(Avail {
                    name: name.clone(),
                    image: image.clone(),
                    number: Cell::new(None),
                })),
                At::File(Kind::Redir, name, image) => At::Redir(Rc::new(Redir {
                    name: name.clone(),
                    image: image.clone(),
                    number: image.roster.borrow_mut().enter(&node.party),
                    text: RefCell::default(),
                })),
                at if is_read_only => at.clone(),
                _ => return Err(Errno::because(Errno::EROFS, "images are only read here")),
            };
            let blocking = match &at {
                At::Redir(_) => true,
                At::File(Kind::Data, _, image) => !image.is_whole(),
                _ => false,
            };
            let node = Node { at, party: node.party.clone() };
            Ok(Opened { qid: node.qid(), node, blocking })
        })
    }

    fn read(&self, _: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        match &node.at {
            At::File(Kind::Data, _, image) => image.read(read),
            At::File(Kind::Sum, _, image) => read.of(image.sum_text()),
            At::Log(_) => read.of(&self.inner.log_text()),
            At::Avail(avail) => read.of(&avail.text()),
            At::Redir(redir) if read.offset > 0 => read.of(&redir.text.borrow()),
            At::Redir(redir) => redir.clone().ask(self.inner.clone(), read.count),
            _ => Errno::EISDIR.into(),
        }
    }

    fn write(&self, _: &Rc<User>, node: &Node, write: Write) -> Written {
        write.received(|_, data| {
            let count = data.len() as u32;
            let done = match &node.at {
                At::Avail(avail) => avail.register(&self.inner, &node.party, &data),
                At::Redir(redir) => redir.complain(&self.inner, &node.party, &data),
                At::Log(lines) => lines.borrow_mut().push(&data).map(|lines| {
                    let from = &node.party.peer;
                    lines.iter().for_each(|line| self.inner.note(&format!("{from}: {line}")));
                }),
                _ => Err(Errno::EROFS.into()),
            };
            done.map(|()| count).into()
        })
    }

    fn readdir(&self, _: &Rc<User>, node: &Node, after: u64, max: u32) -> Outcome<Vec<Entry>> {
        let (inner, node) = (self.inner.clone(), node.clone());
        self.inner.library.look().and(move |catalogue| list(&inner, &node, &catalogue, after, max))
    }
}

/// What an outcome leads to next.
trait And<T> {
    fn and<U: 'static>(self, next: impl FnOnce(T) -> Result<U> + 'static) -> Outcome<U>;
}

impl<T: 'static> And<T> for Outcome<T> {
    fn and<U: 'static>(self, next: impl FnOnce(T) -> Result<U> + 'static) -> Outcome<U> {
        match self {
            Outcome::Now(result) => Outcome::Now(result.and_then(next)),
            Outcome::Later(later) => Outcome::later(async move { later.await.and_then(next) }),
        }
    }
}

fn walk((from, names, catalogue): (Node, Vec<Name>, Rc<Catalogue>)) -> Result<Vec<(Qid, Node)>> {
    let (mut at, mut steps) = (from, Vec::with_capacity(names.len()));
    for name in &names {
        match step(&at, name, &catalogue) {
            Ok(next) => {
                at = Node { at: next, party: at.party };
                steps.push((at.qid(), at.clone()));
            }
            Err(error) if steps.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(steps)
}

fn step(from: &Node, name: &Name, catalogue: &Catalogue) -> Result<At> {
    let is_up = name.as_bytes() == b"..";
    let absent = || Errno::from(Errno::ENOENT);
    Ok(match &from.at {
        At::Root if is_up => At::Root,
        At::Root if name.as_bytes() == b"log" => At::Log(Rc::default()),
        At::Root if catalogue.contains_key(name) => At::Image(name.clone()),
        At::Root => return Err(absent()),
        At::Image(_) if is_up => At::Root,
        At::Image(image) => {
            let archs = catalogue.get(image).ok_or_else(absent)?;
            At::Arch(image.clone(), archs.get(name).ok_or_else(absent)?.clone())
        }
        At::Arch(image, _) if is_up => At::Image(image.clone()),
        At::Arch(image, held) => {
            let kind = KINDS.iter().find(|(word, _)| word.as_bytes() == name.as_bytes());
            At::File(kind.ok_or_else(absent)?.1, image.clone(), held.clone())
        }
        _ => return Err(Errno::ENOTDIR.into()),
    })
}

fn list(
    inner: &Inner,
    node: &Node,
    catalogue: &Catalogue,
    after: u64,
    max: u32,
) -> Result<Vec<Entry>> {
    let here = |at: At| Node { at, party: node.party.clone() };
    let mut names = Directory::default();
    let mut put = |name: Name, at: At| names.insert(name, here(at));
    match &node.at {
        At::Root => {
            put("log".into(), At::Log(Rc::default()))?;
            let images = catalogue.keys().filter(|name| name.as_bytes() != b"log");
            images.cloned().try_for_each(|name| put(name.clone(), At::Image(name)))?;
        }
        At::Image(image) => {
            let archs = catalogue.get(image).ok_or(Errno::ENOENT)?;
            archs.iter().try_for_each(|(arch, held)| {
                put(arch.clone(), At::Arch(image.clone(), held.clone()))
            })?;
        }
        At::Arch(image, held) => KINDS.iter().try_for_each(|(word, kind)| {
            put((*word).into(), At::File(*kind, image.clone(), held.clone()))
        })?,
        _ => return Err(Errno::ENOTDIR.into()),
    }
    let above = match &node.at {
        At::Arch(image, _) => At::Image(image.clone()),
        _ => At::Root,
    };
    Ok(names.list(after, max, [node.clone(), here(above)], |node| node.attr(inner)))
}

impl Node {
    fn qid(&self) -> Qid {
        let file = |image: &Image, kind: u64| (image.number << 3 | kind) << 1 | 1;
        let named = |name: &Name| fnv1a(name.as_bytes()) << 1;
        let (kind, path) = match &self.at {
            At::Root => (Qid::DIR, ROOT),
            At::Log(_) => (Qid::FILE, LOG),
            At::Image(name) => (Qid::DIR, named(name)),
            At::Arch(_, image) => (Qid::DIR, file(image, 7)),
            At::File(kind, _, image) => (Qid::FILE, file(image, *kind as u64)),
            At::Avail(avail) => (Qid::FILE, file(&avail.image, Kind::Avail as u64)),
            At::Redir(redir) => (Qid::FILE, file(&redir.image, Kind::Redir as u64)),
        };
        Qid { kind, version: 0, path }
    }

    fn attr(&self, inner: &Inner) -> Attr {
        let (mode, size) = match &self.at {
            At::Root | At::Image(_) | At::Arch(..) => (S_IFDIR | 0o555, 0),
            At::Log(_) => (S_IFREG | 0o666, inner.log_text().len() as u64),
            At::File(Kind::Data, _, image) => (S_IFREG | 0o444, image.sum().bytes),
            At::File(Kind::Sum, _, image) => (S_IFREG | 0o444, image.sum_text().len() as u64),
            At::File(..) | At::Avail(_) | At::Redir(_) => (S_IFREG | 0o666, 0),
        };
        let qid = self.qid();
        let attr = Attr::new(qid.path, mode, 0, 0, Time::default());
        Attr { qid, size, blocks: size.div_ceil(512), ..attr }
    }
}

impl Avail {
    /// "PORT SECONDS [BYTES]", and again to renew.
    fn register(&self, inner: &Rc<Inner>, party: &Party, data: &[u8]) -> Result<()> {
        let offer = Offer::parse(&String::from_utf8_lossy(data))?;
        let now = inner.world.now();
        {
            let mut roster = self.image.roster.borrow_mut();
            match self.number.get() {
                Some(number) => roster.renew(now, number, offer)?,
                None => {
                    let number = roster.register(now, party, offer);
                    let number = number
                        .inspect_err(|error| inner.note(&format!("{}: {error}", self.name)))?;
                    self.number.set(Some(number));
                }
            }
        }
        self.image.places.ring();
        Ok(())
    }

    fn text(&self) -> Bytes {
        let (volunteers, readers) = self.image.roster.borrow().counts();
        format!("volunteers {volunteers}\nreaders {readers}\n").into()
    }
}

impl Drop for Avail {
    fn drop(&mut self) {
        if let Some(number) = self.number.get() {
            self.image.roster.borrow_mut().unregister(number);
            self.image.places.ring();
        }
    }
}

impl Redir {
    /// Another source than before; waits for one that is not busy, for as long as is reasonable.
    fn ask(self: Rc<Self>, inner: Rc<Inner>, count: u32) -> Data {
        let previous = self.image.roster.borrow_mut().vacate(self.number);
        self.image.places.ring();
        if inner.is_volunteer {
            return Read::bytes(0, count).of(&self.tell(&Source::First));
        }
        Data::later(async move {
            let (look, world) = (self.clone(), inner.clone());
            let choice = self.image.places.wait(move || {
                let now = world.world.now();
                look.image.roster.borrow_mut().choose(now, look.number, previous.as_ref())
            });
            let patience = inner.world.sleep(PATIENCE);
            let found = match select(Box::pin(choice), patience).await {
                Either::Left((source, _)) => source,
                Either::Right(_) => self.image.roster.borrow_mut().choose_first(self.number),
            };
            let mut text = self.tell(&found);
            text.truncate(count as usize);
            Ok(text)
        })
    }

    fn tell(&self, source: &Source) -> Bytes {
        let help = match self.image.roster.borrow().wanted() {
            Some(time) => format!("help {} ", time.as_secs()),
            None => String::new(),
        };
        let text: Bytes = format!("{help}{source} 0\n").into();
        *self.text.borrow_mut() = text.clone();
        text
    }

    /// "bad WHY": of the source that it has named.
    fn complain(&self, inner: &Rc<Inner>, party: &Party, data: &[u8]) -> Result<()> {
        let text = String::from_utf8_lossy(data);
        let why = text
            .trim_end()
            .strip_prefix("bad ")
            .ok_or_else(|| Errno::because(Errno::EINVAL, format!("{text:.40?} is not bad WHY")))?;
        let complaint = self.image.roster.borrow_mut().complain(self.number);
        let Some((about, is_dropped)) = complaint else { return Ok(()) };
        let then = if is_dropped { "; it is dropped" } else { "" };
        inner.note(&format!("{}: {}: {about} is bad: {why}{then}", self.name, party.peer));
        self.image.places.ring();
        Ok(())
    }
}

impl Drop for Redir {
    fn drop(&mut self) {
        self.image.roster.borrow_mut().leave(self.number);
        self.image.places.ring();
    }
}

impl Inner {
    /// Keeps a line for those who read `log`, and reports it.
    fn note(&self, line: &str) {
        let is_plain = |c: char| !c.is_control();
        let line: String = line.chars().filter(|c| is_plain(*c)).take(LINE_CHARS_MAX).collect();
        if self.may_report() {
            self.world.report(&line);
        }
        let mut log = self.log.borrow_mut();
        if log.len() >= LOG_LINES_MAX {
            log.pop_front();
        }
        log.push_back(line);
    }

    /// Whoever writes to `log` must not fill the server's own.
    fn may_report(&self) -> bool {
        let now = self.world.now();
        let (since, count) = match self.reported.get() {
            (Some(since), count) if now < since + REPORT_TIME => (since, count + 1),
            _ => (now, 1),
        };
        self.reported.set((Some(since), count));
        count <= REPORTS_MAX
    }

    fn log_text(&self) -> Bytes {
        let lines = self.log.borrow();
        lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect::<String>().into()
    }
}

/// The party behind a connection that is called `tcp!HOST!PORT`; one that comes by another way has no address.
fn party(peer: &str) -> Party {
    let host = match peer.split('!').collect::<Vec<_>>()[..] {
        ["tcp", host, _] => host.to_owned(),
        _ => String::new(),
    };
    let is_loopback = |host: &str| {
        host.parse::<core::net::IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
    };
    Party { peer: peer.to_owned(), is_local: host.is_empty() || is_loopback(&host), host }
}

/// How long a reader waits for a volunteer before the first server takes it.
const PATIENCE: Duration = Duration::from_secs(2);
/// Lines of `log` that are kept.
const LOG_LINES_MAX: usize = 512;
/// Lines that are reported in [`REPORT_TIME`] at most.
const REPORTS_MAX: u32 = 60;
const REPORT_TIME: Duration = Duration::from_secs(60);
/// Longest of them.
const LINE_CHARS_MAX: usize = 240;
/// What Linux calls a user that has no number here.
const NOBODY: u32 = 65534;
const O_ACCMODE: u32 = 3;
const ROOT: u64 = 2;
const LOG: u64 = 4;

#[cfg(test)]
mod tests;
