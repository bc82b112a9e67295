//! Cuts a statement's text into tokens: what the identity of a statement and the masking of passwords need.
//!
//! Blanks and comments are left out. A string or comment that is not closed reaches to the end of the text. Failure: none.

use holdfast_types::schema::Dialect;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    /// A word without quotes.
    Word,
    /// A word in quotes.
    Quoted,
    Number,
    /// A string in any form, its prefix included.
    String,
    /// A string that is not closed.
    Unclosed,
    /// `$1`.
    Param,
    /// One character of an operator, a parenthesis, a comma ...
    Other,
}

use TokenKind::{Number, Other, Param, Quoted, String, Unclosed, Word};

/// Kind, start and end of each token.
pub(crate) fn tokens(text: &str, dialect: Dialect) -> Vec<(TokenKind, usize, usize)> {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(text.len() / 4), 0);
    while at < bytes.len() {
        let start = at;
        let (kind, end) = next(bytes, start, dialect);
        at = end.max(start + 1).min(bytes.len());
        if let Some(kind) = kind {
            out.push((kind, start, at));
        }
    }
    out
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_' || b == b'$' || b >= 0x80
}

fn is_word_start(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_' || b >= 0x80
}

/// The token at `at` and where it ends; `None`: a blank or a comment.
fn next(bytes: &[u8], at: usize, dialect: Dialect) -> (Option<TokenKind>, usize) {
    let byte = |i: usize| bytes.get(i).copied().unwrap_or(0);
    match bytes[at] {
        b if b.is_ascii_whitespace() => (None, at + 1),
        b'-' if byte(at + 1) == b'-' => (None, find(bytes, at, b"\n").unwrap_or(bytes.len())),
        b'/' if byte(at + 1) == b'*' => (None, comment_end(bytes, at, dialect)),
        b'\'' => string(bytes, at, false),
        b'"' => quoted(bytes, at, b'"'),
        b'`' if dialect == Dialect::Sqlite => quoted(bytes, at, b'`'),
        b'[' if dialect == Dialect::Sqlite => quoted(bytes, at, b']'),
        b'$' if byte(at + 1).is_ascii_digit() => (Some(Param), run(bytes, at + 1, |b| b.is_ascii_digit())),
        b'$' if dialect == Dialect::Postgres => dollar(bytes, at),
        b if b.is_ascii_digit() || (b == b'.' && byte(at + 1).is_ascii_digit()) => {
            (Some(Number), number_end(bytes, at))
        }
        b if is_word_start(b) => {
            let end = run(bytes, at, is_word);
            match byte(end) {
                b'\'' if end == at + 1 && b"eE".contains(&b) && dialect == Dialect::Postgres => {
                    string(bytes, end, true)
                }
                b'\'' if end == at + 1 && b"bBxXnN".contains(&b) => string(bytes, end, false),
                b'&' if end == at + 1 && b"uU".contains(&b) && byte(end + 1) == b'\'' => string(bytes, end + 1, false),
                _ => (Some(Word), end),
            }
        }
        _ => (Some(Other), at + 1),
    }
}

fn run(bytes: &[u8], from: usize, is: impl Fn(u8) -> bool) -> usize {
    from + bytes[from..].iter().take_while(|b| is(**b)).count()
}

fn find(bytes: &[u8], from: usize, what: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes.get(from..)?, what).map(|n| from + n)
}

/// A string whose opening quote is at `quote`.
fn string(bytes: &[u8], quote: usize, escapes: bool) -> (Option<TokenKind>, usize) {
    let mut at = quote + 1;
    while let Some(&b) = bytes.get(at) {
        match b {
            b'\\' if escapes => at += 2,
            b'\'' if bytes.get(at + 1) == Some(&b'\'') => at += 2,
            b'\'' => return (Some(String), at + 1),
            _ => at += 1,
        }
    }
    (Some(Unclosed), bytes.len())
}

fn quoted(bytes: &[u8], open: usize, close: u8) -> (Option<TokenKind>, usize) {
    let mut at = open + 1;
    while let Some(&b) = bytes.get(at) {
        match b == close {
            true if bytes.get(at + 1) == Some(&close) && close != b']' => at += 2,
            true => return (Some(Quoted), at + 1),
            false => at += 1,
        }
    }
    (Some(Quoted), bytes.len())
}

/// `$tag$...$tag$`.
fn dollar(bytes: &[u8], at: usize) -> (Option<TokenKind>, usize) {
    let tag_end = run(bytes, at + 1, |b| is_word(b) && b != b'$');
    if bytes.get(tag_end) != Some(&b'$') {
        return (Some(Other), at + 1);
    }
    let tag = &bytes[at..=tag_end];
    match find(bytes, tag_end + 1, tag) {
        Some(end) => (Some(String), end + tag.len()),
        None => (Some(Unclosed), bytes.len()),
    }
}

fn number_end(bytes: &[u8], at: usize) -> usize {
    let digit = |b: u8| b.is_ascii_digit();
    let mut end = run(bytes, at, digit);
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1) != Some(&b'.') {
        end = run(bytes, end + 1, digit);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        if bytes.get(end + 1 + sign).is_some_and(u8::is_ascii_digit) {
            end = run(bytes, end + 1 + sign, digit);
        }
    }
    run(bytes, end, is_word)
}

fn comment_end(bytes: &[u8], at: usize, dialect: Dialect) -> usize {
    let (mut depth, mut at) = (1, at + 2);
    while depth > 0 {
        match bytes.get(at..at + 2) {
            None => return bytes.len(),
            Some(b"*/") => (depth, at) = (depth - 1, at + 2),
            Some(b"/*") if dialect == Dialect::Postgres => (depth, at) = (depth + 1, at + 2),
            Some(_) => at += 1,
        }
    }
    at
}
