//! The program that is run: where it is, what it needs, and how it gets to the nodes.

use crate::error::{Cannot, Error, Result};
use covey_wire::Bytes;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A program of this machine.
pub struct Program {
    /// Where it is.
    pub path: PathBuf,
    /// All of it.
    pub bytes: Bytes,
}

impl Program {
    /// Looks a program up as a shell does, and reads it.
    pub fn find(name: &str) -> Result<Program> {
        let path = look_up(name)?;
        let what = || format!("read the program {}", path.display());
        let bytes = std::fs::read(&path).cannot(what)?;
        Ok(Program { path, bytes: bytes.into() })
    }

    /// Whether it is an MPI program: it names a library, or the variables of one that was linked into it.
    pub fn speaks_mpi(&self) -> bool {
        // A script that happens to name one is no MPI program.
        self.bytes.starts_with(b"\x7fELF") && has_mark(&self.bytes, &MARKS)
    }

    /// Whether its library of MPI is one that starts by PMIx alone.
    pub fn needs_pmix(&self) -> bool {
        has_mark(&self.bytes, &PMIX_MARKS)
    }
}

/// What this machine has at a path of the nodes, as far as its beginning is enough to look at.
pub fn same_here(path: &str) -> Option<Program> {
    let path = look_up(path).ok()?;
    let mut bytes = Vec::new();
    let file = std::fs::File::open(&path).ok()?;
    file.take(PROGRAM_BYTES_LOOKED_AT).read_to_end(&mut bytes).ok()?;
    Some(Program { path, bytes: bytes.into() })
}

/// A shared library that goes along.
pub struct Library {
    /// What programs call it.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
}

/// The libraries that the loader finds for a program here, but the system's own.
pub fn libraries(program: &Program) -> Result<Vec<Library>> {
    let shown = program.path.display();
    let what = || format!("ask for the libraries of {shown}");
    let said = std::process::Command::new("ldd").arg(&program.path).output().cannot(what)?;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let mut found = Vec::new();
    for (name, path) in said.lines().filter_map(library) {
        found.push(Library { name: name.to_owned(), path: path.into() });
    }
    Ok(found)
}

/// A line of ldd: `libx.so.1 => /path (0x...)`. libc and what belongs to it fits the node's loader only.
fn library(line: &str) -> Option<(&str, &str)> {
    const SYSTEM: [&str; 7] =
        ["libc.", "libm.", "libpthread.", "libdl.", "librt.", "ld-linux", "libresolv."];
    let (name, rest) = line.trim().split_once(" => ")?;
    let path = rest.split(" (").next()?.trim();
    let is_ours = !SYSTEM.iter().any(|system| name.starts_with(system)) && !name.contains('/');
    (is_ours && path.starts_with('/')).then_some((name, path))
}

fn has_mark(bytes: &[u8], marks: &[&[u8]]) -> bool {
    let begins = |at: usize| marks.iter().any(|mark| bytes[at..].starts_with(mark));
    (0..bytes.len()).any(|at| matches!(bytes[at], b'l' | b'P') && begins(at))
}

fn look_up(name: &str) -> Result<PathBuf> {
    if name.contains('/') {
        return check(Path::new(name));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&path).map(|dir| dir.join(name));
    found.find_map(|path| check(&path).ok()).ok_or_else(|| {
        Error::user(format!("cannot find the program {name}"))
            .hint("give its path; --local runs one that is on the nodes already")
    })
}

fn check(path: &Path) -> Result<PathBuf> {
    let shown = path.display();
    let meta = std::fs::metadata(path).map_err(|error| {
        let why = crate::error::reason(&error);
        Error::user(format!("cannot run {shown}: {why}"))
            .hint("--local runs a program that is on the nodes already")
    })?;
    if !meta.is_file() || meta.permissions().mode() & 0o111 == 0 {
        let what = if meta.is_file() { "it is not executable" } else { "it is no file" };
        return Err(Error::user(format!("cannot run {shown}: {what}"))
            .hint(format!("chmod +x {shown}, or name another program")));
    }
    Ok(path.to_owned())
}

/// Each begins with an l or a P.
const MARKS: [&[u8]; 4] = [b"libmpi", b"libpmi", b"PMI_PORT", b"PMIX_NAMESPACE"];
/// Open MPI 4 and 5, and PMIx itself.
const PMIX_MARKS: [&[u8]; 3] = [b"libmpi.so.40", b"libpmix", b"PMIX_NAMESPACE"];
const PROGRAM_BYTES_LOOKED_AT: u64 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_that_need_a_library_of_mpi_are_of_mpi() {
        let program = |bytes: &[u8]| Program { path: "x".into(), bytes: bytes.to_vec().into() };
        assert!(program(b"\x7fELF...\0libmpich.so.12\0").speaks_mpi());
        assert!(program(b"\x7fELF...\0PMI_PORT\0").speaks_mpi());
        assert!(program(b"\x7fELF...\0libmpi.so.40\0").needs_pmix());
        assert!(!program(b"\x7fELF...\0libmpich.so.12\0").needs_pmix());
        assert!(!program(b"\x7fELF...\0libc.so.6\0").speaks_mpi());
        assert!(!program(b"#!/bin/sh\nldd libmpi.so\n").speaks_mpi());
    }

    #[test]
    fn what_is_no_program_is_refused_with_its_reason() {
        let plain = tempfile::NamedTempFile::new().unwrap();
        let plain = plain.path().to_str().unwrap();
        for (name, why) in
            [("/no/such", "no such file"), (plain, "not executable"), ("/", "no file")]
        {
            let error = Program::find(name).err().unwrap();
            assert!(error.message.contains(why) && !error.hints.is_empty(), "{}", error.message);
        }
        assert!(Program::find("sh").is_ok());
    }

    #[test]
    fn the_libraries_of_a_program_go_along_but_the_systems_own() {
        let of = |line| library(line).map(|(name, _)| name);
        assert_eq!(
            of("\tlibmpich.so.12 => /lib/libmpich.so.12 (0x00007f)"),
            Some("libmpich.so.12")
        );
        for line in [
            "\tlinux-vdso.so.1 (0x00007ffc)",
            "\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x0)",
            "\tlibgone.so => not found",
            "\t/lib64/ld-linux-x86-64.so.2 (0x00007f)",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
