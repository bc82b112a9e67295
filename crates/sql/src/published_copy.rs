//! The COPY by which a stock PostgreSQL 15 subscriber fetches the rows of a published table, answered for a role that may follow
//! publications of the table and may not read the table.
//!
//! Of the client's text only names are taken: the table, the columns and, by their texts, conditions. The statement that runs
//! is made of the publications' own definitions, because their conditions and lists of columns are a boundary.
//!
//! | the text | which publications answer |
//! |---|---|
//! | `COPY public.t (a, b) TO STDOUT` | all that have these columns |
//! | `COPY (SELECT a, b FROM ONLY public.t) TO STDOUT` | the same |
//! | `COPY (SELECT a, b FROM ONLY public.t WHERE (x) OR (y)) TO STDOUT` | those that have these columns and one of these conditions, written as `pg_get_expr` shows it |
//!
//! A row is sent where one of these publications has it, with all of the columns. So a value is sent only where one publication has
//! both its row and its column, also where several publications have other rows and other columns of the table. A subscription to
//! one of several publications gets no rows of the others.
//!
//! Failure: `None` for any other text, and where no publication answers; the caller refuses the statement.

use crate::bind::scope;
use crate::catalogue::{filter_shown, is_publishable};
use crate::command::{CopyFormat, Kind};
use crate::finish::describe;
use crate::names::quote;
use crate::translated::Translated;
use holdfast_types::StatementDesc;
use holdfast_types::publication::Publication;
use holdfast_types::schema::{Dialect, Table};
use std::sync::Arc;

/// What the text of a COPY names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted<'t> {
    pub table: String,
    columns: Vec<String>,
    /// Behind WHERE, as it is written.
    condition: Option<&'t str>,
}

/// Reads a COPY of a published table in one of the forms that a stock subscriber sends. `None`: it is another statement.
pub fn wanted(text: &str) -> Option<Wanted<'_>> {
    let mut words = Words { rest: text };
    words.word("copy")?;
    let Some(()) = words.sign('(') else {
        let table = words.table()?;
        words.sign('(')?;
        let columns = words.names()?;
        words.sign(')')?;
        words.end()?;
        return Some(Wanted { table, columns, condition: None });
    };
    words.word("select")?;
    let columns = words.names()?;
    words.word("from")?;
    words.word("only")?;
    let table = words.table()?;
    let condition = match words.word("where") {
        None => None,
        Some(()) => {
            // Conditions may have parentheses and texts in them, so its end is looked for from behind.
            let close = words.rest.rfind(')')?;
            let condition = words.rest.get(..close)?.trim();
            words.rest = words.rest.get(close..)?;
            Some(condition)
        }
    };
    words.sign(')')?;
    words.end()?;
    Some(Wanted { table, columns, condition })
}

/// The statement that answers a COPY of a table to a role that may follow `publications`. `None`: they have no such rows.
pub fn answer<'p>(
    wanted: &Wanted<'_>,
    table: &Table,
    publications: impl Iterator<Item = &'p Publication>,
    dialect: Dialect,
) -> Option<Translated> {
    if !is_publishable(table) {
        return None;
    }
    let mut filters: Vec<Option<&str>> =
        publications.filter_map(|publication| filter_of(publication, table, &wanted.columns)).collect();
    if filters.is_empty() {
        return None;
    }
    if let Some(condition) = wanted.condition {
        let shown = |filter: &&'p str| (filter_shown(filter, table, dialect), *filter);
        filters = named(condition, filters.iter().flatten().map(shown).collect())?;
    }
    let all = scope::columns_of(table, dialect);
    let column = |name: &String| all.iter().find(|column| column.name == *name).cloned();
    let columns: Vec<_> = wanted.columns.iter().map(column).collect::<Option<_>>()?;
    let listed: Vec<String> = columns.iter().map(|column| quote(&column.name)).collect();
    let mut sql = format!("SELECT {} FROM main.{}", listed.join(", "), quote(&table.name));
    // One without a condition has all rows.
    if let Some(filters) = filters.into_iter().collect::<Option<Vec<_>>>() {
        let any: Vec<String> = filters.iter().map(|filter| format!("({filter})")).collect();
        sql.push_str(&format!(" WHERE {}", any.join(" OR ")));
    }
    Some(Translated {
        steps: vec![sql.into()],
        desc: Arc::new(StatementDesc { params: Vec::new(), columns: describe(&columns), empty_rows: false }),
        counts: true,
        published: true,
        cacheable: false,
        ..Translated::command(Kind::CopyOut(Box::new(CopyFormat::text())), "COPY")
    })
}

/// The condition on the rows of a table in a publication that has the table with all these columns.
fn filter_of<'p>(publication: &'p Publication, table: &Table, columns: &[String]) -> Option<Option<&'p str>> {
    let entry = publication.table(table.oid);
    if entry.is_none() && !publication.all_tables {
        return None;
    }
    let has = |name: &String| match entry.and_then(|entry| entry.columns.as_ref()) {
        Some(listed) => listed.contains(name),
        None => table.columns.iter().any(|column| column.name == *name && !column.generated),
    };
    columns.iter().all(has).then(|| entry.and_then(|entry| entry.filter.as_deref()))
}

/// The conditions that a text names, with OR between them. `None`: there is something else in it.
fn named<'p>(text: &str, mut known: Vec<(String, &'p str)>) -> Option<Vec<Option<&'p str>>> {
    // The longest first: one may be the beginning of another.
    known.sort_by_key(|(shown, _)| std::cmp::Reverse(shown.len()));
    let (mut found, mut rest) = (Vec::new(), text);
    loop {
        let (after, filter) = known.iter().find_map(|(shown, filter)| {
            let after = rest.strip_prefix(shown.as_str())?;
            (after.is_empty() || after.starts_with(" OR ")).then_some((after, *filter))
        })?;
        found.push(Some(filter));
        match after.strip_prefix(" OR ") {
            Some(more) => rest = more,
            None => return Some(found),
        }
    }
}

/// A text that is read word by word.
struct Words<'t> {
    rest: &'t str,
}

impl Words<'_> {
    fn word(&mut self, word: &str) -> Option<()> {
        let rest = self.rest.trim_start();
        let (found, after) = rest.split_at_checked(word.len())?;
        let ends = !after.starts_with(|c: char| c == '_' || c == '$' || c.is_alphanumeric());
        (ends && found.eq_ignore_ascii_case(word)).then(|| self.rest = after)
    }

    fn sign(&mut self, sign: char) -> Option<()> {
        self.rest = self.rest.trim_start().strip_prefix(sign)?;
        Some(())
    }

    /// `TO STDOUT`, and nothing behind it.
    fn end(&mut self) -> Option<()> {
        self.word("to")?;
        self.word("stdout")?;
        self.rest.trim_start().is_empty().then_some(())
    }

    /// A table, in schema public.
    fn table(&mut self) -> Option<String> {
        let schema = self.name()?;
        self.sign('.')?;
        (schema == "public").then(|| self.name())?
    }

    fn names(&mut self) -> Option<Vec<String>> {
        let mut names = vec![self.name()?];
        while self.sign(',').is_some() {
            names.push(self.name()?);
        }
        Some(names)
    }

    /// A name as `quote_identifier` writes it.
    fn name(&mut self) -> Option<String> {
        let rest = self.rest.trim_start();
        let Some(quoted) = rest.strip_prefix('"') else {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let (name, after) = rest.split_at_checked(rest.find(|c| !is_plain(c)).unwrap_or(rest.len()))?;
            let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            return begins.then(|| {
                self.rest = after;
                name.to_ascii_lowercase()
            });
        };
        let (mut name, mut rest) = (String::new(), quoted);
        loop {
            let (part, after) = rest.split_once('"')?;
            name.push_str(part);
            match after.strip_prefix('"') {
                Some(more) => {
                    name.push('"');
                    rest = more;
                }
                None => {
                    self.rest = after;
                    return Some(name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, String, Option<&str>)> {
        wanted(text).map(|wanted| (wanted.table, wanted.columns.join("|"), wanted.condition))
    }

    #[test]
    fn the_forms_of_a_stock_subscriber() {
        for (text, table, columns, condition) in [
            ("COPY public.skill (id, s, t) TO STDOUT", "skill", "id|s|t", None),
            ("COPY public.\"A \"\"b\" (\"C,\", d) TO STDOUT", "A \"b", "C,|d", None),
            ("COPY (SELECT id FROM ONLY public.per) TO STDOUT", "per", "id", None),
            ("COPY (SELECT id, r FROM ONLY public.per WHERE (r = 2)) TO STDOUT", "per", "id|r", Some("(r = 2)")),
            (
                "COPY (SELECT \"from\" FROM ONLY public.per WHERE (r = ')'::text) OR (f(s))) TO STDOUT",
                "per",
                "from",
                Some("(r = ')'::text) OR (f(s))"),
            ),
        ] {
            assert_eq!(read(text), Some((table.to_owned(), columns.to_owned(), condition)), "{text}");
        }
    }

    #[test]
    fn other_texts_are_not_read() {
        for text in [
            "COPY public.t TO STDOUT",
            "COPY t (id) TO STDOUT",
            "COPY other.t (id) TO STDOUT",
            "COPY public.t () TO STDOUT",
            "COPY public.t (id) TO STDOUT WITH (FORMAT csv)",
            "COPY public.t (id) TO STDOUT (FORMAT binary)",
            "COPY public.t (id) TO PROGRAM 'cat'",
            "COPY public.t (id) TO '/tmp/t'",
            "COPY public.t (id) FROM STDIN",
            "COPY public.t (id) TO STDOUT; COPY public.t (id) TO STDOUT",
            "COPY (SELECT id FROM public.t) TO STDOUT",
            "COPY (SELECT * FROM ONLY public.t) TO STDOUT",
            "COPY (SELECT t.id FROM ONLY public.t) TO STDOUT",
            "COPY (SELECT id AS x FROM ONLY public.t) TO STDOUT",
            "COPY (SELECT id, md5(s) FROM ONLY public.t) TO STDOUT",
            "COPY (SELECT id FROM ONLY public.t, public.u) TO STDOUT",
            "COPY (SELECT id FROM ONLY public.t a) TO STDOUT",
            "COPY (SELECT id FROM ONLY public.t JOIN public.u ON true) TO STDOUT",
            "COPY (SELECT id FROM ONLY public.t UNION SELECT id FROM public.u) TO STDOUT",
            "COPY (SELECT DISTINCT id FROM ONLY public.t) TO STDOUT",
            "COPY (SELECT id FROM ONLY public.t ORDER BY s) TO STDOUT",
            "COPYpublic.t (id) TO STDOUT",
            "COPY public.tü (id) TO STDOUT",
            "COPY public.\"t (id) TO STDOUT",
            "SELECT 1",
            "",
        ] {
            assert_eq!(wanted(text), None, "{text}");
        }
    }

    #[test]
    fn conditions_are_recognised_as_a_whole() {
        let known = || vec![("a".to_owned(), "A"), ("(b = 1)".to_owned(), "B"), ("a OR b".to_owned(), "AB")];
        for (text, expected) in [
            ("a", Some(vec!["A"])),
            ("(b = 1) OR a", Some(vec!["B", "A"])),
            ("a OR b", Some(vec!["AB"])),
            ("a OR b OR (b = 1)", Some(vec!["AB", "B"])),
            ("a OR true", None),
            ("a OR ", None),
            ("true", None),
            ("(b = 1) UNION SELECT 1", None),
            ("(b = 2)", None),
            ("", None),
        ] {
            let found = named(text, known()).map(|found| found.into_iter().flatten().collect::<Vec<_>>());
            assert_eq!(found, expected, "{text}");
        }
    }
}
