//! Attributes as people and scripts read them: modes, types, times.

use super::path::{is_kind, kind, text};
use crate::output::quote;
use covey_plot::calendar::{utc, utc_nanos};
use covey_stripe::ops::{Inode, Nanos, seconds_of};

/// What a file is, in a word.
pub fn kind_word(inode: &Inode) -> &'static str {
    kind_of_bits(inode.mode & kind::MASK)
}

/// What the type bits of a mode say.
pub fn kind_of_bits(bits: u32) -> &'static str {
    match bits {
        kind::DIR => "directory",
        kind::SYMLINK => "symbolic link",
        kind::FILE => "regular file",
        kind::BLOCK => "block device",
        kind::CHAR => "character device",
        kind::FIFO => "fifo",
        kind::SOCKET => "socket",
        _ => "unknown",
    }
}

/// Type and permissions as `ls -l` shows them: `drwxr-xr-x`.
pub fn mode(mode: u32) -> String {
    let kind = match mode & kind::MASK {
        kind::DIR => 'd',
        kind::SYMLINK => 'l',
        kind::FILE => '-',
        kind::BLOCK => 'b',
        kind::CHAR => 'c',
        kind::FIFO => 'p',
        kind::SOCKET => 's',
        _ => '?',
    };
    let bit = |bit: u32, letter: char| if mode & bit != 0 { letter } else { '-' };
    let run = |run: u32, special: u32, both: char| match (mode & run != 0, mode & special != 0) {
        (true, true) => both,
        (false, true) => both.to_ascii_uppercase(),
        (true, false) => 'x',
        (false, false) => '-',
    };
    let letters = [
        kind,
        bit(0o400, 'r'),
        bit(0o200, 'w'),
        run(0o100, 0o4000, 's'),
        bit(0o040, 'r'),
        bit(0o020, 'w'),
        run(0o010, 0o2000, 's'),
        bit(0o004, 'r'),
        bit(0o002, 'w'),
        run(0o001, 0o1000, 't'),
    ];
    letters.iter().collect()
}

/// A time in UTC, to the minute: `2026-11-21 07:31`.
pub fn time(nanos: Nanos) -> String {
    utc(seconds_of(nanos).0)
}

/// A time to the nanosecond: `2026-11-21 07:31:05.000000000 UTC`.
pub fn exact_time(nanos: Nanos) -> String {
    let (seconds, fraction) = seconds_of(nanos);
    format!("{}:{:02}.{fraction:09} UTC", utc(seconds), seconds.rem_euclid(60))
}

/// Reads a time: `@SECONDS`, `2026-11-21`, `2026-11-21 07:31`, `2026-11-21T07:31:05Z`; always UTC.
pub fn parse_time(text: &str) -> Result<Nanos, String> {
    let wrong =
        || format!("`{text}` is not a time such as 2026-11-21T07:31:05 (UTC) or @1795000000");
    let in_nanos = |seconds: i64| {
        let nanos = seconds.checked_mul(1_000_000_000).ok_or_else(wrong)?;
        Ok(nanos.cast_unsigned())
    };
    if let Some(seconds) = text.strip_prefix('@') {
        return in_nanos(seconds.parse().map_err(|_| wrong())?);
    }
    let nanos = utc_nanos(text).ok_or_else(wrong)?;
    if nanos >= 0 { Ok(nanos.cast_unsigned()) } else { Err(wrong()) }
}

/// A name with what follows it in long listings: a link's target.
pub fn name_and_target(name: &[u8], inode: &Inode) -> Vec<u8> {
    if is_kind(inode, kind::SYMLINK) {
        [&quote::name(name), &b" -> "[..], &quote::name(inode.target.as_bytes())].concat()
    } else {
        quote::name(name).into_owned()
    }
}

/// Everything about a file, for `--json`.
pub fn json(path: &[u8], inode: &Inode, blocks: Option<u64>) -> serde_json::Value {
    let target = is_kind(inode, kind::SYMLINK).then(|| inode.target.lossy());
    serde_json::json!({
        "path": text(path), "id": inode.id, "type": kind_word(inode),
        "mode": format!("{:04o}", inode.mode & 0o7777), "uid": inode.uid, "gid": inode.gid,
        "links": inode.nlink, "size": inode.size, "blocks": blocks, "target": target,
        "atime_ns": inode.atime.cast_signed(), "mtime_ns": inode.mtime.cast_signed(),
        "ctime_ns": inode.ctime.cast_signed(),
        "btime_ns": inode.btime,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_stripe::ops::nanos_of;

    #[test]
    fn modes_read_as_in_ls() {
        let cases = [
            (0o040_755, "drwxr-xr-x"),
            (0o100_644, "-rw-r--r--"),
            (0o104_755, "-rwsr-xr-x"),
            (0o102_644, "-rw-r-Sr--"),
            (0o041_777, "drwxrwxrwt"),
            (0o120_777, "lrwxrwxrwx"),
            (0o020_600, "crw-------"),
        ];
        cases.iter().for_each(|(bits, text)| assert_eq!(mode(*bits), *text));
    }

    #[test]
    fn times_are_read_as_they_are_shown() {
        for seconds in [0, 951_782_400, 1_709_251_199, 1_795_246_265, 4_107_542_399] {
            let text = exact_time(seconds * 1_000_000_000);
            let plain = &text[..19];
            assert_eq!(parse_time(plain), Ok(seconds * 1_000_000_000), "{text}");
        }
        assert_eq!(time(1_709_164_800_000_000_000), "2024-02-29 00:00");
        assert_eq!(exact_time(nanos_of(-315_593_940, 5)), "1960-01-01 07:01:00.000000005 UTC");
        assert_eq!(parse_time("@5"), Ok(5_000_000_000));
        assert_eq!(parse_time("@-5"), Ok(nanos_of(-5, 0)));
        assert!(parse_time("@9223372037").is_err(), "it cannot be kept");
        assert_eq!(parse_time("2024-02-29T01:00Z"), Ok(1_709_168_400_000_000_000));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in [
            "",
            "now",
            "2023-02-29",
            "2024-13-01",
            "2024-01-01 24:00",
            "1969-12-31",
            "@x",
            "2024-00-10",
        ] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
