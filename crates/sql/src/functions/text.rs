//! Strings. Positions and lengths count characters.

use super::function::{Function, int, text};
use holdfast_types::cancel::check;
use holdfast_types::quoting::quote_ident;
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef};
use std::collections::HashMap;

type Args<'a> = &'a [ValueRef<'a>];

/// The longest string that a function returns, in bytes: PostgreSQL's limit for a value.
const BYTES_MAX: usize = 1 << 30;

/// A cancel is looked for after so many bytes.
const SLICE_BYTES: usize = 1 << 20;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::strict("hf_substr", 2, |a| substr(a, None)).linear(),
    Function::strict("hf_substr", 3, |a| substr(a, Some(int(a, 2)?))).linear(),
    Function::strict("hf_overlay", 4, overlay).linear(),
    Function::strict("hf_left", 2, |a| {
        let (t, n) = (text(a, 0)?, int(a, 1)?);
        let keep = if n >= 0 { n } else { (t.chars().count() as i64 + n).max(0) };
        string(t.chars().take(keep as usize).collect())
    })
    .linear(),
    Function::strict("hf_right", 2, |a| {
        let (t, n) = (text(a, 0)?, int(a, 1)?);
        let length = t.chars().count() as i64;
        let skip = match n {
            // PostgreSQL negates in 32 bits, which leaves this number as it is.
            _ if n == i64::from(i32::MIN) => 0,
            0.. => (length - n).max(0),
            _ => n.saturating_neg(),
        };
        string(t.chars().skip(skip as usize).collect())
    })
    .linear(),
    Function::strict("hf_replace", 3, |a| {
        let (t, from, to) = (text(a, 0)?, text(a, 1)?, text(a, 2)?);
        if from.is_empty() {
            return string(t.into_owned());
        }
        // The length is known before memory is taken for it.
        let found = t.matches(&*from).count();
        bounded((t.len() - found * from.len()).saturating_add(found.saturating_mul(to.len())))?;
        string(t.replace(&*from, &to))
    }),
    Function::strict("hf_translate", 3, translate).linear(),
    Function::strict("hf_pad", 4, pad),
    Function::strict("hf_rpad", 2, |a| {
        let (t, width) = (text(a, 0)?, int(a, 1)?.clamp(0, 10_485_760) as usize);
        string(format!("{t:<width$}"))
    }),
    Function::strict("hf_repeat", 2, |a| {
        let (t, n) = (text(a, 0)?, int(a, 1)?.max(0) as usize);
        bounded(t.len().saturating_mul(n))?;
        if t.is_empty() {
            return string(String::new());
        }
        let mut out = String::with_capacity(t.len() * n);
        // Whole times the text in each slice, which SLICE_BYTES exceeds by one text at most.
        let times = (SLICE_BYTES / t.len()).max(1);
        let slice = t.repeat(times.min(n));
        for _ in 0..n / times {
            check()?;
            out.push_str(&slice);
        }
        out.push_str(&t.repeat(n % times));
        string(out)
    }),
    Function::strict("hf_reverse", 1, |a| string(text(a, 0)?.chars().rev().collect())).linear(),
    Function::strict("hf_split_part", 3, split_part).linear(),
    Function::strict("hf_initcap", 1, |a| string(initcap(&text(a, 0)?))).linear(),
    Function::strict("hf_ascii", 1, |a| {
        Ok(Value::Int(text(a, 0)?.chars().next().map_or(0, |c| i64::from(u32::from(c)))))
    })
    .linear(),
    Function::strict("hf_chr", 1, chr).constant(),
    Function::strict("hf_quote_ident", 1, |a| string(quote_ident(&text(a, 0)?))).linear(),
    Function::strict("hf_quote_literal", 1, |a| {
        let quoted = text(a, 0)?.replace('\'', "''");
        string(if quoted.contains('\\') {
            format!("E'{}'", quoted.replace('\\', "\\\\"))
        } else {
            format!("'{quoted}'")
        })
    })
    .linear(),
    Function::loose("hf_concat", -1, |a| {
        let parts: Vec<_> = (0..a.len()).filter(|i| !matches!(a[*i], ValueRef::Null)).collect();
        let mut out = String::new();
        for i in parts {
            let part = text(a, i)?;
            bounded(out.len() + part.len())?;
            out.push_str(&part);
        }
        string(out)
    })
    .linear(),
    Function::loose("hf_concat_ws", -1, concat_ws).linear(),
];

fn string(text: String) -> SqlResult<Value> {
    Ok(Value::Text(text))
}

fn bounded(bytes: usize) -> SqlResult<()> {
    match bytes {
        0..=BYTES_MAX => Ok(()),
        _ => Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "requested length too large")),
    }
}

/// substr with positions of characters. A start before the text shortens the result, as in the SQL standard.
fn substr(args: Args<'_>, length: Option<i64>) -> SqlResult<Value> {
    let (t, start) = (text(args, 0)?, int(args, 1)?);
    let end = match length {
        Some(n) if n < 0 => {
            return Err(SqlError::new(SqlState("22011"), "negative substring length not allowed"));
        }
        Some(n) => start.saturating_add(n),
        None => i64::MAX,
    };
    let from = start.max(1);
    string(t.chars().skip(from as usize - 1).take(end.saturating_sub(from).max(0) as usize).collect())
}

fn overlay(args: Args<'_>) -> SqlResult<Value> {
    let (t, new, start, length) = (text(args, 0)?, text(args, 1)?, int(args, 2)?, int(args, 3)?);
    if start < 1 {
        return Err(SqlError::new(SqlState("22011"), "negative substring length not allowed"));
    }
    if i32::try_from(start.saturating_add(length)).is_err() {
        return Err(SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "integer out of range"));
    }
    let head = t.chars().take(start as usize - 1);
    let rest = (start - 1).saturating_add(length).max(0) as usize;
    string(head.chain(new.chars()).chain(t.chars().skip(rest)).collect())
}

fn translate(args: Args<'_>) -> SqlResult<Value> {
    let to = text(args, 2)?;
    let mut mapping: HashMap<char, Option<char>> = HashMap::new();
    let mut to = to.chars();
    for from in text(args, 1)?.chars() {
        let to = to.next();
        // The first of two equal characters counts.
        mapping.entry(from).or_insert(to);
    }
    let mapped = text(args, 0)?.chars().filter_map(|c| mapping.get(&c).copied().unwrap_or(Some(c))).collect();
    string(mapped)
}

/// Pads a text. Arguments: text, width, fill, and whether to fill on the left.
fn pad(args: Args<'_>) -> SqlResult<Value> {
    let (t, width, fill, left) = (text(args, 0)?, int(args, 1)?.max(0) as usize, text(args, 2)?, int(args, 3)? == 1);
    bounded(width.saturating_mul(4))?;
    let length = t.chars().count();
    if length >= width || fill.is_empty() {
        return string(t.chars().take(width).collect());
    }
    let filling: String = fill.chars().cycle().take(width - length).collect();
    string(if left { filling + &t } else { t.into_owned() + &filling })
}

fn split_part(args: Args<'_>) -> SqlResult<Value> {
    let (t, separator, n) = (text(args, 0)?, text(args, 1)?, int(args, 2)?);
    if n == 0 {
        return Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "field position must not be zero"));
    }
    let parts: Vec<&str> = if separator.is_empty() { vec![&t] } else { t.split(&*separator).collect() };
    let index = if n > 0 { n - 1 } else { parts.len() as i64 + n };
    string(usize::try_from(index).ok().and_then(|i| parts.get(i)).unwrap_or(&"").to_string())
}

fn initcap(t: &str) -> String {
    let mut inside = false;
    t.chars()
        .map(|c| {
            let mapped = if inside { c.to_ascii_lowercase() } else { c.to_ascii_uppercase() };
            inside = c.is_ascii_alphanumeric();
            mapped
        })
        .collect()
}

fn chr(args: Args<'_>) -> SqlResult<Value> {
    let code = int(args, 0)?;
    match u32::try_from(code).ok().filter(|c| *c != 0).and_then(char::from_u32) {
        Some(c) => string(c.to_string()),
        None if code == 0 => Err(SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, "null character not permitted")),
        None => Err(SqlError::new(
            SqlState::PROGRAM_LIMIT_EXCEEDED,
            format!("requested character too large for encoding: {code}"),
        )),
    }
}

fn concat_ws(args: Args<'_>) -> SqlResult<Value> {
    if matches!(args.first(), None | Some(ValueRef::Null)) {
        return Ok(Value::Null);
    }
    let separator = text(args, 0)?;
    let (mut parts, mut bytes) = (Vec::new(), 0);
    for i in (1..args.len()).filter(|i| !matches!(args[*i], ValueRef::Null)) {
        parts.push(text(args, i)?);
        bytes += parts.last().map_or(0, |part| part.len()) + separator.len();
        bounded(bytes)?;
    }
    string(parts.join(&separator))
}
