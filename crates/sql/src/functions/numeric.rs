//! Exact numbers: arithmetic, comparison, and aggregates over `group_concat`.

use super::function::{Function, int};
use crate::types::Type;
use crate::types::decimal::Decimal;
use crate::types::text_of;
use holdfast_types::{SqlResult, Value, ValueRef};

type Args<'a> = &'a [ValueRef<'a>];

pub(super) const FUNCTIONS: &[Function] = &[
    Function::strict("hf_num_add", 2, |a| shown(number(a, 0)?.add(&number(a, 1)?)?)).linear(),
    Function::strict("hf_num_sub", 2, |a| shown(number(a, 0)?.sub(&number(a, 1)?)?)).linear(),
    Function::strict("hf_num_mul", 2, |a| shown(number(a, 0)?.mul(&number(a, 1)?)?)).linear(),
    Function::strict("hf_num_div", 2, |a| shown(number(a, 0)?.div(&number(a, 1)?)?)).linear(),
    Function::strict("hf_num_quotient", 2, |a| shown(number(a, 0)?.quotient(&number(a, 1)?)?)).linear(),
    Function::strict("hf_num_mod", 2, |a| shown(number(a, 0)?.rem(&number(a, 1)?)?)).linear(),
    Function::strict("hf_num_neg", 1, |a| shown(number(a, 0)?.neg())).linear(),
    Function::strict("hf_num_round", 2, |a| shown(number(a, 0)?.round(int(a, 1)?)?)).linear(),
    Function::strict("hf_num_trunc", 2, |a| shown(number(a, 0)?.trunc(int(a, 1)?)?)).linear(),
    Function::strict("hf_num_ceil", 1, |a| shown(number(a, 0)?.to_integer(true)?)).linear(),
    Function::strict("hf_num_floor", 1, |a| shown(number(a, 0)?.to_integer(false)?)).linear(),
    Function::strict("hf_num_sign", 1, |a| {
        let zero = Decimal::default();
        Ok(Value::Text((number(a, 0)?.cmp(&zero) as i8).to_string()))
    })
    .linear(),
    Function::strict("hf_num_cmp", 2, |a| Ok(Value::Int(number(a, 0)?.cmp(&number(a, 1)?) as i64))).linear(),
    Function::strict("hf_num_key", 1, |a| Ok(Value::Blob(number(a, 0)?.sort_key()))).linear(),
    Function::strict("hf_num_sum", 1, |a| fold(a, |x, y| x.add(&y))),
    Function::strict("hf_num_min", 1, |a| fold(a, |x, y| Ok(x.min(y)))),
    Function::strict("hf_num_max", 1, |a| fold(a, |x, y| Ok(x.max(y)))),
    Function::strict("hf_num_avg", 1, average),
];

fn number(args: Args<'_>, i: usize) -> SqlResult<Decimal> {
    Decimal::parse(&text_of(Type::NUMERIC, args[i]))
}

fn shown(number: Decimal) -> SqlResult<Value> {
    Ok(Value::Text(number.to_string()))
}

/// The numbers of a `group_concat`, which are never empty and hold no comma.
fn parts(args: Args<'_>) -> SqlResult<Vec<Decimal>> {
    text_of(Type::NUMERIC, args[0]).split(',').map(Decimal::parse).collect()
}

fn fold(args: Args<'_>, f: impl Fn(Decimal, Decimal) -> SqlResult<Decimal>) -> SqlResult<Value> {
    let mut numbers = parts(args)?.into_iter();
    let Some(first) = numbers.next() else { return Ok(Value::Null) };
    shown(numbers.try_fold(first, f)?)
}

fn average(args: Args<'_>) -> SqlResult<Value> {
    let numbers = parts(args)?;
    let count = Decimal::parse(&numbers.len().to_string())?;
    let sum = numbers.into_iter().try_fold(Decimal::default(), |x, y| x.add(&y))?;
    shown(sum.div(&count)?)
}
