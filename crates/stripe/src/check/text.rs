//! Findings in words.

use super::{Path, Told};
use crate::ops::check::{Class, Finding};

/// One line about a finding, without its class. `servers` are the I/O servers by index.
pub fn describe(told: &Told, servers: &[String]) -> String {
    let Finding { id, parent, name, found, wanted, .. } = &told.finding;
    let server = || servers.get(usize::from(*parent as u16)).map_or("?", String::as_str);
    let key = || name.as_bytes().escape_ascii().to_string();
    match told.class {
        Class::DamagedRow => format!("row {} cannot be read", key()),
        Class::UnknownRow => format!("row {} belongs to no known table", key()),
        Class::StrayPart => format!("row {} belongs to a file that does not exist", key()),
        Class::DanglingName => {
            format!("{name:?} in directory {parent} leads to file {id}, which does not exist")
        }
        Class::Unlisted => format!("{name:?} in directory {parent} is not in its listing"),
        Class::StrayListing => {
            format!("directory {parent} lists file {id} under a name that it does not have")
        }
        Class::WrongKind => {
            format!("{name:?} in directory {parent} has another type than file {id}")
        }
        Class::LostDirectory => {
            format!("{name:?} (file {id}) is in {parent}, which is no directory")
        }
        Class::WrongParent => format!(
            "directory {id} is {name:?} in directory {parent}, but says that it is elsewhere"
        ),
        Class::WrongLinks => format!("file {id} counts {found} links, there are {wanted}"),
        Class::Unreachable => format!("no name leads to file {id}"),
        Class::Detached => format!("directory {id} is below itself"),
        Class::WrongEntries => {
            format!("directory {id} has size {found}, its entries make {wanted}")
        }
        Class::WrongCookie => {
            format!("directory {parent} would give the place of {name:?} in its listing again")
        }
        Class::WrongTotals => {
            format!("the totals are off by {} files and {} bytes", *found as i64, *wanted as i64)
        }
        Class::WrongQuota => {
            let whose = ["user", "group"].get(*parent as usize).unwrap_or(&"project directory");
            format!(
                "{whose} {id} counts {found} bytes, its files have {wanted}, or it counts other files"
            )
        }
        Class::WrongNumber => format!("the next file would be {found}, but file {id} exists"),
        Class::Forgotten => format!("file {id} has no names, and nobody waits to remove it"),
        Class::WrongOrphan => {
            format!("file {id} waits to be removed, but has names or does not exist")
        }
        Class::StaleCut => {
            format!("a truncation of file {id} to epoch {found} is pending that cannot be")
        }
        Class::WrongReclaim => {
            format!("objects of file {id} up to epoch {found} are to be removed, but it uses them")
        }
        Class::StaleAppend => format!("appends to file {id} are under way that cannot be"),
        Class::BadStriping => format!(
            "file {id} has no layout that this cluster can follow: its bytes cannot be found"
        ),
        Class::WrongTail => {
            format!("the next append to file {id} would go to {found}, its size is {wanted}")
        }
        Class::OrphanObject => {
            format!("{} has an object of file {id}, which does not exist", server())
        }
        Class::StrayObject => {
            format!("{} has an object of file {id}, whose layout does not name it", server())
        }
        Class::OldObject => format!(
            "the object of file {id} on {} is at epoch {found}, should be at {wanted}",
            server()
        ),
        Class::AheadObject => format!(
            "the object of file {id} on {} is at epoch {found}, the file only at {wanted}",
            server()
        ),
        Class::LongObject => format!(
            "the object of file {id} on {} has {found} bytes, {wanted} belong to the file: a write has failed",
            server()
        ),
        Class::ShortObject => format!(
            "{}: the object of file {id} on {} has {found} bytes, should have {wanted}: what lacks reads as zeros",
            paths_in_words(&told.paths),
            server()
        ),
        Class::LostObject => format!(
            "{}: up to {wanted} bytes were lost with the disk of {}: reading them fails",
            paths_in_words(&told.paths),
            server()
        ),
    }
}

/// A file's paths for people, quoted.
pub fn paths_in_words(paths: &[Path]) -> String {
    let quoted = |path: &Path| format!("{:?}", String::from_utf8_lossy(path));
    match paths {
        [] => "a file without a name".to_owned(),
        paths => paths.iter().map(quoted).collect::<Vec<_>>().join(" and "),
    }
}
