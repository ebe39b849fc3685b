//! Other processes: this test binary again, told by its environment what to do. Locks and signals
//! belong to processes, so threads will not do.

use crate::mapping;
use covey_io::os::ofd::{LockKind, Range, try_lock};
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use std::cell::LazyCell;
use std::fs::OpenOptions;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// What another process does with one file. It ends when its standard input does.
#[derive(Clone, Copy, Debug)]
pub enum Deed {
    /// Takes a whole-file fcntl lock, waiting for it, and keeps it.
    KeepFcntl,
    /// Takes a flock, waiting for it, and keeps it.
    KeepFlock,
    /// Takes a whole-file lock of the open file (F_OFD_SETLK), and keeps it.
    KeepOfd,
    /// Reads the file.
    Read,
    /// Changes the file by calls and by a mapping, in turn.
    MapAndCall,
    /// Maps the file while it is open to be appended to.
    MapWhatIsAppendedTo,
    /// Changes the file by a mapping after its last close.
    MapPastTheClose,
}

/// Starts a process that does the deed. It prints a line when it is done with it.
pub fn start(deed: Deed, file: &Path) -> Child {
    let this = std::env::current_exe().expect("this binary");
    let mut command = Command::new(this);
    command.args(["--exact", "process::deed", "--nocapture", "--test-threads=1"]);
    command.env(VARIABLE, format!("{deed:?}")).env(FILE, file);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    command.spawn().expect("this binary starts again")
}

/// Waits until the process has done its deed.
pub fn await_done(child: &mut Child) {
    let stdout = child.stdout.as_mut().expect("piped");
    let mut seen = Vec::new();
    while !seen.ends_with(DONE.as_bytes()) {
        let mut byte = [0];
        stdout.read_exact(&mut byte).expect("the deed is done before the process ends");
        seen.push(byte[0]);
    }
}

/// Lets the process go, and expects that it ends well.
pub fn finish(mut child: Child) {
    drop(child.stdin.take());
    // What the test harness prints has to go somewhere.
    let mut rest = Vec::new();
    child.stdout.take().expect("piped").read_to_end(&mut rest).expect("its output");
    assert!(child.wait().expect("it ends").success());
}

/// No test by itself: the other process.
#[test]
fn deed() {
    let (Ok(deed), Some(file)) = (std::env::var(VARIABLE), std::env::var_os(FILE)) else { return };
    let file = Path::new(&file);
    // Opened by what needs it, and kept open with its lock.
    let open =
        LazyCell::new(|| OpenOptions::new().read(true).write(true).open(file).expect("open"));
    match deed.as_str() {
        "KeepFcntl" => fcntl_lock(&*open, FlockOperation::LockExclusive).expect("fcntl"),
        "KeepFlock" => flock(&*open, FlockOperation::LockExclusive).expect("flock"),
        "KeepOfd" => {
            let all = Range { start: 0, length: 0 };
            assert!(try_lock(&*open, LockKind::Write, all).expect("fcntl"), "nobody has it");
        }
        "Read" => drop((&*open).read_to_end(&mut Vec::new()).expect("read")),
        "MapAndCall" => mapping::map_and_call(file),
        "MapWhatIsAppendedTo" => mapping::map_what_is_appended_to(file),
        "MapPastTheClose" => mapping::map_past_the_close(file),
        _ => panic!("no such deed: {deed}"),
    }
    println!("{DONE}");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("stdin");
}

const VARIABLE: &str = "COVEY_TEST_DEED";
const FILE: &str = "COVEY_TEST_FILE";
const DONE: &str = "the deed is done";
