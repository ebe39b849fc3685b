//! The file system and what a node serves, end to end: the real binary, real processes, real mounts.

#[macro_use]
extern crate covey_harness_macro;

mod boot;
mod boot_guest;
mod clock;
mod consistency;
mod export;
mod failure;
mod files;
mod fsck;
mod layouts;
mod lease;
mod mount;
mod moves;
mod namespace;
mod pages;
mod peers;
mod persist;
mod posix;
mod quotas;
mod salvage;
mod servers;
mod sessions;
mod shared;
mod small;
mod stats;
#[path = "../support/mod.rs"]
mod support;
mod takeover;
mod users;
mod v9fs;
mod workloads;

fn main() {
    covey_harness::run()
}
