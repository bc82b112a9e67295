//! Messages from the client, read in place from the input buffer.
//!
//! | bytes | what |
//! |---|---|
//! | 1 | type letter (not in start-up packets) |
//! | 4 | length, itself included, big-endian |
//! | n | body |
//!
//! Every read is checked against the end of its message. A message that is too short or has bytes left over is
//! [`Malformed`], which the connection reports as 08P01 before it closes. Source: PostgreSQL manual, chapter "Message
//! Formats".

use crate::limits::{Limits, SMALL_MESSAGE_BYTES_MAX};

/// A message that violates the protocol; the text is the error's message.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub String);

impl Malformed {
    fn new(what: impl Into<String>) -> Malformed {
        Malformed(what.into())
    }
}

type Checked<T> = Result<T, Malformed>;

/// The length of a message header in bytes: type and length.
pub const HEADER_BYTES: usize = 5;

/// Type and body length of the message at the start of `input`, once its header has arrived. Checks the length against
/// the limit of its type, so that no memory is allocated for a length that is only claimed.
pub fn header(input: &[u8], limits: &Limits) -> Checked<Option<(u8, usize)>> {
    let Some((&kind, rest)) = input.split_first() else { return Ok(None) };
    let max = match kind {
        b'Q' | b'P' | b'B' | b'd' | b'F' => limits.message_bytes_max,
        b'D' | b'E' | b'C' | b'S' | b'H' | b'X' | b'c' | b'f' | b'p' => SMALL_MESSAGE_BYTES_MAX,
        _ => return Err(Malformed::new(format!("invalid frontend message type {kind}"))),
    };
    let Some(length) = rest.first_chunk::<4>() else { return Ok(None) };
    let length = i32::from_be_bytes(*length);
    let body = usize::try_from(length).ok().and_then(|n| n.checked_sub(4));
    match body {
        Some(bytes) if bytes <= max => Ok(Some((kind, bytes))),
        Some(bytes) => Err(Malformed::new(format!(
            "message of type \"{}\" with {bytes} bytes exceeds the limit of {max} bytes",
            kind as char
        ))),
        None => Err(Malformed::new(format!("invalid message length {length}"))),
    }
}

/// Reads the fields of one message body.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub fn new(body: &'a [u8]) -> Fields<'a> {
        Fields(body)
    }

    pub fn bytes(&mut self, n: usize) -> Checked<&'a [u8]> {
        match self.0.split_at_checked(n) {
            Some((head, rest)) => {
                self.0 = rest;
                Ok(head)
            }
            None => Err(Malformed::new("insufficient data left in message")),
        }
    }

    fn array<const N: usize>(&mut self) -> Checked<[u8; N]> {
        match self.0.split_first_chunk::<N>() {
            Some((head, rest)) => {
                self.0 = rest;
                Ok(*head)
            }
            None => Err(Malformed::new("insufficient data left in message")),
        }
    }

    pub fn u8(&mut self) -> Checked<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub fn i16(&mut self) -> Checked<i16> {
        self.array().map(i16::from_be_bytes)
    }

    /// Reads a count of items of at least `item_bytes` each. Fails if the message is too short for them.
    pub fn count(&mut self, item_bytes: usize) -> Checked<usize> {
        let n = self.array().map(u16::from_be_bytes)? as usize;
        if n * item_bytes > self.0.len() {
            return Err(Malformed::new("insufficient data left in message"));
        }
        Ok(n)
    }

    pub fn i32(&mut self) -> Checked<i32> {
        self.array().map(i32::from_be_bytes)
    }

    pub fn u32(&mut self) -> Checked<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a string that ends with a zero byte; it must be UTF-8.
    pub fn text(&mut self) -> Checked<&'a str> {
        let Some(end) = memchr::memchr(0, self.0) else { return Err(Malformed::new("invalid string in message")) };
        let text = std::str::from_utf8(&self.0[..end])
            .map_err(|_| Malformed::new("invalid byte sequence for encoding \"UTF8\" in message"))?;
        self.0 = &self.0[end + 1..];
        Ok(text)
    }

    /// Fails if the message has bytes left.
    pub fn end(self) -> Checked<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed::new("invalid message format: trailing bytes")) }
    }

    pub fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads a Query message: the text of the simple protocol.
pub fn query(body: &[u8]) -> Checked<&str> {
    let mut fields = Fields::new(body);
    let text = fields.text()?;
    fields.end()?;
    Ok(text)
}

pub struct Parse<'a> {
    pub name: &'a str,
    pub sql: &'a str,
    /// Type OIDs that the client asks for; 0 leaves the choice to the server.
    pub param_types: Vec<u32>,
}

pub fn parse(body: &[u8]) -> Checked<Parse<'_>> {
    let mut fields = Fields::new(body);
    let (name, sql) = (fields.text()?, fields.text()?);
    let n = fields.count(4)?;
    let param_types = (0..n).map(|_| fields.u32()).collect::<Checked<_>>()?;
    fields.end()?;
    Ok(Parse { name, sql, param_types })
}

/// Format codes as Bind sends them: none (all text), one for all, or one each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Formats {
    #[default]
    Text,
    Binary,
    Each(Box<[bool]>),
}

impl Formats {
    fn read(fields: &mut Fields<'_>) -> Checked<Formats> {
        let n = fields.count(2)?;
        if n <= 1 {
            let binary = n == 1 && format_code(fields.i16()?)?;
            return Ok(if binary { Formats::Binary } else { Formats::Text });
        }
        Ok(Formats::Each((0..n).map(|_| format_code(fields.i16()?)).collect::<Checked<_>>()?))
    }

    /// True if column or parameter `i` is in binary format.
    pub fn is_binary(&self, i: usize) -> bool {
        match self {
            Formats::Text => false,
            Formats::Binary => true,
            Formats::Each(each) => each.get(i).copied().unwrap_or(false),
        }
    }

    /// The number of codes if they are given one by one; `None` if one code holds for all.
    pub fn count(&self) -> Option<usize> {
        match self {
            Formats::Each(each) => Some(each.len()),
            _ => None,
        }
    }
}

fn format_code(code: i16) -> Checked<bool> {
    match code {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(Malformed::new(format!("unsupported format code: {code}"))),
    }
}

pub struct Bind<'a> {
    pub portal: &'a str,
    pub statement: &'a str,
    pub param_formats: Formats,
    pub param_count: usize,
    /// The parameters, `param_count` of them, to be read with [`param`]; then the result formats.
    pub rest: Fields<'a>,
}

pub fn bind(body: &[u8]) -> Checked<Bind<'_>> {
    let mut fields = Fields::new(body);
    let (portal, statement) = (fields.text()?, fields.text()?);
    let param_formats = Formats::read(&mut fields)?;
    let param_count = fields.count(4)?;
    Ok(Bind { portal, statement, param_formats, param_count, rest: fields })
}

/// Reads the next parameter of a Bind: `None` is NULL.
pub fn param<'a>(fields: &mut Fields<'a>) -> Checked<Option<&'a [u8]>> {
    match fields.i32()? {
        -1 => Ok(None),
        n => {
            let n = usize::try_from(n).map_err(|_| Malformed::new(format!("invalid parameter length {n}")))?;
            fields.bytes(n).map(Some)
        }
    }
}

/// Reads the result formats at the end of a Bind.
pub fn result_formats(mut fields: Fields<'_>) -> Checked<Formats> {
    let formats = Formats::read(&mut fields)?;
    fields.end()?;
    Ok(formats)
}

/// The object of a Describe or Close.
#[derive(Debug, PartialEq, Eq)]
pub enum Target<'a> {
    Statement(&'a str),
    Portal(&'a str),
}

pub fn target(body: &[u8]) -> Checked<Target<'_>> {
    let mut fields = Fields::new(body);
    let kind = fields.u8()?;
    let name = fields.text()?;
    fields.end()?;
    match kind {
        b'S' => Ok(Target::Statement(name)),
        b'P' => Ok(Target::Portal(name)),
        _ => Err(Malformed::new(format!("invalid message subtype {kind}"))),
    }
}

/// Reads an Execute: the portal, and the largest number of rows to return, 0 for all.
pub fn execute(body: &[u8]) -> Checked<(&str, usize)> {
    let mut fields = Fields::new(body);
    let portal = fields.text()?;
    let rows_max = fields.i32()?;
    fields.end()?;
    Ok((portal, usize::try_from(rows_max).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_refuses_what_it_should() {
        let limits = Limits { message_bytes_max: 100, ..Limits::default() };
        assert_eq!(header(b"", &limits), Ok(None));
        assert_eq!(header(b"Q\0\0\0", &limits), Ok(None));
        assert_eq!(header(b"Q\0\0\0\x09", &limits), Ok(Some((b'Q', 5))));
        assert!(header(b"Q\0\0\0\x03", &limits).is_err());
        assert!(header(b"Q\xff\xff\xff\xff", &limits).is_err());
        assert!(header(b"Q\0\0\0\x69", &limits).is_err(), "101 bytes");
        assert!(header(b"S\0\0\x40\0", &limits).is_err(), "a Sync of 16 KB");
        assert!(header(b"z", &limits).is_err());
    }

    #[test]
    fn every_truncation_of_a_bind_is_refused() {
        let mut body = b"portal\0stmt\0".to_vec();
        body.extend(b"\0\x01\0\x01"); // one format: binary
        body.extend(b"\0\x02\0\0\0\x04\0\0\0\x07\xff\xff\xff\xff"); // two parameters: 7, NULL
        body.extend(b"\0\x02\0\0\0\x01"); // result formats: text, binary
        let read = |body: &[u8]| -> Checked<(Vec<Option<Vec<u8>>>, Formats)> {
            let mut b = bind(body)?;
            assert!(b.param_formats.is_binary(1));
            let params =
                (0..b.param_count).map(|_| Ok(param(&mut b.rest)?.map(<[u8]>::to_vec))).collect::<Checked<_>>()?;
            Ok((params, result_formats(b.rest)?))
        };
        let (params, formats) = read(&body).unwrap();
        assert_eq!(params, [Some(vec![0, 0, 0, 7]), None]);
        assert_eq!(formats, Formats::Each(Box::new([false, true])));
        for n in 0..body.len() {
            assert!(read(&body[..n]).is_err(), "cut at {n}");
        }
        body.push(0);
        assert!(read(&body).is_err(), "trailing byte");
    }

    #[test]
    fn counts_are_checked_before_they_are_believed() {
        assert!(parse(b"\0select 1\0\xff\xff").is_err());
        assert!(bind(b"\0\0\xff\xff").is_err());
        let p = parse(b"a\0select $1\0\0\x01\0\0\0\x17").unwrap();
        assert_eq!((p.name, p.sql, p.param_types.as_slice()), ("a", "select $1", &[23u32][..]));
    }
}
