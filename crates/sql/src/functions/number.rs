//! Integers and floating point with PostgreSQL's overflow and division errors.

use super::function::{Function, int, real, text};
use crate::types::decimal::Decimal;
use crate::types::{self, Type};
use holdfast_types::desc::oid;
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef};

type Args<'a> = &'a [ValueRef<'a>];

pub(super) const FUNCTIONS: &[Function] = &[
    Function::strict("hf_int4", 1, |a| narrow(a, i64::from(i32::MIN), i64::from(i32::MAX), "integer")).constant(),
    Function::strict("hf_int2", 1, |a| narrow(a, i64::from(i16::MIN), i64::from(i16::MAX), "smallint")).constant(),
    Function::strict("hf_add", 2, |a| checked(int(a, 0)?.checked_add(int(a, 1)?))).constant(),
    Function::strict("hf_sub", 2, |a| checked(int(a, 0)?.checked_sub(int(a, 1)?))).constant(),
    Function::strict("hf_mul", 2, |a| checked(int(a, 0)?.checked_mul(int(a, 1)?))).constant(),
    Function::strict("hf_div", 2, |a| divide(a, i64::checked_div)).constant(),
    Function::strict("hf_mod", 2, |a| divide(a, |x, y| Some(x.wrapping_rem(y)))).constant(),
    Function::strict("hf_shift_left", 3, shift_left).constant(),
    Function::strict("hf_float", 1, |a| finite(real(a, 0)?)).constant(),
    Function::strict("hf_float4", 1, |a| finite(f64::from(real(a, 0)? as f32))).constant(),
    Function::strict("hf_fdiv", 2, float_divide).constant(),
    Function::strict("hf_fmul", 2, |a| {
        let (x, y) = (real(a, 0)?, real(a, 1)?);
        not_vanished(x * y, x == 0.0 || y == 0.0)
    })
    .constant(),
    Function::strict("hf_exp", 1, |a| not_vanished(real(a, 0)?.exp(), false)).constant(),
    Function::strict("hf_power", 2, power).constant(),
    Function::strict("hf_sqrt", 1, |a| {
        domain(real(a, 0)?, |x| x >= 0.0, f64::sqrt, "2201F", "cannot take square root of a negative number")
    })
    .constant(),
    Function::strict("hf_ln", 1, |a| {
        domain(real(a, 0)?, |x| x > 0.0, f64::ln, "2201E", "cannot take logarithm of a non-positive number")
    })
    .constant(),
    Function::strict("hf_log10", 1, |a| {
        domain(real(a, 0)?, |x| x > 0.0, f64::log10, "2201E", "cannot take logarithm of a non-positive number")
    })
    .constant(),
    Function::strict("hf_abs", 2, absolute).linear(),
    Function::strict("hf_rounding", 2, rounding).constant(),
    Function::loose("hf_limit", 2, limit).constant(),
    Function::strict("hf_step", 1, step).constant(),
    Function::loose("hf_greatest", -1, |a| extreme(a, true)).linear(),
    Function::loose("hf_least", -1, |a| extreme(a, false)).linear(),
    Function::loose("hf_not_null", 3, not_null).linear(),
    Function::strict("hf_cast", 6, cast).linear(),
];

fn range(name: &str) -> SqlError {
    SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, format!("{name} out of range"))
}

fn narrow(args: Args<'_>, min: i64, max: i64, name: &str) -> SqlResult<Value> {
    match args[0] {
        ValueRef::Int(n) if n >= min && n <= max => Ok(Value::Int(n)),
        _ => Err(range(name)),
    }
}

fn checked(result: Option<i64>) -> SqlResult<Value> {
    result.map(Value::Int).ok_or_else(|| range("bigint"))
}

fn zero_division() -> SqlError {
    SqlError::new(SqlState::DIVISION_BY_ZERO, "division by zero")
}

fn divide(args: Args<'_>, op: fn(i64, i64) -> Option<i64>) -> SqlResult<Value> {
    match int(args, 1)? {
        0 => Err(zero_division()),
        divisor => checked(op(int(args, 0)?, divisor)),
    }
}

/// Shifts left. PostgreSQL takes the distance modulo the width and drops the bits that overflow.
fn shift_left(args: Args<'_>) -> SqlResult<Value> {
    let (value, by) = (int(args, 0)?, int(args, 1)? as u32);
    Ok(Value::Int(match int(args, 2)? as u32 {
        oid::INT2 => i64::from(((value as i32).wrapping_shl(by)) as i16),
        oid::INT4 => i64::from((value as i32).wrapping_shl(by)),
        _ => value.wrapping_shl(by),
    }))
}

fn finite(value: f64) -> SqlResult<Value> {
    if value.is_finite() {
        return Ok(Value::Real(value));
    }
    Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: overflow"))
}

/// A result of zero that is not exact is out of range, as too large ones are.
fn not_vanished(value: f64, exact: bool) -> SqlResult<Value> {
    if value == 0.0 && !exact {
        return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "value out of range: underflow"));
    }
    finite(value)
}

fn float_divide(args: Args<'_>) -> SqlResult<Value> {
    match real(args, 1)? {
        0.0 => Err(zero_division()),
        divisor => {
            let x = real(args, 0)?;
            not_vanished(x / divisor, x == 0.0)
        }
    }
}

fn power(args: Args<'_>) -> SqlResult<Value> {
    let (base, exponent) = (real(args, 0)?, real(args, 1)?);
    if base == 0.0 && exponent < 0.0 {
        return Err(SqlError::new(SqlState("2201F"), "zero raised to a negative power is undefined"));
    }
    if base < 0.0 && exponent.fract() != 0.0 {
        let message = "a negative number raised to a non-integer power yields a complex result";
        return Err(SqlError::new(SqlState("2201F"), message));
    }
    not_vanished(base.powf(exponent), base == 0.0)
}

fn domain(x: f64, ok: fn(f64) -> bool, f: fn(f64) -> f64, state: &'static str, message: &str) -> SqlResult<Value> {
    if ok(x) { finite(f(x)) } else { Err(SqlError::new(SqlState(state), message)) }
}

fn absolute(args: Args<'_>) -> SqlResult<Value> {
    let name = match int(args, 1)? as u32 {
        oid::NUMERIC => {
            let number = types::cast(args[0], Type::NUMERIC, Type::TEXT, true)?;
            let Value::Text(text) = number else { return Ok(Value::Null) };
            return Ok(Value::Text(Decimal::parse(&text)?.abs().to_string()));
        }
        oid::INT2 => "smallint",
        oid::INT4 => "integer",
        _ => "bigint",
    };
    match args[0] {
        ValueRef::Real(r) => Ok(Value::Real(r.abs())),
        _ => {
            let value = int(args, 0)?;
            let smallest = match name {
                "smallint" => i64::from(i16::MIN),
                "integer" => i64::from(i32::MIN),
                _ => i64::MIN,
            };
            if value == smallest { Err(range(name)) } else { Ok(Value::Int(value.abs())) }
        }
    }
}

fn rounding(args: Args<'_>) -> SqlResult<Value> {
    let x = real(args, 0)?;
    Ok(Value::Real(match &*text(args, 1)? {
        "ceil" => x.ceil(),
        "floor" => x.floor(),
        "trunc" => x.trunc(),
        "sign" if x == 0.0 => 0.0,
        "sign" => x.signum(),
        _ => x.round_ties_even(),
    }))
}

/// Checks a row count. NULL means no limit, which is -1 for LIMIT and 0 for OFFSET.
fn limit(args: Args<'_>) -> SqlResult<Value> {
    let is_limit = int(args, 1)? == 1;
    match args[0] {
        ValueRef::Null => Ok(Value::Int(if is_limit { -1 } else { 0 })),
        _ => match int(args, 0)? {
            n if n >= 0 => Ok(Value::Int(n)),
            _ if is_limit => Err(SqlError::new(SqlState("2201W"), "LIMIT must not be negative")),
            _ => Err(SqlError::new(SqlState("2201X"), "OFFSET must not be negative")),
        },
    }
}

fn step(args: Args<'_>) -> SqlResult<Value> {
    match int(args, 0)? {
        0 => Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "step size cannot equal zero")),
        n => Ok(Value::Int(n)),
    }
}

/// greatest and least, which ignore NULLs. The first argument says whether the others are numeric.
fn extreme(args: Args<'_>, greatest: bool) -> SqlResult<Value> {
    let numeric = int(args, 0)? == 1;
    let mut best: Option<ValueRef<'_>> = None;
    for value in args[1..].iter().filter(|v| !matches!(v, ValueRef::Null)) {
        let better = match best {
            None => true,
            Some(so_far) => {
                let order = if numeric { decimal(*value)?.cmp(&decimal(so_far)?) } else { compare(*value, so_far) };
                order == if greatest { std::cmp::Ordering::Greater } else { std::cmp::Ordering::Less }
            }
        };
        if better {
            best = Some(*value);
        }
    }
    Ok(best.map_or(Value::Null, |v| v.to_value()))
}

fn decimal(value: ValueRef<'_>) -> SqlResult<Decimal> {
    Decimal::parse(&types::text_of(Type::NUMERIC, value))
}

fn compare(a: ValueRef<'_>, b: ValueRef<'_>) -> std::cmp::Ordering {
    match (a, b) {
        (ValueRef::Int(a), ValueRef::Int(b)) => a.cmp(&b),
        (ValueRef::Text(a), ValueRef::Text(b)) | (ValueRef::Blob(a), ValueRef::Blob(b)) => a.cmp(b),
        (a, b) => {
            let number = |v| match v {
                ValueRef::Int(i) => i as f64,
                ValueRef::Real(r) => r,
                _ => f64::NAN,
            };
            number(a).total_cmp(&number(b))
        }
    }
}

fn not_null(args: Args<'_>) -> SqlResult<Value> {
    if !matches!(args[0], ValueRef::Null) {
        return Ok(args[0].to_value());
    }
    let message = format!(
        "null value in column \"{}\" of relation \"{}\" violates not-null constraint",
        text(args, 1)?,
        text(args, 2)?
    );
    Err(SqlError::new(SqlState::NOT_NULL_VIOLATION, message))
}

/// Casts a value. Arguments: value, type and modifier before, type and modifier after, explicit.
fn cast(args: Args<'_>) -> SqlResult<Value> {
    let ty = |i: usize| -> SqlResult<Type> { Ok(Type { oid: int(args, i)? as u32, typmod: int(args, i + 1)? as i32 }) };
    types::cast(args[0], ty(1)?, ty(3)?, int(args, 5)? == 1)
}
