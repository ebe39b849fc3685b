//! What the command line does by itself, without a cluster, and the project's rules of form.

mod cluster;
mod config;
mod dependencies;
mod docs;
mod files;
mod genconfig;
mod home;
mod keygen;
mod layers;
mod packaging;
mod reference;
mod uzura;
