//! The mount over a model in memory, through the real kernel. Needs root and /dev/fuse; each test
//! says so where they are missing.

#[macro_use]
extern crate covey_harness_macro;

#[path = "fuse_mount/model.rs"]
mod model;
#[path = "fuse_mount/mounted.rs"]
mod mounted;
#[path = "fuse_mount/process.rs"]
mod process;

#[path = "fuse_mount/attributes.rs"]
mod attributes;
#[path = "fuse_mount/basics.rs"]
mod basics;
#[path = "fuse_mount/directories.rs"]
mod directories;
#[path = "fuse_mount/gathering.rs"]
mod gathering;
#[path = "fuse_mount/interrupts.rs"]
mod interrupts;
#[path = "fuse_mount/locks.rs"]
mod locks;
#[path = "fuse_mount/mapping.rs"]
mod mapping;

fn main() {
    covey_harness::run()
}
