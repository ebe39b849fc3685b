//! `covey keygen`: a new key each time, for its owner's eyes, never over another.

use crate::home::Home;
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_key_is_64_digits_in_a_file_that_only_its_owner_reads() {
    let home = Home::new();
    home.run(["keygen", "one"]).ok();
    home.run(["keygen", "two"]).ok();
    let (one, two) = (home.read("one"), home.read("two"));
    assert_eq!(one.trim_end().len(), 64);
    assert!(one.trim_end().bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_ne!(one, two);
    let mode = home.path("one").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o600);
}

#[test]
fn an_existing_key_is_never_overwritten() {
    let home = Home::new();
    home.write("key", "old");
    home.run(["keygen", "key"]).fails(
        2,
        "cannot write key: it exists already",
        "remove it yourself",
    );
    assert_eq!(home.read("key"), "old");
}

#[test]
fn the_directory_of_the_key_is_made() {
    let home = Home::new();
    home.run(["keygen", "etc/covey/key"]).ok();
    assert_eq!(home.read("etc/covey/key").trim_end().len(), 64);
}

#[test]
fn a_place_that_cannot_be_is_told() {
    let home = Home::new();
    home.write("file", "");
    let done = home.run(["keygen", "file/key"]);
    assert_eq!(done.code, 1);
    assert!(done.stderr.starts_with("covey: cannot make directory file"), "{}", done.stderr);
}
