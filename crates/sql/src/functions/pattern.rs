//! LIKE with a pattern that is not a constant, ILIKE, and regular expressions.

use super::function::{Function, int, text};
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef};
use std::cell::RefCell;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::strict("hf_like", 3, |a| matched(a, false)),
    Function::strict("hf_ilike", 3, |a| matched(a, true)),
    Function::strict("hf_regex", 3, regex),
];

fn matched(args: &[ValueRef<'_>], fold: bool) -> SqlResult<Value> {
    let prepare = |t: &str| if fold { t.to_lowercase() } else { t.to_owned() };
    let (subject, pattern) = (prepare(&text(args, 0)?), prepare(&text(args, 1)?));
    let escape = text(args, 2)?.chars().next();
    let tokens = tokens(&pattern, escape)?;
    let subject: Vec<char> = subject.chars().collect();
    Ok(Value::Int(i64::from(like(&subject, &tokens))))
}

#[derive(Clone, Copy, PartialEq)]
enum Token {
    Char(char),
    One,
    Many,
}

fn tokens(pattern: &str, escape: Option<char>) -> SqlResult<Vec<Token>> {
    let mut out = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            c if Some(c) == escape => match chars.next() {
                Some(next) => Token::Char(next),
                None => {
                    return Err(SqlError::new(SqlState("22025"), "LIKE pattern must not end with escape character"));
                }
            },
            '%' => Token::Many,
            '_' => Token::One,
            c => Token::Char(c),
        });
    }
    Ok(out)
}

/// Matches LIKE greedily, with one point to backtrack to: the last `%`. The time is at most proportional to the product
/// of the lengths.
fn like(subject: &[char], pattern: &[Token]) -> bool {
    let (mut s, mut p, mut back) = (0, 0, None);
    while s < subject.len() {
        match pattern.get(p) {
            Some(Token::Many) => {
                back = Some((p + 1, s));
                p += 1;
            }
            Some(Token::One) => {
                s += 1;
                p += 1;
            }
            Some(Token::Char(c)) if *c == subject[s] => {
                s += 1;
                p += 1;
            }
            _ => match back {
                Some((after, from)) => {
                    back = Some((after, from + 1));
                    p = after;
                    s = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|t| *t == Token::Many)
}

thread_local! {
    /// The pattern compiled last: a statement usually has one.
    static LAST: RefCell<Option<(String, bool, regex_lite::Regex)>> = const { RefCell::new(None) };
}

fn regex(args: &[ValueRef<'_>]) -> SqlResult<Value> {
    let (subject, pattern, fold) = (text(args, 0)?, text(args, 1)?, int(args, 2)? == 1);
    LAST.with(|last| {
        let mut last = last.borrow_mut();
        if let Some((known, folded, compiled)) = &*last
            && *known == *pattern
            && *folded == fold
        {
            return Ok(Value::Int(i64::from(compiled.is_match(&subject))));
        }
        let compiled = regex_lite::RegexBuilder::new(&pattern)
            .case_insensitive(fold)
            .dot_matches_new_line(true)
            .build()
            .map_err(|e| SqlError::new(SqlState("2201B"), format!("invalid regular expression: {e}")))?;
        let found = compiled.is_match(&subject);
        *last = Some((pattern.into_owned(), fold, compiled));
        Ok(Value::Int(i64::from(found)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_like(subject: &str, pattern: &str) -> bool {
        like(&subject.chars().collect::<Vec<_>>(), &tokens(pattern, Some('\\')).unwrap())
    }

    #[test]
    fn like_matches() {
        for (s, p) in [("abc", "a%"), ("abc", "%c"), ("abc", "a_c"), ("", "%"), ("a%b", "a\\%b"), ("aXbXc", "a%b%c")] {
            assert!(is_like(s, p), "{s} {p}");
        }
        for (s, p) in [("abc", "A%"), ("abc", "a_"), ("axb", "a\\%b"), ("abcd", "a%c")] {
            assert!(!is_like(s, p), "{s} {p}");
        }
    }
}
