//! Days and times in UTC.

/// A time in UTC, from seconds since 1970, or before it: `2026-11-21 07:31`.
pub fn utc(seconds: i64) -> String {
    let (year, month, day) = date(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    let (hour, minute) = (of_day / 3600, of_day / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

/// The date that many days after 1970-01-01, by counting 400-year cycles from March of year 0.
pub fn date(days: i64) -> (u64, u64, u64) {
    // No time that can be kept lies before year 0.
    let days = (days + 719_468).cast_unsigned();
    let (cycle, day_of_cycle) = (days / 146_097, days % 146_097);
    let year_of_cycle =
        (day_of_cycle - day_of_cycle / 1460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
    let day_of_year =
        day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (cycle * 400 + year_of_cycle + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        assert_eq!(utc(0), "1970-01-01 00:00");
        assert_eq!(utc(-60), "1969-12-31 23:59");
        assert_eq!(utc(1_709_164_800 + 3660), "2024-02-29 01:01");
    }
}
