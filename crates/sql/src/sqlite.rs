//! Databases of SQLite's dialect: the text passes through.
//!
//! Session commands, and queries that only a client of PostgreSQL would send (`pg_catalog`, `::` casts, the
//! catalogue's functions), are translated as in PostgreSQL's dialect. In what passes through, `$1` becomes `?1`, and
//! literals in the places that RULE 33 allows become parameters.

use crate::bind;
use crate::scan::{Class, Piece};
use crate::translate::{Context, Kind, Param, ParamSource, Translated};
use crate::types::{self, Type};
use crate::{session, statement};
use holdfast_types::desc::{ColumnDesc, StatementDesc, oid};
use holdfast_types::schema::{Dialect, Schema};
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::dialect::SQLiteDialect;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Word};
use std::sync::Arc;

/// A result column as SQLite describes it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OriginColumn {
    pub name: String,
    pub decl_type: Option<String>,
    pub table: Option<String>,
    pub column: Option<String>,
}

/// Translates a statement of a database of SQLite's dialect.
pub fn translate(piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Translated> {
    let text = piece.text();
    let first = first_word(text);
    match first.as_str() {
        "BEGIN" => {
            // SQLite's own modes mean nothing to the transactions here.
            let plain = text.to_ascii_uppercase();
            if ["DEFERRED", "IMMEDIATE", "EXCLUSIVE"].iter().any(|m| plain.contains(m)) {
                return Ok(Translated::command(Kind::Begin(Default::default()), "BEGIN"));
            }
        }
        "ATTACH" | "DETACH" => return Err(SqlError::unsupported(first)),
        "PRAGMA" => return pragma(text),
        _ => {}
    }
    if let Some(command) = session::from_text(text)? {
        return Ok(command);
    }
    let session_command = matches!(
        first.as_str(),
        "SET"
            | "SHOW"
            | "RESET"
            | "DISCARD"
            | "DEALLOCATE"
            | "PREPARE"
            | "EXECUTE"
            | "COPY"
            | "SAVEPOINT"
            | "RELEASE"
            | "ROLLBACK"
            | "COMMIT"
            | "END"
            | "START"
            | "DECLARE"
            | "FETCH"
            | "CLOSE"
            | "GRANT"
            | "REVOKE"
            | "TRUNCATE"
            | "COMMENT"
            | "LOCK"
    );
    if session_command || speaks_postgres(piece) {
        return statement::translate(piece, context);
    }
    pass_through(piece, context, &first)
}

fn first_word(text: &str) -> String {
    let mut rest = text.trim_start();
    loop {
        rest = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n').map_or("", |(_, r)| r).trim_start()
        } else if let Some(comment) = rest.strip_prefix("/*") {
            comment.split_once("*/").map_or("", |(_, r)| r).trim_start()
        } else {
            break;
        };
    }
    rest.chars().take_while(|c| c.is_ascii_alphabetic()).collect::<String>().to_ascii_uppercase()
}

/// Signs of a query that a client of PostgreSQL makes by itself.
fn speaks_postgres(piece: &Piece<'_>) -> bool {
    let skeleton = String::from_utf8_lossy(piece.skeleton()).to_ascii_lowercase();
    const SIGNS: &[&str] = &[
        "pg_catalog.",
        "information_schema.",
        "::",
        "operator(",
        "pg_class",
        "pg_type",
        "pg_namespace",
        "pg_database",
        "pg_settings",
        "pg_attribute",
        "pg_roles",
        "pg_tables",
        "pg_indexes",
        "pg_user",
        "version()",
        "current_schema",
        "current_setting(",
        "pg_backend_pid(",
        "pg_is_in_recovery(",
        "current_database(",
        "current_user",
        "session_user",
        "pg_encoding_to_char(",
    ];
    SIGNS.iter().any(|s| skeleton.contains(s))
}

fn pragma(text: &str) -> SqlResult<Translated> {
    const READING: &[&str] = &[
        "table_info",
        "table_xinfo",
        "table_list",
        "index_list",
        "index_info",
        "index_xinfo",
        "foreign_key_list",
        "database_list",
        "collation_list",
        "function_list",
        "compile_options",
        "integrity_check",
        "quick_check",
        "foreign_key_check",
        "page_count",
        "page_size",
        "user_version",
        "application_id",
        "encoding",
        "freelist_count",
        "schema_version",
        "data_version",
    ];
    let name: String = text.trim_start()[6..]
        .trim_start()
        .trim_start_matches("main.")
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect::<String>()
        .to_ascii_lowercase();
    if !READING.contains(&name.as_str()) || text.contains('=') {
        return Err(SqlError::unsupported(format!("PRAGMA {name}"))
            .with_hint("Only PRAGMAs that read the schema are passed on; the server sets the others."));
    }
    Ok(Translated {
        steps: vec![text.to_owned()],
        describe_after_prepare: true,
        counts: true,
        ..Translated::command(Kind::Query, "SELECT")
    })
}

fn pass_through(piece: &Piece<'_>, context: &Context<'_>, first: &str) -> SqlResult<Translated> {
    let text = piece.text();
    let (kind, verb, counts) = match first {
        "SELECT" | "VALUES" => (Kind::Query, "SELECT", true),
        "WITH" => with_kind(text),
        "INSERT" | "REPLACE" => (Kind::Insert, "INSERT 0", true),
        "UPDATE" => (Kind::Update, "UPDATE", true),
        "DELETE" => (Kind::Delete, "DELETE", true),
        "EXPLAIN" => (Kind::Query, "EXPLAIN", false),
        "CREATE" | "DROP" | "ALTER" | "REINDEX" => (Kind::Ddl, ddl_verb(text), false),
        _ => {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                format!("syntax error at or near \"{}\"", word_of(text)),
            ));
        }
    };
    let data = matches!(kind, Kind::Query | Kind::Insert | Kind::Update | Kind::Delete);
    let mut rewriter = Rewriter { context, out: String::with_capacity(text.len()), params: Vec::new(), clients: 0 };
    if data {
        rewriter.run(piece)?;
    } else {
        rewriter.out.push_str(text);
    }
    let types =
        (0..rewriter.clients).map(|i| context.param_types.get(i).copied().filter(|t| *t != 0).unwrap_or(oid::TEXT));
    Ok(Translated {
        steps: vec![rewriter.out],
        params: rewriter.params,
        desc: Arc::new(StatementDesc { params: types.collect(), columns: Vec::new() }),
        counts,
        describe_after_prepare: data,
        cacheable: data,
        ..Translated::command(kind, verb)
    })
}

fn word_of(text: &str) -> &str {
    text.split_ascii_whitespace().next().unwrap_or("")
}

fn ddl_verb(text: &str) -> &'static str {
    let upper = text.to_ascii_uppercase();
    let words: Vec<&str> = upper.split_ascii_whitespace().take(3).collect();
    let has = |w: &str| words.contains(&w);
    match words.first().copied() {
        Some("CREATE") if has("INDEX") => "CREATE INDEX",
        Some("CREATE") if has("VIEW") => "CREATE VIEW",
        Some("CREATE") if has("TRIGGER") => "CREATE TRIGGER",
        Some("CREATE") => "CREATE TABLE",
        Some("DROP") if has("INDEX") => "DROP INDEX",
        Some("DROP") if has("VIEW") => "DROP VIEW",
        Some("DROP") if has("TRIGGER") => "DROP TRIGGER",
        Some("DROP") => "DROP TABLE",
        Some("REINDEX") => "REINDEX",
        _ => "ALTER TABLE",
    }
}

/// The verb behind a WITH: the first one outside parentheses.
fn with_kind(text: &str) -> (Kind, &'static str, bool) {
    let mut depth = 0;
    for token in Tokenizer::new(&SQLiteDialect {}, text).tokenize().unwrap_or_default() {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth -= 1,
            Token::Word(w) if depth == 0 => match w.value.to_ascii_uppercase().as_str() {
                "SELECT" | "VALUES" => break,
                "INSERT" | "REPLACE" => return (Kind::Insert, "INSERT 0", true),
                "UPDATE" => return (Kind::Update, "UPDATE", true),
                "DELETE" => return (Kind::Delete, "DELETE", true),
                _ => {}
            },
            _ => {}
        }
    }
    (Kind::Query, "SELECT", true)
}

/// Writes the text again with parameters.
struct Rewriter<'c> {
    context: &'c Context<'c>,
    out: String,
    params: Vec<Param>,
    clients: usize,
}

/// Where a literal stands, as far as it may become a parameter.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Other,
    Values,
    Set,
    Where,
}

impl Rewriter<'_> {
    fn run(&mut self, piece: &Piece<'_>) -> SqlResult<()> {
        let text = piece.text();
        let mut starts: Vec<usize> = vec![0];
        starts.extend(text.match_indices('\n').map(|(i, _)| i + 1));
        let tokens = Tokenizer::new(&SQLiteDialect {}, text).tokenize_with_location();
        let Ok(tokens) = tokens else {
            // SQLite will say what is wrong with it.
            self.out.push_str(text);
            return Ok(());
        };
        let offset = |t: &TokenWithSpan| {
            let line = starts.get(t.span.start.line.saturating_sub(1) as usize).copied().unwrap_or(0);
            let column = t.span.start.column.saturating_sub(1) as usize;
            line + text[line..].chars().take(column).map(char::len_utf8).sum::<usize>()
        };
        let tokens: Vec<TokenWithSpan> =
            tokens.into_iter().filter(|t| !matches!(t.token, Token::Whitespace(_))).collect();
        let partial = has_partial_index(self.context.schema);
        let (mut place, mut depth, mut values_depth, mut copied) = (Place::Other, 0i32, 0i32, 0usize);
        for (i, token) in tokens.iter().enumerate() {
            match &token.token {
                Token::LParen => depth += 1,
                Token::RParen => depth -= 1,
                Token::Word(word) if word.quote_style.is_none() => {
                    let next = place_of(word, place);
                    if next == Place::Values && place != Place::Values {
                        values_depth = depth;
                    }
                    place = next;
                }
                Token::Placeholder(name) => {
                    let at = offset(token);
                    self.out.push_str(&text[copied..at]);
                    copied = at + name.len();
                    self.placeholder(name)?;
                }
                Token::Number(..) | Token::SingleQuotedString(_) => {
                    let at = offset(token);
                    let found = (0..piece.literal_count()).find(|n| piece.literal_start(*n) == at);
                    let (Some(n), true) = (found, lifts(&tokens, i, place, depth - values_depth, partial)) else {
                        continue;
                    };
                    let Some(literal) = piece.literal(n) else { continue };
                    if literal.class == Class::Decimal {
                        continue;
                    }
                    self.out.push_str(&text[copied..at]);
                    copied = at + literal.raw.len();
                    self.params.push(Param { source: ParamSource::Literal(n), coerce: None });
                    self.out.push_str(&format!("?{}", self.params.len()));
                }
                _ => {}
            }
        }
        self.out.push_str(&text[copied..]);
        Ok(())
    }

    /// `$1` and `?1` are the client's values; `?` takes the next.
    fn placeholder(&mut self, name: &str) -> SqlResult<()> {
        let number = match name.trim_start_matches(['$', '?']) {
            "" if name == "?" => self.clients + 1,
            digits => digits.parse::<usize>().ok().filter(|n| (1..=65_535).contains(n)).ok_or_else(|| {
                SqlError::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter {name}"))
                    .with_hint("Parameters are $1, $2 and so on.")
            })?,
        };
        self.clients = self.clients.max(number);
        let param = Param { source: ParamSource::Client(number - 1), coerce: None };
        let known = self.params.iter().position(|p| *p == param);
        let index = known.unwrap_or_else(|| {
            self.params.push(param);
            self.params.len() - 1
        });
        self.out.push_str(&format!("?{}", index + 1));
        Ok(())
    }
}

fn place_of(word: &Word, place: Place) -> Place {
    match word.value.to_ascii_uppercase().as_str() {
        "VALUES" => Place::Values,
        "SET" => Place::Set,
        "WHERE" => Place::Where,
        "SELECT" | "FROM" | "ORDER" | "GROUP" | "LIMIT" | "HAVING" | "RETURNING" | "ON" | "WITH" | "CASE" | "OVER"
        | "WINDOW" | "UNION" | "EXCEPT" | "INTERSECT" | "OFFSET" => Place::Other,
        _ => place,
    }
}

/// A VALUES item by itself, the whole right side of SET, or `column op literal` in WHERE.
fn lifts(tokens: &[TokenWithSpan], i: usize, place: Place, depth: i32, partial: bool) -> bool {
    let token = |n: Option<usize>| n.and_then(|n| tokens.get(n)).map(|t| &t.token);
    let (before, after) = (token(i.checked_sub(1)), token(Some(i + 1)));
    let word = |t: Option<&Token>, words: &[&str]| matches!(t, Some(Token::Word(w)) if words.contains(&w.value.to_ascii_uppercase().as_str()));
    match place {
        Place::Values => {
            depth == 1
                && matches!(before, Some(Token::LParen | Token::Comma))
                && matches!(after, Some(Token::RParen | Token::Comma))
        }
        Place::Set => {
            let arithmetic = matches!(before, Some(Token::Plus | Token::Minus))
                && matches!(token(i.checked_sub(2)), Some(Token::Word(_)))
                && matches!(tokens.get(i).map(|t| &t.token), Some(Token::Number(..)));
            (matches!(before, Some(Token::Eq)) || arithmetic)
                && (matches!(after, None | Some(Token::Comma)) || word(after, &["WHERE", "RETURNING", "FROM"]))
        }
        Place::Where => {
            !partial
                && matches!(
                    before,
                    Some(Token::Eq | Token::Lt | Token::Gt | Token::LtEq | Token::GtEq | Token::Neq | Token::DoubleEq)
                )
                && matches!(token(i.checked_sub(2)), Some(Token::Word(_)))
                && (matches!(after, None | Some(Token::RParen))
                    || word(after, &["AND", "OR", "ORDER", "LIMIT", "GROUP", "RETURNING"]))
        }
        Place::Other => false,
    }
}

fn has_partial_index(schema: &Schema) -> bool {
    let partial = |sql: &str| sql.to_ascii_lowercase().contains("where");
    schema.tables.iter().any(|t| t.indexes.iter().any(|i| i.sql.as_deref().is_some_and(partial)))
}

/// The result columns of a prepared statement that passed through: by declaration where a column comes from a table,
/// else by the shape of its expression, else text.
pub fn describe(sql: &str, columns: &[OriginColumn], schema: &Schema) -> Vec<ColumnDesc> {
    let shapes = projection(sql, columns.len());
    columns
        .iter()
        .enumerate()
        .map(|(i, c)| {
            let mut desc = ColumnDesc::new(c.name.clone(), oid::TEXT);
            let table = c.table.as_deref().and_then(|t| schema.table(t));
            let attnum = table.zip(c.column.as_deref()).and_then(|(t, name)| {
                t.columns.iter().position(|x| x.name.eq_ignore_ascii_case(name)).map(|n| (t.oid, n as i16 + 1))
            });
            if let Some((table_oid, attnum)) = attnum {
                (desc.table_oid, desc.attnum) = (table_oid, attnum);
            }
            desc.type_oid = match (&c.decl_type, shapes.get(i)) {
                (Some(decl), _) if !decl.is_empty() => types::of_decl(decl, Dialect::Sqlite).oid,
                (_, Some(shape)) => *shape,
                _ => oid::TEXT,
            };
            desc
        })
        .collect()
}

/// Types of the select list by shape, if its length is what SQLite says.
fn projection(sql: &str, count: usize) -> Vec<u32> {
    use sqlparser::ast::{SelectItem, SetExpr, Statement};
    let parsed = sqlparser::parser::Parser::new(&SQLiteDialect {})
        .with_recursion_limit(crate::parse::DEPTH_MAX)
        .try_with_sql(sql)
        .and_then(|mut p| p.parse_statement());
    let Ok(Statement::Query(query)) = parsed else { return Vec::new() };
    let SetExpr::Select(select) = *query.body else { return Vec::new() };
    let items: Vec<u32> = select
        .projection
        .iter()
        .map(|item| match item {
            SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. } => shape(e),
            _ => oid::TEXT,
        })
        .collect();
    if items.len() == count { items } else { Vec::new() }
}

fn shape(e: &sqlparser::ast::Expr) -> u32 {
    use sqlparser::ast::{BinaryOperator as Op, Expr, Value};
    match e {
        Expr::Nested(inner) => shape(inner),
        Expr::Value(v) => match &v.value {
            Value::Number(n, _) if n.parse::<i64>().is_ok() => oid::INT8,
            Value::Number(..) => oid::FLOAT8,
            _ => oid::TEXT,
        },
        Expr::UnaryOp { expr, .. } => shape(expr),
        Expr::Function(f) => match f.name.0.last().and_then(|p| p.as_ident()).map(bind::fold).as_deref() {
            Some(
                "count" | "length" | "instr" | "changes" | "last_insert_rowid" | "row_number" | "rank" | "unicode",
            ) => oid::INT8,
            Some("avg" | "total" | "julianday") => oid::FLOAT8,
            _ => oid::TEXT,
        },
        Expr::BinaryOp {
            op: Op::Eq | Op::NotEq | Op::Lt | Op::Gt | Op::LtEq | Op::GtEq | Op::And | Op::Or, ..
        }
        | Expr::IsNull(_)
        | Expr::IsNotNull(_)
        | Expr::Exists { .. } => oid::INT8,
        Expr::Cast { data_type, .. } => types::of_decl(&data_type.to_string(), Dialect::Sqlite).oid,
        _ => Type::TEXT.oid,
    }
}
