//! The file system of a job: made of the job's own nodes, and gone with the job.
//!
//! `covey up --job` runs once on each node of the job, `covey down --job` too. Nodes agree without talking to each
//! other first: the list of nodes, the port and the cluster's id follow from the job, and the key comes from a file
//! that all of them see.
//!
//! ```text
//!   args    the options
//!   which   which run of the job is meant, and which of its nodes this is
//!   place   the job's directory on this node: whose it is, its lock, its record, its end
//!   trust   what other users might have made or may change is refused
//!   plan    which job, which nodes, which of them this is: the configuration
//!   key     how the same key reaches every node
//!   up      starts this node's server; the first node waits for all and stages in
//!   down    stages out, stops this node's server, removes its directory
//!   stage   copies in, and out under other names until whole
//!   notes   what the nodes tell each other in the file system
//! ```
//!
//! What always holds: a directory is used and removed only if it is a real directory of this user that nobody else may
//! enter, and nothing is removed after a stage-out that failed or was cut off, unless somebody says so.

pub mod args;
pub mod down;
mod key;
mod notes;
mod place;
mod plan;
mod stage;
pub mod trust;
pub mod up;
mod which;
