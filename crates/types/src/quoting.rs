//! Names and texts as SQL writes them; SQLite and PostgreSQL agree.

/// A name as an identifier.
pub fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A name as an identifier, quoted only where PostgreSQL folds it or takes its signs for something else.
pub fn quote_ident(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain { name.to_owned() } else { quote(name) }
}

/// A text as a literal. PostgreSQL reads it so where `standard_conforming_strings` is on.
pub fn quote_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_inside_is_doubled() {
        assert_eq!(quote("a \"b\" 'c'"), "\"a \"\"b\"\" 'c'\"");
        assert_eq!(quote_text("a \"b\" 'c'"), "'a \"b\" ''c'''");
    }

    #[test]
    fn an_identifier_is_quoted_where_it_must_be() {
        for plain in ["a", "_b1", "t_2"] {
            assert_eq!(quote_ident(plain), plain);
        }
        for name in ["", "A", "1a", "a b", "ä", "a$"] {
            assert_eq!(quote_ident(name), quote(name));
        }
    }
}
