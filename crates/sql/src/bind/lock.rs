//! FOR UPDATE, FOR SHARE and the other row locks: which rows a query locks, and the hidden result columns that identify
//! them.
//!
//! The engine locks what the query returns, so each locked table adds the key columns of its row after the columns that
//! the client sees. What PostgreSQL refuses is refused with PostgreSQL's message. What PostgreSQL locks and hidden
//! columns cannot identify (tables inside subqueries and views) is 0A000.
//!
//! With SKIP LOCKED a skipped row does not count for LIMIT, so the limit also becomes a column.

use super::Binder;
use super::scope::{Scope, Source};
use crate::ids;
use crate::locks::Clause;
use crate::names::quote;
use holdfast_types::access::Privileges;
use holdfast_types::schema::TableKind;
use holdfast_types::{LockStrength, LockWait, RowLock, SqlError, SqlResult, SqlState};
use sqlparser::ast::{GroupByExpr, Query, Select, SetExpr};

/// The locking clauses of the query about to be bound.
#[derive(Clone, Debug, Default)]
pub struct Locking {
    pub clauses: Vec<Clause>,
    /// The LIMIT of a query that skips locked rows.
    pub limit: Option<String>,
}

impl Locking {
    pub fn skips(&self) -> bool {
        self.clauses.iter().any(|c| c.wait == LockWait::SkipLocked)
    }
}

fn refused(message: String) -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

fn not_with(strength: LockStrength, what: &str) -> SqlError {
    refused(format!("{} is not allowed with {what}", strength.words()))
}

impl Binder<'_> {
    /// Takes the locking clauses of this query, and refuses them where a query cannot have them.
    pub(super) fn begin_locking(&mut self, query: &Query) -> SqlResult<Locking> {
        let locking = std::mem::take(&mut self.locking);
        if let Some(inner) = query.locks.first() {
            return Err(SqlError::unsupported(format!("FOR {} in a subquery or a WITH query", inner.lock_type))
                .with_hint("Lock the rows in the outermost query."));
        }
        let Some(Clause { strength, .. }) = locking.clauses.first() else { return Ok(locking) };
        self.locks = true;
        match &*query.body {
            SetExpr::Select(_) => Ok(locking),
            SetExpr::SetOperation { .. } => Err(not_with(*strength, "UNION/INTERSECT/EXCEPT")),
            SetExpr::Values(_) => Err(refused(format!("{} cannot be applied to VALUES", strength.words()))),
            _ => Err(SqlError::unsupported(format!("{} after a query in parentheses", strength.words()))),
        }
    }

    /// LIMIT as an expression, for a query that skips locked rows.
    pub(super) fn limit_of_granted(&mut self, query: &Query) -> SqlResult<Option<String>> {
        match self.limits(query)? {
            (limit, None) => Ok(limit),
            (_, Some(_)) => Err(SqlError::unsupported("OFFSET with SKIP LOCKED")),
        }
    }

    /// The LIMIT clause, unless the limit is a hidden column: then no clause is written.
    pub(super) fn limit_left(&self, limit: &str) -> String {
        match self.row_locks.iter().any(|lock| lock.limit.is_some()) {
            true => String::new(),
            false => format!(" LIMIT {limit}"),
        }
    }

    /// Adds the keys of the locked rows, and the limit, to the columns of a query.
    pub(super) fn lock_rows(
        &mut self,
        locking: &Locking,
        select: &Select,
        scope: &Scope<'_>,
        visible: usize,
    ) -> SqlResult<Vec<String>> {
        if locking.clauses.is_empty() {
            return Ok(Vec::new());
        }
        let mut hidden = Vec::new();
        let mut row_locks = Vec::new();
        for (relation, strength, wait) in chosen(&locking.clauses, select, scope)? {
            if let Some(used) = &scope.relations[relation].used {
                used.needs(Privileges::UPDATE);
            }
            let Some((table, key)) = self.key_of(scope, relation, strength)? else { continue };
            let at = visible + hidden.len();
            let key_at = (at..at + key.len()).collect();
            let alias = quote(&scope.relations[relation].alias);
            hidden.extend(key.iter().map(|column| format!("{alias}.{}", quote(column))));
            row_locks.push(RowLock { table, strength, wait, key: key_at, limit: None });
        }
        let mut skipping = row_locks.iter_mut().filter(|l| l.wait == LockWait::SkipLocked).peekable();
        if let (Some(limit), Some(_)) = (&locking.limit, skipping.peek()) {
            let at = visible + hidden.len();
            hidden.push(limit.clone());
            skipping.for_each(|lock| lock.limit = Some(at));
        }
        self.row_locks = row_locks;
        Ok(hidden)
    }

    /// The stored table of an entry of FROM with the columns that identify its rows. `None` where there are no rows
    /// to lock.
    fn key_of(
        &self,
        scope: &Scope<'_>,
        relation: usize,
        strength: LockStrength,
    ) -> SqlResult<Option<(String, Vec<String>)>> {
        let entry = &scope.relations[relation];
        let name = match &entry.source {
            Source::Table(name) => name,
            Source::Query { reads: true } => return Err(hint(strength, "on a subquery that reads tables")),
            // No other session sees a temporary table.
            Source::Query { reads: false }
            | Source::With
            | Source::Function
            | Source::Catalogue
            | Source::Temporary => {
                return Ok(None);
            }
        };
        let Some(table) = self.ctx.schema.table_among(false, name) else { return Ok(None) };
        match table.kind {
            TableKind::Table => {}
            TableKind::View => return Err(hint(strength, "on a view")),
            TableKind::Virtual => return Err(hint(strength, "on a virtual table")),
        }
        if entry.nullable {
            let words = strength.words();
            return Err(refused(format!("{words} cannot be applied to the nullable side of an outer join")));
        }
        match ids::row_key(table) {
            Some(key) => Ok(Some((table.name.clone(), key))),
            None => Err(hint(strength, "on a table whose columns use all names of the rowid")),
        }
    }
}

fn hint(strength: LockStrength, place: &str) -> SqlError {
    SqlError::unsupported(format!("{} {place}", strength.words()))
        .with_hint("Name the tables themselves in FROM, or name the tables to lock after OF.")
}

/// The entries of FROM to lock, with strength and wait policy, in the order of FROM.
fn chosen(clauses: &[Clause], select: &Select, scope: &Scope<'_>) -> SqlResult<Vec<(usize, LockStrength, LockWait)>> {
    let mut chosen: Vec<Option<(LockStrength, LockWait)>> = vec![None; scope.relations.len()];
    for clause in clauses {
        refuse_combined(clause.strength, select, scope)?;
        let mut add = |relation: usize| {
            let (strength, wait) = chosen[relation].unwrap_or((clause.strength, clause.wait));
            chosen[relation] = Some((strength.max(clause.strength), wait.max(clause.wait)));
        };
        if clause.of.is_empty() {
            (0..scope.relations.len()).for_each(&mut add);
        }
        for name in &clause.of {
            add(named(clause.strength, name, scope)?);
        }
    }
    let with_place = |(i, lock): (usize, Option<(LockStrength, LockWait)>)| lock.map(|(s, w)| (i, s, w));
    Ok(chosen.into_iter().enumerate().filter_map(with_place).collect())
}

/// An entry of FROM by its name after OF.
fn named(strength: LockStrength, name: &str, scope: &Scope<'_>) -> SqlResult<usize> {
    let words = strength.words();
    let Some(relation) = scope.relation(name) else {
        let message = format!("relation \"{name}\" in {words} clause not found in FROM clause");
        return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
    };
    match scope.relations[relation].source {
        Source::Function => Err(refused(format!("{words} cannot be applied to a function"))),
        Source::With => Err(refused(format!("{words} cannot be applied to a WITH query"))),
        _ => Ok(relation),
    }
}

/// Refuses queries whose result row is not one row of a table (`CheckSelectLocking` in analyze.c).
fn refuse_combined(strength: LockStrength, select: &Select, scope: &Scope<'_>) -> SqlResult<()> {
    let grouping = scope.grouping.borrow();
    let grouped = !matches!(&select.group_by, GroupByExpr::Expressions(exprs, _) if exprs.is_empty());
    let clause = [
        (select.distinct.is_some(), "DISTINCT clause"),
        (grouped, "GROUP BY clause"),
        (select.having.is_some(), "HAVING clause"),
        (grouping.aggregates, "aggregate functions"),
        (grouping.windows, "window functions"),
    ];
    match clause.into_iter().find(|(found, _)| *found) {
        Some((_, what)) => Err(not_with(strength, what)),
        None => Ok(()),
    }
}

/// True where the query reads a table of any kind.
pub(super) fn reads_tables(query: &Query) -> bool {
    use std::ops::ControlFlow;
    crate::relations::visit_relations(query, |_| ControlFlow::Break(())).is_break()
}
