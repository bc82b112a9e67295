//! Keeps SQLite from grouping a whole table in the order of an index that lacks the columns it needs.
//!
//! SQLite prefers such an index to a sort, and then fetches each row by its key: every page of a large table is read as often as it has
//! rows. A scan and a sort of the few columns that are needed took half the time (300,000 rows of 1 KB, `holdfast lab speed`, row
//! group-by). A `+` in front of a column of GROUP BY takes the index away; it changes neither the value nor the collation
//! (sqlite.org/optoverview.html, "disqualifying WHERE clause terms using unary +"; sqlite.org/datatype3.html, 7.1).
//!
//! | the query | stays as it is, because |
//! |---|---|
//! | has a WHERE clause, or more than one table | the index may be what finds its rows |
//! | is sorted by a column that it groups by | the index gives both orders, and a LIMIT may end it early |
//! | needs columns of one index only | the index is read alone |
//! | groups by the key in whose order the table is | nothing is fetched |
//! | is a stored definition | its text is what users see |

use super::Binder;
use super::scope::{Scope, Source};
use crate::names::fold;
use holdfast_types::schema::Table;
use sqlparser::ast::{Expr, OrderBy, OrderByKind, Select, SelectItem, Visit, Visitor};
use std::collections::BTreeSet;
use std::ops::ControlFlow;

/// Collects the names that an expression may mean as columns.
#[derive(Default)]
struct Names(BTreeSet<String>);

impl Visitor for Names {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => drop(self.0.insert(fold(name))),
            Expr::CompoundIdentifier(parts) => self.0.extend(parts.last().map(fold)),
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

impl Binder<'_> {
    /// Whether the rows are better sorted for GROUP BY than fetched by an index.
    pub(super) fn groups_by_sorting(
        &self,
        select: &Select,
        groups: &[&Expr],
        order: Option<&OrderBy>,
        scope: &Scope<'_>,
    ) -> bool {
        let [relation] = &scope.relations[..] else { return false };
        let Source::Table(name) = &relation.source else { return false };
        let Some(table) = self.ctx.schema.table(name) else { return false };
        if self.stored || select.selection.is_some() || is_sorted_by_one_of(groups, order, select) {
            return false;
        }
        // The walks never break off.
        let mut keys = Names::default();
        for group in groups {
            let _ = group.visit(&mut keys);
        }
        if table.without_rowid || table.columns.iter().any(|c| c.rowid_alias && keys.0.contains(&c.name)) {
            return false;
        }
        let mut names = keys;
        let _ = (select.projection.visit(&mut names), select.having.visit(&mut names));
        let _ = order.map(|order| order.visit(&mut names));
        !is_covered(table, &names.0)
    }
}

fn is_sorted_by_one_of(groups: &[&Expr], order: Option<&OrderBy>, select: &Select) -> bool {
    let Some(OrderByKind::Expressions(keys)) = order.map(|o| &o.kind) else { return false };
    keys.first().is_some_and(|key| {
        let position =
            key.expr.to_string().parse::<usize>().ok().and_then(|n| select.projection.get(n.checked_sub(1)?));
        match position {
            Some(SelectItem::UnnamedExpr(e) | SelectItem::ExprWithAlias { expr: e, .. }) => groups.contains(&e),
            _ => groups.contains(&&key.expr),
        }
    })
}

/// Whether an index has all of these that are columns.
fn is_covered(table: &Table, names: &BTreeSet<String>) -> bool {
    let needed: Vec<&str> =
        table.columns.iter().map(|c| c.name.as_str()).filter(|name| names.contains(*name)).collect();
    table.indexes.iter().any(|index| {
        let has = |name: &&str| index.columns.iter().flatten().any(|column| column == *name);
        let is_rowid = |name: &str| table.columns.iter().any(|column| column.name == name && column.rowid_alias);
        needed.iter().all(|name| has(name) || is_rowid(name))
    })
}
