//! Reads `synchronous_standby_names`.
//!
//! ```text
//! setting = [ list | [ "FIRST" | "ANY" ] number "(" list ")" ]
//! list    = name { "," name }
//! name    = word | number | quoted | "*"
//! ```

use crate::sync_set::{Method, Name, SyncSet};

/// The largest number of names in one list.
const NAMES_MAX: usize = 1000;

/// An error in a setting.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("synchronous_standby_names: {what} at character {position}")]
pub struct SyncSetError {
    pub what: String,
    /// The character position, from 1.
    pub position: usize,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Token {
    Word(String),
    Quoted(String),
    Number(String),
    Star,
    Comma,
    Open,
    Close,
}

pub fn parse(text: &str) -> Result<SyncSet, SyncSetError> {
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        return Ok(SyncSet::empty());
    }
    let mut parser = Parser { tokens: &tokens, at: 0, end: text.chars().count() + 1 };
    let set = parser.setting()?;
    match parser.peek() {
        None => Ok(set),
        Some(_) => Err(parser.error("unexpected text after the setting")),
    }
}

struct Parser<'a> {
    tokens: &'a [(Token, usize)],
    at: usize,
    /// The position after the text.
    end: usize,
}

impl<'a> Parser<'a> {
    fn setting(&mut self) -> Result<SyncSet, SyncSetError> {
        // A word or number is a method only if "number (" or "(" follows; otherwise it is the name of a standby.
        let keyword = match (self.peek(), self.ahead(1), self.ahead(2)) {
            (Some(Token::Word(word)), Some(Token::Number(_)), Some(Token::Open)) => Some(word.to_lowercase()),
            _ => None,
        };
        match (keyword.as_deref(), self.peek(), self.ahead(1)) {
            (Some("first"), ..) => self.at += 1,
            (Some("any"), ..) => {
                self.at += 1;
                let n = self.count()?;
                return Ok(SyncSet { method: Method::Any(n), names: self.in_parentheses()? });
            }
            (None, Some(Token::Number(_)), Some(Token::Open)) => {}
            _ => return Ok(SyncSet { method: Method::First(1), names: self.list()? }),
        }
        let n = self.count()?;
        Ok(SyncSet { method: Method::First(n), names: self.in_parentheses()? })
    }

    fn count(&mut self) -> Result<usize, SyncSetError> {
        let Some(Token::Number(digits)) = self.peek() else {
            return Err(self.error("a number of standbys is missing"));
        };
        let n = digits.parse().ok().filter(|n| (1..=NAMES_MAX).contains(n));
        let n = n.ok_or_else(|| self.error("the number of standbys must be from 1 to 1000"))?;
        self.at += 1;
        Ok(n)
    }

    fn in_parentheses(&mut self) -> Result<Vec<Name>, SyncSetError> {
        self.expect(Token::Open, "\"(\" is missing")?;
        let names = self.list()?;
        self.expect(Token::Close, "\",\" or \")\" is missing")?;
        Ok(names)
    }

    fn list(&mut self) -> Result<Vec<Name>, SyncSetError> {
        let mut names = Vec::new();
        loop {
            let name = match self.peek() {
                Some(Token::Word(name) | Token::Quoted(name) | Token::Number(name)) => Name::Is(name.to_lowercase()),
                Some(Token::Star) => Name::Every,
                _ => return Err(self.error("a standby's name is missing")),
            };
            if names.len() == NAMES_MAX {
                return Err(self.error("more than 1000 names"));
            }
            names.push(name);
            self.at += 1;
            if self.peek() != Some(&Token::Comma) {
                return Ok(names);
            }
            self.at += 1;
        }
    }

    fn expect(&mut self, token: Token, otherwise: &str) -> Result<(), SyncSetError> {
        if self.peek() != Some(&token) {
            return Err(self.error(otherwise));
        }
        self.at += 1;
        Ok(())
    }

    fn peek(&self) -> Option<&'a Token> {
        self.ahead(0)
    }

    fn ahead(&self, n: usize) -> Option<&'a Token> {
        self.tokens.get(self.at + n).map(|(token, _)| token)
    }

    fn error(&self, what: &str) -> SyncSetError {
        let position = self.tokens.get(self.at).map_or(self.end, |(_, position)| *position);
        SyncSetError { what: what.to_owned(), position }
    }
}

fn tokens(text: &str) -> Result<Vec<(Token, usize)>, SyncSetError> {
    let chars: Vec<char> = text.chars().collect();
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&first) = chars.get(at) {
        let start = at;
        at += 1;
        let token = match first {
            ' ' | '\t' | '\n' | '\r' => continue,
            ',' => Token::Comma,
            '(' => Token::Open,
            ')' => Token::Close,
            '*' => Token::Star,
            '"' => quoted(&chars, &mut at)?,
            c if c.is_ascii_digit() => {
                at += chars[at..].iter().take_while(|c| c.is_ascii_digit()).count();
                Token::Number(chars[start..at].iter().collect())
            }
            c if c.is_alphabetic() || c == '_' => {
                at += chars[at..].iter().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '$')).count();
                Token::Word(chars[start..at].iter().collect())
            }
            c => {
                return Err(SyncSetError {
                    what: format!("\"{c}\" is not allowed outside quotes"),
                    position: start + 1,
                });
            }
        };
        tokens.push((token, start + 1));
    }
    Ok(tokens)
}

/// Reads a name in double quotes, in which a doubled quote means one quote. `at` is after the opening quote.
fn quoted(chars: &[char], at: &mut usize) -> Result<Token, SyncSetError> {
    let start = *at;
    let mut name = String::new();
    while let Some(&c) = chars.get(*at) {
        *at += 1;
        if c != '"' {
            name.push(c);
        } else if chars.get(*at) == Some(&'"') {
            name.push('"');
            *at += 1;
        } else if name.is_empty() {
            return Err(SyncSetError { what: "an empty name".to_owned(), position: start });
        } else {
            return Ok(Token::Quoted(name));
        }
    }
    Err(SyncSetError { what: "a quote that is not closed".to_owned(), position: start })
}
