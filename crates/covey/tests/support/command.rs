//! Running a program to its end, which must come.

use super::{Cluster, has_program, is_root, skip};
use std::fmt;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a command may take before it counts as hung.
const LIMIT: Duration = Duration::from_secs(240);

/// What a command said, and how it ended.
#[derive(Debug)]
pub struct Finished {
    /// It ended with 0.
    pub ok: bool,
    /// Its exit code; None when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote to stdout.
    pub stdout: String,
    /// What it wrote to stderr.
    pub stderr: String,
}

impl Finished {
    /// Asserts that it failed as a person would want: with this in the message, and a hint.
    #[track_caller]
    pub fn says(&self, words: &[&str]) -> &Finished {
        assert!(!self.ok, "should have failed: {self}");
        for word in words {
            assert!(self.stderr.contains(word), "`{word}` is not in: {self}");
        }
        assert!(self.stderr.contains("hint: "), "no hint in: {self}");
        self
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "code {:?}\nstdout: {}\nstderr: {}", self.code, self.stdout, self.stderr)
    }
}

/// The program under test, with nothing of the environment that could mislead it.
pub fn covey() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_covey"));
    command.env_remove("COVEY_CONFIG").current_dir("/");
    command
}

/// The program as a user of this machine who is neither root nor the servers' owner. None where nobody can become one.
pub fn as_stranger(cluster: &Cluster) -> Option<Command> {
    if !is_root() || !has_program("setpriv") {
        skip("needs root and setpriv to become a user");
        return None;
    }
    let program = cluster.scratch("covey");
    if !program.exists() {
        copy_program(&program);
    }
    for path in [program.parent().unwrap(), &program] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("setpriv");
    let number = STRANGER.to_string();
    command.args(["--reuid", &number, "--regid", &number, "--clear-groups"]).arg(&program);
    command.env_remove("COVEY_CONFIG").current_dir("/");
    Some(command)
}

/// Copies the program under test to where it can be run at once. By a process of its own: what other tests start meanwhile
/// would have the copy open to write, for a moment, and the kernel runs no such file (ETXTBSY).
pub fn copy_program(to: &Path) {
    let done = Command::new("cp").arg(env!("CARGO_BIN_EXE_covey")).arg(to).status();
    assert!(done.expect("cp can be run").success(), "cp to {}", to.display());
}

/// The user of [`as_stranger`].
pub const STRANGER: u32 = 12345;

/// Runs a command; one that does not end is killed and fails the test.
#[track_caller]
pub fn run(command: Command) -> Finished {
    run_within(command, LIMIT)
}

/// Runs a command within a limit.
#[track_caller]
pub fn run_within(mut command: Command, limit: Duration) -> Finished {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = collect(child.stdout.take().expect("stdout is a pipe"));
    let stderr = collect(child.stderr.take().expect("stderr is a pipe"));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child can be waited for") {
            break status;
        }
        if begun.elapsed() > limit {
            let _ = child.kill();
            panic!("{command:?} did not end within {limit:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = |thread: JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&thread.join().expect("reading does not panic")).into_owned()
    };
    Finished {
        ok: status.success(),
        code: status.code(),
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}
