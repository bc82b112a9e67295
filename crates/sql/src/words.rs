//! Reads a statement's tokens one after the other, for statements that the parser does not read: locking clauses,
//! cursors, two-phase commit.

use crate::names::fold;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::Ident;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

/// The tokens without the blanks and comments between them, and the current token.
pub struct Words<'t> {
    tokens: &'t [TokenWithSpan],
    /// Positions of the tokens that are not blank.
    solid: Vec<usize>,
    pub at: usize,
}

impl<'t> Words<'t> {
    pub fn new(tokens: &'t [TokenWithSpan]) -> Words<'t> {
        let solid = (0..tokens.len()).filter(|i| !matches!(tokens[*i].token, Token::Whitespace(_))).collect();
        Words { tokens, solid, at: 0 }
    }

    /// The current token.
    pub fn token(&self) -> Option<&'t Token> {
        self.whole().map(|t| &t.token)
    }

    /// The current token with its location in the text.
    pub fn whole(&self) -> Option<&'t TokenWithSpan> {
        self.solid.get(self.at).map(|i| &self.tokens[*i])
    }

    /// The index among all tokens, including blanks, of token `at`.
    pub fn place(&self, at: usize) -> usize {
        self.solid[at]
    }

    /// True if the current token is this keyword.
    pub fn peek(&self, word: &str) -> bool {
        matches!(self.token(), Some(Token::Word(w)) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
    }

    /// Steps over these keywords if they come next, otherwise does not move.
    pub fn accept(&mut self, words: &[&str]) -> bool {
        let begun = self.at;
        for word in words {
            if !self.peek(word) {
                self.at = begun;
                return false;
            }
            self.at += 1;
        }
        true
    }

    /// Steps over this token if it comes next, otherwise does not move.
    pub fn take(&mut self, token: &Token) -> bool {
        let found = self.token() == Some(token);
        self.at += usize::from(found);
        found
    }

    /// Whether this token comes next.
    pub fn at_token(&self, token: &Token) -> bool {
        self.token() == Some(token)
    }

    /// The part of the statement's text that begins with the current token.
    pub fn rest_of<'x>(&self, text: &'x str) -> &'x str {
        let Some(start) = self.whole().map(|t| t.span.start) else { return "" };
        let line = text.split_inclusive('\n').scan(0, |at, line| {
            let begins = *at;
            *at += line.len();
            Some(begins)
        });
        let begins = line.skip(start.line.saturating_sub(1) as usize).next().unwrap_or(text.len());
        let column = start.column.saturating_sub(1) as usize;
        let within = text[begins..].char_indices().nth(column).map_or(text.len() - begins, |(at, _)| at);
        &text[begins + within..]
    }

    /// Steps over all that is left.
    pub fn skip_all(&mut self) {
        self.at = self.solid.len();
    }

    /// Steps over a name.
    pub fn name(&mut self) -> SqlResult<String> {
        let Some(Token::Word(word)) = self.token() else { return Err(self.syntax()) };
        if word.value.is_empty() {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "zero-length delimited identifier at or near \"\"\"\""));
        }
        self.at += 1;
        Ok(fold(&Ident { value: word.value.clone(), quote_style: word.quote_style, span: Span::empty() }))
    }

    /// Returns 42601 unless the statement ends here.
    pub fn end(&self) -> SqlResult<()> {
        if self.token().is_some() { Err(self.syntax()) } else { Ok(()) }
    }

    /// The error 42601 for the current token.
    pub fn syntax(&self) -> SqlError {
        let message = match self.token() {
            Some(token) => format!("syntax error at or near \"{token}\""),
            None => "syntax error at end of input".to_owned(),
        };
        SqlError::new(SqlState::SYNTAX_ERROR, message)
    }
}
