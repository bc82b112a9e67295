//! Reads rows from COPY data. The data arrives in pieces that may end anywhere; a row is returned as soon as its line
//! is complete.

use super::CopyFormat;
use holdfast_types::{SqlError, SqlResult, SqlState};

/// The longest line, and so the most data that is kept until a line ends.
const LINE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// Reads rows from COPY data.
pub struct CopyReader {
    format: CopyFormat,
    /// Names of the columns, for messages; a line must have this number of fields.
    columns: Vec<String>,
    buffer: Vec<u8>,
    /// The start of the data that has not been read yet.
    at: usize,
    /// The buffer has been searched for the line's end up to here, and whether this position is within quotes.
    searched: usize,
    in_quotes: bool,
    line: u64,
    header_due: bool,
    /// `\.` was read, or the client sent CopyDone.
    ended: bool,
    eof: bool,
}

impl CopyReader {
    pub fn new(format: CopyFormat, columns: Vec<String>) -> CopyReader {
        let header_due = format.header;
        CopyReader {
            format,
            columns,
            buffer: Vec::new(),
            at: 0,
            searched: 0,
            in_quotes: false,
            line: 0,
            header_due,
            ended: false,
            eof: false,
        }
    }

    /// The number of the last line read, from 1.
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Adds data that has arrived.
    pub fn feed(&mut self, data: &[u8]) {
        self.buffer.drain(..self.at);
        self.searched -= self.at;
        self.at = 0;
        self.buffer.extend_from_slice(data);
    }

    /// Ends the data. A last line without an end of line counts as a line.
    pub fn finish(&mut self) {
        self.eof = true;
    }

    /// Reads the next row into `row`; `None` is NULL. `false` if more data is needed or all has been read.
    pub fn next_row(&mut self, row: &mut Vec<Option<String>>) -> SqlResult<bool> {
        loop {
            let Some((start, end)) = self.next_line()? else { return Ok(false) };
            self.line += 1;
            if std::mem::take(&mut self.header_due) {
                continue;
            }
            let line = &self.buffer[start..end];
            if line == b"\\." {
                self.ended = true;
                return Ok(false);
            }
            row.clear();
            let split =
                if self.format.csv { split_csv(line, &self.format, row) } else { split_text(line, &self.format, row) };
            split
                .and_then(|()| self.check_width(row))
                .map_err(|e| e.with_detail(format!("COPY, line {}", self.line)))?;
            return Ok(true);
        }
    }

    fn check_width(&self, row: &mut Vec<Option<String>>) -> SqlResult<()> {
        if self.columns.is_empty() && row.len() == 1 {
            row.clear();
        }
        if row.len() > self.columns.len() {
            return Err(bad("extra data after last expected column"));
        }
        match self.columns.get(row.len()) {
            Some(missing) => Err(bad(format!("missing data for column \"{missing}\""))),
            None => Ok(()),
        }
    }

    /// The bounds of the next complete line without its end of line.
    fn next_line(&mut self) -> SqlResult<Option<(usize, usize)>> {
        if self.ended {
            return Ok(None);
        }
        let start = self.at;
        while self.searched < self.buffer.len() {
            let byte = self.buffer[self.searched];
            if self.format.csv {
                // A doubled quote flips twice; an escape other than the quote hides the byte after it.
                if self.in_quotes && byte == self.format.escape && self.format.escape != self.format.quote {
                    if self.searched + 1 == self.buffer.len() && !self.eof {
                        return Ok(None);
                    }
                    self.searched = (self.searched + 2).min(self.buffer.len());
                    continue;
                }
                self.in_quotes ^= byte == self.format.quote;
            }
            self.searched += 1;
            if byte == b'\n' && !self.in_quotes {
                self.at = self.searched;
                let end = self.searched - 1;
                let end = if end > start && self.buffer[end - 1] == b'\r' { end - 1 } else { end };
                return Ok(Some((start, end)));
            }
        }
        if self.buffer.len() - start > LINE_BYTES_MAX {
            return Err(SqlError::new(
                SqlState::PROGRAM_LIMIT_EXCEEDED,
                format!("COPY, line {}: longer than {LINE_BYTES_MAX} bytes", self.line + 1),
            ));
        }
        if !self.eof || start == self.buffer.len() {
            return Ok(None);
        }
        if self.in_quotes {
            return Err(bad("unterminated CSV quoted field").with_detail(format!("COPY, line {}", self.line + 1)));
        }
        self.at = self.buffer.len();
        Ok(Some((start, self.buffer.len())))
    }
}

fn bad(message: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::BAD_COPY_FILE_FORMAT, message)
}

fn utf8(bytes: Vec<u8>) -> SqlResult<String> {
    match String::from_utf8(bytes) {
        Ok(text) if !text.as_bytes().contains(&0) => Ok(text),
        _ => Err(SqlError::new(SqlState::CHARACTER_NOT_IN_REPERTOIRE, "invalid byte sequence for encoding \"UTF8\"")),
    }
}

fn split_text(line: &[u8], format: &CopyFormat, row: &mut Vec<Option<String>>) -> SqlResult<()> {
    let mut rest = line;
    loop {
        // A delimiter after a backslash belongs to the value.
        let mut end = 0;
        while end < rest.len() && rest[end] != format.delimiter {
            end += if rest[end] == b'\\' { 2 } else { 1 };
        }
        let end = end.min(rest.len());
        let raw = &rest[..end];
        row.push(if raw == format.null.as_bytes() { None } else { Some(utf8(unescape(raw))?) });
        match rest.get(end + 1..) {
            Some(after) if end < rest.len() => rest = after,
            _ => return Ok(()),
        }
    }
}

/// Decodes the backslash escapes of text format.
fn unescape(raw: &[u8]) -> Vec<u8> {
    if !raw.contains(&b'\\') {
        return raw.to_vec();
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut at = 0;
    while let Some(&byte) = raw.get(at) {
        at += 1;
        let Some(&letter) = raw.get(at).filter(|_| byte == b'\\') else {
            out.push(byte);
            continue;
        };
        at += 1;
        match letter {
            b'b' => out.push(b'\x08'),
            b'f' => out.push(b'\x0c'),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'v' => out.push(b'\x0b'),
            b'0'..=b'7' => {
                at -= 1;
                out.push(digits(raw, &mut at, 8, 3));
            }
            b'x' if raw.get(at).is_some_and(u8::is_ascii_hexdigit) => out.push(digits(raw, &mut at, 16, 2)),
            other => out.push(other),
        }
    }
    out
}

/// Reads a byte of up to `max` octal or hexadecimal digits at `at`, and moves `at` after them.
fn digits(raw: &[u8], at: &mut usize, radix: u32, max: usize) -> u8 {
    let found = raw[*at..].iter().take(max).map_while(|b| (*b as char).to_digit(radix));
    let (value, n) = found.fold((0, 0), |(value, n), digit| (value * radix + digit, n + 1));
    *at += n;
    value as u8
}

fn split_csv(line: &[u8], format: &CopyFormat, row: &mut Vec<Option<String>>) -> SqlResult<()> {
    let mut at = 0;
    loop {
        let mut field = Vec::new();
        let mut quoted = false;
        let mut within = false;
        while let Some(&byte) = line.get(at) {
            if within {
                let next = line.get(at + 1).copied();
                if byte == format.escape && next.is_some_and(|n| n == format.quote || n == format.escape) {
                    field.extend(next);
                    at += 1;
                } else if byte == format.quote {
                    within = false;
                } else {
                    field.push(byte);
                }
            } else if byte == format.quote {
                (quoted, within) = (true, true);
            } else if byte == format.delimiter {
                break;
            } else {
                field.push(byte);
            }
            at += 1;
        }
        if within {
            return Err(bad("unterminated CSV quoted field"));
        }
        row.push(if !quoted && field == format.null.as_bytes() { None } else { Some(utf8(field)?) });
        if at >= line.len() {
            return Ok(());
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All rows of `data`, fed in pieces of `piece` bytes.
    fn rows(format: CopyFormat, columns: usize, data: &[u8], piece: usize) -> SqlResult<Vec<Vec<Option<String>>>> {
        let mut reader = CopyReader::new(format, (0..columns).map(|i| format!("c{i}")).collect());
        let (mut all, mut row) = (Vec::new(), Vec::new());
        for chunk in data.chunks(piece) {
            reader.feed(chunk);
            while reader.next_row(&mut row)? {
                all.push(row.clone());
            }
        }
        reader.finish();
        while reader.next_row(&mut row)? {
            all.push(row.clone());
        }
        Ok(all)
    }

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    #[test]
    fn text_in_pieces_of_every_size() {
        let data = b"1\ta\\tb\\\\\\n\n2\t\\N\n3\t\\x41\\101\\\t\n\\.\nnever read\n";
        for piece in 1..data.len() {
            let got = rows(CopyFormat::text(), 2, data, piece).unwrap();
            let want =
                [[some("1"), some("a\tb\\\n")], [some("2"), None], [some("3"), some("AA\t")]].map(|r| r.to_vec());
            assert_eq!(got, want, "piece {piece}");
        }
    }

    #[test]
    fn csv_in_pieces_of_every_size() {
        let format = CopyFormat { header: true, ..CopyFormat::csv() };
        let data = b"a,b\r\n1,\"x \"\"y\"\"\nz\"\r\n2,\r\n3,\"\"\r\n4,last";
        for piece in 1..data.len() {
            let got = rows(format.clone(), 2, data, piece).unwrap();
            let want =
                [[some("1"), some("x \"y\"\nz")], [some("2"), None], [some("3"), some("")], [some("4"), some("last")]]
                    .map(|r| r.to_vec());
            assert_eq!(got, want, "piece {piece}");
        }
    }

    #[test]
    fn csv_with_an_escape_of_its_own() {
        let format = CopyFormat { escape: b'\\', delimiter: b';', ..CopyFormat::csv() };
        for piece in 1..10 {
            let got = rows(format.clone(), 2, b"\"a\\\"\nb\";c\n", piece).unwrap();
            assert_eq!(got, [[some("a\"\nb"), some("c")].to_vec()], "piece {piece}");
        }
    }

    #[test]
    fn wrong_widths_and_bad_data_name_the_line() {
        let error = rows(CopyFormat::text(), 2, b"1\t2\n3\n", 100).unwrap_err();
        assert_eq!((error.state().0, error.message()), ("22P04", "missing data for column \"c1\""));
        assert_eq!(error.parts().detail.as_deref(), Some("COPY, line 2"));
        assert!(rows(CopyFormat::text(), 1, b"1\t2\n", 100).is_err());
        assert_eq!(rows(CopyFormat::text(), 1, b"\xff\n", 100).unwrap_err().state().0, "22021");
        assert!(rows(CopyFormat::csv(), 1, b"\"abc", 100).is_err());
    }
}
