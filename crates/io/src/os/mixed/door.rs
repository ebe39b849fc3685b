//! The door of an endpoint: where others come, and from where it calls them. Nothing here waits.
//!
//! Two that call each other at once end with one connection: that of the one whose id is smaller. Both know it as soon as
//! one of them has heard the other's name, and the other call is told so.

use super::Settings;
use super::address::{Address, Id, this_host};
use super::greeting::{Greeting, Step, Verdict};
use super::line::{Line, Socket};
use super::secret::Secret;
use super::sides::Sides;
use crate::os::{clock, random, shm};
use covey_wire::Peer;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// What is known of an endpoint that was heard of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Its connection is yet to come.
    Meeting,
    /// It is, or was, connected.
    Met,
}

#[derive(Debug)]
pub(super) struct Door {
    pub me: Address,
    secret: Secret,
    is_near_off: bool,
    near: UnixListener,
    far: Option<TcpListener>,
    /// Who has come, by its own socket and by TCP, and has not proven itself: the one who came first is first. One kind does
    /// not keep out the other.
    near_callers: Vec<Caller>,
    far_callers: Vec<Caller>,
    /// Who has proven itself, and what memory it shares is to come.
    sharing: Vec<(Peer, shm::Meeting)>,
    calls: Vec<Call>,
    pub known: HashMap<Id, (Peer, Known)>,
}

#[derive(Debug)]
struct Caller {
    line: Box<Line>,
    /// What it had said by now was read.
    is_heard: bool,
    until: Instant,
}

/// A call of ours.
#[derive(Debug)]
struct Call {
    peer: Peer,
    to: Address,
    by_tcp: bool,
    state: CallState,
    /// For a call by its own socket.
    spare: Option<shm::Spare>,
    /// Since when it has failed without a sign of the other.
    failed: Option<Instant>,
    pause: Duration,
}

#[derive(Debug)]
enum CallState {
    /// To be tried, not before this.
    Next(Instant),
    Connects(Socket, Instant),
    Greets(Box<Line>),
    Shares(shm::Meeting),
    /// The other calls us; when it has not by then, it is called again.
    Expects(Instant),
}

impl Door {
    /// A door that others find by its address, `me`.
    pub fn open(settings: &Settings, secret: Secret, events: &OwnedFd) -> io::Result<Door> {
        let mut me = Address {
            id: random::bytes()?,
            host: this_host(),
            user: rustix::process::geteuid().as_raw(),
            process: std::process::id(),
            tcp: None,
        };
        let near = listen(&me)?;
        epoll::add(events, &near, EventData::new_u64(0), EventFlags::IN)?;
        let far = settings.tcp.map(TcpListener::bind).transpose()?;
        if let Some(far) = &far {
            far.set_nonblocking(true)?;
            // For more who come at once than it was made for.
            rustix::net::listen(far, BACKLOG)?;
            me.tcp = Some(far.local_addr()?);
            epoll::add(events, far, EventData::new_u64(0), EventFlags::IN)?;
        }
        Ok(Door {
            me,
            secret,
            is_near_off: !settings.near,
            near,
            far,
            near_callers: Vec::new(),
            far_callers: Vec::new(),
            sharing: Vec::new(),
            calls: Vec::new(),
            known: HashMap::new(),
        })
    }

    /// The peer that an endpoint is, if it is one. One that is dead is none: it may not have been met because it was said
    /// wrongly where it is, or have come because it was said wrongly where another one is, and gone again.
    pub fn peer_of(&self, them: &Address, sides: &Sides) -> Option<Peer> {
        let &(peer, _) = self.known.get(&them.id).filter(|_| them.has_id())?;
        (!sides.is_dead(peer)).then_some(peer)
    }

    /// Whether somebody is about to become a peer.
    pub fn is_busy(&self) -> bool {
        let is_called = !self.near_callers.is_empty() || !self.far_callers.is_empty();
        is_called || !self.calls.is_empty() || !self.sharing.is_empty()
    }

    /// Whether no more are heard than may be.
    #[cfg(test)]
    pub fn is_bounded(&self) -> bool {
        self.near_callers.len().max(self.far_callers.len()) <= CALLERS_MAX
    }

    /// Whether somebody who was called is being greeted.
    #[cfg(test)]
    pub fn greets(&self) -> bool {
        self.calls.iter().any(|call| matches!(call.state, CallState::Greets(_)))
    }

    /// Calls that did not succeed at once.
    #[cfg(test)]
    pub fn failures(&self) -> usize {
        self.calls.iter().filter(|call| call.pause > PAUSE_MIN).count()
    }

    /// Calls an endpoint: it becomes this peer, or is found to be dead.
    pub fn call(&mut self, peer: Peer, to: Address) {
        let now = clock::monotonic();
        let by_tcp = !self.is_near(&to);
        self.calls.push(Call::new(peer, to, by_tcp, CallState::Next(now)));
    }

    /// Whether shared memory is tried: a process of this machine and user.
    fn is_near(&self, to: &Address) -> bool {
        let is_here = to.has_id() && to.host == self.me.host && to.user == self.me.user;
        is_here && !self.is_near_off
    }

    /// Takes in who has come, and goes on with everybody.
    pub fn look(&mut self, sides: &mut Sides, events: &OwnedFd) {
        self.look_at(clock::monotonic(), sides, events);
    }

    /// The same, at a time that a test says.
    pub fn look_at(&mut self, now: Instant, sides: &mut Sides, events: &OwnedFd) {
        // Those that are there are heard first, so that nobody is let go who has said what it had to.
        self.hear_all(now, sides, events);
        if self.take_in(now, events) {
            self.hear_all(now, sides, events);
        }
        for (peer, meeting) in std::mem::take(&mut self.sharing) {
            match self.share(peer, meeting, sides) {
                Ok(meeting) => self.sharing.extend(meeting.map(|meeting| (peer, meeting))),
                Err(_) => {
                    if let Some(them) = sides.name_of(peer).copied() {
                        self.expect(peer, them, now);
                    }
                }
            }
        }
        for call in std::mem::take(&mut self.calls) {
            let goes_on = self.go_on(call, sides, now, events);
            self.calls.extend(goes_on);
        }
    }

    /// Takes in who has come, and says whether somebody has: no more than there is room for.
    fn take_in(&mut self, now: Instant, events: &OwnedFd) -> bool {
        let (near, far) = (room(&self.near_callers), room(&self.far_callers));
        for _ in 0..near {
            match self.near.accept() {
                Ok((stream, _)) if self.is_ours(&stream) => {
                    self.admit(Socket::Near(stream), now, events);
                }
                Err(error) if is_later(&error) => break,
                _ => {}
            }
        }
        for _ in 0..far {
            match self.far.as_ref().map(TcpListener::accept) {
                Some(Ok((stream, _))) => self.admit(Socket::Far(stream), now, events),
                Some(Err(error)) if !is_later(&error) => {}
                _ => break,
            }
        }
        self.near_callers.iter().chain(&self.far_callers).any(|caller| !caller.is_heard)
    }

    /// Whether a process of our user has come.
    fn is_ours(&self, stream: &UnixStream) -> bool {
        crate::os::credentials::peer(stream).is_ok_and(|peer| peer.uid == self.me.user)
    }

    fn callers(&mut self, socket: &Socket) -> &mut Vec<Caller> {
        match socket {
            Socket::Near(_) => &mut self.near_callers,
            Socket::Far(_) => &mut self.far_callers,
        }
    }

    /// Hears somebody who has come. Where too many are, one is let go who was heard before: who has said nothing, else who
    /// came first. One of ours calls again.
    fn admit(&mut self, socket: Socket, now: Instant, events: &OwnedFd) {
        let Ok(nonce) = random::nonce() else { return };
        if socket.prepare().and_then(|()| watch(events, &socket, EventFlags::IN)).is_err() {
            return;
        }
        let callers = self.callers(&socket);
        if callers.len() >= CALLERS_MAX {
            let is_silent = |caller: &Caller| caller.is_heard && !caller.line.greeting.is_begun();
            callers.remove(callers.iter().position(is_silent).unwrap_or(0));
        }
        let greeting = Greeting::answers(&self.secret, &self.me, nonce);
        let line = Box::new(Line::new(socket, greeting, Vec::new()));
        self.callers(&line.socket).push(Caller { line, is_heard: false, until: now + PATIENCE });
    }

    fn hear_all(&mut self, now: Instant, sides: &mut Sides, events: &OwnedFd) {
        let near = std::mem::take(&mut self.near_callers);
        let near = near.into_iter().filter_map(|caller| self.hear(caller, sides, now, events));
        let near = near.collect();
        let far = std::mem::take(&mut self.far_callers);
        let far = far.into_iter().filter_map(|caller| self.hear(caller, sides, now, events));
        (self.near_callers, self.far_callers) = (near, far.collect());
    }

    /// Goes on with somebody who has come; none when that is over.
    fn hear(
        &mut self,
        mut caller: Caller,
        sides: &mut Sides,
        now: Instant,
        events: &OwnedFd,
    ) -> Option<Caller> {
        caller.is_heard = true;
        match caller.line.go_on() {
            Ok(Step::Proven(them)) => {
                unwatch(events, &caller.line.socket);
                let shares = self.decide(caller.line, them, sides, now);
                self.sharing.extend(shares);
                None
            }
            Ok(_) => (now < caller.until).then_some(caller),
            Err(_) => None,
        }
    }

    /// Whether somebody who has proven itself becomes a peer by this connection.
    fn decide(
        &mut self,
        mut line: Box<Line>,
        them: Address,
        sides: &mut Sides,
        now: Instant,
    ) -> Option<(Peer, shm::Meeting)> {
        if !them.has_id() || them.id == self.me.id {
            // We, at a wrong address.
            let _ = line.say(|greeting, out| greeting.decide(Verdict::Other, out));
            return None;
        }
        let known = self.known.get(&them.id).filter(|(peer, _)| !sides.is_dead(*peer)).copied();
        let ours = known.and_then(|(peer, _)| self.calls.iter().position(|call| call.peer == peer));
        let is_ours_first = ours.is_some_and(|at| match self.calls[at].state {
            CallState::Expects(_) => false,
            CallState::Shares(_) => true,
            _ => self.me.id < them.id,
        });
        if is_ours_first || matches!(known, Some((_, Known::Met))) {
            let _ = line.say(|greeting, out| greeting.decide(Verdict::Other, out));
            return None;
        }
        let peer = self.peer_of(&them, sides).unwrap_or_else(|| sides.arrived(them));
        self.known.insert(them.id, (peer, Known::Meeting));
        if let Some(at) = ours {
            self.calls.swap_remove(at);
        }
        let is_near = matches!(line.socket, Socket::Near(_));
        let spare = if is_near { sides.shm.spare() } else { None };
        let is_full = is_near && spare.is_none();
        let verdict = if is_full { Verdict::ByTcp } else { Verdict::Yes };
        if line.say(|greeting, out| greeting.decide(verdict, out)).is_err() || is_full {
            self.expect(peer, them, now);
            return None;
        }
        match line.socket {
            Socket::Near(stream) => match sides.shm.begin(stream, spare) {
                Ok(meeting) => Some((peer, meeting)),
                Err(_) => {
                    self.expect(peer, them, now);
                    None
                }
            },
            Socket::Far(stream) => {
                self.met(peer, them.id, sides.adopt(peer, stream), sides);
                None
            }
        }
    }

    /// The other calls; when it does not, it is called.
    fn expect(&mut self, peer: Peer, to: Address, now: Instant) {
        self.calls.push(Call::new(peer, to, true, CallState::Expects(now + PATIENCE)));
    }

    /// Goes on with a meeting over shared memory; none when that is over. One that fails is no reason to believe that the
    /// other is gone: they meet by TCP.
    fn share(
        &mut self,
        peer: Peer,
        meeting: shm::Meeting,
        sides: &mut Sides,
    ) -> io::Result<Option<shm::Meeting>> {
        let meeting = sides.go_on(peer, meeting)?;
        if meeting.is_none() {
            let known = sides.name_of(peer).and_then(|them| self.known.get_mut(&them.id));
            if let Some(known) = known.filter(|known| known.0 == peer) {
                known.1 = Known::Met;
            }
        }
        Ok(meeting)
    }

    fn met(&mut self, peer: Peer, id: Id, joined: io::Result<()>, sides: &mut Sides) {
        self.known.insert(id, (peer, Known::Met));
        if joined.is_err() {
            sides.lost(peer);
        }
    }

    fn is_met(&self, call: &Call) -> bool {
        self.known.get(&call.to.id) == Some(&(call.peer, Known::Met))
    }

    /// Goes on with a call; none when it is over.
    fn go_on(
        &mut self,
        mut call: Call,
        sides: &mut Sides,
        now: Instant,
        events: &OwnedFd,
    ) -> Option<Call> {
        if self.is_met(&call) {
            return None;
        }
        let state = std::mem::replace(&mut call.state, CallState::Next(now));
        match self.step(&mut call, state, sides, now, events) {
            Ok(Some(state)) => call.state = state,
            Ok(None) => return None,
            Err(error) if call.may_try_again(&error, now) => {}
            Err(_) => {
                sides.lost(call.peer);
                return None;
            }
        }
        Some(call)
    }

    /// What a call does next; none when it is over.
    fn step(
        &mut self,
        call: &mut Call,
        state: CallState,
        sides: &mut Sides,
        now: Instant,
        events: &OwnedFd,
    ) -> io::Result<Option<CallState>> {
        Ok(Some(match state {
            CallState::Next(then) if now < then => CallState::Next(then),
            CallState::Next(_) => self.begin(call, sides, now, events)?,
            CallState::Connects(socket, until) => {
                if socket.is_connected()? {
                    unwatch(events, &socket);
                    call.is_answered();
                    self.greet(socket, events)?
                } else if now >= until {
                    return Err(ErrorKind::TimedOut.into());
                } else {
                    CallState::Connects(socket, until)
                }
            }
            CallState::Greets(mut line) => match line.go_on()? {
                Step::Said(verdict, them) => {
                    unwatch(events, &line.socket);
                    return self.answered(call, line.socket, verdict, &them, sides, now);
                }
                _ => CallState::Greets(line),
            },
            CallState::Shares(meeting) => match self.share(call.peer, meeting, sides) {
                Ok(Some(meeting)) => CallState::Shares(meeting),
                Ok(None) => return Ok(None),
                Err(_) => {
                    call.by_tcp = true;
                    CallState::Next(now)
                }
            },
            CallState::Expects(until) if now < until => CallState::Expects(until),
            // It has not come: it computes, or is gone. Only a call tells which.
            CallState::Expects(_) => CallState::Next(now),
        }))
    }

    fn begin(
        &mut self,
        call: &mut Call,
        sides: &Sides,
        now: Instant,
        events: &OwnedFd,
    ) -> io::Result<CallState> {
        call.spare = None;
        if let Some(spare) = if call.by_tcp { None } else { sides.shm.spare() } {
            let socket = Socket::call_near(&call.to)?;
            call.is_answered();
            call.spare = Some(spare);
            return self.greet(socket, events);
        }
        let to = call.to.tcp.ok_or(ErrorKind::ConnectionRefused)?;
        let socket = Socket::call_far(to)?;
        watch(events, &socket, EventFlags::OUT)?;
        Ok(CallState::Connects(socket, now + PATIENCE))
    }

    fn greet(&self, socket: Socket, events: &OwnedFd) -> io::Result<CallState> {
        watch(events, &socket, EventFlags::IN)?;
        let (greeting, first) = Greeting::calls(&self.secret, &self.me, random::nonce()?);
        let mut line = Box::new(Line::new(socket, greeting, first));
        // Who says nothing is the first to be let go.
        line.say(|_, _| ())?;
        Ok(CallState::Greets(line))
    }

    /// What the called one has said, who has proven itself.
    fn answered(
        &mut self,
        call: &mut Call,
        socket: Socket,
        verdict: Verdict,
        them: &Address,
        sides: &mut Sides,
        now: Instant,
    ) -> io::Result<Option<CallState>> {
        let spare = call.spare.take();
        if them.id == self.me.id || call.to.has_id() && call.to.id != them.id {
            // Another endpoint has the address of one that is gone.
            return Err(ErrorKind::ConnectionRefused.into());
        }
        if !call.to.has_id() {
            // One of which only the TCP address was known. Under its name it may be a peer already.
            if self.peer_of(them, sides).is_some() {
                return Err(ErrorKind::ConnectionRefused.into());
            }
            self.known.insert(them.id, (call.peer, Known::Meeting));
            sides.name(call.peer, *them);
            call.to = *them;
        }
        match (verdict, socket) {
            (Verdict::Other, _) => Ok(Some(CallState::Expects(now + PATIENCE))),
            (Verdict::ByTcp, _) => {
                call.by_tcp = true;
                Ok(Some(CallState::Next(now)))
            }
            (Verdict::Yes, Socket::Near(stream)) => {
                Ok(Some(CallState::Shares(sides.shm.begin(stream, spare)?)))
            }
            (Verdict::Yes, Socket::Far(stream)) => {
                self.met(call.peer, them.id, sides.adopt(call.peer, stream), sides);
                Ok(None)
            }
        }
    }
}

impl Call {
    fn new(peer: Peer, to: Address, by_tcp: bool, state: CallState) -> Call {
        Call { peer, to, by_tcp, state, spare: None, failed: None, pause: PAUSE_MIN }
    }

    /// Whether a failure is no reason to believe that the other is gone: then it is called again.
    fn may_try_again(&mut self, error: &io::Error, now: Instant) -> bool {
        let is_refused = error.kind() == ErrorKind::ConnectionRefused;
        if is_refused && !self.by_tcp && self.to.tcp.is_some() {
            // Its socket cannot be seen from here: another network namespace.
            self.by_tcp = true;
            return true;
        }
        if is_refused || error.kind() == ErrorKind::PermissionDenied {
            return false;
        }
        if is_busy(error) {
            self.is_answered();
        } else {
            // Nobody says anything; or it is we who lack a descriptor or memory for the moment.
            let is_silent = error.kind() == ErrorKind::TimedOut || is_short(error);
            let patience = if is_silent { SILENCE } else { PATIENCE };
            if now > *self.failed.get_or_insert(now) + patience {
                return false;
            }
        }
        self.state = CallState::Next(now + self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }

    /// The other's kernel has taken the call: its process is there.
    fn is_answered(&mut self) {
        self.failed = None;
    }
}

/// Whether the other is there, and has more callers than it can hear. Strangers may keep it so for as long as they like.
fn is_busy(error: &io::Error) -> bool {
    let kinds = [
        ErrorKind::WouldBlock,
        ErrorKind::UnexpectedEof,
        ErrorKind::ConnectionReset,
        ErrorKind::ConnectionAborted,
        ErrorKind::BrokenPipe,
    ];
    kinds.contains(&error.kind())
}

fn is_short(error: &io::Error) -> bool {
    let codes = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// For how many more there is room where all have been heard: in place of those that have said nothing. Where most have said
/// something they are not let go all at once, so that each can prove itself.
fn room(callers: &[Caller]) -> usize {
    let begun = callers.iter().filter(|caller| caller.line.greeting.is_begun()).count();
    (CALLERS_MAX - begun).max(CALLERS_MAX / 2)
}

/// Listens where others of this machine find it.
fn listen(me: &Address) -> io::Result<UnixListener> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(&me.socket_name())?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

fn watch(events: &OwnedFd, what: &Socket, flags: EventFlags) -> io::Result<()> {
    Ok(epoll::add(events, what, EventData::new_u64(0), flags)?)
}

fn unwatch(events: &OwnedFd, what: impl AsFd) {
    // It fails for what is not watched, and then nothing is to be done.
    let _ = epoll::delete(events, what);
}

/// Nobody else has come, or the one who came is gone again.
fn is_later(error: &io::Error) -> bool {
    error.kind() == ErrorKind::WouldBlock
}

/// Who is heard at once of each kind, without having proven itself; and who is taken in by one look.
const CALLERS_MAX: usize = 64;
const BACKLOG: i32 = 1024;
/// How long somebody may take to prove itself; for how long another's call is expected; and how long one is called that does
/// not answer well.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long one is called whose machine does not answer at all: as long as a kernel tries.
const SILENCE: Duration = Duration::from_secs(120);
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(100);
