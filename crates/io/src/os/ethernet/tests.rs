//! Endpoints of two machines: two threads, each in a network of its own, and a wire between them.

use crate::lane::{Choice, Wire};
use crate::os::mixed::{Address, Mixed, Secret, Settings};
use crate::os::{namespaces, shm};
use covey_harness::skip;
use covey_wire::transport::{Refused, Sink};
use covey_wire::{Peer, Rng, Transport};
use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// One of the two.
struct Machine {
    number: usize,
    to_other: Sender<Word>,
    from_other: Receiver<Word>,
}

enum Word {
    Thread(u32),
    Ready,
    Address(Box<Address>),
    Done,
}

impl Machine {
    fn say(&self, word: Word) {
        self.to_other.send(word).expect("the other one listens");
    }

    fn hear(&self) -> Word {
        self.from_other.recv_timeout(PATIENCE).expect("the other one says something")
    }

    fn is_told_done(&self) -> bool {
        matches!(self.from_other.try_recv(), Ok(Word::Done))
    }
}

/// How the two are connected.
#[derive(Clone, Copy)]
struct Cable {
    mtus: [u32; 2],
    /// Whether the addresses are those of a VLAN.
    has_vlan: bool,
}

const CABLE: Cable = Cable { mtus: [1500; 2], has_vlan: false };

/// Runs the same on two machines with a wire between them; none where they cannot be made.
fn two_machines(cable: Cable, each: impl Fn(&Machine) + Send + Sync) -> bool {
    if !rustix::process::geteuid().is_root() || ip(&["-V"]).is_err() {
        skip("needs root, and ip of iproute2");
        return false;
    }
    let (to_second, from_first) = channel();
    let (to_first, from_second) = channel();
    let ends = [(to_second, from_second), (to_first, from_first)];
    let each = &each;
    thread::scope(|scope| {
        let machines: Vec<_> = ends
            .into_iter()
            .enumerate()
            .map(|(number, (to_other, from_other))| {
                let machine = Machine { number, to_other, from_other };
                scope.spawn(move || {
                    if let Err(error) = machine.connect(cable) {
                        skip(format!("no networks of our own: {error}"));
                        return false;
                    }
                    each(&machine);
                    true
                })
            })
            .collect();
        let done: Vec<bool> =
            machines.into_iter().map(|machine| machine.join().expect("it is right")).collect();
        done.iter().all(|done| *done)
    })
}

impl Machine {
    /// A network, and the wire to the other.
    fn connect(&self, cable: Cable) -> std::io::Result<()> {
        namespaces::new_machine()?;
        self.say(Word::Thread(rustix::thread::gettid().as_raw_nonzero().get() as u32));
        let Word::Thread(other) = self.hear() else { panic!("no thread") };
        if self.number == 0 {
            let [mtu, other_mtu] = cable.mtus.map(|mtu| mtu.to_string());
            ip(&[
                "link",
                "add",
                "wire",
                "mtu",
                &mtu,
                "type",
                "veth",
                "peer",
                "name",
                "wire",
                "mtu",
                &other_mtu,
                "netns",
                &other.to_string(),
            ])?;
        }
        self.say(Word::Ready);
        self.hear();
        let address = format!("10.7.0.{}/24", self.number + 1);
        let name = if cable.has_vlan { "wire.7" } else { "wire" };
        if cable.has_vlan {
            ip(&["link", "add", "link", "wire", "name", name, "type", "vlan", "id", "7"])?;
        }
        ip(&["addr", "add", &address, "dev", name])?;
        ip(&["link", "set", "wire", "up"])?;
        ip(&["link", "set", name, "up"])
    }

    /// An endpoint, and its peer on the other machine.
    fn meet(&self, choice: Choice) -> End {
        self.meet_in_job(b"quail", choice)
    }

    /// The same, when short packets have come to go by frames.
    fn meet_over_frames(&self) -> End {
        let mut end = self.meet(Choice::Always);
        end.exchange(100);
        end.until(|end| end.uses_ethernet());
        end
    }

    fn meet_in_job(&self, secret: &[u8], choice: Choice) -> End {
        let address = Ipv4Addr::new(10, 7, 0, self.number as u8 + 1);
        let settings = Settings {
            shm: shm::Settings { heap_bytes: 1 << 16, peers_max: 2, ..shm::Settings::default() },
            tcp: Some((address, 0).into()),
            ethernet: choice,
            ..Settings::default()
        };
        let mut mixed = Mixed::new(&settings).expect("a transport");
        let here = mixed.open(&settings, Secret::of(secret)).expect("a door");
        self.say(Word::Address(Box::new(here)));
        let Word::Address(there) = self.hear() else { panic!("no address") };
        let peer = mixed.call(&there).expect("a peer");
        End { mixed, peer, heard: Heard::default(), sent: 0, goal: 0 }
    }
}

fn ip(arguments: &[&str]) -> std::io::Result<()> {
    let done = Command::new("ip").args(arguments).output()?;
    if done.status.success() {
        return Ok(());
    }
    Err(std::io::Error::other(String::from_utf8_lossy(&done.stderr).into_owned()))
}

#[derive(Default)]
struct Heard {
    /// Packets that have come, all in order.
    count: u32,
    is_dead: bool,
}

impl Sink for Heard {
    fn packet(&mut self, _: Peer, head: &[u8], payload: &[u8]) {
        let number = u32::from_le_bytes(head[1..5].try_into().expect("a number"));
        assert_eq!(number, self.count, "all arrive, once and in order");
        assert_eq!(payload.len(), bytes_of(number));
        assert!(payload.iter().all(|byte| *byte == number as u8));
        self.count += 1;
    }

    fn dead(&mut self, _: Peer) {
        self.is_dead = true;
    }
}

/// Most are short, some so long that they go by TCP.
fn bytes_of(number: u32) -> usize {
    let number = number as usize;
    match number % 16 {
        15 => (number * 61) % 40_000,
        14 => 1400 + number % 200,
        _ => number % 300,
    }
}

struct End {
    mixed: Mixed,
    peer: Peer,
    heard: Heard,
    sent: u32,
    /// Packets that both have sent, and heard, when an exchange has ended.
    goal: u32,
}

impl End {
    fn poll(&mut self) {
        self.mixed.poll(64, &mut self.heard);
    }

    fn until(&mut self, mut is_so: impl FnMut(&mut End) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            self.poll();
            assert!(begun.elapsed() < PATIENCE, "it does not come true");
        }
    }

    fn send(&mut self) -> Result<(), Refused> {
        let number = self.sent;
        let head = [&[1][..], &number.to_le_bytes()].concat();
        self.mixed.send(self.peer, &head, bytes_of(number), |place| place.fill(number as u8))?;
        self.sent += 1;
        Ok(())
    }

    /// Sends and hears so many.
    fn exchange(&mut self, count: u32) {
        self.goal += count;
        self.until(End::is_done);
    }

    /// Goes on with an exchange, and says whether it has ended.
    fn is_done(&mut self) -> bool {
        while self.sent < self.goal && self.send().is_ok() {}
        let is_done = self.sent >= self.goal && self.heard.count >= self.goal;
        assert!(is_done || !self.heard.is_dead, "nobody dies");
        is_done
    }

    /// Talks until the other one is found to be dead.
    fn until_dead(&mut self) {
        self.until(|end| {
            let _ = end.send();
            end.heard.is_dead
        });
        assert_eq!(self.send(), Err(Refused::Dead));
    }

    fn uses_ethernet(&self) -> bool {
        self.mixed.ethernet(self.peer).0
    }
}

#[test]
fn two_machines_use_frames_for_what_is_short_with_any_mtu_and_in_a_vlan() {
    let cables = [
        CABLE,
        Cable { mtus: [9000; 2], ..CABLE },
        Cable { mtus: [9000, 1500], ..CABLE },
        Cable { has_vlan: true, ..CABLE },
    ];
    for cable in cables {
        two_machines(cable, |machine| {
            let mut end = machine.meet_over_frames();
            end.exchange(5000);
            assert_eq!(end.mixed.why_no_ethernet(), None);
            assert!(end.uses_ethernet());
            bye(machine, &mut end);
        });
    }
}

#[test]
fn frames_that_the_kernel_loses_go_again() {
    two_machines(CABLE, |machine| {
        let mut end = machine.meet_over_frames();
        end.mixed.lane().wire().lose(100).expect("a filter");
        end.exchange(2000);
        bye(machine, &mut end);
    });
}

#[test]
fn a_lost_frame_arrives_though_its_sender_does_not_call_any_more() {
    two_machines(CABLE, |machine| {
        let mut end = machine.meet_over_frames();
        end.exchange(100);
        bye(machine, &mut end);
        if machine.number == 0 {
            // Everything is lost that comes now.
            end.mixed.lane().wire().lose(1000).expect("a filter");
            machine.say(Word::Ready);
            machine.hear();
            end.mixed.lane().wire().lose(0).expect("a filter");
            end.until(|end| end.heard.count > 100);
            machine.say(Word::Done);
        } else {
            machine.hear();
            end.until(|end| end.send().is_ok());
            machine.say(Word::Ready);
            // It computes until the other one has it.
            machine.hear();
        }
    });
}

#[test]
fn an_interface_that_goes_down_for_a_while_loses_nothing() {
    two_machines(CABLE, |machine| {
        let mut end = machine.meet_over_frames();
        for _ in 0..2 {
            end.exchange(500);
            if machine.number == 0 {
                ip(&["link", "set", "wire", "down"]).expect("it goes down");
                for _ in 0..100 {
                    let _ = end.send();
                    end.poll();
                }
                thread::sleep(Duration::from_millis(200));
                ip(&["link", "set", "wire", "up"]).expect("it comes up");
            }
            end.exchange(500);
        }
        bye(machine, &mut end);
    });
}

#[test]
fn a_peer_that_ends_is_found_to_be_dead() {
    two_machines(CABLE, |machine| {
        let mut end = machine.meet_over_frames();
        end.exchange(100);
        bye(machine, &mut end);
        if machine.number == 1 {
            end.until_dead();
        }
    });
}

#[test]
fn a_peer_that_is_cut_off_is_found_to_be_dead_by_both() {
    let cuts = [&["link", "set", "wire", "down"][..], &["link", "del", "wire"][..]];
    // They take five seconds each, and nearly no work.
    thread::scope(|scope| {
        for cut in cuts {
            scope.spawn(move || {
                two_machines(CABLE, |machine| {
                    let mut end = machine.meet_over_frames();
                    end.exchange(100);
                    bye(machine, &mut end);
                    if machine.number == 0 {
                        ip(cut).expect("it is cut");
                    }
                    end.until_dead();
                })
            });
        }
    });
}

#[test]
fn two_jobs_share_an_interface() {
    two_machines(CABLE, |machine| {
        let mut ends = [b"quail", b"finch"].map(|job| machine.meet_in_job(job, Choice::Always));
        let begun = Instant::now();
        for goal in [100, 1000] {
            ends.iter_mut().for_each(|end| end.goal = goal);
            while !ends.iter_mut().fold(true, |is_done, end| {
                end.poll();
                is_done & end.is_done() & end.uses_ethernet()
            }) {
                assert!(begun.elapsed() < PATIENCE, "it does not come true");
            }
        }
        machine.say(Word::Done);
        while !machine.is_told_done() {
            ends.iter_mut().for_each(End::poll);
            assert!(begun.elapsed() < PATIENCE, "the other one never ends");
        }
    });
}

#[test]
fn frames_that_somebody_else_forges_are_dropped_and_a_flood_of_them_loses_nothing() {
    two_machines(CABLE, |machine| {
        let mut end = machine.meet_over_frames();
        let mut rng = Rng::new(1);
        let forged = if machine.number == 0 { 1000 } else { 0 };
        for _ in 0..10 {
            // More than the ring has slots for, and all of them with the number that its filter lets pass.
            for round in 0..forged {
                let (peer, lane) = (Peer(0), end.mixed.lane());
                let mut names = lane.names(peer).expect("they were told");
                match round % 3 {
                    0 => names[8 + rng.index(8)] ^= 1 << rng.index(8),
                    1 => names[4..].fill_with(|| rng.next() as u8),
                    _ => names[5] ^= 1,
                }
                let mut frame = names.to_vec();
                frame.extend((0..16 + rng.index(100)).map(|_| rng.next() as u8));
                if rng.chance(500) {
                    // A header that is right: 64 bytes of acknowledged, and lost, packets.
                    frame.resize(96, 0);
                    frame[28..32].copy_from_slice(&[0, 0, rng.index(6) as u8, 0]);
                }
                lane.wire().send(peer, &frame);
            }
            end.exchange(100);
        }
        bye(machine, &mut end);
    });
}

#[test]
fn who_has_nothing_to_do_sleeps() {
    two_machines(CABLE, |machine| {
        let mut end = machine.meet_over_frames();
        end.exchange(100);
        bye(machine, &mut end);
        let events = end.mixed.sleep_on().expect("a descriptor");
        let (begun, mut rounds) = (Instant::now(), 0);
        while begun.elapsed() < Duration::from_millis(500) {
            end.poll();
            rounds += 1;
            if end.mixed.prepare_sleep() {
                is_woken(events, Duration::from_millis(50));
                end.mixed.woke();
            }
        }
        // What was not acknowledged keeps it awake for 2 ms; one that burns makes a hundred thousand of them.
        assert!(rounds < 10_000, "it looks {rounds} times in half a second");
        bye(machine, &mut end);
    });
}

#[test]
fn who_may_not_open_such_a_socket_uses_tcp_and_says_why() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    two_machines(CABLE, |machine| {
        if machine.number == 0 {
            let mut ours = capabilities(None).expect("capabilities");
            ours.effective.remove(CapabilitySet::NET_RAW);
            set_capabilities(None, ours).expect("fewer capabilities");
        }
        let mut end = machine.meet(Choice::Always);
        end.exchange(1000);
        assert!(!end.uses_ethernet());
        let why = end.mixed.why_no_ethernet().unwrap_or_default();
        assert_eq!(why.contains("not permitted"), machine.number == 0, "{why}");
        bye(machine, &mut end);
    });
}

#[test]
fn who_sleeps_is_woken_by_a_frame() {
    two_machines(CABLE, |machine| {
        let mut end = machine.meet_over_frames();
        let events = end.mixed.sleep_on().expect("a descriptor");
        for round in 0..50_u32 {
            if machine.number == 1 {
                thread::sleep(Duration::from_millis(2));
                end.until(|end| end.send().is_ok());
            }
            let wanted = 101 + round;
            while machine.number == 0 && end.heard.count < wanted {
                end.poll();
                if end.heard.count < wanted && end.mixed.prepare_sleep() {
                    assert!(
                        is_woken(events, Duration::from_secs(10)),
                        "round {round}: it sleeps for ever"
                    );
                    end.mixed.woke();
                }
            }
        }
        bye(machine, &mut end);
    });
}

fn is_woken(events: i32, patience: Duration) -> bool {
    // SAFETY: the transport has it open, and is not dropped meanwhile.
    let events = unsafe { std::os::fd::BorrowedFd::borrow_raw(events) };
    let mut fds = [rustix::event::PollFd::new(&events, rustix::event::PollFlags::IN)];
    let patience = patience.try_into().expect("a short time");
    rustix::event::poll(&mut fds, Some(&patience)).expect("a wait") > 0
}

/// Goes on until the other one has all it wants.
fn bye(machine: &Machine, end: &mut End) {
    machine.say(Word::Done);
    let begun = Instant::now();
    while !machine.is_told_done() {
        end.poll();
        assert!(begun.elapsed() < PATIENCE, "the other one never ends");
    }
}

const PATIENCE: Duration = Duration::from_secs(30);
