//! Converts numeric between its decimal text and PostgreSQL's binary form.
//!
//! | bytes | what |
//! |---|---|
//! | 2 | number of digit groups |
//! | 2 | weight: power of 10000 of the first group |
//! | 2 | sign: 0x0000 plus, 0x4000 minus, 0xC000 NaN, 0xD000 infinity, 0xF000 -infinity |
//! | 2 | digits after the decimal point that are shown |
//! | 2 each | groups of four decimal digits, 0 to 9999 |
//!
//! Source: PostgreSQL, numeric_send and numeric_recv.

const NEGATIVE: u16 = 0x4000;
const NAN: u16 = 0xC000;
const INFINITY: u16 = 0xD000;
const MINUS_INFINITY: u16 = 0xF000;

/// Most digits that a numeric can show after the point (PostgreSQL's NUMERIC_DSCALE_MAX).
const SCALE_MAX: usize = 0x3FFF;

/// Appends the binary form of a decimal text (exponents allowed); `None` if it is not a number.
pub fn to_binary(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let special = match text.to_ascii_lowercase().as_str() {
        "nan" => Some(NAN),
        "infinity" | "inf" => Some(INFINITY),
        "-infinity" | "-inf" => Some(MINUS_INFINITY),
        _ => None,
    };
    if let Some(sign) = special {
        put(out, &[0, 0, sign, 0]);
        return Some(());
    }
    let (sign, unsigned) = match text.as_bytes().first()? {
        b'-' => (NEGATIVE, &text[1..]),
        b'+' => (0, &text[1..]),
        _ => (0, text),
    };
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (unsigned, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    // The position of the decimal point in `digits`, and the number of digits after it.
    let point = i32::try_from(whole.len()).ok()?.checked_add(exponent)?;
    let scale = usize::try_from((i64::try_from(digits.len()).ok()? - i64::from(point)).max(0)).ok()?;
    if scale > SCALE_MAX || point > 131_072 {
        return None;
    }
    let (groups, weight) = groups(&digits, point);
    let weight = if groups.is_empty() { 0 } else { weight };
    let sign = if groups.is_empty() { 0 } else { sign };
    put(out, &[u16::try_from(groups.len()).ok()?, weight as u16, sign, scale as u16]);
    put(out, &groups);
    Some(())
}

/// Groups of four digits around the decimal point, without zero groups at either end, and the weight of the first
/// group.
fn groups(digits: &[u8], point: i32) -> (Vec<u16>, i16) {
    let first_weight = (point - 1).div_euclid(4);
    // Leading zeros align the groups with the point.
    let pad = ((first_weight + 1) * 4 - point) as usize;
    let mut groups: Vec<u16> = Vec::with_capacity((pad + digits.len()).div_ceil(4));
    let padded: Vec<u8> = std::iter::repeat_n(b'0', pad).chain(digits.iter().copied()).collect();
    for chunk in padded.chunks(4) {
        let value = (0..4).fold(0u16, |n, i| n * 10 + u16::from(chunk.get(i).copied().unwrap_or(b'0') - b'0'));
        groups.push(value);
    }
    let leading = groups.iter().take_while(|&&g| g == 0).count();
    groups.drain(..leading);
    while groups.last() == Some(&0) {
        groups.pop();
    }
    (groups, (first_weight - leading as i32) as i16)
}

fn put(out: &mut Vec<u8>, words: &[u16]) {
    for word in words {
        out.extend_from_slice(&word.to_be_bytes());
    }
}

/// The decimal text of a binary numeric; `None` if the bytes are not one.
pub fn from_binary(bytes: &[u8]) -> Option<String> {
    let (words, odd) = bytes.as_chunks::<2>();
    let words: Vec<u16> = words.iter().map(|w| u16::from_be_bytes(*w)).collect();
    let [count, weight, sign, scale, groups @ ..] = words.as_slice() else { return None };
    if !odd.is_empty() || groups.len() != usize::from(*count) || groups.iter().any(|&g| g > 9999) {
        return None;
    }
    let (weight, scale) = (i32::from(*weight as i16), usize::from(*scale));
    let mut text = match *sign {
        0 => String::new(),
        NEGATIVE => String::from("-"),
        NAN => return Some("NaN".into()),
        INFINITY => return Some("Infinity".into()),
        MINUS_INFINITY => return Some("-Infinity".into()),
        _ => return None,
    };
    if scale > SCALE_MAX {
        return None;
    }
    let group = |w: i32| usize::try_from(weight - w).ok().and_then(|i| groups.get(i)).copied().unwrap_or(0);
    match weight {
        ..0 => text.push('0'),
        _ => {
            text.push_str(&group(weight).to_string());
            for w in (0..weight).rev() {
                text.push_str(&format!("{:04}", group(w)));
            }
        }
    }
    if scale > 0 {
        text.push('.');
        let end = text.len() + scale;
        let mut w = -1;
        while text.len() < end {
            text.push_str(&format!("{:04}", group(w)));
            w -= 1;
        }
        text.truncate(end);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(text: &str) -> Vec<u8> {
        let mut out = Vec::new();
        to_binary(text, &mut out).unwrap();
        out
    }

    #[test]
    fn bytes_as_postgresql_sends_them() {
        assert_eq!(binary("0"), [0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(binary("12345.678"), [0, 3, 0, 1, 0, 0, 0, 3, 0, 1, 0x09, 0x29, 0x1A, 0x7C]);
        assert_eq!(binary("-0.0001"), [0, 1, 0xFF, 0xFF, 0x40, 0, 0, 4, 0, 1]);
        assert_eq!(binary("NaN"), [0, 0, 0, 0, 0xC0, 0, 0, 0]);
    }

    #[test]
    fn text_round_trips() {
        for text in ["0", "1", "-1", "9999", "10000", "0.5", "-12345678901234567890.12345", "100000000", "0.00000001"] {
            assert_eq!(from_binary(&binary(text)).unwrap(), text);
        }
        assert_eq!(from_binary(&binary("1e3")).unwrap(), "1000");
        assert_eq!(from_binary(&binary("1.5e-3")).unwrap(), "0.0015");
        assert_eq!(from_binary(&binary("007.10")).unwrap(), "7.10");
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-", "x", "1.2.3", "1e", "1e999999999", "."] {
            assert_eq!(to_binary(text, &mut Vec::new()), None, "{text}");
        }
        assert_eq!(from_binary(&[0, 1, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(from_binary(&[0]), None);
    }
}
