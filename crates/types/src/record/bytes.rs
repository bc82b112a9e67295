//! Encodes numbers, strings and cells of SQLite values as bytes, and reads them back with a cursor.
//!
//! | what | bytes |
//! |---|---|
//! | u16, u32, u64 | little-endian |
//! | varint | 7 bits a byte, lowest first, top bit set on all but the last; at most 10 bytes |
//! | signed varint | varint of `(n << 1) ^ (n >> 63)` |
//! | string, bytes | varint length, then the bytes |
//! | cell | one tag byte: low three bits the class, high five bits the size of an integer; then the content |
//!
//! | cell class | content |
//! |---|---|
//! | 0 null | nothing |
//! | 1 integer | as many bytes as the tag says (0 to 8), little-endian, sign-extended; none for zero |
//! | 2 real | 8 bytes, IEEE 754, little-endian: every bit pattern survives |
//! | 3 text | varint length, bytes as stored (SQLite does not check UTF-8) |
//! | 4 blob | varint length, bytes |
//!
//! Failure: reading past the end or an unknown tag is a [`DecodeError`]; nothing here panics on any input.

use super::DecodeError;
use crate::value::ValueRef;

const CLASS_NULL: u8 = 0;
const CLASS_INT: u8 = 1;
const CLASS_REAL: u8 = 2;
const CLASS_TEXT: u8 = 3;
const CLASS_BLOB: u8 = 4;

pub(super) fn put_varint(buf: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        buf.push(n as u8 | 0x80);
        n >>= 7;
    }
    buf.push(n as u8);
}

pub(super) fn put_signed(buf: &mut Vec<u8>, n: i64) {
    put_varint(buf, ((n << 1) ^ (n >> 63)) as u64);
}

pub(super) fn put_bytes(buf: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(buf, bytes.len() as u64);
    buf.extend_from_slice(bytes);
}

/// Appends one cell.
pub fn put_cell(buf: &mut Vec<u8>, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => buf.push(CLASS_NULL),
        ValueRef::Int(n) => {
            let size = int_size(n);
            buf.push(CLASS_INT | (size as u8) << 3);
            buf.extend_from_slice(&n.to_le_bytes()[..size]);
        }
        ValueRef::Real(r) => {
            buf.push(CLASS_REAL);
            buf.extend_from_slice(&r.to_bits().to_le_bytes());
        }
        ValueRef::Text(t) => {
            buf.push(CLASS_TEXT);
            put_bytes(buf, t);
        }
        ValueRef::Blob(b) => {
            buf.push(CLASS_BLOB);
            put_bytes(buf, b);
        }
    }
}

/// Takes one cell from the front of `bytes`.
pub fn take_cell<'a>(bytes: &mut &'a [u8]) -> Result<ValueRef<'a>, DecodeError> {
    let mut cursor = Cursor::new(bytes);
    let cell = cursor.cell()?;
    *bytes = cursor.rest();
    Ok(cell)
}

/// The smallest number of bytes that hold `n` with its sign.
fn int_size(n: i64) -> usize {
    if n == 0 {
        return 0;
    }
    let magnitude = if n < 0 { !n } else { n };
    (64 - magnitude.leading_zeros() as usize) / 8 + 1
}

/// Reads from the front of a slice and remembers its offset for error messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Cursor<'a> {
        Cursor { bytes, at: 0 }
    }

    pub fn at(&self) -> usize {
        self.at
    }

    /// The bytes that were not read yet.
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    pub fn remaining(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let end = self.at.checked_add(len).filter(|&end| end <= self.bytes.len());
        let Some(end) = end else {
            return Err(DecodeError::Short { at: self.at, needed: len, left: self.remaining() });
        };
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.array::<1>()?[0])
    }

    pub fn u16(&mut self) -> Result<u16, DecodeError> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let start = self.at;
        let mut n = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            n |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                // The tenth byte has room for only one bit.
                return if shift == 63 && byte > 1 { Err(DecodeError::Number { at: start }) } else { Ok(n) };
            }
        }
        Err(DecodeError::Number { at: start })
    }

    pub fn signed(&mut self) -> Result<i64, DecodeError> {
        let n = self.varint()?;
        Ok((n >> 1) as i64 ^ -((n & 1) as i64))
    }

    /// Reads a varint that counts items in memory.
    pub fn count(&mut self) -> Result<usize, DecodeError> {
        let at = self.at;
        usize::try_from(self.varint()?).map_err(|_| DecodeError::Number { at })
    }

    /// Reads a varint that is a 32-bit number.
    pub fn varint_u32(&mut self) -> Result<u32, DecodeError> {
        let at = self.at;
        u32::try_from(self.varint()?).map_err(|_| DecodeError::Number { at })
    }

    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let len = self.count()?;
        self.take(len)
    }

    pub fn string(&mut self) -> Result<&'a str, DecodeError> {
        let at = self.at;
        std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Utf8 { at })
    }

    pub fn cell(&mut self) -> Result<ValueRef<'a>, DecodeError> {
        let at = self.at;
        let tag = self.u8()?;
        let size = usize::from(tag >> 3);
        match tag & 7 {
            CLASS_INT if size <= 8 => {
                let content = self.take(size)?;
                let fill = if content.last().is_some_and(|&top| top >= 0x80) { 0xff } else { 0 };
                let mut word = [fill; 8];
                word[..size].copy_from_slice(content);
                Ok(ValueRef::Int(i64::from_le_bytes(word)))
            }
            CLASS_NULL if size == 0 => Ok(ValueRef::Null),
            CLASS_REAL if size == 0 => Ok(ValueRef::Real(f64::from_bits(self.u64()?))),
            CLASS_TEXT if size == 0 => Ok(ValueRef::Text(self.bytes()?)),
            CLASS_BLOB if size == 0 => Ok(ValueRef::Blob(self.bytes()?)),
            _ => Err(DecodeError::Tag { what: "cell", tag, at }),
        }
    }

    /// Skips `count` cells and returns their bytes, which are then known to be complete.
    pub fn cells(&mut self, count: usize) -> Result<Cells<'a>, DecodeError> {
        let start = self.at;
        for _ in 0..count {
            self.cell()?;
        }
        Ok(Cells { rest: Cursor::new(&self.bytes[start..self.at]), count })
    }
}

/// A run of cells, in order. They were checked when the run was read, so iterating cannot fail.
#[derive(Clone, Copy, Debug)]
pub struct Cells<'a> {
    rest: Cursor<'a>,
    count: usize,
}

impl<'a> Iterator for Cells<'a> {
    type Item = ValueRef<'a>;

    fn next(&mut self) -> Option<ValueRef<'a>> {
        self.count = self.count.checked_sub(1)?;
        self.rest.cell().ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for Cells<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_at_every_size() {
        let mut numbers = vec![0i64, i64::MIN, i64::MAX];
        for bit in 0..63 {
            numbers.extend([1 << bit, (1 << bit) - 1, -(1 << bit), -(1 << bit) - 1]);
        }
        for n in numbers {
            let mut buf = Vec::new();
            put_signed(&mut buf, n);
            put_cell(&mut buf, ValueRef::Int(n));
            let mut cursor = Cursor::new(&buf);
            assert_eq!(cursor.signed(), Ok(n));
            assert_eq!(cursor.cell(), Ok(ValueRef::Int(n)));
            assert!(cursor.is_empty());
        }
    }

    #[test]
    fn a_varint_of_more_than_64_bits_is_refused() {
        let bytes = [0xff; 11];
        assert_eq!(Cursor::new(&bytes).varint(), Err(DecodeError::Number { at: 0 }));
        let bytes = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2];
        assert_eq!(Cursor::new(&bytes).varint(), Err(DecodeError::Number { at: 0 }));
    }

    #[test]
    fn a_cell_of_each_class_has_these_bytes() {
        let cells: [(ValueRef<'_>, &[u8]); 8] = [
            (ValueRef::Null, &[0]),
            (ValueRef::Int(0), &[1]),
            (ValueRef::Int(-1), &[0x09, 0xff]),
            (ValueRef::Int(128), &[0x11, 0x80, 0]),
            (ValueRef::Int(i64::MIN), &[0x41, 0, 0, 0, 0, 0, 0, 0, 0x80]),
            (ValueRef::Real(-0.0), &[2, 0, 0, 0, 0, 0, 0, 0, 0x80]),
            (ValueRef::Text(b"a\0b"), &[3, 3, b'a', 0, b'b']),
            (ValueRef::Blob(&[]), &[4, 0]),
        ];
        for (value, bytes) in cells {
            let mut buf = Vec::new();
            put_cell(&mut buf, value);
            assert_eq!(buf, bytes, "{value:?}");
            assert_eq!(Cursor::new(bytes).cell(), Ok(value));
            let mut rest = bytes;
            assert_eq!((take_cell(&mut rest), rest.len()), (Ok(value), 0));
        }
    }
}
