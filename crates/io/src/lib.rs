//! Where the world is: sockets, files, clocks, the key-value store and the loop that runs a machine.
//!
//! Protocols are pure state machines ([`covey_wire::Machine`]); this crate brings them the bytes and
//! the time. It knows no protocol, so nothing here can be wrong about one. `unsafe` code of the
//! system's servers lives here and nowhere else, each block with its reason.
//!
//! ```text
//!   TcpStream, UnixStream ──bytes──► run() ──► Machine::handle_input
//!           ▲                          │
//!           └────one gathered write────┴────── Machine::poll_output
//! ```
//!
//! What lives under [`os`] talks to a real Linux. Nothing else exists yet: a simulated network, disk
//! and clock with the same shapes come later, and until then no test runs on simulated time.
//!
//! ```
//! use covey_io::os::net::Address;
//! let address: Address = "tcp!127.0.0.1!564".parse().unwrap();
//! assert!(address.is_local());
//! assert_eq!(address.to_string(), "tcp!127.0.0.1!564");
//! ```

#![deny(missing_docs)]
#![deny(unsafe_op_in_unsafe_fn)]

pub mod os;

pub use os::run::{Stream, run};
