//! What programs expect of a POSIX file system beyond reading, writing and names: extended
//! attributes, space within files, copies inside the file system. On real mounts.

mod support;

use rustix::fs::{XattrFlags, getxattr, lgetxattr, listxattr, lsetxattr, removexattr, setxattr};
use rustix::io::Errno;
use std::fs;
use std::path::{Path, PathBuf};
use support::Cluster;
use support::bytes::noise;

/// Two mounts of one cluster.
fn two_mounts(io_servers: usize) -> Option<(Cluster, PathBuf, PathBuf)> {
    let mut cluster = Cluster::up(io_servers);
    let (one, two) = (cluster.mount()?, cluster.mount()?);
    Some((cluster, one, two))
}

fn get(path: &Path, name: &str) -> Result<Vec<u8>, Errno> {
    let mut value = vec![0; 65536];
    let length = getxattr(path, name, &mut value)?;
    value.truncate(length);
    Ok(value)
}

fn list(path: &Path) -> Vec<String> {
    let mut names = vec![0; 65536];
    let length = listxattr(path, &mut names[..]).expect("a list");
    let text = String::from_utf8(names[..length].to_vec()).expect("plain names");
    text.split_terminator('\0').map(String::from).collect()
}

#[test]
fn an_attribute_set_on_one_mount_is_read_on_the_other_at_once() {
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    let (left, right) = (one.join("f"), two.join("f"));
    fs::write(&left, "content").unwrap();
    let any = XattrFlags::empty();
    assert_eq!(get(&right, "user.color"), Err(Errno::NODATA));
    setxattr(&left, "user.color", b"blue", XattrFlags::CREATE).unwrap();
    assert_eq!(get(&right, "user.color").unwrap(), b"blue");
    let again = setxattr(&right, "user.color", b"red", XattrFlags::CREATE);
    assert_eq!(again, Err(Errno::EXIST));
    setxattr(&right, "user.color", b"", XattrFlags::REPLACE).unwrap();
    assert_eq!(get(&left, "user.color").unwrap(), b"");
    let large = noise(1, 65536);
    setxattr(&left, "user.large", &large, any).unwrap();
    assert!(get(&right, "user.large").unwrap() == large);
    assert_eq!(list(&right), ["user.color", "user.large"]);
    assert_eq!(getxattr(&left, "user.large", &mut [0; 100]), Err(Errno::RANGE));
    removexattr(&left, "user.color").unwrap();
    assert_eq!(removexattr(&right, "user.color"), Err(Errno::NODATA));
    assert_eq!(list(&right), ["user.large"]);

    let acl = "system.posix_acl_access";
    assert_eq!(get(&left, acl), Err(Errno::OPNOTSUPP));
    assert_eq!(get(&left, "security.capability"), Err(Errno::OPNOTSUPP));
    fs::create_dir(one.join("d")).unwrap();
    setxattr(one.join("d"), "user.on", b"a directory", any).unwrap();
    assert_eq!(get(&two.join("d"), "user.on").unwrap(), b"a directory");
    std::os::unix::fs::symlink("f", one.join("l")).unwrap();
    assert_eq!(lsetxattr(one.join("l"), "user.x", b"", any), Err(Errno::PERM));
    if support::is_root() {
        lsetxattr(one.join("l"), "trusted.x", b"t", any).unwrap();
        let mut value = vec![0; 8];
        assert_eq!(lgetxattr(two.join("l"), "trusted.x", &mut value), Ok(1));
    }
}
