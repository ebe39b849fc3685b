//! Scenes in virtual time: what both machines do, message by message.

mod alone;
mod auth;
mod bare;
mod classic;
mod control;
mod deposit;
mod errors;
mod flush;
mod import;
mod landing;
mod lending;
mod lifecycle;
mod liveness;
mod malformed;
mod memory;
mod namespace;
mod order;
mod pair;
mod strangers;
mod union;
mod view;
mod xattr;
