//! Block volumes end to end: made by commands, served by a node, used by initiators that nobody here wrote.

#[macro_use]
extern crate covey_harness_macro;

mod attach;
mod commands;
mod contents;
mod initiator;
mod linux;
mod qemu;
mod suite;
#[path = "../support/mod.rs"]
mod support;
mod takeover;

fn main() {
    covey_harness::run()
}
