//! The metadata store is lost; the files come back from the stores of the I/O servers.

use crate::support::bytes::{describe, make_tree, noise};
use crate::support::{Cluster, until};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// A cluster with a tree, and the tree.
fn filled() -> (Cluster, PathBuf) {
    let cluster = Cluster::up(3);
    let tree = cluster.scratch("tree");
    fs::create_dir(&tree).unwrap();
    make_tree(&tree);
    // What salvage cannot bring back: the second name of a file is a second file.
    fs::remove_file(tree.join("a/b/linked")).unwrap();
    cluster.covey(&["cp", "-r", tree.to_str().unwrap(), ":/tree"]);
    (cluster, tree)
}

fn stores(cluster: &Cluster) -> Vec<String> {
    let path = |node: &str| cluster.store(node).to_str().unwrap().to_owned();
    ["io1", "io2", "io3"].map(path).to_vec()
}

fn salvage(cluster: &Cluster, options: &[&str]) -> (crate::support::Finished, PathBuf) {
    let out = cluster.scratch("out");
    let dirs = stores(cluster);
    let mut words = vec!["salvage", "--to", out.to_str().unwrap()];
    words.extend(dirs.iter().map(String::as_str));
    words.extend(options);
    (cluster.try_covey(&words), out)
}

/// What is compared: everything but directories' modes.
fn assert_same_tree(left: &std::path::Path, right: &std::path::Path) {
    let plain = |root: &std::path::Path| {
        let mut all = describe(root);
        all.values_mut()
            .filter(|what| what.starts_with("directory"))
            .for_each(|what| *what = "directory".into());
        all
    };
    assert_eq!(plain(left), plain(right));
}

#[test]
fn a_tree_comes_back_with_a_dump() {
    let (mut cluster, tree) = filled();
    let dump = cluster.scratch("dump");
    fs::write(&dump, cluster.covey(&["fs-dump"])).unwrap();
    cluster.down();
    fs::remove_dir_all(cluster.store("meta")).unwrap();
    let (done, out) = salvage(&cluster, &["--dump", dump.to_str().unwrap()]);
    assert!(done.ok, "{done}");
    assert_same_tree(&out.join("tree"), &tree);
}

#[test]
fn a_tree_comes_back_from_the_copy_and_newer_files_without_their_names() {
    let (mut cluster, tree) = filled();
    let local = cluster.scratch("local");
    cluster.covey(&["stats", "--set", "copy", "meta"]);
    let copies = || {
        stores(&cluster)
            .iter()
            .filter(|store| PathBuf::from(store).join("metadata.copy").exists())
            .count()
    };
    until("two copies of the metadata", || copies() == 2);
    let newer = noise(77, 3 << 20);
    fs::write(&local, &newer).unwrap();
    cluster.covey(&["cp", local.to_str().unwrap(), ":/newer"]);
    cluster.down();
    fs::remove_dir_all(cluster.store("meta")).unwrap();
    let (done, out) = salvage(&cluster, &[]);
    assert_eq!(done.code, Some(1), "one file has no name: {done}");
    assert_same_tree(&out.join("tree"), &tree);
    let found: Vec<_> = fs::read_dir(out.join("lost+found")).unwrap().map(Result::unwrap).collect();
    assert_eq!(found.len(), 1, "{done}");
    let bytes = fs::read(found[0].path()).unwrap();
    // What lay with the metadata is lost; the rest is right.
    let lost = bytes.iter().zip(&newer).take_while(|(has, _)| **has == 0).count();
    assert!(lost <= 64 << 10 && bytes[lost..] == newer[lost..], "{lost}: {done}");
}

#[test]
fn a_store_that_is_missing_is_told_with_the_files_it_costs() {
    let (mut cluster, _) = filled();
    // Long enough to lie on all servers, and copied in blocks that arrive in any order; and a file that has holes.
    let (long, holey) = (cluster.scratch("long"), cluster.scratch("holey"));
    fs::write(&long, noise(7, 12 << 20)).unwrap();
    let sparse = fs::File::create(&holey).unwrap();
    sparse.set_len(40 << 20).unwrap();
    for at in [4, 9, 14, 19] {
        sparse.write_all_at(&noise(at, 1 << 20), at << 20).unwrap();
    }
    for (file, to) in [(&long, ":/long"), (&holey, ":/holey")] {
        cluster.covey(&["cp", file.to_str().unwrap(), to]);
    }
    let dump = cluster.scratch("dump");
    let text = cluster.covey(&["fs-dump"]);
    let is_sparse = |size: u64| {
        let mut of_file = text.lines().filter(|line| line.contains(&format!("\"size\":{size}")));
        of_file.next().expect("it was dumped").contains("\"sparse\":true")
    };
    assert_eq!((is_sparse(12 << 20), is_sparse(40 << 20)), (false, true));
    fs::write(&dump, text).unwrap();
    cluster.down();
    fs::remove_dir_all(cluster.store("io2")).unwrap();
    let out = cluster.scratch("out");
    let (io1, io3) = (cluster.store("io1"), cluster.store("io3"));
    let done = cluster.try_covey(&[
        "salvage",
        io1.to_str().unwrap(),
        io3.to_str().unwrap(),
        "--to",
        out.to_str().unwrap(),
        "--dump",
        dump.to_str().unwrap(),
    ]);
    assert_eq!(done.code, Some(1), "{done}");
    assert!(done.stdout.contains("stores that are missing: io2"), "{done}");
    let told = |file: &str, what: &str| {
        let of_file = done.stdout.lines().find(|line| line.contains(file));
        of_file.is_some_and(|line| line.contains("bytes are missing") && line.contains(what))
    };
    assert!(told("/long: ", " of 12582912 bytes") && !told("/long: ", "up to"), "{done}");
    assert!(told("/holey: ", ": up to "), "{done}");
}
