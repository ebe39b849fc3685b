//! The BLAS libraries that are installed. Debian keeps each in a directory of its own, and programs are linked to
//! none of them in particular: which one a process loads is chosen for it when it starts.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

const LIBRARY: &str = "libblas.so.3";

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Blas {
    /// Its usual name.
    pub name: String,
    /// Its directory.
    pub directory: PathBuf,
}

impl Blas {
    /// What `env` must be told so that a program loads this one, and uses one thread.
    pub fn environment(&self) -> Vec<String> {
        let mut path = self.directory.display().to_string();
        let lapack = self.directory.with_file_name("lapack");
        if !self.directory.join("liblapack.so.3").exists() && lapack.exists() {
            path.push_str(&format!(":{}", lapack.display()));
        }
        let threads = ["OPENBLAS", "OMP", "BLIS", "MKL"];
        let threads = threads.iter().map(|one| format!("{one}_NUM_THREADS=1"));
        std::iter::once(format!("LD_LIBRARY_PATH={path}")).chain(threads).collect()
    }

    /// Whether a program that says where its BLAS came from has loaded this one.
    pub fn is_loaded_from(&self, path: &str) -> bool {
        let real = |path: &Path| path.canonicalize().unwrap_or(path.to_path_buf());
        real(Path::new(path)).starts_with(real(&self.directory))
    }
}

/// All, in the order of their names.
pub fn installed() -> Vec<Blas> {
    below(Path::new("/usr/lib"))
}

fn below(root: &Path) -> Vec<Blas> {
    let mine = |dir: &PathBuf| {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(std::env::consts::ARCH) && name.contains("-linux-")
    };
    let directories = children(root).filter(mine).flat_map(|dir| children(&dir));
    let mut found: Vec<Blas> = directories
        .filter(|dir| dir.join(LIBRARY).exists())
        .map(|directory| Blas { name: name(&directory), directory })
        .collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

fn children(dir: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path())
}

fn name(directory: &Path) -> String {
    let word = directory.file_name().unwrap_or_default().to_string_lossy();
    match word.split('-').collect::<Vec<_>>()[..] {
        ["blas"] => "reference".to_string(),
        ["atlas"] => "ATLAS".to_string(),
        ["openblas", "pthread"] | ["openblas"] => "OpenBLAS".to_string(),
        ["openblas", kind] => format!("OpenBLAS ({kind})"),
        ["blis", "openmp"] | ["blis"] => "BLIS".to_string(),
        ["blis", kind] => format!("BLIS ({kind})"),
        _ => word.into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_directory_with_a_blas_is_one() {
        let root = tempfile::tempdir().unwrap();
        let triplet = root.path().join(format!("{}-linux-gnu", std::env::consts::ARCH));
        for (directory, file) in [
            ("openblas-pthread", LIBRARY),
            ("openblas-pthread", "liblapack.so.3"),
            ("blas", LIBRARY),
            ("lapack", "liblapack.so.3"),
            ("atlas", "else"),
        ] {
            std::fs::create_dir_all(triplet.join(directory)).unwrap();
            std::fs::write(triplet.join(directory).join(file), "").unwrap();
        }
        let found = below(root.path());
        let names: Vec<&str> = found.iter().map(|blas| blas.name.as_str()).collect();
        assert_eq!(names, ["OpenBLAS", "reference"]);
        let path = |blas: &Blas| blas.environment()[0].clone();
        assert!(path(&found[0]).ends_with("/openblas-pthread"), "{}", path(&found[0]));
        assert!(path(&found[1]).ends_with("/lapack"), "{}", path(&found[1]));
        let file = triplet.join("blas").join(LIBRARY);
        assert!(found[1].is_loaded_from(&file.display().to_string()));
        assert!(!found[0].is_loaded_from(&file.display().to_string()));
        assert!(below(Path::new("/nowhere")).is_empty());
    }
}
