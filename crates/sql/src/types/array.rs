//! Arrays with typed elements: input, casts, comparison and the form that SQLite sorts in PostgreSQL's order.
//!
//! An array is stored in PostgreSQL's text form; each element is the text of its own stored form (a timestamptz is in UTC). So two
//! arrays are equal exactly if their texts are, for the types of [`Type::equals_as_stored`]; the others are compared element by
//! element. Bad text is 22P02, a wrong dimension 2202E.

use super::cast::{cast, to_decimal};
use super::input::input;
use super::output::text_of;
use super::sql_type::Type;
use holdfast_types::array::Array;
use holdfast_types::desc::{element_of, is_vector, oid};
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef};
use std::cmp::Ordering;

/// The type of an array's elements, with the array's modifier. `None` for a type that is not an array.
pub fn element_type(array: Type) -> Option<Type> {
    element_of(array.oid).map(|element| Type { oid: element, typmod: array.typmod })
}

/// The text of a stored value inside an array.
pub fn element_text(element: Type, value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Text(t) if element.oid != oid::BPCHAR => String::from_utf8_lossy(t).into_owned(),
        value => text_of(element, value),
    }
}

/// The stored value of an element's text.
pub fn element_value(element: Type, text: &str) -> SqlResult<Value> {
    Ok(match element.oid {
        oid::BOOL | oid::BYTEA | oid::FLOAT4 | oid::FLOAT8 => input(element.oid, -1, text)?,
        oid::BPCHAR => Value::Text(text.trim_end_matches(' ').to_owned()),
        _ if element.is_integer() || element.is_oid() || element.oid == super::more::XID => {
            let number = text.parse().map(Value::Int);
            number.map_err(|_| super::invalid_input(text, Type::new(element.oid)))?
        }
        _ => Value::Text(text.to_owned()),
    })
}

/// The text of an array of this type.
pub fn array_text(ty: Type, array: &Array) -> String {
    if is_vector(ty.oid) { array.to_vector_text() } else { array.to_text() }
}

/// Reads the text of an array that a client gave; the result is canonical.
pub(super) fn read(ty: Type, element: Type, text: &str) -> SqlResult<String> {
    let mut array = if is_vector(ty.oid) { Array::parse(text)? } else { Array::parse_braces(text)? };
    for item in array.elements.iter_mut().flatten() {
        *item = element_text(element, input(element.oid, element.typmod, item)?.as_ref());
    }
    Ok(array_text(ty, &array))
}

/// Casts the elements of an array to another type.
pub(super) fn cast_array(text: &str, from: (Type, Type), to: (Type, Type), explicit: bool) -> SqlResult<Value> {
    let mut array = Array::parse(text)?;
    if from.1 != to.1 {
        for item in array.elements.iter_mut().flatten() {
            let value = element_value(from.1, item)?;
            *item = element_text(to.1, cast(value.as_ref(), from.1, to.1, explicit)?.as_ref());
        }
    }
    Ok(Value::Text(array_text(to.0, &array)))
}

fn numbers(a: &Value, b: &Value) -> SqlResult<Ordering> {
    let decimal = |v: &Value| to_decimal(v.as_ref(), Type::NUMERIC);
    Ok(decimal(a)?.cmp(&decimal(b)?))
}

/// Compares two stored values of a type in PostgreSQL's order. 42883 for a type without an order.
pub fn compare_values(element: Type, a: &Value, b: &Value) -> SqlResult<Ordering> {
    match element.oid {
        oid::JSON | oid::JSONB | oid::INTERVAL | oid::TIMETZ => {
            let message = format!("could not identify a comparison function for type {}", element.name());
            return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
        }
        oid::NUMERIC => return numbers(a, b),
        oid::INET | oid::PG_LSN => return Err(SqlError::unsupported(format!("the order of {}[]", element.name()))),
        _ => {}
    }
    Ok(match (a, b) {
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Real(a), Value::Real(b)) => a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan())),
        (Value::Int(a), Value::Real(b)) => (*a as f64).partial_cmp(b).unwrap_or(Ordering::Less),
        (Value::Real(a), Value::Int(b)) => a.partial_cmp(&(*b as f64)).unwrap_or(Ordering::Greater),
        (Value::Text(a), Value::Text(b)) => a.as_bytes().cmp(b.as_bytes()),
        (Value::Blob(a), Value::Blob(b)) => a.cmp(b),
        _ => return Err(SqlError::internal("an array's element does not have the array's type")),
    })
}

/// Compares two arrays as `btarraycmp` does: elements first, a NULL after all others, then the number of elements and the dimensions.
pub fn compare(element: Type, a: &Array, b: &Array) -> SqlResult<Ordering> {
    for (x, y) in a.elements.iter().zip(&b.elements) {
        let order = match (x, y) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(x), Some(y)) => compare_values(element, &element_value(element, x)?, &element_value(element, y)?)?,
        };
        if order != Ordering::Equal {
            return Ok(order);
        }
    }
    let shape = |array: &Array| {
        let (lens, lowers): (Vec<_>, Vec<_>) = array.dims.iter().map(|d| (d.len, d.lower)).unzip();
        (array.elements.len(), array.dims.len(), lens, lowers)
    };
    Ok(shape(a).cmp(&shape(b)))
}

/// The form of an array whose bytes sort as [`compare`] does:
///
/// | bytes | content |
/// |---|---|
/// | 1 | for each element: 1 a value, 2 NULL; 0 the end |
/// | n | the value's key, with 0 escaped as 0 255, then 0 0 |
/// | 4 each | number of dimensions, their lengths, their first subscripts with the sign bit inverted |
pub fn sort_key(element: Type, array: &Array) -> SqlResult<Vec<u8>> {
    let mut out = Vec::new();
    for item in &array.elements {
        let Some(text) = item else {
            out.push(2);
            continue;
        };
        out.push(1);
        for byte in value_key(element, &element_value(element, text)?)? {
            out.push(byte);
            if byte == 0 {
                out.push(255);
            }
        }
        out.extend([0, 0]);
    }
    out.push(0);
    out.extend((array.dims.len() as u32).to_be_bytes());
    array.dims.iter().for_each(|d| out.extend((d.len as u32).to_be_bytes()));
    array.dims.iter().for_each(|d| out.extend((d.lower as u32 ^ 0x8000_0000).to_be_bytes()));
    Ok(out)
}

fn value_key(element: Type, value: &Value) -> SqlResult<Vec<u8>> {
    // Refuses the types without an order.
    compare_values(element, value, value)?;
    Ok(match value {
        _ if element.oid == oid::NUMERIC => to_decimal(value.as_ref(), Type::NUMERIC)?.sort_key(),
        Value::Int(i) => ((*i as u64) ^ (1 << 63)).to_be_bytes().to_vec(),
        Value::Real(r) => {
            // Minus zero equals zero.
            let bits = (*r + 0.0).to_bits();
            let ordered = if bits >> 63 == 1 { !bits } else { bits | 1 << 63 };
            ordered.to_be_bytes().to_vec()
        }
        Value::Text(t) => t.as_bytes().to_vec(),
        Value::Blob(b) => b.clone(),
        Value::Null => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_sorts_as_the_comparison_does() {
        let arrays =
            ["{}", "{-1}", "{1}", "{1,1}", "{{1,1}}", "{1,2}", "{1,NULL}", "{2}", "{10}", "{NULL}", "[0:0]={1}"];
        let arrays: Vec<Array> = arrays.iter().map(|a| Array::parse(a).unwrap()).collect();
        for a in &arrays {
            for b in &arrays {
                let (x, y) = (sort_key(Type::INT4, a).unwrap(), sort_key(Type::INT4, b).unwrap());
                let texts = (a.to_text(), b.to_text());
                // The number of elements is compared before their dimensions; the end of the elements does both.
                assert_eq!(x.cmp(&y), compare(Type::INT4, a, b).unwrap(), "{texts:?}");
            }
        }
    }

    #[test]
    fn numbers_are_compared_by_value() {
        let read = |t: &str| Array::parse(t).unwrap();
        assert_eq!(compare(Type::NUMERIC, &read("{1.0}"), &read("{1.00}")).unwrap(), Ordering::Equal);
        assert_eq!(compare(Type::FLOAT8, &read("{-0}"), &read("{0}")).unwrap(), Ordering::Equal);
        assert!(compare(Type::new(oid::JSON), &read("{1}"), &read("{1}")).is_err());
    }
}
