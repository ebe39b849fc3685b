//! Quotas on a mount.

use crate::support::{Cluster, is_root, skip, until};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

/// A user without a name, and a group.
const USER: u32 = 12_345;

/// A line of a shell, as that user.
fn shell(dir: &Path, line: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("cd {} && {line}", dir.display())]);
    command.uid(USER).gid(USER).output().unwrap()
}

fn must(dir: &Path, line: &str) {
    let done = shell(dir, line);
    assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
}

fn must_pass_the_quota(dir: &Path, line: &str) {
    let done = shell(dir, line);
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(!done.status.success() && said.contains("Disk quota exceeded"), "{line}: {said}");
}

/// Files and bytes that the user owns, as the metadata server has counted them.
fn counted(cluster: &Cluster) -> (u64, u64) {
    let said = cluster.covey(&["--json", "quota", "show", "--user", &USER.to_string()]);
    let said: Value = serde_json::from_str(&said).unwrap();
    if said["counted"] != true {
        return (u64::MAX, 0);
    }
    let quota = &said["quotas"][0];
    (quota["files"].as_u64().unwrap(), quota["bytes"].as_u64().unwrap())
}

/// The same, as a walk finds it.
fn found(dir: &Path) -> (u64, u64) {
    let mut sum = (0, 0);
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            let below = found(&path);
            sum = (sum.0 + below.0, sum.1 + below.1);
        }
        if meta.uid() == USER {
            sum.0 += 1;
            sum.1 += if meta.is_file() { meta.len() } else { 0 };
        }
    }
    sum
}

/// What the I/O servers hold, in lengths of objects.
fn bytes_of_objects(cluster: &Cluster) -> u64 {
    let directories = ["io1", "io2"].map(|node| cluster.store(node).join("objects"));
    let directories = directories.iter().flat_map(|objects| fs::read_dir(objects).unwrap());
    let directories = directories.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    let objects = directories.flat_map(|directory| fs::read_dir(directory).unwrap());
    objects.map(|object| object.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn a_user_meets_the_quota_and_what_is_counted_is_what_a_walk_finds_after_kills_too() {
    if !is_root() {
        return skip("needs root, to be another user");
    }
    let mut cluster = Cluster::up(2);
    let Some(mount) = cluster.mount_with(&["--allow-other"]) else { return };
    fs::set_permissions(mount.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let dir = mount.join("d");
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
    for index in 0..10 {
        let file = dir.join(format!("before-{index}"));
        fs::write(&file, vec![1; 30_000]).unwrap();
        chown(&file, Some(USER), Some(USER)).unwrap();
    }

    let user = USER.to_string();
    cluster.covey(&["quota", "set", "--user", &user, "--files", "15", "--bytes", "3M"]);
    until("what was there is counted", || counted(&cluster) == (10, 300_000));
    for index in 0..5 {
        must(&dir, &format!("echo {index} > during-{index}"));
    }
    must_pass_the_quota(&dir, "echo 5 > during-5");
    must_pass_the_quota(&dir, "mkdir sub");
    must(&dir, "rm before-0 && mkdir sub");
    must_pass_the_quota(&dir, "head -c 4194304 /dev/zero > during-0");
    // What was refused takes no space, whatever the file's mode says and whichever call it was.
    must(&dir, "rm before-1 before-2");
    must_pass_the_quota(&dir, "(umask 0222; head -c 4194304 /dev/zero > unwritable)");
    must_pass_the_quota(&dir, "fallocate -l 100M during-2");
    let on_disks = bytes_of_objects(&cluster);
    let (_, bytes) = found(&dir);
    assert!(on_disks <= bytes, "{on_disks} bytes on the I/O servers, {bytes} in files");
    must(&dir, "rm -f unwritable && cp during-3 before-1 && cp during-3 before-2");
    must_pass_the_quota(&dir, "truncate -s 100M during-1");
    must(&dir, "rm during-0 && head -c 1000000 /dev/zero > sub/large");
    fs::write(dir.join("roots"), vec![1; 5 << 20]).unwrap();
    assert_eq!(counted(&cluster), found(&dir));

    cluster.kill("meta");
    cluster.restart();
    until("it counts again", || cluster.try_covey(&["quota", "show"]).ok);
    assert_eq!(counted(&cluster), found(&dir));
    must_pass_the_quota(&dir, "touch one-more");
    let shown = cluster.covey(&["quota", "show", "--user", &user]);
    assert!(shown.contains("100%") && shown.contains("3.00 MiB"), "{shown}");

    cluster.covey(&["quota", "set", "--user", &user, "--files", "none"]);
    must(&dir, "touch one-more");
    cluster.covey(&["quota", "set", "--group", &user, "--files", "17"]);
    must(&dir, "touch two-more");
    must_pass_the_quota(&dir, "touch three-more");
    cluster.covey(&["quota", "recount"]);
    until("all is counted anew", || counted(&cluster) == found(&dir));
    cluster.refused(&["quota", "set", "--files", "1"]);
    cluster.refused(&["quota", "set", "--user", "nobody-of-this-name", "--files", "1"]);
    cluster.covey(&["fsck"]);
}

/// A child process closes its copy of the descriptor, and an unlock sends what was written before it: neither may take
/// away what the writer's own fsync has to tell.
#[test]
fn a_write_that_was_refused_late_is_told_by_the_writers_fsync() {
    if !is_root() {
        return skip("needs root, to be another user");
    }
    let mut cluster = Cluster::up(1);
    let Some(mount) = cluster.mount_with(&["--allow-other"]) else { return };
    fs::set_permissions(mount.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let user = USER.to_string();
    cluster.covey(&["quota", "set", "--user", &user, "--bytes", "1K"]);
    until("all is counted", || counted(&cluster) == (0, 0));
    for mode in ["strict", "close-to-open", "job-scratch"] {
        let dir = mount.join(mode);
        fs::create_dir(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).unwrap();
        cluster.covey(&["consistency", &dir.display().to_string(), mode]);
        let line = |meanwhile: &str| {
            format!(
                "perl -MIO::Handle -e 'open(F, \">f\") or die; flock(F, 2) or die; syswrite(F, \"x\" x 8000) or die \
                 \"$!\"; {meanwhile}; F->sync or die \"sync: $!\"'; rm f"
            )
        };
        let done = |meanwhile: &str| {
            let done = shell(&dir, &line(meanwhile));
            String::from_utf8_lossy(&done.stderr).into_owned()
        };
        let wait = "select(undef, undef, undef, 0.05)";
        for meanwhile in [wait, &format!("{wait}; system(\"true\")"), "flock(F, 8)"] {
            let said = done(meanwhile);
            assert!(said.contains("sync: Disk quota exceeded"), "{mode}, {meanwhile}: {said:?}");
        }
    }
}
