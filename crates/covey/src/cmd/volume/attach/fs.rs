//! The file system on a volume: a loop device on the volume's file, mounted. The file is attached in a directory named after
//! the place: in the cluster's own directory where that is root's, else in /run/covey.

use super::{Attach, in_background, make_place};
use crate::cmd::Context;
use crate::cmd::cluster::Cluster;
use crate::cmd::cluster::mounts::{self, Unmount};
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How much of each end of a device must be readable before a file system is made on it.
const ENDS_BYTES: u64 = 1 << 20;
/// How long a loop device may stay behind its mount.
const DEVICE_WAIT: Duration = Duration::from_secs(5);

/// Attaches a volume and mounts its file system at `place`.
pub async fn attach(args: &Attach, config: &Config, place: &Path, context: &Context) -> Result<()> {
    let kind = args.fs.as_deref().unwrap_or_default();
    if !rustix::process::geteuid().is_root() {
        return Err(Error::user("cannot mount a volume's file system: only root may")
            .hint("without --fs the volume itself is a file, for every user"));
    }
    if !kind.bytes().all(|byte| byte.is_ascii_alphanumeric()) || kind.is_empty() {
        return Err(Error::user(format!("{kind:?} is no type of file system")).hint("--fs ext4"));
    }
    let hidden = hidden(config, place)?;
    make_place(&hidden, true)?;
    make_place(place, true)?;
    if mounts::kind_at(&hidden).is_some() {
        let what = format!("cannot attach at {}: a volume is attached there", place.display());
        return Err(Error::user(what).hint("`covey volume detach` takes it away"));
    }
    if let Some(device) = device_of(&hidden, &args.name) {
        let _ = std::fs::remove_dir(&hidden);
        let what = format!("cannot attach: {} is in use here as {device}", args.name);
        return Err(Error::user(what)
            .hint("a file system is mounted once; `covey volume detach` takes it away"));
    }
    in_background(args, config, &hidden).await?;
    let file = hidden.join(&args.name);
    let device = match mount(args, kind, &file, place) {
        Ok(device) => device,
        Err(error) => {
            let _ = mounts::umount(&hidden, Unmount::Lazily).await;
            let _ = std::fs::remove_dir(&hidden);
            return Err(error);
        }
    };
    let value = serde_json::json!({ "volume": args.name, "mount": place, "device": device });
    context.output.result(&value, |out| {
        use std::io::Write;
        writeln!(out, "volume {} is mounted at {} by {device}", args.name, place.display())
    })
}

/// Makes the loop device, the file system where it is to be made, and the mount; the device.
fn mount(args: &Attach, kind: &str, file: &Path, place: &Path) -> Result<String> {
    let mut losetup = Command::new("losetup");
    losetup.args(["--find", "--show"]).args(args.read_only.then_some("--read-only")).arg(file);
    let device = run(losetup)?.trim().to_owned();
    let mounted = format(args, kind, &device).and_then(|()| {
        let mut mount = Command::new("mount");
        mount.args(["-t", kind, "-o", &mount_options(args)]);
        mount.arg(&device).arg(place);
        run(mount)
    });
    // A device that is mounted goes with its mount, however that ends; without this it would outlive a machine's end, such
    // as that of a node of a lab.
    let mut free = Command::new("losetup");
    free.args(["--detach", &device]);
    let freed = run(free);
    mounted.and(freed).map(|_| device)
}

/// A volume's bytes may have been written elsewhere, by who is not root here: what makes a program or a device node of this
/// machine's mighty is not taken from there unasked.
fn mount_options(args: &Attach) -> String {
    let access = if args.read_only { "ro" } else { "rw" };
    let more = args.options.iter().map(|option| format!(",{option}"));
    format!("{access},nosuid,nodev{}", more.collect::<String>())
}

/// Makes a file system on a device that has none. `blkid` ends in the same way where there is none and where it cannot read
/// what is there: so both ends of the device, where file systems have what they are known by, are read first.
fn format(args: &Attach, kind: &str, device: &str) -> Result<()> {
    let read = File::open(device).and_then(|mut file| {
        let bytes = file.seek(SeekFrom::End(0))?;
        read_ends(&file, bytes)
    });
    let hint =
        format!("nothing was written; `covey volume show {}` says whether it is served", args.name);
    read.cannot(|| format!("read volume {}, {device}", args.name))
        .map_err(|error| error.hint(hint))?;
    let mut probe = Command::new("blkid");
    probe.args(["-p", "-o", "value", "-s", "TYPE", device]).stdin(Stdio::null());
    let found = probe.output().cannot(|| "start blkid")?;
    // 2: nothing is known of what is there.
    let is_empty = found.status.code() == Some(2);
    match (is_empty, args.format) {
        (false, _) => Ok(()),
        (true, false) => {
            let what = format!("cannot mount volume {}: it has no file system", args.name);
            Err(Error::user(what).hint("--format makes one"))
        }
        (true, true) => {
            let mut make = Command::new(format!("mkfs.{kind}"));
            make.arg("-q").arg(device);
            run(make).map(drop)
        }
    }
}

/// Reads the first and the last bytes of a device, as many as there are.
fn read_ends(device: &File, bytes: u64) -> std::io::Result<()> {
    let each = ENDS_BYTES.min(bytes);
    let mut buffer = vec![0; each as usize];
    device.read_exact_at(&mut buffer, 0)?;
    device.read_exact_at(&mut buffer, bytes - each)
}

/// Whether a volume is attached for a file system at `place`, whether or not that is mounted.
pub fn is_attached(config: &Config, place: &Path) -> Result<bool> {
    Ok(mounts::kind_at(&hidden(config, place)?).is_some())
}

/// Takes a file system and its volume away.
pub async fn detach(config: &Config, place: &Path, how: Unmount) -> Result<()> {
    let shown = place.display();
    if !is_attached(config, place)? {
        return Err(Error::user(format!("cannot detach {shown}: no volume is attached there"))
            .hint("`umount` unmounts any file system"));
    }
    let mut umount = Command::new("umount");
    umount.args((how == Unmount::Lazily).then_some("--lazy")).arg("--").arg(place);
    run(umount)?;
    take_away(config, place, how).await
}

/// Takes the volume of a file system away that is not mounted any more.
pub async fn take_away(config: &Config, place: &Path, how: Unmount) -> Result<()> {
    let hidden = hidden(config, place)?;
    if how == Unmount::IfUnused {
        devices_gone(&hidden).await;
    }
    mounts::umount(&hidden, how).await?;
    let _ = std::fs::remove_dir(&hidden);
    Ok(())
}

/// The loop device that this machine has made of a volume, wherever that is mounted.
fn device_of(hidden: &Path, volume: &str) -> Option<String> {
    let run = hidden.parent()?.canonicalize().ok()?;
    let is_volumes = |file: &Path| {
        let above = file.parent().and_then(Path::parent);
        above == Some(&run) && file.file_name().is_some_and(|name| name == volume)
    };
    loop_devices().find(|(_, file)| is_volumes(file)).map(|(device, _)| device)
}

/// Loop devices, and what file each has.
fn loop_devices() -> impl Iterator<Item = (String, PathBuf)> {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices.filter_map(|device| {
        let file = std::fs::read_to_string(device.path().join("loop/backing_file")).ok()?;
        Some((format!("/dev/{}", device.file_name().display()), file.trim_end().into()))
    })
}

/// Waits until no loop device has a file of `hidden`. One goes with its mount, unless another program looks at it just then.
async fn devices_gone(hidden: &Path) {
    let hidden = hidden.canonicalize().unwrap_or_else(|_| hidden.to_owned());
    let begun = Instant::now();
    while begun.elapsed() < DEVICE_WAIT && loop_devices().any(|(_, file)| file.starts_with(&hidden))
    {
        tokio::time::sleep(DEVICE_WAIT / 100).await;
    }
}

/// Where the volume's file is while its file system is at `place`.
fn hidden(config: &Config, place: &Path) -> Result<PathBuf> {
    let name = place.to_string_lossy().replace('%', "%%").replace('/', "%");
    let run = match Cluster::of_trusted(config) {
        Some(cluster) => cluster.run_dir(),
        None => Path::new("/run/covey").join(&config.id),
    };
    Ok(std::path::absolute(run)?.join(format!("volume-{name}")))
}

/// Runs a program of the machine's to its end.
fn run(mut command: Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.cannot(|| format!("start {program}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        let why = String::from_utf8_lossy(&output.stderr);
        let why = why.trim().trim_start_matches(&format!("{program}: ")).to_owned();
        Err(Error::work(format!("{program}: {why}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Attach,
    }

    /// A superblock that cannot be read just then is not an empty device.
    #[test]
    fn what_cannot_be_read_at_either_end_is_not_formatted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        for bytes in [0, 4096, ENDS_BYTES, ENDS_BYTES + 1, 5 * ENDS_BYTES] {
            std::fs::write(&path, vec![0; bytes as usize]).unwrap();
            read_ends(&File::open(&path).unwrap(), bytes).unwrap();
        }
        // It ends before its last bytes.
        read_ends(&File::open(&path).unwrap(), 6 * ENDS_BYTES).unwrap_err();
        // EIO, as of a volume without its target: nothing is mapped at 0.
        let unmapped = File::open("/proc/self/mem").unwrap();
        assert_eq!(read_ends(&unmapped, ENDS_BYTES).unwrap_err().raw_os_error(), Some(5));
        let args = Line::parse_from(["x", "disk", "/mnt", "--fs", "ext4", "--format"]).args;
        let refused = format(&args, "ext4", dir.path().to_str().unwrap()).unwrap_err();
        assert!(refused.message.contains("cannot read volume disk"), "{}", refused.message);
    }

    #[test]
    fn what_others_wrote_gives_no_rights_unless_that_is_meant() {
        let options = |more: &[&str]| {
            let words = ["x", "disk", "/mnt", "--fs", "ext4"].iter().chain(more).copied();
            mount_options(&Line::parse_from(words).args)
        };
        assert_eq!(options(&[]), "rw,nosuid,nodev");
        assert_eq!(options(&["--read-only", "-o", "suid"]), "ro,nosuid,nodev,suid");
        assert_eq!(options(&["-o", "dev,noatime"]), "rw,nosuid,nodev,dev,noatime");
    }
}
