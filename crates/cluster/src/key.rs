//! The cluster key: who may read it is a node of the cluster.

use crate::config::Config;
use crate::error::{Error, Result};
use covey_ninep::auth::KeyRing;
use covey_ninep::tree::Errno;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The cluster key, when the configuration names one.
pub fn read(config: &Config) -> Result<Option<[u8; 32]>> {
    let Some(file) = &config.key_file else { return Ok(None) };
    match read_file(file) {
        Ok(key) => key.map(Some),
        // Users of this machine go through its sockets and need no key.
        Err(error)
            if !config.needs_key() || error.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            Ok(None)
        }
        Err(error) => Err(Error::config(format!(
            "cannot read the key {}: {}",
            file.display(),
            crate::error::reason(&error)
        ))
        .hint("copy it from another node, or make the first with `covey keygen`")),
    }
}

/// Where the key that comes next, or the one before, lies beside the cluster's: servers take both.
pub fn beside(key_file: &Path) -> PathBuf {
    let mut name = key_file.as_os_str().to_owned();
    name.push(".next");
    name.into()
}

/// The key beside the cluster's, where there is one that may be read.
pub fn read_beside(config: &Config) -> Result<Option<[u8; 32]>> {
    let Some(file) = config.key_file.as_deref().map(beside) else { return Ok(None) };
    match read_file(&file) {
        Ok(key) => key.map(Some),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let why = crate::error::reason(&error);
            Err(Error::config(format!("cannot read the key {}: {why}", file.display())))
        }
    }
}

/// The key in a file: whether there is one that may be read, and whether it is good for anything.
fn read_file(file: &Path) -> std::io::Result<Result<[u8; 32]>> {
    if let Err(error) = check_key_is_private(file) {
        return Ok(Err(error));
    }
    let text = std::fs::read_to_string(file)?;
    Ok(parse_key(&text)
        .map_err(|why| Error::config(format!("cannot use the key in {}: {why}", file.display()))))
}

/// The cluster's key and the one beside it, as their files are by now: a new one is taken without a start.
#[derive(Debug)]
pub struct KeyFiles {
    config: Option<Arc<Config>>,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    keys: KeyRing,
    files: Option<[Stamp; 2]>,
    looked: Option<Instant>,
    /// That a file cannot be used has been said.
    has_told: bool,
}

/// Tells one state of a file from another: its device, its inode, when that was changed last and its length; none where it
/// cannot be looked at. What makes a file usable, such as its mode, changes the inode only.
type Stamp = Option<(u64, u64, (i64, i64), u64)>;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How often they are read anew when they change meanwhile.
const TRIES: usize = 4;

impl KeyFiles {
    /// Of a process that has just read its own key. None for one without.
    pub fn of(config: &Arc<Config>, key: Option<[u8; 32]>) -> Option<Arc<KeyFiles>> {
        let seen = Seen { keys: key?.into(), files: None, looked: None, has_told: false };
        Some(Arc::new(KeyFiles { config: Some(config.clone()), seen: Mutex::new(seen) }))
    }

    /// A key that stays.
    pub fn fixed(key: [u8; 32]) -> Arc<KeyFiles> {
        let seen = Seen { keys: key.into(), files: None, looked: None, has_told: false };
        Arc::new(KeyFiles { config: None, seen: Mutex::new(seen) })
    }

    /// The keys as they are now, or were half a second ago. Files that cannot be used leave them as they were.
    pub fn now(&self) -> KeyRing {
        let seen = self.lock();
        if seen.looked.is_some_and(|looked| looked.elapsed() < LOOK_EVERY) {
            return seen.keys;
        }
        drop(seen);
        self.looked_at()
    }

    /// The same, looked at now.
    pub fn looked_at(&self) -> KeyRing {
        let mut seen = self.lock();
        if let Some(config) = &self.config {
            seen.look(config);
            seen.looked = Some(Instant::now());
        }
        seen.keys
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Seen {
    fn look(&mut self, config: &Config) {
        // Two files are not exchanged and read in one step: what was read counts if nothing has changed meanwhile.
        for _ in 0..TRIES {
            let files = stamps(config);
            if self.files == Some(files) {
                return;
            }
            let (own, beside) = (read(config), read_beside(config));
            if stamps(config) == files {
                // What could not be read is read again, whatever kept it from that; it is told of once.
                let is_read = own.is_ok() && beside.is_ok();
                self.take(own, beside);
                self.files = is_read.then_some(files);
                return;
            }
        }
    }

    fn take(&mut self, own: Result<Option<[u8; 32]>>, beside: Result<Option<[u8; 32]>>) {
        let has_told = std::mem::replace(&mut self.has_told, own.is_err() || beside.is_err());
        let told = |error: Error| {
            if !has_told {
                tracing::error!("{}; the key that was read before is kept", error.message);
            }
            None
        };
        let now = own.unwrap_or_else(told).unwrap_or(self.keys.now);
        let other = match beside {
            Ok(other) => other.filter(|other| *other != now),
            Err(error) => told(error).or(self.keys.other),
        };
        let keys = KeyRing { now, other };
        if self.looked.is_some() && keys != self.keys {
            let count = keys.keys().count();
            tracing::warn!("the files of the cluster key have changed: {count} of them taken");
        }
        self.keys = keys;
    }
}

fn stamps(config: &Config) -> [Stamp; 2] {
    let stamp = |file: &Path| {
        let meta = std::fs::metadata(file).ok()?;
        Some((meta.dev(), meta.ino(), (meta.ctime(), meta.ctime_nsec()), meta.len()))
    };
    let own = config.key_file.as_deref();
    [own.and_then(stamp), own.map(beside).and_then(|file| stamp(&file))]
}

/// The keys of a client that runs for long: those that the files hold by now, so that one that was retired opens nothing.
pub struct Keys {
    config: Arc<Config>,
    known: Mutex<Known>,
}

struct Known {
    /// None as long as there is no key that this user may read.
    files: Option<Arc<KeyFiles>>,
    has_complained: bool,
}

impl Keys {
    /// With the key that was read at the start.
    pub fn new(config: &Arc<Config>, key: Option<[u8; 32]>) -> Keys {
        let files = KeyFiles::of(config, key);
        let known = Mutex::new(Known { files, has_complained: false });
        Keys { config: config.clone(), known }
    }

    /// The key to try first.
    pub fn now(&self) -> Option<[u8; 32]> {
        let files = self.lock().files.clone()?;
        Some(files.now().now)
    }

    /// What else may be right where `tried` was refused: the key that lies beside the cluster's, or both where they
    /// have just been changed.
    pub fn others(&self, tried: Option<[u8; 32]>) -> Vec<[u8; 32]> {
        let files = self.lock().files.clone();
        let mut others: Vec<_> = match files {
            Some(files) => files.looked_at().keys().copied().collect(),
            None => read(&self.config).ok().flatten().into_iter().collect(),
        };
        others.retain(|other| Some(*other) != tried);
        others
    }

    /// A server has taken the key that was tried first.
    pub fn was_right(&self) {
        self.lock().has_complained = false;
    }

    /// A server has taken this key, and not the one before.
    pub fn took(&self, key: [u8; 32]) {
        let mut known = self.lock();
        if known.files.is_none() {
            known.files = KeyFiles::of(&self.config, Some(key));
        }
        known.has_complained = false;
    }

    /// Says once in the log why a server does not let us in, until one does.
    pub fn complain(&self, server: &str, why: &Errno) {
        if std::mem::replace(&mut self.lock().has_complained, true) {
            return;
        }
        let why = if why.reason.is_empty() { why.text() } else { &why.reason };
        match &self.config.key_file {
            Some(file) => tracing::error!(
                "server {server} refuses us: {why}; hint: {} is read again at each attempt: copy the \
                 cluster's key there",
                file.display()
            ),
            None => tracing::error!("server {server} refuses us: {why}"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever reads the key is a node of the cluster, and may act for everyone.
fn check_key_is_private(file: &Path) -> Result<()> {
    const OTHERS: u32 = 0o007;
    match std::fs::metadata(file) {
        Ok(meta) if meta.permissions().mode() & OTHERS != 0 => {
            let file = file.display();
            let text = format!("cannot use the key {file}: every user may read or change it");
            Err(Error::config(text).hint(format!("chmod 600 {file}")))
        }
        _ => Ok(()),
    }
}

fn parse_key(text: &str) -> std::result::Result<[u8; 32], String> {
    let text = text.trim();
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(format!("it is {} characters, a key is 64 hexadecimal digits", text.len()));
    }
    let mut key = [0; 32];
    for (at, byte) in key.iter_mut().enumerate() {
        let digits = &text[2 * at..2 * at + 2];
        *byte = u8::from_str_radix(digits, 16).map_err(|error| error.to_string())?;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::OpenOptionsExt;

    fn config(file: &Path) -> Config {
        let text = format!(
            "version = 1\n[cluster]\nname = \"t\"\nid = \"{}\"\nkey_file = \"{}\"\n[[node]]\nname = \"a\"\n\
             roles = [\"meta\", \"data\"]\nlisten = [\"tcp!10.0.0.1!5640\"]\nstore = \"/s\"\n",
            "0".repeat(32),
            file.display()
        );
        crate::config::parse(&text, Path::new("covey.toml")).expect("a configuration")
    }

    fn write(file: &Path, byte: u8) {
        let _ = std::fs::remove_file(file);
        let mut open = std::fs::File::options();
        let mut open = open.write(true).create_new(true).mode(0o600).open(file).unwrap();
        std::io::Write::write_all(&mut open, format!("{byte:02x}").repeat(32).as_bytes()).unwrap();
    }

    #[test]
    fn a_server_takes_the_key_beside_the_cluster_s_as_long_as_both_can_be_used() {
        let dir = std::env::temp_dir().join(format!("covey-server-keys-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("key");
        let config = Arc::new(config(&file));
        write(&file, 1);
        let keys = KeyFiles::of(&config, Some([1; 32])).unwrap();
        // As if the files had not been looked at for long.
        let now = || {
            keys.seen.lock().unwrap().looked = None;
            let KeyRing { now, other } = keys.now();
            (now[0], other.map(|other| other[0]))
        };
        assert_eq!(now(), (1, None));
        write(&beside(&file), 2);
        assert_eq!(keys.now().other, None, "it is not looked at all the time");
        assert_eq!(now(), (1, Some(2)));
        let swapped = dir.join("swapped");
        std::fs::rename(&file, &swapped).unwrap();
        assert_eq!(now(), (1, Some(2)), "a key that is missing for a moment is kept");
        std::fs::rename(beside(&file), &file).unwrap();
        std::fs::rename(&swapped, beside(&file)).unwrap();
        assert_eq!(now(), (2, Some(1)));
        std::fs::write(beside(&file), "half of a k").unwrap();
        assert_eq!(now(), (2, Some(1)), "what is no key is not taken for one");
        // Nor is one that others may read, until they may not.
        write(&beside(&file), 4);
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(beside(&file), mode(0o644)).unwrap();
        assert_eq!(now(), (2, Some(1)));
        std::fs::set_permissions(beside(&file), mode(0o600)).unwrap();
        assert_eq!(now(), (2, Some(4)));
        std::fs::remove_file(beside(&file)).unwrap();
        assert_eq!(now(), (2, None));
        write(&beside(&file), 2);
        assert_eq!(now(), (2, None), "the same key twice is one");
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_key_that_was_refused_is_read_again_and_the_one_before_is_forgotten() {
        let dir = std::env::temp_dir().join(format!("covey-keys-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("key");
        let config = config(&file);
        write(&file, 1);
        let keys = Keys::new(&Arc::new(config.clone()), Some([1; 32]));
        assert_eq!(keys.others(keys.now()), [[0; 32]; 0], "nothing else is known");
        write(&file, 2);
        assert_eq!(keys.now(), Some([1; 32]), "it is not looked at all the time");
        assert_eq!(keys.others(keys.now()), [[2; 32]]);
        assert_eq!(keys.now(), Some([2; 32]));
        // One that is to replace it, or was replaced by it, is tried as well: until it is retired.
        write(&beside(&file), 3);
        assert_eq!(keys.others(keys.now()), [[3; 32]]);
        std::fs::remove_file(beside(&file)).unwrap();
        assert_eq!(keys.others(keys.now()), [[0; 32]; 0]);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
