//! A statement's tokens read one after the other, where the parser is not asked: locking clauses, cursors, two-phase
//! commit.

use crate::bind::fold;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::Ident;
use sqlparser::tokenizer::{Span, Token, TokenWithSpan};

/// The tokens without the blanks and comments between them, and where the reader stands.
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

    /// The token here.
    pub fn token(&self) -> Option<&'t Token> {
        self.whole().map(|t| &t.token)
    }

    /// The token here with its place.
    pub fn whole(&self) -> Option<&'t TokenWithSpan> {
        self.solid.get(self.at).map(|i| &self.tokens[*i])
    }

    /// The place among all tokens, blanks too, of token `at`.
    pub fn place(&self, at: usize) -> usize {
        self.solid[at]
    }

    /// Does this keyword stand here?
    pub fn peek(&self, word: &str) -> bool {
        matches!(self.token(), Some(Token::Word(w)) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
    }

    /// Steps over these keywords, or stays.
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

    /// Steps over this token, or stays.
    pub fn take(&mut self, token: &Token) -> bool {
        let found = self.token() == Some(token);
        self.at += usize::from(found);
        found
    }

    /// Steps over a name.
    pub fn name(&mut self) -> SqlResult<String> {
        let Some(Token::Word(word)) = self.token() else { return Err(self.syntax()) };
        if word.value.is_empty() {
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, "zero-length delimited identifier"));
        }
        self.at += 1;
        Ok(fold(&Ident { value: word.value.clone(), quote_style: word.quote_style, span: Span::empty() }))
    }

    /// 42601 unless the statement ends here.
    pub fn end(&self) -> SqlResult<()> {
        if self.token().is_some() { Err(self.syntax()) } else { Ok(()) }
    }

    /// 42601 for the token here.
    pub fn syntax(&self) -> SqlError {
        let message = match self.token() {
            Some(token) => format!("syntax error at or near \"{token}\""),
            None => "syntax error at end of input".to_owned(),
        };
        SqlError::new(SqlState::SYNTAX_ERROR, message)
    }
}
