//! Arrays in PostgreSQL's text form, `{a,"b c",NULL}` or `[0:1]={1,2}`: the structure, without the meaning of the elements.
//!
//! An array is stored as this text, and stock sqlite3 reads it. [`Array::parse`] accepts what PostgreSQL's `array_in` accepts;
//! [`Array::to_text`] writes what `array_out` writes, so two arrays of elements in canonical form are equal exactly if their texts
//! are. Bad text is 22P02, too many dimensions or elements are 54000, an inverted bound is 2202E.

use crate::{SqlError, SqlResult, SqlState};
use std::fmt::Write as _;

/// PostgreSQL's limit of dimensions (`MAXDIM`).
pub const DIMENSIONS_MAX: usize = 6;
/// PostgreSQL's limit of elements (`MaxArraySize`).
pub const ELEMENTS_MAX: usize = 134_217_727;

/// 2202E.
pub const SUBSCRIPT_ERROR: SqlState = SqlState("2202E");

/// One dimension: its number of elements and the subscript of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dimension {
    pub len: usize,
    pub lower: i32,
}

impl Dimension {
    /// The subscript of the last element.
    pub fn upper(self) -> i64 {
        i64::from(self.lower) + self.len as i64 - 1
    }
}

/// An array: its dimensions, and its elements in row-major order. An empty array has no dimension.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Array {
    pub dims: Vec<Dimension>,
    pub elements: Vec<Option<String>>,
}

impl Array {
    /// An array of one dimension that begins at 1.
    pub fn flat(elements: Vec<Option<String>>) -> Array {
        if elements.is_empty() {
            return Array::default();
        }
        Array { dims: vec![Dimension { len: elements.len(), lower: 1 }], elements }
    }

    /// Reads an array's text. The text of an int2vector or oidvector, numbers between blanks, is one too; its subscripts begin
    /// at 0.
    pub fn parse(text: &str) -> SqlResult<Array> {
        let trimmed = text.trim_matches(is_space);
        if !trimmed.starts_with(['{', '[']) && trimmed.bytes().all(|b| b.is_ascii_digit() || b" -".contains(&b)) {
            if trimmed.is_empty() && !text.is_empty() {
                return Err(malformed(text, "Array value must start with \"{\" or dimension information."));
            }
            return Ok(Array::vector(trimmed));
        }
        Array::parse_braces(text)
    }

    /// Reads an array's text as `array_in` does: braces are required.
    pub fn parse_braces(text: &str) -> SqlResult<Array> {
        let mut reader = Reader { text, rest: text.trim_start_matches(is_space) };
        let given = reader.dimensions()?;
        if !reader.rest.starts_with('{') {
            return Err(malformed(text, "Array value must start with \"{\" or dimension information."));
        }
        let mut array = Array::default();
        let lens = reader.level(1, &mut array.elements)?;
        if !reader.rest.trim_start_matches(is_space).is_empty() {
            return Err(malformed(text, "Junk after closing right brace."));
        }
        if array.elements.is_empty() {
            return match given {
                None => Ok(array),
                Some(_) => Err(malformed(text, "Specified array dimensions do not match array contents.")),
            };
        }
        array.dims = lens.iter().map(|len| Dimension { len: *len, lower: 1 }).collect();
        if let Some(given) = given {
            let same = given.len() == lens.len() && given.iter().zip(&lens).all(|(g, len)| g.len == *len);
            if !same {
                return Err(malformed(text, "Specified array dimensions do not match array contents."));
            }
            array.dims = given;
        }
        Ok(array)
    }

    fn vector(text: &str) -> Array {
        let mut array = Array::flat(text.split_ascii_whitespace().map(|s| Some(s.to_owned())).collect());
        array.dims.iter_mut().for_each(|d| d.lower = 0);
        array
    }

    /// Writes the array as `array_out` does.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        if self.elements.is_empty() {
            return "{}".to_owned();
        }
        if self.dims.iter().any(|d| d.lower != 1) {
            for d in &self.dims {
                let _ = write!(out, "[{}:{}]", d.lower, d.upper());
            }
            out.push('=');
        }
        let mut at = 0;
        self.write_level(0, &mut at, &mut out);
        out
    }

    fn write_level(&self, depth: usize, at: &mut usize, out: &mut String) {
        out.push('{');
        for i in 0..self.dims[depth].len {
            if i > 0 {
                out.push(',');
            }
            if depth + 1 < self.dims.len() {
                self.write_level(depth + 1, at, out);
                continue;
            }
            match self.elements.get(*at).and_then(|e| e.as_deref()) {
                None => out.push_str("NULL"),
                Some(element) => write_element(element, out),
            }
            *at += 1;
        }
        out.push('}');
    }

    /// Writes the elements between blanks, as an int2vector or oidvector is written.
    pub fn to_vector_text(&self) -> String {
        self.elements.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ")
    }

    /// The position of the element with these subscripts; `None` outside the array, or for another number of subscripts than
    /// dimensions.
    pub fn offset(&self, subscripts: &[i64]) -> Option<usize> {
        if subscripts.len() != self.dims.len() || self.dims.is_empty() {
            return None;
        }
        let mut at = 0;
        for (d, subscript) in self.dims.iter().zip(subscripts) {
            let i = usize::try_from(subscript.checked_sub(i64::from(d.lower))?).ok().filter(|i| *i < d.len)?;
            at = at * d.len + i;
        }
        Some(at)
    }

    /// The part between the bounds of each dimension, which are inclusive and clamped to the array. Its subscripts begin at 1.
    pub fn slice(&self, bounds: &[(i64, i64)]) -> Array {
        if self.dims.len() < bounds.len() || self.dims.is_empty() {
            return Array::default();
        }
        let mut ranges = Vec::new();
        for (i, d) in self.dims.iter().enumerate() {
            let (from, to) = bounds.get(i).copied().unwrap_or((i64::MIN, i64::MAX));
            let (from, to) = (from.max(i64::from(d.lower)), to.min(d.upper()));
            if from > to {
                return Array::default();
            }
            let first = (from - i64::from(d.lower)) as usize;
            ranges.push(first..first + (to - from) as usize + 1);
        }
        let dims = ranges.iter().map(|r| Dimension { len: r.len(), lower: 1 }).collect();
        let mut elements = Vec::new();
        self.collect(0, 0, &ranges, &mut elements);
        Array { dims, elements }
    }

    fn collect(&self, depth: usize, at: usize, ranges: &[std::ops::Range<usize>], out: &mut Vec<Option<String>>) {
        for i in ranges[depth].clone() {
            let at = at * self.dims[depth].len + i;
            if depth + 1 < self.dims.len() {
                self.collect(depth + 1, at, ranges, out);
            } else {
                out.push(self.elements[at].clone());
            }
        }
    }
}

/// True for a blank in an array's text (`array_isspace`).
pub fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}')
}

/// Appends one element, in quotes where `array_out` puts them.
pub fn write_element(element: &str, out: &mut String) {
    let special = |c: char| is_space(c) || matches!(c, '{' | '}' | ',' | '"' | '\\');
    if !element.is_empty() && !element.eq_ignore_ascii_case("null") && !element.contains(special) {
        return out.push_str(element);
    }
    out.push('"');
    for c in element.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
}

fn malformed(text: &str, detail: &str) -> SqlError {
    let message = format!("malformed array literal: \"{text}\"");
    SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message).with_detail(detail)
}

/// 54000 for an array of too many dimensions.
pub fn too_many_dimensions(found: usize) -> SqlError {
    let message = format!("number of array dimensions ({found}) exceeds the maximum allowed ({DIMENSIONS_MAX})");
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
}

struct Reader<'t> {
    text: &'t str,
    rest: &'t str,
}

impl Reader<'_> {
    fn bad(&self, detail: &str) -> SqlError {
        malformed(self.text, detail)
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches(is_space);
    }

    /// `[1:2][0:3]=` before the contents.
    fn dimensions(&mut self) -> SqlResult<Option<Vec<Dimension>>> {
        let mut dims = Vec::new();
        while let Some(after) = self.rest.strip_prefix('[') {
            if dims.len() >= DIMENSIONS_MAX {
                return Err(too_many_dimensions(dims.len() + 1));
            }
            let (inner, rest) =
                after.split_once(']').ok_or_else(|| self.bad("Missing \"]\" after array dimensions."))?;
            let number = |t: &str| t.parse::<i32>().map_err(|_| self.bad("Missing array dimension value."));
            let (lower, upper) = match inner.split_once(':') {
                Some((lower, upper)) => (number(lower)?, number(upper)?),
                None => (1, number(inner)?),
            };
            if upper < lower {
                return Err(SqlError::new(SUBSCRIPT_ERROR, "upper bound cannot be less than lower bound"));
            }
            let len = (i64::from(upper) - i64::from(lower) + 1) as usize;
            if len > ELEMENTS_MAX {
                return Err(too_large());
            }
            dims.push(Dimension { len, lower });
            self.rest = rest.trim_start_matches(is_space);
        }
        if dims.is_empty() {
            return Ok(None);
        }
        let after = self.rest.strip_prefix('=').ok_or_else(|| self.bad("Missing \"=\" after array dimensions."))?;
        self.rest = after.trim_start_matches(is_space);
        Ok(Some(dims))
    }

    /// Reads one pair of braces. Returns the length of each dimension from here on.
    fn level(&mut self, depth: usize, out: &mut Vec<Option<String>>) -> SqlResult<Vec<usize>> {
        if depth > DIMENSIONS_MAX {
            return Err(too_many_dimensions(depth));
        }
        self.rest = &self.rest[1..];
        self.skip_blanks();
        if depth == 1 && self.rest.starts_with('}') {
            self.rest = &self.rest[1..];
            return Ok(Vec::new());
        }
        let (mut count, mut below): (usize, Option<Vec<usize>>) = (0, None);
        loop {
            self.skip_blanks();
            let inner = if self.rest.starts_with('{') {
                self.level(depth + 1, out)?
            } else {
                let element = self.element()?;
                out.push(element);
                Vec::new()
            };
            if below.as_ref().is_some_and(|known| *known != inner) {
                return Err(self.bad("Multidimensional arrays must have sub-arrays with matching dimensions."));
            }
            below = Some(inner);
            count += 1;
            if out.len() > ELEMENTS_MAX {
                return Err(too_large());
            }
            self.skip_blanks();
            let mut chars = self.rest.chars();
            match chars.next() {
                Some(',') => self.rest = chars.as_str(),
                Some('}') => {
                    self.rest = chars.as_str();
                    let mut lens = vec![count];
                    lens.extend(below.unwrap_or_default());
                    return Ok(lens);
                }
                None => return Err(self.bad("Unexpected end of input.")),
                Some(c) => return Err(self.bad(&format!("Unexpected \"{c}\" character."))),
            }
        }
    }

    fn element(&mut self) -> SqlResult<Option<String>> {
        let mut chars = self.rest.chars();
        let mut element = String::new();
        if self.rest.starts_with('"') {
            chars.next();
            loop {
                match chars.next() {
                    None => return Err(self.bad("Unexpected end of input.")),
                    Some('"') => break,
                    Some('\\') => element.push(chars.next().ok_or_else(|| self.bad("Unexpected end of input."))?),
                    Some(c) => element.push(c),
                }
            }
            self.rest = chars.as_str();
            return Ok(Some(element));
        }
        // What follows the last character that is not a blank is cut; an escaped blank counts.
        let (mut kept, mut escaped) = (0, false);
        loop {
            let before = chars.as_str();
            match chars.next() {
                None => return Err(self.bad("Unexpected end of input.")),
                Some(',' | '}') => {
                    self.rest = before;
                    break;
                }
                Some(c @ ('{' | '"')) => return Err(self.bad(&format!("Unexpected \"{c}\" character."))),
                Some('\\') => {
                    element.push(chars.next().ok_or_else(|| self.bad("Unexpected end of input."))?);
                    (kept, escaped) = (element.len(), true);
                }
                Some(c) => {
                    element.push(c);
                    if !is_space(c) {
                        kept = element.len();
                    }
                }
            }
        }
        element.truncate(kept);
        if element.is_empty() && !escaped {
            return Err(self.bad("Unexpected array element."));
        }
        Ok((escaped || !element.eq_ignore_ascii_case("null")).then_some(element))
    }
}

/// 54000 for an array of too many elements.
pub fn too_large() -> SqlError {
    let message = format!("array size exceeds the maximum allowed ({ELEMENTS_MAX})");
    SqlError::new(SqlState::PROGRAM_LIMIT_EXCEEDED, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(text: &str) -> &'static str {
        Array::parse(text).unwrap_err().state().0
    }

    /// Expected texts as PostgreSQL 15 prints them.
    #[test]
    fn texts_are_read_and_written_as_postgresql_does() {
        for (given, shown) in [
            ("{}", "{}"),
            (" { } ", "{}"),
            ("{1, 2 ,3}", "{1,2,3}"),
            ("{a b , \"c,d\",null,\"NULL\",\"\"}", "{\"a b\",\"c,d\",NULL,\"NULL\",\"\"}"),
            ("{{1,2},{3,4}}", "{{1,2},{3,4}}"),
            ("[0:1]={1,2}", "[0:1]={1,2}"),
            ("[1:2] = {1,2}", "{1,2}"),
            ("[2]={1,2}", "{1,2}"),
            (r#"{"a\"b",c\,d,e\\f}"#, r#"{"a\"b","c,d","e\\f"}"#),
            (r"{n\ull}", "{\"null\"}"),
            ("1 2", "[0:1]={1,2}"),
        ] {
            assert_eq!(Array::parse(given).unwrap().to_text(), shown, "{given}");
        }
    }

    #[test]
    fn bad_texts_are_refused() {
        for text in
            ["{{},{}}", "{1", "{1}}", "{1,}", "{,1}", "{1},{2}", "{{1},2}", "{1,{2}}", "{{1},{2,3}}", "abc", "{a\"b\"}"]
        {
            assert_eq!(state(text), "22P02", "{text}");
        }
        for text in ["[1:2]={1}", "[1:1]={}", "[a:b]={1}", "[1:2]{1,2}", "{\"a\"b}", "[1:2]"] {
            assert_eq!(state(text), "22P02", "{text}");
        }
        assert_eq!(state("[2:1]={1}"), "2202E");
        assert_eq!(state("{{{{{{{1}}}}}}}"), "54000");
    }

    #[test]
    fn parts_are_found() {
        let array = Array::parse("{{1,2,3},{4,5,6}}").unwrap();
        assert_eq!(array.offset(&[2, 1]), Some(3));
        assert_eq!((array.offset(&[3, 1]), array.offset(&[1])), (None, None));
        assert_eq!(array.slice(&[(2, 9), (2, 3)]).to_text(), "{{5,6}}");
        assert_eq!(array.slice(&[(1, 1)]).to_text(), "{{1,2,3}}");
        assert_eq!(array.slice(&[(5, 6)]).to_text(), "{}");
    }
}
