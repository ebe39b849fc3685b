//! What runs for figures: it brings the times from which [`covey_tune`] draws its conclusions.
//!
//! [`probe`] measures a link between two nodes, [`mpi`] and [`pvm`] the libraries above it, [`app`] programs
//! that multiply and solve, [`disk`] directories and devices; [`all`] does everything within a budget.
//! [`uzura`] measures the message engine beside what the machine can do ([`floor`]) and beside other libraries.
//! [`reproduce`] measures again, in labs, what papers measured. Each answers a report, which is text for a
//! person, JSON for programs, and a section of a [page](html). Nothing here knows the command line, asks the
//! terminal or prints: a command says what to measure, and shows what was found.
//!
//! ```text
//!   Plan ──► probe, mpi, pvm, app, disk ──times──► covey_tune ──► Report ──► text, JSON, html
//!                │        │                                          ▲
//!              lab      child programs              Environment, Provenance: can it be believed
//! ```

#![forbid(unsafe_code)]

pub mod all;
pub mod app;
pub mod blocks;
pub mod btio;
pub mod calls;
pub mod cell;
pub mod child;
pub mod disk;
pub mod environment;
pub mod fabric;
pub mod floor;
pub mod hosts;
pub mod html;
pub mod launch;
pub mod levels;
pub mod mpi;
pub mod probe;
pub mod programs;
pub mod provenance;
pub mod pvm;
pub mod report;
pub mod reproduce;
pub mod results;
pub mod scratch;
pub mod stop;
pub mod usage;
pub mod uzura;

use covey_cluster::{config, error};
