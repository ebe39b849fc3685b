//! Attributes between a tree and the records of 9P2000 and .u.

use crate::message::{Dialect, Extension, NONUNAME, Number, Qid, Stat, dm};
use crate::tree::{
    Attr, Errno, Result, S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFSOCK, SetAttr,
    SetTime, Time, Tree,
};
use covey_wire::Name;

/// The permissions of a mode, in both worlds.
pub(super) const PERMISSIONS: u32 = 0o777;
/// The bits that .u has for more, and Linux's.
const SPECIAL: [(u32, u32); 3] = [(dm::SETUID, 0o4000), (dm::SETGID, 0o2000), (dm::SETVTX, 0o1000)];
/// The bits that .u has for kinds of files, and Linux's.
const KINDS: [(u32, u32); 6] = [
    (dm::SYMLINK, S_IFLNK),
    (dm::DEVICE, S_IFCHR),
    (dm::DEVICE, S_IFBLK),
    (dm::NAMEDPIPE, S_IFIFO),
    (dm::SOCKET, S_IFSOCK),
    (dm::DIR, S_IFDIR),
];

/// A qid as the dialect has it.
pub(super) fn shown(dialect: Dialect, qid: Qid) -> Qid {
    match dialect {
        Dialect::Plan9 => Qid { kind: qid.kind & !Qid::SYMLINK, ..qid },
        _ => qid,
    }
}

/// The record of a file with this name. `target` is a symbolic link's.
pub(super) fn stat<T: Tree>(
    tree: &T,
    dialect: Dialect,
    name: Name,
    attr: &Attr,
    target: Option<Name>,
) -> Stat {
    // The dialect has no times before 1970, and takes the last number for none.
    let seconds = |time: Time| time.sec.cast_signed().clamp(0, i64::from(u32::MAX - 1)) as u32;
    let is_dir = attr.mode & S_IFMT == S_IFDIR;
    Stat {
        kind: 0,
        dev: 0,
        qid: shown(dialect, attr.qid),
        mode: mode_of(dialect, attr.mode),
        atime: seconds(attr.atime),
        mtime: seconds(attr.mtime),
        length: if is_dir { 0 } else { attr.size },
        name,
        uid: tree.user_name(attr.uid),
        gid: tree.group_name(attr.gid),
        muid: Name::EMPTY,
        extension: Extension(target.unwrap_or_else(|| device(attr))),
        n_uid: Number(attr.uid),
        n_gid: Number(attr.gid),
        n_muid: Number(NONUNAME),
    }
}

/// Linux's mode in the dialect's bits.
fn mode_of(dialect: Dialect, mode: u32) -> u32 {
    let has_more = dialect == Dialect::Unix;
    let kind =
        KINDS.iter().filter(|(bit, kind)| mode & S_IFMT == *kind && (has_more || *bit == dm::DIR));
    let special = SPECIAL.iter().filter(|(_, linux)| has_more && mode & linux != 0);
    kind.chain(special).fold(mode & PERMISSIONS, |bits, (bit, _)| bits | bit)
}

/// The permissions that a mode of the dialect stands for.
pub(super) fn permissions(mode: u32) -> u32 {
    let special = SPECIAL.iter().filter(|(bit, _)| mode & bit != 0);
    special.fold(mode & PERMISSIONS, |bits, (_, linux)| bits | linux)
}

/// Refuses bits that cannot be kept: a file that is not append-only in truth would lose data.
pub(super) fn check_mode(dialect: Dialect, mode: u32) -> Result<()> {
    const UNIX: u32 = dm::SYMLINK
        | dm::LINK
        | dm::DEVICE
        | dm::NAMEDPIPE
        | dm::SOCKET
        | dm::SETUID
        | dm::SETGID
        | dm::SETVTX;
    if mode & (dm::APPEND | dm::EXCL) != 0 {
        let what = "append-only and exclusive-use files are not kept here";
        return Err(Errno::because(Errno::EOPNOTSUPP, what));
    }
    let known = PERMISSIONS | dm::DIR | dm::TMP | if dialect == Dialect::Unix { UNIX } else { 0 };
    if mode & !known != 0 {
        return Err(Errno::because(Errno::EINVAL, format!("mode is {mode:#x}")));
    }
    Ok(())
}

/// The numbers of a device, as the extension has them.
fn device(attr: &Attr) -> Name {
    let kind = match attr.mode & S_IFMT {
        S_IFCHR => "c",
        S_IFBLK => "b",
        _ => return Name::EMPTY,
    };
    // As makedev(3) packs them.
    let (major, minor) = (
        (attr.rdev >> 8) & 0xfff | (attr.rdev >> 32) & !0xfff,
        attr.rdev & 0xff | (attr.rdev >> 12) & !0xff,
    );
    Name::from(format!("{kind} {major} {minor}"))
}

/// What a Twstat asks to change beside the name. What is all ones or empty is not touched; what can never
/// change must be as it is.
pub(super) fn changes<T: Tree>(
    tree: &T,
    dialect: Dialect,
    asked: &Stat,
    attr: &Attr,
) -> Result<SetAttr> {
    let fixed = |what: &str, is_untouched: bool| {
        if is_untouched {
            Ok(())
        } else {
            Err(Errno::because(Errno::EPERM, format!("{what} cannot be changed")))
        }
    };
    fixed("type", matches!(asked.kind, 0 | u16::MAX))?;
    fixed("dev", matches!(asked.dev, 0 | u32::MAX))?;
    fixed("qid", asked.qid.path == u64::MAX || asked.qid.path == attr.qid.path)?;
    fixed("extension", asked.extension.0.is_empty())?;
    let is_dir = attr.mode & S_IFMT == S_IFDIR;
    let time =
        |sec: u32| (sec != u32::MAX).then_some(SetTime::To(Time { sec: u64::from(sec), nsec: 0 }));
    let owner = |asked: &Name, number: Number, now: u32, name: Name| match number {
        Number(NONUNAME) if asked.is_empty() || *asked == name => Ok(None),
        Number(NONUNAME) => match asked.lossy().parse::<u32>() {
            Ok(number) => Ok(Some(number).filter(|number| *number != now)),
            Err(_) => Err(Errno::because(Errno::EINVAL, format!("there is no {asked} here"))),
        },
        Number(number) => Ok(Some(number)),
    };
    let uid = owner(&asked.uid, asked.n_uid, attr.uid, tree.user_name(attr.uid))?;
    fixed("owner", uid.is_none() || dialect == Dialect::Unix)?;
    Ok(SetAttr {
        mode: mode_from(dialect, asked.mode, attr)?,
        uid,
        gid: owner(&asked.gid, asked.n_gid, attr.gid, tree.group_name(attr.gid))?,
        size: size_from(asked.length, is_dir)?,
        atime: time(asked.atime),
        mtime: time(asked.mtime),
    })
}

fn mode_from(dialect: Dialect, mode: u32, attr: &Attr) -> Result<Option<u32>> {
    if mode == u32::MAX {
        return Ok(None);
    }
    check_mode(dialect, mode)?;
    let is_dir = attr.mode & S_IFMT == S_IFDIR;
    if (mode & dm::DIR != 0) != is_dir {
        return Err(Errno::because(Errno::EPERM, "a file's kind cannot be changed"));
    }
    // 9P2000 does not know the other bits, so it leaves them.
    let kept = if dialect == Dialect::Plan9 { attr.mode & 0o7000 } else { 0 };
    Ok(Some(permissions(mode) | kept))
}

fn size_from(length: u64, is_dir: bool) -> Result<Option<u64>> {
    match (length, is_dir) {
        (u64::MAX, _) | (0, true) => Ok(None),
        (_, true) => Err(Errno::because(Errno::EISDIR, "a directory has no length")),
        (length, false) => Ok(Some(length)),
    }
}
