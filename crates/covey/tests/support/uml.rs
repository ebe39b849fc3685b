//! User-Mode Linux: a kernel as a process, for what needs another kernel or one that can die.

use std::path::Path;
use std::process::Command;

/// Whether guests can run here; they see this machine's files, so only root may.
pub fn is_there() -> bool {
    Path::new("/usr/bin/linux.uml").exists() && rustix::process::geteuid().is_root()
}

/// Makes a command that runs `linux.uml` run it on every processor: those with more registers than it
/// knows want `xstate.c` beside it, which is made in `work`.
pub fn prepare(command: &mut Command, work: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/xstate.c");
    let library = work.join("xstate.so");
    let made = Command::new("cc")
        .args(["-O1", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source)
        .status();
    if made.is_ok_and(|status| status.success()) {
        command.env("LD_PRELOAD", library);
    }
}
