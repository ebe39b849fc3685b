//! iSCSI names (RFC 7143, section 4.2.7; RFC 3722).

/// Whether this is the name of an initiator or a target.
///
/// Names go into texts that are read by line and word, and to terminals: nothing that ends a line or a word is part of one.
pub fn is_name(name: &str) -> bool {
    //= rfc7143#4.2.7.1
    // An iSCSI name MUST NOT be longer than 223 bytes.
    let is_short = name.len() <= BYTES_MAX;
    //= rfc7143#4.2.7.2
    // Letters and digits, as RFC 3722 prepares them, dash, dot and colon; no space, no other punctuation. The underscore
    // stands in names that are in use.
    let is_plain = |c: char| c.is_alphanumeric() || "-.:_".contains(c);
    is_short && is_typed(name) && name.chars().all(is_plain)
}

/// Whether it begins with one of the types of names that there are.
fn is_typed(name: &str) -> bool {
    let kind = name.split_once('.').map(|(kind, _)| kind);
    kind.is_some_and(|kind| TYPES.iter().any(|known| known.eq_ignore_ascii_case(kind)))
}

const BYTES_MAX: usize = 223;
const TYPES: [&str; 3] = ["iqn", "eui", "naa"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_type_and_nothing_that_ends_a_word() {
        let longest = format!("iqn.{}", "a".repeat(219));
        for name in [
            "iqn.1993-08.org.debian:01:abc_d",
            "IQN.2001-04.com.example:Disk",
            "eui.02004567A425678D",
            "naa.52004567BA64678D",
            "iqn.2001-04.de.müller:platte",
            &longest,
        ] {
            assert!(is_name(name), "{name}");
        }
        let too_long = longest.clone() + "a";
        for name in [
            "",
            "me",
            "iqn",
            "disk.a",
            "iqn.x y",
            "iqn.x\n",
            "iqn.x\nkey 0",
            "iqn.x\r",
            "iqn.\u{1b}[31m",
            "iqn.x\u{85}y",
            "iqn.x\u{2028}y",
            "iqn.x\u{a0}y",
            "iqn.x\u{200b}y",
            "iqn.x,i,0x00",
            "iqn.x/y",
            &too_long,
        ] {
            assert!(!is_name(name), "{name:?}");
        }
    }
}
