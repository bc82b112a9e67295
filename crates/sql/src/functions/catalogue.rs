//! Functions over the catalogue that need no table.

use super::function::{Function, int, text};
use crate::types::{self, parse_lsn};
use holdfast_types::access::check::denied;
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::loose("hf_format_type", 2, |a| {
        if matches!(a[0], ValueRef::Null) {
            return Ok(Value::Null);
        }
        let type_oid = int(a, 0)? as u32;
        Ok(Value::Text(match a[1] {
            ValueRef::Null => types::type_name(type_oid),
            _ => types::format_type(type_oid, int(a, 1)? as i32),
        }))
    })
    .constant(),
    Function::strict("hf_to_regtype", 1, |a| {
        Ok(types::by_name(&text(a, 0)?).map_or(Value::Null, |o| Value::Int(i64::from(o))))
    })
    .linear(),
    Function::strict("hf_size_pretty", 1, size_pretty).linear(),
    // A negative size: the role may not see it.
    Function::loose("hf_size_of_database", 2, |a| match a {
        [ValueRef::Int(..0), _] => Err(denied("database", &text(a, 1)?)),
        [ValueRef::Int(bytes), _] => Ok(Value::Int(*bytes)),
        _ => Ok(Value::Null),
    })
    .constant(),
    Function::strict("hf_no_database", 1, |a| {
        let message = format!("database \"{}\" does not exist", text(a, 0)?);
        Err(SqlError::new(SqlState::INVALID_CATALOG_NAME, message))
    })
    .linear(),
    // Called for a row that violates a new constraint. It is not deterministic, so that SQLite never calls it without a row.
    Function { deterministic: false, ..Function::loose("hf_violates", -1, violates).linear() },
    // Called where a role was not found.
    Function::strict("hf_no_role", 1, |a| {
        let message = format!("role \"{}\" does not exist", text(a, 0)?);
        Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
    })
    .linear(),
    Function::strict("hf_lsn", 1, |a| {
        let given = text(a, 0)?;
        let invalid = || {
            let message = format!("invalid input syntax for type pg_lsn: \"{given}\"");
            SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
        };
        let lsn = parse_lsn(&given).and_then(|lsn| i64::try_from(lsn).ok());
        lsn.map(Value::Int).ok_or_else(invalid)
    })
    .linear(),
];

/// SQLSTATE, message, DETAIL (or NULL), the constraint's name and, where given, HINT.
fn violates(args: &[ValueRef<'_>]) -> SqlResult<Value> {
    let (dependent, violated) = (SqlState("2BP01"), SqlState::NOT_NULL_VIOLATION);
    let states = [violated, SqlState::FOREIGN_KEY_VIOLATION, SqlState::UNIQUE_VIOLATION, dependent];
    let given = text(args, 0)?;
    let state = states.into_iter().find(|s| s.0 == given).unwrap_or(SqlState::CHECK_VIOLATION);
    let mut error = SqlError::new(state, text(args, 1)?.into_owned());
    if !matches!(args.get(2), None | Some(ValueRef::Null)) {
        error = error.with_detail(text(args, 2)?.into_owned());
    }
    if args.len() > 4 {
        error = error.with_hint(text(args, 4)?.into_owned());
    }
    match text(args, 3)? {
        name if name.is_empty() => Err(error),
        name => Err(error.with_constraint(name.into_owned())),
    }
}

/// Bytes below 10 kB as they are, then each unit up to 10240 of it, rounded half up.
fn size_pretty(args: &[ValueRef<'_>]) -> SqlResult<Value> {
    let bytes = int(args, 0)?;
    if bytes.unsigned_abs() < 10 * 1024 {
        return Ok(Value::Text(format!("{bytes} bytes")));
    }
    let mut value = bytes / 512;
    for unit in ["kB", "MB", "GB", "TB"] {
        if value.unsigned_abs() < 2 * 10 * 1024 - 1 || unit == "TB" {
            return Ok(Value::Text(format!("{} {unit}", (value + 1).div_euclid(2))));
        }
        value /= 1024;
    }
    Ok(Value::Text(format!("{bytes} bytes")))
}
