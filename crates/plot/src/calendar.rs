//! Times in UTC.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// A time in UTC, from seconds since 1970, or before it: `2026-11-21 07:31`. A time beyond the calendar's
/// years, which end with 9999, is written as the last one in it.
pub fn utc(seconds: i64) -> String {
    let of_calendar = seconds.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
    let time = Timestamp::from_second(of_calendar).expect("within the calendar");
    time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M").to_string()
}

/// Nanoseconds from 1970 to a date, or a date and a time, in UTC: `2026-11-21`, `2026-11-21 07:31`,
/// `2026-11-21T07:31:05Z`. `None` where it is none, or cannot be counted in 64 bits.
pub fn utc_nanos(text: &str) -> Option<i64> {
    let plain = text.trim_end_matches('Z').trim_end_matches(" UTC");
    let time: DateTime = plain.parse().ok()?;
    let since = time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_nanosecond();
    i64::try_from(since).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00");
        assert_eq!(utc(-60), "1969-12-31 23:59");
        assert_eq!(utc(1_709_164_800 + 3660), "2024-02-29 01:01");
        assert_eq!(utc(i64::MAX), "9999-12-30 22:00");
    }

    #[test]
    fn times_are_read_in_every_form_that_people_write() {
        for text in ["2024-02-29T01:00:00Z", "2024-02-29 01:00", "2024-02-29 01:00 UTC"] {
            assert_eq!(utc_nanos(text), Some(1_709_168_400_000_000_000), "{text}");
        }
        assert_eq!(utc_nanos("1969-12-31"), Some(-86_400_000_000_000));
        for text in ["", "now", "2023-02-29", "2024-01-01 24:00", "2024-00-10", "2300-01-01"] {
            assert_eq!(utc_nanos(text), None, "{text}");
        }
    }
}
