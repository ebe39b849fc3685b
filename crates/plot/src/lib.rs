//! Pictures of numbers: charts, tables and the frame of a report's page.
//!
//! A chart is SVG that needs no script and colours itself for light and dark pages; [`png`] turns it into
//! dots, with a font that is brought along. A [`graph`] is drawn in letters for a terminal, a [`table`] is
//! written for one, and [`page`] is the page that a report is put into. This crate measures nothing, reads
//! nothing and writes nothing: it is given numbers and answers text or bytes.
//!
//! ```text
//!   curves ──► Chart ──► svg ──► png::of_svg       a file, a section of a page
//!   points ──► graph::plot                         a terminal
//!   rows   ──► table, page::Table                  a terminal, a page
//! ```
//!
//! ```
//! let mut out = Vec::new();
//! covey_plot::table(&mut out, &["NODE", ">CPUS"], &[vec!["n1".into(), "16".into()]]);
//! assert_eq!(out, b"NODE  CPUS\nn1      16\n");
//! ```

#![forbid(unsafe_code)]

pub mod calendar;
pub mod chart;
pub mod graph;
pub mod page;
#[cfg(feature = "png")]
pub mod png;
mod table;

pub use calendar::utc;
pub use table::table;
