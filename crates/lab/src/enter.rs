//! Running a program on a node: into its namespaces from outside, or from another node.

use super::plan::Plan;
use super::state::{INSIDE, Lab};
use crate::error::{Cannot, Error, Result};
use covey_io::os::namespaces;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The namespaces of a node that are its own, in the order in which the keeper has them open.
pub const NODE_NAMESPACES: [&str; 3] = ["net", "uts", "mnt"];
/// The keeper's first descriptor that is a namespace: above those of all cards.
pub const FIRST_DESCRIPTOR: i32 = 1000;

/// How long a program on a node may take to end when it is asked to.
const END_WAIT: Duration = Duration::from_secs(1);

/// The keeper's descriptor of a node's namespace.
pub fn descriptor(node: usize, kind: usize) -> i32 {
    FIRST_DESCRIPTOR + (node * NODE_NAMESPACES.len() + kind) as i32
}

/// What must be joined to be on a node.
#[derive(Debug)]
pub struct Way {
    /// Namespaces of the whole lab, to be joined by the caller; empty inside the lab.
    lab: Vec<OwnedFd>,
    /// Namespaces of the node.
    node: Vec<OwnedFd>,
    /// What the program's environment gets.
    dir: PathBuf,
    /// Where it starts.
    here: Option<PathBuf>,
}

/// Finds the way to a node.
pub fn find(lab: &Lab, plan: &Plan, name: &str) -> Result<Way> {
    let node = lab.node(plan, name)?;
    let keeper = lab.living_keeper()?.pid;
    let what = || format!("enter node {name}");
    let open = |path: String| File::open(path).map(OwnedFd::from);
    let fds = (0..NODE_NAMESPACES.len()).map(|kind| descriptor(node, kind));
    let node = fds.map(|fd| open(format!("/proc/{keeper}/fd/{fd}")));
    let node = node.collect::<std::io::Result<Vec<_>>>().cannot(what)?;
    let mut of_lab = Vec::new();
    if !lab.is_around() {
        // The user's first: it permits the others.
        for kind in ["user", "ipc", "pid"] {
            let theirs = PathBuf::from(format!("/proc/{keeper}/ns/{kind}"));
            // One's own user namespace cannot be joined again.
            if !is_ours(&theirs, kind) {
                of_lab.push(open(theirs.display().to_string()).cannot(what)?);
            }
        }
    }
    let here = std::env::current_dir().ok();
    Ok(Way { lab: of_lab, node, dir: lab.dir.clone(), here })
}

/// This program.
pub fn ourselves() -> PathBuf {
    std::env::current_exe().unwrap_or("covey".into())
}

/// This program on a node, by `covey lab exec`.
pub fn ourselves_on(lab: &Lab, node: &str) -> Command {
    let mut command = Command::new(ourselves());
    command.args(["lab", "exec", "--name", &lab.name, node, "--"]).arg(ourselves());
    command.stdin(Stdio::null());
    command
}

/// Ends a command that `covey lab exec` runs. It is asked to, so that it takes in the end of its program: one
/// that is killed leaves a dead program to the machine's first process, and while that does not look, the
/// lab cannot go down.
pub fn end(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::TERM);
    }
    let begin = Instant::now();
    while begin.elapsed() < END_WAIT {
        match child.try_wait() {
            Ok(None) => std::thread::sleep(END_WAIT / 200),
            _ => return,
        }
    }
    let _ = child.kill();
    let _ = child.wait();
}

fn is_ours(theirs: &Path, kind: &str) -> bool {
    let ours = std::fs::read_link(format!("/proc/self/ns/{kind}"));
    ours.is_ok_and(|ours| std::fs::read_link(theirs).is_ok_and(|theirs| ours == theirs))
}

impl Way {
    /// A command that runs on the node. From outside the lab this moves the calling process into it,
    /// so it must have one thread only and can go nowhere else afterwards.
    pub fn command(self, program: &OsString) -> Result<Command> {
        let joined = self.lab.iter().try_for_each(namespaces::move_into);
        joined.cannot(|| "enter the lab").map_err(why_not)?;
        let mut command = Command::new(program);
        command.env(INSIDE, &self.dir);
        self.prepare(&mut command);
        Ok(command)
    }

    /// Lets a command that is started inside the lab start on the node.
    pub fn prepare(self, command: &mut Command) {
        namespaces::enter(command, self.node, self.here.as_deref());
    }
}

fn why_not(error: Error) -> Error {
    error.hint("only who made the lab, or root, may enter it")
}
