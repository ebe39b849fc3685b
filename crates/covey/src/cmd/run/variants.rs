//! The program as the nodes get it: one for all, or one for each architecture.

use super::Args;
use crate::cmd::job::parcel::{Parcel, is_name_inside};
use crate::cmd::job::program::{Program, libraries, same_here};
use crate::cmd::job::tree::{NodeTree, OnNode};
use crate::error::{Error, Result};
use covey_launch::spawn::flow::Source;
use futures_util::future::try_join_all;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Stands for a node's architecture in the name of a program.
const ARCH: &str = "{arch}";

/// The program on nodes of one architecture.
pub(super) struct Variant {
    /// None fits all.
    arch: Option<String>,
    /// What is copied; None runs a path of the nodes.
    pub source: Option<Rc<dyn Source>>,
    /// How many bytes are copied.
    pub bytes: u64,
    /// The command that starts it.
    pub start: Vec<String>,
    /// What it is called in errors.
    pub shown: String,
    has_mpi: bool,
    needs_pmix: bool,
}

/// All of them, and which each node has.
pub(super) struct Variants {
    all: Vec<Variant>,
    /// Of each node that was reached.
    of_node: Vec<Option<usize>>,
}

/// Whether what is run depends on the architecture.
pub(super) fn depends_on_arch(args: &Args) -> bool {
    args.root.is_some() || args.program().contains(ARCH)
}

impl Variants {
    /// One for all nodes. It is looked for before any node is asked for anything.
    pub fn same(args: &Args, nodes: usize) -> Result<Variants> {
        Ok(Variants { all: vec![Variant::find(args, None)?], of_node: vec![Some(0); nodes] })
    }

    /// One for each architecture among these nodes.
    pub async fn by_arch(args: &Args, nodes: &[Option<Rc<NodeTree>>]) -> Result<Variants> {
        let asked = nodes.iter().map(|node| async move {
            let Some(node) = node else { return Ok(None) };
            let what = || format!("ask {} for its architecture", node.name);
            node.text("arch").await.on_node(what).map(Some)
        });
        let mut found = Variants { all: Vec::new(), of_node: Vec::new() };
        for text in try_join_all(asked).await? {
            let arch = text.as_deref().map(word).transpose()?;
            let place = arch.map(|arch| found.place(args, arch)).transpose()?;
            found.of_node.push(place);
        }
        Ok(found)
    }

    fn place(&mut self, args: &Args, arch: &str) -> Result<usize> {
        let is_it = |variant: &Variant| variant.arch.as_deref() == Some(arch);
        if let Some(at) = self.all.iter().position(is_it) {
            return Ok(at);
        }
        self.all.push(Variant::find(args, Some(arch))?);
        Ok(self.all.len() - 1)
    }

    /// What a node that was reached gets.
    pub fn of(&self, node: usize) -> Option<&Variant> {
        self.all.get(self.of_node[node]?)
    }

    /// Each, with its place.
    pub fn each(&self) -> impl Iterator<Item = (usize, &Variant)> {
        self.all.iter().enumerate()
    }

    /// Whether this node gets this one.
    pub fn is_of(&self, variant: usize, node: usize) -> bool {
        self.of_node[node] == Some(variant)
    }

    /// Whether MPI is to be served.
    pub fn has_mpi(&self) -> bool {
        self.all.iter().any(|variant| variant.has_mpi)
    }

    /// Whether without PMIx each rank would be a job of its own.
    pub fn needs_pmix(&self) -> bool {
        self.all.iter().any(|variant| variant.needs_pmix)
    }
}

/// The processor in what a node says: `/Linux/x86_64`.
fn word(text: &str) -> Result<&str> {
    let arch = text.trim().rsplit('/').next().unwrap_or_default();
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    // It becomes a part of a path.
    if !arch.is_empty() && arch.bytes().all(is_letter) {
        Ok(arch)
    } else {
        Err(Error::work(format!("cannot use {text:?} as a node's architecture")))
    }
}

impl Variant {
    fn find(args: &Args, arch: Option<&str>) -> Result<Variant> {
        let name = in_root(args, arch);
        let arch = arch.map(str::to_owned);
        if args.local {
            let here = same_here(&name);
            let has_mpi = args.mpi.or(here.as_ref().is_some_and(Program::speaks_mpi));
            let needs_pmix = here.is_none_or(|program| program.needs_pmix());
            let start = vec!["exec".to_owned(), name.clone()];
            let (source, bytes, shown) = (None, 0, name);
            return Ok(Variant { arch, source, bytes, start, shown, has_mpi, needs_pmix });
        }
        let (program, mut parcel, start) = match &args.exec {
            Some(inside) => directory(&name, inside)?,
            None => {
                no_directory(&name)?;
                let program = Program::find(&name)?;
                let mut parcel = Parcel::default();
                parcel.add_program(&program.path)?;
                (program, parcel, vec!["exec".to_owned()])
            }
        };
        if args.libs {
            for library in libraries(&program)? {
                parcel.add_file(&library.name, &library.path, 0o755)?;
            }
        }
        let (has_mpi, needs_pmix) = (args.mpi.or(program.speaks_mpi()), program.needs_pmix());
        let (bytes, shown) = (parcel.bytes(), program.path.display().to_string());
        let source = Some(parcel.close());
        Ok(Variant { arch, source, bytes, start, shown, has_mpi, needs_pmix })
    }
}

/// The program's name where it is looked for: below the root of the architecture.
fn in_root(args: &Args, arch: Option<&str>) -> String {
    let Some(arch) = arch else { return args.program().to_owned() };
    let name = args.program().replace(ARCH, arch);
    let Some(root) = &args.root else { return name };
    let root = root.join(arch);
    let below = |dir: &str| root.join(dir).join(name.trim_start_matches('/'));
    let dirs = ["", "usr/local/bin", "usr/bin", "bin"];
    let dirs = if name.contains('/') || args.local { &dirs[..1] } else { &dirs[..] };
    let found = dirs.iter().map(|dir| below(dir)).find(|path| path.is_file());
    found.unwrap_or_else(|| below("")).display().to_string()
}

fn no_directory(name: &str) -> Result<()> {
    if name.contains('/') && Path::new(name).is_dir() {
        Err(Error::user(format!("cannot run {name}: it is a directory"))
            .hint("--exec NAME copies all of it, and runs NAME in it"))
    } else {
        Ok(())
    }
}

/// All of a directory, and the program in it that is run.
fn directory(name: &str, inside: &str) -> Result<(Program, Parcel, Vec<String>)> {
    if !is_name_inside(inside) {
        return Err(Error::user(format!("cannot run {inside} in {name}: it leads out of it"))
            .hint("names below the directory, as in --exec bin/work"));
    }
    let dir = PathBuf::from(name);
    let program = Program::find(&dir.join(inside).display().to_string())?;
    let mut parcel = Parcel::default();
    parcel.add_directory(&dir)?;
    Ok((program, parcel, ["exec", "in", inside].map(str::to_owned).to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_architecture_is_one_word_of_a_path() {
        assert_eq!(word("/Linux/x86_64\n").unwrap(), "x86_64");
        for wrong in ["", "/Linux/", "/Linux/..", "/Linux/a b"] {
            assert!(word(wrong).is_err(), "{wrong:?}");
        }
    }
}
