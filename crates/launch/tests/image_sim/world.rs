//! A first server and its clients in a simulated world.

use covey_io::sim::net::{self, SimStream};
use covey_io::sim::{Control, NodeId, Sim, note};
use covey_io::{run, task};
use covey_launch::image::{
    Catalogue, Content, Event, Failure, Host, Image, Images, Limits, LocalFuture, Report, Source,
    Sum, Summer, Want, World, fetch,
};
use covey_ninep::client::{self, Conn};
use covey_ninep::server::{self, Session};
use covey_ninep::tree::{Data, Errno, Peer, Read, Result};
use covey_wire::{Bytes, Name};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The bytes of an image, which all machines share as long as they have the right ones.
pub fn bytes(seed: u64, length: usize) -> Bytes {
    let mut rng = covey_io::sim::Rng::new(seed);
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        bytes.extend_from_slice(&rng.next().to_le_bytes());
    }
    bytes.truncate(length);
    bytes.into()
}

pub fn sum_of(bytes: &Bytes) -> Sum {
    let mut summer = Summer::new(bytes.len() as u64);
    bytes.chunks(1 << 20).for_each(|piece| summer.update(piece));
    summer.finish()
}

/// A disk that takes the right bytes of one image, and no others.
pub struct Shared {
    pub right: Bytes,
    /// What readers get is wrong.
    pub lies: bool,
    /// How long readers wait for each answer.
    pub slow: Duration,
    /// No more bytes fit.
    pub room: u64,
    pub written: Cell<u64>,
}

impl Shared {
    pub fn new(right: Bytes) -> Shared {
        Shared { right, lies: false, slow: Duration::ZERO, room: u64::MAX, written: Cell::new(0) }
    }
}

impl Content for Shared {
    fn read(&self, read: Read<'_>) -> Data {
        let begin = (read.offset as usize).min(self.right.len());
        let end = (begin + read.count as usize).min(self.right.len());
        let slice = self.right.slice(begin..end);
        if self.lies && !slice.is_empty() {
            let mut wrong = slice.to_vec();
            wrong[0] ^= 1;
            Data::Bytes(wrong.into())
        } else if !self.slow.is_zero() {
            let slow = self.slow;
            Data::Later(Box::pin(async move {
                task::sleep(slow).await;
                Ok(slice)
            }))
        } else {
            Data::Bytes(slice)
        }
    }

    fn write(&self, offset: u64, pieces: Vec<Bytes>) -> LocalFuture<Result<()>> {
        assert_eq!(offset, self.written.get(), "chunks are written in order");
        let mut at = offset as usize;
        for piece in pieces {
            assert!(self.right[at..].starts_with(&piece), "wrong bytes were written at {at}");
            at += piece.len();
        }
        if at as u64 > self.room {
            return Box::pin(async { Err(Errno::ENOSPC.into()) });
        }
        self.written.set(at as u64);
        Box::pin(task_of_a_disk())
    }

    fn sync(&self) -> LocalFuture<Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

async fn task_of_a_disk() -> Result<()> {
    task::sleep(Duration::from_micros(100)).await;
    Ok(())
}

pub struct SimWorld;

impl World for SimWorld {
    fn now(&self) -> Instant {
        task::now()
    }

    fn sleep(&self, time: Duration) -> LocalFuture<()> {
        Box::pin(task::sleep(time))
    }

    fn report(&self, line: &str) {
        note(|| line.to_owned());
    }
}

/// Accepts connections for as long as the process lives. All are of one peer's machine and another port.
pub async fn serve(control: Control, tree: Rc<Images>) {
    let listener = net::listen();
    let ports = Cell::new(0);
    loop {
        let stream = listener.accept().await;
        ports.set(ports.get() + 1);
        let name = format!("tcp!{}!{}", name_of(&control, stream.peer()), ports.get());
        let peer = Peer { name, uid: Some(0), has_key: false };
        let session = Session::new(tree.clone(), peer, server::Config::default());
        drop(task::spawn(async move { run(session, stream).await }));
    }
}

/// Machines are named in the order in which they are made, the first server first.
pub fn name_of(_: &Control, node: NodeId) -> String {
    match node {
        1 => "first".to_owned(),
        node => format!("c{node}"),
    }
}

pub fn catalogue(image: &Rc<Image>) -> Rc<Catalogue> {
    let archs = [(Name::from("any"), image.clone())].into_iter().collect();
    Rc::new([(Name::from("disk"), archs)].into_iter().collect())
}

pub fn boot_first(sim: &Control, node: NodeId, right: &Bytes, number: u64) {
    let (control, right) = (sim.clone(), right.clone());
    sim.boot(node, async move {
        let sum = sum_of(&right);
        let content = Rc::new(Shared::new(right));
        let image = Image::whole(number, sum, content, Limits::default());
        serve(control, Rc::new(Images::new(SimWorld, catalogue(&image)))).await;
    });
}

/// One client's machine.
pub struct Client {
    pub control: Control,
    pub right: RefCell<Bytes>,
    pub lies: bool,
    pub slow: Duration,
    /// It serves nobody.
    pub is_alone: bool,
    pub room: u64,
    pub arrived: Cell<u64>,
    pub left: RefCell<Vec<(Source, String)>>,
    pub sources: Cell<usize>,
}

impl Client {
    pub fn new(control: Control, right: &Bytes) -> Client {
        Client {
            control,
            right: RefCell::new(right.clone()),
            lies: false,
            slow: Duration::ZERO,
            is_alone: false,
            room: u64::MAX,
            arrived: Cell::new(0),
            left: RefCell::default(),
            sources: Cell::new(0),
        }
    }
}

/// What is asked of a client's world.
pub struct SimHost(pub Rc<Client>);

impl Host for SimHost {
    fn now(&self) -> Instant {
        task::now()
    }

    fn sleep(&self, time: Duration) -> LocalFuture<()> {
        Box::pin(task::sleep(time))
    }

    fn dial(&self, source: &Source) -> LocalFuture<Result<Conn>> {
        let machine = match source {
            Source::First => "first".to_owned(),
            Source::Volunteer { host, .. } => host.clone(),
        };
        Box::pin(async move {
            let refused = |why: String| Errno::because(Errno::EIO, why);
            let stream = net::connect(&machine).await.map_err(|e| refused(e.to_string()))?;
            let conn = drive(stream);
            conn.version().await?;
            conn.auth_and_attach(0, "root", Some(0), "/", None, [0; 32]).await?;
            Ok(conn)
        })
    }

    fn prepare(&self, _: &Sum) -> LocalFuture<Result<Rc<dyn Content>>> {
        let client = &self.0;
        let (lies, slow, room) = (client.lies, client.slow, client.room);
        let content = Shared { lies, slow, room, ..Shared::new(client.right.borrow().clone()) };
        client.arrived.set(0);
        Box::pin(async move { Ok(Rc::new(content) as Rc<dyn Content>) })
    }

    fn serve(&self, _: &Name, _: &Name, image: &Rc<Image>) -> LocalFuture<Option<u16>> {
        if self.0.is_alone {
            return Box::pin(async { None });
        }
        let tree = Images::of_volunteer(SimWorld, catalogue(image));
        drop(task::spawn(serve(self.0.control.clone(), Rc::new(tree))));
        Box::pin(async { Some(1) })
    }

    fn tell(&self, event: Event) {
        match &event {
            Event::Arrived(bytes) => return self.0.arrived.set(*bytes),
            Event::From(_) => self.0.sources.set(self.0.sources.get() + 1),
            Event::Left(source, why) => {
                self.0.left.borrow_mut().push((source.clone(), why.clone()));
            }
            _ => {}
        }
        note(|| format!("{event:?}"));
    }
}

fn drive(stream: SimStream) -> Conn {
    let config = client::Config { heartbeat_idle: true, ..client::Config::default() };
    let (conn, machine) = client::pair(config, task::now());
    drop(task::spawn(async move { run(machine, stream).await }));
    conn
}

pub fn want() -> Want {
    Want {
        image: "disk".into(),
        archs: vec!["sim".into(), "any".into()],
        sha256: None,
        serve: None,
        patience: Duration::from_secs(120),
    }
}

/// Begins a fetch on a machine. What comes is when it ended, since the world began, and with what; meanwhile it
/// may still serve others, and its process ends when it has.
pub fn boot_client(
    sim: &Control,
    node: NodeId,
    client: Rc<Client>,
    want: Want,
) -> tokio::sync::oneshot::Receiver<std::result::Result<Report, Failure>> {
    let (sender, answer) = tokio::sync::oneshot::channel();
    let control = sim.clone();
    sim.boot(node, async move {
        let done = fetch(Rc::new(SimHost(client)), want).await;
        let _ = sender.send(done);
        // From outside: a process does not end itself while it runs.
        drop(task::spawn(async move { control.kill(node) }));
    });
    answer
}

/// The simulated world of one test.
pub fn sim(seed: u64, clients: usize) -> (Sim, NodeId, Vec<NodeId>) {
    let sim = Sim::new(seed, std::env::var_os("COVEY_SIM_ECHO").is_some());
    let first = sim.node("first");
    let nodes = (0..clients).map(|index| sim.node(&format!("c{}", index + 2))).collect();
    (sim, first, nodes)
}
