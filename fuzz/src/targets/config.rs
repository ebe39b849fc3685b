//! What people write: the configuration, host lists, addresses, sizes.

use covey_cluster::config::{self, Address, hostlist, size};
use std::path::Path;

/// Text is understood or refused with words.
pub fn text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Some((first, rest)) = text.split_at_checked(1) else { return };
    match first.as_bytes()[0] % 4 {
        0 => {
            if let Ok(parsed) = config::parse(rest, Path::new("fuzz.toml")) {
                let again = config::render(&parsed);
                assert!(config::parse(&again, Path::new("fuzz.toml")).is_ok(), "{again}");
            }
        }
        1 => {
            if let Ok(names) = hostlist::expand(rest) {
                assert!(!names.is_empty());
            }
        }
        2 => {
            if let Ok(address) = rest.parse::<Address>() {
                assert_eq!(address.to_string().parse::<Address>(), Ok(address));
            }
        }
        _ => {
            if let Ok(bytes) = size::parse(rest) {
                assert_eq!(size::parse(&size::exact(bytes)), Ok(bytes));
            }
        }
    }
}

/// One text of each kind; the digit in front chooses it.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let config = "0version = 1\n[cluster]\nname = \"c\"\nid = \"00000000000000000000000000000000\"\n\
                  strip = \"64 KiB\"\n[[node]]\nname = \"n1\"\nroles = [\"meta\", \"data\"]\n\
                  listen = [\"unix!/run/n1.sock\"]\nstore = \"/srv/n1\"\n";
    let texts =
        [config, "1node[01-16,20],login", "2tcp!node1!5640", "2unix!/run/a.sock", "364 KiB"];
    texts.iter().map(|text| ("config_text", text.as_bytes().to_vec())).collect()
}
