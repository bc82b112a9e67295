//! Exact decimal numbers: PostgreSQL's numeric with its rules for the scale of a result.
//!
//! The text form is the stored form. Each number carries its display scale, so 1.50 stays 1.50. Digits are decimal,
//! most significant first; the arithmetic is the schoolbook method, which is fast enough for money and measurements, and a
//! library's for long numbers.
//! Limits are PostgreSQL's: 131072 digits before the point and 16383 after, else 22003. NaN and infinity are refused.

use holdfast_types::{SqlError, SqlResult, SqlState};
use num_bigint::BigUint;
use std::cmp::Ordering;
use std::fmt;

/// PostgreSQL's NUMERIC_MAX_DISPLAY_SCALE, for the results of divisions.
const DIVISION_SCALE_MAX: i64 = 1000;
/// PostgreSQL's NUMERIC_MIN_SIG_DIGITS.
const QUOTIENT_DIGITS_MIN: i64 = 16;
const INTEGER_DIGITS_MAX: usize = 131_072;
const SCALE_MAX: usize = 16_383;

/// A decimal number: `digits` * 10^-scale, negative if `negative`. No leading zeros; zero has no digits.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Decimal {
    negative: bool,
    digits: Vec<u8>,
    scale: usize,
}

fn strip(mut digits: Vec<u8>) -> Vec<u8> {
    let zeros = digits.iter().take_while(|d| **d == 0).count();
    digits.drain(..zeros);
    digits
}

fn compare_digits(a: &[u8], b: &[u8]) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.cmp(b))
}

fn add_digits(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(a.len().max(b.len()) + 1);
    let mut carry = 0;
    for i in 0..a.len().max(b.len()) {
        let digit = |d: &[u8]| if i < d.len() { d[d.len() - 1 - i] } else { 0 };
        let sum = digit(a) + digit(b) + carry;
        out.push(sum % 10);
        carry = sum / 10;
    }
    out.push(carry);
    out.reverse();
    strip(out)
}

/// a - b for a >= b.
fn sub_digits(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(a.len());
    let mut borrow = 0i8;
    for i in 0..a.len() {
        let y = if i < b.len() { b[b.len() - 1 - i] } else { 0 };
        let mut d = a[a.len() - 1 - i] as i8 - y as i8 - borrow;
        borrow = i8::from(d < 0);
        if d < 0 {
            d += 10;
        }
        out.push(d as u8);
    }
    out.reverse();
    strip(out)
}

/// Numbers with this many digits in all are multiplied and divided by a library: the schoolbook method on digits would take
/// minutes for the longest, and nothing interrupts it.
const LONG_DIGITS: usize = 64;

fn big(digits: &[u8]) -> BigUint {
    BigUint::from_radix_be(digits, 10).unwrap_or_default()
}

/// Zero has no digits.
fn digits_of(number: &BigUint) -> Vec<u8> {
    strip(number.to_radix_be(10))
}

fn mul_digits(a: &[u8], b: &[u8]) -> Vec<u8> {
    if a.len() + b.len() > LONG_DIGITS {
        return digits_of(&(big(a) * big(b)));
    }
    let mut cells = vec![0u64; a.len() + b.len()];
    for (i, x) in a.iter().enumerate() {
        for (j, y) in b.iter().enumerate() {
            cells[i + j + 1] += u64::from(*x) * u64::from(*y);
        }
    }
    for i in (1..cells.len()).rev() {
        cells[i - 1] += cells[i] / 10;
        cells[i] %= 10;
    }
    strip(cells.into_iter().map(|c| c as u8).collect())
}

/// Quotient and remainder of digit strings; `b` is not zero.
fn div_digits(a: &[u8], b: &[u8]) -> (Vec<u8>, Vec<u8>) {
    if a.len() + b.len() > LONG_DIGITS {
        let (a, b) = (big(a), big(b));
        return (digits_of(&(&a / &b)), digits_of(&(&a % &b)));
    }
    let (mut quotient, mut rest) = (Vec::with_capacity(a.len()), Vec::new());
    for &d in a {
        if d != 0 || !rest.is_empty() {
            rest.push(d);
        }
        let mut q = 0;
        while compare_digits(&rest, b) != Ordering::Less {
            rest = sub_digits(&rest, b);
            q += 1;
        }
        quotient.push(q);
    }
    (strip(quotient), rest)
}

impl Decimal {
    /// Reads PostgreSQL's input syntax. 22P02 for bad text, 22003 beyond the limits.
    pub fn parse(text: &str) -> SqlResult<Decimal> {
        let bad = || {
            let message = format!("invalid input syntax for type numeric: \"{text}\"");
            SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
        };
        let trimmed = text.trim();
        let unsigned = trimmed.strip_prefix(['-', '+']).unwrap_or(trimmed);
        if ["nan", "inf", "infinity"].iter().any(|w| unsigned.eq_ignore_ascii_case(w)) {
            return Err(SqlError::unsupported(format!("the numeric value {trimmed}")));
        }
        let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
            Some(at) => (&unsigned[..at], unsigned[at + 1..].parse::<i64>().map_err(|_| bad())?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
        if (whole.is_empty() && fraction.is_empty()) || !all_digits(whole) || !all_digits(fraction) {
            return Err(bad());
        }
        let mut digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).map(|b| b - b'0').collect();
        let scale = fraction.len() as i64 - exponent;
        if scale.unsigned_abs() as usize > INTEGER_DIGITS_MAX {
            return Err(overflow());
        }
        if scale < 0 {
            digits.resize(digits.len() + scale.unsigned_abs() as usize, 0);
        }
        let digits = strip(digits);
        Decimal { negative: trimmed.starts_with('-') && !digits.is_empty(), digits, scale: scale.max(0) as usize }
            .checked()
    }

    /// The shortest decimal that reads back as this double, as PostgreSQL's cast from double precision does with 15
    /// significant digits.
    pub fn from_f64(value: f64) -> SqlResult<Decimal> {
        if !value.is_finite() {
            return Err(SqlError::unsupported(format!("the numeric value {value}")));
        }
        let text = format!("{value:.14e}");
        let parsed = Decimal::parse(&text)?;
        Ok(parsed.without_trailing_zeros())
    }

    fn without_trailing_zeros(mut self) -> Decimal {
        while self.scale > 0 && self.digits.last().is_none_or(|d| *d == 0) {
            self.digits.pop();
            self.scale -= 1;
        }
        self
    }

    fn checked(self) -> SqlResult<Decimal> {
        if self.digits.len().saturating_sub(self.scale) > INTEGER_DIGITS_MAX || self.scale > SCALE_MAX {
            return Err(overflow());
        }
        Ok(self)
    }

    fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    pub fn is_negative(&self) -> bool {
        self.negative
    }

    pub fn scale(&self) -> usize {
        self.scale
    }

    /// Digits at a larger scale.
    fn scaled(&self, scale: usize) -> Vec<u8> {
        let mut digits = self.digits.clone();
        if !digits.is_empty() {
            digits.resize(digits.len() + scale - self.scale, 0);
        }
        digits
    }

    fn signed(negative: bool, digits: Vec<u8>, scale: usize) -> SqlResult<Decimal> {
        Decimal { negative: negative && !digits.is_empty(), digits, scale }.checked()
    }

    pub fn neg(&self) -> Decimal {
        Decimal { negative: !self.negative && !self.is_zero(), ..self.clone() }
    }

    pub fn abs(&self) -> Decimal {
        Decimal { negative: false, ..self.clone() }
    }

    pub fn add(&self, other: &Decimal) -> SqlResult<Decimal> {
        let scale = self.scale.max(other.scale);
        let (a, b) = (self.scaled(scale), other.scaled(scale));
        if self.negative == other.negative {
            return Decimal::signed(self.negative, add_digits(&a, &b), scale);
        }
        match compare_digits(&a, &b) {
            Ordering::Less => Decimal::signed(other.negative, sub_digits(&b, &a), scale),
            _ => Decimal::signed(self.negative, sub_digits(&a, &b), scale),
        }
    }

    pub fn sub(&self, other: &Decimal) -> SqlResult<Decimal> {
        self.add(&other.neg())
    }

    pub fn mul(&self, other: &Decimal) -> SqlResult<Decimal> {
        let digits = mul_digits(&self.digits, &other.digits);
        Decimal::signed(self.negative != other.negative, digits, self.scale + other.scale)
    }

    /// Weight in groups of four digits and value of the first group, as `select_div_scale` in numeric.c sees them.
    fn leading_group(&self) -> (i64, i64) {
        if self.is_zero() {
            return (0, 0);
        }
        let integer_digits = self.digits.len() as i64 - self.scale as i64;
        let weight = (integer_digits - 1).div_euclid(4);
        let take = (integer_digits - weight * 4) as usize;
        let group = (0..take).fold(0, |g, i| g * 10 + i64::from(self.digits.get(i).copied().unwrap_or(0)));
        (weight, group)
    }

    /// Division with PostgreSQL's choice of scale. 22012 for zero.
    pub fn div(&self, other: &Decimal) -> SqlResult<Decimal> {
        let ((w1, g1), (w2, g2)) = (self.leading_group(), other.leading_group());
        let quotient_weight = w1 - w2 - i64::from(g1 <= g2);
        let wanted = QUOTIENT_DIGITS_MIN - quotient_weight * 4;
        let scale = wanted.max(self.scale as i64).max(other.scale as i64).clamp(0, DIVISION_SCALE_MAX) as usize;
        self.div_at(other, scale)
    }

    fn div_at(&self, other: &Decimal, scale: usize) -> SqlResult<Decimal> {
        if other.is_zero() {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        // One digit more than the result needs; round() removes it.
        let raised = scale + 1 + other.scale;
        let mut digits = self.digits.clone();
        let (mut divisor, shift) = (other.digits.clone(), raised as i64 - self.scale as i64);
        if shift >= 0 {
            digits.resize(digits.len() + shift as usize, 0);
        } else {
            divisor.resize(divisor.len() + shift.unsigned_abs() as usize, 0);
        }
        let (quotient, _) = div_digits(&strip(digits), &divisor);
        Decimal::signed(self.negative != other.negative, quotient, scale + 1)?.round(scale as i64)
    }

    /// The integer quotient, truncated towards zero. 22012 for zero.
    pub fn quotient(&self, other: &Decimal) -> SqlResult<Decimal> {
        if other.is_zero() {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        let scale = self.scale.max(other.scale);
        let (quotient, _) = div_digits(&self.scaled(scale), &other.scaled(scale));
        Decimal::signed(self.negative != other.negative, quotient, 0)
    }

    /// Remainder with the sign of the dividend. 22012 for zero.
    pub fn rem(&self, other: &Decimal) -> SqlResult<Decimal> {
        if other.is_zero() {
            return Err(SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero"));
        }
        let scale = self.scale.max(other.scale);
        let (_, rest) = div_digits(&self.scaled(scale), &other.scaled(scale));
        Decimal::signed(self.negative, rest, scale)
    }

    /// Rounds half away from zero to `scale` digits after the point; a negative `scale` counts digits before it.
    pub fn round(&self, scale: i64) -> SqlResult<Decimal> {
        self.cut(scale, true)
    }

    /// Drops the digits after `scale`.
    pub fn trunc(&self, scale: i64) -> SqlResult<Decimal> {
        self.cut(scale, false)
    }

    fn cut(&self, scale: i64, rounds: bool) -> SqlResult<Decimal> {
        let shown = scale.clamp(0, SCALE_MAX as i64) as usize;
        if scale >= self.scale as i64 {
            let digits = self.scaled(shown.max(self.scale));
            return Decimal::signed(self.negative, digits, shown.max(self.scale));
        }
        let drop = (self.scale as i64).saturating_sub(scale) as usize;
        let keep = self.digits.len().saturating_sub(drop);
        let mut digits = self.digits[..keep].to_vec();
        let first_dropped = if drop <= self.digits.len() { self.digits.get(keep).copied().unwrap_or(0) } else { 0 };
        if rounds && first_dropped >= 5 {
            digits = add_digits(&digits, &[1]);
        }
        if scale < 0 && !digits.is_empty() {
            digits.resize(digits.len() + scale.unsigned_abs().min(INTEGER_DIGITS_MAX as u64) as usize, 0);
        }
        Decimal::signed(self.negative, digits, shown)
    }

    /// Rounds towards plus or minus infinity to an integer.
    pub fn to_integer(&self, up: bool) -> SqlResult<Decimal> {
        let whole = self.trunc(0)?;
        if self.cmp(&whole) == Ordering::Equal || self.negative == up {
            return Ok(whole);
        }
        let one = Decimal { negative: !up, digits: vec![1], scale: 0 };
        whole.add(&one)
    }

    /// Applies numeric(p,s): rounds; 22003 where the number does not fit.
    pub fn fit(&self, precision: u32, scale: u32) -> SqlResult<Decimal> {
        let rounded = self.round(i64::from(scale))?;
        if rounded.digits.len() > precision as usize {
            let detail = format!(
                "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{}.",
                precision - scale
            );
            return Err(
                SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "numeric field overflow").with_detail(detail)
            );
        }
        Ok(rounded)
    }

    /// The nearest integer, or `None` where it does not fit an i64.
    pub fn to_i64(&self) -> Option<i64> {
        self.round(0).ok()?.to_string().parse().ok()
    }

    pub fn to_f64(&self) -> f64 {
        self.to_string().parse().unwrap_or(f64::NAN)
    }

    /// A key that sorts as the numbers do and is equal for equal numbers: sign, length of the integer part, digits.
    pub fn sort_key(&self) -> Vec<u8> {
        let number = self.clone().without_trailing_zeros();
        if number.is_zero() {
            return vec![1];
        }
        let exponent = number.digits.len() as i64 - number.scale as i64 + (1 << 20);
        let mut key = vec![2];
        key.extend_from_slice(&(exponent as u32).to_be_bytes());
        let significant = number.digits.iter().rposition(|d| *d != 0).map_or(0, |last| last + 1);
        key.extend(number.digits[..significant].iter().map(|d| d + 1));
        key.push(0);
        if number.negative {
            key.iter_mut().skip(1).for_each(|b| *b = !*b);
            key[0] = 0;
        }
        key
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Decimal) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Decimal) -> Ordering {
        match (self.negative, other.negative) {
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            _ => {}
        }
        let scale = self.scale.max(other.scale);
        let order = compare_digits(&self.scaled(scale), &other.scaled(scale));
        if self.negative { order.reverse() } else { order }
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.negative {
            f.write_str("-")?;
        }
        let zeros = (self.scale + 1).saturating_sub(self.digits.len());
        let text: String =
            std::iter::repeat_n(0, zeros).chain(self.digits.iter().copied()).map(|d| (d + b'0') as char).collect();
        let (whole, fraction) = text.split_at(text.len() - self.scale);
        f.write_str(whole)?;
        if !fraction.is_empty() {
            write!(f, ".{fraction}")?;
        }
        Ok(())
    }
}

fn overflow() -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value overflows numeric format")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn d(text: &str) -> Decimal {
        Decimal::parse(text).unwrap()
    }

    /// Every expected value was printed by PostgreSQL 15.
    #[test]
    fn arithmetic_prints_as_postgresql_does() {
        let cases = [
            (d("1.5").add(&d("2.25")), "3.75"),
            (d("0.1").sub(&d("0.30")), "-0.20"),
            (d("1.5").mul(&d("2.50")), "3.750"),
            (d("1").div(&d("3")), "0.33333333333333333333"),
            (d("3").div(&d("2")), "1.5000000000000000"),
            (d("10000").div(&d("3")), "3333.3333333333333333"),
            (d("1").div(&d("7000")), "0.00014285714285714286"),
            (d("-7.5").rem(&d("2")), "-1.5"),
            (d("2.5").round(0), "3"),
            (d("-2.5").round(0), "-3"),
            (d("1234.567").round(-2), "1200"),
            (d("1234.567").trunc(1), "1234.5"),
            (d("-0.5").to_integer(true), "0"),
            (d("-0.5").to_integer(false), "-1"),
            (d("1e3").add(&d("0")), "1000"),
            (d("1.5e-3").add(&d("0")), "0.0015"),
            (d("99.995").fit(5, 2), "100.00"),
        ];
        for (found, expected) in cases {
            assert_eq!(found.unwrap().to_string(), expected);
        }
        assert_eq!(d("1000").fit(5, 2).unwrap_err().state(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
        assert_eq!(d("1").div(&d("0.00")).unwrap_err().state(), SqlState::DIVISION_BY_ZERO);
    }

    /// The schoolbook method and the library agree on both sides of the bound, and the longest numbers take no minutes.
    #[test]
    fn long_numbers_are_computed_as_short_ones() {
        for length in [20, 31, 32, 33, 40, 200] {
            let (a, b) = (d(&"7".repeat(length)), d(&"39".repeat(length / 2)));
            let product = a.mul(&b).unwrap();
            assert_eq!(product.div_at(&b, 0).unwrap(), a, "{length}");
            let rest = product.add(&d("5")).unwrap().rem(&b).unwrap();
            assert_eq!(rest, d("5"), "{length}");
            assert_eq!(div_digits(&a.digits, &a.digits), (vec![1], vec![]), "{length}");
        }
        assert!(d("9").mul(&d(&"0".repeat(100))).unwrap().is_zero());
        let longest = d(&"9".repeat(INTEGER_DIGITS_MAX));
        assert_eq!(longest.mul(&longest).unwrap_err().state(), SqlState::NUMERIC_VALUE_OUT_OF_RANGE);
        assert_eq!(longest.div_at(&longest, 0).unwrap().to_string(), "1");
    }

    #[test]
    fn bad_text_is_22p02() {
        for text in ["", "-", ".", "1.2.3", "1e", "abc", "1 2", "0x1"] {
            let state = Decimal::parse(text).unwrap_err().state();
            assert_eq!(state, SqlState::INVALID_TEXT_REPRESENTATION, "{text}");
        }
    }

    #[test]
    fn sort_keys_order_as_the_numbers() {
        let sorted =
            ["-1000", "-12.5", "-12", "-0.1", "-0.01", "0", "0.001", "0.01", "0.1", "1", "1.1", "1.11", "2", "10"];
        for pair in sorted.windows(2) {
            assert!(d(pair[0]).sort_key() < d(pair[1]).sort_key(), "{pair:?}");
            assert_eq!(d(pair[0]).cmp(&d(pair[1])), Ordering::Less);
        }
        assert_eq!(d("1.0").sort_key(), d("1.000").sort_key());
        assert_eq!(d("100").sort_key(), d("1e2").sort_key());
    }
}
