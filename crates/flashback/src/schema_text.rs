//! What the text of a schema change is about. The trail has it as the client sent it, with its comments and quotes.
//!
//! Failure: none. Comments are nested in one dialect and not in the other, so each question is asked in both ways, and the
//! answer is the one with which more is shown and more is refused.

/// A word of a statement.
#[derive(Clone, Debug, PartialEq)]
enum Word {
    /// A keyword or a name.
    Bare(String),
    /// A name in quotes.
    Quoted(String),
    /// A text, which SQLite's dialect takes for a name where only a name can stand.
    Text(String),
}

impl Word {
    fn is_keyword(&self, one_of: &[&str]) -> bool {
        matches!(self, Word::Bare(word) if one_of.iter().any(|keyword| word.eq_ignore_ascii_case(keyword)))
    }
}

/// Whether a schema change mentions a table.
pub fn mentions(sql: &str, table: &str) -> bool {
    readings(sql).iter().any(|words| names(words, table))
}

/// Whether a schema change may have changed a table that exists before and after it. Only what is known to leave it alone
/// does not: CREATE of anything, as the table was there, DROP of an index, a trigger or a view, rights and remarks.
pub fn reshapes(sql: &str, table: &str) -> bool {
    readings(sql).iter().any(|words| names(words, table) && !leaves_alone(words))
}

/// Whether a schema change may remove a column of a table.
pub fn removes_columns(sql: &str) -> bool {
    readings(sql).iter().any(|words| {
        let altered = words.iter().position(|word| word.is_keyword(&["alter"]));
        altered.is_some_and(|at| words[at..].iter().any(|word| word.is_keyword(&["drop"])))
    })
}

fn leaves_alone(words: &[Word]) -> bool {
    let second = |one_of: &[&str]| words.get(1).is_some_and(|word| word.is_keyword(one_of));
    match words.first() {
        Some(word) if word.is_keyword(&["create", "grant", "revoke", "comment", "analyze", "reindex"]) => true,
        Some(word) if word.is_keyword(&["drop"]) => second(&["index", "trigger", "view"]),
        _ => false,
    }
}

fn names(words: &[Word], table: &str) -> bool {
    // In a CREATE a text may be a default.
    let texts_are_names = !words.first().is_some_and(|word| word.is_keyword(&["create", "comment"]));
    words.iter().any(|word| match word {
        Word::Bare(name) | Word::Quoted(name) => name.eq_ignore_ascii_case(table),
        Word::Text(name) => texts_are_names && name.eq_ignore_ascii_case(table),
    })
}

/// The words of a statement, read with comments that are not nested and with comments that are.
fn readings(sql: &str) -> [Vec<Word>; 2] {
    [words(sql, false), words(sql, true)]
}

fn words(sql: &str, nested: bool) -> Vec<Word> {
    let mut words = Vec::new();
    let mut rest = sql;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            _ if rest.starts_with("--") => rest.split_once('\n').map_or("", |(_, behind)| behind),
            _ if rest.starts_with("/*") => behind_comment(&rest[2..], nested),
            '"' | '`' | '\'' => {
                let (word, behind) = quoted(rest, first);
                words.push(if first == '\'' { Word::Text(word) } else { Word::Quoted(word) });
                behind
            }
            '[' => {
                let (word, behind) = rest[1..].split_once(']').unwrap_or((&rest[1..], ""));
                words.push(Word::Quoted(word.to_owned()));
                behind
            }
            _ if is_word(first) => {
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                words.push(Word::Bare(rest[..end].to_owned()));
                &rest[end..]
            }
            _ => &rest[first.len_utf8()..],
        };
    }
    words
}

fn behind_comment(text: &str, nested: bool) -> &str {
    let (mut depth, mut rest) = (1, text);
    while depth > 0 {
        let (open, close) = (rest.find("/*").filter(|_| nested), rest.find("*/"));
        let Some(close) = close else { return "" };
        match open.filter(|open| *open < close) {
            Some(open) => (depth, rest) = (depth + 1, &rest[open + 2..]),
            None => (depth, rest) = (depth - 1, &rest[close + 2..]),
        }
    }
    rest
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

/// SQL of SQLite's dialect with backquotes around what is in double quotes: SQLite takes a name in double quotes for a
/// text if there is no such column, and one in backquotes never.
pub fn in_backquotes(sql: &str) -> String {
    let (mut text, mut rest) = (String::new(), sql);
    while let Some(first) = rest.chars().next() {
        let behind = match first {
            '"' => {
                let (word, behind) = quoted(rest, first);
                text.push_str(&format!("`{}`", word.replace('`', "``")));
                rest = behind;
                continue;
            }
            '\'' | '`' => quoted(rest, first).1,
            '[' => rest.split_once(']').map_or("", |(_, behind)| behind),
            _ if rest.starts_with("--") => rest.split_once('\n').map_or("", |(_, behind)| behind),
            _ if rest.starts_with("/*") => behind_comment(&rest[2..], false),
            _ => &rest[first.len_utf8()..],
        };
        text.push_str(&rest[..rest.len() - behind.len()]);
        rest = behind;
    }
    text
}

/// A quoted word at the beginning, and what is behind it.
fn quoted(text: &str, quote: char) -> (String, &str) {
    let mut word = String::new();
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c != quote {
            word.push(c);
        } else if chars.next_if(|(_, next)| *next == quote).is_some() {
            word.push(quote);
        } else {
            return (word, &text[at + 1..]);
        }
    }
    (word, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_change_mentions_its_tables() {
        for sql in [
            "DROP TABLE \"orders\"",
            "ALTER TABLE Orders ADD COLUMN x",
            "CREATE INDEX i ON [orders](a)",
            "drop table main.`orders`",
            "/* it's */ alter table orders drop column a",
            "alter table 'orders' drop column a",
            "/* /* */ drop table orders",
            "/* /* */ */ drop table orders",
        ] {
            assert!(mentions(sql, "orders"), "{sql}");
        }
        for sql in [
            "DROP TABLE orders2",
            "CREATE TABLE x(a DEFAULT 'orders')",
            "DROP TABLE \"a\"\"orders\"",
            "/* orders */ drop table x -- orders",
        ] {
            assert!(!mentions(sql, "orders"), "{sql}");
        }
        assert!(mentions("DROP TABLE \"a\"\"b\"", "a\"b"));
    }

    #[test]
    fn a_reshaping_is_seen_behind_comments() {
        for sql in [
            "/*x*/alter table s drop column a",
            "-- x\nalter table s drop column a",
            "ALTER/**/TABLE s RENAME TO t",
            "alter\n table main.[s] add z",
            "drop table if exists s",
            "/* create */ drop table s",
            "/* /* */ alter table s drop column a",
        ] {
            assert!(reshapes(sql, "s"), "{sql}");
        }
        for sql in [
            "create unique index i on s(a)",
            "/*x*/ drop index s",
            "create trigger t after update on s begin select 1; end",
            "create table c(a references s)",
            "grant select on s to bob",
            "alter table t drop column a",
        ] {
            assert!(!reshapes(sql, "s"), "{sql}");
        }
    }

    #[test]
    fn double_quotes_become_backquotes_where_they_are_names() {
        for (sql, with) in [
            (r#"a = "b""c" and "d`e" > '"f"'"#, "a = `b\"c` and `d``e` > '\"f\"'"),
            ("[\"] = `\"` -- \"\n and \"ü\"", "[\"] = `\"` -- \"\n and `ü`"),
            ("/* \" */ \"a", "/* \" */ `a`"),
        ] {
            assert_eq!(in_backquotes(sql), with);
        }
    }

    #[test]
    fn a_removal_of_columns_is_seen() {
        for sql in ["alter  table s drop column a", "ALTER /**/ TABLE s\nDROP/**/a", "/*x*/alter table s drop a"] {
            assert!(removes_columns(sql), "{sql}");
        }
        for sql in ["alter table s add \"drop\" integer", "alter table s add a -- drop", "drop table s"] {
            assert!(!removes_columns(sql), "{sql}");
        }
    }
}
