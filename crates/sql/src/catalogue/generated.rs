//! The expression of a generated column, from the CREATE TABLE that SQLite stores: SQLite itself does not show it.

use sqlparser::dialect::SQLiteDialect;
use sqlparser::tokenizer::{Token, Tokenizer};

/// The expression that generates the column, without its parentheses; `None` where the statement is not understood.
pub fn expression(create: &str, column: &str) -> Option<String> {
    let tokens = Tokenizer::new(&SQLiteDialect {}, create).tokenize().ok()?;
    let (mut depth, mut begins, mut within) = (0_usize, false, false);
    for (at, token) in tokens.iter().enumerate() {
        match token {
            Token::LParen => {
                depth += 1;
                begins = depth == 1;
            }
            Token::RParen => depth = depth.checked_sub(1)?,
            Token::Comma if depth == 1 => begins = true,
            Token::Whitespace(_) => {}
            Token::Word(word) if depth == 1 && begins => {
                (begins, within) = (false, word.value.eq_ignore_ascii_case(column));
            }
            Token::Word(word) if depth == 1 && within && word.value.eq_ignore_ascii_case("as") => {
                return in_parentheses(&tokens[at + 1..]);
            }
            _ => {}
        }
    }
    None
}

fn in_parentheses(tokens: &[Token]) -> Option<String> {
    let begin = tokens.iter().position(|token| *token == Token::LParen)?;
    let mut depth = 0_usize;
    let mut text = String::new();
    for token in &tokens[begin..] {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return text.strip_prefix('(').map(|text| text.trim().to_owned());
        }
        text.push_str(&token.to_string());
    }
    None
}

#[cfg(test)]
mod tests {
    use super::expression;

    #[test]
    fn the_expression_is_found_behind_the_column() {
        let sql = "CREATE TABLE t(a int default (1), \"b c\" int generated always as (a * (2 + 1)) virtual, \
                   d text AS ( 'x,' || a ) STORED, check (a > 0))";
        assert_eq!(expression(sql, "b c").as_deref(), Some("a * (2 + 1)"));
        assert_eq!(expression(sql, "d").as_deref(), Some("'x,' || a"));
        assert_eq!(expression(sql, "a"), None);
    }
}
