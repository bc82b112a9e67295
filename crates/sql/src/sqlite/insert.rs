//! The ids of an INSERT's rows in SQLite's dialect.
//!
//! The client's text is kept. This module reads its tokens only as far as needed to find the table, the columns and the
//! rows, and returns what to insert between them.
//!
//! | the statement | becomes |
//! |---|---|
//! | `INSERT INTO t DEFAULT VALUES` | `INSERT INTO t ("id") VALUES (next)` |
//! | `INSERT INTO t (a) VALUES (1), (2)` | `INSERT INTO t (a, "id") VALUES (1, next), (2, next)` |
//! | `INSERT INTO t VALUES (x, 1)`, the id first | `INSERT INTO t VALUES (coalesce(x, next), 1)` |
//! | `INSERT INTO t (a) SELECT ...` | `INSERT INTO t (a, "id") SELECT "c1", next FROM (the query)` |
//!
//! `next` is the call of [`crate::NEXT_ID_FUNCTION`]. `id` is the INTEGER PRIMARY KEY, or if there is none, a name of
//! the hidden rowid. A statement that cannot be read gets no edits: SQLite refuses it, or chooses the ids itself.

use crate::ids::{self, OverRows};
use crate::names::quote;
use holdfast_types::schema::{Schema, Table};
use sqlparser::tokenizer::{Token, TokenWithSpan};
use std::ops::Range;

/// Text to insert before token `at`, in place of `replaces` tokens.
#[derive(Debug, PartialEq)]
pub struct Edit {
    pub at: usize,
    pub replaces: usize,
    pub text: String,
}

/// The edits that make the ids of inserted rows come from the shared counter, in the order of the tokens. `offsets` are
/// the tokens' byte positions and the text's length. Empty for other statements.
pub fn edits(text: &str, tokens: &[TokenWithSpan], offsets: &[usize], schema: &Schema) -> Vec<Edit> {
    let Some(start) = insert_at(tokens) else { return Vec::new() };
    let mut reader = Reader { tokens, at: start, edits: Vec::new() };
    match reader.insert(text, offsets, schema) {
        Some(()) => reader.edits,
        None => Vec::new(),
    }
}

fn is_word(token: &TokenWithSpan, word: &str) -> bool {
    matches!(&token.token, Token::Word(w) if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
}

/// The token INSERT or REPLACE: at the beginning, or after a WITH.
fn insert_at(tokens: &[TokenWithSpan]) -> Option<usize> {
    const VERBS: [&str; 6] = ["INSERT", "REPLACE", "SELECT", "VALUES", "UPDATE", "DELETE"];
    let first = tokens.first()?;
    if !is_word(first, "WITH") {
        return VERBS[..2].iter().any(|v| is_word(first, v)).then_some(0);
    }
    let mut depth = 0;
    for (i, token) in tokens.iter().enumerate() {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ if depth == 0 => match VERBS.iter().position(|v| is_word(token, v)) {
                Some(verb) => return (verb < 2).then_some(i),
                None => continue,
            },
            _ => {}
        }
    }
    None
}

/// The columns that an INSERT gives values to.
struct Target<'s> {
    /// The name of the id.
    id: &'s str,
    /// The call that returns the next id.
    next: String,
    columns: Vec<String>,
    /// Which of the columns is the id.
    given: Option<usize>,
    /// The closing parenthesis of the column list, if there is one.
    list_end: Option<usize>,
}

struct Reader<'t> {
    tokens: &'t [TokenWithSpan],
    at: usize,
    edits: Vec<Edit>,
}

impl Reader<'_> {
    fn peek(&self, word: &str) -> bool {
        self.tokens.get(self.at).is_some_and(|t| is_word(t, word))
    }

    fn accept(&mut self, word: &str) -> bool {
        let found = self.peek(word);
        self.at += usize::from(found);
        found
    }

    fn take(&mut self, token: &Token) -> bool {
        let found = self.tokens.get(self.at).is_some_and(|t| t.token == *token);
        self.at += usize::from(found);
        found
    }

    fn name(&mut self) -> Option<String> {
        let name = match &self.tokens.get(self.at)?.token {
            Token::Word(word) => word.value.clone(),
            Token::SingleQuotedString(name) => name.clone(),
            _ => return None,
        };
        self.at += 1;
        Some(name)
    }

    fn edit(&mut self, at: usize, text: impl Into<String>) {
        self.edits.push(Edit { at, replaces: 0, text: text.into() });
    }

    /// Reads the statement. `None` where it cannot be read, or nothing changes.
    fn insert(&mut self, text: &str, offsets: &[usize], schema: &Schema) -> Option<()> {
        if self.accept("INSERT") && self.accept("OR") {
            self.at += 1;
        } else {
            self.accept("REPLACE");
        }
        let target = self.accept("INTO").then(|| self.target(schema))??;
        match self.tokens.get(self.at)? {
            token if is_word(token, "DEFAULT") => self.default_values(&target),
            token if is_word(token, "VALUES") => match self.rows_alone() {
                Some(rows) => self.values(&target, &rows),
                None => self.query(&target, text, offsets),
            },
            _ => self.query(&target, text, offsets),
        }
    }

    fn target<'s>(&mut self, schema: &'s Schema) -> Option<Target<'s>> {
        let mut name = self.name()?;
        let main = self.take(&Token::Period);
        if main {
            name = name.eq_ignore_ascii_case("main").then(|| self.name())??;
        }
        let in_main = |t: &&std::sync::Arc<Table>| !t.temp && t.name.eq_ignore_ascii_case(&name);
        let table: &'s Table = if main { schema.tables.iter().find(in_main)? } else { schema.table(&name)? };
        let (id, next) = (ids::id_column(table)?, ids::next_id(table)?);
        if self.accept("AS") {
            self.name()?;
        }
        let mut list_end = None;
        let columns: Vec<String> = if self.take(&Token::LParen) {
            let mut names = vec![self.name()?];
            while self.take(&Token::Comma) {
                names.push(self.name()?);
            }
            list_end = self.take(&Token::RParen).then_some(self.at - 1);
            list_end?;
            names
        } else {
            table.columns.iter().filter(|c| !c.generated).map(|c| c.name.clone()).collect()
        };
        let given: Vec<usize> = (0..columns.len()).filter(|i| ids::is_id(table, &columns[*i])).collect();
        let given = if given.len() > 1 { return None } else { given.first().copied() };
        Some(Target { id, next, columns, given, list_end })
    }

    /// Adds the id to the list of columns, unless it is in it.
    fn name_the_id(&mut self, target: &Target<'_>) {
        match (target.given, target.list_end) {
            (Some(_), _) => {}
            (None, Some(end)) => self.edit(end, format!(", {}", quote(target.id))),
            (None, None) => {
                let names: Vec<String> = target.columns.iter().map(|c| quote(c)).collect();
                self.edit(self.at, format!("({}, {}) ", names.join(", "), quote(target.id)));
            }
        }
    }

    fn default_values(&mut self, target: &Target<'_>) -> Option<()> {
        let whole = target.list_end.is_none() && is_word(self.tokens.get(self.at + 1)?, "VALUES");
        let text = format!("({}) VALUES ({}) ", quote(target.id), target.next);
        whole.then(|| self.edits.push(Edit { at: self.at, replaces: 2, text }))
    }

    fn values(&mut self, target: &Target<'_>, rows: &[Vec<Range<usize>>]) -> Option<()> {
        if rows.iter().any(|row| row.len() != target.columns.len()) {
            return None;
        }
        self.name_the_id(target);
        let next = &target.next;
        for row in rows {
            match target.given {
                None => self.edit(row.last()?.end, format!(", {next}")),
                Some(i) if is_sure(&self.tokens[row[i].clone()]) => {}
                Some(i) => {
                    self.edit(row[i].start, "coalesce(");
                    self.edit(row[i].end, format!(", {next})"));
                }
            }
        }
        Some(())
    }

    /// The rows of `VALUES (...), (...)` that only ON CONFLICT or RETURNING follows.
    fn rows_alone(&mut self) -> Option<Vec<Vec<Range<usize>>>> {
        let begun = self.at;
        let rows = self.rows();
        let ends = self.at == self.tokens.len() || self.peek("ON") || self.peek("RETURNING");
        self.at = begun;
        rows.filter(|_| ends)
    }

    /// The items of each row of a VALUES, as ranges of tokens.
    fn rows(&mut self) -> Option<Vec<Vec<Range<usize>>>> {
        let mut rows = Vec::new();
        self.at += 1;
        loop {
            if !self.take(&Token::LParen) {
                return None;
            }
            let (mut items, mut start, mut depth) = (Vec::new(), self.at, 0);
            loop {
                let token = &self.tokens.get(self.at)?.token;
                if depth == 0 && matches!(token, Token::Comma | Token::RParen) {
                    items.push((start < self.at).then_some(start..self.at)?);
                    start = self.at + 1;
                }
                match token {
                    Token::LParen => depth += 1,
                    Token::RParen if depth == 0 => break,
                    Token::RParen => depth -= 1,
                    _ => {}
                }
                self.at += 1;
            }
            self.at += 1;
            rows.push(items);
            if !self.take(&Token::Comma) {
                return Some(rows);
            }
        }
    }

    /// Reads a query, which ends before ON CONFLICT or RETURNING, or with the statement.
    fn query(&mut self, target: &Target<'_>, text: &str, offsets: &[usize]) -> Option<()> {
        let begun = self.at;
        if !["SELECT", "WITH", "VALUES"].iter().any(|w| self.peek(w)) {
            return None;
        }
        let mut depth = 0;
        while let Some(token) = self.tokens.get(self.at) {
            let conflict = |next: Option<&TokenWithSpan>| next.is_some_and(|n| is_word(n, "CONFLICT"));
            match &token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                _ if depth == 0 && is_word(token, "RETURNING") => break,
                _ if depth == 0 && is_word(token, "ON") && conflict(self.tokens.get(self.at + 1)) => break,
                _ => {}
            }
            self.at += 1;
        }
        let end = std::mem::replace(&mut self.at, begun);
        self.name_the_id(target);
        let next = &target.next;
        let mut items: Vec<String> = (1..=target.columns.len()).map(|i| quote(&format!("c{i}"))).collect();
        match target.given {
            Some(i) => items[i] = format!("coalesce({}, {next})", items[i]),
            None => items.push(next.clone()),
        }
        let over = OverRows::new(&items, target.columns.len(), &text[offsets[begun]..offsets[end]]);
        self.edit(begun, over.before);
        // On a line of its own, as the query may end in a comment.
        self.edit(end, format!("\n{} ", over.after));
        Some(())
    }
}

/// True for a literal that is not NULL.
fn is_sure(item: &[TokenWithSpan]) -> bool {
    match item {
        [sign, rest @ ..] if matches!(sign.token, Token::Minus | Token::Plus) => is_sure(rest),
        [only] => matches!(only.token, Token::Number(..) | Token::SingleQuotedString(_)),
        _ => false,
    }
}
