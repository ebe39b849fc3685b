//! The starters of an MPI job: one process on each node that serves PMI-1 and PMIx to the ranks there. Each is a
//! session like any other, and talks with us by its input and output.

use super::tree::{NodeTree, OnNode, Session};
use crate::cmd::mpi;
use crate::cmd::mpi_starter::{MACHINE, PROVIDER, SCRATCH};
use crate::error::{Cannot, Error, Result};
use covey_launch::exchange::{Down, Event, Frames, Hub, Up, encode};
use covey_launch::job::{Part, Placement};
use covey_measure::fabric::LIBRARY;
use covey_measure::mpi::Library;
use covey_ninep::control::quote;
use covey_wire::Bytes;
use futures_util::future::try_join_all;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::mpsc::{self, Receiver, Sender, UnboundedReceiver, UnboundedSender};

/// What came from a starter.
pub enum Heard {
    /// It said this.
    Said(Up),
    /// It says no more.
    Gone(String),
}

/// The variables for the ranks of a node.
#[derive(Clone, Debug, Default)]
pub struct Variables {
    all: Vec<String>,
    each: Vec<Vec<String>>,
}

impl Variables {
    /// Those for the node's rank of this local number, as `NAME=VALUE`.
    pub fn of(&self, local: u32) -> impl Iterator<Item = &String> {
        self.all.iter().chain(self.each.get(local as usize).into_iter().flatten())
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.all.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    }
}

/// Says where Open MPI has its shared memory: with the node's starter, which ends with all that is in it, because ranks
/// that are killed leave theirs. It is called after the machine and the number of the rank on its node, so that those of
/// two nodes on one machine would be one. A directory that is not in memory is taken for these only.
fn part_memory(variables: &mut [Variables]) {
    let machines: Vec<Option<String>> =
        variables.iter().map(|node| node.value(MACHINE).map(str::to_owned)).collect();
    for (node, machine) in variables.iter_mut().zip(&machines) {
        let is_shared = machines.iter().filter(|other| *other == machine).count() > 1;
        let Some(scratch) = node.value(SCRATCH).map(str::to_owned) else { continue };
        if is_shared || scratch.starts_with("/dev/shm/") {
            let set = |which| format!("OMPI_MCA_btl_{which}_backing_directory={scratch}");
            node.all.extend(["vader", "sm"].map(set));
        }
    }
}

/// Lets MPI send over Covey's provider of libfabric, which every node must have. The ranks prove to each other that they
/// know a secret of the job.
pub fn send_over_covey(
    variables: &mut [Variables],
    nodes: &[String],
    eager_limit: Option<u64>,
) -> Result<()> {
    let random: [u8; 16] = covey_io::os::random::bytes().cannot(|| "make the job's secret")?;
    let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    for (node, name) in variables.iter_mut().zip(nodes) {
        let Some(directory) = node.value(PROVIDER).map(str::to_owned) else {
            return Err(Error::work(format!(
                "cannot send over Covey: {name} has no libcovey-fi.so"
            ))
            .hint("`make install` installs it; without --fabric MPI chooses how to send"));
        };
        node.all.extend(mpi::common(directory.as_ref(), eager_limit));
        node.all.extend([Library::Openmpi, Library::Mpich].into_iter().flat_map(mpi::of));
        node.all.push(format!("COVEY_JOB_SECRET={secret}"));
    }
    Ok(())
}

/// The starters of a job.
pub struct Starters {
    hub: Hub,
    lines: Vec<Line>,
    /// Some rank has begun to use the library.
    are_used: bool,
}

/// The connection with one starter.
struct Line {
    name: String,
    say: UnboundedSender<Down>,
    ear: Option<Receiver<Heard>>,
    _session: Rc<Session>,
}

impl Starters {
    /// Starts them, and waits until each node is ready.
    pub async fn start(
        trees: &[Rc<NodeTree>],
        placement: &Placement,
        job: &str,
    ) -> Result<(Starters, Vec<Variables>)> {
        let hub = Hub::new(placement.clone());
        let started = trees.iter().enumerate().map(|(node, tree)| {
            let first = hub.start(job, node);
            start(tree, job, node, first)
        });
        let started = tokio::time::timeout(READY_LIMIT, try_join_all(started)).await;
        let late = |_| {
            let limit = READY_LIMIT.as_secs();
            Error::work(format!("cannot serve MPI: not every node was ready within {limit} s"))
                .hint("--mpi off starts the program without it")
        };
        let mut starters = Starters { hub, lines: Vec::new(), are_used: false };
        let mut variables = Vec::new();
        for (node, (line, ready)) in started.map_err(late)??.into_iter().enumerate() {
            let heard = starters
                .hub
                .handle(node, ready)
                .map_err(|blame| refused(&line.name, &blame.to_string()))?;
            let name = line.name.clone();
            starters.lines.push(line);
            match heard {
                Some(Event::Ready { all, each }) => variables.push(Variables {
                    all: all.iter().map(ToString::to_string).collect(),
                    each: each
                        .iter()
                        .map(|one| one.iter().map(ToString::to_string).collect())
                        .collect(),
                }),
                Some(Event::Unable { why }) => return Err(refused(&name, &why)),
                _ => return Err(refused(&name, "its starter began with something else")),
            }
        }
        part_memory(&mut variables);
        Ok((starters, variables))
    }

    /// Whether some rank has begun to use the library: from then on ranks may wait for each other.
    pub fn are_used(&self) -> bool {
        self.are_used
    }

    /// What comes from each node.
    pub fn take_ears(&mut self) -> Vec<(usize, Receiver<Heard>)> {
        let ears = self.lines.iter_mut().map(|line| line.ear.take());
        ears.enumerate().filter_map(|(node, ear)| Some((node, ear?))).collect()
    }

    /// Something was heard from a node: answers what concerns the job.
    pub fn handle(&mut self, node: usize, heard: Heard) -> Option<Event> {
        let event = match heard {
            Heard::Said(said) => self.hub.handle(node, said).unwrap_or_else(|blame| {
                tracing::warn!("the starter on {}: {blame}", self.lines[node].name);
                self.hub.lost(node);
                None
            }),
            Heard::Gone(why) => {
                tracing::debug!("the starter on {} is gone: {why}", self.lines[node].name);
                self.hub.lost(node);
                None
            }
        };
        self.are_used |= matches!(event, Some(Event::Joined { .. }));
        while let Some((node, what)) = self.hub.poll_output() {
            let _ = self.lines[node].say.send(what);
        }
        event
    }
}

fn refused(node: &str, why: &str) -> Error {
    Error::work(format!("cannot serve MPI on {node}: {why}"))
        .hint("--mpi off starts the program without it")
}

/// Starts one; answers the first thing that it says.
async fn start(tree: &Rc<NodeTree>, job: &str, node: usize, first: Down) -> Result<(Line, Up)> {
    let what = || format!("start MPI's server on {}", tree.name);
    let session = Rc::new(tree.make().await.on_node(what)?);
    let id = Part::Starter(node as u32).id(job);
    // The node tells its sessions where this program is there.
    let argv = ["sh", "-c", "exec \"$COVEY\" mpi-starter"].map(quote).join(" ");
    session.command(&["id", &id]).await.on_node(what)?;
    session.write("argv", argv.into()).await.on_node(what)?;
    if let Ok(file) = std::env::var(LIBRARY) {
        let word = quote(&format!("{}={file}", LIBRARY));
        session.write("env", word.into()).await.on_node(what)?;
    }
    session.command(&["exec", "/bin/sh"]).await.on_node(what)?;
    let (say, orders) = mpsc::unbounded_channel();
    tokio::task::spawn_local(speak(session.clone(), orders));
    let (tell, mut ear) = mpsc::channel(64);
    tokio::task::spawn_local(complain(session.clone()));
    tokio::task::spawn_local(listen(session.clone(), tell));
    let _ = say.send(first);
    let ready = match ear.recv().await {
        Some(Heard::Said(ready)) => ready,
        Some(Heard::Gone(why)) => return Err(refused(&tree.name, &why)),
        None => return Err(refused(&tree.name, "its starter ended")),
    };
    let name = tree.name.clone();
    Ok((Line { name, say, ear: Some(ear), _session: session }, ready))
}

/// What is said to it. The hub keeps what is on its way within bounds.
async fn speak(session: Rc<Session>, mut orders: UnboundedReceiver<Down>) {
    let Ok(fid) = session.open("stdin", 1).await else { return };
    let mut at = 0;
    while let Some(order) = orders.recv().await {
        let frame = encode(&order);
        let length = frame.len() as u64;
        if session.put(&fid, at, frame).await.is_err() {
            return;
        }
        at += length;
    }
}

/// What it says.
async fn listen(session: Rc<Session>, tell: Sender<Heard>) {
    let why = match hear(&session, &tell).await {
        Ok(()) => "it has ended".to_owned(),
        Err(why) => why,
    };
    let _ = tell.send(Heard::Gone(why)).await;
}

async fn hear(session: &Session, tell: &Sender<Heard>) -> std::result::Result<(), String> {
    let mut frames = Frames::<Up>::default();
    each_piece(session, "stdout", async |data| {
        frames.push(&data);
        while let Some(message) = frames.take_next().map_err(|blame| blame.to_string())? {
            if tell.send(Heard::Said(message)).await.is_err() {
                return Err("nobody listens".to_owned());
            }
        }
        Ok(())
    })
    .await
}

/// What it writes for people.
async fn complain(session: Rc<Session>) {
    let name = session.node.name.clone();
    let _ = each_piece(&session, "stderr", async |data| {
        tracing::warn!("MPI's server on {name}: {}", String::from_utf8_lossy(&data).trim_end());
        Ok(())
    })
    .await;
}

async fn each_piece(
    session: &Session,
    file: &str,
    mut take: impl AsyncFnMut(Bytes) -> std::result::Result<(), String>,
) -> std::result::Result<(), String> {
    let fid = session.open(file, 0).await.map_err(|error| error.to_string())?;
    let mut offset = 0;
    loop {
        let data =
            session.read(&fid, offset, 256 << 10).await.map_err(|error| error.to_string())?;
        if data.is_empty() {
            return Ok(());
        }
        offset += data.len() as u64;
        take(data).await?;
    }
}

/// How long the starters of all nodes may take.
const READY_LIMIT: Duration = Duration::from_secs(30);
