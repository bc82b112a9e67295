//! Parsing with sqlparser, and its errors in PostgreSQL's words.

use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer};

/// Depth of nested expressions and queries, beyond which a statement is refused with 54001.
pub const DEPTH_MAX: usize = 50;

/// Parses exactly one statement of PostgreSQL's SQL.
pub fn parse(text: &str) -> SqlResult<Statement> {
    let dialect = PostgreSqlDialect {};
    let mut tokens =
        Tokenizer::new(&dialect, text).tokenize_with_location().map_err(|e| error(text, &ParserError::from(e)))?;
    copy_switches(&mut tokens);
    let mut parser = Parser::new(&dialect).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens);
    let statement = parser.parse_statement().map_err(|e| error(text, &e))?;
    let rest = parser.peek_token();
    match rest.token {
        Token::EOF | Token::SemiColon => Ok(statement),
        other => Err(syntax(&other.to_string()).with_position(position(text, rest.span.start))),
    }
}

/// COPY's switches in the spellings the parser does not know: `(FREEZE on)` becomes `(FREEZE true)`.
fn copy_switches(tokens: &mut [TokenWithSpan]) {
    let word =
        |t: &TokenWithSpan| if let Token::Word(w) = &t.token { w.value.to_ascii_uppercase() } else { String::new() };
    let solid: Vec<usize> = (0..tokens.len()).filter(|i| !matches!(tokens[*i].token, Token::Whitespace(_))).collect();
    if solid.first().is_none_or(|first| word(&tokens[*first]) != "COPY") {
        return;
    }
    for pair in solid.windows(2) {
        if !matches!(word(&tokens[pair[0]]).as_str(), "FREEZE" | "HEADER") {
            continue;
        }
        let value = match &tokens[pair[1]].token {
            Token::Word(w) if w.value.eq_ignore_ascii_case("on") => "true",
            Token::Word(w) if w.value.eq_ignore_ascii_case("off") => "false",
            Token::Number(n, _) if n == "1" => "true",
            Token::Number(n, _) if n == "0" => "false",
            _ => continue,
        };
        tokens[pair[1]].token = Token::make_keyword(value);
    }
}

fn syntax(near: &str) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error at or near \"{near}\""))
}

/// Character position, from 1, of a line and column.
pub fn position(text: &str, at: Location) -> u32 {
    let before: usize =
        text.split_inclusive('\n').take((at.line as usize).saturating_sub(1)).map(|l| l.chars().count()).sum();
    (before as u64 + at.column.max(1)) as u32
}

/// `Expected: x, found: y at Line: 1, Column: 8`.
fn error(text: &str, error: &ParserError) -> SqlError {
    let message = match error {
        ParserError::RecursionLimitExceeded => {
            return SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "the statement is nested too deeply")
                .with_hint(format!("At most {DEPTH_MAX} levels are read."));
        }
        ParserError::TokenizerError(m) | ParserError::ParserError(m) => m,
    };
    let (what, place) = match message.rsplit_once(" at Line: ") {
        Some((what, place)) => (what, place.split_once(", Column: ")),
        None => (message.as_str(), None),
    };
    let found = what.rsplit_once("found: ").map(|(_, found)| found.trim());
    let mapped = match found {
        Some("EOF") => SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at end of input"),
        Some(near) => syntax(near),
        None => SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error: {what}")),
    };
    match place.and_then(|(l, c)| Some(Location { line: l.trim().parse().ok()?, column: c.trim().parse().ok()? })) {
        Some(at) => mapped.with_position(position(text, at)),
        None => mapped,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn copy_switches_in_all_spellings() {
        for with in ["(freeze on)", "(freeze off, header 1)", "(freeze)", "(header true, freeze 0)"] {
            super::parse(&format!("copy t from stdin with {with}")).unwrap();
        }
        assert!(super::parse("copy t from stdin with (freeze maybe)").is_err());
    }
}
