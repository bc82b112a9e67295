//! Takes the text of a CREATE TABLE apart.

use super::token::{Token, TokenKind, tokens};
use super::{Clause, ClauseKind, ColumnText, Definition, Reference};

/// Words with which a clause of a column begins.
const BEGINS: [&str; 11] =
    ["constraint", "not", "null", "default", "check", "primary", "unique", "references", "generated", "as", "collate"];

/// Words with which a constraint of a table begins.
const TABLE_BEGINS: [&str; 5] = ["constraint", "primary", "unique", "check", "foreign"];

pub fn definition(sql: &str) -> Option<Definition> {
    let all = tokens(sql);
    let mut head = Reader { sql, tokens: &all, at: 0 };
    head.expect("create")?;
    let _ = head.take("temp") || head.take("temporary");
    head.expect("table")?;
    if head.take("if") {
        head.expect("not")?;
        head.expect("exists")?;
    }
    let mut name = head.name()?;
    if head.peek().is_some_and(|t| t.text(sql) == ".") {
        head.at += 1;
        name = head.name()?;
    }
    let (open, close) = head.parentheses()?;
    let items = items(&all[open + 1..close]);
    let (mut columns, mut constraints) = (Vec::new(), Vec::new());
    for item in items {
        // The text of an item reaches to the comma, so that a comment at its end is kept.
        let end = all.get(open + 1 + item.end).map_or(sql.len(), |t| t.at.start);
        let tokens = &all[open + 1..close][item.start..item.end];
        let first = tokens.first()?;
        let mut reader = Reader { sql, tokens, at: 0 };
        if TABLE_BEGINS.iter().any(|word| first.is(sql, word)) {
            constraints.push(reader.clause(end, false)?);
        } else {
            // SQLite adds a column behind the constraints.
            columns.push(reader.column(end)?);
        }
    }
    let options = sql.get(all[close].at.end..)?.trim().to_owned();
    (!columns.is_empty()).then_some(Definition { name, columns, constraints, options })
}

/// The items between the commas outside parentheses.
fn items(tokens: &[Token]) -> Vec<std::ops::Range<usize>> {
    let (mut depth, mut from, mut found) = (0_usize, 0, Vec::new());
    for (i, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Open => depth += 1,
            TokenKind::Close => depth = depth.saturating_sub(1),
            TokenKind::Comma if depth == 0 => {
                found.push(from..i);
                from = i + 1;
            }
            _ => {}
        }
    }
    found.push(from..tokens.len());
    found
}

struct Reader<'t> {
    sql: &'t str,
    tokens: &'t [Token],
    at: usize,
}

impl<'t> Reader<'t> {
    fn peek(&self) -> Option<&'t Token> {
        self.tokens.get(self.at)
    }

    fn is(&self, word: &str) -> bool {
        self.peek().is_some_and(|t| t.is(self.sql, word))
    }

    /// Passes over the word if it comes next.
    fn take(&mut self, word: &str) -> bool {
        let found = self.is(word);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, word: &str) -> Option<()> {
        self.take(word).then_some(())
    }

    fn name(&mut self) -> Option<String> {
        let name = self.peek()?.name(self.sql)?;
        self.at += 1;
        Some(name)
    }

    /// Passes over what stands in parentheses; returns the positions of both.
    fn parentheses(&mut self) -> Option<(usize, usize)> {
        let open = self.at;
        if self.peek()?.kind != TokenKind::Open {
            return None;
        }
        let mut depth = 0_usize;
        loop {
            match self.peek()?.kind {
                TokenKind::Open => depth += 1,
                TokenKind::Close => depth -= 1,
                _ => {}
            }
            self.at += 1;
            if depth == 0 {
                return Some((open, self.at - 1));
            }
        }
    }

    /// The first names of the items in parentheses.
    fn names(&mut self) -> Option<Vec<String>> {
        let (open, close) = self.parentheses()?;
        let inner = &self.tokens[open + 1..close];
        items(inner).into_iter().map(|item| inner.get(item.start)?.name(self.sql)).collect()
    }

    /// A column, whose text ends at `end`.
    fn column(&mut self, end: usize) -> Option<ColumnText> {
        let name = self.name()?;
        let from = self.tokens[self.at - 1].at.end;
        while self.peek().is_some_and(|t| !BEGINS.iter().any(|word| t.is(self.sql, word))) {
            match self.peek()?.kind {
                TokenKind::Open => drop(self.parentheses()?),
                _ => self.at += 1,
            }
        }
        let to = self.peek().map_or(end, |t| t.at.start);
        let ty = self.sql.get(from..to)?.trim().to_owned();
        let mut clauses = Vec::new();
        while self.peek().is_some() {
            clauses.push(self.clause(end, true)?);
        }
        Some(ColumnText { name, ty, clauses })
    }

    /// The next clause, whose text ends at the next one or at `end`.
    fn clause(&mut self, end: usize, of_column: bool) -> Option<Clause> {
        let name = if self.take("constraint") { Some(self.name()?) } else { None };
        let from = self.peek()?.at.start;
        let kind = self.kind(of_column)?;
        let next = self.peek();
        if !of_column && next.is_some() {
            return None;
        }
        let to = next.map_or(end, |t| t.at.start);
        Some(Clause { name, kind, text: self.sql.get(from..to)?.trim().to_owned() })
    }

    fn kind(&mut self, of_column: bool) -> Option<ClauseKind> {
        Some(match self.peek()?.text(self.sql).to_ascii_lowercase().as_str() {
            "not" => {
                self.at += 1;
                self.expect("null")?;
                self.on_conflict()?;
                ClauseKind::NotNull
            }
            "null" => {
                self.at += 1;
                self.on_conflict()?;
                ClauseKind::Null
            }
            "default" => {
                self.at += 1;
                self.default()?;
                ClauseKind::Default
            }
            "check" => {
                self.at += 1;
                self.parentheses()?;
                ClauseKind::Check
            }
            "primary" => {
                self.at += 1;
                self.expect("key")?;
                let columns = if of_column { Vec::new() } else { self.names()? };
                let _ = self.take("asc") || self.take("desc");
                self.on_conflict()?;
                self.take("autoincrement");
                ClauseKind::PrimaryKey(columns)
            }
            "unique" => {
                self.at += 1;
                let columns = if of_column { Vec::new() } else { self.names()? };
                self.on_conflict()?;
                ClauseKind::Unique(columns)
            }
            "foreign" => {
                self.at += 1;
                self.expect("key")?;
                let columns = self.names()?;
                ClauseKind::ForeignKey(Reference { columns, ..self.reference()? })
            }
            "references" => ClauseKind::ForeignKey(self.reference()?),
            "generated" | "as" => {
                let _ = self.take("generated") && self.take("always");
                self.expect("as")?;
                self.parentheses()?;
                let _ = self.take("stored") || self.take("virtual");
                ClauseKind::Generated
            }
            "collate" => {
                self.at += 1;
                self.name()?;
                ClauseKind::Collate
            }
            _ => return None,
        })
    }

    fn on_conflict(&mut self) -> Option<()> {
        if self.take("on") {
            self.expect("conflict")?;
            self.name()?;
        }
        Some(())
    }

    /// An expression in parentheses, a constant with or without a sign, or a name.
    fn default(&mut self) -> Option<()> {
        if self.peek()?.kind == TokenKind::Open {
            return self.parentheses().map(drop);
        }
        if matches!(self.peek()?.text(self.sql), "+" | "-") {
            self.at += 1;
        }
        self.peek()?;
        self.at += 1;
        Some(())
    }

    fn reference(&mut self) -> Option<Reference> {
        self.expect("references")?;
        let mut found = Reference { parent: self.name()?, ..Reference::default() };
        if self.peek().is_some_and(|t| t.kind == TokenKind::Open) {
            found.parent_columns = self.names()?;
        }
        loop {
            if self.take("on") {
                self.at += 1;
                match self.peek()?.text(self.sql).to_ascii_lowercase().as_str() {
                    "set" | "no" => self.at += 2,
                    _ => self.at += 1,
                }
            } else if self.take("match") {
                self.name()?;
            } else if self.is("not") && self.tokens.get(self.at + 1).is_some_and(|t| t.is(self.sql, "deferrable")) {
                self.at += 2;
                self.initially();
            } else if self.take("deferrable") {
                found.deferrable = true;
                found.deferred = self.initially();
            } else {
                return Some(found);
            }
        }
    }

    fn initially(&mut self) -> bool {
        if !self.take("initially") {
            return false;
        }
        let deferred = self.is("deferred");
        self.at += 1;
        deferred
    }
}
