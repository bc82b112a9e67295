//! The proleptic Gregorian calendar, in days since 1970-01-01: for every date that PostgreSQL knows, 4714-11-24 BC to
//! 5874897-12-31, and beyond. The year before 1 is 0, as in ISO 8601.
//!
//! Not from a crate: `jiff` and `time` end at the year 9999, `chrono` at 262142, PostgreSQL's binary dates do not. The
//! algorithms are Howard Hinnant's, "chrono-Compatible Low-Level Date Algorithms".

/// Days from 1970-01-01 to a date.
pub fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = if month <= 2 { year - 1 } else { year };
    let era = y.div_euclid(400);
    let year_of_era = y.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Year, month and day of a day since 1970-01-01.
pub fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let z = days + 719_468;
    let era = z.div_euclid(146_097);
    let day_of_era = z.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let mp = (5 * day_of_year + 2) / 153;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day_of_year - (153 * mp + 2) / 5 + 1)
}

/// The number of days of a month, 1 to 12.
pub fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if (year % 4 == 0 && year % 100 != 0) || year % 400 == 0 => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PostgreSQL's first and last date, and days that other programs have computed.
    #[test]
    fn known_days_near_and_far() {
        for (days, date) in [
            (0, (1970, 1, 1)),
            (-1, (1969, 12, 31)),
            (10_957, (2000, 1, 1)),
            (11_016, (2000, 2, 29)),
            (2_932_896, (9999, 12, 31)),
            (-719_162, (1, 1, 1)),
            (-719_163, (0, 12, 31)),
            (-2_440_588, (-4713, 11, 24)),
            (2_145_042_905, (5_874_897, 12, 31)),
        ] {
            assert_eq!(civil_from_days(days), date, "{days}");
            assert_eq!(days_from_civil(date.0, date.1, date.2), days, "{date:?}");
        }
    }

    /// Counts the days one by one, over more than four hundred years at both ends and around the years 0 and 2000.
    #[test]
    fn every_day_follows_the_one_before() {
        for (mut year, until) in [(-4714, -4300), (-210, 210), (1800, 2210), (5_874_480, 5_874_898)] {
            let mut days = days_from_civil(year, 1, 1);
            while year < until {
                for month in 1..=12 {
                    for day in 1..=days_in_month(year, month) {
                        assert_eq!(days_from_civil(year, month, day), days);
                        assert_eq!(civil_from_days(days), (year, month, day));
                        days += 1;
                    }
                }
                year += 1;
            }
        }
    }
}
