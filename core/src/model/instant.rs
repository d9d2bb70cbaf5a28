//! Dates as text: `2026-01-31T08:00:00.000Z` ⇄ [`Timestamp`].
//!
//! Knows no time zones by name: a date and time must say its offset.

use crate::clock::Timestamp;

const DAY: i64 = 86_400_000;

/// Reads `YYYY-MM-DD`, or that with `THH:MM`, optional `:SS` and fraction, and `Z` or `±HH:MM`.
/// `None` for anything else; dates before 1970 are 1970.
pub(crate) fn parse(text: &str) -> Option<Timestamp> {
    let mut reader = Reader(text.trim().as_bytes());
    let year = reader.number(4)?;
    reader.expect(b'-')?;
    let month = reader.number(2).filter(|month| (1..=12).contains(month))?;
    reader.expect(b'-')?;
    let day = reader.number(2)?;
    let days = days_from_civil(year, month, day);
    // A day that its month does not have comes back as another date.
    if civil_from_days(days) != (year, month, day) {
        return None;
    }
    let mut millis = days * DAY;
    if !reader.0.is_empty() {
        millis += reader.time()?;
    }
    reader
        .0
        .is_empty()
        .then(|| Timestamp(u64::try_from(millis).unwrap_or(0)))
}

/// The text JavaScript's `toISOString` gives.
pub(crate) fn format(at: Timestamp) -> String {
    // Beyond the year 9999 the text would not be a date any more.
    let millis = i64::try_from(at.0)
        .unwrap_or(i64::MAX)
        .min(253_402_300_799_999);
    let (year, month, day) = civil_from_days(millis / DAY);
    let rest = millis % DAY;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        rest / 3_600_000,
        rest / 60_000 % 60,
        rest / 1000 % 60,
        rest % 1000
    )
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn number(&mut self, digits: usize) -> Option<i64> {
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        number.iter().try_fold(0, |n, byte| {
            byte.is_ascii_digit()
                .then(|| n * 10 + i64::from(byte - b'0'))
        })
    }

    fn take(&mut self, wanted: u8) -> bool {
        match self.0.split_first() {
            Some((&byte, rest)) if byte == wanted => {
                self.0 = rest;
                true
            }
            _ => false,
        }
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        self.take(wanted).then_some(())
    }

    fn time(&mut self) -> Option<i64> {
        if !self.take(b'T') && !self.take(b't') {
            self.expect(b' ')?;
        }
        let hour = self.number(2).filter(|hour| *hour < 24)?;
        self.expect(b':')?;
        let minute = self.number(2).filter(|minute| *minute < 60)?;
        let mut millis = hour * 3_600_000 + minute * 60_000;
        if self.take(b':') {
            millis += self.number(2).filter(|second| *second < 60)? * 1000;
            if self.take(b'.') {
                millis += self.fraction()?;
            }
        }
        Some(millis - self.offset()?)
    }

    fn fraction(&mut self) -> Option<i64> {
        let digits = self
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (fraction, rest) = self.0.split_at(digits);
        self.0 = rest;
        let mut padded = fraction.iter().map(|byte| i64::from(byte - b'0'));
        let mut next = || padded.next().unwrap_or(0);
        (digits > 0).then(|| next() * 100 + next() * 10 + next())
    }

    fn offset(&mut self) -> Option<i64> {
        if self.take(b'Z') || self.take(b'z') {
            return Some(0);
        }
        let sign = if self.take(b'-') {
            -1
        } else {
            self.expect(b'+')?;
            1
        };
        let hours = self.number(2).filter(|hours| *hours < 24)?;
        self.take(b':');
        let minutes = self.number(2).filter(|minutes| *minutes < 60)?;
        Some(sign * (hours * 60 + minutes) * 60_000)
    }
}

/// Days since 1970-01-01 in the Gregorian calendar: years are counted from March, so that the leap
/// day is the last of its year.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_are_read_with_their_offset() {
        let at = |text| parse(text).map(|at| at.0);
        assert_eq!(at("1970-01-01"), Some(0));
        assert_eq!(at("2026-01-01T00:00:00Z"), Some(1_767_225_600_000));
        assert_eq!(at("2026-01-01T02:00:00.5+02:00"), Some(1_767_225_600_500));
        assert_eq!(at("2025-12-31T22:30-0130"), Some(1_767_225_600_000));
        assert_eq!(at("2024-02-29T12:00Z"), Some(1_709_208_000_000));
        assert_eq!(at("1960-01-01"), Some(0));
    }

    #[test]
    fn anything_else_is_no_date() {
        for text in [
            "",
            "2026",
            "2026-13-01",
            "2026-02-30",
            "2023-02-29",
            "2026-01-01T08:00",
            "tomorrow",
            "2026-01-01T24:00Z",
            "2026-01-01T08:00Zx",
            "2026-01-01T08:00:00.Z",
            "+026-01-01",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_formatted_time_is_read_back(millis in 0u64..253_402_300_799_999) {
            prop_assert_eq!(parse(&format(Timestamp(millis))), Some(Timestamp(millis)));
        }

        #[test]
        fn no_text_panics(text in ".{0,30}", digits in "[0-9T:Z.+-]{0,30}") {
            let _ = (parse(&text), parse(&digits));
        }
    }
}
