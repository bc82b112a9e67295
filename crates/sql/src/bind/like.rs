//! LIKE, ILIKE and regular expressions.
//!
//! SQLite's LIKE ignores case; its GLOB does not, can use an index, and stock sqlite3 has it, so a constant pattern
//! becomes a GLOB pattern. Other patterns go to a function.

use super::Binder;
use super::scope::Scope;
use super::typed::{Shape, Typed};
use crate::bind::coerce::When;
use crate::names::quote_text;
use crate::types::Type;
use holdfast_types::{SqlError, SqlResult, SqlState, Value};
use sqlparser::ast::Expr;

impl Binder<'_> {
    pub(super) fn like(
        &mut self,
        e: &Expr,
        pattern: &Expr,
        escape: Option<&Expr>,
        negated: bool,
        ignore_case: bool,
        scope: &Scope<'_>,
    ) -> SqlResult<Typed> {
        let op = if ignore_case { "~~*" } else { "~~" };
        let text = self.fixed(|b| b.text_operand(e, op, scope))?;
        let escape = match escape {
            None => Some('\\'),
            Some(Expr::Value(v)) => {
                let value = v.value.clone().into_string().unwrap_or_default();
                let mut chars = value.chars();
                let first = chars.next();
                if chars.next().is_some() {
                    let message = "invalid escape string";
                    return Err(SqlError::new(SqlState("22019"), message)
                        .with_hint("Escape string must be empty or one character."));
                }
                first
            }
            Some(_) => return Err(SqlError::unsupported("ESCAPE with an expression")),
        };
        let bound = self.fixed(|b| b.expr(pattern, scope))?;
        let not = if negated { "NOT " } else { "" };
        if let (Shape::Text { value, .. }, false) = (&bound.shape, ignore_case)
            && let Some(glob) = glob_pattern(value, escape)?
        {
            return Ok(Typed::new(format!("({} {not}GLOB {})", text.sql, quote_text(&glob)), Type::BOOL));
        }
        if !bound.is_open() && !bound.ty.is_string() {
            return Err(super::expr::undefined_operator(Type::new(text.ty.oid), op, Type::new(bound.ty.oid)));
        }
        let pattern = self.coerce(bound, Type::TEXT, When::Implicit)?;
        let name = if ignore_case { "hf_ilike" } else { "hf_like" };
        let escape = super::coerce::constant(&Value::Text(escape.map(String::from).unwrap_or_default()));
        let sql = self.helper(name, &[&text.sql, &pattern.sql, &escape])?;
        Ok(Typed::new(if negated { format!("(NOT {sql})") } else { sql }, Type::BOOL))
    }

    fn text_operand(&mut self, e: &Expr, op: &str, scope: &Scope<'_>) -> SqlResult<Typed> {
        let typed = self.value_expr(e, scope)?;
        if !typed.ty.is_string() {
            return Err(super::expr::undefined_operator(Type::new(typed.ty.oid), op, Type::UNKNOWN));
        }
        Ok(typed)
    }

    pub(super) fn regex(
        &mut self,
        l: &Expr,
        r: &Expr,
        negated: bool,
        fold: bool,
        scope: &Scope<'_>,
    ) -> SqlResult<Typed> {
        let text = self.fixed(|b| b.text_operand(l, "~", scope))?;
        let pattern = self.fixed(|b| b.expr_as(r, Type::TEXT, scope))?;
        let sql = self.helper("hf_regex", &[&text.sql, &pattern.sql, if fold { "1" } else { "0" }])?;
        Ok(Typed::new(if negated { format!("(NOT {sql})") } else { sql }, Type::BOOL))
    }
}

/// Converts a LIKE pattern to the GLOB pattern that matches the same texts. 22025 for an escape at the end.
fn glob_pattern(pattern: &str, escape: Option<char>) -> SqlResult<Option<String>> {
    let mut glob = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        let literal = if Some(c) == escape {
            match chars.next() {
                Some(next) => next,
                None => {
                    return Err(SqlError::new(SqlState("22025"), "LIKE pattern must not end with escape character"));
                }
            }
        } else if c == '%' {
            glob.push('*');
            continue;
        } else if c == '_' {
            glob.push('?');
            continue;
        } else {
            c
        };
        match literal {
            '*' | '?' | '[' => glob.extend(['[', literal, ']']),
            '\0' => return Ok(None),
            other => glob.push(other),
        }
    }
    Ok(Some(glob))
}

#[cfg(test)]
mod tests {
    use super::glob_pattern;

    #[test]
    fn like_patterns_become_glob_patterns() {
        let glob = |p| glob_pattern(p, Some('\\')).unwrap().unwrap();
        assert_eq!(glob("a%b_c"), "a*b?c");
        assert_eq!(glob("100\\%*[x]?"), "100%[*][[]x][?]");
        assert!(glob_pattern("abc\\", Some('\\')).is_err());
        assert_eq!(glob_pattern("a\\%", None).unwrap().unwrap(), "a\\*");
    }
}
