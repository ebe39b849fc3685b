//! Sizes as people write them: `64 KiB`, `1M`, `4096`.

/// Reads a size in bytes. `K`, `M`, `G`, `T` and `KiB` and so on are powers of 1024; `kB`, `MB` and
/// so on are powers of 1000.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.find(|letter: char| !letter.is_ascii_digit() && letter != '_');
    let (number, unit) = text.split_at(digits.unwrap_or(text.len()));
    let number: u64 =
        number.replace('_', "").parse().map_err(|_| format!("`{text}` is not a size"))?;
    let factor = factor(unit.trim()).ok_or_else(|| format!("`{text}` has an unknown unit"))?;
    number.checked_mul(factor).ok_or_else(|| format!("`{text}` is more than 16 EiB"))
}

fn factor(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let (letter, base) = match unit.as_str() {
        "" | "b" => return Some(1),
        unit if unit.len() == 1 => (unit, 1024u64),
        unit if unit.len() == 2 && unit.ends_with('b') => (&unit[..1], 1000),
        unit if unit.len() == 3 && unit.ends_with("ib") => (&unit[..1], 1024),
        _ => return None,
    };
    let power = "kmgtp".find(letter)? as u32 + 1;
    Some(base.pow(power))
}

/// Writes a size so that `parse` gives it back: the largest binary unit that divides it.
pub fn exact(bytes: u64) -> String {
    for (shift, unit) in [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")] {
        if bytes != 0 && bytes.is_multiple_of(1 << shift) {
            return format!("{} {unit}", bytes >> shift);
        }
    }
    bytes.to_string()
}

/// Writes a size to three digits: `1.50 GiB`.
pub fn rounded(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].into_iter();
    let mut unit = units.next().unwrap_or("B");
    while value >= 1023.5 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / 1024.0, next);
    }
    match (unit, value) {
        ("B", _) => format!("{bytes} B"),
        (_, value) if value >= 99.95 => format!("{value:.0} {unit}"),
        (_, value) if value >= 9.995 => format!("{value:.1} {unit}"),
        _ => format!("{value:.2} {unit}"),
    }
}

/// Writes a size in at most five letters, as `ls -h` does: `1.5G`.
pub fn short(bytes: u64) -> String {
    if bytes < 1024 {
        return bytes.to_string();
    }
    let mut value = bytes as f64 / 1024.0;
    let mut units = "KMGTPE".chars();
    let mut unit = units.next().unwrap_or('K');
    while value >= 1023.5 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / 1024.0, next);
    }
    if value < 9.95 { format!("{value:.1}{unit}") } else { format!("{value:.0}{unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_units() {
        let cases = [
            ("4096", 4096),
            ("64 KiB", 65536),
            ("64k", 65536),
            ("1M", 1 << 20),
            ("2 GB", 2_000_000_000),
        ];
        cases.iter().for_each(|(text, bytes)| assert_eq!(parse(text), Ok(*bytes), "{text}"));
    }

    #[test]
    fn what_is_no_size_is_refused_with_the_text() {
        for text in ["", "KiB", "-1", "1 XiB", "1.5M", "20000000 TiB", "1kk"] {
            assert!(parse(text).unwrap_err().contains(text.trim()), "{text}");
        }
    }

    #[test]
    fn exact_sizes_are_read_back() {
        for bytes in [0, 1, 4096, 65536, 3 << 20, 1 << 40, 12345] {
            assert_eq!(parse(&exact(bytes)), Ok(bytes));
        }
    }

    #[test]
    fn rounding_never_shows_four_digits() {
        let cases =
            [(1023, "1023 B"), (1024, "1.00 KiB"), (1_048_575, "1.00 MiB"), (15 << 30, "15.0 GiB")];
        cases.iter().for_each(|(bytes, text)| assert_eq!(rounded(*bytes), *text));
        assert_eq!(short(1 << 20), "1.0M");
        assert_eq!(short(999), "999");
    }
}
