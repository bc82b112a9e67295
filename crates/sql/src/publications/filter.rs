//! The condition on the rows of a published table: which expressions it may have, and its text in SQLite's SQL.
//!
//! As in PostgreSQL it sees the row's own columns and immutable functions only. It is stored like the condition of an index,
//! so it may have only what stock SQLite computes as PostgreSQL does.
//!
//! Failure: PostgreSQL's errors; 0A000 for what Holdfast cannot store.

use crate::bind::{Binder, scope};
use crate::context::Context;
use crate::ddl::{own_scope, parenthesised};
use crate::parse;
use crate::scan::Scan;
use holdfast_types::schema::{Dialect, Table};
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{Expr, Query, SelectItem, SetExpr, Statement, Visit, Visitor};
use std::ops::ControlFlow;

/// Functions and constants that are not immutable, and that another translation would take.
const MUTABLE: &[&str] = &[
    "clock_timestamp",
    "current_catalog",
    "current_database",
    "current_date",
    "current_role",
    "current_schema",
    "current_setting",
    "current_time",
    "current_timestamp",
    "current_user",
    "gen_random_uuid",
    "localtime",
    "localtimestamp",
    "nextval",
    "now",
    "pg_backend_pid",
    "pg_sleep",
    "random",
    "session_user",
    "statement_timestamp",
    "timeofday",
    "transaction_timestamp",
    "user",
    "version",
];

const PLAIN: &str = "Only columns, constants, built-in operators, built-in data types, built-in collations, and immutable \
     built-in functions are allowed.";

/// Whether SQL itself has a function of this name, without parentheses.
fn is_of_sql(name: &str) -> bool {
    let current = name.starts_with("current_") && !matches!(name, "current_database" | "current_setting");
    current || name.starts_with("local") || matches!(name, "user" | "session_user")
}

const SYSTEM_COLUMNS: [&str; 6] = ["cmax", "cmin", "ctid", "tableoid", "xmax", "xmin"];

/// The condition in SQLite's SQL, in parentheses. `query` is the written one as `SELECT (condition)`.
pub(crate) fn bound(query: &str, table: &Table, context: &Context<'_>) -> SqlResult<String> {
    parse::with_room(query, || {
        let scan = Scan::new(query, Dialect::Postgres)?;
        let piece = scan.pieces().next().ok_or_else(not_one)?;
        let statement = parse::parse(piece.text())?;
        let condition = only_value(&statement).ok_or_else(not_one)?;
        if let ControlFlow::Break(detail) = condition.visit(&mut Simple { table }) {
            let message = "invalid publication WHERE expression";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message).with_detail(detail));
        }
        let columns = scope::columns_of(table, context.dialect).into_iter().map(|c| (c.name, c.ty)).collect();
        let scope = own_scope(&table.name, columns);
        let mut binder = Binder::new(&piece, context);
        binder.stored = true;
        Ok(parenthesised(&binder.condition(condition, "PUBLICATION WHERE", &scope)?.sql))
    })
}

fn not_one() -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, "a publication's WHERE must be one expression in parentheses")
}

fn only_value(statement: &Statement) -> Option<&Expr> {
    let Statement::Query(query) = statement else { return None };
    let SetExpr::Select(select) = &*query.body else { return None };
    match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(Expr::Nested(inner))] if select.from.is_empty() => Some(&**inner),
        _ => None,
    }
}

/// Breaks with PostgreSQL's detail at what a condition must not have.
struct Simple<'t> {
    table: &'t Table,
}

impl Visitor for Simple<'_> {
    type Break = &'static str;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<&'static str> {
        ControlFlow::Break(PLAIN)
    }

    fn pre_visit_expr(&mut self, e: &Expr) -> ControlFlow<&'static str> {
        let mutable = "User-defined or built-in mutable functions are not allowed.";
        match e {
            Expr::Function(function) => {
                let name = function.name.0.last().and_then(|part| part.as_ident()).map(crate::names::fold);
                match name.as_deref().is_some_and(|name| MUTABLE.contains(&name)) {
                    true if name.as_deref().is_some_and(is_of_sql) => ControlFlow::Break(PLAIN),
                    true => ControlFlow::Break(mutable),
                    false => ControlFlow::Continue(()),
                }
            }
            Expr::Identifier(ident) if ident.quote_style.is_none() => {
                let name = crate::names::fold(ident);
                if self.table.columns.iter().any(|c| c.name == name) {
                    return ControlFlow::Continue(());
                }
                match SYSTEM_COLUMNS.contains(&name.as_str()) {
                    true => ControlFlow::Break("System columns are not allowed."),
                    false => ControlFlow::Continue(()),
                }
            }
            _ => ControlFlow::Continue(()),
        }
    }
}
