//! The cluster key: who may read it is a node of the cluster.

use crate::config::Config;
use crate::error::{Error, Result};
use covey_ninep::tree::Errno;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The cluster key, when the configuration names one.
pub fn read(config: &Config) -> Result<Option<[u8; 32]>> {
    let Some(file) = &config.key_file else { return Ok(None) };
    check_key_is_private(file)?;
    match std::fs::read_to_string(file) {
        Ok(text) => parse_key(&text).map(Some).map_err(|why| {
            Error::config(format!("cannot use the key in {}: {why}", file.display()))
        }),
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

/// The keys of a client that runs for long: the one that servers took last, and where others may be. A
/// cluster whose key is changed has servers with either one until all have started anew.
pub struct Keys(Mutex<Known>);

struct Known {
    now: Option<[u8; 32]>,
    /// The one before.
    old: Option<[u8; 32]>,
    has_complained: bool,
}

impl Keys {
    /// With the key that was read at the start.
    pub fn new(key: Option<[u8; 32]>) -> Keys {
        Keys(Mutex::new(Known { now: key, old: None, has_complained: false }))
    }

    /// The key to try first.
    pub fn now(&self) -> Option<[u8; 32]> {
        self.lock().now
    }

    /// What else may be right where `tried` was refused: what the key's file holds by now, and the key
    /// before.
    pub fn others(&self, config: &Config, tried: Option<[u8; 32]>) -> Vec<[u8; 32]> {
        let mut others: Vec<_> = read(config).ok().flatten().into_iter().collect();
        others.extend(self.lock().old.filter(|old| !others.contains(old)));
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
        if known.now != Some(key) {
            known.old = known.now.replace(key);
            tracing::warn!("the cluster key has changed: the new one is used from now on");
        }
        known.has_complained = false;
    }

    /// Says once in the log why a server does not let us in, until one does.
    pub fn complain(&self, server: &str, config: &Config, why: &Errno) {
        if std::mem::replace(&mut self.lock().has_complained, true) {
            return;
        }
        let why = if why.reason.is_empty() { why.text() } else { &why.reason };
        match &config.key_file {
            Some(file) => tracing::error!(
                "server {server} refuses us: {why}; hint: {} is read again at each attempt: copy the \
                 cluster's key there",
                file.display()
            ),
            None => tracing::error!("server {server} refuses us: {why}"),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    #[test]
    fn a_key_that_was_refused_is_read_again_and_the_one_before_is_kept() {
        let dir = std::env::temp_dir().join(format!("covey-keys-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let file = dir.join("key");
        let write = |byte: u8| {
            let _ = std::fs::remove_file(&file);
            let mut open = std::fs::File::options();
            let mut open = open.write(true).create_new(true).mode(0o600).open(&file).unwrap();
            std::io::Write::write_all(&mut open, format!("{byte:02x}").repeat(32).as_bytes())
                .unwrap();
        };
        let config = config(&file);
        write(1);
        let keys = Keys::new(Some([1; 32]));
        assert_eq!(keys.others(&config, keys.now()), [[0; 32]; 0], "nothing else is known");
        write(2);
        assert_eq!(keys.others(&config, keys.now()), [[2; 32]]);
        keys.took([2; 32]);
        assert_eq!(keys.now(), Some([2; 32]));
        // A server that has not started anew wants the old one.
        assert_eq!(keys.others(&config, keys.now()), [[1; 32]]);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
