//! Whether a text is JSON (RFC 8259), for json and jsonb input.

/// The deepest nesting that is accepted.
const DEPTH_MAX: usize = 512;

/// True where the text is one JSON value.
pub fn valid(text: &str) -> bool {
    let mut reader = Reader { bytes: text.as_bytes(), at: 0 };
    reader.value(0) && {
        reader.blanks();
        reader.at == reader.bytes.len()
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> u8 {
        self.bytes.get(self.at).copied().unwrap_or(0)
    }

    fn blanks(&mut self) {
        while matches!(self.peek(), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
    }

    fn take(&mut self, b: u8) -> bool {
        self.blanks();
        let found = self.peek() == b;
        self.at += usize::from(found);
        found
    }

    fn value(&mut self, depth: usize) -> bool {
        self.blanks();
        match self.peek() {
            _ if depth > DEPTH_MAX => false,
            b'{' => self.list(b'}', |r| r.take(b'"') && r.string() && r.take(b':') && r.value(depth + 1)),
            b'[' => self.list(b']', |r| r.value(depth + 1)),
            b'"' => {
                self.at += 1;
                self.string()
            }
            b'-' | b'0'..=b'9' => self.number(),
            _ => [&b"true"[..], b"false", b"null"].iter().any(|w| {
                let found = self.bytes[self.at..].starts_with(w);
                self.at += if found { w.len() } else { 0 };
                found
            }),
        }
    }

    fn list(&mut self, close: u8, mut item: impl FnMut(&mut Self) -> bool) -> bool {
        self.at += 1;
        if self.take(close) {
            return true;
        }
        loop {
            if !item(self) {
                return false;
            }
            if self.take(close) {
                return true;
            }
            if !self.take(b',') {
                return false;
            }
        }
    }

    /// Reads a string after its opening quote.
    fn string(&mut self) -> bool {
        loop {
            match self.bytes.get(self.at) {
                None | Some(0..=0x1f) => return false,
                Some(b'"') => {
                    self.at += 1;
                    return true;
                }
                Some(b'\\') => match self.bytes.get(self.at + 1) {
                    Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
                    Some(b'u') => match self.bytes.get(self.at + 2..self.at + 6) {
                        Some(hex) if hex.iter().all(u8::is_ascii_hexdigit) => self.at += 6,
                        _ => return false,
                    },
                    _ => return false,
                },
                Some(_) => self.at += 1,
            }
        }
    }

    fn digits(&mut self) -> bool {
        let start = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        self.at > start
    }

    fn number(&mut self) -> bool {
        self.at += usize::from(self.peek() == b'-');
        if self.peek() == b'0' {
            self.at += 1;
        } else if !self.digits() {
            return false;
        }
        if self.peek() == b'.' {
            self.at += 1;
            if !self.digits() {
                return false;
            }
        }
        if matches!(self.peek(), b'e' | b'E') {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), b'+' | b'-'));
            return self.digits();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::valid;

    #[test]
    fn json_is_recognised() {
        for ok in ["1", " {} ", "[1, 2.5e3, \"a\\u00e9\", null]", "{\"a\": {\"b\": []}}", "-0.1"] {
            assert!(valid(ok), "{ok}");
        }
        for bad in ["", "01", "{a: 1}", "[1,]", "\"\\x\"", "nul", "1 2", "[", "{\"a\"}"] {
            assert!(!valid(bad), "{bad}");
        }
        assert!(!valid(&"[".repeat(100_000)));
    }
}
