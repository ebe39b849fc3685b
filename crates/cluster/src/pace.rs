//! The rates of this process's connections, as the nodes say whose ports they go through.
//!
//! A node with pacing tells each reader of its `/net/pace` what that reader's machine may send through the node's port. The file
//! answers when there is news. Whoever dials a node in a cluster with pacing follows that file by a connection of its own; the
//! limits last no longer than the node repeats them.
//!
//! ```text
//!   receiver 10.0.0.1:5640 10.0.0.2:43210 3912000     the reader's end, the other one, bytes of payload a second
//!   sender 10.0.0.2:5640 10.0.0.9:50112 1200000       the same for the node's own port, to readers on its machine
//!   begin 10.0.0.2 190000                             connections to that address that the node has not seen yet
//!   window 1048576                                    bytes that may be on their way on each connection to that node
//!   dscp 8                                            the mark of all packets of storage, for processes of its machine
//! ```

use crate::config::Config;
use crate::key::Keys;
use crate::net::{addresses, dial_node};
use covey_io::os::net::pacing::{self, Ends, Limit, Port};
use covey_ninep::client::{Conn, WINDOW_BYTES, Window};
use covey_ninep::message::Message;
use covey_ninep::tree::{Errno, Result};
use covey_wire::{List, Name};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

mod sayer;

pub use sayer::use_portal;

use sayer::Sayer;

/// The file, by its path from a node's root.
pub const FILE: &str = "net/pace";
/// A node repeats itself more often than this; its limits do not outlive its silence.
pub const SILENCE_MAX: Duration = Duration::from_secs(3);
/// How long a node that does not answer is left alone.
const PAUSE: Duration = Duration::from_secs(2);

/// Orders change a hundred times a second. A node that repeats itself faster is read no faster, and one that says more than a
/// few hundred connections need is read less often.
const READ_EVERY: Duration = Duration::from_millis(5);
const READ_EVERY_KIB: Duration = Duration::from_micros(250);
/// The least that may be on its way on a connection: a node that says less is not obeyed to the letter.
pub const WINDOW_BYTES_MIN: usize = 16 << 10;

/// How often it is looked for a connection that comes up: for a second, and for four more.
const SOON: Duration = Duration::from_millis(2);
const BETWEEN: Duration = Duration::from_millis(100);

/// What may be on its way on each of this process's connections to a node: as that node says, else as the cluster's file does.
pub fn window(server: &str) -> Window {
    terms().window(server)
}

/// What may be on its way on connections to all nodes that say nothing of it: as this process's own node is told.
pub fn set_windows(bytes: usize) {
    terms().settle_windows(bytes);
}

/// This process is in a cluster: where it paces, connections are enrolled from now on, on the terms that the cluster's file
/// names. Nodes may say others.
pub fn begin(config: &Config) {
    if !config.pacing.is_on {
        return;
    }
    pacing::enable();
    let mut terms = terms();
    terms.settle_windows(window_of(config));
    if terms.marker.is_none() {
        pacing::mark_all(mark_of(config));
    }
}

/// What holds for whole connections, whatever their rates. A node's word on its window holds for connections to it, and its
/// word on the mark only where it is this machine's own: what a node says changes nothing of connections to another one.
struct Terms {
    /// Of connections to nodes that say nothing.
    window_bytes: usize,
    windows: BTreeMap<String, Window>,
    /// The nodes that have said how large theirs is.
    speakers: BTreeSet<String>,
    /// The node whose mark holds. None: that of the cluster's file does.
    marker: Option<String>,
}

static TERMS: Mutex<Terms> = Mutex::new(Terms::new());

fn terms() -> MutexGuard<'static, Terms> {
    TERMS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn window_of(config: &Config) -> usize {
    config.pacing.window_bytes.unwrap_or(WINDOW_BYTES)
}

fn mark_of(config: &Config) -> u8 {
    config.pacing.dscp.unwrap_or(pacing::MARK_DEFAULT)
}

impl Terms {
    /// Nobody has said anything.
    const fn new() -> Terms {
        Terms {
            window_bytes: WINDOW_BYTES,
            windows: BTreeMap::new(),
            speakers: BTreeSet::new(),
            marker: None,
        }
    }

    fn window(&mut self, server: &str) -> Window {
        if let Some(known) = self.windows.get(server) {
            return known.clone();
        }
        let window = Window::default();
        window.set(self.window_bytes);
        self.windows.insert(server.to_owned(), window.clone());
        window
    }

    fn settle_windows(&mut self, bytes: usize) {
        self.window_bytes = bytes;
        let silent = self.windows.iter().filter(|(server, _)| !self.speakers.contains(*server));
        silent.for_each(|(_, window)| window.set(bytes));
    }

    /// What a node says.
    fn obey(&mut self, text: &str, server: &str, is_own: impl Fn() -> bool) {
        for line in text.lines() {
            match setting(line) {
                Some(Setting::Window(bytes)) => {
                    self.window(server).set(bytes);
                    self.speakers.insert(server.to_owned());
                }
                Some(Setting::Mark(mark)) if is_own() => {
                    pacing::mark_all(mark);
                    self.marker = Some(server.to_owned());
                }
                _ => {}
            }
        }
    }

    /// A node is silent: what it has said holds no longer. What another one says does.
    fn forget(&mut self, server: &str, config: &Config) {
        if self.speakers.remove(server) {
            self.window(server).set(self.window_bytes);
        }
        if self.marker.as_deref() == Some(server) {
            self.marker = None;
            pacing::mark_all(mark_of(config));
        }
    }
}

/// Those that are followed for connections that no [`crate::net::ClusterNet`] has made.
pub(crate) fn followed() -> Arc<Followed> {
    static FOLLOWED: LazyLock<Arc<Followed>> = LazyLock::new(Arc::default);
    FOLLOWED.clone()
}

/// Nodes that are followed.
#[derive(Debug, Default)]
pub struct Followed(Mutex<BTreeSet<String>>);

impl Followed {
    /// Follows a node, unless that is done already.
    pub(crate) fn follow(
        self: &Arc<Self>,
        config: &Arc<Config>,
        server: &str,
        keys: &Arc<Keys>,
        runtime: &Handle,
    ) {
        if !self.names().insert(server.to_owned()) {
            return;
        }
        let (all, config, keys) = (self.clone(), config.clone(), keys.clone());
        let server = server.to_owned();
        runtime.spawn(async move {
            follow(&config, &server, &keys).await;
            all.names().remove(&server);
        });
    }

    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Until this process has no connection left that could be paced, and none has come up since.
async fn follow(config: &Config, server: &str, keys: &Keys) {
    if addresses(config, server).is_ok() {
        attend(&mut Node { config, server, keys, limits: Limits::default() }).await;
    }
}

/// Somebody who says how fast connections may send.
trait Speaker {
    /// Whether there are any.
    fn is_wanted(&self) -> bool;
    /// Does what is said for as long as there are. An error: nothing is said.
    async fn listen(&mut self) -> Result<()>;
    /// The last connection has ended.
    fn is_left(&mut self);
    async fn sleep(&self, time: Duration);
}

/// A connection may come up while it is waited for, or soon after the last one has ended: an initiator logs in anew. It is listened
/// for at once then: what it sends before is not paced.
async fn attend(speaker: &mut impl Speaker) {
    while comes_up(speaker).await {
        while speaker.is_wanted() {
            if speaker.listen().await.is_err() {
                speaker.sleep(PAUSE).await;
            }
        }
        speaker.is_left();
        // Many that come and go in turn are not many that dial.
        speaker.sleep(BETWEEN).await;
    }
}

/// Whether a connection comes up: most often soon.
async fn comes_up(speaker: &impl Speaker) -> bool {
    let soon = std::iter::repeat_n(SOON, 500);
    for step in soon.chain(std::iter::repeat_n(BETWEEN, 40)) {
        speaker.sleep(step).await;
        if speaker.is_wanted() {
            return true;
        }
    }
    false
}

/// A node that is followed.
struct Node<'a> {
    config: &'a Config,
    server: &'a str,
    keys: &'a Keys,
    limits: Limits,
}

impl Speaker for Node<'_> {
    fn is_wanted(&self) -> bool {
        !pacing::list().is_empty()
    }

    async fn listen(&mut self) -> Result<()> {
        let listened = listen(self.config, self.server, self.keys, &mut self.limits).await;
        if let Err(error) = &listened {
            tracing::debug!("{} says nothing about rates: {error}", self.server);
        }
        self.limits.lift_all();
        terms().forget(self.server, self.config);
        listened
    }

    /// Those that come begin slowly again, until it is heard.
    fn is_left(&mut self) {
        std::mem::take(&mut self.limits.heard).into_iter().for_each(pacing::forget);
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

async fn listen(config: &Config, server: &str, keys: &Keys, limits: &mut Limits) -> Result<()> {
    let conn = dial_node(config, server, "/", keys.now()).await?;
    let fid = open(&conn).await?;
    let sayer = Sayer::of(config, server).await;
    while !pacing::list().is_empty() {
        let begun = Instant::now();
        let read = conn.call(Message::Tread { fid, offset: 0, count: READ_BYTES });
        let late = |_| Errno::because(Errno::ETIMEDOUT, "no word in 3 s");
        let data = match tokio::time::timeout(SILENCE_MAX, read).await.map_err(late)?? {
            Message::Rread { data } => data.into_bytes(),
            other => return Err(Errno::because(Errno::EPROTO, other.name())),
        };
        let text = String::from_utf8_lossy(&data);
        limits.obey(&text, &sayer);
        let ends = || pacing::list().into_iter().map(|(ends, _)| ends);
        terms().obey(&text, server, || sayer.is_here(ends()));
        tokio::time::sleep(pause_after(data.len()).saturating_sub(begun.elapsed())).await;
    }
    Ok(())
}

/// How long after the last question the next one comes, by what was answered: a node that says a lot takes neither this process's
/// CPU nor its wire.
fn pause_after(bytes: usize) -> Duration {
    let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
    READ_EVERY.max(READ_EVERY_KIB * kib)
}

async fn open(conn: &Conn) -> Result<u32> {
    let fid = conn.fid();
    let names = List(FILE.split('/').map(Name::from).collect());
    let walked = conn.call(Message::Twalk { fid: 0, newfid: fid, names });
    let opened = conn.call(Message::Tlopen { fid, flags: 0 });
    walked.await?;
    opened.await?;
    Ok(fid)
}

/// The limits that one node has set.
#[derive(Debug, Default)]
struct Limits {
    flows: BTreeSet<(Ends, bool)>,
    /// Its addresses, where it has set one for new connections.
    begin: BTreeSet<IpAddr>,
    /// Its addresses, since it was first heard.
    heard: BTreeSet<IpAddr>,
}

impl Limits {
    /// Sets the limits of a text, and lifts those that it does not repeat.
    fn obey(&mut self, text: &str, sayer: &Sayer) {
        let said = text.lines().filter_map(parse);
        let said: Vec<_> = said.filter(|(ends, port, _)| sayer.may_limit(ends, *port)).collect();
        let now: BTreeSet<_> =
            said.iter().map(|(ends, port, _)| (*ends, is_sender(*port))).collect();
        for (ends, is_sender) in self.flows.difference(&now) {
            pacing::limit(*ends, port_of(*is_sender), None);
        }
        for (ends, port, limit) in said {
            pacing::limit(ends, port, Some(limit));
        }
        self.flows = now;
        let begin = text.lines().filter_map(parse_begin);
        let begin: BTreeMap<_, _> = begin.filter(|(own, _)| sayer.receives_at(*own)).collect();
        for own in self.begin.iter().filter(|own| !begin.contains_key(own)) {
            pacing::limit_new(*own, None);
        }
        begin.iter().for_each(|(own, rate)| pacing::limit_new(*own, Some(*rate)));
        sayer.addresses().for_each(pacing::heard);
        self.heard.extend(sayer.addresses());
        self.begin = begin.into_keys().collect();
    }

    fn lift_all(&mut self) {
        for (ends, is_sender) in std::mem::take(&mut self.flows) {
            pacing::limit(ends, port_of(is_sender), None);
        }
        for own in std::mem::take(&mut self.begin) {
            pacing::limit_new(own, None);
        }
    }
}

/// What a node says of whole connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Setting {
    /// Bytes that may be on their way on each connection to it.
    Window(usize),
    /// The DSCP of packets.
    Mark(u8),
}

/// A line that is such a setting.
fn setting(line: &str) -> Option<Setting> {
    match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        ["window", bytes] => {
            let bytes: usize = bytes.parse().ok()?;
            Some(Setting::Window(bytes.max(WINDOW_BYTES_MIN)))
        }
        ["dscp", mark] => mark.parse().ok().filter(|mark| *mark < 64).map(Setting::Mark),
        _ => None,
    }
}

fn is_sender(port: Port) -> bool {
    port == Port::Sender
}

fn port_of(is_sender: bool) -> Port {
    if is_sender { Port::Sender } else { Port::Receiver }
}

/// A line of the file.
pub fn line(port: Port, (own, other): Ends, limit: Limit) -> String {
    let port = if is_sender(port) { "sender" } else { "receiver" };
    // Who does not know the last word sends full frames.
    let frames = if limit.in_half { " half" } else { "" };
    format!("{port} {own} {other} {}{frames}\n", limit.rate)
}

/// What a line says; none for one that this version does not know.
fn parse(line: &str) -> Option<(Ends, Port, Limit)> {
    let mut words = line.split_ascii_whitespace();
    let port = match words.next()? {
        "receiver" => Port::Receiver,
        "sender" => Port::Sender,
        _ => return None,
    };
    let ends = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let rate = words.next()?.parse().ok()?;
    Some((ends, port, Limit { rate, in_half: words.next() == Some("half") }))
}

/// A line for the connections to one of the node's addresses that it has not seen yet.
pub fn begin_line(own: IpAddr, rate: u64) -> String {
    format!("begin {own} {rate}\n")
}

fn parse_begin(line: &str) -> Option<(IpAddr, u64)> {
    match line.split_ascii_whitespace().collect::<Vec<_>>()[..] {
        ["begin", own, rate] => Some((own.parse().ok()?, rate.parse().ok()?)),
        _ => None,
    }
}

/// Lines of thousands of connections.
const READ_BYTES: u32 = 512 << 10;

#[cfg(test)]
mod tests;
