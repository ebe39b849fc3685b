//! What programs expect of a POSIX file system beyond reading, writing and names: extended
//! attributes, space within files, copies inside the file system. On real mounts.

use crate::support::bytes::{assert_same, noise};
use crate::support::{Cluster, has_program, is_root, open, run, two_mounts, until};
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, Mode, OFlags, SeekFrom, XattrFlags, copy_file_range, fallocate,
    fsetxattr, getxattr, lgetxattr, linkat, listxattr, lsetxattr, removexattr, seek, setxattr,
};
use rustix::io::Errno;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

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
    if crate::support::is_root() {
        lsetxattr(one.join("l"), "trusted.x", b"t", any).unwrap();
        let mut value = vec![0; 8];
        assert_eq!(lgetxattr(two.join("l"), "trusted.x", &mut value), Ok(1));
    }
}

/// A list of access rights as the kernel takes it: tags and permissions.
fn access_list(entries: &[(u16, u16)]) -> Vec<u8> {
    let entry = |&(tag, permission): &(u16, u16)| {
        [tag.to_le_bytes(), permission.to_le_bytes(), [0xff; 2], [0xff; 2]].concat()
    };
    [2_u32.to_le_bytes().to_vec(), entries.iter().flat_map(entry).collect()].concat()
}

#[test]
fn a_list_of_access_rights_that_is_a_files_mode_sets_it_and_any_other_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let Some((_cluster, one, two)) = two_mounts(2) else { return };
    let name = "system.posix_acl_access";
    let list = access_list(&[(0x01, 6), (0x04, 4), (0x20, 0)]);
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
    for before in [0o600, 0o1777, 0o2755, 0o4711] {
        let here = one.join(format!("f{before:o}"));
        let there = two.join(here.file_name().unwrap());
        let file = File::create_new(&here).unwrap();
        file.set_permissions(PermissionsExt::from_mode(before)).unwrap();
        assert_eq!(mode(&here), before);
        fsetxattr(&file, name, &list, XattrFlags::empty()).unwrap();
        let after = before & 0o7000 | 0o640;
        assert_eq!((mode(&here), mode(&there)), (after, after), "{before:o}");
        drop(file);
        assert_eq!((mode(&here), mode(&there)), (after, after), "{before:o}");
        let other = access_list(&[(0x01, 6), (0x02, 7), (0x04, 4), (0x10, 7), (0x20, 0)]);
        let other = setxattr(&there, name, &other, XattrFlags::empty());
        assert!(matches!(other, Err(Errno::OPNOTSUPP | Errno::INVAL)), "{other:?}");
        assert_eq!(mode(&here), after);
    }
    // Of a directory cp(1) would go on to the rights of what will be made there.
    let dir = one.join("d");
    fs::create_dir(&dir).unwrap();
    assert_eq!(setxattr(&dir, name, &list, XattrFlags::empty()), Err(Errno::OPNOTSUPP));
}

const PUNCH: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn a_punched_hole_reads_as_zeros_on_both_mounts_and_gives_its_space_back() {
    let Some((_cluster, one, two)) = two_mounts(4) else { return };
    let bytes = noise(2, 4 << 20);
    fs::write(one.join("f"), &bytes).unwrap();
    let file = open(&two.join("f"));
    let before = allocated(&one.join("f"));
    // Strips begin and end in the middle of it, and pages too.
    let (from, length) = ((1 << 20) + 1000, (2 << 20) + 77);
    fallocate(&file, PUNCH, from, length).unwrap();
    let mut wanted = bytes.clone();
    wanted[from as usize..(from + length) as usize].fill(0);
    assert_same(&fs::read(one.join("f")).unwrap(), &wanted, "after the punch");
    let freed = before - allocated(&one.join("f"));
    assert!(freed >= (2 << 20) - (64 << 10), "only {freed} bytes were freed");

    // Data and holes, as the I/O servers know them. Holes are whole pages.
    let hole = seek(&file, SeekFrom::Hole(0)).unwrap();
    assert!((from..from + 4096).contains(&hole), "the hole begins at {hole}");
    let data = seek(&file, SeekFrom::Data(hole)).unwrap();
    assert!((from + length - 4096..=from + length).contains(&data), "data begins at {data}");
    assert_eq!(seek(&file, SeekFrom::Hole(data)).unwrap(), 4 << 20);
    assert_eq!(seek(&file, SeekFrom::Data(4 << 20)), Err(Errno::NXIO));

    fallocate(&file, PUNCH, 0, u64::MAX >> 1).unwrap();
    // What lies with the metadata counts as data, zeros or not.
    let beyond = 64 << 10;
    assert_eq!(seek(&file, SeekFrom::Data(beyond)), Err(Errno::NXIO));
    assert_eq!(fs::metadata(one.join("f")).unwrap().len(), 4 << 20);
    assert!(fs::read(one.join("f")).unwrap().iter().all(|&byte| byte == 0));
    file.write_all_at(b"again", 2 << 20).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(beyond)).unwrap() & !4095, 2 << 20);
}

#[test]
fn fallocate_takes_space_and_grows_the_file_only_where_it_is_asked_to() {
    let Some((_cluster, one, two)) = two_mounts(3) else { return };
    let (left, right) = (one.join("f"), two.join("f"));
    let file = open(&left);
    file.write_all_at(b"begin", 0).unwrap();
    fallocate(&file, FallocateFlags::empty(), 1 << 20, 3 << 20).unwrap();
    assert_eq!(fs::metadata(&right).unwrap().len(), 4 << 20);
    assert!(allocated(&right) >= 3 << 20, "{} bytes are allocated", allocated(&right));
    fallocate(&file, FallocateFlags::KEEP_SIZE, 4 << 20, 2 << 20).unwrap();
    assert_eq!(fs::metadata(&right).unwrap().len(), 4 << 20);
    assert!(allocated(&right) >= 5 << 20, "{} bytes are allocated", allocated(&right));
    let mut wanted = vec![0; 4 << 20];
    wanted[..5].copy_from_slice(b"begin");
    assert_same(&fs::read(&right).unwrap(), &wanted, "what is allocated");

    file.write_all_at(&noise(5, 300_000), 100_000).unwrap();
    wanted[100_000..400_000].copy_from_slice(&noise(5, 300_000));
    let zero = FallocateFlags::ZERO_RANGE;
    let before = allocated(&right);
    fallocate(&file, zero, 150_001, 100_001).unwrap();
    wanted[150_001..250_002].fill(0);
    assert_same(&fs::read(&right).unwrap(), &wanted, "after zeroing");
    assert!(allocated(&right) >= before, "zeroing gives no space back");
    fallocate(&file, zero, 4 << 20, 1000).unwrap();
    assert_eq!(fs::metadata(&right).unwrap().len(), (4 << 20) + 1000);
    fallocate(&file, zero | FallocateFlags::KEEP_SIZE, 5 << 20, 1000).unwrap();
    assert_eq!(fs::metadata(&right).unwrap().len(), (4 << 20) + 1000);

    for unknown in [FallocateFlags::COLLAPSE_RANGE, FallocateFlags::INSERT_RANGE] {
        assert_eq!(fallocate(&file, unknown, 0, 4096), Err(Errno::OPNOTSUPP));
    }
    file.set_len(0).unwrap();
    assert_eq!(allocated(&right), 0, "a cut frees what was allocated beyond the end");
}

#[test]
fn a_copy_inside_the_file_system_is_the_same_and_keeps_holes() {
    let Some((_cluster, one, two)) = two_mounts(4) else { return };
    let from = open(&one.join("from"));
    let bytes = noise(6, 3 << 20);
    from.write_all_at(&bytes[..1 << 20], 0).unwrap();
    from.write_all_at(&bytes, 40 << 20).unwrap();
    let to = open(&one.join("to"));
    to.write_all_at(&noise(7, 2 << 20), 0).unwrap();
    let (mut at, mut to_at) = (5, 11);
    loop {
        let count = copy_file_range(&from, Some(&mut at), &to, Some(&mut to_at), 1 << 30).unwrap();
        if count == 0 {
            break;
        }
    }
    assert_eq!((at, to_at), (43 << 20, (43 << 20) + 6));
    let mut wanted = noise(7, 11);
    wanted.extend_from_slice(&fs::read(two.join("from")).unwrap()[5..]);
    assert_same(&fs::read(two.join("to")).unwrap(), &wanted, "the copy");
    assert!(allocated(&two.join("to")) < 8 << 20, "{}", allocated(&two.join("to")));

    // Within one file: apart it works, overlapping it is refused.
    let (mut at, mut to_at) = (0, 1 << 20);
    assert_eq!(
        copy_file_range(&from, Some(&mut at), &from, Some(&mut to_at), 1 << 20),
        Ok(1 << 20)
    );
    assert_same(
        &fs::read(two.join("from")).unwrap()[1 << 20..2 << 20],
        &bytes[..1 << 20],
        "within",
    );
    let (mut at, mut to_at) = (0, 4096);
    let overlap = copy_file_range(&from, Some(&mut at), &from, Some(&mut to_at), 8192);
    assert_eq!(overlap, Err(Errno::INVAL));
}

#[test]
fn a_file_without_a_name_can_be_linked_and_is_seen_then() {
    let Some((cluster, one, two)) = two_mounts(2) else { return };
    let how = OFlags::TMPFILE | OFlags::RDWR;
    let file = File::from(rustix::fs::open(&one, how, Mode::from(0o640)).unwrap());
    file.write_all_at(&noise(8, 100_000), 0).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    assert_eq!(fs::read_dir(&two).unwrap().count(), 0);
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let follow = AtFlags::SYMLINK_FOLLOW;
    linkat(CWD, path.as_str(), CWD, one.join("named"), follow).unwrap();
    assert_same(&fs::read(two.join("named")).unwrap(), &noise(8, 100_000), "the linked file");
    assert_eq!(fs::metadata(two.join("named")).unwrap().nlink(), 1);
    drop(file);
    fs::remove_file(two.join("named")).unwrap();
    let lost = File::from(rustix::fs::open(&two, how, Mode::from(0o600)).unwrap());
    lost.write_all_at(b"nobody will see it", 0).unwrap();
    drop(lost);
    until("the end of the objects of files without a name", || cluster.objects() == 0);
}

#[test]
fn the_time_of_birth_is_told_and_stays() {
    let Some((_cluster, one, two)) = two_mounts(1) else { return };
    fs::write(one.join("f"), "x").unwrap();
    let born = fs::metadata(one.join("f")).unwrap().created().expect("statx knows it");
    open(&two.join("f")).write_all_at(b"more", 0).unwrap();
    fs::rename(one.join("f"), one.join("g")).unwrap();
    assert_eq!(fs::metadata(two.join("g")).unwrap().created().unwrap(), born);
}

/// A script of Python with its arguments, for calls that std does not make.
fn python(dir: &Path, script: &str, arguments: &[&Path]) {
    let mut command = Command::new("python3");
    command.current_dir(dir).arg("-c").arg(script).args(arguments);
    let done = run(command);
    assert!(done.ok, "{done}");
}

#[test]
fn groups_count_as_the_process_has_them_not_as_its_account() {
    if !is_root() || !has_program("python3") {
        return crate::support::skip("needs root and python3");
    }
    let mut cluster = Cluster::up(1);
    let Some(mount) = cluster.mount_with(&["--allow-other"]) else { return };
    python(&mount, GROUPS, &[]);
}

/// One thread that changes its groups at once, as itself: no database knows of them.
const GROUPS: &str = r#"
import os, stat
def refused(act):
    try: act()
    except PermissionError: return
    raise SystemExit("it was not refused")
def become(groups):
    os.seteuid(0); os.setegid(0)
    os.setgroups(groups); os.setegid(1234); os.seteuid(1234)
def mode(path): return stat.S_IMODE(os.stat(path).st_mode)
os.chmod(".", 0o777)
with open("shared", "w") as file: file.write("x")
os.chown("shared", 0, 65531); os.chmod("shared", 0o660)
os.mkdir("team"); os.chown("team", 0, 65531); os.chmod("team", 0o2770)
for round in range(2):
    become([])
    mine = f"mine{round}"
    refused(lambda: open("shared"))
    refused(lambda: os.listdir("team"))
    open(mine, "w").close()
    refused(lambda: os.chown(mine, -1, 65531))
    become([65530, 65531])
    assert open("shared", "r+").read() == "x"
    open(f"team/{mine}", "w").close()
    assert mine in os.listdir("team") and os.stat(f"team/{mine}").st_gid == 65531
    os.chown(mine, -1, 65531)
    os.chmod(mine, 0o2775)
    assert mode(mine) == 0o2775, oct(mode(mine))
    os.setxattr("shared", "user.a", b"1") # By the group's right to write.
    become([65530])
    refused(lambda: open("shared"))
    refused(lambda: os.unlink(f"team/{mine}"))
"#;

#[test]
fn a_strangers_fallocate_takes_privilege_away_and_is_not_refused() {
    if !is_root() || !has_program("python3") {
        return crate::support::skip("needs root and python3");
    }
    let mut cluster = Cluster::up(1);
    let Some(mount) = cluster.mount_with(&["--allow-other"]) else { return };
    python(&mount, ALLOCATING, &[]);
}

const ALLOCATING: &str = r#"
import ctypes, os, stat
libc = ctypes.CDLL(None, use_errno=True)
def fallocate(fd, how):
    if libc.fallocate(fd, how, ctypes.c_long(0), ctypes.c_long(8192)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
def mode(path): return oct(stat.S_IMODE(os.stat(path).st_mode))
os.chmod(".", 0o777)
for how in [0, 3, 0x10]: # Allocate, punch, zero.
    for before, after in [(0o6777, "0o777"), (0o4666, "0o666"), (0o777, "0o777")]:
        with open("f", "w") as file: file.write("x" * 10000)
        os.chmod("f", before)
        os.seteuid(1234)
        fd = os.open("f", os.O_RDWR)
        fallocate(fd, how)
        os.close(fd)
        os.seteuid(0)
        assert mode("f") == after, (how, oct(before), mode("f"))
"#;

#[test]
fn a_file_handle_of_one_mount_leads_to_the_file_on_another() {
    if !is_root() || !has_program("python3") {
        return crate::support::skip("needs root and python3");
    }
    let Some((_cluster, one, two)) = two_mounts(1) else { return };
    python(&one, HANDLES, &[&one, &two]);
}

/// The second mount's kernel has never seen what the handles are of.
const HANDLES: &str = r#"
import ctypes, errno, os, sys, time
one, two = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("data", ctypes.c_ubyte * 128)]
def checked(done):
    if done < 0: raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return done
def handle_of(path):
    handle, mount = Handle(128), ctypes.c_int()
    checked(libc.name_to_handle_at(-100, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0))
    return handle
there = os.open(two, os.O_RDONLY)
def opened(handle, flags=os.O_RDONLY): return checked(libc.open_by_handle_at(there, ctypes.byref(handle), flags))
os.makedirs("d/e/f")
with open("d/e/f/file", "w") as file: file.write("content")
os.symlink("nowhere", "d/link")
file, directory, link, root = (handle_of(path) for path in ["d/e/f/file", "d/e/f", "d/link", "."])
f = opened(file, os.O_RDWR)
assert os.pread(f, 100, 0) == b"content"
os.pwrite(f, b"CON", 0); os.close(f)
assert open("d/e/f/file").read() == "CONtent"
f = opened(directory)
assert os.listdir(f) == ["file"]
assert os.readlink(f"/proc/self/fd/{f}") == two + "/d/e/f", os.readlink(f"/proc/self/fd/{f}")
os.close(f)
assert os.path.samestat(os.fstat(opened(root)), os.stat(two))
os.rename("d/e/f/file", "moved")
f = opened(file); assert os.read(f, 100) == b"CONtent"; os.close(f)
os.unlink("moved")
# The last close is heard of after it was made, and until then the file lives.
for gone in [file, Handle(file.bytes, file.type, type(file.data)(*([0x55] * 12)))]:
    for attempt in range(600):
        try: os.close(opened(gone))
        except OSError as error:
            assert error.errno == errno.ESTALE, error
            break
        time.sleep(0.1)
    else: raise SystemExit("a file that is gone was opened")
"#;

#[test]
fn a_time_before_1970_is_kept() {
    let Some((cluster, one, two)) = two_mounts(1) else { return };
    let then = UNIX_EPOCH - Duration::new(315_593_940, 5);
    fs::write(one.join("f"), "x").unwrap();
    open(&one.join("f")).set_times(fs::FileTimes::new().set_modified(then)).unwrap();
    assert_eq!(fs::metadata(one.join("f")).unwrap().modified().unwrap(), then);
    assert_eq!(fs::metadata(two.join("f")).unwrap().modified().unwrap(), then);
    let (from, to) = (cluster.scratch("from"), cluster.scratch("to"));
    cluster.covey(&["cp", "-p", ":/f", from.to_str().unwrap()]);
    assert_eq!(fs::metadata(&from).unwrap().modified().unwrap(), then);
    cluster.covey(&["cp", "-p", from.to_str().unwrap(), ":/g"]);
    cluster.covey(&["cp", "-p", ":/g", to.to_str().unwrap()]);
    assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), then);
}

#[test]
fn a_cut_through_an_open_file_takes_privilege_away_whatever_its_mode_says_by_now() {
    if !is_root() || !has_program("python3") {
        return crate::support::skip("needs root and python3");
    }
    let mut cluster = Cluster::up(1);
    let Some(mount) = cluster.mount_with(&["--allow-other"]) else { return };
    python(&mount, CUT, &[]);
}

/// A user who has opened a program while everybody could write it, root, and what the user may still do.
const CUT: &str = r#"
import os, stat
with open("program", "w") as file: file.write("something")
os.chmod("program", 0o777)
os.seteuid(1234)
file = open("program", "r+")
os.seteuid(0)
os.chmod("program", 0o6755)
os.ftruncate(os.open("program", os.O_RDWR), 8)
now = lambda: os.stat("program")
assert stat.S_IMODE(now().st_mode) == 0o6755, "root may leave it"
os.seteuid(1234)
os.ftruncate(file.fileno(), 4)
assert now().st_size == 4
assert stat.S_IMODE(now().st_mode) == 0o755, oct(now().st_mode)
try: os.truncate("program", 2)
except PermissionError: pass
else: raise SystemExit("a path is no descriptor")
"#;
