//! `covey mpi-starter`: one on each node of an MPI job. It serves PMI-1 and PMIx to the ranks there, and talks with the
//! launcher by its input and output, see `covey_launch::exchange`.

use super::Context;
use crate::error::{Cannot, Error, Result};
use covey_io::os::net::socket_owner;
use covey_io::os::pmix;
use covey_launch::exchange::{Down, Frames, Space, Up, encode};
use covey_launch::job::Placement;
use covey_launch::pmi::{self, Event};
use covey_wire::{Bytes, List, Name, Payload};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedSender, channel, unbounded_channel};

/// The variable that tells machines apart.
pub const MACHINE: &str = "COVEY_MACHINE";
/// The variable that names a directory of the node's part of the job.
pub const SCRATCH: &str = "COVEY_SCRATCH";

/// The variable that names the directory of the provider for libfabric on the node, where it is installed.
pub const PROVIDER: &str = "COVEY_FI_DIRECTORY";

/// Serve MPI's start-up to the ranks of a node: what `covey run` starts
#[derive(clap::Args, Debug)]
pub struct Args {}

/// Runs the command until the launcher ends its input.
pub async fn run(_: Args, _: &Context) -> Result<()> {
    let mut orders = read_orders();
    let Some(Down::Start { job, node, nodes, ranks }) = orders.recv().await else {
        return Err(Error::user("cannot serve MPI: this command is started by `covey run`")
            .hint("covey run -n 4 ./a.out"));
    };
    let job = Job::new(&job, node, &nodes.0, &ranks.0)?;
    let listener =
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.cannot(|| "listen for the ranks")?;
    let (mut pmix, complaint) = match job.pmix() {
        Ok(server) => (Some(server), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let mut starter = Starter::new(&job);
    starter.say(&job.ready(&listener, pmix.as_ref())?);
    if let Some(why) = complaint {
        starter.say(&Up::Unable {
            why: format!("Open MPI's programs cannot be served on {}: {why}", job.name()).into(),
        });
    }
    let (tell, mut connections) = channel(256);
    loop {
        tokio::select! {
            order = orders.recv() => match order {
                Some(order) => starter.obey(order, pmix.as_ref()),
                None => return Ok(()),
            },
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                starter.accept(stream, tell.clone());
            },
            Some((connection, data)) = connections.recv() => starter.received(connection, data),
            Some(event) = next(pmix.as_mut()) => starter.asked(event),
        }
    }
}

async fn next(server: Option<&mut pmix::Server>) -> Option<pmix::Event> {
    match server {
        Some(server) => server.next().await,
        None => std::future::pending().await,
    }
}

/// What is started, and the node's part in it.
struct Job {
    name: String,
    placement: Placement,
    firsts: Vec<u32>,
    node: usize,
}

impl Job {
    fn new(name: &Name, node: u32, nodes: &[Name], ranks: &[u32]) -> Result<Job> {
        let nodes: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        let placement = Placement::with_shares(&nodes, ranks);
        let placement = placement.filter(|_| (node as usize) < nodes.len());
        let placement =
            placement.ok_or_else(|| Error::work("cannot serve MPI: the job has no such node"))?;
        let mut firsts = vec![0];
        firsts.extend(ranks.iter().scan(0, |sum, ranks| {
            *sum += ranks;
            Some(*sum)
        }));
        Ok(Job { name: name.to_string(), placement, firsts, node: node as usize })
    }

    fn name(&self) -> &str {
        &self.placement.nodes()[self.node]
    }

    fn pmix(&self) -> std::io::Result<pmix::Server> {
        let directory = std::env::current_dir()?;
        let nodes = self.placement.nodes();
        let job = pmix::Job { name: &self.name, nodes, firsts: &self.firsts, node: self.node };
        pmix::Server::start(job, &directory)
    }

    /// The variables by which the libraries find us.
    fn ready(&self, listener: &TcpListener, pmix: Option<&pmix::Server>) -> Result<Up> {
        let port = listener.local_addr().cannot(|| "listen for the ranks")?;
        let here = self.placement.of_node(self.node);
        let scratch = match std::env::var_os("XCPUMEMORY") {
            Some(memory) => PathBuf::from(memory),
            None => std::env::current_dir().cannot(|| "find the current directory")?,
        };
        let mut all = vec![
            format!("{MACHINE}={}", covey_io::os::process::boot_id()),
            format!("{SCRATCH}={}", scratch.display()),
            format!("PMI_PORT={port}"),
            format!("PMI_SIZE={}", self.placement.ranks()),
            format!("MPI_LOCALNRANKS={}", here.len()),
        ];
        if pmix.is_some() {
            // Open MPI 4 looks who has started it before it looks for PMIx: under jsrun it takes PMIx.
            all.push("JSM_JSRUN_PORT=1".to_owned());
            // MPICH 5 finds both PMI and PMIx, and gives up unless it is told which to take.
            all.push("MPIR_CVAR_PMI_VERSION=1".to_owned());
        }
        if let Some(directory) = covey_measure::fabric::directory() {
            all.push(format!("{PROVIDER}={}", directory.display()));
        }
        let each = here.clone().map(|rank| {
            let mut own = vec![
                format!("PMI_ID={rank}"),
                format!("PMI_RANK={rank}"),
                format!("MPI_LOCALRANKID={}", rank - here.start),
            ];
            let more = pmix.map(|server| server.variables(rank)).transpose();
            own.extend(more.cannot(|| "make the environment of a rank")?.unwrap_or_default());
            Ok(List(own.into_iter().map(Name::from).collect()))
        });
        let all = List(all.into_iter().map(Name::from).collect());
        Ok(Up::Ready { all, each: List(each.collect::<Result<_>>()?) })
    }
}

struct Starter {
    say: UnboundedSender<Bytes>,
    pmi: pmi::Server,
    /// Where answers to the ranks go.
    ranks: HashMap<u64, UnboundedSender<Vec<u8>>>,
    connection_next: u64,
    /// Fences of PMIx that are open, by their ranks.
    fences: HashMap<Vec<u32>, pmix::Done>,
    /// Questions of PMIx that are open, by their tokens.
    questions: HashMap<u32, pmix::Done>,
    question_next: u32,
    /// Questions of other nodes that the library is to answer: who asks, with which token.
    asked: HashMap<u64, (u32, u32)>,
    asked_next: u64,
    /// All ranks of the job are so many.
    size: usize,
    /// Connections of other users.
    strangers: u64,
}

impl Starter {
    fn new(job: &Job) -> Starter {
        Starter {
            say: write_reports(),
            pmi: pmi::Server::new(&job.name, job.placement.clone(), job.node),
            ranks: HashMap::new(),
            connection_next: 0,
            fences: HashMap::new(),
            questions: HashMap::new(),
            question_next: 0,
            asked: HashMap::new(),
            asked_next: 0,
            size: job.placement.ranks() as usize,
            strangers: 0,
        }
    }

    fn say(&self, message: &Up) {
        // When nobody listens, our input ends too.
        let _ = self.say.send(encode(message));
    }

    /// The launcher has said something.
    fn obey(&mut self, order: Down, pmix: Option<&pmix::Server>) {
        match order {
            Down::Start { .. } => tracing::warn!("the job was described twice"),
            Down::Fenced { space, ranks, ok, data } => match Space::of(space) {
                Ok(Space::Pmi) if ok => {
                    if let Err(blame) = self.pmi.fenced(data.into_bytes()) {
                        tracing::warn!("what the nodes brought to a barrier: {blame}");
                    }
                    self.pump();
                }
                Ok(Space::Pmix) => {
                    if let Some(done) = self.fences.remove(&ranks.0) {
                        done.answer(ok.then(|| data.into_bytes().to_vec()));
                    }
                }
                // A barrier that has failed: the job is being ended.
                Ok(Space::Pmi) | Err(_) => {}
            },
            Down::Ask { asker, token, rank } => match pmix {
                Some(server) => {
                    let number = self.asked_next;
                    self.asked_next += 1;
                    self.asked.insert(number, (asker, token));
                    server.ask(rank, number);
                }
                None => self.answer(asker, token, None),
            },
            Down::Answer { token, ok, data } => {
                if let Some(done) = self.questions.remove(&token) {
                    done.answer(ok.then(|| data.into_bytes().to_vec()));
                }
            }
        }
    }

    fn answer(&self, asker: u32, token: u32, data: Option<Vec<u8>>) {
        let ok = data.is_some();
        let data = Payload::from(data.unwrap_or_default());
        self.say(&Up::Answer { asker, token, ok, data });
    }

    /// PMIx wants something.
    fn asked(&mut self, event: pmix::Event) {
        match event {
            pmix::Event::Joined(rank) => self.say(&Up::Joined { rank }),
            pmix::Event::Finalized(_) => {}
            pmix::Event::Lost(rank) => self.say(&Up::Gone { rank }),
            pmix::Event::Fence { ranks, data, done } => self.fence(ranks, data, done),
            pmix::Event::Ask { rank, done } => {
                let token = self.question_next;
                self.question_next = self.question_next.wrapping_add(1);
                self.questions.insert(token, done);
                self.say(&Up::Ask { token, rank });
            }
            pmix::Event::Known { token, data } => {
                if let Some((asker, token)) = self.asked.remove(&token) {
                    self.answer(asker, token, data);
                }
            }
            pmix::Event::Abort { rank, code, why } => {
                self.say(&Up::Abort { rank, code: code.cast_unsigned(), why: short(why) });
            }
        }
    }

    /// The ranks as the launcher names them: sorted, and none when they are all.
    fn fence(&mut self, mut ranks: Vec<u32>, data: Vec<u8>, done: pmix::Done) {
        ranks.sort_unstable();
        ranks.dedup();
        if ranks.len() == self.size {
            ranks.clear();
        }
        self.fences.insert(ranks.clone(), done);
        self.say(&Up::Fence { space: Space::Pmix as u8, ranks: List(ranks), data: data.into() });
    }

    /// A rank has connected. Others' processes are not ranks of ours, whoever they say they are.
    fn accept(&mut self, stream: TcpStream, tell: Sender<(u64, Vec<u8>)>) {
        let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return };
        let own = rustix::process::geteuid().as_raw();
        match socket_owner(peer, local) {
            Some(owner) if owner == own => {}
            Some(_) => return self.refused(),
            // It is gone already.
            None => return,
        }
        let connection = self.connection_next;
        self.connection_next += 1;
        let (answer, answers) = unbounded_channel();
        self.ranks.insert(connection, answer);
        self.pmi.connected(connection);
        tokio::task::spawn_local(talk(stream, connection, answers, tell));
    }

    /// Another user's process is no rank. Said of the first, the tenth, the hundredth and so on: the job's user reads it.
    fn refused(&mut self) {
        self.strangers += 1;
        let strangers = self.strangers;
        if 10_u64.pow(strangers.ilog10()) == strangers {
            tracing::warn!("processes of other users have connected as ranks: {strangers} so far");
        }
    }

    /// A rank has said something; nothing is its end.
    fn received(&mut self, connection: u64, data: Vec<u8>) {
        if data.is_empty() {
            self.pmi.closed(connection);
            self.ranks.remove(&connection);
        } else {
            self.pmi.handle_input(connection, &data)
        }
        self.pump();
    }

    /// Does what the machine of PMI-1 wants.
    fn pump(&mut self) {
        while let Some(event) = self.pmi.poll_event() {
            match event {
                Event::Reply(connection, bytes) => {
                    if let Some(rank) = self.ranks.get(&connection) {
                        let _ = rank.send(bytes);
                    }
                }
                Event::Close(connection) => drop(self.ranks.remove(&connection)),
                Event::Joined { rank } => self.say(&Up::Joined { rank }),
                Event::Fence(data) => {
                    let (space, ranks) = (Space::Pmi as u8, List(Vec::new()));
                    self.say(&Up::Fence { space, ranks, data: data.into() });
                }
                Event::Abort { rank, code, why } => {
                    self.say(&Up::Abort { rank, code, why: short(why) })
                }
                Event::Gone { rank } => self.say(&Up::Gone { rank }),
            }
        }
    }
}

/// A rank's last words, as long as fits into a message.
fn short(why: String) -> Name {
    let end = why.char_indices().map(|(at, _)| at).take_while(|at| *at <= 1000).last().unwrap_or(0);
    Name::from(if why.len() > 1000 { &why[..end] } else { &why[..] })
}

/// One rank's connection: it asks one question at a time, so answers do not pile up.
async fn talk(
    mut stream: TcpStream,
    connection: u64,
    mut answers: tokio::sync::mpsc::UnboundedReceiver<Vec<u8>>,
    tell: Sender<(u64, Vec<u8>)>,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        tokio::select! {
            answer = answers.recv() => match answer {
                Some(answer) if stream.write_all(&answer).await.is_ok() => {}
                _ => break,
            },
            read = stream.read(&mut buffer) => match read {
                Ok(count) if count > 0 => {
                    if tell.send((connection, buffer[..count].to_vec())).await.is_err() {
                        return;
                    }
                }
                _ => break,
            },
        }
    }
    let _ = tell.send((connection, Vec::new())).await;
}

/// What the launcher says, read by a thread: our input is a pipe.
fn read_orders() -> Receiver<Down> {
    let (tell, orders) = channel(16);
    let read = move || {
        let mut frames = Frames::<Down>::default();
        let mut buffer = vec![0; 256 << 10];
        loop {
            match std::io::stdin().lock().read(&mut buffer) {
                Ok(count) if count > 0 => frames.push(&buffer[..count]),
                _ => return,
            }
            while let Some(order) = match frames.take_next() {
                Ok(order) => order,
                Err(_) => return,
            } {
                if tell.blocking_send(order).is_err() {
                    return;
                }
            }
        }
    };
    let _ = std::thread::Builder::new().name("orders".into()).spawn(read);
    orders
}

/// What we say to the launcher, written by a thread.
fn write_reports() -> UnboundedSender<Bytes> {
    let (say, mut reports) = unbounded_channel::<Bytes>();
    let write = move || {
        let mut out = std::io::stdout().lock();
        while let Some(report) = reports.blocking_recv() {
            if out.write_all(&report).and_then(|()| out.flush()).is_err() {
                return;
            }
        }
    };
    let _ = std::thread::Builder::new().name("reports".into()).spawn(write);
    say
}
