//! The metadata store, operation by operation.

mod alone;
mod appends;
mod basics;
mod chains;
mod inline;
mod lab;
mod locks;
mod model;
mod moves;
mod permissions;
mod places;
mod projects;
mod quotas;
mod readdir;
mod refusals;
mod removals;
mod rename;
mod sessions;
mod sizes;
mod steps;
mod xattrs;
