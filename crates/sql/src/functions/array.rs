//! Functions on arrays at run time. An argument that is an array is its stored text; the type of its elements follows as an OID.

use super::function::{Function, int, text};
use crate::types::{self, Type, compare_values, element_text, element_value, sort_key};
use holdfast_types::array::{
    Array, DIMENSIONS_MAX, Dimension, ELEMENTS_MAX, SUBSCRIPT_ERROR, too_large, too_many_dimensions,
};
use holdfast_types::desc::oid;
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef};
use std::cmp::Ordering;

type Args<'a> = &'a [ValueRef<'a>];

pub(super) const FUNCTIONS: &[Function] = &[
    Function::loose("hf_array", -1, build),
    Function::loose("hf_array_nest", -1, nest),
    Function::loose("hf_array_item", 2, item),
    Function::strict("hf_array_of_items", 2, of_items),
    Function::strict("hf_array_stack", 1, |a| {
        let bad = |_| SqlError::new(SUBSCRIPT_ERROR, "cannot accumulate arrays of different dimensionality");
        Ok(Value::Text(Array::parse(&text(a, 0)?).map_err(bad)?.to_text()))
    }),
    Function::loose("hf_array_json", 2, to_json),
    Function::strict("hf_array_subscripts", 3, subscripts),
    Function::strict("hf_array_to_string", 2, |a| joined(a, None)),
    Function::loose("hf_array_to_string", 3, |a| match (a[0], a[1], a[2]) {
        (ValueRef::Null, ..) | (_, ValueRef::Null, _) => Ok(Value::Null),
        (_, _, ValueRef::Null) => joined(a, None),
        _ => joined(a, Some(text(a, 2)?.into_owned())),
    }),
    Function::loose("hf_string_to_array", 3, string_to_array),
    Function::strict("hf_array_length", 2, |a| dimension(a, |d| d.len as i64)),
    Function::strict("hf_array_lower", 2, |a| dimension(a, |d| i64::from(d.lower))),
    Function::strict("hf_array_upper", 2, |a| dimension(a, Dimension::upper)),
    Function::strict("hf_cardinality", 1, |a| Ok(Value::Int(array(a, 0)?.elements.len() as i64))),
    Function::strict("hf_array_ndims", 1, |a| {
        let count = array(a, 0)?.dims.len() as i64;
        Ok(if count == 0 { Value::Null } else { Value::Int(count) })
    }),
    Function::strict("hf_array_dims", 1, |a| {
        let dims: String = array(a, 0)?.dims.iter().map(|d| format!("[{}:{}]", d.lower, d.upper())).collect();
        Ok(if dims.is_empty() { Value::Null } else { Value::Text(dims) })
    }),
    Function::strict("hf_array_get", -1, get),
    Function::strict("hf_array_slice", -1, slice),
    Function::loose("hf_array_set", -1, set),
    Function::loose("hf_array_position", 4, |a| position(a, true)),
    Function::loose("hf_array_positions", 4, |a| position(a, false)),
    Function::loose("hf_array_append", 3, |a| extend(a, false)),
    Function::loose("hf_array_prepend", 3, |a| extend(a, true)),
    Function::loose("hf_array_cat", 2, cat),
    Function::loose("hf_array_remove", 3, |a| replace(a, None)),
    Function::loose("hf_array_replace", 4, |a| replace(a, Some(a[3]))),
    Function::strict("hf_array_trim", 2, trim),
    Function::loose("hf_array_fill", 4, fill),
    Function::strict("hf_array_contains", 3, |a| Ok(Value::Int(contains(a)?.into()))),
    Function::strict("hf_array_overlap", 3, |a| Ok(Value::Int(overlap(a)?.into()))),
    Function::strict("hf_array_cmp", 3, |a| {
        Ok(Value::Int(types::compare_arrays(element(a, 2)?, &array(a, 0)?, &array(a, 1)?)? as i64))
    }),
    Function::strict("hf_array_key", 2, |a| Ok(Value::Blob(sort_key(element(a, 1)?, &array(a, 0)?)?))),
    Function::loose("hf_array_any", 5, any),
    Function::strict("hf_real", 1, |a| Ok(Value::Real(super::function::text(a, 0)?.parse().unwrap_or(f64::NAN))))
        .linear(),
    Function::loose("hf_json_zip", -1, zip),
];

fn array(a: Args<'_>, i: usize) -> SqlResult<Array> {
    Array::parse(&text(a, i)?)
}

fn element(a: Args<'_>, i: usize) -> SqlResult<Type> {
    Ok(Type::new(int(a, i)? as u32))
}

fn shown(array: &Array) -> SqlResult<Value> {
    if array.elements.len() > ELEMENTS_MAX {
        return Err(too_large());
    }
    Ok(Value::Text(array.to_text()))
}

fn item_text(element: Type, value: ValueRef<'_>) -> Option<String> {
    (value != ValueRef::Null).then(|| element_text(element, value))
}

/// `ARRAY[...]` of values: the type of the elements, then the elements.
fn build(a: Args<'_>) -> SqlResult<Value> {
    let element = element(a, 0)?;
    shown(&Array::flat(a[1..].iter().map(|v| item_text(element, *v)).collect()))
}

/// `ARRAY[...]` of arrays, which must have the same dimensions.
fn nest(a: Args<'_>) -> SqlResult<Value> {
    let mismatch = || {
        let message = "multidimensional arrays must have array expressions with matching dimensions";
        SqlError::new(SUBSCRIPT_ERROR, message)
    };
    let mut whole = Array::default();
    let mut empty = false;
    for (i, part) in a.iter().enumerate() {
        let part = if *part == ValueRef::Null { Array::default() } else { array(a, i)? };
        if part.dims.is_empty() {
            empty = true;
            continue;
        }
        if whole.dims.is_empty() {
            whole.dims = std::iter::once(Dimension { len: 0, lower: 1 }).chain(part.dims).collect();
        } else if whole.dims[1..] != part.dims {
            return Err(mismatch());
        }
        whole.dims[0].len += 1;
        whole.elements.extend(part.elements);
    }
    if empty && !whole.dims.is_empty() {
        return Err(mismatch());
    }
    if whole.dims.len() > DIMENSIONS_MAX {
        return Err(too_many_dimensions(whole.dims.len()));
    }
    shown(&whole)
}

/// One element as it stands in an array's text, for `group_concat`.
fn item(a: Args<'_>) -> SqlResult<Value> {
    let element = element(a, 1)?;
    let Some(text) = item_text(element, a[0]) else { return Ok(Value::Text("NULL".into())) };
    if types::element_of(element.oid).is_some() {
        return Ok(Value::Text(text));
    }
    let mut out = String::new();
    holdfast_types::array::write_element(&text, &mut out);
    Ok(Value::Text(out))
}

/// The distinct elements of an array in ascending order, NULL last: `array_agg(DISTINCT x)`.
fn of_items(a: Args<'_>) -> SqlResult<Value> {
    let (mut array, element) = (array(a, 0)?, element(a, 1)?);
    let mut failed = None;
    let mut compare = |x: &Option<String>, y: &Option<String>| match (x, y) {
        (None, None) => Ordering::Equal,
        (None, _) => Ordering::Greater,
        (_, None) => Ordering::Less,
        (Some(x), Some(y)) => {
            let read = |t: &str| element_value(element, t);
            let order = read(x).and_then(|x| compare_values(element, &x, &read(y)?));
            order.unwrap_or_else(|e| {
                failed = Some(e);
                Ordering::Equal
            })
        }
    };
    array.elements.sort_by(&mut compare);
    array.elements.dedup_by(|x, y| compare(x, y) == Ordering::Equal);
    match failed {
        Some(e) => Err(e),
        None => shown(&Array::flat(array.elements)),
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

/// Converts an array to a JSON array of stored values, for json_each: reals and bytes as text. A NULL becomes `[null]`, so that
/// `IN` over it is NULL; a caller that wants no rows checks before.
fn to_json(a: Args<'_>) -> SqlResult<Value> {
    if a[0] == ValueRef::Null {
        return Ok(Value::Text("[null]".into()));
    }
    let element = element(a, 1)?;
    let mut parts = Vec::new();
    for item in array(a, 0)?.elements {
        parts.push(match item {
            None => "null".to_owned(),
            Some(item) => match element_value(element, &item)? {
                Value::Int(i) => i.to_string(),
                Value::Real(r) => json_text(&r.to_string()),
                Value::Text(t) => json_text(&t),
                _ => json_text(item.strip_prefix("\\x").unwrap_or(&item)),
            },
        });
    }
    Ok(Value::Text(format!("[{}]", parts.join(","))))
}

/// The subscripts of a dimension as a JSON array; the third argument reverses them.
fn subscripts(a: Args<'_>) -> SqlResult<Value> {
    let read = array(a, 0)?;
    let dim = usize::try_from(int(a, 1)?).ok().and_then(|d| read.dims.get(d.checked_sub(1)?).copied());
    let mut list: Vec<String> = match dim {
        Some(d) => (i64::from(d.lower)..=d.upper()).map(|i| i.to_string()).collect(),
        None => Vec::new(),
    };
    if int(a, 2)? != 0 {
        list.reverse();
    }
    Ok(Value::Text(format!("[{}]", list.join(","))))
}

/// Joins JSON arrays to one array of rows, with nulls where one is shorter.
fn zip(a: Args<'_>) -> SqlResult<Value> {
    let mut lists = Vec::new();
    for i in 0..a.len() {
        let one = if a[i] == ValueRef::Null { "[]".to_owned() } else { text(a, i)?.into_owned() };
        lists.push(json_items(&one));
    }
    let rows = lists.iter().map(Vec::len).max().unwrap_or(0);
    let row = |r: usize| {
        let cells: Vec<&str> = lists.iter().map(|l| l.get(r).map_or("null", String::as_str)).collect();
        format!("[{}]", cells.join(","))
    };
    Ok(Value::Text(format!("[{}]", (0..rows).map(row).collect::<Vec<_>>().join(","))))
}

/// The items of a JSON array that this module wrote: no blanks outside strings.
fn json_items(json: &str) -> Vec<String> {
    let inner = json.strip_prefix('[').and_then(|j| j.strip_suffix(']')).unwrap_or(json);
    let (mut out, mut start, mut depth, mut quoted, mut escaped) = (Vec::new(), 0, 0, false, false);
    for (at, b) in inner.bytes().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted => {}
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                out.push(inner[start..at].to_owned());
                start = at + 1;
            }
            _ => {}
        }
    }
    if !inner.is_empty() {
        out.push(inner[start..].to_owned());
    }
    out
}

fn joined(a: Args<'_>, null: Option<String>) -> SqlResult<Value> {
    let elements = array(a, 0)?.elements.into_iter();
    let parts: Vec<String> = elements.filter_map(|e| e.or_else(|| null.clone())).collect();
    Ok(Value::Text(parts.join(&text(a, 1)?)))
}

fn string_to_array(a: Args<'_>) -> SqlResult<Value> {
    if a[0] == ValueRef::Null {
        return Ok(Value::Null);
    }
    let whole = text(a, 0)?;
    let null = if a[2] == ValueRef::Null { None } else { Some(text(a, 2)?) };
    let parts: Vec<String> = match a[1] {
        _ if whole.is_empty() => Vec::new(),
        ValueRef::Null => whole.chars().map(String::from).collect(),
        _ => match &*text(a, 1)? {
            "" => vec![whole.into_owned()],
            separator => whole.split(separator).map(str::to_owned).collect(),
        },
    };
    shown(&Array::flat(parts.into_iter().map(|p| (null.as_deref() != Some(&*p)).then_some(p)).collect()))
}

fn dimension(a: Args<'_>, f: impl Fn(Dimension) -> i64) -> SqlResult<Value> {
    let read = array(a, 0)?;
    let which = usize::try_from(int(a, 1)?).ok().and_then(|d| d.checked_sub(1));
    Ok(which.and_then(|d| read.dims.get(d)).map_or(Value::Null, |d| Value::Int(f(*d))))
}

/// `array[i][j]`: array, type of the elements, subscripts.
fn get(a: Args<'_>) -> SqlResult<Value> {
    let read = array(a, 0)?;
    let at: Vec<i64> = (2..a.len()).map(|i| int(a, i)).collect::<SqlResult<_>>()?;
    match read.offset(&at).and_then(|at| read.elements[at].as_deref()) {
        Some(text) => element_value(element(a, 1)?, text),
        None => Ok(Value::Null),
    }
}

/// `array[i:j][k:l]`: array, bounds in pairs; an empty text is a bound that is left out.
fn slice(a: Args<'_>) -> SqlResult<Value> {
    let bound = |i: usize, open: i64| match a[i] {
        ValueRef::Text(_) => Ok(open),
        _ => int(a, i),
    };
    let pairs = (1..a.len()).step_by(2).map(|i| Ok((bound(i, i64::MIN)?, bound(i + 1, i64::MAX)?)));
    shown(&array(a, 0)?.slice(&pairs.collect::<SqlResult<Vec<_>>>()?))
}

/// `SET a[i] = value`: array, type of the elements, value, subscripts.
fn set(a: Args<'_>) -> SqlResult<Value> {
    let element = element(a, 1)?;
    let error = |message: &str| SqlError::new(SUBSCRIPT_ERROR, message);
    if a[3..].contains(&ValueRef::Null) {
        return Err(SqlError::new(SqlState("22004"), "array subscript in assignment must not be null"));
    }
    let mut read = if a[0] == ValueRef::Null { Array::default() } else { array(a, 0)? };
    let at: Vec<i64> = (3..a.len()).map(|i| int(a, i)).collect::<SqlResult<_>>()?;
    let value = item_text(element, a[2]);
    if read.dims.is_empty() {
        let dims = at.iter().map(|i| Ok(Dimension { len: 1, lower: i32::try_from(*i).map_err(|_| too_large())? }));
        let dims = dims.collect::<SqlResult<Vec<_>>>()?;
        return shown(&Array { dims, elements: vec![value] });
    }
    if at.len() != read.dims.len() {
        return Err(error("wrong number of array subscripts"));
    }
    if let ([i], [d]) = (at.as_slice(), read.dims.as_mut_slice()) {
        let before = i64::from(d.lower).saturating_sub(*i).max(0);
        let after = i.saturating_sub(d.upper()).max(0);
        if before.saturating_add(after) > ELEMENTS_MAX as i64 - d.len as i64 {
            return Err(too_large());
        }
        d.lower = d.lower.min(i32::try_from(*i).unwrap_or(i32::MAX));
        d.len += (before + after) as usize;
        read.elements.splice(0..0, std::iter::repeat_n(None, before as usize));
        read.elements.extend(std::iter::repeat_n(None, after as usize));
    }
    let offset = read.offset(&at).ok_or_else(|| error("array subscript out of range"))?;
    read.elements[offset] = value;
    shown(&read)
}

/// `array_position` and `array_positions`: array, type of the elements, value, first subscript or NULL.
fn position(a: Args<'_>, first: bool) -> SqlResult<Value> {
    if a[0] == ValueRef::Null {
        return Ok(Value::Null);
    }
    let (read, element) = (array(a, 0)?, element(a, 1)?);
    if read.dims.len() > 1 {
        return Err(SqlError::unsupported("searching for elements in multidimensional arrays"));
    }
    let lower = read.dims.first().map_or(1, |d| i64::from(d.lower));
    let start = match a[3] {
        ValueRef::Null => lower,
        _ => int(a, 3)?,
    };
    let mut found = Vec::new();
    for (i, item) in read.elements.iter().enumerate() {
        let at = lower + i as i64;
        if at < start || !same(element, item.as_deref(), a[2])? {
            continue;
        }
        if first {
            return Ok(Value::Int(at));
        }
        found.push(Some(at.to_string()));
    }
    if first { Ok(Value::Null) } else { shown(&Array::flat(found)) }
}

/// Not distinct.
fn same(element: Type, item: Option<&str>, value: ValueRef<'_>) -> SqlResult<bool> {
    match (item, value) {
        (None, ValueRef::Null) => Ok(true),
        (None, _) | (_, ValueRef::Null) => Ok(false),
        (Some(text), value) => {
            let order = compare_values(element, &element_value(element, text)?, &value.to_value())?;
            Ok(order == Ordering::Equal)
        }
    }
}

/// `array_append` and `array_prepend`: array, type of the elements, value.
fn extend(a: Args<'_>, front: bool) -> SqlResult<Value> {
    let mut read = if a[0] == ValueRef::Null { Array::default() } else { array(a, 0)? };
    let value = item_text(element(a, 1)?, a[2]);
    match read.dims.as_mut_slice() {
        [] => return shown(&Array::flat(vec![value])),
        [d] => d.len += 1,
        _ => return Err(SqlError::new(SqlState("22000"), "argument must be empty or one-dimensional array")),
    }
    let at = if front { 0 } else { read.elements.len() };
    read.elements.insert(at, value);
    shown(&read)
}

/// `array_cat`: arrays of the same dimensions, or one that is an element of the other.
fn cat(a: Args<'_>) -> SqlResult<Value> {
    let (left, right) = match (a[0], a[1]) {
        (ValueRef::Null, other) | (other, ValueRef::Null) => return Ok(other.to_value()),
        _ => (array(a, 0)?, array(a, 1)?),
    };
    if left.dims.is_empty() || right.dims.is_empty() {
        return shown(if left.dims.is_empty() { &right } else { &left });
    }
    let mismatch = || SqlError::new(SUBSCRIPT_ERROR, "cannot concatenate incompatible arrays");
    let inner_lens = |dims: &[Dimension]| dims.iter().map(|d| d.len).collect::<Vec<_>>();
    let (l, r) = (left.dims.len(), right.dims.len());
    let dims = match l.abs_diff(r) {
        0 if inner_lens(&left.dims[1..]) == inner_lens(&right.dims[1..]) => {
            let mut dims = left.dims.clone();
            dims[0].len += right.dims[0].len;
            dims
        }
        1 => {
            let (outer, inner) = if l > r { (&left.dims, &right.dims) } else { (&right.dims, &left.dims) };
            if inner_lens(&outer[1..]) != inner_lens(inner) {
                return Err(mismatch());
            }
            let mut dims = outer.clone();
            dims[0].len += 1;
            dims
        }
        _ => return Err(mismatch()),
    };
    let elements = left.elements.into_iter().chain(right.elements).collect();
    shown(&Array { dims, elements })
}

/// `array_remove` and `array_replace`: array, type of the elements, value, and its replacement.
fn replace(a: Args<'_>, by: Option<ValueRef<'_>>) -> SqlResult<Value> {
    if a[0] == ValueRef::Null {
        return Ok(Value::Null);
    }
    let (mut read, element) = (array(a, 0)?, element(a, 1)?);
    if by.is_none() && read.dims.len() > 1 {
        return Err(SqlError::unsupported("removing elements from multidimensional arrays"));
    }
    let mut out = Vec::with_capacity(read.elements.len());
    for item in std::mem::take(&mut read.elements) {
        match (same(element, item.as_deref(), a[2])?, by) {
            (false, _) => out.push(item),
            (true, Some(by)) => out.push(item_text(element, by)),
            (true, None) => {}
        }
    }
    if let (None, Some(d)) = (by, read.dims.first_mut()) {
        d.len = out.len();
    }
    read.elements = out;
    shown(&read)
}

fn trim(a: Args<'_>) -> SqlResult<Value> {
    let (read, n) = (array(a, 0)?, int(a, 1)?);
    let len = read.dims.first().map_or(0, |d| d.len as i64);
    if !(0..=len).contains(&n) {
        let message = format!("number of elements to trim must be between 0 and {len}");
        return Err(SqlError::new(SUBSCRIPT_ERROR, message));
    }
    let upper = read.dims.first().map_or(0, |d| d.upper());
    shown(&read.slice(&[(i64::MIN, upper - n)]))
}

/// `array_fill`: type of the elements, value, lengths, lower bounds or NULL.
fn fill(a: Args<'_>) -> SqlResult<Value> {
    let null = |what: &str| SqlError::new(SqlState("22004"), format!("{what} cannot be null"));
    if a[2] == ValueRef::Null {
        return Err(null("dimension array or low bound array"));
    }
    let numbers = |i: usize| -> SqlResult<Vec<i32>> {
        let items = array(a, i)?.elements.into_iter();
        items.map(|n| n.and_then(|n| n.parse().ok()).ok_or_else(|| null("dimension values"))).collect()
    };
    let lens = numbers(2)?;
    let lowers = if a[3] == ValueRef::Null { vec![1; lens.len()] } else { numbers(3)? };
    if lens.len() != lowers.len() {
        return Err(SqlError::new(SUBSCRIPT_ERROR, "wrong number of array subscripts"));
    }
    if lens.len() > DIMENSIONS_MAX {
        return Err(too_many_dimensions(lens.len()));
    }
    let mut count: usize = usize::from(!lens.is_empty());
    let mut dims = Vec::new();
    for (len, lower) in lens.iter().zip(lowers) {
        let len = usize::try_from(*len).map_err(|_| too_large())?;
        count = count.saturating_mul(len);
        dims.push(Dimension { len, lower });
    }
    // The text of an array has at least two bytes for each element, and a value at most 1 GB.
    if count > ELEMENTS_MAX {
        return Err(too_large());
    }
    let value = item_text(element(a, 0)?, a[1]);
    shown(&Array { dims, elements: vec![value; count] })
}

/// True where each element of the second array is one of the first; a NULL equals nothing.
fn contains(a: Args<'_>) -> SqlResult<bool> {
    let (left, right, element) = (array(a, 0)?, array(a, 1)?, element(a, 2)?);
    for item in &right.elements {
        if !holds(element, &left, item.as_deref())? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn overlap(a: Args<'_>) -> SqlResult<bool> {
    let (left, right, element) = (array(a, 0)?, array(a, 1)?, element(a, 2)?);
    for item in &right.elements {
        if holds(element, &left, item.as_deref())? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn holds(element: Type, array: &Array, item: Option<&str>) -> SqlResult<bool> {
    let Some(item) = item else { return Ok(false) };
    let wanted = element_value(element, item)?;
    for other in array.elements.iter().flatten() {
        if compare_values(element, &element_value(element, other)?, &wanted)? == Ordering::Equal {
            return Ok(true);
        }
    }
    Ok(false)
}

/// `value op ANY (array)`: value, array, operator, type of the elements, and 1 for ALL.
fn any(a: Args<'_>) -> SqlResult<Value> {
    if a[1] == ValueRef::Null {
        return Ok(Value::Null);
    }
    let (read, op, element, all) = (array(a, 1)?, text(a, 2)?, element(a, 3)?, int(a, 4)? != 0);
    let mut unknown = false;
    for item in &read.elements {
        let (Some(item), true) = (item, a[0] != ValueRef::Null) else {
            unknown = true;
            continue;
        };
        let order = compare_values(element, &a[0].to_value(), &element_value(element, item)?)?;
        let holds = match &*op {
            "=" => order == Ordering::Equal,
            "<>" => order != Ordering::Equal,
            "<" => order == Ordering::Less,
            "<=" => order != Ordering::Greater,
            ">" => order == Ordering::Greater,
            _ => order != Ordering::Less,
        };
        if holds != all {
            return Ok(Value::Int(holds.into()));
        }
    }
    Ok(if unknown { Value::Null } else { Value::Int(all.into()) })
}

/// True for a type whose values json_each returns as they are stored.
pub fn is_plain_in_json(element: Type) -> bool {
    element.equals_as_stored()
        && !matches!(element.oid, oid::BYTEA | oid::FLOAT4 | oid::FLOAT8 | oid::NUMERIC | oid::BPCHAR)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lists_are_joined() {
        let list = |t: &'static str| ValueRef::Text(t.as_bytes());
        let joined = zip(&[list(r#"[1,"a,\"]"]"#), list("[]"), list("[true]")]).unwrap();
        assert_eq!(joined, Value::Text(r#"[[1,null,true],["a,\"]",null,null]]"#.into()));
    }
}
