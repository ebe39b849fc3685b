//! A node: its tree and what is bound there, and the loops that accept connections to it.
//!
//! [`serve`] runs one node of a cluster: the file system as any 9P client sees it ([`fs`]), names when it is
//! the metadata server ([`meta`]), objects when it keeps data ([`data`]), and the files by which it is watched
//! and told what to do ([`ctl`], [`stats`], [`watch`]). [`export`](node::export) serves a directory of this
//! machine instead. iSCSI initiators come in by [`iscsi`]. It knows no commands, and of the other nodes only what [`covey_cluster`] says.
//!
//! ```text
//!   connection ── accept ── Session (covey_ninep) ── NodeTree ─┬─ /fs    FsTree ──► striping client
//!                             │                                ├─ /meta  Meta ────► Store, journal
//!                  identity: who may attach                    ├─ /data  DataTree ► objects on a disk
//!                                                              └─ /ctl /stats ...   watch
//! ```

#![forbid(unsafe_code)]

#[cfg(test)]
#[macro_use]
extern crate covey_harness_macro;

pub mod accept;
pub mod boot;
pub mod cell;
pub mod ctl;
pub mod data;
pub mod export;
pub mod fs;
pub mod identity;
pub mod iscsi;
pub mod lobby;
pub mod meta;
pub mod moving;
pub mod net;
pub mod node;
pub mod place;
pub mod stats;
pub mod tree;
pub mod views;
pub mod vol;
pub mod watch;
pub mod works;
pub mod xcpu;

pub use identity::attach_trusted;
pub use node::{init, serve};

use covey_cluster::{config, error};
use node::statfs_of;

#[cfg(test)]
fn main() {
    covey_harness::run()
}
