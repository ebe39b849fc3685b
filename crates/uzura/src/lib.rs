//! The UZURA engine. So far its [`model`]: the paper's network card as a pipeline that one can
//! compute with.
//!
//! The paper: Nakashima et al., "Toward an Implementation of High Performance Communication Offload
//! Engine UZURA". Its 4.03 us and 1.02 GB/s are themselves predictions from the times of components; this
//! crate makes the same ones, says where each number comes from, and what would follow from others.
//!
//! ```
//! use covey_uzura::model::{Nic, Way, message, rdma};
//!
//! let (nic, way) = (Nic::paper(), Way::paper());
//! assert_eq!(message(&nic, &way, 64).unwrap().arrival_ps, 4_030_000);
//! let rate = rdma(&nic, &way, 4096).unwrap().bytes_per_s;
//! assert_eq!(format!("{:.2}", rate / 1e9), "1.02");
//! ```

#![forbid(unsafe_code)]
#![deny(missing_docs)]

pub mod model;
