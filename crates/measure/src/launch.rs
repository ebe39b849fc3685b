//! How long a program takes to reach many nodes: the launcher's own code on simulated machines, in virtual time.
//!
//! Each machine has one port, which sends and receives at a rate with a queue. What is not simulated: the nodes' CPUs
//! and disks, and the start of the program itself.

mod machines;

use crate::error::{Error, Result};
use covey_io::sim::Sim;
use covey_io::sim::net::Quality;
use covey_io::task;
use covey_lab::profile::Profile;
use covey_launch::spawn::flow::{Later, Net, Source, hand_over};
use covey_launch::spawn::manifest::{Entry, EntryKind, Manifest};
use covey_launch::spawn::message::{Hash, Turn, hash};
use covey_ninep::client::{Conn, Fid};
use covey_ninep::message::Message;
use covey_ninep::tree::Errno;
use covey_wire::Bytes;
use machines::{Machines, SimNet, dial, open};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// What is spread, to how many, and how.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// Nodes beside the one that the command runs on.
    pub nodes: usize,
    /// The program.
    pub bytes: usize,
    /// To how many others a node passes it on.
    pub fan_out: usize,
}

/// What it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Took {
    /// From the first connection until every node has every byte.
    pub time: Duration,
    /// Bytes that left the command's machine.
    pub command_bytes: u64,
    /// Bytes that left the node which was served first.
    pub first_bytes: u64,
}

/// Bytes per second that a port of this network carries.
pub fn rate(profile: &Profile) -> Result<u64> {
    let bits = profile.tcp_bits_per_s();
    let none = || Error::user(format!("cannot simulate {}: it has no rate", profile.name));
    bits.map(|bits| (bits / 8.0) as u64).ok_or_else(none)
}

/// Spreads a program as `covey run` does. Every node is checked to have it.
pub fn simulate(spread: Spread, profile: &Profile) -> Result<Took> {
    let failed = |why: String| {
        let Spread { nodes, bytes, .. } = spread;
        Error::work(format!("cannot simulate {bytes} bytes to {nodes} nodes: {why}"))
    };
    let program: Bytes =
        (0..spread.bytes).map(|at| (at * 7 + at / 251) as u8).collect::<Vec<_>>().into();
    let sim = Sim::new(spread.nodes as u64, false);
    sim.control().make_steps_free();
    let latency = Duration::from_nanos(profile.latency_ns + profile.switch_latency_ns);
    sim.control()
        .set_network(Quality { latency: (latency, latency), ..Quality::switch(rate(profile)?) });
    // The first is the one that the command runs on.
    let machines = Machines::boot(&sim, spread.nodes + 1, Some(program.clone()));
    let names = machines.names();
    let made = Rc::new(RefCell::new(Vec::new()));
    let (kept, source) = (made.clone(), program.clone());
    let command = machines.id(0);
    let (tell, told) = tokio::sync::oneshot::channel();
    sim.control().spawn(command, async move {
        let began = task::now();
        let held = hold(&names[1..]).await;
        let took = match held {
            Ok((sessions, held)) => {
                kept.borrow_mut().clone_from(&sessions);
                let net: Rc<dyn Net> = Rc::new(SimNet);
                let source: Rc<dyn Source> = Rc::new(Whole::new(source));
                let failures =
                    hand_over(net, source, sessions, spread.fan_out, &Turn::first(0)).await;
                let took = task::now() - began;
                match failures.first() {
                    Some(failure) => Err(format!("{}: {}", failure.destination, failure.reason)),
                    None => Ok((took, held)),
                }
            }
            Err(error) => Err(error.to_string()),
        };
        let _ = tell.send(took);
    });
    let (seen, control) = (machines.clone(), sim.control());
    let (first, sessions) = (machines.id(spread.nodes.min(1)), made);
    let done = sim.run(Duration::from_secs(3600), async move {
        let (time, held) = told.await.unwrap_or_else(|_| Err("it panicked".to_owned()))?;
        // Sessions end with whoever holds them.
        let lacks = |session: &&String| !seen.has(session, &program);
        if let Some(session) = sessions.borrow().iter().find(lacks) {
            return Err(format!("{session} has other bytes"));
        }
        drop(held);
        task::sleep(Duration::from_secs(1)).await;
        if let Some(name) = seen.names().iter().find(|name| seen.sessions(name) > 0) {
            return Err(format!("{name} has a session that nobody holds"));
        }
        let (command_bytes, first_bytes) = (control.bytes_sent(command), control.bytes_sent(first));
        Ok(Took { time, command_bytes, first_bytes })
    });
    machines.end(&sim);
    done.map_err(|hang| failed(format!("it hangs at {:?}", hang.at)))?.map_err(failed)
}

/// A session on each of the nodes, as `NODE/SESSION`, and what keeps them.
async fn hold(names: &[String]) -> covey_ninep::tree::Result<(Vec<String>, Vec<(Conn, Fid)>)> {
    let made = futures_util::future::try_join_all(names.iter().map(|name| async move {
        let conn = dial(name).await?;
        let clone = open(&conn, "xcpu/clone", 0).await?;
        let read = Message::Tread { fid: clone.number(), offset: 0, count: 64 };
        let Message::Rread { data } = conn.call(read).await? else {
            return Err(Errno::EPROTO.into());
        };
        let number = String::from_utf8_lossy(&data.into_bytes()).trim().to_owned();
        Ok::<_, Errno>((format!("{name}/{number}"), (conn, clone)))
    }));
    Ok(made.await?.into_iter().unzip())
}

/// A program that is all there.
struct Whole {
    manifest: Rc<Manifest>,
    program: Bytes,
}

impl Whole {
    fn new(program: Bytes) -> Whole {
        let kind = EntryKind::Program;
        let entry = Entry { kind, path: Vec::new(), mode: 0o700, bytes: program.len() as u64 };
        let manifest = Rc::new(Manifest { entries: vec![entry], ..Manifest::default() });
        Whole { manifest, program }
    }
}

impl Source for Whole {
    fn manifest(&self) -> Rc<Manifest> {
        self.manifest.clone()
    }

    fn chunk(&self, index: usize) -> Later<covey_ninep::tree::Result<(Hash, Bytes)>> {
        let pieces = self.manifest.pieces(index).into_iter();
        let mut parts =
            pieces.map(|(_, at, count)| self.program.slice(at as usize..at as usize + count));
        let data = parts.next().unwrap_or_default();
        Box::pin(async move { Ok((hash(&data), data)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the tree is to cost: the copies of one port, and half as much for all its levels.
    #[test]
    fn sixteen_mebibytes_take_little_more_than_their_copies_through_one_port() {
        let profile = Profile::named("infiniband-sdr").unwrap();
        let of = |bytes| simulate(Spread { nodes: 60, bytes, fan_out: 2 }, &profile).unwrap();
        let (short, long) = (of(64 << 10), of(16 << 20));
        let more = (long.time - short.time).as_secs_f64();
        let ideal = 2.0 * f64::from(16 << 20) / rate(&profile).unwrap() as f64;
        assert!(more < 1.5 * ideal, "{more} s more, {ideal} s for the copies alone");
        let copy = 16 << 20;
        assert!(long.command_bytes < copy + copy / 20, "{} left the command", long.command_bytes);
        assert!(long.first_bytes < 2 * copy + copy / 10, "{} left the first", long.first_bytes);
        assert!(long.first_bytes > 2 * copy, "the first passes it on");
    }
}
