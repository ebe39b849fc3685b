//! What the command line does by itself, without a cluster or in a lab, and the project's rules of form.

#[macro_use]
extern crate covey_harness_macro;

mod answers;
mod cluster;
mod config;
mod dash;
mod dependencies;
mod docs;
mod files;
mod fstab;
mod genconfig;
mod home;
mod image;

mod keygen;
mod layers;
mod maintenance;
mod measure;
mod metrics;
mod mpi;
mod packaging;
mod recipes;
mod reference;
mod site;
#[path = "../support/mod.rs"]
mod support;
mod uzura;

fn main() {
    covey_harness::run()
}
