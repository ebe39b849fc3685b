//! A machine that boots: Debian's kernel in an emulator, with the initramfs of `dist/initramfs`, into an image that it
//! fetches from a server here.

use super::boot::{free_port, serve};
use crate::support::libraries::source;
use crate::support::{covey, has_file, has_program, run, run_within, skip};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;
use tempfile::TempDir;

/// Without KVM a kernel takes its time.
const LIMIT: Duration = Duration::from_secs(600);

const INIT: &str = "#!/bin/sh
export PATH=/bin
mount -t proc none /proc
echo \"the image runs on $(uname -r) with $(cat /etc/word)\"
# There is nothing else to do.
poweroff -f
";

fn missing() -> Option<&'static str> {
    let programs = ["qemu-system-x86_64", "busybox", "cpio", "modprobe"];
    let all = programs.iter().all(|program| has_program(program)) && has_file("/vmlinuz");
    if std::env::var_os("COVEY_BOOT_GUEST").is_none() {
        return Some(
            "builds a static program and boots a machine in an emulator, some minutes: COVEY_BOOT_GUEST=1",
        );
    }
    match std::env::consts::ARCH {
        "x86_64" if all => None,
        "x86_64" => {
            Some("needs qemu-system-x86, busybox-static, cpio, kmod and linux-image-cloud-amd64")
        }
        _ => Some("the emulator's kernel is for x86_64"),
    }
}

fn done(command: &mut Command) {
    let status = command.status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}

/// The version of the kernel that `/vmlinuz` leads to.
fn kernel() -> String {
    let file = fs::canonicalize("/vmlinuz").unwrap();
    file.file_name().unwrap().to_str().unwrap().trim_start_matches("vmlinuz-").to_owned()
}

/// A root file system that says a word, as an archive.
fn image(work: &Path) -> PathBuf {
    let (root, out) = (work.join("root"), work.join("image.cpio.gz"));
    for dir in ["bin", "etc", "proc", "dev", "sys"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    let busybox = crate::support::packages::find("busybox").unwrap();
    fs::copy(busybox, root.join("bin/busybox")).unwrap();
    for name in ["sh", "mount", "uname", "cat", "poweroff"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(name)).unwrap();
    }
    fs::write(root.join("etc/word"), "quail").unwrap();
    fs::write(root.join("init"), INIT).unwrap();
    fs::set_permissions(root.join("init"), PermissionsExt::from_mode(0o755)).unwrap();
    let pack = "find . -print0 | cpio --null --create --quiet --format newc | gzip -1";
    let shell = format!("{pack} > {}", out.display());
    done(Command::new("sh").args(["-c", &shell]).current_dir(&root));
    out
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_machine_boots_into_an_image_that_it_has_fetched() {
    if let Some(why) = missing() {
        return skip(why);
    }
    let work = TempDir::with_prefix("covey-e2e-guest").unwrap();
    let at = |name: &str| work.path().join(name);
    let image = image(work.path());
    let mut command = covey();
    command.args(["boot", "add", "root", &image.display().to_string(), "--dir"]).arg(at("images"));
    let added = run(command);
    assert!(added.ok, "{added}");
    let mut command = covey();
    command.arg("keygen").arg(at("token"));
    assert!(run(command).ok);
    let token = fs::read_to_string(at("token")).unwrap();
    let port = free_port();
    let _server = Server(serve(&at("images"), &at("token"), port));
    let built = Command::new(source("scripts/build-bootget")).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let bootget = source(String::from_utf8_lossy(&built.stdout).trim());
    let initrd = at("initrd.gz");
    done(Command::new(source("dist/initramfs/make")).arg(kernel()).arg(bootget).arg(&initrd));
    let line = format!(
        "console=ttyS0 panic=-1 tsc=unstable covey.boot=tcp!10.0.2.2!{port} covey.image=root covey.serve=1 covey.token={}",
        token.trim()
    );
    let mut guest = Command::new("qemu-system-x86_64");
    guest.args([
        "-m",
        "256",
        "-display",
        "none",
        "-serial",
        "stdio",
        "-monitor",
        "none",
        "-no-reboot",
    ]);
    // A processor with a source of randomness: without one the kernel lets nobody prove a token for minutes.
    guest.args(["-cpu", "max"]);
    guest.args(["-nic", "user,model=virtio-net-pci", "-kernel", "/vmlinuz", "-append", &line]);
    let said = run_within(with_initrd(guest, &initrd), LIMIT);
    let expected = format!("the image runs on {} with quail", kernel());
    assert!(said.stdout.contains(&expected), "{said}");
    assert!(said.stdout.contains("covey-bootget: found"), "{said}");
}

fn with_initrd(mut guest: Command, initrd: &Path) -> Command {
    guest.arg("-initrd").arg(initrd);
    guest
}
