//! Durations as users write them (P14): numbers and unitless strings are seconds.
//!
//! Does not know which option it reads beyond its name. Called by `protocol` and by settings.

use std::time::Duration;

use crate::{Error, ErrorKind, Result};

fn refused(option: &str) -> Error {
    Error::new(
        ErrorKind::BadCommand,
        format!("{option} must be a number of seconds or a text like 250ms, 1.5s, 15m, 2h, 7d"),
    )
}

/// A duration from a number of seconds; saturates.
///
/// # Errors
/// [`ErrorKind::BadCommand`], naming `option`, for negative and non-finite numbers.
pub fn duration_from_number(option: &str, seconds: f64) -> Result<Duration> {
    if !seconds.is_finite() || seconds < 0.0 {
        return Err(refused(option));
    }
    Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

/// A duration from a text: a decimal number, then `ms`, `s`, `m`, `h`, `d` in any case or nothing
/// for seconds; blanks around it and between the two are trimmed. Exact and saturating.
///
/// # Errors
/// [`ErrorKind::BadCommand`], naming `option`, for anything else.
pub fn duration_from_text(option: &str, text: &str) -> Result<Duration> {
    let text = text.trim();
    let number_end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(number_end);
    let unit = unit.trim_start();
    let unit_nanos: u128 = match () {
        () if unit.eq_ignore_ascii_case("ms") => 1_000_000,
        () if unit.is_empty() || unit.eq_ignore_ascii_case("s") => 1_000_000_000,
        () if unit.eq_ignore_ascii_case("m") => 60_000_000_000,
        () if unit.eq_ignore_ascii_case("h") => 3_600_000_000_000,
        () if unit.eq_ignore_ascii_case("d") => 86_400_000_000_000,
        () => return Err(refused(option)),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let has_digit = !whole.is_empty() || !fraction.is_empty();
    if !has_digit || fraction.contains('.') {
        return Err(refused(option));
    }
    let digits = |text: &str| {
        text.bytes().fold(0u128, |n, b| {
            n.saturating_mul(10).saturating_add(u128::from(b - b'0'))
        })
    };
    // Fractions beyond 18 digits are below a nanosecond of a day.
    let fraction = &fraction[..fraction.len().min(18)];
    let scale = 10u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let nanos = digits(whole)
        .saturating_mul(unit_nanos)
        .saturating_add(digits(fraction) * unit_nanos / scale);
    let seconds = nanos / 1_000_000_000;
    Ok(match u64::try_from(seconds) {
        Ok(seconds) => Duration::new(
            seconds,
            u32::try_from(nanos % 1_000_000_000).unwrap_or_default(),
        ),
        Err(_) => Duration::MAX,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(text: &str) -> Option<Duration> {
        duration_from_text("delay", text).ok()
    }

    #[test]
    fn units_are_exact_and_case_does_not_matter() {
        assert_eq!(text("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(text("250"), Some(Duration::from_secs(250)));
        assert_eq!(text("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(text("15M"), Some(Duration::from_secs(900)));
        assert_eq!(text(" 2 H "), Some(Duration::from_secs(7200)));
        assert_eq!(text("7d"), Some(Duration::from_secs(604_800)));
        assert_eq!(text(".5"), Some(Duration::from_millis(500)));
        assert_eq!(text("0"), Some(Duration::ZERO));
        assert_eq!(
            duration_from_number("delay", 250.0).ok(),
            Some(Duration::from_secs(250))
        );
        assert_eq!(
            duration_from_number("delay", 0.1).ok(),
            Some(Duration::from_millis(100))
        );
    }

    #[test]
    fn anything_else_is_refused_with_the_options_name() {
        for bad in [
            "5 minutes",
            "abc",
            "",
            " ",
            "-1",
            "1e3s",
            "1.2.3",
            ".",
            "s",
            "1 000",
            "٣s",
        ] {
            let error = duration_from_text("retry.delay", bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::BadCommand, "{bad:?}");
            assert!(error.message().contains("retry.delay"));
        }
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(duration_from_number("ttl", bad).is_err());
        }
    }

    #[test]
    fn huge_values_saturate() {
        assert_eq!(text(&"9".repeat(60)), Some(Duration::MAX));
        assert_eq!(duration_from_number("ttl", 1e300).ok(), Some(Duration::MAX));
        assert!(text(&format!("0.{}d", "9".repeat(400))).is_some());
    }

    proptest! {
        #[test]
        fn whole_units_round_trip(n in 0u64..1_000_000_000) {
            prop_assert_eq!(text(&format!("{n}ms")), Some(Duration::from_millis(n)));
            prop_assert_eq!(text(&format!("{n}")), Some(Duration::from_secs(n)));
            prop_assert_eq!(text(&format!("{n}d")), Some(Duration::from_secs(n * 86_400)));
        }

        #[test]
        fn no_text_panics(any in ".{0,40}") {
            let _ = text(&any);
        }
    }
}
