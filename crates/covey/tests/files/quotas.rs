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
    let objects = ["io1", "io2"].iter().flat_map(|node| cluster.objects_of(node));
    objects.map(|object| object.metadata().unwrap().len()).sum()
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

/// What `covey quota show` says of a directory; Null where it has no quota, or not all is counted.
fn dir_quota(cluster: &Cluster, path: &str) -> Value {
    let said = cluster.covey(&["--json", "quota", "show"]);
    let said: Value = serde_json::from_str(&said).unwrap();
    let is_it = |quota: &&Value| quota["path"] == path && quota["counted"] == true;
    if said["counted"] != true {
        return Value::Null;
    }
    said["quotas"].as_array().unwrap().iter().find(is_it).cloned().unwrap_or(Value::Null)
}

/// Files and bytes that are counted for a directory.
fn held(cluster: &Cluster, path: &str) -> (u64, u64) {
    let quota = dir_quota(cluster, path);
    (quota["files"].as_u64().unwrap_or(0), quota["bytes"].as_u64().unwrap_or(0))
}

/// The same as a walk finds it, whoever owns it, with the directory itself.
fn walked(dir: &Path) -> (u64, u64) {
    let mut sum = (1, 0);
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let meta = fs::symlink_metadata(&path).unwrap();
        let one = if meta.is_dir() {
            walked(&path)
        } else {
            (1, if meta.is_file() { meta.len() } else { 0 })
        };
        sum = (sum.0 + one.0, sum.1 + one.1);
    }
    sum
}

#[test]
fn a_directory_has_a_quota_for_all_that_is_in_it_and_names_do_not_cross_its_border() {
    if !is_root() {
        return skip("needs root, to be another user");
    }
    let mut cluster = Cluster::up(2);
    let Some(mount) = cluster.mount_with(&["--allow-other"]) else { return };
    fs::set_permissions(mount.parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let (dir, beside) = (mount.join("d"), mount.join("beside"));
    for path in [&dir, &dir.join("sub"), &dir.join("sub/deep"), &beside] {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    for index in 0..40 {
        fs::write(dir.join(format!("sub/deep/{index}")), vec![1; 10_000]).unwrap();
    }
    must(&beside, "echo text > outside");

    // It is set below what is there: nothing goes, and nothing comes.
    let set = |limits: &[&str]| cluster.covey(&[&["quota", "set", "--dir", "/d"], limits].concat());
    set(&["--bytes", "100K", "--files", "60"]);
    until("all is counted", || dir_quota(&cluster, "/d") != Value::Null);
    assert_eq!((held(&cluster, "/d"), walked(&dir)), ((43, 400_000), (43, 400_000)));
    must_pass_the_quota(&dir, "head -c 10 /dev/zero > sub/new");
    set(&["--bytes", "1M"]);
    must(
        &dir,
        "mkdir sub/more && head -c 500000 /dev/zero > sub/more/large && ln -s large sub/more/link",
    );
    must_pass_the_quota(&dir, "head -c 200000 /dev/zero > sub/more/larger");
    must_pass_the_quota(&dir, "for at in $(seq 20); do touch sub/$at || exit 1; done");
    must(&beside, "head -c 2000000 /dev/zero > large && for at in $(seq 20); do touch $at; done");
    must(&dir, "rm -rf sub/more sub/[0-9]*");
    until("what was removed is gone", || held(&cluster, "/d") == walked(&dir));

    // Links stay on their side, and mv copies: what comes in is counted, what goes out is not.
    let crossing = shell(&dir, "ln ../beside/outside linked");
    assert!(String::from_utf8_lossy(&crossing.stderr).contains("ross-device"), "{crossing:?}");
    assert!(!shell(&dir, "ln sub/new ../beside/linked").status.success());
    fs::rename(dir.join("sub"), beside.join("sub")).expect_err("it would leave with all its files");
    let before = held(&cluster, "/d");
    must(&dir, "mv ../beside/outside .");
    until("it is counted", || held(&cluster, "/d") == (before.0 + 1, before.1 + 5));
    must(&dir, "mv outside ../beside/ && mv sub/new sub/moved && ln sub/moved twice && rm twice");
    until("it is not counted", || held(&cluster, "/d") == before);
    // The directory itself may be called otherwise, and lie elsewhere.
    fs::rename(&dir, beside.join("d")).unwrap();
    assert_eq!(held(&cluster, "/beside/d"), before);
    fs::rename(beside.join("d"), &dir).unwrap();

    let nested = cluster.refused(&["quota", "set", "--dir", "/d/sub", "--files", "1"]);
    assert!(nested.stderr.contains("lies in one that has a quota"), "{nested}");
    cluster.refused(&["quota", "set", "--dir", "/", "--files", "1"]);
    cluster.refused(&["quota", "show", "--dir", "/beside"]).says(&["the directory has none"]);
    cluster.refused(&["quota", "set", "--dir", "/beside", "--remove"]).says(&["has none"]);
    let shown = cluster.covey(&["quota", "show", "--dir", "/d"]);
    assert!(
        shown.contains("directory") && shown.contains("/d") && shown.contains("1.00 MiB"),
        "{shown}"
    );
    cluster.kill("meta");
    cluster.restart();
    until("it counts again", || cluster.try_covey(&["quota", "show"]).ok);
    assert_eq!((held(&cluster, "/d"), walked(&dir)), (before, before));
    cluster.covey(&["fsck"]);

    cluster.covey(&["quota", "set", "--dir", "/d", "--remove"]);
    assert_eq!(dir_quota(&cluster, "/d"), Value::Null);
    must(&dir, "head -c 2000000 /dev/zero > large");
    fs::rename(dir.join("sub"), beside.join("sub")).unwrap();
    cluster.covey(&["quota", "set", "--dir", "/d", "--files", "100"]);
    fs::remove_dir_all(&dir).unwrap();
    until("with the directory its quota goes", || {
        !cluster.covey(&["quota", "show"]).contains("directory")
    });
    cluster.covey(&["fsck"]);
}
