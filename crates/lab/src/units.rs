//! Rates, times and shares as people write them.

/// Reads a rate: `100mbit`, `1 Gbit/s`, `2.5gbit`, bare bits per second; `none` is no limit.
pub fn parse_rate(text: &str) -> Result<Option<u64>, String> {
    let lower = text.trim().to_ascii_lowercase();
    if lower == "none" {
        return Ok(None);
    }
    let bare = lower.trim_end_matches("/s").trim_end_matches("bps").trim_end_matches("bit").trim();
    let wrong = || format!("`{text}` is not a rate such as 100mbit");
    let (number, factor) = match bare.char_indices().next_back() {
        Some((at, 'k')) => (&bare[..at], 1e3),
        Some((at, 'm')) => (&bare[..at], 1e6),
        Some((at, 'g')) => (&bare[..at], 1e9),
        _ => (bare, 1.0),
    };
    let bits = number.trim().parse::<f64>().map_err(|_| wrong())? * factor;
    if (1e3..=1e12).contains(&bits) {
        Ok(Some(bits as u64))
    } else {
        Err(format!("`{text}` is outside the limits: 1 kbit to 1000 gbit"))
    }
}

/// Reads a time: `20us`, `1.5 ms`, `0`.
pub fn parse_time_ns(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
    let (number, unit) = lower.split_at(digits.unwrap_or(lower.len()));
    let factor = match (unit.trim(), number) {
        ("ns", _) | ("", "0") => 1.0,
        ("us" | "µs", _) => 1e3,
        ("ms", _) => 1e6,
        ("s", _) => 1e9,
        _ => return Err(format!("`{text}` is not a time such as 20us or 1.5ms")),
    };
    match number.parse::<f64>() {
        Ok(number) if number * factor <= 60e9 => Ok((number * factor).round() as u64),
        Ok(_) => Err(format!("`{text}` is more than 60 s")),
        Err(_) => Err(format!("`{text}` is not a time such as 20us or 1.5ms")),
    }
}

/// Reads a share: `0.1%`, `250ppm`, `0`. The answer is in millionths.
pub fn parse_ppm(text: &str) -> Result<u32, String> {
    let text = text.trim();
    let wrong = || format!("`{text}` is not a share such as 0.1% or 250ppm");
    let (number, factor) = match (text.strip_suffix('%'), text.strip_suffix("ppm")) {
        (Some(number), _) => (number, 1e4),
        (_, Some(number)) => (number, 1.0),
        _ if text == "0" => (text, 1.0),
        _ => return Err(wrong()),
    };
    let ppm = number.trim().parse::<f64>().map_err(|_| wrong())? * factor;
    if (0.0..=1e6).contains(&ppm) {
        Ok(ppm.round() as u32)
    } else {
        Err(format!("`{text}` is outside the limits: 0 to 100%"))
    }
}

/// Reads a whole number between two limits.
pub fn parse_between(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let number: u32 = text.trim().parse().map_err(|_| format!("`{text}` is not a whole number"))?;
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(format!("`{text}` is outside the limits: {least} to {most}"))
    }
}

/// A rate as a person reads it.
pub fn rate_text(bits_per_s: Option<u64>) -> String {
    match bits_per_s {
        None => "none".to_string(),
        Some(bits) if bits >= 1_000_000_000 => format!("{} Gbit/s", short(bits as f64 / 1e9)),
        Some(bits) if bits >= 1_000_000 => format!("{} Mbit/s", short(bits as f64 / 1e6)),
        Some(bits) => format!("{} kbit/s", short(bits as f64 / 1e3)),
    }
}

/// A time as a person reads it.
pub fn time_text(ns: u64) -> String {
    match ns {
        0 => "0".to_string(),
        ns if ns < 1_000 => format!("{ns} ns"),
        ns if ns < 1_000_000 => format!("{} us", short(ns as f64 / 1e3)),
        ns if ns < 1_000_000_000 => format!("{} ms", short(ns as f64 / 1e6)),
        ns => format!("{} s", short(ns as f64 / 1e9)),
    }
}

/// A share in millionths as a person reads it.
pub fn share_text(ppm: u32) -> String {
    match ppm {
        0 => "0".to_string(),
        ppm if ppm < 100 => format!("{ppm} ppm"),
        ppm => format!("{} %", short(f64::from(ppm) / 1e4)),
    }
}

/// Three digits, without zeros at the end.
fn short(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read_as_people_write_them() {
        for (text, bits) in [
            ("100mbit", 100_000_000),
            ("1 Gbit/s", 1_000_000_000),
            ("2.5gbit", 2_500_000_000),
            ("64k", 64_000),
            ("10Mbps", 10_000_000),
            ("5000", 5000),
        ] {
            assert_eq!(parse_rate(text), Ok(Some(bits)), "{text}");
        }
        assert_eq!(parse_rate("none"), Ok(None));
        for text in ["", "fast", "100mb yte", "0", "9e99gbit", "-1mbit", "10tbit"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_and_shares_carry_their_unit() {
        let times =
            [("20us", 20_000), ("1.5 ms", 1_500_000), ("0", 0), ("7ns", 7), ("2s", 2_000_000_000)];
        for (text, ns) in times {
            assert_eq!(parse_time_ns(text), Ok(ns), "{text}");
        }
        for text in ["", "20", "us", "61s", "-1us"] {
            assert!(parse_time_ns(text).is_err(), "{text}");
        }
        for (text, ppm) in [("0.1%", 1000), ("250ppm", 250), ("0", 0), ("100 %", 1_000_000)] {
            assert_eq!(parse_ppm(text), Ok(ppm), "{text}");
        }
        for text in ["", "1", "101%", "-1%", "%"] {
            assert!(parse_ppm(text).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_written_is_short() {
        assert_eq!(rate_text(Some(100_000_000)), "100 Mbit/s");
        assert_eq!(rate_text(Some(2_500_000_000)), "2.5 Gbit/s");
        assert_eq!(time_text(57_250), "57.25 us");
        assert_eq!(share_text(1000), "0.1 %");
    }
}
