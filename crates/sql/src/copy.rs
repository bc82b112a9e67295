//! COPY to and from the client.

use crate::bind::{Binder, need, scope, write};
use crate::command::{CopyColumn, CopyFormat, CopyIn, Kind};
use crate::finish::{describe, finish};
use crate::names::{TEMP_SCHEMA, fold, quote, quote_table};
use crate::params::{Param, ParamSource};
use crate::translated::Translated;
use holdfast_types::access::{Access, Privileges};
use holdfast_types::desc::StatementDesc;
use holdfast_types::schema::Table;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{CopyLegacyCsvOption, CopyLegacyOption, CopyOption, CopySource, CopyTarget, Ident, Statement};
use std::sync::Arc;

pub fn translate(statement: &Statement, binder: Binder<'_>) -> SqlResult<Translated> {
    let Statement::Copy { source, to, target, options, legacy_options, .. } = statement else {
        return Err(SqlError::internal("not a COPY"));
    };
    if !matches!(target, CopyTarget::Stdin | CopyTarget::Stdout) {
        return Err(SqlError::new(
            SqlState::INSUFFICIENT_PRIVILEGE,
            "COPY to or from a file of the server is not allowed",
        )
        .with_hint("Use COPY ... FROM STDIN or TO STDOUT; psql's \\copy uses them."));
    }
    let format = format(options, legacy_options)?;
    match (source, to) {
        (CopySource::Table { table_name, columns }, false) => {
            let table = scope::table_named(binder.ctx.schema, table_name)?;
            copy_in(binder, table, columns, format)
        }
        (CopySource::Table { table_name, columns }, true) => {
            let table = scope::table_named(binder.ctx.schema, table_name)?;
            copy_table_out(binder, table, columns, format)
        }
        (CopySource::Query(query), true) => {
            let mut binder = binder;
            let bound = binder.query(query, None, None)?;
            let done = finish(binder, bound.sql, &bound.columns, Kind::CopyOut(Box::new(format)), "COPY");
            Ok(Translated { cacheable: false, ..done })
        }
        (CopySource::Query(_), false) => Err(SqlError::new(SqlState::SYNTAX_ERROR, "COPY FROM requires a table")),
    }
}

fn chosen(binder: &Binder<'_>, table: &Table, names: &[Ident]) -> SqlResult<Vec<scope::Column>> {
    let all = scope::columns_of(table, binder.ctx.dialect);
    let generated = |name: &str| table.columns.iter().any(|c| c.name == name && c.generated);
    if names.is_empty() {
        return Ok(all.into_iter().filter(|c| !generated(&c.name)).collect());
    }
    names
        .iter()
        .map(|n| {
            let name = fold(n);
            all.iter().find(|c| c.name == name).cloned().ok_or_else(|| {
                let message = format!("column \"{name}\" of relation \"{}\" does not exist", table.name);
                SqlError::new(SqlState::UNDEFINED_COLUMN, message)
            })
        })
        .collect()
}

/// The INSERT that stores one row of the stream. It is bound as an ordinary INSERT, so that defaults and checks are the
/// same.
fn copy_in(mut binder: Binder<'_>, table: &Table, names: &[Ident], format: CopyFormat) -> SqlResult<Translated> {
    let columns = chosen(&binder, table, names)?;
    let schema = if table.temp { TEMP_SCHEMA } else { "public" };
    let listed: Vec<String> = columns.iter().map(|c| quote(&c.name)).collect();
    let values: Vec<String> = (1..=columns.len()).map(|i| format!("${i}")).collect();
    let name = format!("{}.{}", quote(schema), quote(&table.name));
    let text = format!("INSERT INTO {name} ({}) VALUES ({})", listed.join(", "), values.join(", "));
    let Statement::Insert(insert) = crate::parse::parse(&text)? else {
        return Err(SqlError::internal("COPY made no INSERT"));
    };
    let bound = write::insert(&mut binder, &insert)?;
    let access = binder.access();
    let params: Vec<Param> = std::mem::take(&mut binder.params);
    // The length limits were checked when the fields were read.
    let params = params
        .into_iter()
        .map(|p| if matches!(p.source, ParamSource::Client(_)) { Param { coerce: None, ..p } } else { p })
        .collect();
    let copied =
        columns.iter().map(|c| CopyColumn { name: c.name.clone(), type_oid: c.ty.oid, typmod: c.ty.typmod }).collect();
    let kind = Kind::CopyIn(Box::new(CopyIn { table: table.name.clone(), columns: copied, format }));
    Ok(Translated {
        steps: vec![bound.sql.into()],
        params,
        counts: true,
        access,
        cacheable: false,
        ..Translated::command(kind, "COPY")
    })
}

fn copy_table_out(binder: Binder<'_>, table: &Table, names: &[Ident], format: CopyFormat) -> SqlResult<Translated> {
    let columns = chosen(&binder, table, names)?;
    let listed: Vec<String> = columns.iter().map(|c| quote(&c.name)).collect();
    let sql = format!("SELECT {} FROM {}", listed.join(", "), quote_table(table));
    Ok(Translated {
        steps: vec![sql.into()],
        access: Access::of(need::of_columns(table, Privileges::SELECT, columns.iter().map(|c| c.name.as_str()))),
        desc: Arc::new(StatementDesc { params: Vec::new(), columns: describe(&columns), empty_rows: false }),
        counts: true,
        cacheable: false,
        ..Translated::command(Kind::CopyOut(Box::new(format)), "COPY")
    })
}

fn one_byte(c: char, what: &str) -> SqlResult<u8> {
    u8::try_from(c).ok().filter(u8::is_ascii).ok_or_else(|| {
        SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, format!("COPY {what} must be a single one-byte character"))
    })
}

fn format(options: &[CopyOption], legacy: &[CopyLegacyOption]) -> SqlResult<CopyFormat> {
    let mut csv = false;
    let (mut header, mut delimiter, mut null, mut quote, mut escape) = (false, None, None, None, None);
    for option in options {
        match option {
            CopyOption::Format(name) => match name.value.to_ascii_lowercase().as_str() {
                "text" => csv = false,
                "csv" => csv = true,
                other => return Err(SqlError::unsupported(format!("COPY format {other}"))),
            },
            CopyOption::Freeze(_) => {}
            CopyOption::Delimiter(c) => delimiter = Some(one_byte(*c, "delimiter")?),
            CopyOption::Null(text) => null = Some(text.clone()),
            CopyOption::Header(on) => header = *on,
            CopyOption::Quote(c) => quote = Some(one_byte(*c, "quote")?),
            CopyOption::Escape(c) => escape = Some(one_byte(*c, "escape")?),
            CopyOption::Encoding(name) if name.replace('-', "").eq_ignore_ascii_case("utf8") => {}
            other => return Err(SqlError::unsupported(format!("COPY with {other}"))),
        }
    }
    for option in legacy {
        match option {
            CopyLegacyOption::Delimiter(c) => delimiter = Some(one_byte(*c, "delimiter")?),
            CopyLegacyOption::Null(text) => null = Some(text.clone()),
            CopyLegacyOption::Header => header = true,
            CopyLegacyOption::Csv(parts) => {
                csv = true;
                for part in parts {
                    match part {
                        CopyLegacyCsvOption::Header => header = true,
                        CopyLegacyCsvOption::Quote(c) => quote = Some(one_byte(*c, "quote")?),
                        CopyLegacyCsvOption::Escape(c) => escape = Some(one_byte(*c, "escape")?),
                        other => return Err(SqlError::unsupported(format!("COPY with {other}"))),
                    }
                }
            }
            other => return Err(SqlError::unsupported(format!("COPY with {other}"))),
        }
    }
    let quote = quote.unwrap_or(b'"');
    Ok(CopyFormat {
        csv,
        header,
        delimiter: delimiter.unwrap_or(if csv { b',' } else { b'\t' }),
        null: null.unwrap_or_else(|| if csv { String::new() } else { "\\N".into() }),
        quote,
        escape: escape.unwrap_or(quote),
    })
}
