//! A server of PMIx, by the library that Open MPI's programs use, loaded at run time. One for each process: the
//! library keeps its state for itself, starts a thread, and calls us from there.
//!
//! ```text
//!   ranks ◄──► libpmix ──► callbacks (its thread) ──► Event, in a channel ──► whoever drives the server
//!                      ◄── Done::answer, Server::ask
//! ```
//!
//! Everything that ends in the library is copied; nothing it gives us is kept.

mod callbacks;
mod library;

use library::{Info, Library, Proc};
use std::ffi::{CStr, CString, c_char, c_void};
use std::io;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;

/// What a rank asks of those who have started it.
#[derive(Debug)]
pub enum Event {
    /// It has begun to use the library.
    Joined(u32),
    /// It has ended its use of the library.
    Finalized(u32),
    /// It has broken off without that.
    Lost(u32),
    /// The node's part of these ranks has arrived at a fence, of all ranks when there is none in the list.
    Fence {
        /// The ranks.
        ranks: Vec<u32>,
        /// What they bring.
        data: Vec<u8>,
        /// To be answered with what everybody brought.
        done: Done,
    },
    /// What has that rank put, which is another node's?
    Ask {
        /// The rank.
        rank: u32,
        /// To be answered with it.
        done: Done,
    },
    /// The answer to [`Server::ask`].
    Known {
        /// As it was asked.
        token: u64,
        /// What the rank has put, when it is known.
        data: Option<Vec<u8>>,
    },
    /// A rank wants the job to end.
    Abort {
        /// The rank.
        rank: u32,
        /// With this exit code.
        code: i32,
        /// Its words.
        why: String,
    },
}

/// A question of the library that waits for its answer.
#[derive(Debug)]
pub struct Done {
    answer: callbacks::ModexCallback,
    /// The library's own.
    object: usize,
}

impl Done {
    /// Answers, with nothing when there is no answer.
    pub fn answer(self, data: Option<Vec<u8>>) {
        callbacks::answer(self.answer, self.object, data);
    }
}

/// A job, as the library must know it.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// Its name, which is the name space.
    pub name: &'a str,
    /// The nodes, and the first rank of each, and behind them the number of ranks.
    pub nodes: &'a [String],
    /// See `nodes`.
    pub firsts: &'a [u32],
    /// Which of the nodes this is.
    pub node: usize,
}

impl Job<'_> {
    fn ranks(&self, node: usize) -> std::ops::Range<u32> {
        self.firsts[node]..self.firsts[node + 1]
    }

    fn size(&self) -> u32 {
        *self.firsts.last().expect("the number of ranks stands last")
    }
}

/// The library as a server.
pub struct Server {
    library: &'static Library,
    name: CString,
    events: UnboundedReceiver<Event>,
}

impl Server {
    /// Loads the library and serves the ranks of one node. Its files are in `directory`. May be called once in a
    /// process.
    pub fn start(job: Job<'_>, directory: &Path) -> io::Result<Server> {
        let library = Library::load()?;
        let events =
            callbacks::open().ok_or_else(|| io::Error::other("there is a PMIx server already"))?;
        let name = text(job.name)?;
        let directory = text(&directory.display().to_string())?;
        let mut info = Info::new(library);
        info.text("pmix.srvr.tmpdir", &directory)?;
        info.text("pmix.sys.tmpdir", &directory)?;
        info.text("pmix.hname", &text(&job.nodes[job.node])?)?;
        info.text("pmix.srv.nspace", &text(&format!("{}-server", job.name))?)?;
        info.rank("pmix.srv.rank", job.node as u32)?;
        let (array, count) = info.finish()?;
        // SAFETY: the module is a table of 64 pointers, more than the library reads, which lives for ever; the array
        // was made by the library.
        let status = unsafe { (library.server_init)(callbacks::module(), array, count) };
        check("PMIx_server_init", status)?;
        let server = Server { library, name, events };
        server.watch_losses();
        server.register(job)?;
        Ok(server)
    }

    /// The variables that a rank of this node needs in its environment, `NAME=VALUE`.
    pub fn variables(&self, rank: u32) -> io::Result<Vec<String>> {
        let proc = Proc::new(&self.name, rank);
        let mut env: *mut *mut c_char = std::ptr::null_mut();
        // SAFETY: the library appends to the list that `env` points to, which it allocates itself.
        let status = unsafe { (self.library.setup_fork)(&raw const proc, &raw mut env) };
        check("PMIx_server_setup_fork", status)?;
        let mut all = Vec::new();
        // SAFETY: the list ends with a null pointer, and each entry before is a string with its end.
        unsafe {
            let mut next = env;
            while !next.is_null() && !(*next).is_null() {
                all.push(CStr::from_ptr(*next).to_string_lossy().into_owned());
                next = next.add(1);
            }
        }
        Ok(all)
    }

    /// Asks what a rank of this node has put; [`Event::Known`] is the answer.
    pub fn ask(&self, rank: u32, token: u64) {
        let proc = Proc::new(&self.name, rank);
        let object = Box::into_raw(Box::new(token));
        // SAFETY: the library calls `known` once with the token, which is taken back there, unless it refuses.
        let status = unsafe {
            (self.library.dmodex_request)(
                &raw const proc,
                callbacks::known,
                object.cast::<c_void>(),
            )
        };
        if status != SUCCESS {
            // SAFETY: refused: nobody else will take it back.
            drop(unsafe { Box::from_raw(object) });
            callbacks::send(Event::Known { token, data: None });
        }
    }

    /// The next thing that a rank wants.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    fn watch_losses(&self) {
        let mut codes = [ERR_LOST_CONNECTION];
        // SAFETY: one code is there; the handler has the library's type; without callback the library waits until
        // it is registered.
        let _ = unsafe {
            (self.library.register_event_handler)(
                codes.as_mut_ptr(),
                codes.len(),
                std::ptr::null_mut(),
                0,
                callbacks::lost,
                std::ptr::null(),
                std::ptr::null_mut(),
            )
        };
    }

    /// Tells the library of the job and of the ranks here.
    fn register(&self, job: Job<'_>) -> io::Result<()> {
        let here = job.ranks(job.node);
        let (array, count) = self.description(job)?;
        let local = here.len() as i32;
        let name = self.name.as_ptr();
        self.waiting("PMIx_server_register_nspace", |callback, object| {
            // SAFETY: the name has its end, the array was made by the library, and the callback takes the object.
            unsafe { (self.library.register_nspace)(name, local, array, count, callback, object) }
        })?;
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        for rank in here {
            let proc = Proc::new(&self.name, rank);
            self.waiting("PMIx_server_register_client", |callback, object| {
                let rank = std::ptr::without_provenance_mut(rank as usize);
                // SAFETY: the process is read during the call; the object of the rank is a number to everybody.
                unsafe {
                    (self.library.register_client)(
                        &raw const proc,
                        uid,
                        gid,
                        rank,
                        callback,
                        object,
                    )
                }
            })?;
        }
        Ok(())
    }

    fn description(&self, job: Job<'_>) -> io::Result<(*mut c_void, usize)> {
        let here = job.ranks(job.node);
        let numbers = |ranks: std::ops::Range<u32>| {
            let words: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
            words.join(",")
        };
        let map: Vec<String> = (0..job.nodes.len()).map(|node| numbers(job.ranks(node))).collect();
        let mut info = Info::new(self.library);
        info.text("pmix.jobid", &self.name)?;
        info.text("pmix.nmap", &text(&job.nodes.join(","))?)?;
        info.text("pmix.pmap", &text(&map.join(";"))?)?;
        info.text("pmix.lpeers", &text(&numbers(here.clone()))?)?;
        info.rank("pmix.lldr", here.start)?;
        for key in ["pmix.univ.size", "pmix.job.size", "pmix.app.size", "pmix.max.size"] {
            info.number(key, job.size())?;
        }
        info.number("pmix.job.napps", 1)?;
        info.number("pmix.num.nodes", job.nodes.len() as u32)?;
        info.number("pmix.local.size", here.len() as u32)?;
        info.number("pmix.node.size", here.len() as u32)?;
        for (node, name) in job.nodes.iter().enumerate() {
            let name = text(name)?;
            for rank in job.ranks(node) {
                let local = (rank - job.ranks(node).start) as u16;
                let mut one = Info::new(self.library);
                one.rank("pmix.rank", rank)?;
                one.rank("pmix.grank", rank)?;
                one.rank("pmix.apprank", rank)?;
                one.number("pmix.appnum", 0)?;
                one.short("pmix.lrank", local)?;
                one.short("pmix.nrank", local)?;
                one.number("pmix.nodeid", node as u32)?;
                one.text("pmix.hname", &name)?;
                info.group("pmix.pdata", one)?;
            }
        }
        info.finish()
    }

    /// A call that may be finished later, by a callback with the status.
    fn waiting(
        &self,
        what: &str,
        call: impl FnOnce(callbacks::OpCallback, *mut c_void) -> i32,
    ) -> io::Result<()> {
        let (tell, told) = channel::<i32>();
        let object = Box::into_raw(Box::new(tell)).cast::<c_void>();
        match call(callbacks::finished, object) {
            SUCCESS => {
                let status = told.recv_timeout(CALL_LIMIT);
                check(what, status.map_err(|_| io::Error::other(format!("{what} does not end")))?)
            }
            status => {
                // SAFETY: the callback is not called then; nobody else takes the sender back.
                drop(unsafe { Box::from_raw(object.cast::<Sender<i32>>()) });
                check(what, if status == OPERATION_SUCCEEDED { SUCCESS } else { status })
            }
        }
    }
}

fn text(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::other(format!("{text:?} has a NUL inside")))
}

fn check(what: &str, status: i32) -> io::Result<()> {
    match status {
        SUCCESS => Ok(()),
        status => Err(io::Error::other(format!("{what} fails with status {status}"))),
    }
}

const SUCCESS: i32 = 0;
const ERROR: i32 = -1;
const ERR_NOT_FOUND: i32 = -46;
const ERR_LOST_CONNECTION: i32 = -61;
const OPERATION_SUCCEEDED: i32 = -157;
/// All ranks of a job.
const RANK_WILDCARD: u32 = u32::MAX - 1;
/// How long the library's thread may take for what it has to note.
const CALL_LIMIT: Duration = Duration::from_secs(20);
