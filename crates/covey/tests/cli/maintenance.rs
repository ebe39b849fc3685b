//! The Debian package's scripts, with a systemctl that writes down what it is asked.

use crate::support::{Finished, run};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use tempfile::TempDir;

/// A machine with systemd as far as the scripts look.
struct Machine(TempDir);

impl Machine {
    fn new() -> Machine {
        let dir = tempfile::tempdir().unwrap();
        for name in ["run/systemd/system", "etc/systemd/system/multi-user.target.wants", "bin"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let at = dir.path().display();
        let stub = format!(
            "#!/bin/sh\necho \"$@\" >>{at}/calls\ncase \"$*\" in *list-units*covey-mount@*) \
             echo 'covey-mount@mnt-a.service loaded active running A'; \
             echo 'covey-mount@mnt-b.service loaded active running B' ;; *list-units*covey@*) \
             [ -e {at}/only-mounts ] || echo 'covey@io1.service loaded active running I' ;; reload*mnt-b*) exit 1 ;; esac\n"
        );
        fs::write(dir.path().join("bin/systemctl"), stub).unwrap();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(dir.path().join("bin/systemctl"), mode).unwrap();
        Machine(dir)
    }

    /// Runs a script as dpkg does, and answers what it asked systemctl.
    fn script(&self, text: &str, words: &[&str]) -> (Finished, Vec<String>) {
        let at = self.0.path().display().to_string();
        // The directories of this machine are not the test's.
        let moved = text.replace("/run/systemd", &format!("{at}/run/systemd"));
        let moved = moved.replace("/etc/systemd", &format!("{at}/etc/systemd"));
        let mut sh = Command::new("sh");
        sh.args(["-c", &moved, "script"]).args(words).env_remove("DPKG_ROOT");
        sh.env("PATH", format!("{at}/bin:/usr/bin:/bin"));
        let done = run(sh);
        let calls = self.0.path().join("calls");
        let said = fs::read_to_string(&calls).unwrap_or_default();
        let _ = fs::remove_file(calls);
        (done, said.lines().map(str::to_owned).collect())
    }
}

const POSTINST: &str = include_str!("../../../../dist/debian/postinst");
const PRERM: &str = include_str!("../../../../dist/debian/prerm");
const POSTRM: &str = include_str!("../../../../dist/debian/postrm");

#[test]
fn removing_the_package_stops_its_units_and_mounts_first() {
    let machine = Machine::new();
    let (done, calls) = machine.script(PRERM, &["remove"]);
    assert!(done.ok, "{done}");
    assert_eq!(calls, ["stop covey-mount@*.service", "stop covey@*.service"]);
    let (done, calls) = machine.script(PRERM, &["upgrade", "0.2.0"]);
    assert!(done.ok && calls.is_empty(), "{done}{calls:?}");
    let (done, calls) = machine.script(POSTRM, &["remove"]);
    assert!(done.ok, "{done}");
    assert_eq!(calls, ["daemon-reload"]);
}

#[test]
fn an_upgrade_passes_mounts_on_and_leaves_servers_running() {
    let machine = Machine::new();
    // What systemd-sysusers would do is another test's.
    let text = POSTINST.replace("systemd-sysusers", "no-such-program");
    let acts = |calls: &[String]| -> Vec<String> {
        calls.iter().filter(|call| !call.starts_with("list-units")).cloned().collect()
    };
    // Where servers run the mounts wait for them, and one line says so.
    let (done, calls) = machine.script(&text, &["configure", "0.1.0"]);
    assert!(done.ok && done.stderr.is_empty(), "{done}");
    assert_eq!(acts(&calls), ["daemon-reload"]);
    assert_eq!(done.stdout.lines().count(), 1, "{done}");
    for word in ["version 0.1.0", "covey@io1.service", "covey-mount@mnt-a.service"] {
        assert!(done.stdout.contains(word), "{word}: {done}");
    }
    fs::write(machine.0.path().join("only-mounts"), "").unwrap();
    let (done, calls) = machine.script(&text, &["configure", "0.1.0"]);
    assert!(done.ok && done.stdout.is_empty(), "{done}");
    let reloads = ["reload covey-mount@mnt-a.service", "reload covey-mount@mnt-b.service"];
    assert_eq!(acts(&calls), [&["daemon-reload"], &reloads[..]].concat());
    assert!(done.stderr.contains("covey-mount@mnt-b.service still runs version 0.1.0"), "{done}");
    assert!(!done.stderr.contains("mnt-a"), "{done}");
    // The first installation: there is nothing to pass on.
    let (done, calls) = machine.script(&text, &["configure", ""]);
    assert!(done.ok && calls.is_empty() && done.stdout.is_empty(), "{done}{calls:?}");
}

#[test]
fn purging_the_package_forgets_enabled_instances_and_nothing_else() {
    let machine = Machine::new();
    let system = machine.0.path().join("etc/systemd/system");
    let wants = system.join("multi-user.target.wants");
    fs::create_dir(system.join("remote-fs.target.wants")).unwrap();
    let own = system.join("covey@.service");
    fs::write(&own, "").unwrap();
    let links = [
        (wants.join("covey@io1.service"), "/nonexistent/covey@.service".into()),
        (wants.join("covey@own.service"), own),
        (
            system.join("remote-fs.target.wants/covey-mount@mnt.service"),
            "/nonexistent/covey-mount@.service".into(),
        ),
        (wants.join("other.service"), "/nonexistent/other.service".into()),
    ];
    for (link, target) in &links {
        symlink::<&std::path::PathBuf, _>(target, link).unwrap();
    }
    let is_there = || links.each_ref().map(|(link, _)| link.symlink_metadata().is_ok());
    assert!(machine.script(POSTRM, &["remove"]).0.ok);
    assert_eq!(is_there(), [true; 4], "until it is purged");
    let (done, _) = machine.script(POSTRM, &["purge"]);
    assert!(done.ok, "{done}");
    assert_eq!(is_there(), [false, true, false, true]);
    assert!(!system.join("remote-fs.target.wants").exists() && wants.exists());
}

#[test]
fn without_systemd_the_scripts_have_nothing_to_do() {
    let machine = Machine::new();
    fs::remove_dir(machine.0.path().join("run/systemd/system")).unwrap();
    for (text, words) in [(PRERM, "remove"), (POSTRM, "remove"), (POSTRM, "purge")] {
        let (done, calls) = machine.script(text, &[words]);
        assert!(done.ok && calls.is_empty(), "{done}{calls:?}");
    }
}
