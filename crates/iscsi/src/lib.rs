//! iSCSI (RFC 7143) and the SCSI block commands as pure machines.

#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::big_endian_bytes, clippy::host_endian_bytes)]

pub mod chap;
mod digest;
pub mod initiator;
pub mod message;
pub mod negotiate;
pub mod pdu;
pub mod scsi;
pub mod store;
pub mod target;
pub mod text;
