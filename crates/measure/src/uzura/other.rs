//! The second process: this program again, which answers what the first asks.

use super::cpus::pin;
use super::engine::Answers;
use crate::error::{Cannot, Error, Result};
use crate::floor::{Answerer, Asker};
use crate::scratch::Scratch;
use covey_lab::enter::ourselves;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The two halves.
#[derive(Debug)]
pub struct Pair {
    /// Ours.
    pub asker: Asker,
    child: Child,
    scratch: Scratch,
}

impl Pair {
    /// Starts the other on a CPU.
    pub fn start(cpu: usize) -> Result<Pair> {
        let asker = Asker::new().cannot(|| "make memory that two processes share")?;
        let scratch = Scratch::new()?;
        let mut command = Command::new(ourselves());
        command.args(["uzura", "bench", "--answer"]).arg(asker.path());
        command.arg("--answer-socket").arg(scratch.file("socket"));
        command.args(["--answer-cpu", &cpu.to_string()]).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().cannot(|| "start the second process")?;
        Ok(Pair { asker, child, scratch })
    }

    /// Where the engines of both may meet.
    pub fn socket(&self) -> PathBuf {
        self.scratch.file("socket")
    }

    /// Why the other failed, if that is why something did not work.
    pub fn explain(&mut self, error: std::io::Error) -> Error {
        let text = match self.child.try_wait() {
            Ok(Some(status)) => format!("the second process ended with {status}"),
            _ if error.kind() == std::io::ErrorKind::TimedOut => {
                "the second process does not answer".into()
            }
            _ => crate::error::reason(&error),
        };
        Error::work(format!("cannot measure between two processes: {text}"))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The second process's part.
pub fn answer(memory: &Path, socket: &Path, cpu: usize) -> Result<()> {
    let _pinned = pin(cpu)?;
    let what = || format!("answer at {}", memory.display());
    Answerer::open(memory).cannot(what)?.serve(&mut Answers::at(socket)).cannot(what)
}
