//! The tokens of a stored definition with their places, by SQLite's rules.
//!
//! Failure: a quote or comment without an end reaches to the end of the text.

use std::ops::Range;

/// What a token is.
#[derive(Clone, Debug, PartialEq)]
pub enum TokenKind {
    /// An unquoted word.
    Word,
    /// A name in quotes of any kind; a string counts, as SQLite takes it for a name too.
    Quoted,
    Open,
    Close,
    Comma,
    /// Everything else: numbers, operators.
    Other,
}

/// A token of a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub kind: TokenKind,
    pub at: Range<usize>,
}

impl Token {
    pub fn text<'t>(&self, of: &'t str) -> &'t str {
        of.get(self.at.clone()).unwrap_or("")
    }

    /// Whether it is this keyword.
    pub fn is(&self, of: &str, word: &str) -> bool {
        self.kind == TokenKind::Word && self.text(of).eq_ignore_ascii_case(word)
    }

    /// The name it stands for.
    pub fn name(&self, of: &str) -> Option<String> {
        let text = self.text(of);
        match self.kind {
            TokenKind::Word => Some(text.to_owned()),
            TokenKind::Quoted => {
                let quote = text.chars().next()?;
                let inner = text.get(1..text.len().checked_sub(1)?)?;
                let close = if quote == '[' { ']' } else { quote };
                Some(inner.replace(&format!("{close}{close}"), &close.to_string()))
            }
            _ => None,
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$' || c as u32 >= 0x80
}

/// All tokens of a text; white space and comments are left out.
pub fn tokens(text: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        let rest = &text[at..];
        let (kind, length) = match c {
            _ if rest.starts_with("--") => (None, rest.find('\n').unwrap_or(rest.len())),
            _ if rest.starts_with("/*") => (None, rest[2..].find("*/").map_or(rest.len(), |end| end + 4)),
            _ if c.is_whitespace() => (None, c.len_utf8()),
            '"' | '\'' | '`' => (Some(TokenKind::Quoted), quoted(rest, c)),
            '[' => (Some(TokenKind::Quoted), rest.find(']').map_or(rest.len(), |end| end + 1)),
            '(' => (Some(TokenKind::Open), 1),
            ')' => (Some(TokenKind::Close), 1),
            ',' => (Some(TokenKind::Comma), 1),
            'x' | 'X' if rest[1..].starts_with('\'') => (Some(TokenKind::Other), 1 + quoted(&rest[1..], '\'')),
            '0'..='9' => {
                let end = rest.find(|c: char| !(is_word(c) || c == '.'));
                (Some(TokenKind::Other), end.unwrap_or(rest.len()))
            }
            _ if is_word(c) => (Some(TokenKind::Word), rest.find(|c| !is_word(c)).unwrap_or(rest.len())),
            _ => (Some(TokenKind::Other), c.len_utf8()),
        };
        found.extend(kind.map(|kind| Token { kind, at: at..at + length }));
        at += length;
    }
    found
}

/// The length of what stands in quotes, which are doubled inside it.
fn quoted(text: &str, quote: char) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == quote && chars.next_if(|(_, next)| *next == quote).is_none() {
            return at + 1;
        }
    }
    text.len()
}
