//! Which change of the schema a statement is, and which tables it is about.

use crate::lex::Tokens;
use holdfast_types::SchemaChange;

/// The change of the schema that a text is; `None` for any other statement.
pub fn schema_change(tokens: &Tokens) -> Option<SchemaChange> {
    let change = match () {
        () if tokens.is(0, "create") => create(tokens),
        () if tokens.is(0, "alter") => alter(tokens),
        () if tokens.is(0, "drop") => drop(tokens),
        () => return None,
    };
    Some(change.unwrap_or(SchemaChange::Other))
}

/// What is not listed here, such as a trigger or a temporary table, is `None`.
fn create(tokens: &Tokens) -> Option<SchemaChange> {
    let at = tokens.skip(1, &["unique"]);
    if tokens.is(at, "index") {
        let (_, behind) = tokens.object(tokens.skip(at + 1, &["if", "not", "exists"]))?;
        let (table, _) = tokens.object(tokens.skip(behind, &["on"]))?;
        return Some(SchemaChange::CreateIndex { table: table.to_owned() });
    }
    match () {
        () if tokens.is(at, "table") => Some(SchemaChange::CreateTable { refers_to: refers_to(tokens, at) }),
        () if tokens.is(at, "view") => Some(SchemaChange::CreateView),
        () => None,
    }
}

fn alter(tokens: &Tokens) -> Option<SchemaChange> {
    let (table, behind) = tokens.object(tokens.skip(1, &["table"]))?;
    Some(SchemaChange::AlterTable { table: table.to_owned(), refers_to: refers_to(tokens, behind) })
}

fn drop(tokens: &Tokens) -> Option<SchemaChange> {
    let (name, _) = tokens.object(tokens.skip(2, &["if", "exists"]))?;
    match () {
        () if tokens.is(1, "table") => Some(SchemaChange::DropTable { table: name.to_owned() }),
        () if tokens.is(1, "view") => Some(SchemaChange::DropView),
        () if tokens.is(1, "index") => Some(SchemaChange::DropIndex { index: name.to_owned() }),
        () => None,
    }
}

/// The names behind each REFERENCES.
fn refers_to(tokens: &Tokens, from: usize) -> Vec<String> {
    let places = (from..tokens.0.len()).filter(|at| tokens.is(*at, "references"));
    places.filter_map(|at| tokens.name(at + 1)).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::facts;

    fn change(sql: &str) -> Option<SchemaChange> {
        facts(sql).schema_change.map(|change| (*change).clone())
    }

    #[test]
    fn a_change_names_what_it_is_about() {
        use SchemaChange::*;
        let (p, odd) = (|| "p".to_owned(), || "o d\"d".to_owned());
        for (sql, expected) in [
            ("create table t(a)", CreateTable { refers_to: vec![] }),
            (
                "CREATE TABLE if not exists t(a /* references x */ references p, b default 'references y')",
                CreateTable { refers_to: vec![p()] },
            ),
            ("create view v as select 1", CreateView),
            ("create unique index i on \"o d\"\"d\"(a)", CreateIndex { table: odd() }),
            ("create index if not exists main.i on p(a)", CreateIndex { table: p() }),
            (
                "/* c */ alter table [o d\"d] add column b references p",
                AlterTable { table: odd(), refers_to: vec![p()] },
            ),
            ("alter table main.p rename to q", AlterTable { table: p(), refers_to: vec![] }),
            (
                "ALTER TABLE \"p\" AS CREATE TABLE \"p\" (\"a\" REFERENCES \"p\")\u{1e}INDEX \"i\" AS CREATE INDEX \"i\" ON \"p\" (\"a\")",
                AlterTable { table: p(), refers_to: vec![p()] },
            ),
            ("drop table if exists main.p", DropTable { table: p() }),
            ("drop view v", DropView),
            ("drop index p", DropIndex { index: p() }),
            ("create temp table t(a)", Other),
            ("create virtual table v using fts5(a)", Other),
            ("create trigger t after insert on p begin select 1; end", Other),
            ("drop trigger t", Other),
        ] {
            assert_eq!(change(sql), Some(expected), "{sql}");
        }
        for sql in ["analyze", "reindex p", "select 'create table'", "insert into \"create\" values(1)", ""] {
            assert_eq!(change(sql), None, "{sql}");
        }
    }
}
