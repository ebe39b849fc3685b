//! The real world: Linux.

pub mod addresses;
pub mod arp;
pub mod card;
pub mod clock;
pub mod credentials;
pub mod directory;
pub mod disk;
pub mod file;
pub mod floor;
pub mod kv;
pub mod limits;
pub mod lock;
pub mod log;
pub mod memory;
pub mod mount;
pub mod namespaces;
pub mod net;
pub mod ofd;
pub mod packets;
pub mod place;
pub mod random;
pub mod run;
pub mod shm;
pub mod tap;
pub mod tcp;
pub mod users;
