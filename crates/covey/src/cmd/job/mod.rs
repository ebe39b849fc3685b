//! Jobs as the commands see them: `run`, `attach`, `ps`, `kill`, `wait`, `nodes` and `push` are made of these.
//!
//! ```text
//!   pick     which nodes                     tree      a node's /xcpu, and a session there
//!   program  what is run                 parcel    files of this machine that go along
//!   spread   brings them to sessions of many nodes
//!   follow   ranks that run: output, ends, signals     print   their output as one stream
//!   stdin    this terminal's input to ranks            terminal   its size and modes
//!   mpi      the starters of an MPI job, and the launcher's part of what they tell each other
//! ```

pub mod find;
pub mod follow;
pub mod mpi;
pub mod parcel;
pub mod pick;
pub mod print;
pub mod program;
pub mod spread;
pub mod stdin;
pub mod terminal;
pub mod tree;
