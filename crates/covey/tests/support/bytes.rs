//! Bytes that can be told apart, trees of files, and what a tree looks like.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

/// Bytes that depend on a seed and on their position: any shift, swap or loss shows.
pub fn noise(seed: u64, length: usize) -> Vec<u8> {
    let word = |index: u64| {
        let mut x = (index ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(seed);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    };
    (0..length as u64).map(|at| (word(at / 8) >> (at % 8 * 8)) as u8).collect()
}

/// Asserts that two byte strings are equal, and names the first difference instead of printing both.
#[track_caller]
pub fn assert_same(found: &[u8], wanted: &[u8], what: &str) {
    let common = found.iter().zip(wanted).take_while(|(left, right)| left == right).count();
    assert!(
        found == wanted,
        "{what}: {} bytes, {} wanted; the first difference is at {common}",
        found.len(),
        wanted.len()
    );
}

/// A small tree with what trees have: empty and large files, depth, links, odd names and modes.
pub fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b/c/d/e/f")).expect("directories");
    fs::create_dir(root.join("empty")).expect("a directory");
    for (index, size) in [0, 1, 4095, 4096, 65_535, 65_536, 65_537, 300_001].into_iter().enumerate()
    {
        fs::write(root.join(format!("a/size-{size}")), noise(index as u64, size)).expect("a file");
    }
    for index in 0..60_usize {
        let file = root.join("a/b/c").join(format!("many-{index:03}"));
        fs::write(file, noise(100 + index as u64, index * 97)).expect("a file");
    }
    fs::write(root.join("a/b/c/d/e/f/large"), noise(9, (5 << 20) + 13)).expect("a file");
    fs::write(root.join("a/ name with blanks, ä and \n"), b"odd").expect("a file");
    fs::hard_link(root.join("a/size-4096"), root.join("a/b/linked")).expect("a hard link");
    symlink("../size-1", root.join("a/b/relative")).expect("a symbolic link");
    symlink("/does/not/exist", root.join("dangling")).expect("a symbolic link");
}

/// Every path below a directory with what it is and holds, so that trees can be compared.
pub fn describe(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    walk(root, root, &mut found);
    found
}

fn walk(root: &Path, dir: &Path, found: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display())) {
        let path = entry.expect("an entry").path();
        let name = path.strip_prefix(root).expect("it is below").to_string_lossy().into_owned();
        let meta = path.symlink_metadata().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let what = if meta.is_symlink() {
            format!("-> {}", fs::read_link(&path).expect("a link can be read").display())
        } else if meta.is_dir() {
            walk(root, &path, found);
            format!("directory {:o}", meta.mode())
        } else {
            let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            format!("{:o} {} bytes {:016x}", meta.mode(), bytes.len(), hash(&bytes))
        };
        found.insert(name, what);
    }
}

/// Enough to tell that bytes have changed, and short in a message.
pub use covey_wire::fnv1a as hash;

/// How many plain files lie below a directory.
pub fn files_below(dir: &Path) -> usize {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_below(&entry.path()),
            Ok(kind) if kind.is_file() => 1,
            _ => 0,
        })
        .sum()
}
