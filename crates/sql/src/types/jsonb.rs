//! jsonb: the text in which a value is stored, and the key by which values are compared.
//!
//! The text is PostgreSQL's output: keys by length, then by bytes; the last of equal keys; a blank after colons and
//! commas. The key orders values as PostgreSQL does: object > array > boolean > number > string > null, larger
//! containers after smaller ones, and an empty array before everything.

use super::decimal::Decimal;
use crate::functions::json;
use holdfast_types::SqlResult;
use std::collections::BTreeMap;

/// Bytes that sort as jsonb values do and are equal for equal values. A text that is not jsonb is its own key.
pub fn sort_key(text: &str) -> SqlResult<Vec<u8>> {
    match read(text) {
        Some(value) => Ok(top_key(&value?)),
        None => Ok(text.as_bytes().to_vec()),
    }
}

enum Json {
    Null,
    Bool(bool),
    Number(Decimal),
    String(String),
    Array(Vec<Json>),
    /// By length and bytes of the key.
    Object(BTreeMap<(usize, String), Json>),
}

/// The normalised text of a JSON value that [`json::valid`] accepts; `None` where jsonb cannot hold it.
pub fn normalised(text: &str) -> Option<SqlResult<String>> {
    Some(read(text)?.map(|value| {
        let mut out = String::with_capacity(text.len());
        write(&value, &mut out);
        out
    }))
}

fn read(text: &str) -> Option<SqlResult<Json>> {
    if !json::valid(text) {
        return None;
    }
    Reader { text, at: 0 }.value()
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> u8 {
        self.text.as_bytes().get(self.at).copied().unwrap_or(0)
    }

    fn blanks(&mut self) {
        while self.peek().is_ascii_whitespace() {
            self.at += 1;
        }
    }

    fn next_is(&mut self, b: u8) -> bool {
        self.blanks();
        let found = self.peek() == b;
        self.at += usize::from(found);
        found
    }

    /// Reads a value of a valid text. `None` for a string that PostgreSQL's jsonb cannot hold.
    fn value(&mut self) -> Option<SqlResult<Json>> {
        self.blanks();
        Some(Ok(match self.peek() {
            b'{' => {
                self.at += 1;
                let mut members = BTreeMap::new();
                while !self.next_is(b'}') {
                    self.next_is(b',');
                    self.blanks();
                    let key = self.string()?;
                    self.next_is(b':');
                    match self.value()? {
                        Ok(value) => members.insert((key.len(), key), value),
                        Err(e) => return Some(Err(e)),
                    };
                }
                Json::Object(members)
            }
            b'[' => {
                self.at += 1;
                let mut items = Vec::new();
                while !self.next_is(b']') {
                    self.next_is(b',');
                    match self.value()? {
                        Ok(value) => items.push(value),
                        Err(e) => return Some(Err(e)),
                    }
                }
                Json::Array(items)
            }
            b'"' => Json::String(self.string()?),
            b't' => self.word("true", Json::Bool(true)),
            b'f' => self.word("false", Json::Bool(false)),
            b'n' => self.word("null", Json::Null),
            _ => {
                let rest = &self.text[self.at..];
                let end = rest.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c))).unwrap_or(rest.len());
                self.at += end;
                match Decimal::parse(&rest[..end]) {
                    Ok(number) => Json::Number(number),
                    Err(e) => return Some(Err(e)),
                }
            }
        }))
    }

    fn word(&mut self, word: &str, value: Json) -> Json {
        self.at += word.len();
        value
    }

    fn string(&mut self) -> Option<String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let c = self.text[self.at..].chars().next()?;
            self.at += c.len_utf8();
            match c {
                '"' => return Some(out),
                '\\' => {
                    let escaped = self.peek();
                    self.at += 1;
                    out.push(match escaped {
                        b'b' => '\u{8}',
                        b'f' => '\u{c}',
                        b'n' => '\n',
                        b'r' => '\r',
                        b't' => '\t',
                        b'u' => self.unicode()?,
                        other => char::from(other),
                    });
                }
                c => out.push(c),
            }
        }
    }

    /// Reads `\uXXXX` after its `u`, with the second half of a pair. jsonb holds no zero and no half.
    fn unicode(&mut self) -> Option<char> {
        let unit = |r: &mut Self| {
            let digits = r.text.get(r.at..r.at + 4)?;
            r.at += 4;
            u16::from_str_radix(digits, 16).ok()
        };
        let mut units = vec![unit(self)?];
        if (0xd800..0xdc00).contains(&units[0]) && self.text[self.at..].starts_with("\\u") {
            self.at += 2;
            units.push(unit(self)?);
        }
        String::from_utf16(&units).ok()?.chars().next().filter(|c| *c != '\0')
    }
}

fn quoted(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn write(value: &Json, out: &mut String) {
    match value {
        Json::Null => out.push_str("null"),
        Json::Bool(b) => out.push_str(if *b { "true" } else { "false" }),
        Json::Number(n) => out.push_str(&n.to_string()),
        Json::String(s) => quoted(s, out),
        Json::Array(items) => {
            out.push('[');
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                write(item, out);
            }
            out.push(']');
        }
        Json::Object(members) => {
            out.push('{');
            for (i, ((_, key), item)) in members.iter().enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                quoted(key, out);
                out.push_str(": ");
                write(item, out);
            }
            out.push('}');
        }
    }
}

/// Bytes that end before those of a longer text with the same start; no byte in them is lower than the end.
fn text_key(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

fn top_key(value: &Json) -> Vec<u8> {
    let mut out = Vec::new();
    match value {
        // PostgreSQL sorts an empty array at the top level before everything.
        Json::Array(items) if items.is_empty() => out.push(0),
        value => key(value, &mut out),
    }
    out
}

fn key(value: &Json, out: &mut Vec<u8>) {
    match value {
        Json::Null => out.push(1),
        Json::String(s) => {
            out.push(2);
            text_key(s, out);
        }
        Json::Number(n) => {
            out.push(3);
            out.extend(n.sort_key());
        }
        Json::Bool(b) => out.extend([4, u8::from(*b)]),
        Json::Array(items) => {
            out.push(5);
            out.extend((items.len() as u64).to_be_bytes());
            items.iter().for_each(|item| key(item, out));
        }
        Json::Object(members) => {
            out.push(6);
            out.extend((members.len() as u64).to_be_bytes());
            for ((_, name), item) in members {
                text_key(name, out);
                key(item, out);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts as PostgreSQL 15 prints them.
    #[test]
    fn jsonb_is_normalised() {
        for (text, shown) in [
            ("{\"bb\":1,\"a\":2 , \"a\":3}", "{\"a\": 3, \"bb\": 1}"),
            ("[1,2.50,1e3,-0]", "[1, 2.50, 1000, 0]"),
            ("\"\\u00e9\\n\\/\"", "\"é\\n/\""),
            ("{}", "{}"),
            (" [ ] ", "[]"),
            ("\"\\ud83d\\ude00\"", "\"😀\""),
        ] {
            assert_eq!(normalised(text).unwrap().unwrap(), shown, "{text}");
        }
        assert!(normalised("\"\\u0000\"").is_none() && normalised("\"\\ud800\"").is_none());
    }

    #[test]
    fn keys_sort_as_the_values() {
        let of = |text: &str| top_key(&read(text).unwrap().unwrap());
        let sorted =
            ["[]", "null", "\"a\"", "\"ab\"", "-1", "2", "10", "false", "true", "[1]", "[1, 2]", "{}", "{\"a\": 1}"];
        for pair in sorted.windows(2) {
            assert!(of(pair[0]) < of(pair[1]), "{pair:?}");
        }
        assert_eq!(of("{\"a\": 1.0}"), of("{\"a\":1.00}"));
    }
}
