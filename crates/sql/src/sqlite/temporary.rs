//! Temporary tables in SQLite's dialect. In SQLite they are the schema `temp`, whose names are found before those of
//! `main`; in Holdfast they are the attached schema `pg_temp`, whose names are found last.
//!
//! | the text | becomes |
//! |---|---|
//! | `temp.t` | `pg_temp.t` |
//! | `sqlite_temp_schema`, `sqlite_temp_master` | `pg_temp.sqlite_schema` |
//! | `t`, a temporary table | `pg_temp.t` where a table's name is expected |
//! | `t`, where the text cannot be read that far and no permanent table has the name | is unchanged: SQLite finds it |
//! | `CREATE TEMP TABLE t ...` | `CREATE TABLE pg_temp.t ...`, without ON COMMIT |
//! | `CREATE INDEX`, `DROP`, `ALTER TABLE`, `REINDEX` of a temporary table | the statement with `pg_temp.` |
//!
//! Failure: if a name means a temporary table that hides a permanent one, and the text cannot be read well enough to
//! find that name, the statement is refused (0A000). Views and triggers over temporary tables are also refused.

use super::rewrite::offsets;
use crate::command::Kind;
use crate::names::TEMP_SCHEMA;
use crate::translated::{TempDdl, Translated};
use holdfast_types::schema::{Schema, Table};
use holdfast_types::{OnCommit, SqlError, SqlResult};
use sqlparser::ast::{Spanned, Statement};
use sqlparser::dialect::SQLiteDialect;
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};
use std::ops::ControlFlow;

/// The text as tokens without white space.
struct Text<'t> {
    text: &'t str,
    tokens: Vec<TokenWithSpan>,
    offsets: Vec<usize>,
    at: usize,
}

impl<'t> Text<'t> {
    fn new(text: &'t str) -> Option<Text<'t>> {
        let tokens = Tokenizer::new(&SQLiteDialect {}, text).tokenize_with_location().ok()?;
        let tokens: Vec<_> = tokens.into_iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).collect();
        let offsets = offsets(text, &tokens);
        Some(Text { text, tokens, offsets, at: 0 })
    }

    /// The name in token `i`: a word, quoted or not.
    fn name_at(&self, i: usize) -> Option<&str> {
        match &self.tokens.get(i)?.token {
            Token::Word(word) => Some(&word.value),
            _ => None,
        }
    }

    fn is_word(&self, i: usize, word: &str) -> bool {
        matches!(&self.tokens.get(i).map(|t| &t.token), Some(Token::Word(w))
            if w.quote_style.is_none() && w.value.eq_ignore_ascii_case(word))
    }

    fn is(&self, i: usize, token: &Token) -> bool {
        self.tokens.get(i).is_some_and(|t| t.token == *token)
    }

    fn accept(&mut self, words: &[&str]) -> bool {
        let found = words.iter().enumerate().all(|(i, word)| self.is_word(self.at + i, word));
        self.at += if found { words.len() } else { 0 };
        found
    }

    /// Where the token before token `i` ends.
    fn end_before(&self, i: usize) -> usize {
        self.text[..self.offsets[i]].trim_end().len()
    }

    /// Reads `[schema.]name`: returns the schema, the name, and the number of its token.
    fn object(&mut self) -> Option<(Option<String>, String, usize)> {
        let first = self.name_at(self.at)?.to_owned();
        if !self.is(self.at + 1, &Token::Period) {
            self.at += 1;
            return Some((None, first, self.at - 1));
        }
        let name = self.name_at(self.at + 2)?.to_owned();
        self.at += 3;
        Some((Some(first), name, self.at - 1))
    }

    fn has_name(&self, of: impl Fn(&str) -> bool) -> bool {
        (0..self.tokens.len()).any(|i| self.name_at(i).is_some_and(&of))
    }
}

fn is_temp(schema: &str) -> bool {
    schema.eq_ignore_ascii_case("temp") || schema.eq_ignore_ascii_case(TEMP_SCHEMA)
}

fn temporary<'s>(schema: &'s Schema, name: &str) -> Option<&'s Table> {
    schema.table(name).filter(|t| t.temp).map(|t| &**t)
}

/// True where both a temporary and a permanent table have this name.
fn hides(schema: &Schema, name: &str) -> bool {
    temporary(schema, name).is_some() && schema.tables.iter().any(|t| !t.temp && t.name.eq_ignore_ascii_case(name))
}

/// The text with qualified names of temporary tables, by the table in the module's header. `None` where nothing
/// changes.
pub fn qualified(text: &str, schema: &Schema) -> SqlResult<Option<String>> {
    if !schema.has_temporary() {
        return Ok(None);
    }
    let Some(tokens) = Text::new(text) else { return Ok(None) };
    let mut edits: Vec<(usize, usize, &str)> = Vec::new();
    for i in 0..tokens.tokens.len() {
        let alone = (i == 0 || !tokens.is(i - 1, &Token::Period)) && !tokens.is(i + 1, &Token::LParen);
        let Some(name) = tokens.name_at(i).filter(|_| alone) else { continue };
        let (start, end) = (tokens.offsets[i], tokens.end_before(i + 1));
        let qualifies = tokens.is(i + 1, &Token::Period);
        if qualifies && name.eq_ignore_ascii_case("temp") {
            edits.push((start, end, TEMP_SCHEMA));
        } else if !qualifies
            && ["sqlite_temp_schema", "sqlite_temp_master"].contains(&name.to_ascii_lowercase().as_str())
        {
            edits.push((start, end, "pg_temp.sqlite_schema"));
        }
    }
    let data = ["SELECT", "VALUES", "WITH", "INSERT", "REPLACE", "UPDATE", "DELETE", "EXPLAIN"];
    if data.iter().any(|verb| tokens.is_word(0, verb)) && tokens.has_name(|name| temporary(schema, name).is_some()) {
        let places = match places(&tokens, schema) {
            // No permanent table has the name.
            Err(_) if !tokens.has_name(|name| hides(schema, name)) => Vec::new(),
            found => found?,
        };
        edits.extend(places.into_iter().map(|at| (at, at, "pg_temp.")));
    }
    if edits.is_empty() {
        return Ok(None);
    }
    edits.sort_unstable();
    let (mut out, mut copied) = (String::with_capacity(text.len() + 64), 0);
    for (start, end, new) in edits {
        out.push_str(&text[copied..start]);
        out.push_str(new);
        copied = end;
    }
    out.push_str(&text[copied..]);
    Ok(Some(out))
}

/// Byte positions of unqualified names that mean temporary tables.
fn places(tokens: &Text<'_>, schema: &Schema) -> SqlResult<Vec<usize>> {
    let refused = || {
        SqlError::unsupported("this statement while a temporary table hides a permanent table of the same name")
            .with_hint("Write temp.NAME or main.NAME.")
    };
    let parser = Parser::new(&SQLiteDialect {}).with_recursion_limit(crate::parse::DEPTH_MAX);
    let mut parser = parser.try_with_sql(tokens.text).map_err(|_| refused())?;
    let statement: Statement = parser.parse_statement().map_err(|_| refused())?;
    if !matches!(parser.peek_token().token, Token::EOF | Token::SemiColon) {
        return Err(refused());
    }
    // The name could mean a WITH query instead.
    let with = (0..tokens.tokens.len()).any(|i| {
        let named = tokens.name_at(i).is_some_and(|name| temporary(schema, name).is_some());
        named && (tokens.is_word(i + 1, "AS") && tokens.is(i + 2, &Token::LParen) || tokens.is(i + 1, &Token::LParen))
    });
    let inserts = matches!(statement, Statement::Insert(_));
    if with && !inserts {
        return Err(refused());
    }
    let mut at: Vec<Location> = Vec::new();
    let _ = crate::relations::visit_relations(&statement, |name| {
        if let [only] = name.0.as_slice()
            && only.as_ident().is_some_and(|i| temporary(schema, &i.value).is_some())
        {
            at.push(only.span().start);
        }
        ControlFlow::Continue(())
    });
    let place = |at: Location| tokens.tokens.iter().position(|t| t.span.start == at).map(|i| tokens.offsets[i]);
    let mut places = at.into_iter().map(|at| place(at).ok_or_else(refused)).collect::<SqlResult<Vec<_>>>()?;
    places.sort_unstable();
    places.dedup();
    Ok(places)
}

/// Translates a schema change of temporary tables; `None` for any other.
pub fn ddl(text: &str, schema: &Schema) -> SqlResult<Option<Translated>> {
    let Some(mut tokens) = Text::new(text) else { return Ok(None) };
    if tokens.accept(&["CREATE"]) {
        return create(tokens, schema);
    }
    let (start, verb) = (tokens.at, super::texts::ddl_verb(text));
    let index = match () {
        () if tokens.accept(&["DROP", "TABLE"]) || tokens.accept(&["ALTER", "TABLE"]) => false,
        () if tokens.accept(&["DROP", "INDEX"]) => true,
        () if tokens.accept(&["REINDEX"]) => false,
        () => return Ok(None),
    };
    tokens.accept(&["IF", "EXISTS"]);
    let head = &text[tokens.offsets[start]..tokens.end_before(tokens.at)];
    let Some((of, name, place)) = tokens.object() else { return Ok(None) };
    let is_index = |t: &Table| t.temp && t.indexes.iter().any(|i| i.name.eq_ignore_ascii_case(&name));
    let ours = match of.as_deref() {
        Some(of) => is_temp(of),
        None if index => schema.tables.iter().any(|t| is_index(t)),
        None => temporary(schema, &name).is_some(),
    };
    let rest = &text[tokens.offsets[place]..];
    Ok(ours.then(|| done(format!("{head} {TEMP_SCHEMA}.{rest}"), verb, None)))
}

fn done(step: String, verb: &'static str, creates: Option<(String, OnCommit)>) -> Translated {
    let access = creates.as_ref().map(|_| super::texts::temporary()).unwrap_or_default();
    Translated {
        steps: vec![step.into()],
        access,
        // CREATE TABLE AS reads.
        access_after_prepare: true,
        temp: Some(TempDdl { creates }),
        cacheable: false,
        ..Translated::command(Kind::Ddl, verb)
    }
}

/// Reads what follows CREATE.
fn create(mut tokens: Text<'_>, schema: &Schema) -> SqlResult<Option<Translated>> {
    let temp = tokens.accept(&["TEMP"]) || tokens.accept(&["TEMPORARY"]);
    if tokens.accept(&["TABLE"]) {
        return create_table(tokens, temp, schema);
    }
    let head = if tokens.accept(&["UNIQUE", "INDEX"]) { "CREATE UNIQUE INDEX" } else { "CREATE INDEX" };
    if head == "CREATE UNIQUE INDEX" || tokens.accept(&["INDEX"]) {
        let absent = if tokens.accept(&["IF", "NOT", "EXISTS"]) { " IF NOT EXISTS" } else { "" };
        let Some((of, _, place)) = tokens.object() else { return Ok(None) };
        let on = if tokens.accept(&["ON"]) { tokens.name_at(tokens.at) } else { None };
        let ours = match of.as_deref() {
            Some(of) => is_temp(of),
            None => on.is_some_and(|table| temporary(schema, table).is_some()),
        };
        let rest = &tokens.text[tokens.offsets[place]..];
        return Ok(ours.then(|| done(format!("{head}{absent} {TEMP_SCHEMA}.{rest}"), "CREATE INDEX", None)));
    }
    let what = if tokens.is_word(tokens.at, "VIEW") { "view" } else { "trigger" };
    let stored = ["VIEW", "TRIGGER", "VIRTUAL"].iter().any(|word| tokens.is_word(tokens.at, word));
    if temp && stored {
        return Err(SqlError::unsupported(format!("a temporary {what}")));
    }
    if stored && tokens.has_name(|name| temporary(schema, name).is_some()) {
        return Err(SqlError::unsupported(format!("a {what} over a temporary table")));
    }
    Ok(None)
}

fn create_table(mut tokens: Text<'_>, temp: bool, schema: &Schema) -> SqlResult<Option<Translated>> {
    let absent = if tokens.accept(&["IF", "NOT", "EXISTS"]) { "IF NOT EXISTS " } else { "" };
    let Some((of, name, place)) = tokens.object() else { return Ok(None) };
    let text = tokens.text;
    let query = (tokens.at..tokens.tokens.len()).any(|i| {
        let begins = ["SELECT", "VALUES", "WITH"].iter().any(|verb| tokens.is_word(i + 1, verb));
        tokens.is_word(i, "AS") && begins
    });
    if of.as_deref().map_or(!temp, |of| !is_temp(of)) {
        if query && tokens.has_name(|name| temporary(schema, name).is_some()) {
            return Err(SqlError::unsupported("CREATE TABLE AS that reads temporary and permanent tables")
                .with_hint("Create the table, then use INSERT ... SELECT."));
        }
        return Ok(None);
    }
    if query && tokens.has_name(|name| hides(schema, name)) {
        return Err(SqlError::unsupported(
            "CREATE TABLE AS while a temporary table hides a permanent table of the same name",
        ));
    }
    let begun = tokens.offsets[place];
    let (mut rest, mut then) = (text[begun..].to_owned(), OnCommit::PreserveRows);
    if let Some(i) =
        (tokens.at..tokens.tokens.len()).find(|i| tokens.is_word(*i, "ON") && tokens.is_word(i + 1, "COMMIT"))
    {
        tokens.at = i + 2;
        then = match () {
            () if tokens.accept(&["PRESERVE", "ROWS"]) => OnCommit::PreserveRows,
            () if tokens.accept(&["DELETE", "ROWS"]) => OnCommit::DeleteRows,
            () if tokens.accept(&["DROP"]) => OnCommit::Drop,
            () => return Ok(None),
        };
        rest = format!("{} {}", &text[begun..tokens.offsets[i]], &text[tokens.offsets[tokens.at]..]);
    }
    let step = format!("CREATE TABLE {absent}{TEMP_SCHEMA}.{rest}");
    Ok(Some(done(step, "CREATE TABLE", Some((name, then)))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_types::schema::TableKind;
    use std::sync::Arc;

    fn table(name: &str, temp: bool) -> Arc<Table> {
        Arc::new(Table {
            oid: 1,
            name: name.into(),
            kind: TableKind::Table,
            without_rowid: false,
            sql: String::new(),
            columns: Vec::new(),
            indexes: Vec::new(),
            foreign_keys: Vec::new(),
            triggers: Vec::new(),
            temp,
            key_name: String::new(),
        })
    }

    /// A permanent `t` and `p`; temporary `t` and `x`.
    fn schema() -> Schema {
        let tables = vec![table("t", false), table("p", false)];
        let by_name = [("t".to_owned(), 0), ("p".to_owned(), 1)].into();
        Schema { epoch: 1, permanent: None, tables, by_name, ..Schema::default() }
            .with_temporary(2, &[table("t", true), table("x", true)])
    }

    #[test]
    fn names_are_qualified_where_they_stand_for_tables() {
        for (text, now) in [
            ("select t.a from t join p on t.a = p.t", "select t.a from pg_temp.t join p on t.a = p.t"),
            ("select * from temp.t, main.t, x", "select * from pg_temp.t, main.t, pg_temp.x"),
            ("insert into T(a) select a from main.t", "insert into pg_temp.T(a) select a from main.t"),
            ("update \"t\" set a = 't' -- t", "update pg_temp.\"t\" set a = 't' -- t"),
            (
                "delete from t where a in (select a from t)",
                "delete from pg_temp.t where a in (select a from pg_temp.t)",
            ),
            ("select name from sqlite_temp_master", "select name from pg_temp.sqlite_schema"),
        ] {
            assert_eq!(qualified(text, &schema()).unwrap().as_deref(), Some(now), "{text}");
        }
        for text in ["with x as (select 1) select * from x, p", "select 1", "select temp from p"] {
            assert_eq!(qualified(text, &schema()).unwrap(), None, "{text}");
        }
        assert!(qualified("with t as (select 1 as a) select a from t", &schema()).is_err());
        assert!(qualified("select a from t not sql", &schema()).is_err());
    }

    #[test]
    fn schema_changes_of_temporary_tables_are_known() {
        let drop = OnCommit::Drop;
        for (text, now, creates) in [
            ("create temp table n(a)", "CREATE TABLE pg_temp.n(a)", Some(OnCommit::PreserveRows)),
            (
                "CREATE TEMPORARY TABLE IF NOT EXISTS n(a) ON COMMIT DROP",
                "CREATE TABLE IF NOT EXISTS pg_temp.n(a)",
                Some(drop),
            ),
            (
                "create table temp.n as select 1 as a",
                "CREATE TABLE pg_temp.n as select 1 as a",
                Some(OnCommit::PreserveRows),
            ),
            (
                "create temp table n on commit delete rows as select 1",
                "CREATE TABLE pg_temp.n  as select 1",
                Some(OnCommit::DeleteRows),
            ),
            ("create unique index i on x(a)", "CREATE UNIQUE INDEX pg_temp.i on x(a)", None),
            ("drop table if exists t", "drop table if exists pg_temp.t", None),
            ("alter table temp.x add column b", "alter table pg_temp.x add column b", None),
        ] {
            let done = ddl(text, &schema()).unwrap().expect(text);
            assert_eq!(done.steps[0].sql.trim_end(), now, "{text}");
            assert_eq!(done.temp.unwrap().creates.map(|c| c.1), creates, "{text}");
        }
        for text in
            ["create table n(a)", "create index i on p(a)", "drop table p", "drop table main.t", "alter table p add b"]
        {
            assert!(ddl(text, &schema()).unwrap().is_none(), "{text}");
        }
        for text in
            ["create temp view v as select 1", "create view v as select * from x", "create table n as select * from x"]
        {
            assert!(ddl(text, &schema()).is_err(), "{text}");
        }
    }
}
