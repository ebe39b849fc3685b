//! Times, as inodes have them.

/// Nanoseconds since 1970 on the server's clock. Times before that are negative ones in two's
/// complement; what can be kept lies between 1677 and 2262.
pub type Nanos = u64;

const PER_SECOND: i64 = 1_000_000_000;

/// A time as whole seconds since 1970, rounded down, and the nanoseconds that are left.
pub fn seconds_of(time: Nanos) -> (i64, u32) {
    let time = time.cast_signed();
    // What is left is less than a second.
    (time.div_euclid(PER_SECOND), time.rem_euclid(PER_SECOND) as u32)
}

/// A time from seconds since 1970 and nanoseconds, or the nearest that can be kept.
pub fn nanos_of(seconds: i64, nanos: u64) -> Nanos {
    let all = i128::from(seconds) * i128::from(PER_SECOND) + i128::from(nanos);
    let nearest = all.clamp(i64::MIN.into(), i64::MAX.into());
    // It fits now.
    (nearest as i64).cast_unsigned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_are_kept_as_those_after() {
        let kept = [(0, 0), (7, 3), (-1, 999_999_999), (-315_593_940, 0), (-9_000_000_000, 1)];
        for (seconds, nanos) in kept {
            let time = nanos_of(seconds, u64::from(nanos));
            assert_eq!(seconds_of(time), (seconds, nanos));
        }
        assert_eq!(nanos_of(-1, 999_999_999), u64::MAX, "a nanosecond before");
    }

    #[test]
    fn times_that_cannot_be_kept_become_the_nearest_that_can() {
        assert_eq!(nanos_of(i64::MIN, 0).cast_signed(), i64::MIN);
        assert_eq!(nanos_of(i64::MAX, 999_999_999).cast_signed(), i64::MAX);
        assert_eq!(seconds_of(nanos_of(i64::MAX, 0)), (9_223_372_036, 854_775_807));
    }
}
