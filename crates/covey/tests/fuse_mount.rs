//! The mount over a model in memory, through the real kernel. Needs root and /dev/fuse; each test
//! says so and passes where they are missing.

#[path = "fuse_mount/model.rs"]
mod model;
#[path = "fuse_mount/mounted.rs"]
mod mounted;

#[path = "support/skip.rs"]
mod skip;

#[path = "fuse_mount/basics.rs"]
mod basics;
