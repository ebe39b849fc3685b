//! What a node does in the world for the sessions on it: the traits that whoever serves them implements.

use crate::spawn::flow::Net;
use crate::spawn::manifest::Entry;
use covey_ninep::namespace::Part;
use covey_ninep::tree::{Outcome, Result, User};
use covey_wire::Bytes;
use std::rc::Rc;

/// The node that sessions are on.
pub trait Host: 'static {
    /// The system and the kind of processor, as `Linux/x86_64`.
    fn arch(&self) -> String;

    /// The processes of the node, as the file `procs` shows them.
    fn procs(&self) -> Outcome<Bytes>;

    /// EACCES where the node starts no programs for this user: it could not start them as the user.
    fn admit(&self, user: &User) -> Result<()>;

    /// Whether the user may use other users' sessions and change what concerns all.
    fn is_manager(&self, user: &User) -> bool;

    /// A place for the files of a new session, which belong to `owner`.
    fn place(&self, owner: &Rc<User>, number: u64) -> Result<Rc<dyn Place>>;

    /// Lines for the root's control file: what the node limits, and what it cannot.
    fn about(&self) -> String;

    /// How sessions of this user are reached on other nodes.
    fn net(&self, user: &Rc<User>) -> Rc<dyn Net>;
}

/// Where a session has its files and starts its program.
pub trait Place: 'static {
    /// The session's own directory on the node: what `fs` shows, and where its program starts.
    fn files(&self) -> Rc<dyn Part>;

    /// Begins a new program: what was there is gone.
    fn begin_program(&self) -> Result<()>;

    /// Writes a piece of the program.
    fn write_program(&self, offset: u64, data: Bytes) -> Outcome<u32>;

    /// Reads a piece of it; nothing at its end.
    fn read_program(&self, offset: u64, count: u32) -> Outcome<Bytes>;

    /// The program's length in bytes; None while there is none.
    fn program_bytes(&self) -> Option<u64>;

    /// The program, if there is one, and what is in the session's directory: what contains others first.
    fn entries(&self) -> Outcome<Vec<Entry>>;

    /// Makes these files, empty and to be written; what is there under their names is replaced.
    fn make_entries(&self, entries: &[Entry]) -> Outcome<()>;

    /// Reads a part of a program or file.
    fn read_entry(&self, entry: &Entry, offset: u64, count: u32) -> Outcome<Bytes>;

    /// Writes a part of a program or file that was made.
    fn write_entry(&self, entry: &Entry, offset: u64, data: Bytes) -> Outcome<u32>;

    /// Gives the files that were made their modes.
    fn finish_entries(&self, entries: &[Entry]) -> Outcome<()>;

    /// Removes the files. Who has one open may still read it.
    fn remove(&self);

    /// Starts a program. `ended` is called once, with the status that wait(2) gives, when it has ended.
    fn start(&self, program: Program, ended: Ended) -> Outcome<Rc<dyn Job>>;
}

/// Called with the wait status of a program.
pub type Ended = Box<dyn FnOnce(i32)>;

/// A program to be started.
#[derive(Clone, Debug)]
pub struct Program {
    /// Which file it is.
    pub which: Which,
    /// Its arguments, of which the first is its name. No NUL in any.
    pub argv: Vec<Vec<u8>>,
    /// Its environment: `NAME=VALUE` each. No NUL in any.
    pub env: Vec<Vec<u8>>,
    /// Where it starts; None is the session's own directory.
    pub directory: Option<String>,
    /// A terminal of this size instead of pipes.
    pub terminal: Option<Size>,
    /// As whom it runs.
    pub user: Rc<User>,
}

/// Which file is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// What was written to `exec`.
    Copied,
    /// A file in the session's own directory, by names below that.
    Inside(String),
    /// A path on the node, looked for in PATH when it has no slash.
    OnNode(String),
}

impl Which {
    /// What it is called where nobody has said otherwise.
    pub fn name(&self) -> &str {
        match self {
            Which::Copied => "exec",
            Which::Inside(path) | Which::OnNode(path) => path,
        }
    }
}

/// A started program and everything that it starts.
pub trait Job: 'static {
    /// What it has written, as soon as there is something and at most `bytes_max`; nothing at the end.
    fn read(&self, output: Output, bytes_max: u32) -> Outcome<Bytes>;

    /// Hands it input, as much as it takes now.
    fn write(&self, data: Bytes) -> Outcome<u32>;

    /// Ends its input.
    fn close_input(&self);

    /// Sends a signal to its process group, at once; the answer says whether the system has let it through.
    fn signal(&self, signal: i32) -> Outcome<()>;

    /// Tells it that its terminal has another size; EOPNOTSUPP where it has none.
    fn resize(&self, size: Size) -> Result<()>;

    /// Kills it and every process that came of it. Reads end, and writes fail.
    fn kill(&self);
}

/// An output of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output, or the terminal.
    Out,
    /// Standard error; empty where there is a terminal.
    Err,
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}
