//! What other users of the machine might do before a job starts: take its names, lead them elsewhere, or put something of
//! theirs in the place of a directory later.

use crate::cmd::names::{Kind, Names};
use crate::error::{Cannot, Error, Result};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Another user who may rename a directory on the way can put another in its place.
pub fn check_parent(parent: &Path) -> Result<()> {
    parent.ancestors().try_for_each(check_above)
}

fn check_above(above: &Path) -> Result<()> {
    let meta = fs::metadata(above).cannot(|| format!("look at {}", above.display()))?;
    let own = rustix::process::geteuid().as_raw();
    let is_shared = meta.mode() & 0o022 != 0 && meta.mode() & 0o1000 == 0;
    let why = match () {
        () if is_shared => "other users may rename what lies there".to_string(),
        () if meta.uid() != 0 && meta.uid() != own => {
            format!("it belongs to {}", user(meta.uid()))
        }
        () => return Ok(()),
    };
    Err(Error::work(format!("cannot keep a job's directory below {}: {why}", above.display()))
        .hint("--dir names one of root or your own that others may not write, or a sticky one"))
}

/// Refuses a place for a mount that another user has made, has led elsewhere, or may put another in the place of: programs
/// would write to him.
pub fn check_mountpoint(typed: &Path, place: &Path) -> Result<()> {
    let is_other = |uid: u32| uid != 0 && uid != own_uid();
    let refused = |what: &Path, why: String| {
        Err(Error::user(format!("cannot mount at {}: {} {why}", place.display(), what.display()))
            .hint("--mount names a directory of yours, or one in a directory that is yours"))
    };
    let typed = std::path::absolute(typed).unwrap_or_else(|_| typed.to_owned());
    for name in typed.ancestors() {
        match fs::symlink_metadata(name) {
            Ok(meta) if meta.is_symlink() && is_other(meta.uid()) => {
                return refused(name, format!("is a link that {} made", user(meta.uid())));
            }
            _ => {}
        }
    }
    if let Ok(meta) = fs::symlink_metadata(place)
        && is_other(meta.uid())
    {
        return refused(place, format!("belongs to {}", user(meta.uid())));
    }
    for above in place.ancestors().skip(1) {
        let Ok(meta) = fs::metadata(above) else { continue };
        if meta.mode() & 0o1002 == 0o002 {
            return refused(
                above,
                "may be written by everybody, who may rename what lies there".into(),
            );
        }
    }
    Ok(())
}

/// A user as messages name him.
pub fn user(uid: u32) -> String {
    let name = Names::local(Kind::User).name(uid);
    if name == uid.to_string() { format!("uid {uid}") } else { format!("user {name} (uid {uid})") }
}

/// The user whose files this process makes.
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_not_made_where_another_user_chose_the_place() {
        let above = tempfile::tempdir().unwrap();
        let (mine, his) = (above.path().join("mine"), above.path().join("his"));
        check_mountpoint(&mine, &mine).unwrap();
        fs::create_dir(&mine).unwrap();
        check_mountpoint(&mine, &mine).unwrap();
        fs::set_permissions(above.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        let refused = check_mountpoint(&mine, &mine).unwrap_err();
        assert!(refused.message.contains("may be written by everybody"), "{refused}");
        fs::set_permissions(above.path(), std::os::unix::fs::PermissionsExt::from_mode(0o1777))
            .unwrap();
        check_mountpoint(&mine, &mine).unwrap();
        if own_uid() == 0 {
            fs::create_dir(&his).unwrap();
            std::os::unix::fs::chown(&his, Some(65_534), None).unwrap();
            let refused = check_mountpoint(&his, &his).unwrap_err();
            assert!(
                refused.message.contains("(uid 65534)") || refused.message.contains("uid 65534")
            );
            let link = above.path().join("link");
            std::os::unix::fs::symlink(&mine, &link).unwrap();
            check_mountpoint(&link, &mine).unwrap();
            std::os::unix::fs::lchown(&link, Some(65_534), None).unwrap();
            let refused = check_mountpoint(&link, &mine).unwrap_err();
            assert!(refused.message.contains("is a link that"), "{refused}");
        }
    }
}
