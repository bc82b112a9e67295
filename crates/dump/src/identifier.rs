//! Names in SQLite's stored SQL, as far as a definition is found by them or gets another one.

/// The name at the beginning of a text, without its quotes, and what follows it.
pub fn read_name(text: &str) -> Option<(String, &str)> {
    let text = skip_blanks(text);
    let first = text.chars().next()?;
    let close = match first {
        '"' | '`' | '\'' => first,
        '[' => ']',
        _ => {
            let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$' || !c.is_ascii();
            let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
            return (end > 0).then(|| (text[..end].to_owned(), &text[end..]));
        }
    };
    let (mut name, mut rest) = (String::new(), &text[1..]);
    loop {
        let end = rest.find(close)?;
        name.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        // A quote that is doubled is a part of the name; brackets know no doubling.
        match rest.strip_prefix(close).filter(|_| close != ']') {
            Some(behind) => {
                name.push(close);
                rest = behind;
            }
            None => return Some((name, rest)),
        }
    }
}

/// What follows a word, in upper or lower case; `None` where the text does not begin with it.
pub fn after_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let text = skip_blanks(text);
    let (first, rest) = text.split_at_checked(word.len())?;
    let ends = !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_');
    (first.eq_ignore_ascii_case(word) && ends).then_some(rest)
}

/// The text without the blanks and comments before it.
pub fn skip_blanks(text: &str) -> &str {
    let mut rest = text.trim_start();
    loop {
        rest = match (rest.strip_prefix("--"), rest.strip_prefix("/*")) {
            (Some(comment), _) => comment.split_once('\n').map_or("", |(_, after)| after).trim_start(),
            (_, Some(comment)) => comment.split_once("*/").map_or("", |(_, after)| after).trim_start(),
            _ => return rest,
        };
    }
}

/// The table that a statement drops.
pub fn dropped_table(statement: &str) -> Option<String> {
    let rest = after_word(after_word(statement, "drop")?, "table")?;
    let rest = after_word(rest, "if").and_then(|rest| after_word(rest, "exists")).unwrap_or(rest);
    let (name, rest) = read_name(rest)?;
    match skip_blanks(rest).strip_prefix('.') {
        Some(rest) => read_name(rest).map(|(name, _)| name),
        None => Some(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_every_quoting() {
        let read = |text: &str| read_name(text).map(|(name, rest)| (name, rest.to_owned()));
        for (text, name, rest) in [
            ("orders (a)", "orders", " (a)"),
            ("\"a \"\"b\"\"\" x", "a \"b\"", " x"),
            ("[a b]c", "a b", "c"),
            ("`a``b`", "a`b", ""),
            ("'it''s'(", "it's", "("),
            (" /* c */ größe$1,", "größe$1", ","),
        ] {
            assert_eq!(read(text), Some((name.to_owned(), rest.to_owned())), "{text}");
        }
        for text in ["", "(", "\"open", "[open", "/* open"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn the_table_that_a_statement_drops() {
        for text in ["DROP TABLE \"orders\"", "drop  table if exists main.[orders];", "/*x*/ Drop Table orders"] {
            assert_eq!(dropped_table(text).as_deref(), Some("orders"), "{text}");
        }
        for text in ["DROP INDEX orders", "DROP TABLEx orders", "dropped", "ALTER TABLE orders DROP COLUMN a"] {
            assert_eq!(dropped_table(text), None, "{text}");
        }
        assert_eq!(dropped_table("drop table \"if\"").as_deref(), Some("if"));
    }
}
