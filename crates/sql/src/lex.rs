//! Splits a text into tokens exactly as SQLite does (`sqlite3GetToken`), for decisions about privileges. Another
//! tokenizer would read some texts differently: for SQLite, U+FEFF before a token is white space, `$` belongs to a
//! word, and a comment without an end is ended by the text.
//!
//! Failure: a text with a token that SQLite refuses, such as `12ab` or a quote without an end, has no tokens.

/// A token. White space and comments are left out.
#[derive(Clone, Debug, PartialEq)]
pub enum Lexeme {
    /// An unquoted name or keyword.
    Word(String),
    /// A name in `"`, `` ` `` or `[]`.
    Quoted(String),
    /// A string, which SQLite also takes for a name.
    Text(String),
    Open,
    Close,
    Comma,
    Period,
    /// Everything else.
    Other,
}

/// A text's tokens without white space, as SQLite reads them.
pub struct Tokens(pub Vec<Lexeme>);

impl Tokens {
    /// `None` where SQLite refuses a token.
    pub fn new(text: &str) -> Option<Tokens> {
        lexemes(text).map(Tokens)
    }

    /// A name: SQLite also takes a string for one.
    pub fn name(&self, at: usize) -> Option<&str> {
        match self.0.get(at)? {
            Lexeme::Word(name) | Lexeme::Quoted(name) | Lexeme::Text(name) => Some(name),
            _ => None,
        }
    }

    /// Whether the token at a position is this keyword.
    pub fn is(&self, at: usize, word: &str) -> bool {
        matches!(self.0.get(at), Some(Lexeme::Word(w)) if w.eq_ignore_ascii_case(word))
    }

    /// Whether this keyword occurs.
    pub fn has(&self, word: &str) -> bool {
        (0..self.0.len()).any(|at| self.is(at, word))
    }

    /// The position behind these words, where they come next.
    pub fn skip(&self, at: usize, words: &[&str]) -> usize {
        let found = words.iter().enumerate().all(|(i, word)| self.is(at + i, word));
        if found { at + words.len() } else { at }
    }

    /// The name at a position, without the schema before it, and the position behind it.
    pub fn object(&self, at: usize) -> Option<(&str, usize)> {
        let at = if self.0.get(at + 1) == Some(&Lexeme::Period) { at + 2 } else { at };
        Some((self.name(at)?, at + 1))
    }

    /// The name behind the first of this word.
    pub fn object_after(&self, from: usize, word: &str) -> Option<&str> {
        let at = (from..self.0.len()).find(|at| self.is(*at, word))?;
        self.object(at + 1).map(|(name, _)| name)
    }
}

/// The byte order mark, which SQLite skips before a token.
const MARK: &[u8] = "\u{feff}".as_bytes();

struct Bytes<'t>(&'t [u8]);

impl Bytes<'_> {
    /// 0 behind the end, as in SQLite.
    fn at(&self, i: usize) -> u8 {
        self.0.get(i).copied().unwrap_or(0)
    }

    fn run(&self, from: usize, of: impl Fn(u8) -> bool) -> usize {
        let mut at = from;
        while at < self.0.len() && of(self.at(at)) {
            at += 1;
        }
        at
    }

    fn is_mark(&self, at: usize) -> bool {
        self.0[at.min(self.0.len())..].starts_with(MARK)
    }
}

fn is_name(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'$' || b >= 0x80
}

fn is_space(b: u8) -> bool {
    matches!(b, 9..=13 | b' ')
}

/// All tokens; `None` where SQLite refuses one.
fn lexemes(text: &str) -> Option<Vec<Lexeme>> {
    let bytes = Bytes(text.as_bytes());
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.0.len() {
        let (end, lexeme) = next(&bytes, text, at)?;
        found.extend(lexeme);
        at = end;
    }
    Some(found)
}

/// Where the token of this number ends, from 1; `None` for 0.
pub fn token_end(text: &str, number: usize) -> Option<usize> {
    let (bytes, mut at, mut left) = (Bytes(text.as_bytes()), 0, number);
    while left > 0 {
        let (end, lexeme) = (at < bytes.0.len()).then(|| next(&bytes, text, at))??;
        left -= usize::from(lexeme.is_some());
        at = end;
    }
    (number > 0).then_some(at)
}

/// Whether U+FEFF stands outside quotes and comments, where SQLite skips it or takes it for a part of a name.
pub fn has_bare_mark(text: &str) -> bool {
    if memchr::memmem::find(text.as_bytes(), MARK).is_none() {
        return false;
    }
    let bytes = Bytes(text.as_bytes());
    let mut at = 0;
    while at < bytes.0.len() {
        let Some((end, lexeme)) = next(&bytes, text, at) else { return true };
        if bytes.is_mark(at) || matches!(lexeme, Some(Lexeme::Word(word)) if word.contains('\u{feff}')) {
            return true;
        }
        at = end;
    }
    false
}

/// The token at a position, and where it ends.
fn next(bytes: &Bytes<'_>, text: &str, at: usize) -> Option<(usize, Option<Lexeme>)> {
    let (b, after) = (bytes.at(at), bytes.at(at + 1));
    let one = |lexeme| Some((at + 1, Some(lexeme)));
    match b {
        // A NUL ends the text.
        0 => Some((bytes.0.len(), None)),
        9 | 10 | 12 | 13 | b' ' => Some((bytes.run(at, is_space), None)),
        _ if bytes.is_mark(at) => Some((at + MARK.len(), None)),
        b'-' if after == b'-' => Some((bytes.run(at, |b| b != b'\n'), None)),
        b'/' if after == b'*' && bytes.at(at + 2) != 0 => {
            let end = memchr::memmem::find(&bytes.0[at + 2..], b"*/").map(|n| at + 2 + n + 2);
            Some((end.unwrap_or(bytes.0.len()), None))
        }
        b'(' => one(Lexeme::Open),
        b')' => one(Lexeme::Close),
        b',' => one(Lexeme::Comma),
        b'.' if !after.is_ascii_digit() => one(Lexeme::Period),
        b'.' | b'0'..=b'9' => number(bytes, at),
        b'\'' | b'"' | b'`' => quoted(bytes, text, at),
        b'[' => {
            let end = at + 1 + memchr::memchr(b']', &bytes.0[at + 1..])?;
            Some((end + 1, Some(Lexeme::Quoted(text[at + 1..end].to_owned()))))
        }
        b'?' => Some((bytes.run(at + 1, |b| b.is_ascii_digit()), Some(Lexeme::Other))),
        b'$' | b'@' | b'#' | b':' => variable(bytes, at),
        b'x' | b'X' if after == b'\'' => {
            let end = bytes.run(at + 2, |b| b.is_ascii_hexdigit());
            (bytes.at(end) == b'\'' && (end - at).is_multiple_of(2)).then_some((end + 1, Some(Lexeme::Other)))
        }
        _ if is_name(b) => {
            let end = bytes.run(at, is_name);
            Some((end, Some(Lexeme::Word(text[at..end].to_owned()))))
        }
        b'!' if after != b'=' => None,
        b'-' | b';' | b'+' | b'*' | b'/' | b'%' | b'=' | b'<' | b'>' | b'!' | b'|' | b'&' | b'~' => one(Lexeme::Other),
        _ => None,
    }
}

fn quoted(bytes: &Bytes<'_>, text: &str, at: usize) -> Option<(usize, Option<Lexeme>)> {
    let quote = bytes.at(at);
    let mut end = at + 1;
    loop {
        end += memchr::memchr(quote, bytes.0.get(end..)?)?;
        if bytes.at(end + 1) != quote {
            break;
        }
        end += 2;
    }
    let sign = char::from(quote).to_string();
    let value = text[at + 1..end].replace(&sign.repeat(2), &sign);
    // A NUL ends the text, also between quotes.
    (!value.contains('\0'))
        .then(|| (end + 1, Some(if quote == b'\'' { Lexeme::Text(value) } else { Lexeme::Quoted(value) })))
}

fn number(bytes: &Bytes<'_>, at: usize) -> Option<(usize, Option<Lexeme>)> {
    let digits = |from: usize| bytes.run(from, |b| b.is_ascii_digit() || b == b'_');
    let is_hex =
        bytes.at(at) == b'0' && matches!(bytes.at(at + 1), b'x' | b'X') && bytes.at(at + 2).is_ascii_hexdigit();
    let mut end = if is_hex {
        bytes.run(at + 2, |b| b.is_ascii_hexdigit() || b == b'_')
    } else {
        let mut end = digits(at);
        if bytes.at(end) == b'.' {
            end = digits(end + 1);
        }
        let sign = usize::from(matches!(bytes.at(end + 1), b'+' | b'-'));
        if matches!(bytes.at(end), b'e' | b'E') && bytes.at(end + 1 + sign).is_ascii_digit() {
            end = digits(end + 1 + sign);
        }
        end
    };
    let behind = bytes.run(end, is_name);
    let whole = behind == end;
    end = behind;
    whole.then_some((end, Some(Lexeme::Other)))
}

/// `$name`, `@name`, `:name`, also with `::` and a part in parentheses, as SQLite reads Tcl's variables.
fn variable(bytes: &Bytes<'_>, at: usize) -> Option<(usize, Option<Lexeme>)> {
    let (mut end, mut length) = (at + 1, 0);
    loop {
        match bytes.at(end) {
            b if is_name(b) => (end, length) = (end + 1, length + 1),
            b'(' if length > 0 => {
                let close = bytes.run(end + 1, |b| b != 0 && !is_space(b) && b != b')');
                if bytes.at(close) != b')' {
                    return None;
                }
                end = close + 1;
                break;
            }
            b':' if bytes.at(end + 1) == b':' => end += 2,
            _ => break,
        }
    }
    (length > 0).then_some((end, Some(Lexeme::Other)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<String> {
        let name = |lexeme| match lexeme {
            Lexeme::Word(name) | Lexeme::Quoted(name) | Lexeme::Text(name) => Some(name),
            _ => None,
        };
        lexemes(text).unwrap().into_iter().filter_map(name).collect()
    }

    #[test]
    fn tokens_are_sqlites() {
        assert_eq!(names("select\u{feff}a from \u{feff}secret"), ["select\u{feff}a", "from", "secret"]);
        assert_eq!(names("a$b \"c\"\"d\" `e` [f g] 'h''i' x'00' X'ab'"), ["a$b", "c\"d", "e", "f g", "h'i"]);
        assert_eq!(names("a/**/b--c\nd/*/e*/f /* g"), ["a", "b", "d", "f"]);
        assert_eq!(names("1.5e3 .5 0xFF 1_000 $x(y)z :a::b ?1 a\u{c}b \u{a0}c"), ["z", "a", "b", "\u{a0}c"]);
        for text in ["12ab", "'x", "\"x", "[x", "x'0'", "a\u{b}b", "!", "\u{1}", "$", "a \u{7f}"] {
            assert_eq!(lexemes(text), None, "{text:?}");
        }
        assert_eq!(names("a \u{b}b"), ["a", "b"]);
    }

    #[test]
    fn a_bare_mark_is_found() {
        for text in ["select * from \u{feff}t", "\u{feff}select 1", "select a\u{feff}b", "select 'x \u{feff}"] {
            assert!(has_bare_mark(text), "{text:?}");
        }
        for text in ["select 1", "select '\u{feff}', \"\u{feff}\" -- \u{feff}", "select 1 /* \u{feff} */", "select 'é'"]
        {
            assert!(!has_bare_mark(text), "{text:?}");
        }
    }
}
