//! iSCSI (RFC 7143) and the SCSI block commands (SAM, SPC, SBC) as pure machines: a target, an initiator, and the device
//! behind a target.
//!
//! The crate turns bytes into logins, numbered commands and their data, and back; it keeps sessions, reservations and unit
//! attentions. It does no I/O, reads no clock, starts no thread and makes no random number: you bring the sockets, the time, the
//! challenges, a [`Store`](store::Store) that has the bytes, and a loop that drives a [`Machine`](covey_wire::Machine).
//! Connections of one target may be driven by different threads. Lost data is not asked for again (ErrorRecoveryLevel 0):
//! a connection that fails is replaced, and what had no answer is sent again.
//!
//! ```text
//!   your code ──► Session ─ Connection ──► bytes ──► Connection ─ Session ──► Units ──► your Store
//!              ◄── Call     (initiator)  ◄──          (target)            ◄── Step  ◄── Answer
//! ```
//!
//! A loop moves bytes between the two machines; here it is three lines, over sockets it is the one in the `io` crate:
//!
//! ```
//! use covey_iscsi::initiator::{self, Request, Session};
//! use covey_iscsi::negotiate::Parameters;
//! use covey_iscsi::scsi::{Config, Unit, Units};
//! use covey_iscsi::store::{Answer, Hold, Reply, Request as Ask, Store};
//! use covey_iscsi::target::{self, Access, Portal, TargetConfig};
//! use covey_wire::{BytesMut, Machine, Segments};
//! use std::{future::Future, pin::pin, sync::Arc, task::{Context, Poll, Waker}, time::Instant};
//!
//! /// A megabyte of zeros.
//! struct Zeros;
//! impl Store for Zeros {
//!     fn ask(&self, request: Ask, _: Hold) -> Answer {
//!         Answer::Now(match request {
//!             Ask::Read { bytes, .. } => Reply::Data(vec![0; bytes as usize].into()),
//!             _ => Reply::Done,
//!         })
//!     }
//!     fn bytes(&self) -> u64 {
//!         1 << 20
//!     }
//!     fn losses(&self) -> u64 {
//!         0
//!     }
//! }
//!
//! fn pass(from: &mut impl Machine, to: &mut impl Machine, context: &mut Context<'_>) {
//!     let _ = from.poll_user(context);
//!     let mut out = Segments::new();
//!     while from.poll_output(&mut out, 1 << 20) {}
//!     let mut bytes: BytesMut = out.runs().flatten().copied().collect::<Vec<u8>>()[..].into();
//!     to.handle_input(Instant::now(), &mut bytes).unwrap();
//! }
//!
//! let name = "iqn.2026-01.org.example:disk";
//! let unit = Unit::new(Config {
//!     name: "disk".into(), serial: "0123456789".into(), target: name.into(), block_bytes: 512,
//!     read_only: true, removable: false, write_cache: false, portal_groups: vec![1],
//! }, Arc::new(Zeros), "").unwrap();
//! let portal = Portal::new();
//! portal.add(TargetConfig {
//!     name: name.into(), alias: None, portal_group: 1, device: Arc::new(Units::of(Arc::new(unit))),
//!     access: Access::default(), addresses: vec![], parameters: Parameters::TARGET,
//! });
//! let session = Session::new(initiator::Config {
//!     initiator: "iqn.2026-01.org.example:me".into(), target: Some(name.into()),
//!     isid: [0x80, 0, 0, 0, 0, 1], chap: None, mutual: None, parameters: Parameters::INITIATOR,
//! });
//!
//! let now = Instant::now();
//! let mut near = initiator::Connection::new(&session, [5; 32], now);
//! let mut far = target::Connection::new(portal, "127.0.0.1:3260".into(), [7; 33], now);
//! let inquiry = Request {
//!     lun: 0, cdb: [0x12, 0, 0, 0, 36, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
//!     data_out: Default::default(), data_in: BytesMut::zeroed(36), is_repeatable: true,
//! };
//! let mut call = pin!(session.command(inquiry));
//! let mut context = Context::from_waker(Waker::noop());
//! let done = loop {
//!     if let Poll::Ready(done) = call.as_mut().poll(&mut context) { break done.unwrap() }
//!     pass(&mut near, &mut far, &mut context);
//!     pass(&mut far, &mut near, &mut context);
//! };
//! assert_eq!((done.status, done.data_in.len()), (0, 36));
//! ```
//!
//! What is spoken, and what is not, is in `docs/protocol/iscsi.md`; how threads share a target is in design note 0026.

#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::big_endian_bytes, clippy::host_endian_bytes)]

pub mod chap;
mod digest;
pub mod initiator;
pub mod message;
pub mod name;
pub mod negotiate;
pub mod pdu;
pub mod scsi;
pub mod store;
pub mod target;
pub mod text;
