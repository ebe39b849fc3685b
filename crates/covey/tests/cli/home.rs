//! Running the program as a user would: a directory of its own, no configuration but its own.

#![allow(dead_code)]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A user's home, empty at first.
pub struct Home {
    dir: tempfile::TempDir,
}

/// What a command said and how it ended.
#[derive(Debug)]
pub struct Outcome {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Home {
    pub fn new() -> Home {
        Home { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        std::fs::write(self.path(name), text).expect("the file is ours");
        self.path(name)
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("the file is there")
    }

    /// Runs `covey` here.
    pub fn run<A: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = A>) -> Outcome {
        self.run_with_input(arguments, "")
    }

    /// Runs `covey` here with something on stdin.
    pub fn run_with_input<A: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = A>,
        input: &str,
    ) -> Outcome {
        let mut child = command(self.dir.path())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("covey starts");
        // A command that reads nothing may be gone before this is written.
        let _ = child.stdin.take().expect("stdin is piped").write_all(input.as_bytes());
        let output = child.wait_with_output().expect("covey ends");
        Outcome {
            code: output.status.code().expect("covey ends by itself"),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// `covey` in a directory, with nothing of the surroundings that could change what it says.
pub fn command(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_covey"));
    command.current_dir(dir).env("HOME", dir).env("COLUMNS", "100").env("LC_ALL", "C");
    for name in [
        "COVEY_CONFIG",
        "COVEY_LOG",
        "XDG_DATA_HOME",
        "XDG_CONFIG_HOME",
        "XDG_STATE_HOME",
        "XDG_RUNTIME_DIR",
    ] {
        command.env_remove(name);
    }
    command
}

impl Outcome {
    /// It did its work.
    #[track_caller]
    pub fn ok(self) -> Outcome {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// It failed with this code, this message and a hint that holds these words.
    #[track_caller]
    pub fn fails(self, code: i32, message: &str, hint: &str) -> Outcome {
        assert_eq!(self.code, code, "{self:?}");
        let first = self.stderr.lines().next().unwrap_or_default();
        assert_eq!(first, format!("covey: {message}"), "{self:?}");
        let mut hints = self.stderr.lines().filter_map(|line| line.strip_prefix("hint: "));
        assert!(hints.any(|line| line.contains(hint)), "no hint with `{hint}` in {self:?}");
        self
    }

    /// stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}
