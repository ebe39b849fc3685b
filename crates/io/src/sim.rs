//! A simulated world: network, disks, processes and time, all out of one seed.
//!
//! The servers' and clients' own code runs here on one thread, in virtual time. Everything that a
//! real world decides (which task runs next, how long a packet or a disk takes, what a power cut leaves
//! of what was not synced) is decided by a [`Rng`], so a run is repeated exactly by its seed.
//!
//! ```text
//!   Sim::new(seed) ──► node("io1") ──► boot(node, async { .. })     a process of that machine
//!        │                                    │
//!        │            task::{spawn, sleep, now, blocking}, net::{listen, connect}, SimDisk
//!        │
//!        └── run(future) ── next ready task, else next timer ── trace, hash
//! ```
//!
//! What the parts promise:
//!
//! - [`net`]: streams deliver every byte once and in order, or end; a dropped packet is a delay, as
//!   with TCP. Partitions hold in one or both directions. Datagrams may be dropped, doubled and
//!   reordered.
//! - [`SimDisk`]: what was synced survives. The rest survives the death of a process; of a power loss it
//!   survives in any mixture of sectors, and of names any beginning of each directory's changes.
//! - Processes: one that is killed is gone with its memory, at any wait or at a chosen disk
//!   operation; one that is stopped does nothing until it goes on.
//!
//! No simulated process ever sees the real clock, the system's random numbers, or another thread.

mod card;
mod carrier;
mod disk;
mod executor;
pub mod net;
mod shares;
mod trace;
mod wire;

pub use carrier::{CarrierProfile, Carriers, SimMemory, SimTransport};
pub use covey_wire::Rng;
pub use disk::{DiskProfile, SimDisk, SimMap};
pub use executor::{Control, Hang, NodeId, Pace, Sim, note};
pub use wire::SimWire;

#[cfg(test)]
mod tests;
