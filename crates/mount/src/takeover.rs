//! A mount in use passes from one process to another, an upgraded one most often, and no program notices.
//!
//! The process that serves the mount ([`giver`]) listens at a socket ([`meeting`]). Its successor ([`taker`]) asks for the
//! mount; the two speak as [`message`] has it. The mount shuts its gate ([`crate::transport::Gate`]), says to the servers
//! whatever it has held back, and writes down the rest ([`state`]); the successor goes on in the same session of the
//! metadata server, which keeps its opens, locks and leases throughout. Whatever fails before the successor has said that
//! it serves, the mount goes on as it was.
//!
//! What always holds: one process at most reads the device and speaks in the session, and a request that was read is
//! answered once, by the one or the other.

mod giver;
mod meeting;
mod message;
pub(crate) mod state;
mod taker;
mod talk;

pub(crate) use giver::Offer;
pub(crate) use meeting::{Meeting, device_at};
pub(crate) use message::About;
pub(crate) use taker::{Taken, take};
pub use taker::{cluster_of, server_of};
