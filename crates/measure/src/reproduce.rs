//! What papers measured, measured again in labs of its own.
//!
//! A [`Bench`] makes the labs and runs this program's other commands in them; [`erato`], [`ip_san`] and [`kisti`] know
//! what their paper did, part by part; [`lanl`] and [`uzura`] need no lab; [`told`] lays the numbers beside the paper's and judges its claims.

pub mod bench;
pub mod drawn;
pub mod erato;
pub mod ip_san;
pub mod kisti;
pub mod lanl;
pub mod told;
pub mod uzura;

pub use bench::Bench;
pub use told::Reproduction;
