//! The provider as programs use it: through libfabric, and through an MPI library.

#[macro_use]
extern crate covey_harness_macro;

#[path = "../../../covey/tests/support/packages.rs"]
#[allow(dead_code)]
mod packages;
#[path = "../../../covey/tests/support/valgrind.rs"]
mod valgrind;
#[path = "../../../covey/tests/support/wheels.rs"]
#[allow(dead_code)]
mod wheels;

mod mpi;
mod programs;

use covey_harness::skip;
use packages::{has_file, has_program};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Once;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A home of its own, and a folder in which libfabric finds the provider.
struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = TempDir::new().expect("a directory");
        let program = std::env::current_exe().expect("a test program");
        let profile = program.ancestors().nth(2).expect("it lies in the target directory");
        let library = profile.join("libcovey_fi.so");
        build(profile.ends_with("release"));
        assert!(library.exists(), "there is no {}", library.display());
        std::os::unix::fs::symlink(library, dir.path().join("libcovey-fi.so")).expect("a link");
        Place { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A command that finds the provider.
    fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(program.as_ref());
        command.env("FI_PROVIDER_PATH", self.dir.path()).env("HOME", self.dir.path());
        command.env("COVEY_FI_ADDRESS", "127.0.0.1").env_remove("XDG_CONFIG_HOME");
        command
    }

    /// A program of the tests.
    fn compiled(&self, compiler: &str, name: &str, options: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libfabric").join(name);
        let program = self.path(name).with_extension("");
        let mut command = Command::new(compiler);
        command.args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"]);
        command.arg("-o").arg(&program).arg(source).args(options);
        let done = ended(command);
        assert!(done.ok, "{}", done.said);
        program
    }
}

/// Builds the library, once. Whoever has built all of the workspace says so by `COVEY_TEST_BUILT`.
fn build(is_release: bool) {
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        if std::env::var_os("COVEY_TEST_BUILT").is_some() {
            return;
        }
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--locked", "-p", "covey-fi"]);
        cargo.args(is_release.then_some("--release")).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(cargo.status().expect("cargo runs").success(), "covey-fi cannot be built");
    });
}

/// What a command did.
struct Done {
    ok: bool,
    /// By itself, and not because our patience did.
    has_ended: bool,
    said: String,
}

fn ended(mut command: Command) -> Done {
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).spawn();
    end_of(child.expect("it starts"))
}

/// Waits for the end of a program, which is killed when it does not come.
fn end_of(mut child: Child) -> Done {
    let begun = Instant::now();
    let mut pipes = (child.stdout.take(), child.stderr.take());
    let out = std::thread::spawn(move || {
        let mut said = String::new();
        if let Some(pipe) = &mut pipes.0 {
            let _ = pipe.read_to_string(&mut said);
        }
        said
    });
    let errors = std::thread::spawn(move || {
        let mut said = String::new();
        if let Some(pipe) = &mut pipes.1 {
            let _ = pipe.read_to_string(&mut said);
        }
        said
    });
    let (ok, has_ended) = loop {
        if let Some(status) = child.try_wait().expect("it is ours") {
            break (status.success(), true);
        }
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            break (false, false);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let said = [out.join(), errors.join()].map(|said| said.expect("it was read")).concat();
    Done { ok, has_ended, said }
}

const PATIENCE: Duration = Duration::from_secs(120);

/// Whether programs can be compiled that call libfabric. Says so where they cannot.
fn has_libfabric() -> bool {
    let has = has_program("gcc") && has_file("/usr/include/rdma/fabric.h");
    if !has {
        skip("needs gcc and libfabric-dev");
    }
    has
}

fn main() {
    covey_harness::run()
}
