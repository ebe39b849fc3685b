//! `libcovey-fi.so`: Covey's message engine as a provider of libfabric, for MPI libraries and whatever else speaks it.
//!
//! libfabric (1.17 to 2.5) loads it from a directory of `FI_PROVIDER_PATH` and asks `boundary`'s `fi_prov_ini` what it
//! is. Then programs open its objects, whose files have libfabric's names: `fabric`, `domain`, `ep`, `av`, `cq`,
//! `cntr`, `eq`, `mr`. What it can do is said once, in the tables of `info`. Nothing of the protocol is here: an
//! endpoint is an engine of `covey-uzura` over the mixed transport of `covey-io`.
//!
//! ```text
//!   fi_tsend(ep, ..)              C
//!        │ fence: a panic is -FI_EOTHER                boundary
//!        ▼
//!   State of the domain, one thread at a time          domain, gate
//!        │ fi_addr_t -> Peer                           av
//!        ▼
//!   Engine<Mixed, Addresses>::send                     ep
//!        │
//!        ▼ Completion
//!   entry of a queue, count of a counter               cq, cntr
//! ```
//!
//! What always holds: no entry point unwinds into C; what was refused has had no effect; a context that a program
//! gives with an operation is given back at most once.

#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(test)]
#[macro_use]
extern crate covey_harness_macro;

// Written out as the headers have it, used or not.
#[allow(dead_code)]
mod abi;
mod av;
mod boundary;
mod cntr;
mod cq;
mod domain;
mod ep;
mod eq;
mod fabric;
mod gate;
mod host;
mod info;
mod mr;
mod slab;
mod wait;

#[cfg(test)]
mod tests;

#[cfg(test)]
fn main() {
    covey_harness::run()
}
