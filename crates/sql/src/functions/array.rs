//! Arrays in PostgreSQL's text form, `{a,"b c",NULL}`: enough for catalogue queries and `= ANY`.

use super::function::{Function, int, text};
use crate::types::{self, Type};
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef};

pub(super) const FUNCTIONS: &[Function] = &[
    Function::strict("hf_array_json", 2, to_json),
    Function::strict("hf_array_to_string", 2, |a| {
        let parts: Vec<String> = elements(&text(a, 0)?)?.into_iter().flatten().collect();
        Ok(Value::Text(parts.join(&text(a, 1)?)))
    }),
    Function::strict("hf_array_length", 1, |a| {
        let count = elements(&text(a, 0)?)?.len();
        Ok(if count == 0 { Value::Null } else { Value::Int(count as i64) })
    }),
    Function::loose("hf_array_item", 2, item),
    Function::strict("hf_array_get", 3, |a| {
        let index = usize::try_from(int(a, 1)?).ok().and_then(|i| i.checked_sub(1));
        match index.and_then(|i| elements(&text(a, 0).ok()?).ok()?.into_iter().nth(i)).flatten() {
            Some(element) => types::input(int(a, 2)? as u32, -1, &element),
            None => Ok(Value::Null),
        }
    }),
    Function::strict("hf_array_position", 2, |a| {
        let wanted = text(a, 1)?;
        let found = elements(&text(a, 0)?)?.iter().position(|e| e.as_deref() == Some(&*wanted));
        Ok(found.map_or(Value::Null, |i| Value::Int(i as i64 + 1)))
    }),
    Function::loose("hf_array_cat", 2, |a| match (a[0], a[1]) {
        (ValueRef::Null, other) | (other, ValueRef::Null) => Ok(other.to_value()),
        _ => {
            let (left, right) = (text(a, 0)?, text(a, 1)?);
            let inner = |t: &str| t.trim().trim_start_matches('{').trim_end_matches('}').to_owned();
            let parts: Vec<String> = [inner(&left), inner(&right)].into_iter().filter(|p| !p.is_empty()).collect();
            Ok(Value::Text(format!("{{{}}}", parts.join(","))))
        }
    }),
];

/// The elements of a one-dimensional array. 22P02 for bad text.
fn elements(array: &str) -> SqlResult<Vec<Option<String>>> {
    let bad = || SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("malformed array literal: \"{array}\""));
    let inner = array.trim();
    // int2vector and oidvector are numbers between blanks.
    if !inner.starts_with('{') && inner.bytes().all(|b| b.is_ascii_digit() || b == b' ') {
        return Ok(inner.split_ascii_whitespace().map(|s| Some(s.to_owned())).collect());
    }
    let inner = inner.strip_prefix('{').and_then(|i| i.strip_suffix('}')).ok_or_else(bad)?;
    let mut out = Vec::new();
    let mut chars = inner.chars().peekable();
    if inner.trim().is_empty() {
        return Ok(out);
    }
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        let quoted = chars.next_if_eq(&'"').is_some();
        let mut element = String::new();
        while let Some(c) = chars.next_if(|c| quoted || *c != ',') {
            match c {
                '\\' => element.push(chars.next().ok_or_else(bad)?),
                '"' if quoted => break,
                '{' if !quoted => return Err(SqlError::unsupported("an array of several dimensions")),
                c => element.push(c),
            }
        }
        let null = !quoted && element.trim().eq_ignore_ascii_case("null");
        out.push((!null).then_some(element));
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        match chars.next() {
            None => return Ok(out),
            Some(',') => {}
            Some(_) => return Err(bad()),
        }
    }
}

fn json_text(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Converts an array to a JSON array of stored values, for json_each.
fn to_json(args: &[ValueRef<'_>]) -> SqlResult<Value> {
    let ty = Type::new(int(args, 1)? as u32);
    let mut parts = Vec::new();
    for element in elements(&text(args, 0)?)? {
        parts.push(match element {
            None => "null".to_owned(),
            Some(element) => match types::input(ty.oid, -1, &element)? {
                Value::Int(i) => i.to_string(),
                Value::Real(r) => format!("{r:?}"),
                Value::Text(t) => json_text(&t),
                _ => return Err(SqlError::unsupported(format!("an array of {}", ty.name()))),
            },
        });
    }
    Ok(Value::Text(format!("[{}]", parts.join(","))))
}

/// Writes one element of an array's text.
fn item(args: &[ValueRef<'_>]) -> SqlResult<Value> {
    if matches!(args[0], ValueRef::Null) {
        return Ok(Value::Text("NULL".into()));
    }
    let element = types::text_of(Type::new(int(args, 1)? as u32), args[0]);
    let plain = !element.is_empty()
        && !element.eq_ignore_ascii_case("null")
        && !element.contains(|c: char| c.is_whitespace() || matches!(c, '{' | '}' | ',' | '"' | '\\'));
    Ok(Value::Text(if plain { element } else { json_like(&element) }))
}

fn json_like(element: &str) -> String {
    format!("\"{}\"", element.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read() {
        let some = |s: &str| Some(s.to_owned());
        assert_eq!(elements("{}").unwrap(), []);
        assert_eq!(elements("{1,2, 3}").unwrap(), [some("1"), some("2"), some("3")]);
        assert_eq!(elements("{a,\"b, \\\"c\",NULL}").unwrap(), [some("a"), some("b, \"c"), None]);
        assert_eq!(elements("1 2").unwrap(), [some("1"), some("2")]);
        assert!(elements("{a").is_err() && elements("a").is_err());
    }
}
