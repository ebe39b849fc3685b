//! Measurements of a network turned into numbers that can be used.
//!
//! The method is NetPIPE's: blocks of many sizes go to and fro between two programs, and what each size
//! takes makes a curve. This crate says which [sizes](sizes()) to try, what a handful of times
//! says about one size ([`Point`]), and what a whole [`Curve`] says about a link ([`Quantities`]): latency,
//! bandwidth, where it saturates, each with an interval and the definition that was used. It does no
//! I/O and knows no clock: you bring the times.
//!
//! ```text
//!   sizes() ──► you measure ──► Point per size ──► Curve ──► Quantities
//!                                                    └─────► netpipe::write, series for graphs
//! ```
//!
//! A link without noise, of 50 us and 100 Mbit/s:
//!
//! ```
//! use covey_tune::{Curve, Point, Quantities, sizes};
//!
//! let time = |bytes: u64| 50e-6 + bytes as f64 * 8.0 / 100e6;
//! let points = sizes(1 << 20, 3).into_iter().map(|bytes| Point::new(bytes, vec![time(bytes); 9]));
//! let found = Quantities::of(&Curve::new(points)).unwrap();
//! assert!((found.latency_s.value - 50e-6).abs() < 1e-7);
//! assert!((found.bandwidth_bits_per_s.value - 100e6).abs() < 1e5);
//! ```
//!
//! The definitions, and how they follow from those of NetPIPE and of Hockney's model, stand in
//! [`quantities`].

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod application;
pub mod choose;
mod curve;
pub mod diagnose;
pub mod eliminate;
pub mod levels;
pub mod netpipe;
pub mod pacer;
pub mod papers;
pub mod quantities;
pub mod records;
pub mod reproduce;
mod schedule;
pub mod split;
mod statistics;
mod step;
pub mod timed;
pub mod trend;
pub mod wire;

pub use curve::{Curve, Pick, Point};
pub use quantities::Quantities;
pub use schedule::{rounds, sizes};
pub use statistics::{Estimate, quantile, theil_sen};
pub use step::{Step, step};
