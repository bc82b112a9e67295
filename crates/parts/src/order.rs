//! The order in which tables are filled, and definitions without foreign keys.
//!
//! Rows go in while foreign keys are checked, so parents come first: tables by their references, and the rows of a table that
//! refers to itself by theirs. Tables that refer to each other in a circle, and rows that do, cannot be ordered; the server then
//! refuses a row, and `--without-foreign-keys` is the way.

use holdfast_dump::identifier::{after_word, read_name, skip_blanks};
use holdfast_types::quoting::quote;
use holdfast_types::schema::{Table, TableKind};
use std::sync::Arc;

/// The tables, parents before children as far as that is possible; otherwise as they were created.
pub fn parents_first(tables: &[Arc<Table>]) -> Vec<Arc<Table>> {
    let mut left: Vec<Arc<Table>> = tables.iter().filter(|t| t.kind == TableKind::Table).cloned().collect();
    let mut ordered = Vec::new();
    while !left.is_empty() {
        let waits = |table: &Table| {
            table.foreign_keys.iter().any(|key| {
                let is_parent = |other: &Arc<Table>| other.name.eq_ignore_ascii_case(&key.parent);
                !table.name.eq_ignore_ascii_case(&key.parent) && left.iter().any(is_parent)
            })
        };
        // In a circle, the first one.
        let next = left.iter().position(|table| !waits(table)).unwrap_or(0);
        ordered.push(left.remove(next));
    }
    ordered
}

/// FROM and ORDER BY of a query that returns a table's rows, parents first where the table refers to itself by one column.
pub fn rows_in_order(table: &Table, name: &str) -> String {
    let name = quote(name);
    if table.without_rowid {
        return format!("{name} AS \"t\"");
    }
    let Some(rowid) = rowid_name(table) else { return format!("{name} AS \"t\"") };
    let plain = format!("{name} AS \"t\" ORDER BY \"t\".{rowid}");
    let mut own = table.foreign_keys.iter().filter(|key| key.parent.eq_ignore_ascii_case(&table.name));
    let (Some(key), None) = (own.next(), own.next()) else { return plain };
    let parent = match key.parent_columns.first() {
        Some(Some(parent)) => Some(parent.clone()),
        _ => table.columns.iter().find(|column| column.pk == 1).map(|column| column.name.clone()),
    };
    let (Some(parent), [child]) = (parent, key.columns.as_slice()) else { return plain };
    let (child, parent) = (quote(child), quote(&parent));
    // Rows that are in no level are in a circle: they come last, and the server decides.
    format!(
        "{name} AS \"t\" LEFT JOIN (WITH RECURSIVE \"level\"(\"id\", \"key\", \"depth\") AS (\
         SELECT {rowid}, {parent}, 0 FROM {name} WHERE {child} IS NULL OR {child} = {parent} \
         UNION SELECT \"c\".{rowid}, \"c\".{parent}, \"depth\" + 1 FROM \"level\" JOIN {name} AS \"c\" \
         ON \"c\".{child} = \"level\".\"key\" AND \"c\".{child} <> \"c\".{parent}) SELECT \"id\", \"depth\" FROM \"level\") AS \"l\" \
         ON \"l\".\"id\" = \"t\".{rowid} ORDER BY \"depth\" IS NULL, \"depth\", \"t\".{rowid}"
    )
}

/// A name of the hidden rowid that no column has; that of the column where the rowid is one.
pub fn rowid_name(table: &Table) -> Option<String> {
    if let Some(alias) = table.columns.iter().find(|column| column.rowid_alias) {
        return Some(quote(&alias.name));
    }
    let is_column = |name: &str| table.columns.iter().any(|column| column.name.eq_ignore_ascii_case(name));
    ["rowid", "_rowid_", "oid"].into_iter().find(|name| !is_column(name)).map(str::to_owned)
}

/// A CREATE TABLE without its foreign keys; `None` where it cannot be read.
pub fn without_foreign_keys(create: &str) -> Option<String> {
    let open = list_start(create)?;
    let (parts, end) = split_list(&create[open + 1..])?;
    let kept: Vec<String> =
        parts.iter().filter(|part| !is_foreign_key(part)).map(|part| without_references(part)).collect();
    Some(format!("{}({}){}", &create[..open], kept.join(","), &create[open + 1 + end + 1..]))
}

/// Where the list of columns begins: the first parenthesis behind the name.
fn list_start(create: &str) -> Option<usize> {
    let (_, rest) = read_name(after_word(after_word(create, "create")?, "table")?)?;
    let rest = skip_blanks(rest);
    rest.starts_with('(').then(|| create.len() - rest.len())
}

/// The parts of a list up to its closing parenthesis, and where that is.
fn split_list(text: &str) -> Option<(Vec<&str>, usize)> {
    let (mut parts, mut depth, mut from, mut at) = (Vec::new(), 0usize, 0, 0);
    while let Some(c) = text[at..].chars().next() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => {
                parts.push(&text[from..at]);
                return Some((parts, at));
            }
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
        at += token_bytes(&text[at..]);
    }
    None
}

/// Bytes of a quoted text, a comment, a word, or one character.
fn token_bytes(text: &str) -> usize {
    let Some(c) = text.chars().next() else { return 0 };
    if text.starts_with("--") || text.starts_with("/*") {
        return text.len() - skip_comment(text).len();
    }
    if matches!(c, '"' | '`' | '\'' | '[') || c.is_alphanumeric() || c == '_' {
        return read_name(text).map_or(c.len_utf8(), |(_, rest)| text.len() - rest.len());
    }
    c.len_utf8()
}

fn skip_comment(text: &str) -> &str {
    match text.strip_prefix("--") {
        Some(comment) => comment.split_once('\n').map_or("", |(_, rest)| rest),
        None => text[2..].split_once("*/").map_or("", |(_, rest)| rest),
    }
}

/// A constraint of the table that is a foreign key.
fn is_foreign_key(part: &str) -> bool {
    let unnamed = after_word(part, "constraint").and_then(read_name).map_or(part, |(_, rest)| rest);
    after_word(unnamed, "foreign").and_then(|rest| after_word(rest, "key")).is_some()
}

/// A column's definition without its REFERENCES clauses.
fn without_references(part: &str) -> String {
    let (mut kept, mut at) = (String::new(), 0);
    // The column's own name may be any word.
    if let Some((_, rest)) = read_name(part) {
        at = part.len() - rest.len();
        kept.push_str(&part[..at]);
    }
    while at < part.len() {
        let rest = &part[at..];
        let is_blank = rest.starts_with(char::is_whitespace);
        if let Some(behind) = (!is_blank).then(|| references(rest)).flatten() {
            at = part.len() - behind.len();
            continue;
        }
        // A parenthesis is kept as a whole.
        let bytes = match rest.strip_prefix('(') {
            Some(inner) => split_list(inner).map_or(rest.len(), |(_, end)| end + 2),
            None => token_bytes(rest).max(1),
        };
        kept.push_str(&rest[..bytes]);
        at += bytes;
    }
    kept
}

/// What follows a REFERENCES clause, with the name of the constraint before it.
fn references(text: &str) -> Option<&str> {
    let named = after_word(text, "constraint").and_then(read_name).map(|(_, rest)| rest);
    let (_, mut rest) = read_name(after_word(named.unwrap_or(text), "references")?)?;
    if let Some(list) = skip_blanks(rest).strip_prefix('(') {
        rest = &list[split_list(list)?.1 + 1..];
    }
    loop {
        let words = |words: &[&str]| words.iter().try_fold(rest, |rest, word| after_word(rest, word));
        let action = ["delete", "update"].iter().find_map(|on| words(&["on", on]));
        rest = if let Some(action) = action {
            let two = [["set", "null"], ["set", "default"], ["no", "action"]];
            let long = two.iter().find_map(|[a, b]| after_word(action, a).and_then(|rest| after_word(rest, b)));
            long.or_else(|| ["cascade", "restrict"].iter().find_map(|word| after_word(action, word)))?
        } else if let Some(name) = words(&["match"]) {
            read_name(name)?.1
        } else if let Some(behind) = words(&["not", "deferrable"]).or_else(|| words(&["deferrable"])) {
            match after_word(behind, "initially") {
                Some(when) => read_name(when)?.1,
                None => behind,
            }
        } else {
            return Some(rest);
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_keys_are_taken_out_and_nothing_else() {
        let create = "CREATE TABLE \"o\" (\"id\" INTEGER /*serial*/ PRIMARY KEY, \"references\" integer NOT NULL, \
                      \"c\" integer CONSTRAINT \"x\" REFERENCES \"c\"(\"a, (b\") ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED \
                      DEFAULT (1, ')'), d text REFERENCES p MATCH simple on update cascade CHECK (d <> 'references p, '), \
                      CONSTRAINT \"fk\" FOREIGN KEY (\"c\") REFERENCES \"c\" (\"a\"), CHECK (\"c\" > 0)) STRICT";
        assert_eq!(
            without_foreign_keys(create).unwrap(),
            "CREATE TABLE \"o\" (\"id\" INTEGER /*serial*/ PRIMARY KEY, \"references\" integer NOT NULL, \
             \"c\" integer  DEFAULT (1, ')'), d text  CHECK (d <> 'references p, '), CHECK (\"c\" > 0)) STRICT"
        );
        for create in ["CREATE TABLE t(a, b -- , references x\n, c)", "CREATE TABLE [a (] (x /* ) */ int)"] {
            assert_eq!(without_foreign_keys(create).as_deref(), Some(create));
        }
        for broken in ["CREATE TABLE t(a", "CREATE VIEW v AS SELECT 1", ""] {
            assert_eq!(without_foreign_keys(broken), None);
        }
    }
}
