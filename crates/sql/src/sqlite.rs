//! Databases of SQLite's dialect: the text is passed to SQLite almost unchanged.
//!
//! Session commands, and queries that only a client of PostgreSQL would send (`pg_catalog`, `::` casts, the catalogue's
//! functions), are translated as in PostgreSQL's dialect. In all other text `$1` becomes `?1`, and literals in the
//! places that RULE 33 allows become parameters ([`rewrite`]). An INSERT takes the ids of its rows from the shared
//! counter ([`insert`]). Temporary tables get the name under which they are attached ([`temporary`]).

mod insert;
mod rewrite;
mod stored;
mod temporary;
mod texts;

use crate::command::Kind;
use crate::context::Context;
use crate::names::fold;
use crate::scan::{Piece, Scan};
use crate::translated::Translated;
use crate::types::{self, Type};
use crate::{session, statement};
use holdfast_types::definition::redefinition::Redefinition;
use holdfast_types::desc::{ColumnDesc, StatementDesc, oid};
use holdfast_types::schema::{Dialect, Schema};
use holdfast_types::{SqlError, SqlResult, SqlState};
use rewrite::Rewritten;
use sqlparser::dialect::SQLiteDialect;
use sqlparser::tokenizer::{Token, Tokenizer};
use std::sync::Arc;
pub use stored::{create_stored, stored_definition};
pub use texts::TextWords;

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
    let translated = translate_text(piece, context)?;
    if translated.steps.iter().any(|step| Redefinition::is(&step.sql)) {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near \"AS\""));
    }
    Ok(translated)
}

fn translate_text(piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Translated> {
    texts::refuse(piece.text())?;
    if let Some(text) = temporary::qualified(piece.text(), context.schema)? {
        let scan = Scan::new(&text, Dialect::Sqlite)?;
        if let Some(piece) = scan.pieces().next() {
            return translate_qualified(&piece, context);
        }
    }
    translate_qualified(piece, context)
}

/// Translates a statement in which temporary tables already have the name of the attached schema.
fn translate_qualified(piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Translated> {
    let text = piece.text();
    let first = first_word(text);
    match first.as_str() {
        "BEGIN" => {
            // SQLite's own modes (DEFERRED, IMMEDIATE, EXCLUSIVE) have no meaning for Holdfast's transactions.
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
            | "MOVE"
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
    let word = session::after_comments(text).chars().take_while(|c| c.is_ascii_alphabetic());
    word.collect::<String>().to_ascii_uppercase()
}

/// True for a query that a client of PostgreSQL sends on its own, such as one on `pg_catalog`.
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
        "pg_stat_",
        "inet_client_",
        "inet_server_",
        "pg_cancel_backend(",
        "pg_terminate_backend(",
        "pg_postmaster_start_time(",
        "pg_conf_load_time(",
        "pg_blocking_pids(",
        "pg_attribute",
        "pg_roles",
        "pg_authid",
        "pg_shadow",
        "pg_group",
        "pg_auth_members",
        "pg_db_role_setting",
        "pg_has_role(",
        "pg_tables",
        "pg_indexes",
        "pg_user",
        "version()",
        "current_schema",
        "current_setting(",
        "pg_backend_pid(",
        "pg_reload_conf(",
        "pg_hba_file_rules",
        "pg_ident_file_mappings",
        "pg_is_in_recovery(",
        "pg_current_wal_",
        "pg_last_wal_",
        "pg_switch_wal(",
        "pg_wal_lsn_diff(",
        "holdfast_wait_for_lsn(",
        "holdfast_stat_",
        "holdfast_epoch(",
        "current_database(",
        "current_user",
        "session_user",
        "pg_encoding_to_char(",
        "pg_advisory_",
        "pg_try_advisory_",
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
    let name: String = session::after_comments(text)[6..]
        .trim_start()
        .trim_start_matches("main.")
        .chars()
        .take_while(|c| c.is_ascii_alphanumeric() || *c == '_')
        .collect::<String>()
        .to_ascii_lowercase();
    let sets = ["user_version", "application_id"].contains(&name.as_str()) && text.contains('(');
    if !READING.contains(&name.as_str()) || text.contains('=') || sets {
        return Err(SqlError::unsupported(format!("PRAGMA {name}"))
            .with_hint("Only PRAGMAs that read the schema are executed; the server sets the others."));
    }
    Ok(Translated {
        steps: vec![text.to_owned().into()],
        describe_after_prepare: true,
        counts: true,
        ..Translated::command(Kind::Query, "SELECT")
    })
}

fn pass_through(piece: &Piece<'_>, context: &Context<'_>, first: &str) -> SqlResult<Translated> {
    let text = piece.text();
    if let Some(done) = temporary::ddl(text, context.schema)? {
        return Ok(done);
    }
    let (kind, verb, counts) = match first {
        "SELECT" | "VALUES" => (Kind::Query, "SELECT", true),
        "WITH" => with_kind(text),
        "INSERT" | "REPLACE" => (Kind::Insert, "INSERT 0", true),
        "UPDATE" => (Kind::Update, "UPDATE", true),
        "DELETE" => (Kind::Delete, "DELETE", true),
        "EXPLAIN" => (Kind::Query, "EXPLAIN", false),
        "CREATE" | "DROP" | "ALTER" | "REINDEX" => (Kind::Ddl, texts::ddl_verb(text), false),
        _ => {
            return Err(SqlError::new(
                SqlState::SYNTAX_ERROR,
                format!("syntax error at or near \"{}\"", word_of(text)),
            ));
        }
    };
    let data = matches!(kind, Kind::Query | Kind::Insert | Kind::Update | Kind::Delete);
    let written = if data { rewrite::rewrite(piece, context.schema)? } else { Rewritten::unchanged(text) };
    let types =
        (0..written.clients).map(|i| context.param_types.get(i).copied().filter(|t| *t != 0).unwrap_or(oid::TEXT));
    Ok(Translated {
        steps: vec![written.text.into()],
        params: written.params,
        desc: Arc::new(StatementDesc { params: types.collect(), columns: Vec::new(), empty_rows: false }),
        counts,
        describe_after_prepare: data,
        access: texts::access(text, kind == Kind::Ddl, context.schema),
        access_after_prepare: true,
        cacheable: data,
        ..Translated::command(kind, verb)
    })
}

fn word_of(text: &str) -> &str {
    text.split_ascii_whitespace().next().unwrap_or("")
}

/// The verb after a WITH: the first verb outside parentheses.
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

/// The result columns of a prepared statement in SQLite's own text. A column's type is its declaration if it comes from
/// a table, otherwise follows from the shape of its expression, otherwise is text.
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

/// Types of the select list by the shape of its expressions, if its length is the number of columns that SQLite
/// reports.
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
        Expr::Function(f) => match f.name.0.last().and_then(|p| p.as_ident()).map(fold).as_deref() {
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
