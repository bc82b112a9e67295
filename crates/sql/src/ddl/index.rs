//! CREATE INDEX.

use super::create_table::own_scope;
use super::{check_free, ddl_of, free_name, skipping};
use crate::bind::{Binder, need, scope};
use crate::context::Context;
use crate::names::{exact_name, fold, quote, quote_in};
use crate::scan::Piece;
use crate::translated::Translated;
use holdfast_types::access::{Access, Need};
use holdfast_types::desc::oid;
use holdfast_types::schema::TableKind;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{CreateIndex, Expr, IndexType, OrderBySort};

pub fn translate(create: &CreateIndex, piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Translated> {
    let table = scope::table_named(context.schema, &create.table_name)?;
    if table.kind != TableKind::Table {
        let message = format!("cannot create index on relation \"{}\"", table.name);
        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
    }
    let mut needs = need::owner(table);
    needs.extend((!table.temp).then_some(Need::CreateInSchema));
    match &create.using {
        None | Some(IndexType::BTree | IndexType::Hash) => {}
        Some(other) => return Err(SqlError::unsupported(format!("an index of type {other}"))),
    }
    if create.nulls_distinct == Some(false) {
        return Err(SqlError::unsupported("NULLS NOT DISTINCT"));
    }
    let columns = scope::columns_of(table, context.dialect);
    let typed = columns.iter().map(|c| (c.name.clone(), c.ty)).collect();
    let scope = own_scope(&table.name, typed);
    let mut binder = Binder::new(piece, context);
    binder.stored = true;
    let mut keys = Vec::new();
    let mut names = Vec::new();
    for item in &create.columns {
        let typed = binder.value_expr(&item.column.expr, &scope)?;
        if create.unique && typed.ty.has_unequal_forms() && typed.ty.oid != oid::NUMERIC {
            return Err(SqlError::unsupported(format!("a unique index over values of type {}", typed.ty.name())));
        }
        if create.unique && typed.ty.has_unequal_forms() {
            return Err(SqlError::unsupported("a unique index over numeric without a scale")
                .with_hint("Give the column a precision and a scale: numeric(p,s)."));
        }
        names.push(match &item.column.expr {
            Expr::Identifier(i) => fold(i),
            Expr::Function(f) => f.name.0.last().and_then(|p| p.as_ident()).map(fold).unwrap_or_default(),
            _ => "expr".to_owned(),
        });
        let descending = matches!(item.column.options.sort, Some(OrderBySort::Desc));
        keys.push(format!("{}{}", typed.sql, if descending { " DESC" } else { "" }));
    }
    let name = match &create.name {
        Some(name) => exact_name(name)?,
        None => free_name(context, table.temp, &format!("{}_{}_idx", table.name, names.join("_")), &[]),
    };
    match check_free(context, table.temp, &name) {
        Err(e) if create.if_not_exists && e.state() == SqlState::DUPLICATE_TABLE => {
            let what = format!("relation \"{name}\" already exists");
            return Ok(skipping("CREATE INDEX", &what, SqlState::DUPLICATE_TABLE));
        }
        other => other?,
    }
    let filter = match &create.predicate {
        Some(e) => format!(" WHERE {}", binder.condition(e, "WHERE", &scope)?.sql),
        None => String::new(),
    };
    let unique = if create.unique { "UNIQUE " } else { "" };
    let (index, on) = (quote_in(table.temp, &name), quote(&table.name));
    let sql = format!("CREATE {unique}INDEX {index} ON {on} ({}){filter}", keys.join(", "));
    Ok(Translated { access: Access::of(needs), ..ddl_of(table.temp, vec![sql], "CREATE INDEX") })
}
