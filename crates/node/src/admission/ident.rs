//! `pg_ident.conf`: which names of the operating system, or of a certificate, may connect as which roles.
//!
//! | column | what |
//! |---|---|
//! | map | its name, as `map=` in `pg_hba.conf` names it |
//! | system user | a name; with a leading `/` a regular expression, which need not match all of the name |
//! | role | a name; `\1` in it is the regular expression's first group |
//!
//! Anchor: PostgreSQL 15, section 21.2. The regular expressions are the regex crate's, which take time in proportion to the
//! name.

use super::hba::tokens::{Line, Token, lines};
use regex::Regex;

/// The memory that one compiled regular expression may take.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// One line.
#[derive(Clone, Debug)]
pub struct Mapping {
    pub map: String,
    pub system: String,
    pub role: String,
    pattern: Option<Regex>,
}

/// A line, or what is wrong with it.
#[derive(Clone, Debug)]
pub struct Entry {
    pub line: u32,
    pub mapping: Result<Mapping, String>,
}

/// Reads the text of the file.
pub fn parse(text: &str) -> Vec<Entry> {
    lines(text).into_iter().map(|line| Entry { line: line.number, mapping: mapping(line) }).collect()
}

fn mapping(line: Line) -> Result<Mapping, String> {
    let mut fields = line.fields?.into_iter();
    let mut next = || -> Result<Token, String> {
        let mut field = fields.next().ok_or("missing entry at end of line")?;
        match (field.pop(), field.is_empty()) {
            (Some(token), true) => Ok(token),
            _ => Err("multiple values in ident field".to_owned()),
        }
    };
    let (map, system, role) = (next()?.text, next()?.text, next()?.text);
    let pattern = match system.strip_prefix('/') {
        None => None,
        Some(pattern) => {
            let built = regex::RegexBuilder::new(pattern).size_limit(REGEX_BYTES_MAX).build();
            let pattern = built.map_err(|error| {
                let why = error.to_string().replace('\n', " ");
                format!("invalid regular expression \"{pattern}\": {why}")
            })?;
            if role.contains("\\1") && pattern.captures_len() < 2 {
                return Err(format!(
                    "regular expression \"{}\" has no subexpressions as requested by backreference in \"{role}\"",
                    pattern.as_str()
                ));
            }
            Some(pattern)
        }
    };
    Ok(Mapping { map, system, role, pattern })
}

impl Mapping {
    /// Whether this line of the map lets a system user connect as a role.
    pub fn allows(&self, map: &str, system: &str, role: &str) -> bool {
        if self.map != map {
            return false;
        }
        let Some(pattern) = &self.pattern else { return self.system == system && self.role == role };
        let Some(found) = pattern.captures(system) else { return false };
        match self.role.split_once("\\1") {
            // As in PostgreSQL, only the first one is replaced.
            Some((before, after)) => {
                let group = found.get(1).map_or("", |group| group.as_str());
                format!("{before}{group}{after}") == role
            }
            None => self.role == role,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
# map  system                role
os     ann                   ann
os     "Bob Smith"           bob
os     /^(.*)@example\.com$  \1
os     /^root                admin
mail   ann                   postmaster
"#;

    fn allows(map: &str, system: &str, role: &str) -> bool {
        parse(FILE).iter().any(|entry| entry.mapping.as_ref().unwrap().allows(map, system, role))
    }

    #[test]
    fn names_and_regular_expressions() {
        assert!(allows("os", "ann", "ann") && !allows("os", "ann", "bob") && !allows("os", "Ann", "ann"));
        assert!(allows("os", "Bob Smith", "bob"));
        assert!(allows("os", "kim@example.com", "kim") && !allows("os", "kim@example.com", "kim@example.com"));
        assert!(!allows("os", "kim@example.community", "kim"));
        assert!(allows("os", "rooted", "admin"), "not anchored at its end");
        assert!(allows("mail", "ann", "postmaster") && !allows("os", "ann", "postmaster") && !allows("", "ann", "ann"));
    }

    #[test]
    fn mistakes_are_named() {
        for (line, said) in [
            ("os ann", "missing entry at end of line"),
            ("os", "missing entry at end of line"),
            ("os ann,bob ann", "multiple values in ident field"),
            ("os /( ann", "invalid regular expression \"(\""),
            ("os /^ann$ \\1", "has no subexpressions as requested by backreference in \"\\1\""),
            ("os /(a{1000}){1000} x", "invalid regular expression"),
        ] {
            let error = parse(line).remove(0).mapping.unwrap_err();
            assert!(error.contains(said), "{line}: {error}");
        }
    }
}
