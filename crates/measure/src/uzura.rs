//! `covey uzura bench`: what moves bytes between two processes of this machine, each measured the same way.
//!
//! [`floors`] are what the machine itself does; [`engine`] is ours; [`peers`] are message libraries. A [`Meter`](meter::Meter)
//! takes thousands of short batches and, between them, the time of a bare cache line, because the host moves virtual CPUs
//! about and everything follows that. [`bars`] says what is held against what.

pub mod bars;
pub mod cpus;
pub mod engine;
pub mod figures;
pub mod floors;
pub mod iperf;
pub mod meter;
pub mod other;
pub mod peers;
pub mod reads;
pub mod served;
pub mod what;
