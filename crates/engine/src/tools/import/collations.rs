//! Which collations a CREATE statement names, and for which column.
//!
//! Only the words are read: the statement was accepted by the SQLite that made it. A COLLATE in a comment or a string does
//! not count.

/// A collation that a statement names.
#[derive(Debug, PartialEq)]
pub struct Used {
    pub name: String,
    /// The column whose definition names it; `None` within an expression or an index.
    pub column: Option<String>,
}

/// The collations of a CREATE TABLE, INDEX, VIEW or TRIGGER.
pub fn used(sql: &str) -> Vec<Used> {
    let is_table = words(sql).nth(1).is_some_and(|word| word.eq_ignore_ascii_case("table"));
    let (mut depth, mut column, mut begins) = (0, None, false);
    let (mut found, mut after_collate) = (Vec::new(), false);
    for word in words(sql) {
        match word {
            "(" => {
                depth += 1;
                begins = depth == 1;
            }
            ")" => depth -= 1,
            "," if depth == 1 => begins = true,
            _ if after_collate => {
                found.push(Used { name: unquoted(word), column: column.clone().filter(|_| is_table) })
            }
            _ if begins => {
                column = Some(unquoted(word));
                begins = false;
            }
            _ => {}
        }
        after_collate = word.eq_ignore_ascii_case("collate");
    }
    found
}

/// Words, quoted names and signs; strings and comments are left out.
fn words(sql: &str) -> impl Iterator<Item = &str> {
    let mut rest = sql;
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_start();
            let end = length(rest)?;
            let word;
            (word, rest) = rest.split_at(end);
            if !word.starts_with('\'') && !word.starts_with("--") && !word.starts_with("/*") {
                return Some(word);
            }
        }
    })
}

/// Bytes of the first token; `None` at the end.
fn length(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    let until = |from: usize, end: &str| text[from..].find(end).map_or(text.len(), |at| from + at + end.len());
    Some(match first {
        '"' | '\'' | '`' => until(1, &first.to_string()),
        '[' => until(1, "]"),
        '-' if text.starts_with("--") => until(2, "\n"),
        '/' if text.starts_with("/*") => until(2, "*/"),
        c if c.is_alphanumeric() || c == '_' => {
            text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
        }
        c => c.len_utf8(),
    })
}

fn unquoted(word: &str) -> String {
    word.trim_matches(['"', '`', '[', ']']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collation_is_found_with_its_column() {
        let of = |sql: &str| used(sql).into_iter().map(|u| (u.name, u.column)).collect::<Vec<_>>();
        let own = |name: &str, column: Option<&str>| (name.to_owned(), column.map(str::to_owned));
        assert_eq!(
            of(
                "CREATE TABLE notes(id int check (id in (1, 2)), [the title] text collate \"unicase\", b, c COLLATE NOCASE)"
            ),
            [own("unicase", Some("the title")), own("NOCASE", Some("c"))]
        );
        assert_eq!(of("create index i on notes(title collate unicase)"), [own("unicase", None)]);
        assert_eq!(of("create table t(a default 'x collate y', b /* collate z */) -- collate w"), []);
    }
}
