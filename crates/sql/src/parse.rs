//! Parsing with sqlparser, whose errors become PostgreSQL's messages.

use crate::locks::{self, Clause};
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::Statement;
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Whitespace};

/// The largest depth of nested expressions and queries; a deeper statement is refused with 54001.
pub const DEPTH_MAX: usize = 50;

/// Parses exactly one statement of PostgreSQL's SQL.
pub fn parse(text: &str) -> SqlResult<Statement> {
    parse_tokens(text, tokens(text)?)
}

/// Parses a statement and, separately, the locking clauses of its outermost query.
pub fn parse_locking(text: &str) -> SqlResult<(Statement, Vec<Clause>)> {
    let mut tokens = tokens(text)?;
    let clauses = locks::take_clauses(&mut tokens)?;
    Ok((parse_tokens(text, tokens)?, clauses))
}

/// A statement's tokens, including blanks and comments.
pub fn tokens(text: &str) -> SqlResult<Vec<TokenWithSpan>> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location();
    let tokens = tokens.map_err(|e| error(text, &ParserError::from(e)))?;
    trailing_junk(text, &tokens)?;
    Ok(tokens)
}

/// 42601 for letters directly after a number or a parameter, which sqlparser would read as a name: `123abc`.
fn trailing_junk(text: &str, tokens: &[TokenWithSpan]) -> SqlResult<()> {
    for pair in tokens.windows(2) {
        let what = match (&pair[0].token, &pair[1].token) {
            (Token::Number(..), Token::Word(w)) if w.quote_style.is_none() => "numeric literal",
            (Token::Placeholder(_), Token::Word(w)) if w.quote_style.is_none() => "parameter",
            _ => continue,
        };
        let message = format!("trailing junk after {what} at or near \"{}{}\"", pair[0].token, pair[1].token);
        let error = SqlError::new(SqlState::SYNTAX_ERROR, message);
        return Err(error.with_position(position(text, pair[0].span.start)));
    }
    Ok(())
}

fn parse_tokens(text: &str, mut tokens: Vec<TokenWithSpan>) -> SqlResult<Statement> {
    copy_switches(&mut tokens);
    let tokens = with_tables_as_queries(without_only(tokens));
    let dialect = PostgreSqlDialect {};
    let mut parser = Parser::new(&dialect).with_recursion_limit(DEPTH_MAX).with_tokens_with_locations(tokens);
    let statement = parser.parse_statement().map_err(|e| not_read(text, error(text, &e)))?;
    let rest = parser.peek_token();
    match rest.token {
        Token::EOF | Token::SemiColon => Ok(statement),
        other => Err(not_read(text, syntax(&other.to_string()).with_position(position(text, rest.span.start)))),
    }
}

/// The error of a statement that the parser cannot read: 0A000 where PostgreSQL could.
fn not_read(text: &str, error: SqlError) -> SqlError {
    let tokens = tokens(text).unwrap_or_default();
    let words: Vec<&str> =
        tokens.iter().filter_map(|t| if let Token::Word(w) = &t.token { Some(&*w.value) } else { None }).collect();
    let current_of = |w: &[&str]| ["WHERE", "CURRENT", "OF"].iter().zip(w).all(|(a, b)| a.eq_ignore_ascii_case(b));
    if words.windows(3).any(current_of) { SqlError::unsupported("WHERE CURRENT OF") } else { error }
}

/// The largest number of operators in a statement; one with more is refused with 54001.
pub const OPERATORS_MAX: usize = 20_000;
/// The number of operators for which an ordinary stack is enough.
const OPERATORS_SMALL: usize = 60;
/// Stack for each operator: a chain of operators is a tree as deep as the chain is long.
const OPERATOR_STACK_BYTES: usize = 24 << 10;

/// Runs `f` with enough stack for the statement: a long statement gets a thread of its own.
pub fn with_room<T: Send>(text: &str, f: impl FnOnce() -> SqlResult<T> + Send) -> SqlResult<T> {
    let operators = operators(text);
    if operators <= OPERATORS_SMALL {
        return f();
    }
    let complex = |why: &str| SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, why);
    if operators > OPERATORS_MAX {
        return Err(complex(&format!("the statement has {operators} operators; the limit is {OPERATORS_MAX}"))
            .with_hint("Use IN (...) for a long list of values."));
    }
    let stack_bytes = (4 << 20) + operators * OPERATOR_STACK_BYTES;
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sql-long".into()).stack_size(stack_bytes);
        let running = thread
            .spawn_scoped(scope, f)
            .map_err(|_| complex("there is not enough memory to translate this statement"))?;
        running.join().unwrap_or_else(|_| Err(SqlError::internal("the translation of a long statement failed")))
    })
}

/// The approximate number of operators in a text: runs of operator characters, and the words that chain.
fn operators(text: &str) -> usize {
    let bytes = text.as_bytes();
    let is_operator = |b: u8| b"+-*/|<>=~&#%^!:".contains(&b);
    let (mut count, mut at) = (0, 0);
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'\'' => at += memchr::memchr(b'\'', &bytes[at + 1..]).map_or(bytes.len(), |n| n + 2),
            b if is_operator(b) => {
                at += 1;
                count += 1;
            }
            b if b.is_ascii_alphabetic() => {
                while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_') {
                    at += 1;
                }
                const CHAINING: [&[u8]; 10] = [
                    b"and",
                    b"or",
                    b"not",
                    b"union",
                    b"except",
                    b"intersect",
                    b"is",
                    b"isnull",
                    b"notnull",
                    b"collate",
                ];
                count += usize::from(CHAINING.iter().any(|w| bytes[start..at].eq_ignore_ascii_case(w)));
            }
            _ => at += 1,
        }
    }
    count
}

/// Rewrites COPY's switches from spellings that the parser does not know: `(FREEZE on)` becomes `(FREEZE true)`.
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

/// Takes ONLY away in front of a table, `ONLY t` and `ONLY (t)`: no table has children. ONLY is a reserved word, so nothing else can
/// stand there.
fn without_only(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    use Keyword::{FROM, JOIN, ONLY, UPDATE, USING};
    let is_only = |t: &Token| matches!(t, Token::Word(w) if w.keyword == ONLY && w.quote_style.is_none());
    if !tokens.iter().any(|t| is_only(&t.token)) {
        return tokens;
    }
    let solid: Vec<usize> = (0..tokens.len()).filter(|at| !matches!(tokens[*at].token, Token::Whitespace(_))).collect();
    let token = |n: usize| solid.get(n).map(|at| &tokens[*at].token);
    let mut kept = vec![true; tokens.len()];
    for n in 1..solid.len() {
        let begins_a_table = match token(n - 1) {
            Some(Token::Word(w)) => [FROM, JOIN, UPDATE, USING].contains(&w.keyword) && w.quote_style.is_none(),
            Some(before) => *before == Token::Comma,
            None => false,
        };
        if !begins_a_table || !token(n).is_some_and(is_only) {
            continue;
        }
        if token(n + 1) == Some(&Token::LParen) {
            let is_name = |n: &usize| matches!(token(*n), Some(Token::Word(_) | Token::Period));
            let end = (n + 2..).take_while(is_name).last().unwrap_or(n + 1) + 1;
            if end == n + 2 || token(end) != Some(&Token::RParen) {
                continue;
            }
            (kept[solid[n + 1]], kept[solid[end]]) = (false, false);
        }
        kept[solid[n]] = false;
    }
    tokens.into_iter().zip(kept).filter_map(|(token, kept)| kept.then_some(token)).collect()
}

/// Whether a relation's name comes first, and then what can follow a whole query.
fn is_alone(tokens: &[TokenWithSpan]) -> bool {
    let mut solid = tokens.iter().map(|t| &t.token).filter(|t| !matches!(t, Token::Whitespace(_))).peekable();
    solid.next_if(|t| matches!(t, Token::Word(w) if w.keyword == Keyword::ONLY && w.quote_style.is_none()));
    loop {
        if !matches!(solid.next(), Some(Token::Word(_))) {
            return false;
        }
        if solid.next_if(|t| **t == Token::Period).is_none() {
            break;
        }
    }
    match solid.next() {
        None | Some(Token::RParen | Token::SemiColon | Token::EOF) => true,
        Some(Token::Word(w)) => {
            use Keyword::{EXCEPT, FETCH, FOR, INTERSECT, LIMIT, OFFSET, ON, ORDER, RETURNING, UNION, WITH};
            [EXCEPT, FETCH, FOR, INTERSECT, LIMIT, OFFSET, ON, ORDER, RETURNING, UNION, WITH].contains(&w.keyword)
        }
        Some(_) => false,
    }
}

/// Rewrites `TABLE t` as `SELECT * FROM t` wherever a query can begin: at the start, after EXPLAIN, AS, FOR and a parenthesis, between
/// the parts of a UNION, and as the source of an INSERT.
fn with_tables_as_queries(tokens: Vec<TokenWithSpan>) -> Vec<TokenWithSpan> {
    let is_table = |t: &TokenWithSpan| matches!(&t.token, Token::Word(w) if w.keyword == Keyword::TABLE && w.quote_style.is_none());
    if !tokens.iter().any(is_table) {
        return tokens;
    }
    let ends_well: Vec<bool> =
        (0..tokens.len()).map(|at| is_table(&tokens[at]) && is_alone(&tokens[at + 1..])).collect();
    let (mut out, mut before, mut first) = (Vec::with_capacity(tokens.len() + 6), None, None);
    let mut skips_only = false;
    for (token, ends_well) in tokens.into_iter().zip(ends_well) {
        let solid = !matches!(token.token, Token::Whitespace(_));
        let begins_a_query = match &before {
            None => true,
            Some(Token::LParen) => true,
            Some(Token::Word(w)) => {
                use Keyword::{ALL, AS, DISTINCT, EXCEPT, EXPLAIN, FOR, INTERSECT, UNION};
                [ALL, AS, DISTINCT, EXCEPT, EXPLAIN, FOR, INTERSECT, UNION].contains(&w.keyword)
                    || (first == Some(Keyword::INSERT) && w.keyword != Keyword::INTO)
            }
            Some(Token::RParen) => first == Some(Keyword::INSERT),
            Some(_) => false,
        };
        if skips_only && matches!(&token.token, Token::Word(w) if w.keyword == Keyword::ONLY) {
            skips_only = false;
            continue;
        }
        skips_only &= !solid;
        if ends_well && begins_a_query {
            skips_only = true;
            let place = token.span;
            let space = || Token::Whitespace(Whitespace::Space);
            let words = [Token::make_keyword("SELECT"), space(), Token::Mul, space(), Token::make_keyword("FROM")];
            out.extend(words.map(|word| TokenWithSpan { token: word, span: place }));
            before = Some(Token::make_keyword("FROM"));
            continue;
        }
        if solid {
            if first.is_none()
                && let Token::Word(w) = &token.token
            {
                first = Some(w.keyword);
            }
            before = Some(token.token.clone());
        }
        out.push(token);
    }
    out
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

/// Converts the parser's error, such as `Expected: x, found: y at Line: 1, Column: 8`.
fn error(text: &str, error: &ParserError) -> SqlError {
    let message = match error {
        ParserError::RecursionLimitExceeded => {
            return SqlError::new(SqlState::STATEMENT_TOO_COMPLEX, "the statement is nested too deeply")
                .with_hint(format!("The limit is {DEPTH_MAX} levels."));
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

    #[test]
    fn a_table_is_a_query_where_one_can_begin() {
        let same = |table: &str, query: &str| {
            assert_eq!(super::parse(table).unwrap().to_string(), super::parse(query).unwrap().to_string(), "{table}");
        };
        same("table t order by 1 limit 2", "select * from t order by 1 limit 2");
        same("insert into u table t", "insert into u select * from t");
        same("insert into u (a) table t", "insert into u (a) select * from t");
        same("create table u as table t", "create table u as select * from t");
        same("select 1 union all table t", "select 1 union all select * from t");
        same("select * from (table public.t) x", "select * from (select * from public.t) x");
        same("explain table t", "explain select * from t");
        same("table only t", "select * from t");
        assert!(super::parse("table t where a = 1").is_err() && super::parse("table t, u").is_err());
        assert!(super::parse("create table t (a int)").is_ok() && super::parse("drop table t").is_ok());
        assert!(super::parse("insert into table t values (1)").is_ok_and(|s| !s.to_string().contains("SELECT")));
    }

    #[test]
    fn where_current_of_is_refused_by_name() {
        let state = |text: &str| super::parse(text).unwrap_err().state().0;
        assert_eq!(state("update t set a = 1 where current of c"), "0A000");
        assert_eq!(state("delete from t where current of"), "0A000");
        assert_eq!(state("delete from t where current off"), "42601");
    }
}
