//! Users of a machine who are neither root nor the servers' owner, and have no key.

use crate::support::command::{STRANGER, as_stranger};
use crate::support::{Cluster, Finished, run};
use rustix::fs::XattrFlags;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};

/// A cluster with a mount for all users, on which the user has a directory.
struct Site {
    cluster: Cluster,
    mount: PathBuf,
    home: PathBuf,
}

impl Site {
    fn up() -> Option<Site> {
        let mut cluster = Cluster::up(2);
        as_stranger(&cluster)?;
        let mount = cluster.mount_with(&["--allow-other"])?;
        let home = mount.join("home");
        fs::create_dir(&home).unwrap();
        chown(&home, Some(STRANGER), Some(STRANGER)).unwrap();
        Some(Site { cluster, mount, home })
    }

    /// What a command does for the user.
    fn covey(&self, words: &[&str]) -> Finished {
        let mut command = as_stranger(&self.cluster).expect("it was possible before");
        command.args(words);
        run(command)
    }

    fn done(&self, words: &[&str]) -> String {
        let done = self.covey(words);
        assert!(done.ok, "covey {words:?}: {done}");
        done.stdout
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// A file of the user's.
fn file(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap();
    chown(path, Some(STRANGER), Some(STRANGER)).unwrap();
}

#[test]
fn files_on_a_mount_are_shown_to_those_who_may_see_them_there() {
    let Some(site) = Site::up() else { return };
    let home = text(&site.home);
    file(&site.home.join("big"), &vec![7; 300_000]);
    file(&site.home.join(".hidden"), b"");
    fs::create_dir(site.home.join("below")).unwrap();
    fs::write(site.home.join("below/x"), "x").unwrap();
    std::os::unix::fs::symlink("nowhere", site.home.join("link")).unwrap();
    // Neither a configuration nor a key is read.
    assert_eq!(site.done(&["ls", &home]), "below\nbig\nlink\n");
    let long = site.done(&["ls", "-l", "-a", &home]);
    assert!(long.contains("link -> nowhere") && long.contains(" 300000 "), "{long}");
    assert!(long.contains(".hidden"), "{long}");
    let all = site.done(&["ls", "-R", &home]);
    assert_eq!(all, format!("{home}:\nbelow\nbig\nlink\n\n{home}/below:\nx\n"));
    // It says the same as the cluster does to its owner.
    let told = |text: &str| -> serde_json::Value {
        let mut value: serde_json::Value = serde_json::from_str(text).unwrap();
        value[0]["path"].take();
        value
    };
    for name in ["big", "below", "link"] {
        let here = site.done(&["--json", "stat", &format!("{home}/{name}")]);
        let there = site.cluster.covey(&["--json", "stat", &format!(":/home/{name}")]);
        assert_eq!(told(&here), told(&there), "{name}");
    }
    let layout = site.done(&["layout", &format!("{home}/big")]);
    assert!(layout.contains("300000 bytes, progressive"), "{layout}");
    let space = site.done(&["--json", "df", &home]);
    let space: serde_json::Value = serde_json::from_str(&space).unwrap();
    let owners: serde_json::Value =
        serde_json::from_str(&site.cluster.covey(&["--json", "df"])).unwrap();
    assert_eq!((&space["cluster"], &space["files"]), (&owners["cluster"], &owners["files"]));
    assert!(space["bytes_total"].as_u64().unwrap() > 0, "{space}");
}

#[test]
fn a_user_sets_the_consistency_of_what_is_his() {
    let Some(site) = Site::up() else { return };
    let home = text(&site.home);
    fs::create_dir(site.home.join("below")).unwrap();
    chown(site.home.join("below"), Some(STRANGER), Some(STRANGER)).unwrap();
    file(&site.home.join("below/x"), b"x");
    assert_eq!(site.done(&["consistency", &home]), format!("{home}: mount\n"));
    site.done(&["consistency", "set", "-R", "job-scratch", &home]);
    for path in ["", "/below", "/below/x"] {
        let own = site.cluster.covey(&["consistency", &format!(":/home{path}")]);
        assert!(own.ends_with(": job-scratch\n"), "{own}");
        let path = format!("{home}{path}");
        assert_eq!(site.done(&["consistency", &path]), format!("{path}: job-scratch\n"));
    }
    site.done(&["consistency", "set", "mount", &home]);
    site.done(&["consistency", "set", "mount", &home]);
    assert_eq!(site.done(&["consistency", &home]), format!("{home}: mount\n"));
    // What is another's stays as it is.
    fs::write(site.mount.join("roots"), "").unwrap();
    let roots = text(&site.mount.join("roots"));
    site.covey(&["consistency", "set", "strict", &roots])
        .says(&["cannot set the consistency mode", "permission denied"]);
    assert_eq!(site.done(&["consistency", &roots]), format!("{roots}: mount\n"));
}

#[test]
fn a_mount_tells_a_user_what_that_user_asked() {
    let Some(site) = Site::up() else { return };
    let home = text(&site.home);
    // As root: nobody else's business.
    fs::write(site.home.join("roots"), [7; 100]).unwrap();
    site.done(&["ls", &home]);
    let told = site.done(&["--json", "stats", &home]);
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let mine = &told[&home];
    assert!(mine["op opendir"]["count"].as_u64() > Some(0), "{told}");
    assert!(mine["op opendir"]["max_us"].as_f64() > Some(0.0), "{told}");
    assert_eq!(mine["op write"], serde_json::Value::Null, "{told}");
    let mut roots = crate::support::covey();
    let roots = run({
        roots.args(["--json", "stats", &home]);
        roots
    });
    let roots: serde_json::Value = serde_json::from_str(&roots.stdout).unwrap();
    let (written, created) = (&roots[&home]["op write"], &roots[&home]["op create"]);
    assert_eq!((&written["bytes"], &created["count"]), (&100.into(), &1.into()), "{roots}");
    let table = site.done(&["stats", &home]);
    assert!(table.contains("MEAN us") && table.contains("op opendir"), "{table}");
    // It is told, not kept.
    let set = rustix::fs::setxattr(&site.home, "user.covey.stats", b"x", XattrFlags::empty());
    assert_eq!(set, Err(rustix::io::Errno::PERM));
    site.covey(&["stats", "/tmp"]).says(&["it is not on a mount of Covey"]);
    site.covey(&["stats", &home, "--slow"]).says(&["cannot show", "--slow"]);
    site.covey(&["stats", &home, "io1"]).says(&["cannot show", "io1"]);
}

#[test]
fn what_a_user_may_not_see_says_so() {
    let Some(site) = Site::up() else { return };
    let closed = site.mount.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::write(closed.join("x"), "x").unwrap();
    fs::set_permissions(&closed, Permissions::from_mode(0o700)).unwrap();
    let config = text(&site.cluster.config());
    for path in [text(&closed), text(&closed.join("x"))] {
        for command in ["ls", "stat", "layout", "consistency"] {
            let said = site.covey(&["--config", &config, command, &path]);
            let is_shown = said.ok && path.ends_with("closed") && command != "ls";
            assert!(
                is_shown || said.stderr.contains("permission denied"),
                "{command} {path}: {said}"
            );
        }
    }
    let missing = text(&site.home.join("missing"));
    for command in ["ls", "stat", "consistency"] {
        let said = site.covey(&[command, &missing]);
        assert!(said.stderr.contains("no such file"), "{command}: {said}");
    }
    // The cluster's own paths are its owner's; the hints name the mount.
    let mount = text(&site.mount);
    for words in [&["ls", ":/home"][..], &["stat", ":/home"], &["df"], &["consistency", ":/home"]] {
        let said = site.covey(&[&["--config", &config], words].concat());
        said.says(&["cannot connect", &format!("covey ls {mount}")]);
    }
    site.covey(&["df", "/"]).says(&["cannot show the space of /", "not on a mount"]);
    for words in [&["stats"][..], &["stats", "--set", "slow 1"]] {
        let said = site.covey(&[&["--config", &config], words].concat());
        said.says(&["only root and the servers' owner may"]);
    }
}

#[test]
fn root_writes_nothing_in_a_cluster_directory_that_another_user_can_change() {
    let mut cluster = Cluster::up(1);
    if as_stranger(&cluster).is_none() {
        return;
    }
    let run = cluster.dir.join("run");
    chown(&run, Some(STRANGER), Some(STRANGER)).unwrap();
    // Where the pid file would be.
    let name = format!("mount-{}.pid", text(&cluster.scratch("m0")).replace('/', "%"));
    let (planted, target) = (run.join(&name), cluster.scratch("of root"));
    fs::write(&target, "kept").unwrap();
    std::os::unix::fs::symlink(&target, &planted).unwrap();
    let Some(mount) = cluster.mount() else { return };
    let config = fs::read_to_string(cluster.config()).unwrap();
    let id = config.lines().find_map(|line| line.strip_prefix("id = ")).expect("it has one");
    let own = Path::new("/run/covey").join(id.trim_matches('"')).join(name);
    assert!(own.exists(), "no {}", own.display());
    assert!(cluster.covey(&["status"]).contains(&text(&mount)), "the mount is known");
    cluster.umount(&mount);
    crate::support::until("the pid file is gone", || !own.exists());
    assert_eq!(fs::read_link(&planted).unwrap(), target, "the link is as it was");
    assert_eq!(fs::read_to_string(&target).unwrap(), "kept");
}
