//! `mode = 'partition'`: which rows of a table are a subscription's, and that the database's own publications have none of them.
//!
//! What a subscription has applied must not be published again: two databases that subscribe to each other would send each row back
//! and forth. So the conditions of both directions have to name the same column, and no value in common:
//!
//! | condition | the values that it permits |
//! |---|---|
//! | `column = constant`, `column IN (constants)`, an OR of these on one column | the constants |
//! | an AND of conditions | those of each |
//! | any other | not known |
//!
//! Numbers and strings are not compared with each other, and strings count as equal where case or spaces at the end differ.
//!
//! Failure: 55000 for a publication without a condition; 0A000 for conditions that are not seen to exclude each other.

use super::RemoteTable;
use crate::context::Context;
use crate::publications;
use holdfast_types::publication::Publications;
use holdfast_types::schema::Schema;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{BinaryOperator, Expr};
use sqlparser::dialect::SQLiteDialect;
use sqlparser::parser::Parser;
use std::collections::{BTreeMap, BTreeSet};

/// The condition of a table's subscribed rows, in SQLite's SQL.
pub(super) fn condition(remote: &RemoteTable, oid: u32, context: &Context<'_>) -> SqlResult<String> {
    let lost = || SqlError::internal("a subscribed table is not in the schema");
    let table = context.schema.by_oid(oid).ok_or_else(lost)?;
    if remote.conditions.is_empty() {
        let message = format!("mode = 'partition' needs a condition on table \"{}\"", remote.name);
        return Err(SqlError::new(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message).with_hint(
            "Publish the table with WHERE (...), in each of the publications; or leave the mode out, and the whole table is \
             read-only here.",
        ));
    }
    let bound = |condition: &String| publications::bound_condition(&format!("SELECT ({condition})"), table, context);
    let all = remote.conditions.iter().map(bound).collect::<SqlResult<Vec<String>>>()?;
    Ok(if all.len() == 1 { all.concat() } else { format!("({})", all.join(" OR ")) })
}

/// 0A000 where a publication of this database may have rows that a subscription writes.
pub(super) fn refuse_published(oid: u32, condition: &str, subscription: &str, schema: &Schema) -> SqlResult<()> {
    check(&schema.publications, schema, &[(oid, condition, subscription)])
}

/// The same for publications that are about to be stored.
pub(crate) fn refuse_subscribed(publications: &Publications, schema: &Schema) -> SqlResult<()> {
    let subscribed = schema
        .subscriptions
        .list
        .iter()
        .flat_map(|s| s.conditions.iter().map(move |(oid, condition)| (*oid, condition.as_str(), s.name.as_str())));
    check(publications, schema, &subscribed.collect::<Vec<_>>())
}

fn check(publications: &Publications, schema: &Schema, subscribed: &[(u32, &str, &str)]) -> SqlResult<()> {
    for publication in &publications.list {
        for (oid, condition, subscription) in subscribed {
            let entry = publication.table(*oid);
            let may_overlap = match (publication.all_tables, entry.and_then(|entry| entry.filter.as_deref())) {
                (false, Some(filter)) => !exclude_each_other(filter, condition),
                (all, None) => all || entry.is_some(),
                (true, Some(_)) => true,
            };
            if may_overlap {
                let table = schema.by_oid(*oid).map_or("", |table| table.name.as_str());
                let message = format!(
                    "publication \"{}\" with rows of table \"{table}\" that subscription \"{subscription}\" writes",
                    publication.name
                );
                return Err(SqlError::unsupported(message).with_hint(
                    "Give both a condition on the same column without a value in common, such as WHERE (site = 1) there and \
                     WHERE (site = 2) here.",
                ));
            }
        }
    }
    Ok(())
}

/// Whether it is seen that no row meets both conditions.
fn exclude_each_other(a: &str, b: &str) -> bool {
    let parsed = |text: &str| Parser::new(&SQLiteDialect {}).try_with_sql(text).and_then(|mut p| p.parse_expr()).ok();
    let (Some(a), Some(b)) = (parsed(a), parsed(b)) else { return false };
    let (a, b) = (permitted(&a), permitted(&b));
    let kinds = |values: &BTreeSet<String>| values.iter().map(|value| value.starts_with('\'')).collect::<BTreeSet<_>>();
    let apart = |a: &BTreeSet<String>, b: &BTreeSet<String>| a.is_disjoint(b) && kinds(a).union(&kinds(b)).count() < 2;
    a.iter().any(|(column, values)| b.get(column).is_some_and(|others| apart(values, others)))
}

/// The values that a condition permits, for each column of which that is known.
fn permitted(e: &Expr) -> BTreeMap<String, BTreeSet<String>> {
    match e {
        Expr::Nested(inner) => permitted(inner),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            let mut both = permitted(left);
            for (column, values) in permitted(right) {
                match both.get_mut(&column) {
                    Some(before) => before.retain(|value| values.contains(value)),
                    None => _ = both.insert(column, values),
                }
            }
            both
        }
        Expr::BinaryOp { left, op: BinaryOperator::Or, right } => {
            let (mut left, right) = (permitted(left), permitted(right));
            left.retain(|column, _| right.contains_key(column));
            for (column, values) in &mut left {
                values.extend(right[column].iter().cloned());
            }
            left
        }
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            let (column, value) = match (column(left), column(right)) {
                (Some(column), None) => (column, constant(right)),
                (None, Some(column)) => (column, constant(left)),
                _ => return BTreeMap::new(),
            };
            value.map(|value| (column, BTreeSet::from([value]))).into_iter().collect()
        }
        Expr::InList { expr, list, negated: false } => {
            let values: Option<BTreeSet<String>> = list.iter().map(constant).collect();
            column(expr).zip(values).into_iter().collect()
        }
        _ => BTreeMap::new(),
    }
}

fn column(e: &Expr) -> Option<String> {
    match e {
        Expr::Identifier(ident) => Some(ident.value.to_ascii_lowercase()),
        Expr::Nested(inner) => column(inner),
        _ => None,
    }
}

/// A whole number, or a string behind a quotation mark. Others may be equal in several forms.
fn constant(e: &Expr) -> Option<String> {
    use sqlparser::ast::Value;
    match e {
        Expr::Nested(inner) => constant(inner),
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => Some(number.parse::<i64>().ok()?.to_string()),
            Value::SingleQuotedString(text) => Some(format!("'{}", text.trim_end().to_lowercase())),
            Value::Boolean(value) => Some(i64::from(*value).to_string()),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::exclude_each_other;

    #[test]
    fn conditions_that_are_seen_to_exclude_each_other() {
        let site = |condition: &str| exclude_each_other("(\"site\" = 1)", condition);
        assert!(site("(\"site\" = 2)") && site("((2 = \"SITE\"))") && site("(\"site\" IN (2, 3))"));
        assert!(site("(\"site\" = 2 OR \"site\" = 3)") && site("(\"a\" > 1 AND \"site\" = 2)"));
        assert!(site("(\"site\" IN (1, 2) AND \"site\" IN (2, 3))"));
        assert!(
            exclude_each_other("(\"s\" = 'a')", "(\"s\" = 'b')")
                && !exclude_each_other("(\"s\" = 'a')", "(\"s\" = 'A ')")
        );
        assert!(!site("(\"site\" = '2')"), "a number may be written as a string");
        assert!(!site("(\"site\" = 1)") && !site("(\"site\" = 01)") && !site("(\"site\" IN (2, 1))"));
        assert!(!site("(\"site\" <> 1)") && !site("(\"other\" = 2)") && !site("(\"site\" = 2 OR \"other\" = 2)"));
        assert!(
            !site("(\"site\" = 2.0)")
                && !site("(\"site\" NOT IN (1))")
                && !site("(\"site\" = \"other\")")
                && !site("x (")
        );
    }
}
