//! Arithmetic of intervals, by PostgreSQL's rules: a fraction of a month becomes days, a fraction of a day hours.

use super::{DAY_US, Interval, MONTH_DAYS, out_of_range};
use crate::{SqlError, SqlResult, SqlState};

const DAY_S: f64 = 86_400.0;

/// Rounds to microseconds, as PostgreSQL's TSROUND.
fn rounded(x: f64) -> f64 {
    (x * 1e6).round_ties_even() / 1e6
}

fn to_i32(x: f64) -> SqlResult<i32> {
    if x.is_nan() || x > f64::from(i32::MAX) || x < f64::from(i32::MIN) { Err(out_of_range()) } else { Ok(x as i32) }
}

impl Interval {
    pub fn checked_add(self, other: Interval) -> SqlResult<Interval> {
        let sum = || {
            Some(Interval {
                months: self.months.checked_add(other.months)?,
                days: self.days.checked_add(other.days)?,
                us: self.us.checked_add(other.us)?,
            })
        };
        sum().ok_or_else(out_of_range)
    }

    pub fn checked_neg(self) -> SqlResult<Interval> {
        let negated = || {
            Some(Interval {
                months: self.months.checked_neg()?,
                days: self.days.checked_neg()?,
                us: self.us.checked_neg()?,
            })
        };
        negated().ok_or_else(out_of_range)
    }

    /// Times a factor.
    pub fn times(self, factor: f64) -> SqlResult<Interval> {
        self.scaled(|x| x * factor)
    }

    /// Divided by a number; 22012 for zero.
    pub fn over(self, divisor: f64) -> SqlResult<Interval> {
        if divisor == 0.0 {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        self.scaled(|x| x / divisor)
    }

    fn scaled(self, f: impl Fn(f64) -> f64) -> SqlResult<Interval> {
        let (exact_months, exact_days) = (f(f64::from(self.months)), f(f64::from(self.days)));
        let (months, mut days) = (to_i32(exact_months)?, to_i32(exact_days)?);
        let month_days = rounded((exact_months - f64::from(months)) * MONTH_DAYS as f64);
        let mut seconds = rounded((exact_days - f64::from(days) + month_days - month_days.trunc()) * DAY_S);
        if seconds.abs() >= DAY_S {
            let whole = (seconds / DAY_S).trunc();
            days = days.checked_add(whole as i32).ok_or_else(out_of_range)?;
            seconds -= whole * DAY_S;
        }
        days = days.checked_add(month_days as i32).ok_or_else(out_of_range)?;
        let us = (f(self.us as f64) + seconds * 1e6).round_ties_even();
        if !(us >= i64::MIN as f64 && us < i64::MAX as f64) {
            return Err(out_of_range());
        }
        Ok(Interval { months, days, us: us as i64 })
    }

    /// Whole days of hours become days.
    pub fn justify_hours(self) -> SqlResult<Interval> {
        let whole = (self.us / DAY_US) as i32;
        let (mut days, mut us) = (self.days.checked_add(whole).ok_or_else(out_of_range)?, self.us % DAY_US);
        same_sign(&mut days, &mut us, DAY_US);
        Ok(Interval { days, us, ..self })
    }

    /// Every 30 days become a month.
    pub fn justify_days(self) -> SqlResult<Interval> {
        let month = MONTH_DAYS as i32;
        let mut months = self.months.checked_add(self.days / month).ok_or_else(out_of_range)?;
        let mut days = i64::from(self.days % month);
        same_sign(&mut months, &mut days, MONTH_DAYS);
        Ok(Interval { months, days: days as i32, ..self })
    }

    /// Both, with one sign for all parts.
    pub fn justify_interval(self) -> SqlResult<Interval> {
        let (month, mut v) = (MONTH_DAYS as i32, self);
        let carry = |v: &mut Interval| -> SqlResult<()> {
            v.months = v.months.checked_add(v.days / month).ok_or_else(out_of_range)?;
            v.days %= month;
            Ok(())
        };
        if (v.days > 0 && v.us > 0) || (v.days < 0 && v.us < 0) {
            carry(&mut v)?;
        }
        v.days = v.days.checked_add((v.us / DAY_US) as i32).ok_or_else(out_of_range)?;
        v.us %= DAY_US;
        carry(&mut v)?;
        if v.months > 0 && (v.days < 0 || (v.days == 0 && v.us < 0)) {
            v.days += month;
            v.months -= 1;
        } else if v.months < 0 && (v.days > 0 || (v.days == 0 && v.us > 0)) {
            v.days -= month;
            v.months += 1;
        }
        same_sign(&mut v.days, &mut v.us, DAY_US);
        Ok(v)
    }

    /// Drops what is smaller than the unit of `date_trunc`; `None` for a unit that intervals do not have.
    pub fn truncated(self, unit: &str) -> Option<Interval> {
        let months = |n: i32| Some(Interval { months: self.months / n * n, days: 0, us: 0 });
        let time = |us: i64| Some(Interval { us: self.us / us * us, ..self });
        match unit {
            "millennium" => months(12_000),
            "century" => months(1200),
            "decade" => months(120),
            "year" => months(12),
            "quarter" => months(3),
            "month" => months(1),
            "day" => Some(Interval { us: 0, ..self }),
            "hour" => time(3_600_000_000),
            "minute" => time(60_000_000),
            "second" => time(1_000_000),
            "millisecond" => time(1000),
            "microsecond" => Some(self),
            _ => None,
        }
    }

    /// Rounds to `digits` of a second.
    pub fn rounded_to(self, digits: i32) -> Interval {
        if !(0..6).contains(&digits) {
            return self;
        }
        let unit = 10i64.pow(6 - digits as u32);
        let half = if self.us < 0 { -(unit / 2) } else { unit / 2 };
        Interval { us: self.us.saturating_add(half) / unit * unit, ..self }
    }
}

/// Moves one unit between two parts so that their signs agree.
fn same_sign(large: &mut i32, small: &mut i64, unit: i64) {
    if *large > 0 && *small < 0 {
        *small += unit;
        *large -= 1;
    } else if *large < 0 && *small > 0 {
        *small -= unit;
        *large += 1;
    }
}
