//! The targets by name: one for each decoder.

mod config;
mod fuse;
mod iscsi;
mod layout;
mod log;
mod mixed;
mod ninep;
mod scsi;
mod stripe;
mod uzura;

/// Name and function of every target. `scripts/fuzz` reads the names from here.
pub const TARGETS: &[(&str, fn(&[u8]))] = &[
    ("ninep_message", ninep::message),
    ("ninep_server", ninep::server),
    ("ninep_client", ninep::client),
    ("ninep_entries", ninep::entries),
    ("stripe_ops", stripe::ops),
    ("stripe_view", stripe::view),
    ("stripe_store", stripe::store),
    ("data_ops", stripe::data_ops),
    ("fuse_requests", fuse::requests),
    ("log_records", log::records),
    ("config_text", config::text),
    ("layout_description", layout::description),
    ("iscsi_message", iscsi::message),
    ("iscsi_login", iscsi::login),
    ("iscsi_target", iscsi::target),
    ("iscsi_initiator", iscsi::initiator),
    ("scsi_commands", scsi::commands),
    ("mixed_callers", mixed::callers),
    ("mixed_called", mixed::called),
    ("mixed_address", mixed::address),
    ("uzura_packets", uzura::packets),
    ("uzura_frames", uzura::frames),
];

/// Inputs to begin with, by target: made from the golden bytes, never kept.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let mut seeds = ninep::seeds();
    seeds.extend(stripe::seeds());
    seeds.extend(config::seeds());
    seeds.extend(layout::seeds());
    seeds.extend(iscsi::seeds());
    seeds.extend(scsi::seeds());
    seeds.extend(mixed::seeds());
    seeds.extend(uzura::seeds());
    seeds
}
