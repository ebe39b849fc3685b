//! libiscsi's programs, and a cluster with volumes for them.

use crate::support::{Cluster, Finished, has_program, run_within, skip};
use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

/// Whether libiscsi's programs are here; says so where they are not.
pub fn has_libiscsi() -> bool {
    let has = ["iscsi-test-cu", "iscsi-ls", "iscsi-inq"].iter().all(|name| has_program(name));
    if !has {
        skip("needs libiscsi-bin");
    }
    has
}

/// A loopback address at which nobody listens.
pub fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    listener.local_addr().expect("it is bound").to_string()
}

/// Exports a volume; its URL.
pub fn export(cluster: &Cluster, name: &str, address: &str) -> String {
    cluster.covey(&["volume", "export", name, "--listen", address]).trim().to_owned()
}

/// Runs one of libiscsi's programs.
pub fn libiscsi(program: &str, arguments: &[&str], limit: Duration) -> Finished {
    let mut command = Command::new(program);
    command.args(arguments);
    run_within(command, limit)
}
