//! `pg_hba_file_rules` and `pg_ident_file_mappings`: the files of rules as they are now, line by line, with what is wrong with
//! a line. The rules in force may be older: a file with a mistake does not take effect.

use super::table::{CatalogTable, int, text};
use crate::types::more;
use holdfast_types::Value;
use holdfast_types::desc::oid;

/// A line of `pg_hba.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HbaRow {
    pub line: u32,
    /// `None` for a line with a mistake.
    pub rule: Option<HbaRule>,
    pub error: Option<String>,
}

/// The columns of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HbaRule {
    pub kind: &'static str,
    pub databases: Vec<String>,
    pub users: Vec<String>,
    pub address: Option<String>,
    pub netmask: Option<String>,
    pub method: &'static str,
    pub options: Vec<String>,
}

/// A line of `pg_ident.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentRow {
    pub line: u32,
    /// Map, system user and role; `None` for a line with a mistake.
    pub mapping: Option<(String, String, String)>,
    pub error: Option<String>,
}

pub const RULES: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_hba_file_rules",
    columns: &[
        ("line_number", oid::INT4),
        ("type", oid::TEXT),
        ("database", more::TEXT_ARRAY),
        ("user_name", more::TEXT_ARRAY),
        ("address", oid::TEXT),
        ("netmask", oid::TEXT),
        ("auth_method", oid::TEXT),
        ("options", more::TEXT_ARRAY),
        ("error", oid::TEXT),
    ],
    always_empty: false,
    rows: |context| context.live.hba_file().into_iter().map(rule_row).collect(),
};

pub const MAPPINGS: CatalogTable = CatalogTable {
    schema: "pg_catalog",
    name: "pg_ident_file_mappings",
    columns: &[
        ("line_number", oid::INT4),
        ("map_name", oid::TEXT),
        ("sys_name", oid::TEXT),
        ("pg_username", oid::TEXT),
        ("error", oid::TEXT),
    ],
    always_empty: false,
    rows: |context| context.live.ident_file().into_iter().map(mapping_row).collect(),
};

fn rule_row(HbaRow { line, rule, error }: HbaRow) -> Vec<Value> {
    let optional = |value: Option<String>| value.map_or(Value::Null, text);
    let mut row = vec![int(line)];
    match rule {
        Some(rule) => row.extend([
            text(rule.kind),
            array(&rule.databases),
            array(&rule.users),
            optional(rule.address),
            optional(rule.netmask),
            text(rule.method),
            if rule.options.is_empty() { Value::Null } else { array(&rule.options) },
        ]),
        None => row.extend(vec![Value::Null; 7]),
    }
    row.push(optional(error));
    row
}

fn mapping_row(IdentRow { line, mapping, error }: IdentRow) -> Vec<Value> {
    let [map, system, role] = match mapping {
        Some((map, system, role)) => [text(map), text(system), text(role)],
        None => [Value::Null, Value::Null, Value::Null],
    };
    vec![int(line), map, system, role, error.map_or(Value::Null, text)]
}

/// An array of texts, as `text[]` prints.
fn array(words: &[String]) -> Value {
    let quoted = |word: &String| {
        let plain = !word.is_empty()
            && !word.eq_ignore_ascii_case("null")
            && !word.contains(|c: char| matches!(c, '{' | '}' | ',' | '"' | '\\') || c.is_ascii_whitespace());
        if plain { word.clone() } else { format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\"")) }
    };
    text(format!("{{{}}}", words.iter().map(quoted).collect::<Vec<_>>().join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_quoted_where_that_is_needed() {
        let words = ["a", "a b", "", "NULL", "x\"y\\"].map(str::to_owned);
        assert_eq!(array(&words), text(r#"{a,"a b","","NULL","x\"y\\"}"#));
    }
}
