//! The client against servers in memory, in virtual time.

mod away;
mod chains;
mod follow;
mod lab;
mod lease_model;
mod lease_scenes;
mod leases;
mod model;
mod moves;
mod rights;
mod scenes;
mod space;
mod writes;
