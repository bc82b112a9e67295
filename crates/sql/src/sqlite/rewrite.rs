//! Rewrites a statement in SQLite's SQL: numbers parameters, lifts literals, and takes ids of new rows from the shared
//! counter. The rest of the text does not change, including comments.
//!
//! A text that cannot be split into tokens is not changed; SQLite reports the error.

use super::insert;
use crate::params::{LIFTED_MAX, Param, ParamSource};
use crate::scan::{Class, Piece};
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::dialect::SQLiteDialect;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Word};

/// The text with its parameters.
pub struct Rewritten {
    pub text: String,
    pub params: Vec<Param>,
    /// The number of values that the client gives.
    pub clients: usize,
}

impl Rewritten {
    /// Leaves the text unchanged, without parameters.
    pub fn unchanged(text: &str) -> Rewritten {
        Rewritten { text: text.to_owned(), params: Vec::new(), clients: 0 }
    }
}

/// Rewrites a statement that reads or changes data.
pub fn rewrite(piece: &Piece<'_>, schema: &Schema) -> SqlResult<Rewritten> {
    let text = piece.text();
    let Ok(tokens) = Tokenizer::new(&SQLiteDialect {}, text).tokenize_with_location() else {
        return Ok(Rewritten::unchanged(text));
    };
    let tokens: Vec<TokenWithSpan> = tokens.into_iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).collect();
    let offsets = offsets(text, &tokens);
    let edits = insert::edits(text, &tokens, &offsets, schema);
    let mut rewriter = Rewriter {
        piece,
        tokens: &tokens,
        offsets: &offsets,
        partial: has_partial_index(schema),
        out: Rewritten { text: String::with_capacity(text.len()), params: Vec::new(), clients: 0 },
        copied: 0,
    };
    rewriter.run(&edits)?;
    Ok(rewriter.out)
}

/// Byte position of each token, and that of the text's end.
pub(super) fn offsets(text: &str, tokens: &[TokenWithSpan]) -> Vec<usize> {
    let mut found = Vec::with_capacity(tokens.len() + 1);
    let mut chars = text.char_indices().peekable();
    let (mut line, mut column) = (1, 1);
    for token in tokens {
        let start = (token.span.start.line, token.span.start.column);
        while (line, column) < start
            && let Some((_, c)) = chars.next()
        {
            (line, column) = if c == '\n' { (line + 1, 1) } else { (line, column + 1) };
        }
        found.push(chars.peek().map_or(text.len(), |(at, _)| *at));
    }
    found.push(text.len());
    found
}

struct Rewriter<'t> {
    piece: &'t Piece<'t>,
    tokens: &'t [TokenWithSpan],
    offsets: &'t [usize],
    /// A literal in WHERE may decide whether a partial index can be used.
    partial: bool,
    out: Rewritten,
    /// The text up to here has been written.
    copied: usize,
}

/// The clause that a literal is in, as far as it may become a parameter.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Other,
    Values,
    Set,
    Where,
}

impl Rewriter<'_> {
    fn run(&mut self, edits: &[insert::Edit]) -> SqlResult<()> {
        let (mut place, mut depth, mut values_depth) = (Place::Other, 0i32, 0i32);
        let mut edits = edits.iter().peekable();
        for (i, token) in self.tokens.iter().enumerate() {
            while let Some(edit) = edits.next_if(|e| e.at == i) {
                self.copy_to(self.offsets[i]);
                self.out.text.push_str(&edit.text);
                self.copied = self.copied.max(self.offsets[i + edit.replaces]);
            }
            match &token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                Token::Word(word) if word.quote_style.is_none() => {
                    let next = place_of(word, place);
                    if next == Place::Values && place != Place::Values {
                        values_depth = depth;
                    }
                    place = next;
                }
                Token::Placeholder(name) => {
                    self.copy_to(self.offsets[i]);
                    self.copied += name.len();
                    self.placeholder(name)?;
                }
                Token::Number(..) | Token::SingleQuotedString(_)
                    if lifts(self.tokens, i, place, depth - values_depth, self.partial) =>
                {
                    self.literal(self.offsets[i]);
                }
                _ => {}
            }
        }
        self.copy_to(self.piece.text().len());
        edits.for_each(|edit| self.out.text.push_str(&edit.text));
        Ok(())
    }

    fn copy_to(&mut self, at: usize) {
        self.out.text.push_str(&self.piece.text()[self.copied.min(at)..at]);
        self.copied = self.copied.max(at);
    }

    /// Replaces the literal at this position by a parameter, if its value is exact.
    fn literal(&mut self, at: usize) {
        let (mut low, mut high) = (0, self.piece.literal_count());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.piece.literal_start(middle) < at { low = middle + 1 } else { high = middle }
        }
        let Some(literal) = self.piece.literal(low).filter(|_| self.piece.literal_start(low) == at) else { return };
        if literal.class == Class::Decimal || self.out.params.len() >= LIFTED_MAX {
            return;
        }
        self.copy_to(at);
        self.copied = at + literal.raw.len();
        self.out.params.push(Param { source: ParamSource::Literal(low), coerce: None });
        self.out.text.push_str(&format!("?{}", self.out.params.len()));
    }

    /// Numbers a parameter: `$1` and `?1` name one of the client's values; `?` takes the next one.
    fn placeholder(&mut self, name: &str) -> SqlResult<()> {
        let number = match name.trim_start_matches(['$', '?']) {
            "" if name == "?" => self.out.clients + 1,
            digits => digits.parse::<usize>().ok().filter(|n| (1..=65_535).contains(n)).ok_or_else(|| {
                SqlError::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {name}"))
                    .with_hint("Parameters are $1, $2 and so on.")
            })?,
        };
        self.out.clients = self.out.clients.max(number);
        let param = Param { source: ParamSource::Client(number - 1), coerce: None };
        let known = self.out.params.iter().position(|p| *p == param);
        let index = known.unwrap_or_else(|| {
            self.out.params.push(param);
            self.out.params.len() - 1
        });
        self.out.text.push_str(&format!("?{}", index + 1));
        Ok(())
    }
}

fn place_of(word: &Word, place: Place) -> Place {
    match word.value.to_ascii_uppercase().as_str() {
        "VALUES" => Place::Values,
        "SET" => Place::Set,
        "WHERE" => Place::Where,
        "SELECT" | "FROM" | "ORDER" | "GROUP" | "LIMIT" | "HAVING" | "RETURNING" | "ON" | "WITH" | "CASE" | "OVER"
        | "WINDOW" | "UNION" | "EXCEPT" | "INTERSECT" | "OFFSET" => Place::Other,
        _ => place,
    }
}

/// True where a literal may become a parameter: as a whole VALUES item, as the whole right side of SET, or in `column
/// op literal` in WHERE.
fn lifts(tokens: &[TokenWithSpan], i: usize, place: Place, depth: i32, partial: bool) -> bool {
    let token = |n: Option<usize>| n.and_then(|n| tokens.get(n)).map(|t| &t.token);
    let (before, after) = (token(i.checked_sub(1)), token(Some(i + 1)));
    let word = |t: Option<&Token>, words: &[&str]| matches!(t, Some(Token::Word(w)) if words.contains(&w.value.to_ascii_uppercase().as_str()));
    match place {
        Place::Values => {
            depth == 1
                && matches!(before, Some(Token::LParen | Token::Comma))
                && matches!(after, Some(Token::RParen | Token::Comma))
        }
        Place::Set => {
            let arithmetic = matches!(before, Some(Token::Plus | Token::Minus))
                && matches!(token(i.checked_sub(2)), Some(Token::Word(_)))
                && matches!(tokens.get(i).map(|t| &t.token), Some(Token::Number(..)));
            (matches!(before, Some(Token::Eq)) || arithmetic)
                && (matches!(after, None | Some(Token::Comma)) || word(after, &["WHERE", "RETURNING", "FROM"]))
        }
        Place::Where => {
            !partial
                && matches!(
                    before,
                    Some(Token::Eq | Token::Lt | Token::Gt | Token::LtEq | Token::GtEq | Token::Neq | Token::DoubleEq)
                )
                && matches!(token(i.checked_sub(2)), Some(Token::Word(_)))
                && (matches!(after, None | Some(Token::RParen))
                    || word(after, &["AND", "OR", "ORDER", "LIMIT", "GROUP", "RETURNING"]))
        }
        Place::Other => false,
    }
}

fn has_partial_index(schema: &Schema) -> bool {
    let partial = |sql: &str| sql.to_ascii_lowercase().contains("where");
    schema.tables.iter().any(|t| t.indexes.iter().any(|i| i.sql.as_deref().is_some_and(partial)))
}
