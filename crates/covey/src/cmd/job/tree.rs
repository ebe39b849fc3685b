//! A node's `/xcpu`, reached directly or through this machine's own node, and sessions there.

use crate::cmd::ninep::peer::{Peer, Reply};
use crate::config::Config;
use crate::error::{Error, Result};
use covey_cluster::{key, net};
use covey_launch::job::{Part, part_of};
use covey_ninep::client::Fid;
use covey_ninep::control::quote;
use covey_ninep::tree::Errno;
use covey_wire::Bytes;
use std::rc::Rc;
use std::time::Duration;

/// The sessions of one node.
pub struct NodeTree {
    /// The node.
    pub name: String,
    peer: Peer,
    /// Where its sessions are in the tree of whoever is connected.
    base: String,
}

impl NodeTree {
    /// Reaches a node as the user who runs the command: directly where the kernel or the cluster key vouches for
    /// us, else through a node of this machine, which vouches for its users.
    pub async fn reach(config: &Config, name: &str) -> Result<Rc<NodeTree>> {
        let what = || format!("reach node {name}");
        match tokio::time::timeout(REACH_LIMIT, reach(config, name)).await {
            Ok(found) => found.on_node(what),
            Err(_) => {
                let limit = REACH_LIMIT.as_secs();
                let why = format!("cannot reach node {name}: no answer within {limit} s");
                Err(Error::work(why).hint("`covey ping` shows which nodes answer"))
            }
        }
    }

    /// Makes a session.
    pub async fn make(self: &Rc<Self>) -> Reply<Session> {
        let clone = self.open(&self.path("clone"), 0).await?;
        let text = self.peer.read(&clone, 0, 64).await?;
        let number = String::from_utf8_lossy(&text).trim().parse::<u64>();
        let number = number.map_err(|_| Errno::because(Errno::EPROTO, "clone gave no number"))?;
        let ctl = self.open(&self.path(&format!("{number}/ctl")), O_RDWR).await?;
        Ok(Session { node: self.clone(), number, ctl, _made: Some(clone) })
    }

    /// A session that is there.
    pub async fn session(self: &Rc<Self>, number: u64) -> Reply<Session> {
        let ctl = self.open(&self.path(&format!("{number}/ctl")), O_RDWR).await?;
        Ok(Session { node: self.clone(), number, ctl, _made: None })
    }

    /// The parts of jobs among the node's sessions that this user may see.
    pub async fn parts(&self) -> Reply<Vec<FoundPart>> {
        let root = self.peer.walk(&self.base).await?;
        let names = self.peer.names(&root).await?;
        let numbers = names.iter().filter_map(|name| std::str::from_utf8(name).ok()?.parse().ok());
        let mut found = Vec::new();
        for number in numbers {
            // It may be gone by now, or another user's.
            let Ok(id) = self.text(&format!("{number}/id")).await else { continue };
            let Some((job, part)) = part_of(&id) else { continue };
            let Ok(owner) = self.owner(number).await else { continue };
            found.push(FoundPart { number, owner, job: job.to_owned(), part });
        }
        Ok(found)
    }

    /// Whose session it is.
    async fn owner(&self, number: u64) -> Reply<u32> {
        let fid = self.peer.walk(&self.path(&format!("{number}/id"))).await?;
        Ok(self.peer.getattr(&fid).await?.uid)
    }

    /// All of a text file.
    pub async fn text(&self, file: &str) -> Reply<String> {
        let fid = self.open(&self.path(file), 0).await?;
        let mut text = Vec::new();
        loop {
            let data = self.peer.read(&fid, text.len() as u64, 64 << 10).await?;
            if data.is_empty() {
                return Ok(String::from_utf8_lossy(&text).into_owned());
            }
            text.extend_from_slice(&data);
            if text.len() > TEXT_BYTES_MAX {
                return Err(Errno::because(
                    Errno::EFBIG,
                    format!("{file} is longer than any text"),
                ));
            }
        }
    }

    fn path(&self, file: &str) -> String {
        format!("{}/{file}", self.base)
    }

    async fn open(&self, path: &str, flags: u32) -> Reply<Fid> {
        let fid = self.peer.walk(path).await?;
        self.peer.open(&fid, flags).await?;
        Ok(fid)
    }
}

/// A session that is a part of a job.
#[derive(Clone, Debug)]
pub struct FoundPart {
    /// The session.
    pub number: u64,
    /// The number of the user whose it is.
    pub owner: u32,
    /// The job.
    pub job: String,
    /// Which part.
    pub part: Part,
}

/// A session, which lives at least as long as this.
pub struct Session {
    /// Where it is.
    pub node: Rc<NodeTree>,
    /// Its number there.
    pub number: u64,
    ctl: Fid,
    _made: Option<Fid>,
}

impl Session {
    /// Writes a command to the control file. The reason of a failure is read from there, where the dialect has
    /// carried a number only.
    pub async fn command(&self, words: &[&str]) -> Reply<()> {
        let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
        let line = format!("{}\n", words.join(" "));
        match self.node.peer.write_all(&self.ctl, 0, line.into()).await {
            Err(error) if error.reason.is_empty() => Err(self.last_error(error).await),
            other => other.map(drop),
        }
    }

    async fn last_error(&self, error: Errno) -> Errno {
        let Ok(text) = self.node.text(&format!("{}/ctl", self.number)).await else { return error };
        match text.lines().find_map(|line| line.strip_prefix("# last error: ")) {
            Some(reason) => Errno::because(error.code, reason.to_owned()),
            None => error,
        }
    }

    /// Opens one of its files.
    pub async fn open(&self, file: &str, flags: u32) -> Reply<Fid> {
        self.node.open(&self.node.path(&format!("{}/{file}", self.number)), flags).await
    }

    /// Writes a whole file.
    pub async fn write(&self, file: &str, data: Bytes) -> Reply<()> {
        let fid = self.open(file, O_WRONLY | O_TRUNC).await?;
        self.node.peer.write_all(&fid, 0, data).await?;
        fid.clunk().await.map_err(Errno::from)
    }

    /// Up to `count` bytes; nothing at the end.
    pub async fn read(&self, fid: &Fid, offset: u64, count: u32) -> Reply<Bytes> {
        self.node.peer.read(fid, offset, count).await
    }

    /// All of `data`.
    pub async fn put(&self, fid: &Fid, offset: u64, data: Bytes) -> Reply<()> {
        self.node.peer.write_all(fid, offset, data).await.map(drop)
    }

    /// Sends a signal by its name.
    pub async fn signal(&self, name: &str) -> Reply<()> {
        self.command(&["signal", name]).await
    }
}

async fn reach(config: &Config, name: &str) -> std::result::Result<Rc<NodeTree>, Errno> {
    let key =
        key::read(config).map_err(|error| Errno::because(Errno::EACCES, error.to_string()))?;
    let refusal = match net::dial_bulk(config, name, "/", key).await {
        Ok(conn) => return checked(name, conn, "xcpu".into()).await,
        Err(error) => error,
    };
    let here =
        config.nodes.iter().filter(|node| node.unix_socket().is_some_and(|path| path.exists()));
    for node in here.filter(|node| node.name != name) {
        let Ok(conn) = net::dial_bulk(config, &node.name, "/", None).await else { continue };
        let found = checked(name, conn, format!("n/{name}/xcpu")).await;
        return found.map_err(|error| said_best(refusal, &node.name, error));
    }
    Err(refusal)
}

/// Of two errors the one that says why: what a node could not do for us comes back from it as a number.
fn said_best(direct: Errno, by: &str, error: Errno) -> Errno {
    if !error.reason.is_empty() {
        error
    } else if direct.code != Errno::EACCES {
        direct
    } else {
        let why = format!("{by} cannot reach it: {}", error.text());
        Errno::because(error.code, why)
    }
}

/// A node that starts no programs has no such tree.
async fn checked(
    name: &str,
    conn: covey_ninep::client::Conn,
    base: String,
) -> std::result::Result<Rc<NodeTree>, Errno> {
    let tree = NodeTree { name: name.to_owned(), peer: Peer { conn }, base };
    match tree.peer.walk(&tree.base).await {
        Ok(_) => Ok(Rc::new(tree)),
        Err(error) if error.code == Errno::ENOENT => {
            Err(Errno::because(Errno::ENOENT, "it starts no programs: it has no /xcpu"))
        }
        Err(error) => Err(error),
    }
}

/// What a node has refused or failed to do, without the hints that are about files.
pub trait OnNode<T> {
    /// Names what was being done.
    fn on_node(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> OnNode<T> for Reply<T> {
    fn on_node(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| {
            let why = if error.reason.is_empty() { error.text() } else { &error.reason };
            Error::work(format!("cannot {}: {why}", what()))
                .hint("`covey nodes` shows what the nodes say of themselves")
        })
    }
}

/// How long it may take until a node answers.
const REACH_LIMIT: Duration = Duration::from_secs(10);
const TEXT_BYTES_MAX: usize = 64 << 20;
const O_WRONLY: u32 = 1;
const O_RDWR: u32 = 2;
const O_TRUNC: u32 = 0o1000;
