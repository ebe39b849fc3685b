//! Lines of /etc/fstab as mount(8) has them done: the program under the name `mount.covey`.

use crate::support::{Cluster, Finished, no_fuse, run, skip};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// What mount(8) runs for a line.
fn helper(cluster: &Cluster, source: &Path, at: &Path, options: &str) -> Finished {
    let name = cluster.scratch("mount.covey");
    if !name.exists() {
        symlink(env!("CARGO_BIN_EXE_covey"), &name).unwrap();
    }
    let mut command = Command::new(name);
    command.arg(source).arg(at).args(["-o", options]);
    run(command)
}

/// A directory that is unmounted in the end.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_covey"));
        let _ = command.arg("umount").arg("--lazy").arg(&self.0).output();
    }
}

#[test]
fn a_line_of_fstab_may_be_mounted_again_and_has_the_flags_it_asks_for() {
    if let Some(reason) = no_fuse() {
        return skip(reason);
    }
    let cluster = Cluster::up(1);
    let at = Place(cluster.scratch("at"));
    fs::create_dir(&at.0).unwrap();
    let first = helper(&cluster, &cluster.config(), &at.0, "rw,private,noexec,nosuid,suid");
    if !first.ok && first.stderr.contains("not permitted") {
        return skip(format!("needs a FUSE mount: {}", first.stderr.trim()));
    }
    assert!(first.ok && first.stderr.contains("the option suid changes nothing"), "{first}");
    let script = at.0.join("script");
    fs::write(&script, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let refused = Command::new(&script).status().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "noexec");
    // The second `mount -a`.
    let again = helper(&cluster, &cluster.config(), &at.0, "rw,private,noexec");
    assert!(again.ok && again.stdout.contains("already mounted"), "{again}");
    // Another cluster is mounted there: nothing is done, and that is an error.
    let other = Cluster::up(1);
    let refused = helper(&other, &other.config(), &at.0, "rw,private");
    assert!(!refused.ok && refused.stderr.contains("mounted there already"), "{refused}");
    assert!(script.exists());
}
