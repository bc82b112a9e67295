//! CREATE TABLE and CREATE TABLE AS.

use super::{check_free, ddl_of, free_name, skipping};
use crate::bind::coerce::When;
use crate::bind::scope::{self, Column, Relation, Scope, Source};
use crate::bind::{Binder, need};
use crate::command::Kind;
use crate::context::Context;
use crate::finish;
use crate::keys::{CONSTRAINT_MARK, IDENTITY_MARK, PRIMARY_MARK};
use crate::names::{Among, fold, quote, quote_in, relation_name};
use crate::scan::Piece;
use crate::translated::{TempDdl, Translated};
use crate::types::{self, RowidKind, Type};
use holdfast_types::access::needs::Creates;
use holdfast_types::access::{Access, Need, Privileges};
use holdfast_types::definition::Reference;
use holdfast_types::definition::names::free;
use holdfast_types::desc::oid;
use holdfast_types::schema::Table;
use holdfast_types::{OnCommit, SqlError, SqlResult, SqlState};
use sqlparser::ast::{
    CheckConstraint, ColumnDef, ColumnOption, ConstraintCharacteristics, ConstraintReferenceMatchKind, CreateTable,
    CreateTableOptions, DeferrableInitial, Expr, ForeignKeyConstraint, GeneratedAs, Ident, IndexColumn,
    ReferentialAction, TableConstraint,
};
use std::fmt::Write as _;

/// A column of the definition that is being written.
pub(super) struct Draft {
    pub name: String,
    pub ty: Type,
    pub serial: bool,
    not_null: bool,
    /// DEFAULT, CHECK and REFERENCES clauses in SQLite's SQL.
    clauses: String,
    pub unique: Option<Option<String>>,
    pub primary: bool,
}

impl Draft {
    /// The column definition, and whether its default reads the clock.
    pub(super) fn column_sql(&self) -> SqlResult<(String, bool)> {
        let not_null = if self.not_null { " NOT NULL" } else { "" };
        let sql = format!("{} {}{not_null}{}", quote(&self.name), types::declare(self.ty)?, self.clauses);
        Ok((sql, self.clauses.contains("'now'")))
    }
}

pub fn translate(create: &CreateTable, piece: &Piece<'_>, context: &Context<'_>) -> SqlResult<Translated> {
    refuse_extras(create)?;
    let (temp, name) = named_as(create)?;
    let of = Of { context, temp, table: &name, primary: declared_key(create)? };
    match check_free(context, temp, &name) {
        Err(e) if create.if_not_exists && e.state() == SqlState::DUPLICATE_TABLE => {
            let what = format!("relation \"{name}\" already exists");
            return Ok(skipping("CREATE TABLE", &what, SqlState::DUPLICATE_TABLE));
        }
        other => other?,
    }
    if create.query.is_some() {
        let mut done = create_as(create, temp, &name, piece, context)?;
        // PostgreSQL checks what the query reads first.
        let mut needs = std::mem::take(&mut done.access.needs);
        needs.push(if temp { Need::Temporary } else { Need::CreateInSchema });
        let access = Access { needs, creates: made(temp, &name, false), ..Access::default() };
        return Ok(with_on_commit(create, temp, Translated { access, ..done }));
    }
    let mut binder = Binder::new(piece, context);
    binder.stored = true;
    let scope = definition_scope(&name, &create.columns)?;
    let mut drafts = Vec::new();
    for column in &create.columns {
        drafts.push(draft(&mut binder, &of, column, &scope)?);
    }
    let mut primary: Vec<String> = drafts.iter().filter(|d| d.primary).map(|d| d.name.clone()).collect();
    let mut uniques: Vec<(Option<String>, Vec<String>)> =
        drafts.iter().filter_map(|d| d.unique.clone().map(|n| (n, vec![d.name.clone()]))).collect();
    let mut tail = String::new();
    for constraint in &create.constraints {
        match constraint {
            TableConstraint::PrimaryKey(key) if primary.is_empty() => primary = columns_of(&key.columns)?,
            TableConstraint::PrimaryKey(_) => return Err(two_keys(&name)),
            TableConstraint::Unique(key) => {
                refuse_nulls_not_distinct(&key.nulls_distinct)?;
                refuse_deferrable(key.characteristics.as_ref())?;
                uniques.push((key.name.as_ref().map(fold), columns_of(&key.columns)?));
            }
            TableConstraint::Check(check) => write_check(&mut tail, ", ", &mut binder, &name, check, &scope)?,
            TableConstraint::ForeignKey(key) => {
                let names: Vec<String> = key.columns.iter().map(fold).collect();
                known(&drafts, &names)?;
                let listed: Vec<String> = names.iter().map(|n| quote(n)).collect();
                let _ = write!(
                    tail,
                    ", {}FOREIGN KEY ({}) {}",
                    named(&key.name),
                    listed.join(", "),
                    foreign_key_clause(key, &of, Some(&names), &of.primary)?.0
                );
            }
            other => return Err(SqlError::unsupported(format!("the constraint {other}"))),
        }
    }
    known(&drafts, &primary)?;
    if drafts.iter().filter(|d| d.primary).count() > 1 {
        return Err(two_keys(&name));
    }
    let key_name = create.constraints.iter().find_map(|c| match c {
        TableConstraint::PrimaryKey(key) => key.name.clone(),
        _ => None,
    });
    let of_column = create.columns.iter().flat_map(|c| &c.options);
    let of_column = of_column.filter(|o| matches!(o.option, ColumnOption::PrimaryKey(_))).find_map(|o| o.name.clone());
    let key_name = named(&key_name.or(of_column));
    let mut steps = vec![definition(&of, &mut drafts, &primary, &key_name, &tail)?];
    let mut taken = vec![name.clone()];
    for (wanted, columns) in uniques {
        known(&drafts, &columns)?;
        refuse_numeric_key(&drafts, &columns)?;
        steps.push(unique_index(&of, wanted, &columns, &mut taken));
    }
    let mut needs = vec![if temp { Need::Temporary } else { Need::CreateInSchema }];
    needs.extend(parents(create, &of)?);
    let creates = made(temp, &name, drafts.iter().any(|d| d.serial));
    let access = Access { needs, creates, ..Access::default() };
    Ok(with_on_commit(create, temp, Translated { access, ..ddl_of(temp, steps, "CREATE TABLE") }))
}

/// A session owns its temporary tables without a record of it.
fn made(temp: bool, name: &str, sequence: bool) -> Option<Creates> {
    (!temp).then(|| Creates { name: name.to_owned(), sequence, replaces: None })
}

/// REFERENCES on the tables that foreign keys refer to.
fn parents(create: &CreateTable, of: &Of<'_>) -> SqlResult<Vec<Need>> {
    let of_table = create.constraints.iter().filter_map(|c| match c {
        TableConstraint::ForeignKey(key) => Some(key),
        _ => None,
    });
    let options = create.columns.iter().flat_map(|c| &c.options);
    let of_columns = options.filter_map(|option| match &option.option {
        ColumnOption::ForeignKey(key) => Some(key),
        _ => None,
    });
    let mut needs = Vec::new();
    for key in of_columns.chain(of_table) {
        let (among, parent) = relation_name(&key.foreign_table)?;
        if parent == of.table {
            continue;
        }
        let parent = scope::table(of.context.schema, among, &parent)?;
        let named: Vec<String> = match key.referred_columns.is_empty() {
            true => crate::keys::primary_key(parent),
            false => key.referred_columns.iter().map(fold).collect(),
        };
        needs.extend(need::of_columns(parent, Privileges::REFERENCES, named.iter().map(String::as_str)));
    }
    Ok(needs)
}

/// The table that a definition belongs to.
pub(super) struct Of<'a> {
    pub context: &'a Context<'a>,
    pub temp: bool,
    pub table: &'a str,
    /// The columns of its primary key.
    pub primary: Vec<String>,
}

/// The columns of the primary key that a CREATE TABLE declares.
fn declared_key(create: &CreateTable) -> SqlResult<Vec<String>> {
    let is_key = |c: &&ColumnDef| c.options.iter().any(|o| matches!(o.option, ColumnOption::PrimaryKey(_)));
    if let Some(column) = create.columns.iter().find(is_key) {
        return Ok(vec![fold(&column.name)]);
    }
    let of_table = create.constraints.iter().find_map(|c| match c {
        TableConstraint::PrimaryKey(key) => Some(columns_of(&key.columns)),
        _ => None,
    });
    of_table.unwrap_or_else(|| Ok(Vec::new()))
}

/// Whether the table is temporary, and its name.
fn named_as(create: &CreateTable) -> SqlResult<(bool, String)> {
    let invalid = |message: &str| Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
    let (among, name) = relation_name(&create.name)?;
    match (among, create.temporary) {
        (Among::Permanent, true) => invalid("cannot create temporary relation in non-temporary schema"),
        (Among::All | Among::Permanent, false) if create.on_commit.is_some() => {
            invalid("ON COMMIT can only be used on temporary tables")
        }
        (among, temporary) => Ok((temporary || among == Among::Temporary, name)),
    }
}

fn with_on_commit(create: &CreateTable, temp: bool, done: Translated) -> Translated {
    if !temp {
        return done;
    }
    let then = match create.on_commit {
        None | Some(sqlparser::ast::OnCommit::PreserveRows) => OnCommit::PreserveRows,
        Some(sqlparser::ast::OnCommit::DeleteRows) => OnCommit::DeleteRows,
        Some(sqlparser::ast::OnCommit::Drop) => OnCommit::Drop,
    };
    let name = create.name.0.last().and_then(|p| p.as_ident()).map(fold).unwrap_or_default();
    Translated { temp: Some(TempDdl { creates: Some((name, then)) }), ..done }
}

fn two_keys(table: &str) -> SqlError {
    let message = format!("multiple primary keys for table \"{table}\" are not allowed");
    SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message)
}

fn known(drafts: &[Draft], names: &[String]) -> SqlResult<()> {
    for name in names {
        if !drafts.iter().any(|d| d.name == *name) {
            let message = format!("column \"{name}\" named in key does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
        }
    }
    Ok(())
}

/// Refuses a unique key over a numeric column without a scale: there equal values can differ in text.
fn refuse_numeric_key(drafts: &[Draft], names: &[String]) -> SqlResult<()> {
    let bad = drafts.iter().find(|d| names.contains(&d.name) && d.ty.has_unequal_forms());
    match bad {
        Some(d) if d.ty.oid != oid::NUMERIC => {
            Err(SqlError::unsupported(format!("a unique key over the column \"{}\" of type {}", d.name, d.ty.name())))
        }
        Some(d) => Err(SqlError::unsupported(format!("a unique key over the numeric column \"{}\"", d.name))
            .with_hint("Give it a precision and a scale: numeric(p,s).")),
        None => Ok(()),
    }
}

/// The CREATE UNIQUE INDEX of a UNIQUE constraint.
pub(super) fn unique_index(of: &Of<'_>, wanted: Option<String>, columns: &[String], taken: &mut Vec<String>) -> String {
    let default = format!("{}_{}_key", of.table, columns.join("_"));
    let name = wanted.unwrap_or_else(|| free_name(of.context, of.temp, &default, taken));
    let listed: Vec<String> = columns.iter().map(|c| quote(c)).collect();
    let (index, table) = (quote_in(of.temp, &name), quote(of.table));
    let sql = format!("CREATE UNIQUE INDEX {index} {CONSTRAINT_MARK} ON {table} ({})", listed.join(", "));
    taken.push(name);
    sql
}

fn definition(of: &Of<'_>, drafts: &mut [Draft], primary: &[String], key_name: &str, tail: &str) -> SqlResult<String> {
    let rowid = match primary {
        [only] => drafts.iter().find(|d| d.name == *only && d.ty.is_integer()).map(|d| d.name.clone()),
        _ => None,
    };
    let mut parts = Vec::new();
    for draft in drafts.iter_mut() {
        if rowid.as_ref() == Some(&draft.name) {
            let kind = RowidKind::new(draft.ty, draft.serial);
            let declared = kind.declare().replace("PRIMARY KEY", &format!("{key_name}PRIMARY KEY"));
            parts.push(format!("{} {declared}{}", quote(&draft.name), draft.clauses));
            continue;
        }
        if draft.serial {
            return Err(SqlError::unsupported(format!("the serial column \"{}\" outside the primary key", draft.name))
                .with_hint("Make it the primary key."));
        }
        draft.not_null |= primary.contains(&draft.name);
        parts.push(draft.column_sql()?.0);
    }
    if rowid.is_none() && !primary.is_empty() {
        refuse_numeric_key(drafts, primary)?;
        let listed: Vec<String> = primary.iter().map(|c| quote(c)).collect();
        parts.push(format!("{key_name}PRIMARY KEY ({})", listed.join(", ")));
    }
    if parts.is_empty() {
        return Err(SqlError::unsupported("a table without columns"));
    }
    Ok(format!("CREATE TABLE {} ({}{tail})", quote_in(of.temp, of.table), parts.join(", ")))
}

/// The scope of an expression in a definition: the table's own columns by their bare names.
pub(crate) fn own_scope(table: &str, columns: Vec<(String, Type)>) -> Scope<'static> {
    let mut scope = Scope::new(None);
    let columns = columns
        .into_iter()
        .map(|(name, ty)| Column {
            sql: Some(quote(&name)),
            name,
            ty,
            not_null: false,
            table_oid: 0,
            attnum: 0,
            lifts: false,
        })
        .collect();
    scope.relations.push(Relation::new(table, columns, Source::Table(table.to_owned())));
    scope
}

fn definition_scope(table: &str, columns: &[ColumnDef]) -> SqlResult<Scope<'static>> {
    let mut typed: Vec<(String, Type)> = Vec::new();
    for column in columns {
        let name = fold(&column.name);
        if typed.iter().any(|(n, _)| n.eq_ignore_ascii_case(&name)) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
        typed.push((name, types::from_ast(&column.data_type)?));
    }
    Ok(own_scope(table, typed))
}

fn is_serial(column: &ColumnDef) -> bool {
    let name = column.data_type.to_string().to_ascii_lowercase();
    let names = ["serial", "serial4", "bigserial", "serial8", "smallserial", "serial2"];
    names.contains(&name.as_str())
}

pub(super) fn draft(b: &mut Binder<'_>, of: &Of<'_>, column: &ColumnDef, scope: &Scope<'_>) -> SqlResult<Draft> {
    let ty = types::from_ast(&column.data_type)?;
    types::declare(ty)?;
    let serial = is_serial(column);
    let mut draft = Draft {
        name: fold(&column.name),
        ty,
        serial,
        not_null: serial,
        clauses: String::new(),
        unique: None,
        primary: false,
    };
    for option in &column.options {
        match &option.option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => draft.not_null = true,
            ColumnOption::PrimaryKey(_) => draft.primary = true,
            ColumnOption::Unique(unique) => {
                refuse_nulls_not_distinct(&unique.nulls_distinct)?;
                draft.unique = Some(option.name.as_ref().map(fold));
            }
            ColumnOption::Default(e) => {
                let text = default(b, e, ty)?;
                let _ = write!(draft.clauses, " DEFAULT {text}");
            }
            ColumnOption::Check(check) => {
                let named = CheckConstraint { name: option.name.clone().or(check.name.clone()), ..check.clone() };
                write_check(&mut draft.clauses, " ", b, of.table, &named, scope)?;
            }
            ColumnOption::ForeignKey(key) => {
                let (text, _) = foreign_key_clause(key, of, None, &of.primary)?;
                let _ = write!(draft.clauses, " {}{text}", named(&option.name));
            }
            ColumnOption::Generated {
                generated_as: GeneratedAs::Always | GeneratedAs::ByDefault,
                generation_expr: None,
                ..
            } => {
                draft.serial = true;
                draft.not_null = true;
                let _ = write!(draft.clauses, " {IDENTITY_MARK}");
            }
            ColumnOption::Generated {
                generated_as: GeneratedAs::ExpStored | GeneratedAs::Always,
                generation_expr: Some(e),
                ..
            } => {
                let typed = b.expr(e, scope)?;
                let typed = b.coerce(typed, ty, When::Assignment)?;
                let _ = write!(draft.clauses, " GENERATED ALWAYS AS ({}) STORED", typed.sql);
            }
            other => return Err(SqlError::unsupported(format!("the column option {other}"))),
        }
    }
    Ok(draft)
}

/// Binds a DEFAULT: a constant, or the clock.
pub(super) fn default(b: &mut Binder<'_>, e: &Expr, ty: Type) -> SqlResult<String> {
    let typed = b.expr(e, &Scope::new(None))?;
    if let Some(clock) = crate::default::stored_clock(ty).filter(|_| crate::default::clock(&typed.sql).is_some()) {
        return Ok(format!("({clock})"));
    }
    let typed = b.coerce(typed, ty, When::Assignment)?;
    let plain = typed.sql.starts_with(['\'', 'x']) || typed.sql.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'.');
    Ok(if plain || typed.sql.starts_with('(') { typed.sql } else { format!("({})", typed.sql) })
}

fn named(name: &Option<Ident>) -> String {
    name.as_ref().map(|n| format!("CONSTRAINT {} ", quote(&fold(n)))).unwrap_or_default()
}

fn write_check(
    out: &mut String,
    before: &str,
    b: &mut Binder<'_>,
    table: &str,
    check: &CheckConstraint,
    scope: &Scope<'_>,
) -> SqlResult<()> {
    let condition = b.condition(&check.expr, "CHECK", scope)?;
    let name = match &check.name {
        Some(name) => fold(name),
        None => {
            let columns = scope.relations.iter().flat_map(|r| &r.columns).map(|c| c.name.as_str());
            let used: Vec<&str> = columns.filter(|c| super::alter::mentions(&condition.sql, c)).collect();
            let label = if let [only] = used.as_slice() { only } else { "" };
            let is_free = |name: &str| !out.contains(&format!("CONSTRAINT {} CHECK", quote(name)));
            free(table, label, "check", is_free)
        }
    };
    let _ = write!(out, "{before}CONSTRAINT {} CHECK {}", quote(&name), parenthesised(&condition.sql));
    Ok(())
}

pub(crate) fn parenthesised(sql: &str) -> String {
    if sql.starts_with('(') { sql.to_owned() } else { format!("({sql})") }
}

/// The REFERENCES clause. `key` is the foreign key's columns, `own_primary` the primary key of its own table.
pub(super) fn foreign_key_clause(
    key: &ForeignKeyConstraint,
    of: &Of<'_>,
    columns: Option<&[String]>,
    own_primary: &[String],
) -> SqlResult<(String, Reference)> {
    let (among, parent) = relation_name(&key.foreign_table)?;
    let own = parent == of.table && among != if of.temp { Among::Permanent } else { Among::Temporary };
    if !own && scope::table(of.context.schema, among, &parent)?.temp != of.temp {
        let kind = if of.temp { "temporary" } else { "permanent" };
        let message = format!("constraints on {kind} tables may reference only {kind} tables");
        return Err(SqlError::new(SqlState::INVALID_TABLE_DEFINITION, message));
    }
    let acts = |action: &Option<ReferentialAction>| {
        action.is_some_and(|a| !matches!(a, ReferentialAction::NoAction | ReferentialAction::Restrict))
    };
    if !own && (acts(&key.on_delete) || acts(&key.on_update)) {
        let parent = scope::table(of.context.schema, among, &parent)?;
        need::refuse_where_subscribed(of.context.schema, parent, "an action of a foreign key to")?;
    }
    if key.match_kind.is_some_and(|kind| kind != ConstraintReferenceMatchKind::Simple) {
        return Err(SqlError::unsupported("MATCH in a foreign key"));
    }
    let table = (!own).then(|| scope::table(of.context.schema, among, &parent)).transpose()?;
    let primary = table.map_or_else(|| own_primary.to_vec(), crate::keys::primary_key);
    let named: Vec<String> = key.referred_columns.iter().map(fold).collect();
    let referred = if named.is_empty() { primary.clone() } else { named };
    if referred.is_empty() {
        let message = format!("there is no primary key for referenced table \"{parent}\"");
        return Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message));
    }
    if columns.map_or(1, <[String]>::len) != referred.len() {
        let message = "number of referencing and referenced columns for foreign key disagree";
        return Err(SqlError::new(SqlState("42830"), message));
    }
    if let Some(table) = table {
        check_referred(table, &primary, &referred)?;
    }
    let listed: Vec<String> = referred.iter().map(|c| quote(c)).collect();
    let mut text = format!("REFERENCES {}({})", quote(&parent), listed.join(", "));
    if let Some(action) = &key.on_delete {
        let _ = write!(text, " ON DELETE {action}");
    }
    if let Some(action) = &key.on_update {
        let _ = write!(text, " ON UPDATE {action}");
    }
    let deferral = deferral(key.characteristics.as_ref());
    if of.temp && deferral.ends_with("DEFERRED") {
        return Err(SqlError::unsupported("a deferred foreign key of a temporary table"));
    }
    text.push_str(deferral);
    let (deferrable, deferred) = (!deferral.is_empty(), deferral.ends_with("DEFERRED"));
    Ok((text, Reference { columns: Vec::new(), parent, parent_columns: referred, deferrable, deferred }))
}

/// 42703 for a column that the table does not have, 42830 where the columns are not a unique key.
fn check_referred(table: &Table, primary: &[String], referred: &[String]) -> SqlResult<()> {
    if let Some(name) = referred.iter().find(|name| !table.columns.iter().any(|c| c.name == **name)) {
        let message = format!("column \"{name}\" referenced in foreign key constraint does not exist");
        return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
    }
    let same = |columns: &[String]| columns.len() == referred.len() && columns.iter().all(|c| referred.contains(c));
    let unique = table.indexes.iter().filter(|i| i.unique && i.sql.as_deref().is_none_or(|s| !s.contains(" WHERE ")));
    let mut keys = unique.filter_map(|i| i.columns.iter().cloned().collect::<Option<Vec<String>>>());
    if same(primary) || keys.any(|columns| same(&columns)) {
        return Ok(());
    }
    let message = format!("there is no unique constraint matching given keys for referenced table \"{}\"", table.name);
    Err(SqlError::new(SqlState("42830"), message))
}

/// UNIQUE and PRIMARY KEY are checked at once.
pub(super) fn refuse_deferrable(characteristics: Option<&ConstraintCharacteristics>) -> SqlResult<()> {
    match deferral(characteristics) {
        "" => Ok(()),
        _ => Err(SqlError::unsupported("a deferrable unique constraint")),
    }
}

/// The CREATE UNIQUE INDEX of a primary key that is added later.
pub(super) fn primary_index(table: &str, name: &str, columns: &[String]) -> String {
    let listed: Vec<String> = columns.iter().map(|c| quote(c)).collect();
    format!(
        "CREATE UNIQUE INDEX {} {CONSTRAINT_MARK} {PRIMARY_MARK} ON {} ({})",
        quote(name),
        quote(table),
        listed.join(", ")
    )
}

fn deferral(characteristics: Option<&ConstraintCharacteristics>) -> &'static str {
    match characteristics {
        Some(c) if c.initially == Some(DeferrableInitial::Deferred) => " DEFERRABLE INITIALLY DEFERRED",
        Some(c) if c.deferrable == Some(true) => " DEFERRABLE",
        _ => "",
    }
}

/// Names of the columns of a key.
pub(super) fn columns_of(columns: &[IndexColumn]) -> SqlResult<Vec<String>> {
    columns
        .iter()
        .map(|c| match &c.column.expr {
            Expr::Identifier(i) => Ok(fold(i)),
            other => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{other} is not a column"))),
        })
        .collect()
}

pub(super) fn refuse_nulls_not_distinct(option: &sqlparser::ast::NullsDistinctOption) -> SqlResult<()> {
    match option {
        sqlparser::ast::NullsDistinctOption::NotDistinct => Err(SqlError::unsupported("NULLS NOT DISTINCT")),
        _ => Ok(()),
    }
}

/// CREATE TABLE AS: a definition from the query's types, and an INSERT.
fn create_as(
    create: &CreateTable,
    temp: bool,
    name: &str,
    piece: &Piece<'_>,
    context: &Context<'_>,
) -> SqlResult<Translated> {
    let Some(query) = &create.query else { return Err(SqlError::internal("CREATE TABLE AS without a query")) };
    if !create.constraints.is_empty() {
        return Err(SqlError::new(SqlState::SYNTAX_ERROR, "CREATE TABLE AS does not accept constraints"));
    }
    let mut binder = Binder::new(piece, context);
    let bound = binder.query(query, None, None)?;
    let mut parts = Vec::new();
    for (i, column) in bound.columns.iter().enumerate() {
        let shown = create.columns.get(i).map_or_else(|| column.name.clone(), |c| fold(&c.name));
        parts.push(format!("{} {}", quote(&shown), types::declare(column.ty)?));
    }
    let table = quote_in(temp, name);
    let mut steps = vec![format!("CREATE TABLE {table} ({})", parts.join(", "))];
    let no_data = create.with_data.as_ref().is_some_and(|w| w.to_string().contains("NO DATA"));
    let done = finish::finish(binder, bound.sql, &[], Kind::Ddl, "SELECT");
    if !no_data {
        steps.extend(done.steps.iter().map(|query| format!("INSERT INTO {table} {}", query.sql)));
    }
    Ok(Translated {
        steps: steps.into_iter().map(Into::into).collect(),
        params: if no_data { Vec::new() } else { done.params.clone() },
        counts: !no_data,
        cacheable: false,
        verb: if no_data { "CREATE TABLE AS" } else { "SELECT" },
        ..done
    })
}

fn refuse_extras(create: &CreateTable) -> SqlResult<()> {
    let refuse = |what: &str| Err(SqlError::unsupported(what));
    if create.partition_by.is_some() || create.partition_of.is_some() {
        return refuse("a partitioned table");
    }
    if create.inherits.is_some() {
        return refuse("INHERITS");
    }
    if create.like.is_some() || create.clone.is_some() {
        return refuse("CREATE TABLE LIKE");
    }
    if create.external || create.strict || create.without_rowid || create.or_replace {
        return Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "syntax error: PostgreSQL does not have this form of CREATE TABLE",
        ));
    }
    match &create.table_options {
        // Storage parameters (fillfactor, autovacuum) do not change any result.
        CreateTableOptions::None | CreateTableOptions::With(_) => Ok(()),
        _ => Err(SqlError::new(
            SqlState::SYNTAX_ERROR,
            "syntax error: PostgreSQL does not have this form of CREATE TABLE",
        )),
    }
}
