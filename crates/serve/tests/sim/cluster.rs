//! The cluster's machines: the servers' own code on simulated disks.

use super::net::SimNet;
use covey_io::disk::{Disk, MapSpace};
use covey_io::sim::{Control, DiskProfile, NodeId, Rng, SimDisk, SimMap, net};
use covey_io::{run, task};
use covey_ninep::server::{self, Session};
use covey_ninep::tree::{Errno, Peer, Result, Tree};
use covey_serve::data::{DataServer, DataTree};
use covey_serve::meta::journal::{DurableMap, Media, Rows};
use covey_serve::meta::{Meta, MetaServer};
use covey_serve::moving;
use covey_stripe::client::{Error, Fs, Options};
use covey_stripe::kv::Kv;
use covey_stripe::meta::{Store, format_chains};
use covey_stripe::ops::{StripingHint, Task};
use std::cell::{Cell, RefCell};
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

/// Where the metadata lies on its machine's disk.
pub const META_DIR: &str = "/meta";
/// Where the objects lie on theirs.
pub const STORE_DIR: &str = "/store";

/// A map of the simulated disk as the store's.
struct SimRows(SimMap);

impl Kv for SimRows {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.0.value(key).map(<[u8]>::to_vec))
    }
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Ok(self.0.put(key, value)?)
    }
    fn delete(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.0.delete(key)?)
    }
    fn scan(&self, from: &[u8], visit: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        self.0.scan(from, visit);
        Ok(())
    }
}

impl DurableMap for SimRows {
    fn checkpoint(&mut self) -> io::Result<()> {
        self.0.checkpoint()
    }
    fn space(&self) -> io::Result<MapSpace> {
        Ok(self.0.space())
    }
}

/// A server's machine.
pub struct Server {
    pub node: NodeId,
    pub name: String,
    pub disk: SimDisk,
}

/// One metadata server, I/O servers, and machines for clients.
pub struct Cluster {
    pub control: Control,
    pub meta: Server,
    pub data: Vec<Server>,
    /// How many of them the metadata server is told of when it starts.
    pub listed: Cell<usize>,
    pub clients: Vec<NodeId>,
    /// The running metadata server, for the checks.
    pub running: RefCell<Option<Rc<Meta>>>,
    /// Tasks of moving files are carried out.
    pub has_tasks: Cell<bool>,
    /// A bit has rotted on the metadata server's disk: it may refuse to start.
    pub is_rotten: Cell<bool>,
    /// Why it has.
    pub refusal: RefCell<Option<String>>,
}

impl Cluster {
    /// Formats the disks of a new cluster. Nothing runs yet.
    pub fn format(
        control: Control,
        rng: &mut Rng,
        data: usize,
        clients: usize,
        hint: StripingHint,
    ) -> Rc<Cluster> {
        Cluster::format_some(control, rng, (data, data), clients, hint)
    }

    /// Gives each I/O server so many chains. Nothing runs yet.
    pub fn give_chains(&self, each: u16) {
        let mut media = media(&self.meta.disk);
        let servers = self.listed.get();
        format_chains(&mut media.map, servers, each).expect("nothing is broken yet");
        media.map.checkpoint().expect("nothing is broken yet");
    }

    /// The same, with I/O servers that are not listed yet.
    pub fn format_some(
        control: Control,
        rng: &mut Rng,
        (listed, data): (usize, usize),
        clients: usize,
        hint: StripingHint,
    ) -> Rc<Cluster> {
        let mut server = |name: String| {
            let takes_writes = rng.chance(500);
            let cached_permille = *rng.pick(&[0, 500, 1000]);
            let profile = DiskProfile { takes_writes, cached_permille, ..DiskProfile::default() };
            let disk = SimDisk::new(profile, rng.fork());
            Server { node: control.node(&name), name, disk }
        };
        let meta = server("meta".into());
        let data: Vec<Server> = (0..data).map(|at| server(format!("io{at}"))).collect();
        let clients = (0..clients).map(|at| control.node(&format!("client{at}"))).collect();
        let running = RefCell::default();
        let (is_rotten, refusal) = (Cell::default(), RefCell::default());
        let listed = Cell::new(listed);
        let has_tasks = Cell::default();
        let cluster = Cluster {
            control,
            meta,
            data,
            listed,
            clients,
            running,
            has_tasks,
            is_rotten,
            refusal,
        };
        cluster.format_meta(hint);
        Rc::new(cluster)
    }

    fn format_meta(&self, hint: StripingHint) {
        self.meta.disk.make_dir(Path::new(META_DIR)).expect("nothing is broken yet");
        let mut media = media(&self.meta.disk);
        let now = task::wall().as_nanos() as u64;
        Store::format(&mut media.map, "sim", &self.server_names(), hint, now, (0, 0))
            .expect("an empty map can be formatted");
        media.map.checkpoint().expect("nothing is broken yet");
    }

    fn server_names(&self) -> Vec<String> {
        self.data.iter().take(self.listed.get()).map(|server| server.name.clone()).collect()
    }

    /// The servers, metadata first.
    pub fn servers(&self) -> impl Iterator<Item = &Server> {
        std::iter::once(&self.meta).chain(&self.data)
    }

    /// Begins a server's process.
    pub fn boot(self: &Rc<Self>, node: NodeId) {
        if node == self.meta.node {
            let cluster = self.clone();
            return self.control.boot(node, async move { cluster.run_meta().await });
        }
        let server = self.data.iter().find(|server| server.node == node).expect("it is a server");
        let disk = server.disk.clone();
        self.control.boot(node, async move {
            let tree = DataTree::open(Arc::new(disk), Path::new(STORE_DIR));
            let tree = tree.unwrap_or_else(|error| cannot_start(&error.to_string()));
            serve(Rc::new(DataServer(Rc::new(tree)))).await;
        });
    }

    async fn run_meta(&self) {
        let media = media(&self.meta.disk);
        let names = self.server_names();
        let meta = Meta::start(media, Rc::new(move || names.clone()), Arc::new(SimNet));
        let meta = meta.unwrap_or_else(|error| self.meta_cannot_start(&format!("{error:#}")));
        *self.running.borrow_mut() = Some(meta.clone());
        if self.has_tasks.get() {
            meta.carry_out_tasks(Rc::new(carry_out));
        }
        serve(Rc::new(MetaServer(meta))).await;
    }

    /// A full disk or map is no reason; a failing disk is one for as long as it fails.
    fn meta_cannot_start(&self, why: &str) -> ! {
        let is_failing = why.contains("Input/output error") && self.meta.disk.fails_syncs();
        assert!(self.is_rotten.get() || is_failing, "the metadata server cannot start: {why}");
        *self.refusal.borrow_mut() = Some(why.to_owned());
        task::exit(why)
    }

    /// Ends a server's process, with the power of its machine or without.
    pub fn crash(&self, node: NodeId, power_fails: bool) {
        if node == self.meta.node {
            self.running.borrow_mut().take();
        }
        if power_fails {
            self.control.lose_power(node);
        } else {
            self.control.kill(node);
        }
        self.after_crash(node, power_fails);
    }

    /// What a disk makes of it.
    pub fn after_crash(&self, node: NodeId, power_fails: bool) {
        if node == self.meta.node {
            self.running.borrow_mut().take();
        }
        let Some(server) = self.servers().find(|server| server.node == node) else { return };
        server.disk.set_crash_point(None);
        if power_fails {
            server.disk.lose_power();
        }
    }
}

/// As the product does it, but within the metadata server's process.
fn carry_out(one: Task, control: Arc<moving::Control>) {
    drop(task::spawn(async move {
        let options = || Options { name: "mover".into(), ..Options::default() };
        let connect = || Fs::connect(Arc::new(SimNet), "meta", options());
        if let Some(fs) = moving::connected(connect, &control).await {
            moving::carry_out(&fs, &one, &control).await;
            fs.bye().await;
        }
        control.ended();
    }));
}

/// A server may not start while its disk is full; nothing else excuses it.
fn cannot_start(why: &str) -> ! {
    assert!(why.contains("No space left"), "a server cannot start: {why}");
    task::exit(why)
}

fn media(disk: &SimDisk) -> Media {
    let dir = PathBuf::from(META_DIR);
    let map = Rows::new(SimRows(disk.map(&dir)));
    Media { dir, disk: Arc::new(disk.clone()), map }
}

/// Serves whoever comes.
async fn serve<T: Tree + 'static>(tree: Rc<T>) {
    let listener = net::listen();
    loop {
        let stream = listener.accept().await;
        let peer = Peer { name: "sim".into(), uid: Some(0), has_key: true };
        let session = Session::new(tree.clone(), peer, server::Config::default());
        drop(task::spawn(async move {
            // A peer that breaks off ends its connection only.
            let _ = run(session, stream).await;
        }));
    }
}

/// Whether an error says that something was out of reach, rather than wrong.
pub fn is_away(error: &Error) -> bool {
    matches!(error.code(), Errno::EIO | Errno::ENOSPC)
}
