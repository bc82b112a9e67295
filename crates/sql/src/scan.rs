//! One pass over a message: where each statement ends and which literals it holds.
//!
//! Every message takes this pass, so it looks at each byte once, skips strings and comments with memchr, and builds the
//! *skeleton* of each statement on the way: its text with every literal replaced by one byte for the literal's class.
//! Two statements with the same skeleton differ only in literals; the translation decides whether a literal may be a
//! parameter (see [`crate::cache`]).
//!
//! | class | byte | literal |
//! |---|---|---|
//! | `Int4` | 1 | digits, up to 2147483647 |
//! | `Int8` | 2 | digits, up to 9223372036854775807 |
//! | `Decimal` | 3 | larger, or with a point or an exponent |
//! | `Text` | 4 | `'...'` without a prefix |
//!
//! It fails (42601) only where a quote or a comment is not closed. Strings with a prefix (`E''`, `B''`, `X''`,
//! `U&''`), dollar quotes, quoted identifiers and comments stay in the skeleton as they are.

use holdfast_types::schema::Dialect;
use holdfast_types::{SqlError, SqlResult, SqlState, Value};
use memchr::{memchr, memchr2};

/// The class of a literal. The values are the marker bytes in a skeleton.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    Int4 = 1,
    Int8 = 2,
    Decimal = 3,
    Text = 4,
}

/// A literal, as byte positions in the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: usize,
    end: usize,
    class: Class,
}

/// A literal's source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Literal<'t> {
    pub class: Class,
    /// As written, quotes included.
    pub raw: &'t str,
}

impl Literal<'_> {
    /// The literal's value: an integer, or text (a decimal stays text, so that it stays exact).
    pub fn value(&self) -> Value {
        match self.class {
            Class::Int4 | Class::Int8 => self.raw.parse().map_or(Value::Null, Value::Int),
            Class::Decimal => Value::Text(self.raw.to_owned()),
            Class::Text => {
                let inner = &self.raw[1..self.raw.len() - 1];
                Value::Text(if memchr(b'\'', inner.as_bytes()).is_some() {
                    inner.replace("''", "'")
                } else {
                    inner.to_owned()
                })
            }
        }
    }
}

/// Positions of one statement.
#[derive(Clone, Copy, Debug)]
struct Range {
    start: usize,
    end: usize,
    literals: (usize, usize),
    skeleton: (usize, usize),
    hash: u64,
}

/// A scanned message.
#[derive(Debug)]
pub struct Scan<'t> {
    text: &'t str,
    dialect: Dialect,
    ranges: Vec<Range>,
    literals: Vec<Span>,
    skeleton: Vec<u8>,
}

/// One statement of a scanned message.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'s> {
    scan: &'s Scan<'s>,
    range: Range,
}

impl<'t> Scan<'t> {
    /// Scans a message. 42601 where a quoted string, identifier or comment is not closed.
    pub fn new(text: &'t str, dialect: Dialect) -> SqlResult<Scan<'t>> {
        let mut scanner = Scanner::new(text, dialect);
        scanner.run()?;
        Ok(scanner.out)
    }

    /// The whole message.
    pub fn text(&self) -> &'t str {
        self.text
    }

    /// True for a message without any statement.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The statements in order; empty ones are left out.
    pub fn pieces(&self) -> impl ExactSizeIterator<Item = Piece<'_>> {
        self.ranges.iter().map(move |range| Piece { scan: self, range: *range })
    }
}

impl<'s> Piece<'s> {
    /// The statement without its semicolon and the blanks around it.
    pub fn text(&self) -> &'s str {
        &self.scan.text[self.range.start..self.range.end]
    }

    /// Byte position of the statement in the message.
    pub fn offset(&self) -> usize {
        self.range.start
    }

    pub fn dialect(&self) -> Dialect {
        self.scan.dialect
    }

    pub fn literal_count(&self) -> usize {
        self.range.literals.1 - self.range.literals.0
    }

    /// Literal number `i` of this statement.
    pub fn literal(&self, i: usize) -> Option<Literal<'s>> {
        let span = self.scan.literals.get(self.range.literals.0..self.range.literals.1)?.get(i)?;
        Some(Literal { class: span.class, raw: &self.scan.text[span.start..span.end] })
    }

    pub fn literals(&self) -> Vec<Literal<'s>> {
        (0..self.literal_count()).filter_map(|i| self.literal(i)).collect()
    }

    /// Byte position of literal `i` within [`Piece::text`].
    pub(crate) fn literal_start(&self, i: usize) -> usize {
        self.scan.literals[self.range.literals.0 + i].start - self.range.start
    }

    /// The text with each literal replaced by its class.
    pub(crate) fn skeleton(&self) -> &'s [u8] {
        &self.scan.skeleton[self.range.skeleton.0..self.range.skeleton.1]
    }

    pub(crate) fn hash(&self) -> u64 {
        self.range.hash
    }
}

fn is_word_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_' || b >= 0x80
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'$' || b >= 0x80
}

struct Scanner<'t> {
    out: Scan<'t>,
    bytes: &'t [u8],
    at: usize,
    /// Where the current statement's text, literals and skeleton begin.
    begun: (usize, usize, usize),
    /// Text up to here is in the skeleton.
    copied: usize,
    /// Words seen in this statement, to recognize CREATE TRIGGER, whose body contains semicolons.
    words: u32,
    trigger: Trigger,
}

#[derive(Clone, Copy, PartialEq)]
enum Trigger {
    No,
    /// The first word was CREATE.
    Create,
    Body,
    /// In the body, just after a semicolon.
    Semicolon,
    /// END came after a semicolon.
    End,
}

impl<'t> Scanner<'t> {
    fn new(text: &'t str, dialect: Dialect) -> Scanner<'t> {
        let out = Scan {
            text,
            dialect,
            ranges: Vec::with_capacity(4),
            literals: Vec::with_capacity(16),
            skeleton: Vec::with_capacity(text.len().min(512) + 16),
        };
        Scanner { out, bytes: text.as_bytes(), at: 0, begun: (0, 0, 0), copied: 0, words: 0, trigger: Trigger::No }
    }

    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn run(&mut self) -> SqlResult<()> {
        while let Some(&b) = self.bytes.get(self.at) {
            match b {
                b'\'' => self.string()?,
                b'0'..=b'9' => self.number(),
                b'.' if self.peek(1).is_ascii_digit() => self.number(),
                b'"' => self.until(b'"', "quoted identifier")?,
                b'`' if self.out.dialect == Dialect::Sqlite => self.until(b'`', "quoted identifier")?,
                b'[' if self.out.dialect == Dialect::Sqlite => self.until(b']', "quoted identifier")?,
                b'$' => self.dollar()?,
                b'-' if self.peek(1) == b'-' => {
                    self.at = memchr(b'\n', &self.bytes[self.at..]).map_or(self.bytes.len(), |n| self.at + n);
                }
                b'/' if self.peek(1) == b'*' => self.comment()?,
                b';' if matches!(self.trigger, Trigger::Body | Trigger::Semicolon) => {
                    self.trigger = Trigger::Semicolon;
                    self.at += 1;
                }
                b';' => self.end(),
                _ if is_word_start(b) => self.word()?,
                _ => self.at += 1,
            }
        }
        self.end();
        Ok(())
    }

    fn unclosed(&self, what: &str, start: usize) -> SqlError {
        let position = self.out.text[..start].chars().count() as u32 + 1;
        SqlError::new(SqlState::SYNTAX_ERROR, format!("unterminated {what}")).with_position(position)
    }

    fn until(&mut self, quote: u8, what: &str) -> SqlResult<()> {
        let start = self.at;
        match memchr(quote, &self.bytes[start + 1..]) {
            Some(n) => {
                self.at = start + 1 + n + 1;
                Ok(())
            }
            None => Err(self.unclosed(what, start)),
        }
    }

    /// Position after the closing quote of the plain string that starts at `start`.
    fn string_end(&self, start: usize) -> SqlResult<usize> {
        let mut at = start + 1;
        loop {
            match memchr(b'\'', &self.bytes[at..]) {
                None => return Err(self.unclosed("quoted string", start)),
                Some(n) => {
                    at += n + 1;
                    if self.bytes.get(at) != Some(&b'\'') {
                        return Ok(at);
                    }
                    at += 1;
                }
            }
        }
    }

    fn string(&mut self) -> SqlResult<()> {
        let start = self.at;
        let end = self.string_end(start)?;
        let unicode = start >= 2 && self.bytes[start - 1] == b'&' && self.bytes[start - 2].eq_ignore_ascii_case(&b'U');
        self.at = end;
        if !unicode {
            self.literal(start, end, Class::Text);
        }
        Ok(())
    }

    fn literal(&mut self, start: usize, end: usize, class: Class) {
        self.out.skeleton.extend_from_slice(&self.bytes[self.copied..start]);
        self.out.skeleton.push(class as u8);
        self.copied = end;
        self.out.literals.push(Span { start, end, class });
    }

    fn digits(&mut self) {
        while self.peek(0).is_ascii_digit() {
            self.at += 1;
        }
    }

    fn number(&mut self) {
        let start = self.at;
        self.digits();
        let mut class = match self.at - start {
            0..=9 => Class::Int4,
            10..=19 => match self.out.text[start..self.at].parse::<i64>() {
                Ok(n) if n <= i64::from(i32::MAX) => Class::Int4,
                Ok(_) => Class::Int8,
                Err(_) => Class::Decimal,
            },
            _ => Class::Decimal,
        };
        if self.peek(0) == b'.' && self.peek(1) != b'.' {
            class = Class::Decimal;
            self.at += 1;
            self.digits();
        }
        if matches!(self.peek(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
            if self.peek(1 + sign).is_ascii_digit() {
                class = Class::Decimal;
                self.at += 1 + sign;
                self.digits();
            }
        }
        if is_word(self.peek(0)) {
            // `0x1F`, `1_000`, `123abc`: the parser decides.
            while is_word(self.peek(0)) {
                self.at += 1;
            }
            return;
        }
        self.literal(start, self.at, class);
    }

    /// Reads `$1`, `$tag$...$tag$`, or SQLite's `$name`.
    fn dollar(&mut self) -> SqlResult<()> {
        let start = self.at;
        self.at += 1;
        if self.peek(0).is_ascii_digit() || self.out.dialect == Dialect::Sqlite {
            while is_word(self.peek(0)) {
                self.at += 1;
            }
            return Ok(());
        }
        while is_word(self.peek(0)) && self.peek(0) != b'$' {
            self.at += 1;
        }
        if self.peek(0) != b'$' {
            return Ok(());
        }
        self.at += 1;
        let tag = &self.bytes[start..self.at];
        match memchr::memmem::find(&self.bytes[self.at..], tag) {
            Some(n) => {
                self.at += n + tag.len();
                Ok(())
            }
            None => Err(self.unclosed("dollar-quoted string", start)),
        }
    }

    fn comment(&mut self) -> SqlResult<()> {
        let start = self.at;
        let nests = self.out.dialect == Dialect::Postgres;
        let mut depth = 1usize;
        self.at += 2;
        while depth > 0 {
            let Some(n) = memchr2(b'*', b'/', &self.bytes[self.at..]) else {
                if !nests {
                    // For SQLite the end of the text also ends the comment.
                    self.at = self.bytes.len();
                    return Ok(());
                }
                return Err(self.unclosed("/* comment", start));
            };
            self.at += n;
            match (self.peek(0), self.peek(1)) {
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                }
                (b'/', b'*') if nests => {
                    depth += 1;
                    self.at += 2;
                }
                _ => self.at += 1,
            }
        }
        Ok(())
    }

    fn word(&mut self) -> SqlResult<()> {
        let start = self.at;
        while self.at < self.bytes.len() && is_word(self.bytes[self.at]) {
            self.at += 1;
        }
        if self.at - start == 1 && self.peek(0) == b'\'' {
            return self.prefixed_string(self.bytes[start]);
        }
        self.words += 1;
        if self.words <= 3 || self.trigger != Trigger::No {
            let word = &self.bytes[start..self.at];
            self.trigger = match self.trigger {
                Trigger::No if self.words == 1 && word.eq_ignore_ascii_case(b"create") => Trigger::Create,
                Trigger::Create if word.eq_ignore_ascii_case(b"trigger") => Trigger::Body,
                Trigger::Create if self.words <= 2 && is_temporary(word) => Trigger::Create,
                Trigger::Create => Trigger::No,
                Trigger::Semicolon if word.eq_ignore_ascii_case(b"end") => Trigger::End,
                Trigger::Semicolon | Trigger::End => Trigger::Body,
                other => other,
            };
        }
        Ok(())
    }

    /// Reads a string with a prefix. In `E'...'` a backslash escapes; with the other prefixes it does not.
    fn prefixed_string(&mut self, prefix: u8) -> SqlResult<()> {
        let start = self.at;
        match prefix {
            b'e' | b'E' if self.out.dialect == Dialect::Postgres => {
                self.at += 1;
                loop {
                    match memchr2(b'\'', b'\\', &self.bytes[self.at.min(self.bytes.len())..]) {
                        None => return Err(self.unclosed("quoted string", start)),
                        Some(n) if self.bytes[self.at + n] == b'\\' => self.at += n + 2,
                        Some(n) => {
                            self.at += n + 1;
                            if self.peek(0) != b'\'' {
                                return Ok(());
                            }
                            self.at += 1;
                        }
                    }
                }
            }
            b'b' | b'B' | b'x' | b'X' | b'n' | b'N' => {
                self.at = self.string_end(start)?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Closes the current statement at `self.at` and steps over the semicolon.
    fn end(&mut self) {
        let (mut start, literals, skeleton) = self.begun;
        let mut end = self.at;
        if self.out.literals.len() > literals || self.words > 0 || !self.blank(start, end) {
            while start < end && self.bytes[start].is_ascii_whitespace() {
                start += 1;
            }
            while end > start && self.bytes[end - 1].is_ascii_whitespace() {
                end -= 1;
            }
            if self.copied < end {
                self.out.skeleton.extend_from_slice(&self.bytes[self.copied..end]);
            }
            let bytes = &self.out.skeleton[skeleton..];
            let trimmed = skeleton + bytes.iter().take_while(|b| b.is_ascii_whitespace()).count();
            let hash = xxhash_rust::xxh3::xxh3_64(&self.out.skeleton[trimmed..]);
            self.out.ranges.push(Range {
                start,
                end,
                literals: (literals, self.out.literals.len()),
                skeleton: (trimmed, self.out.skeleton.len()),
                hash,
            });
        }
        self.at += 1;
        self.begun = (self.at.min(self.bytes.len()), self.out.literals.len(), self.out.skeleton.len());
        self.copied = self.begun.0;
        self.words = 0;
        self.trigger = Trigger::No;
    }

    /// True where the range contains only blanks and comments.
    fn blank(&self, start: usize, end: usize) -> bool {
        let mut rest = self.out.text[start..end].trim_start();
        loop {
            if rest.is_empty() {
                return true;
            } else if let Some(comment) = rest.strip_prefix("--") {
                rest = comment.split_once('\n').map_or("", |(_, after)| after).trim_start();
            } else if rest.starts_with("/*") {
                // Nested comments were checked before; words inside them are not words of the statement.
                let mut inner = Scanner::new(rest, self.out.dialect);
                if inner.comment().is_err() {
                    return false;
                }
                rest = rest[inner.at.min(rest.len())..].trim_start();
            } else {
                return false;
            }
        }
    }
}

fn is_temporary(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(b"temp") || word.eq_ignore_ascii_case(b"temporary") || word.eq_ignore_ascii_case(b"or")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(sql: &str, dialect: Dialect) -> Vec<String> {
        Scan::new(sql, dialect).unwrap().pieces().map(|p| p.text().to_owned()).collect()
    }

    #[test]
    fn splits_at_semicolons_outside_quotes_and_comments() {
        let sql = " select ';' ; /* ; /* ; */ */ select $$;$$, $a$;$a$, E'\\';', \";\" -- ;\n; ;; begin;";
        assert_eq!(
            texts(sql, Dialect::Postgres),
            ["select ';'", "/* ; /* ; */ */ select $$;$$, $a$;$a$, E'\\';', \";\" -- ;", "begin"]
        );
        assert!(Scan::new(" ; -- nothing\n /* here */ ;", Dialect::Postgres).unwrap().is_empty());
    }

    #[test]
    fn a_trigger_body_is_one_statement() {
        let sql = "create temp trigger t after insert on a begin update b set x = case when 1 then 2 end; delete from c; end; select 1";
        let found = texts(sql, Dialect::Sqlite);
        assert_eq!(found.len(), 2);
        assert_eq!(found[1], "select 1");
        assert_eq!(texts("create trigger t begin select [;], `;`; end; ", Dialect::Sqlite).len(), 1);
    }

    #[test]
    fn literals_have_classes_and_values() {
        let sql = "select 1, 3000000000, 1.50, .5, 1e3, 'it''s', t1.c2, $1, 99999999999999999999, 0x1F, x'00', e'a'";
        let scan = Scan::new(sql, Dialect::Postgres).unwrap();
        let piece = scan.pieces().next().unwrap();
        let found: Vec<(Class, Value)> = piece.literals().iter().map(|l| (l.class, l.value())).collect();
        let text = |s: &str| Value::Text(s.into());
        assert_eq!(
            found,
            [
                (Class::Int4, Value::Int(1)),
                (Class::Int8, Value::Int(3_000_000_000)),
                (Class::Decimal, text("1.50")),
                (Class::Decimal, text(".5")),
                (Class::Decimal, text("1e3")),
                (Class::Text, text("it's")),
                (Class::Decimal, text("99999999999999999999")),
            ]
        );
    }

    #[test]
    fn the_skeleton_forgets_the_literals_and_nothing_else() {
        let key = |sql: &str| {
            let scan = Scan::new(sql, Dialect::Postgres).unwrap();
            let piece = scan.pieces().next().unwrap();
            (piece.hash(), piece.skeleton().to_vec())
        };
        assert_eq!(key("update t set a = a + 1 where b = 'x'"), key("  update t set a = a + 42 where b = 'yy''y';"));
        assert_ne!(key("select 1"), key("select '1'"));
        assert_ne!(key("select 1"), key("select 5000000000"));
        assert_ne!(key("select 1 from a"), key("select 1 from b"));
        assert_ne!(key("select $1"), key("select $2"));
    }

    #[test]
    fn an_open_quote_is_an_error_with_its_position() {
        for sql in ["select 'abc", "select \"a", "select $x$ a", "select /* /* */", "select e'\\'"] {
            let error = Scan::new(sql, Dialect::Postgres).unwrap_err();
            assert_eq!(error.state(), SqlState::SYNTAX_ERROR, "{sql}");
            assert!(error.parts().position.is_some_and(|p| p >= 8));
        }
    }
}
