//! A node of a cluster that serves the clock besides: a process of its own, run from this test program.

use super::clock;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;

/// The command of a node called `name`; the test program `program` is this one, or a copy of it.
// Each test program uses its own part of this.
#[allow(dead_code)]
pub fn node_with_a_clock(program: &Path, config: &Path, name: &str) -> Command {
    let mut command = Command::new(program);
    command.args(["--exact", "clock::serve::a_node_with_a_clock", "--ignored", "--nocapture"]);
    command.env("CLOCK_CONFIG", config).env("CLOCK_NODE", name).stdout(Stdio::null());
    command
}

/// Not a test but such a node, until it is ended.
#[test]
#[ignore = "run by other tests"]
fn a_node_with_a_clock() {
    let (Some(config), Ok(name)) = (std::env::var_os("CLOCK_CONFIG"), std::env::var("CLOCK_NODE"))
    else {
        return;
    };
    let config = covey_cluster::config::load(Path::new(&config)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let say = |line: &str| println!("{line}");
    let served = covey_serve::node::serve_with(&config, &name, None, say, |names| {
        names.bind("time", Rc::new(clock()?))
    });
    tokio::task::LocalSet::new().block_on(&runtime, served).unwrap();
}
