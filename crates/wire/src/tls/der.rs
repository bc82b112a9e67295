//! A reader of DER, as far as certificates need it: tag, length, contents.
//!
//! How it fails: everything that is cut off, longer than what contains it, or not in DER's shortest form of a length is
//! [`DerError`]. Nothing is allocated by a length.

/// Bytes that are not a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate cannot be read: {0}")]
pub struct DerError(pub(super) &'static str);

pub(super) mod tag {
    pub const BOOLEAN: u8 = 0x01;
    pub const INTEGER: u8 = 0x02;
    pub const BIT_STRING: u8 = 0x03;
    pub const OCTET_STRING: u8 = 0x04;
    pub const OID: u8 = 0x06;
    pub const UTF8_STRING: u8 = 0x0c;
    pub const PRINTABLE_STRING: u8 = 0x13;
    pub const T61_STRING: u8 = 0x14;
    pub const IA5_STRING: u8 = 0x16;
    pub const UTC_TIME: u8 = 0x17;
    pub const GENERALIZED_TIME: u8 = 0x18;
    pub const UNIVERSAL_STRING: u8 = 0x1c;
    pub const BMP_STRING: u8 = 0x1e;
    pub const SEQUENCE: u8 = 0x30;
    pub const SET: u8 = 0x31;
    /// The explicit tag `[n]`.
    pub const fn explicit(n: u8) -> u8 {
        0xa0 | n
    }
    /// The implicit tag `[n]` of a primitive value.
    pub const fn implicit(n: u8) -> u8 {
        0x80 | n
    }
}

/// The elements of one value.
#[derive(Clone, Copy)]
pub(super) struct Der<'a>(pub &'a [u8]);

impl<'a> Der<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next element's tag and contents.
    pub fn next(&mut self) -> Result<(u8, &'a [u8]), DerError> {
        const CUT: DerError = DerError("it is cut off");
        let [tag, first, rest @ ..] = self.0 else { return Err(CUT) };
        if tag & 0x1f == 0x1f {
            return Err(DerError("it has a tag of several bytes"));
        }
        let (length, rest) = match first {
            short @ 0..=0x7f => (usize::from(*short), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f)).ok_or(CUT)?;
                let length = bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte));
                if length < 0x80 || bytes.first() == Some(&0) {
                    return Err(DerError("a length is not in its shortest form"));
                }
                (length, rest)
            }
            _ => return Err(DerError("a length is not valid")),
        };
        let (contents, rest) = rest.split_at_checked(length).ok_or(CUT)?;
        self.0 = rest;
        Ok((*tag, contents))
    }

    /// The contents of the next element, which has this tag.
    pub fn expect(&mut self, tag: u8) -> Result<&'a [u8], DerError> {
        match self.next()? {
            (found, contents) if found == tag => Ok(contents),
            _ => Err(DerError("it has another structure than a certificate")),
        }
    }

    /// The contents of the next element if it has this tag.
    pub fn optional(&mut self, tag: u8) -> Result<Option<&'a [u8]>, DerError> {
        if self.0.first() == Some(&tag) { self.expect(tag).map(Some) } else { Ok(None) }
    }
}

/// An object identifier in dots.
pub(super) fn oid_text(oid: &[u8]) -> String {
    let mut numbers: Vec<u64> = Vec::new();
    let mut number: u64 = 0;
    for byte in oid {
        number = number.saturating_mul(128).saturating_add(u64::from(byte & 0x7f));
        if byte & 0x80 == 0 {
            if numbers.is_empty() {
                let first = (number / 40).min(2);
                numbers.push(first);
                number -= first * 40;
            }
            numbers.push(std::mem::take(&mut number));
        }
    }
    numbers.iter().map(u64::to_string).collect::<Vec<_>>().join(".")
}

/// An unsigned integer, big-endian, in decimal.
pub(super) fn decimal(mut bytes: &[u8]) -> String {
    while let [0, rest @ ..] = bytes {
        bytes = rest;
    }
    // Groups of nine digits, the lowest first.
    let mut groups: Vec<u64> = vec![0];
    const GROUP: u64 = 1_000_000_000;
    for byte in bytes {
        let mut carry = u64::from(*byte);
        for group in &mut groups {
            let value = *group * 256 + carry;
            *group = value % GROUP;
            carry = value / GROUP;
        }
        if carry > 0 {
            groups.push(carry);
        }
    }
    let mut groups = groups.iter().rev();
    let first = groups.next().map_or_else(String::new, u64::to_string);
    groups.fold(first, |text, group| format!("{text}{group:09}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_decimal() {
        assert_eq!(decimal(&[]), "0");
        assert_eq!(decimal(&[0, 0, 1]), "1");
        assert_eq!(decimal(&[0xff; 8]), u64::MAX.to_string());
        assert_eq!(decimal(&[0xff; 16]), u128::MAX.to_string());
        assert_eq!(decimal(&1_000_000_000_000_000_000_u64.to_be_bytes()), "1000000000000000000");
        assert_eq!(oid_text(&[0x55, 4, 3]), "2.5.4.3");
        assert_eq!(oid_text(&[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1]), "1.2.840.113549.1.9.1");
    }

    #[test]
    fn lengths_are_checked() {
        let next = |bytes: &[u8]| Der(bytes).next().map(|(tag, contents)| (tag, contents.len()));
        assert_eq!(next(&[4, 1, 9]), Ok((4, 1)));
        for wrong in
            [&[][..], &[4], &[4, 2, 9], &[4, 0x80, 9], &[4, 0x81, 1, 9], &[4, 0x85, 0, 0, 0, 0, 1, 9], &[0x1f, 0]]
        {
            assert!(next(wrong).is_err(), "{wrong:?}");
        }
        let long = [[4, 0x82, 1, 0].as_slice(), &[7; 256]].concat();
        assert_eq!(next(&long), Ok((4, 256)));
        assert!(next(&long[..200]).is_err());
    }
}
