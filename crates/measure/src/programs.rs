//! Small programs in C that measure through libraries which Covey itself does not contain: they are in this
//! binary as text, and compiled with what is installed when they are first needed.
//!
//! What was compiled is kept in `$XDG_CACHE_HOME/covey` (`~/.cache/covey`), under a name that changes with the text,
//! the compiler and its options.

use super::scratch::Scratch;
use crate::error::{Cannot, Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A program.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    name: &'static str,
    text: &'static str,
}

const HEADERS: [(&str, &str); 11] = [
    ("blocks.h", include_str!("programs/blocks.h")),
    ("btio_files.h", include_str!("programs/btio/files.h")),
    ("btio_flow.h", include_str!("programs/btio/flow.h")),
    ("btio_grid.h", include_str!("programs/btio/grid.h")),
    ("btio_solve.h", include_str!("programs/btio/solve.h")),
    ("btio_verify.h", include_str!("programs/btio/verify.h")),
    ("covey-mpiio-types.h", include_str!("../../preload/mpi/covey-mpiio-types.h")),
    ("covey_cell.h", include_str!("../../spc/include/covey_cell.h")),
    ("finish.h", include_str!("programs/finish.h")),
    ("matrix.h", include_str!("programs/matrix.h")),
    ("timed.h", include_str!("programs/timed.h")),
];

/// Blocks to and fro through MPI.
pub const BLOCKS_MPI: Program =
    Program { name: "blocks-mpi", text: include_str!("programs/blocks_mpi.c") };
/// Blocks to and fro through PVM.
pub const BLOCKS_PVM: Program =
    Program { name: "blocks-pvm", text: include_str!("programs/blocks_pvm.c") };
/// Messages, streams and transpositions between two ranks.
pub const PAIRS_MPI: Program =
    Program { name: "pairs-mpi", text: include_str!("programs/pairs_mpi.c") };
/// Matrices multiplied by one core.
pub const GEMM: Program = Program { name: "gemm", text: include_str!("programs/gemm.c") };
/// ScaLAPACK on grids of processes.
pub const SCALAPACK: Program =
    Program { name: "scalapack", text: include_str!("programs/scalapack.c") };

/// MPI's collectives.
pub const COLLECTIVES: Program =
    Program { name: "collectives", text: include_str!("programs/collectives.c") };
/// Kernels that communicate as some of the NAS Parallel Benchmarks do.
pub const KERNELS: Program = Program { name: "kernels", text: include_str!("programs/kernels.c") };

/// NASA's benchmark of solutions that are written while they are computed.
pub const BTIO: Program = Program { name: "btio", text: include_str!("programs/btio.c") };
/// What sends the views of MPI-IO to the servers: a library, loaded before `libcovey-preload.so`.
pub const VIEWS: Program =
    Program { name: "views", text: include_str!("../../preload/mpi/covey-mpiio.c") };

/// Blocks of a mapped file, read and written back by a worker.
pub const CELL_BANDWIDTH: Program =
    Program { name: "cell-bandwidth", text: include_str!("programs/cell_bandwidth.c") };
/// Matrices multiplied by workers.
pub const CELL_MATRICES: Program =
    Program { name: "cell-matrices", text: include_str!("programs/cell_matrices.c") };
/// A worker that asks its host, and gives way.
pub const CELL_TRIPS: Program =
    Program { name: "cell-trips", text: include_str!("programs/cell_trips.c") };

/// What lets processes of MPICH that wait give their CPU away: a library, loaded before it.
pub const YIELDING: Program =
    Program { name: "yielding", text: include_str!("programs/yielding.c") };

/// Compiles a program, unless that was done before: where it is.
pub fn build(program: Program, compiler: &str, options: &[&str]) -> Result<PathBuf> {
    let found = find(compiler).ok_or_else(|| missing(compiler))?;
    let headers = HEADERS.map(|(_, text)| text).concat();
    let all = [program.text, &headers, &found.display().to_string(), &options.join(" ")];
    // A compiler that was replaced makes other programs.
    let changed = std::fs::metadata(&found).and_then(|meta| meta.modified()).ok();
    let key = covey_wire::fnv1a(format!("{}{changed:?}", all.join("\0")).as_bytes());
    let dir = cache();
    let made = dir.join(format!("{}-{key:016x}", program.name));
    if made.is_file() {
        return Ok(made);
    }
    std::fs::create_dir_all(&dir).cannot(|| format!("make directory {}", dir.display()))?;
    let scratch = Scratch::within(&dir)?;
    let source = scratch.file("program.c");
    for (name, text) in HEADERS.into_iter().chain([("program.c", program.text)]) {
        let file = scratch.file(name);
        std::fs::write(&file, text).cannot(|| format!("write {}", file.display()))?;
    }
    let output = scratch.file("program");
    let mut command = Command::new(&found);
    command.arg("-O2").arg("-o").arg(&output).arg(&source).args(options).stdin(Stdio::null());
    let done = command.output().cannot(|| format!("run {}", found.display()))?;
    if !done.status.success() {
        return Err(refused(program, compiler, &String::from_utf8_lossy(&done.stderr)));
    }
    // Whoever else compiles it at this moment makes the same.
    std::fs::rename(&output, &made).cannot(|| format!("keep {}", made.display()))?;
    Ok(made)
}

/// A program of this name in the PATH.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut all = std::env::split_paths(&path).map(|dir| dir.join(name));
    all.find(|file| file.is_file())
}

fn missing(compiler: &str) -> Error {
    let package = match compiler {
        "mpicc.openmpi" => "libopenmpi-dev",
        "mpicc.mpich" => "libmpich-dev",
        "mpicc" => "mpi-default-dev",
        _ => "gcc libc6-dev",
    };
    Error::work(format!("cannot compile the program that measures: there is no {compiler}"))
        .hint(format!("apt-get install {package}"))
}

fn refused(program: Program, compiler: &str, said: &str) -> Error {
    let wrong = said.lines().find(|line| line.contains("error") || line.contains("cannot find"));
    let wrong = wrong.or(said.lines().next()).unwrap_or("it says nothing").trim();
    let name = program.name;
    Error::work(format!("cannot compile {name} with {compiler}: {wrong}"))
        .hint("the packages that end in -dev hold what is needed to compile")
}

fn cache() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|dir| Path::new(dir).is_absolute());
    match (set("XDG_CACHE_HOME"), set("HOME")) {
        (Some(dir), _) => PathBuf::from(dir).join("covey"),
        (None, Some(home)) => PathBuf::from(home).join(".cache/covey"),
        (None, None) => {
            let uid = rustix::process::geteuid().as_raw();
            PathBuf::from(format!("/var/tmp/covey-cache-{uid}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_compiler_is_named_with_its_package() {
        let error = build(BLOCKS_MPI, "no-such-mpicc", &[]).unwrap_err();
        assert!(error.message.contains("there is no no-such-mpicc"), "{error}");
        assert!(missing("mpicc.mpich").hints[0].contains("libmpich-dev"));
    }

    #[test]
    fn what_the_compiler_said_is_told_in_one_line() {
        let said = "program.c: In function:\nprogram.c:3:10: fatal error: pvm3.h: No such file\n";
        let error = refused(BLOCKS_PVM, "cc", said);
        assert!(error.message.ends_with("fatal error: pvm3.h: No such file"), "{error}");
    }
}
