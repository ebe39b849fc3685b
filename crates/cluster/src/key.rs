//! The cluster key: who may read it is a node of the cluster.

use crate::config::Config;
use crate::error::Error;
use anyhow::{Context, bail};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The cluster key, when the configuration names one.
pub fn read(config: &Config) -> anyhow::Result<Option<[u8; 32]>> {
    let Some(file) = &config.key_file else { return Ok(None) };
    check_key_is_private(file)?;
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(
            parse_key(&text)
                .with_context(|| format!("cannot use the key in {}", file.display()))?,
        )),
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
        .hint("copy it from another node, or make the first with `covey keygen`")
        .into()),
    }
}

/// Whoever reads the key is a node of the cluster, and may act for everyone.
fn check_key_is_private(file: &Path) -> anyhow::Result<()> {
    const OTHERS: u32 = 0o007;
    match std::fs::metadata(file) {
        Ok(meta) if meta.permissions().mode() & OTHERS != 0 => {
            let file = file.display();
            let text = format!("cannot use the key {file}: every user may read or change it");
            Err(Error::config(text).hint(format!("chmod 600 {file}")).into())
        }
        _ => Ok(()),
    }
}

fn parse_key(text: &str) -> anyhow::Result<[u8; 32]> {
    let text = text.trim();
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        bail!("it is {} characters, a key is 64 hexadecimal digits", text.len());
    }
    let mut key = [0; 32];
    for (at, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16)?;
    }
    Ok(key)
}
