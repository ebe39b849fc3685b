//! The process that holds a lab and is its network.
//!
//! It is started twice over: the first ([`prepare`]) is in the new namespaces but not the first process of
//! them, so it starts the second ([`run`]), which is. That one makes the nodes, one after another, by
//! moving itself into new namespaces and opening them, and then moves frames until it is killed.

mod timing;

pub use timing::Timing;

use super::control::{Answer, Ask, CableStatus, Status, WayStatus};
use super::enter::{NODE_NAMESPACES, descriptor, ourselves};
use super::fabric::{Fabric, Setting, Way};
use super::floor::Floor;
use super::plan::{End, Plan};
use super::profile::HOST_QUEUE_PACKETS;
use super::state::Lab;
use crate::error::{Cannot, Error, Result};
use bytes::Bytes;
use covey_io::os::tap::{self, Interface, MTU_MAX, Tap};
use covey_io::os::{namespaces, place};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::mount::{MountFlags, MountPropagationFlags};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::Instant;
use timing::{Margin, Timekeeper};

/// With more frames under way than this nobody measures a latency, and waiting awake would take the CPU
/// that the nodes need.
const BUSY_FRAMES: usize = 4;
/// How long frames may then wait for one another, to be handed over together.
const TOGETHER_NS: u64 = 15_000;
/// How many frames of one card are taken at a time.
const BATCH: usize = 64;
/// Longest question.
const QUESTION_BYTES_MAX: usize = 64 << 10;
/// How many may be asking; the one who has been longest is dropped for another.
const ASKERS_MAX: usize = 16;

/// Starts the keeper proper and answers its number as the outside sees it.
pub fn prepare(lab: &Lab) -> Result<u32> {
    let mut command = Command::new(ourselves());
    command.args(["lab", "keep", "--first"]).arg(&lab.dir);
    let child = command.spawn().cannot(|| "start the keeper")?;
    Ok(child.id())
}

/// Makes the nodes and moves frames, for ever.
pub fn run(lab: &Lab) -> Result<()> {
    let plan = lab.plan()?;
    namespaces::reap_by_itself();
    covey_io::os::limits::raise_open_files().cannot(|| "open many files")?;
    own_mounts()?;
    // Before the nodes' namespaces: the socket is met in the directory by everybody.
    let socket = lab.file("control.sock");
    let listener =
        UnixListener::bind(&socket).cannot(|| format!("listen at {}", socket.display()))?;
    listener.set_nonblocking(true).cannot(|| "listen")?;
    let mut cards = Vec::new();
    let mut kept = Vec::new();
    for node in 0..plan.nodes.len() {
        let (made, namespaces) = make_node(lab, &plan, node)
            .cannot(|| format!("make node {}", plan.nodes[node]))
            .map_err(explain)?;
        cards.extend(made);
        kept.extend(namespaces);
    }
    // The keeper itself is on none of them.
    namespaces::new_machine().cannot(|| "leave the last node")?;
    let _ = rustix::system::sethostname(format!("keeper-{}", lab.name).as_bytes());
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let first = place::run_first().is_ok();
    // Cards were made node by node; the plan counts them network by network.
    let mut in_order: Vec<Option<Tap>> = plan.cards.iter().map(|_| None).collect();
    cards.into_iter().for_each(|(index, tap)| in_order[index] = Some(tap));
    let cards = in_order.into_iter().map(|tap| tap.expect("every card was made")).collect();
    Keeper::new(plan, cards, listener, first).keep()
}

fn own_mounts() -> Result<()> {
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    rustix::mount::mount_change("/", private).cannot(|| "keep mounts to the lab")?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", "/proc", "proc", flags, None)
        .cannot(|| "mount /proc for the lab")
        .map_err(|error| error.hint("some containers forbid it; --privileged permits it"))
}

fn explain(error: Error) -> Error {
    if error.message.contains(tap::DEVICE) {
        error
            .hint(format!("network cards need {}, readable and writable", tap::DEVICE))
            .hint(format!("most systems permit it to all: `chmod 666 {}`", tap::DEVICE))
    } else {
        error
    }
}

type Made = (Vec<(usize, Tap)>, Vec<OwnedFd>);

/// A node: this process moves into new namespaces, furnishes them and opens them.
fn make_node(lab: &Lab, plan: &Plan, node: usize) -> std::io::Result<Made> {
    namespaces::new_machine()?;
    rustix::system::sethostname(plan.nodes[node].as_bytes())?;
    // Its own chatter would be measured too. A kernel without IPv6 has no such file.
    let _ = std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
    // Anybody may ping.
    let _ = std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0");
    tap::switch_on("lo")?;
    let hosts = lab.file("hosts");
    if Path::new("/etc/hosts").exists() {
        rustix::mount::mount_bind(hosts.as_path(), "/etc/hosts")?;
    }
    let mut cards = Vec::new();
    for (index, card) in plan.cards_of(node) {
        let interface = Interface {
            name: &card.interface,
            mac: card.mac,
            address: (card.address, 24),
            mtu: plan.networks[card.network].profile.mtu,
            queue_packets: HOST_QUEUE_PACKETS,
        };
        let tap = Tap::new(&interface).map_err(|error| {
            let text = format!("card {} by {}: {error}", card.interface, tap::DEVICE);
            std::io::Error::new(error.kind(), text)
        })?;
        tell_speed(plan, card);
        cards.push((index, tap));
    }
    let mut kept = Vec::new();
    for (kind, name) in NODE_NAMESPACES.iter().enumerate() {
        let file = File::open(format!("/proc/self/ns/{name}"))?;
        let number = descriptor(node, kind);
        let kept_fd = rustix::io::fcntl_dupfd_cloexec(&file, number)?;
        assert_eq!(kept_fd.as_raw_fd(), number, "descriptors from {number} on are free");
        kept.push(kept_fd);
    }
    Ok((cards, kept))
}

/// Programs that ask the card for its speed are told that of the wire. A kernel that cannot is no obstacle.
fn tell_speed(plan: &Plan, card: &super::plan::Card) {
    if let Some(rate) = plan.networks[card.network].profile.bits_per_s {
        let megabits = u32::try_from(rate / 1_000_000).unwrap_or(u32::MAX);
        let _ = covey_io::os::card::set_speed(&card.interface, megabits);
    }
}

struct Keeper {
    plan: Plan,
    cards: Vec<Tap>,
    listener: UnixListener,
    askers: Vec<Asker>,
    fabric: Fabric,
    begin: Instant,
    floor: Option<Floor>,
    time: Timekeeper,
    margin: Margin,
    buffer: Vec<u8>,
}

impl Keeper {
    fn new(plan: Plan, cards: Vec<Tap>, listener: UnixListener, first: bool) -> Keeper {
        let fabric = plan.fabric();
        let buffer = vec![0; MTU_MAX as usize + 64];
        let (begin, time) = (Instant::now(), Timekeeper::new(first));
        Keeper {
            plan,
            cards,
            listener,
            askers: Vec::new(),
            fabric,
            begin,
            floor: None,
            time,
            margin: Margin::new(),
            buffer,
        }
    }

    fn now_ns(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn keep(mut self) -> Result<()> {
        let mut ready = vec![true; self.cards.len()];
        loop {
            for card in (0..self.cards.len()).filter(|card| ready[*card]) {
                self.take_frames(card);
            }
            self.deliver();
            let before_ns = self.now_ns();
            let asked = self.sleep(before_ns, &mut ready)?;
            let now_ns = self.now_ns();
            self.time.slept(before_ns, now_ns);
            if asked {
                self.talk();
            }
        }
    }

    fn take_frames(&mut self, card: usize) {
        for _ in 0..BATCH {
            // A card that fails has no frames; the others go on.
            let Ok(Some(bytes)) = self.cards[card].read(&mut self.buffer) else { return };
            let frame = Bytes::copy_from_slice(&self.buffer[..bytes]);
            let now_ns = self.now_ns();
            self.fabric.handle_frame(now_ns, card, frame);
            // Whoever sends many frames at once holds up nobody else's.
            if self.fabric.poll_deadline().is_some_and(|due_ns| due_ns <= now_ns) {
                self.deliver();
            }
        }
    }

    fn deliver(&mut self) {
        let now_ns = self.now_ns();
        while let Some(delivery) = self.fabric.poll_delivery(now_ns) {
            let taken = self.cards[delivery.card].write(&delivery.frame);
            self.time.delivered(self.begin.elapsed().as_nanos() as u64, delivery.due_ns, taken);
        }
    }

    /// Waits for a frame, a question, or until a frame is due. Answers whether somebody talks to us.
    fn sleep(&mut self, now_ns: u64, ready: &mut [bool]) -> Result<bool> {
        let mut fds: Vec<PollFd<'_>> =
            self.cards.iter().map(|card| PollFd::new(card, PollFlags::IN)).collect();
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        fds.extend(self.askers.iter().map(|asker| PollFd::new(&asker.stream, PollFlags::IN)));
        let wait_ns = self.fabric.poll_deadline().map(|due| due.saturating_sub(now_ns));
        let wait_ns = wait_ns.map(|wait| match wait {
            _ if self.fabric.travelling() > BUSY_FRAMES => wait.max(TOGETHER_NS),
            // Nearer to its time than the margin, a frame is waited for awake: sleep would overshoot.
            wait => wait.saturating_sub(self.margin.ns()),
        });
        let limit = wait_ns.map(|ns| Timespec {
            tv_sec: (ns / 1_000_000_000) as i64,
            tv_nsec: (ns % 1_000_000_000) as _,
        });
        match poll(&mut fds, limit.as_ref()) {
            Ok(0) => {
                let slept_ns = self.begin.elapsed().as_nanos() as u64 - now_ns;
                if let Some(wait_ns) = wait_ns.filter(|wait_ns| *wait_ns > 0) {
                    self.margin.overslept(slept_ns.saturating_sub(wait_ns));
                }
            }
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).cannot(|| "wait for frames"),
        }
        let (cards, talk) = fds.split_at(ready.len());
        for (ready, fd) in ready.iter_mut().zip(cards) {
            *ready = !fd.revents().is_empty();
        }
        Ok(talk.iter().any(|fd| !fd.revents().is_empty()))
    }

    /// Takes in what askers say, without ever waiting for one.
    fn talk(&mut self) {
        if let Ok((stream, _)) = self.listener.accept()
            && stream.set_nonblocking(true).is_ok()
        {
            self.askers.push(Asker { stream, said: Vec::new() });
        }
        for mut asker in std::mem::take(&mut self.askers) {
            match asker.listen() {
                Heard::Nothing => self.askers.push(asker),
                Heard::End => {}
                Heard::Question(Ok(question)) => {
                    let answer = self.answer_to(question);
                    asker.tell(&answer);
                }
                Heard::Question(Err(why)) => asker.tell(&Answer::Refused(why)),
            }
        }
        if self.askers.len() > ASKERS_MAX {
            self.askers.remove(0);
        }
    }

    fn answer_to(&mut self, question: Ask) -> Answer {
        match question {
            Ask::Status => Answer::Status(self.status()),
            Ask::Floor(floor) => {
                self.set_floor(floor);
                Answer::Done
            }
            Ask::Set { cables, from, pairs } => match self.set(&cables, from, &pairs) {
                Ok(()) => Answer::Done,
                Err(why) => Answer::Refused(why),
            },
        }
    }

    fn status(&self) -> Status {
        let way = |cable, way| WayStatus {
            settings: self.fabric.settings(cable, way).clone(),
            counts: self.fabric.counts(cable, way),
        };
        let cables = (0..self.plan.cables.len())
            .map(|cable| CableStatus { ways: [way(cable, Way::There), way(cable, Way::Back)] });
        Status { floor: self.floor, timing: self.time.timing(), cables: cables.collect() }
    }

    fn set_floor(&mut self, floor: Floor) {
        self.floor = Some(floor);
        for (index, cable) in self.plan.cables.iter().enumerate() {
            for way in [Way::There, Way::Back] {
                let mut settings = self.fabric.settings(index, way).clone();
                settings.delay_ns = self.plan.delay_ns(cable, floor.latency_ns);
                self.fabric.set(index, way, settings);
            }
        }
    }

    /// Changes all of it or nothing.
    fn set(
        &mut self,
        cables: &[usize],
        from: Option<usize>,
        pairs: &[(String, String)],
    ) -> std::result::Result<(), String> {
        let ways = match from {
            None => vec![Way::There, Way::Back],
            Some(0) => vec![Way::There],
            Some(_) => vec![Way::Back],
        };
        let mut changed = Vec::new();
        for cable in cables {
            if *cable >= self.plan.cables.len() {
                return Err(format!("there is no cable {cable}"));
            }
            for way in &ways {
                let mut settings = self.fabric.settings(*cable, *way).clone();
                for (key, value) in pairs {
                    let setting = Setting::named(key).ok_or(format!("`{key}` cannot be set"))?;
                    setting.apply(value, &mut settings)?;
                }
                changed.push((*cable, *way, settings));
            }
        }
        for (cable, way, settings) in changed {
            self.tell_cards(cable, settings.is_down);
            self.fabric.set(cable, way, settings);
        }
        Ok(())
    }

    /// A card sees whether its cable is plugged in.
    fn tell_cards(&self, cable: usize, is_down: bool) {
        for end in self.plan.cables[cable].ends {
            if let End::Card(card) = end {
                let _ = self.cards[card].set_carrier(!is_down);
            }
        }
    }
}

/// Who has connected and not yet finished the question.
struct Asker {
    stream: UnixStream,
    said: Vec<u8>,
}

enum Heard {
    Nothing,
    End,
    Question(std::result::Result<Ask, String>),
}

impl Asker {
    fn listen(&mut self) -> Heard {
        let mut piece = [0; 4096];
        match (&self.stream).read(&mut piece) {
            Ok(0) => return Heard::End,
            Ok(bytes) => self.said.extend_from_slice(&piece[..bytes]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return Heard::Nothing,
            Err(_) => return Heard::End,
        }
        let Some(end) = self.said.iter().position(|byte| *byte == b'\n') else {
            let long = self.said.len() > QUESTION_BYTES_MAX;
            return if long { Heard::End } else { Heard::Nothing };
        };
        let question = serde_json::from_slice(&self.said[..end]);
        Heard::Question(
            question.map_err(|error| format!("cannot understand the question: {error}")),
        )
    }

    /// An answer fits into the socket; one who does not take it in is left alone.
    fn tell(&self, answer: &Answer) {
        if let Ok(mut line) = serde_json::to_vec(answer) {
            line.push(b'\n');
            let limit = Some(std::time::Duration::from_millis(20));
            let _ = self.stream.set_nonblocking(false);
            let _ = self.stream.set_write_timeout(limit);
            let _ = (&self.stream).write_all(&line);
        }
    }
}
