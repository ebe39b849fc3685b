//! Layouts through a mount, by users who know nothing of the cluster.

use crate::support::Cluster;
use crate::support::command::covey;
use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn a_layout_is_an_attribute_on_mounts() {
    let mut cluster = Cluster::up(3);
    let (Some(one), Some(two)) = (cluster.mount(), cluster.mount()) else { return };
    let name = "user.covey.layout";
    let get = |path: &Path| {
        let mut value = [0; 256];
        let length = getxattr(path, name, &mut value)?;
        Ok::<_, Errno>(String::from_utf8_lossy(&value[..length]).into_owned())
    };
    let set =
        |path: PathBuf, text: &str| setxattr(path, name, text.as_bytes(), XattrFlags::empty());
    fs::create_dir(one.join("d")).unwrap();
    fs::create_dir(one.join("d/below")).unwrap();
    assert!(get(&one.join("d")).unwrap().starts_with("kind=progressive strip="));
    set(one.join("d"), "kind=simple_stripe strip=128K servers=1").unwrap();
    assert_eq!(get(&two.join("d")).unwrap(), "kind=simple_stripe strip=131072 servers=1");
    // What is not said stays; a new directory gets what its parent has.
    set(two.join("d"), "servers=2").unwrap();
    fs::create_dir(two.join("d/new")).unwrap();
    let wanted = "kind=simple_stripe strip=131072 servers=2";
    assert_eq!(get(&one.join("d/new")).unwrap(), wanted);
    fs::write(two.join("d/f"), vec![7; 300_000]).unwrap();
    let told = get(&one.join("d/f")).unwrap();
    assert!(told.starts_with(&format!("{wanted} on=")), "{told}");
    // An empty file can have another one, with data it cannot.
    fs::write(two.join("d/empty"), "").unwrap();
    set(one.join("d/empty"), "kind=basic").unwrap();
    assert!(get(&two.join("d/empty")).unwrap().starts_with("kind=basic on="));
    fs::write(two.join("d/empty"), "data").unwrap();
    assert_eq!(fs::read(one.join("d/empty")).unwrap(), b"data");
    assert_eq!(set(one.join("d/f"), "strip=64K"), Err(Errno::NOTEMPTY));
    for wrong in ["", "strip", "color=red", "strip=5G", "servers=77", "on=1", "inline=4K"] {
        assert_eq!(set(one.join("d"), wrong), Err(Errno::INVAL), "{wrong}");
    }
    let again = setxattr(one.join("d"), name, b"strip=64K", XattrFlags::CREATE);
    assert_eq!((again, removexattr(one.join("d"), name)), (Err(Errno::EXIST), Err(Errno::PERM)));
    std::os::unix::fs::symlink("d", one.join("link")).unwrap();
    assert_eq!(get(&one.join("link")).unwrap(), wanted);
    // Copies of all attributes leave it where it is.
    let mut names = [0; 64];
    assert_eq!(listxattr(one.join("d"), &mut names[..]), Ok(0));
    // The command needs no key for what is on a mount, and says the same.
    let command = |words: &[&str]| {
        let output =
            covey().args(words).env("COVEY_CONFIG", "/nowhere/covey.toml").output().unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned(),
        )
    };
    let at = |path: &str| one.join(path).display().to_string();
    let (code, text) = command(&["layout", "set", "--strip", "256K", &at("d")]);
    assert_eq!((code, &*text), (Some(0), ""));
    assert_eq!(get(&two.join("d")).unwrap(), "kind=simple_stripe strip=262144 servers=2");
    let (code, text) = command(&["layout", &at("d"), &at("d/f")]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("new files get simple_stripe of 256 KiB over 2 servers"), "{text}");
    assert!(text.contains("300000 bytes, simple_stripe of 128 KiB over 2 servers"), "{text}");
    let (code, text) = command(&["layout", "set", "--strip", "64K", &at("d/f")]);
    assert_eq!(code, Some(1));
    assert!(text.contains("it holds data already"), "{text}");
    // With a colon it is the cluster's path.
    assert_eq!(
        command(&["layout", &format!(":{}", at("d"))]).0,
        Some(2),
        "without a configuration"
    );
    assert!(cluster.covey(&["layout", "/d/f"]).contains("io"), "servers have names");
}
