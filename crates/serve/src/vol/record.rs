//! The list of a node's volumes as a text: what is kept on disk, and what `/vol/ctl` shows. Its lines are commands.

use covey_iscsi::name::is_name;
use covey_ninep::control::{quote, words};
use covey_ninep::tree::{Errno, Result};
use std::collections::BTreeMap;

/// What is kept of a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub backing: Backing,
    /// Where: a path of this machine, or of the file system.
    pub path: String,
    /// What tells it from all others, for initiators.
    pub serial: String,
    pub block_bytes: u32,
    /// The file was there before the volume, and stays when that goes.
    pub adopted: bool,
    pub read_only: bool,
    pub removable: bool,
    /// Whether writes may stay in a cache until they are flushed.
    pub write_cache: bool,
    pub access: Access,
    /// The addresses at which it is served.
    pub exports: Vec<String>,
}

/// What a volume is kept in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backing {
    /// A file of the node.
    File,
    /// A block device of the node.
    Device,
    /// A file of the cluster's file system.
    Striped,
}

/// Who may use a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Names of initiators; anybody's where there is none.
    pub initiators: Vec<String>,
    /// What an initiator proves to know.
    pub chap: Option<(String, String)>,
    /// What the target proves to know.
    pub mutual: Option<(String, String)>,
    /// The owner has said that the names alone are trusted, from beyond this machine too.
    pub trusts_names: bool,
}

/// All volumes of a node, by name.
pub type Records = BTreeMap<String, Record>;

impl Backing {
    fn of(word: &str) -> Option<Backing> {
        match word {
            "file" => Some(Backing::File),
            "device" => Some(Backing::Device),
            "striped" => Some(Backing::Striped),
            _ => None,
        }
    }

    /// As in commands.
    pub fn word(self) -> &'static str {
        match self {
            Backing::File => "file",
            Backing::Device => "device",
            Backing::Striped => "striped",
        }
    }
}

impl Record {
    /// A volume from the words of `create NAME BACKING PATH [OPTION]...`; and the size that they name.
    pub fn of_words(words: &[&str]) -> Result<(String, Record, Option<u64>)> {
        let [name, backing, path, options @ ..] = words else {
            return refuse("create NAME file|device|striped PATH [OPTION]...");
        };
        check_name(name)?;
        let Some(backing) = Backing::of(backing) else {
            return refuse(format!("{backing:?}: a volume is kept in a file, device or striped"));
        };
        check_path(path)?;
        let mut record = Record {
            backing,
            path: (*path).to_owned(),
            serial: String::new(),
            block_bytes: 512,
            adopted: false,
            read_only: false,
            removable: false,
            write_cache: true,
            access: Access::default(),
            exports: Vec::new(),
        };
        let mut size = None;
        let mut options = options.iter();
        while let Some(option) = options.next() {
            let mut value =
                || options.next().copied().ok_or_else(|| wrong(format!("{option} what?")));
            match *option {
                "size" => size = Some(number(value()?)?),
                "block" => record.block_bytes = number(value()?)? as u32,
                "serial" => record.serial = value()?.to_owned(),
                "adopted" => record.adopted = true,
                "read-only" => record.read_only = true,
                "removable" => record.removable = true,
                "write-through" => record.write_cache = false,
                other => {
                    return refuse(format!(
                        "there is no option {other:?}; hint: size, block, read-only, removable, write-through"
                    ));
                }
            }
        }
        if !matches!(record.block_bytes, 512 | 4096) {
            return refuse(format!(
                "blocks of {} bytes: 512 or 4096 are supported",
                record.block_bytes
            ));
        }
        Ok(((*name).to_owned(), record, size))
    }

    /// As commands that would make it; secrets are left out unless they are kept.
    pub fn lines(&self, name: &str, size: Option<u64>, with_secrets: bool) -> String {
        let mut line = format!("create {name} {} {}", self.backing.word(), quote(&self.path));
        if let Some(size) = size {
            line += &format!(" size {size}");
        }
        line += &format!(" block {} serial {}", self.block_bytes, self.serial);
        let flags = [
            (self.adopted, " adopted"),
            (self.read_only, " read-only"),
            (self.removable, " removable"),
            (!self.write_cache, " write-through"),
        ];
        line.extend(flags.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| *word));
        line.push('\n');
        let Access { initiators, chap, mutual, trusts_names } = &self.access;
        for initiator in initiators {
            line += &format!("acl {name} allow {}\n", quote(initiator));
        }
        for (what, pair) in [("chap", chap), ("mutual", mutual)] {
            if let Some((user, secret)) = pair {
                let secret = if with_secrets { quote(secret) } else { "...".into() };
                line += &format!("acl {name} {what} {} {secret}\n", quote(user));
            }
        }
        if *trusts_names {
            line += &format!("acl {name} trust-names\n");
        }
        for address in &self.exports {
            line += &format!("export {name} {}\n", quote(address));
        }
        line
    }
}

impl Access {
    /// Changes it by the words after `acl NAME`.
    pub fn change(&mut self, words: &[&str]) -> Result<()> {
        match words {
            ["allow", initiator] if is_name(initiator) => {
                if !self.initiators.iter().any(|one| one == initiator) {
                    self.initiators.push((*initiator).to_owned());
                }
            }
            ["allow", initiator] => {
                return refuse(format!("{initiator:?} is no iSCSI name: iqn. or eui. or naa."));
            }
            ["deny", initiator] => {
                let before = self.initiators.len();
                self.initiators.retain(|one| !one.eq_ignore_ascii_case(initiator));
                if self.initiators.len() == before {
                    return refuse(format!(
                        "{initiator} is not among the initiators that are let in by name; hint: \
                         `covey volume show NAME` lists them"
                    ));
                }
            }
            ["chap", user, secret] => self.chap = Some(pair(user, secret)?),
            ["mutual", user, secret] => self.mutual = Some(pair(user, secret)?),
            ["no-chap"] => self.chap = None,
            ["no-mutual"] => self.mutual = None,
            ["trust-names"] => self.trusts_names = true,
            ["no-trust-names"] => self.trusts_names = false,
            _ => {
                return refuse(
                    "acl NAME allow IQN | deny IQN | chap USER SECRET | no-chap | mutual USER SECRET | \
                     no-mutual | trust-names | no-trust-names",
                );
            }
        }
        let secret =
            |pair: &Option<(String, String)>| pair.as_ref().map(|(_, secret)| secret.clone());
        if self.mutual.is_some() && secret(&self.chap) == secret(&self.mutual) {
            refuse("both sides cannot have the same secret")
        } else {
            Ok(())
        }
    }

    /// Why it may not be served beyond this machine, if so.
    pub fn refuses_distance(&self) -> Option<&'static str> {
        if self.chap.is_some() || (self.trusts_names && !self.initiators.is_empty()) {
            return None;
        }
        Some(
            "the address is beyond this machine and initiators need not prove who they are; hint: set \
             a secret with `covey volume acl NAME --chap USER`, or name the initiators with --allow IQN and \
             say --trust-initiator-names: anybody on the network may then take such a name",
        )
    }
}

fn pair(user: &str, secret: &str) -> Result<(String, String)> {
    // RFC 7143, 9.2.1: less than 96 bits is no secret where nothing else protects it.
    match secret.len() {
        12..=128 if !user.is_empty() && user.len() <= 255 => {
            Ok((user.to_owned(), secret.to_owned()))
        }
        12..=128 => refuse("the user's name has 1 to 255 bytes"),
        length => refuse(format!("a secret has 12 to 128 bytes, not {length}")),
    }
}

/// A volume's name is part of its target's: small letters, digits, dots and dashes, 1 to 64.
pub fn check_name(name: &str) -> Result<()> {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_good = name.bytes().all(|byte| is_plain(byte) || byte == b'-' || byte == b'.')
        && name.bytes().next().is_some_and(is_plain)
        && name.len() <= 64
        && !["ctl", "."].contains(&name);
    if is_good {
        Ok(())
    } else {
        refuse(format!(
            "{name:?} is no name for a volume; hint: 1 to 64 small letters, digits, dots and dashes, the first a letter or \
         digit"
        ))
    }
}

/// Neither a node nor the cluster's file system has a directory that other paths begin at.
fn check_path(path: &str) -> Result<()> {
    if path.starts_with('/') {
        Ok(())
    } else {
        refuse(format!("{path:?} is no whole path; hint: begin it with a slash"))
    }
}

/// Whether a new volume can be kept there. What is kept already was once, and is not asked again.
pub fn check_place(backing: Backing, path: &str) -> Result<()> {
    use std::os::unix::fs::FileTypeExt;
    check_path(path)?;
    if backing == Backing::Striped {
        return match path.split('/').find(|name| matches!(*name, "." | "..")) {
            Some(name) => refuse(format!(
                "{path}: {name:?} is no name of a file; hint: write the path from the root on"
            )),
            None => Ok(()),
        };
    }
    // What is not there is somebody else's concern.
    let Ok(found) = std::fs::metadata(path) else { return Ok(()) };
    match (backing, found.file_type().is_block_device()) {
        (Backing::File, true) => {
            refuse(format!("{path} is a block device; hint: --device instead of --file"))
        }
        (Backing::Device, false) => {
            refuse(format!("{path} is no block device; hint: --file instead of --device"))
        }
        _ => Ok(()),
    }
}

/// What was kept.
pub fn parse(text: &str) -> Result<Records> {
    let mut records = Records::new();
    for line in text.lines() {
        let line = words(line)?;
        let line: Vec<&str> = line.iter().map(String::as_str).collect();
        match &line[..] {
            [] => {}
            [comment, ..] if comment.starts_with('#') => {}
            ["create", rest @ ..] => {
                let (name, record, _) = Record::of_words(rest)?;
                records.insert(name, record);
            }
            ["acl", name, rest @ ..] => known(&mut records, name)?.access.change(rest)?,
            ["export", name, address] => {
                known(&mut records, name)?.exports.push((*address).to_owned())
            }
            other => return refuse(format!("{other:?} is nothing of a list of volumes")),
        }
    }
    Ok(records)
}

fn known<'a>(records: &'a mut Records, name: &str) -> Result<&'a mut Record> {
    records.get_mut(name).ok_or_else(|| wrong(format!("there is no volume {name:?}")))
}

pub fn number(text: &str) -> Result<u64> {
    text.parse().map_err(|_| wrong(format!("{text:?} is no number")))
}

fn wrong(why: impl Into<String>) -> Errno {
    Errno::because(Errno::EINVAL, why)
}

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(wrong(why))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(text: &str) -> Vec<&str> {
        text.split(' ').collect()
    }

    #[test]
    fn what_is_kept_is_read_back() {
        let words = words_of("disk striped /volumes/disk size 4096 block 4096 adopted removable");
        let (name, mut record, size) = Record::of_words(&words).unwrap();
        assert_eq!((name.as_str(), size), ("disk", Some(4096)));
        record.serial = "abc".into();
        record.exports.push("127.0.0.1:3260".into());
        for change in [
            "allow iqn.2026-01.a:b",
            "chap me secret-secret",
            "mutual you another-secret",
            "trust-names",
        ] {
            record.access.change(&words_of(change)).unwrap();
        }
        let text = record.lines(&name, None, true);
        assert_eq!(parse(&text).unwrap(), Records::from([(name.clone(), record.clone())]));
        assert!(!record.lines(&name, None, false).contains("secret-secret"));
    }

    #[test]
    fn names_that_would_mislead_are_refused() {
        for name in ["", "Disk", "a/b", "..", "-a", "a b", &"a".repeat(65), "ctl"] {
            assert!(check_name(name).is_err(), "{name}");
        }
        check_name("disk-0.a").unwrap();
    }

    #[test]
    fn a_place_that_is_no_such_place_is_told_with_what_to_do() {
        use std::os::unix::fs::FileTypeExt;
        for path in ["/a/../b", "/..", "/./a", "/a/."] {
            let refused = check_place(Backing::Striped, path).unwrap_err();
            assert!(refused.to_string().contains("is no name of a file"), "{refused}");
        }
        check_place(Backing::Striped, "/volumes/..a/b.").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file").display().to_string();
        check_place(Backing::File, &file).unwrap();
        std::fs::write(&file, "").unwrap();
        check_place(Backing::File, &file).unwrap();
        let refused = check_place(Backing::Device, &file).unwrap_err();
        assert!(refused.to_string().contains("--file"), "{refused}");
        for backing in [Backing::File, Backing::Device, Backing::Striped] {
            let refused = check_place(backing, "volumes/copy").unwrap_err();
            assert!(refused.to_string().contains("begin it with a slash"), "{refused}");
        }
        let mut devices = std::fs::read_dir("/dev").unwrap().filter_map(|entry| entry.ok());
        let is_block = |kind: std::fs::FileType| kind.is_block_device();
        let device = devices.find(|entry| entry.file_type().is_ok_and(is_block));
        let Some(device) = device else { return covey_harness::skip("there is no block device") };
        let device = device.path().display().to_string();
        check_place(Backing::Device, &device).unwrap();
        let refused = check_place(Backing::File, &device).unwrap_err();
        assert!(refused.to_string().contains("--device"), "{refused}");
    }

    #[test]
    fn without_a_proof_a_volume_stays_on_its_machine() {
        let mut access = Access::default();
        assert!(access.refuses_distance().is_some());
        access.change(&["allow", "iqn.2026-01.a:b"]).unwrap();
        assert!(access.refuses_distance().is_some());
        access.change(&["trust-names"]).unwrap();
        assert!(access.refuses_distance().is_none());
        // Initiators are let in whatever the case of their names.
        access.change(&["deny", "iqn.2026-01.A:b"]).unwrap();
        assert!(access.refuses_distance().is_some());
        let refused = access.change(&["deny", "iqn.2026-01.a:b"]).unwrap_err();
        assert!(refused.to_string().contains("is not among the initiators"), "{refused}");
        access.change(&["chap", "me", "secret-secret"]).unwrap();
        assert!(access.refuses_distance().is_none());
        assert!(access.change(&["mutual", "you", "secret-secret"]).is_err());
        assert!(Access::default().change(&["chap", "me", "short"]).is_err());
    }
}
