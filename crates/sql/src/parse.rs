//! Parsing with sqlparser, and its errors in PostgreSQL's words.

use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token};

/// Depth of nested expressions and queries, beyond which a statement is refused with 54001.
pub const DEPTH_MAX: usize = 50;

/// Parses exactly one statement of PostgreSQL's SQL.
pub fn parse(text: &str) -> SqlResult<Statement> {
    let dialect = PostgreSqlDialect {};
    let mut parser =
        Parser::new(&dialect).with_recursion_limit(DEPTH_MAX).try_with_sql(text).map_err(|e| error(text, &e))?;
    let statement = parser.parse_statement().map_err(|e| error(text, &e))?;
    let rest = parser.peek_token();
    match rest.token {
        Token::EOF | Token::SemiColon => Ok(statement),
        other => Err(syntax(&other.to_string()).with_position(position(text, rest.span.start))),
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
