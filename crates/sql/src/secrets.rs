//! Texts of statements without passwords, for views, statistics and logs.
//!
//! A statement that creates or changes a role may hold a password, and so may one about a subscription, which is refused.
//! Everything after the word PASSWORD is left out, so that a
//! text which cannot be split into tokens shows none either.

use std::borrow::Cow;

/// A statement's text without the password in it, which may be shown and logged.
pub fn without_secrets(text: &str) -> Cow<'_, str> {
    hidden(text).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// The text with its password hidden; `None` where it has no password.
fn hidden(text: &str) -> Option<String> {
    let has = |word: &[u8]| text.as_bytes().windows(word.len()).any(|w| w.eq_ignore_ascii_case(word));
    let word = "password";
    let may_have_one = has(word.as_bytes()) || (has(b"subscription") && has(b"://"));
    if !may_have_one {
        return None;
    }
    let lower = text.to_ascii_lowercase();
    let verb = |verb: &str| lower.contains(verb);
    if verb("subscription")
        && let Some(at) = lower.find("connection")
    {
        return Some(format!("{} <hidden>", &text[..at + "connection".len()]));
    }
    let of_role = ["role", "user", "group"].iter().any(|noun| verb(noun)) && (verb("create") || verb("alter"));
    // All that follows the word: a text that cannot be split into tokens may hold a password as well.
    let at = lower.find("password").filter(|_| of_role)?;
    Some(format!("{} <hidden>", &text[..at + word.len()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_hidden_and_other_texts_are_left_alone() {
        for (text, shown) in [
            ("create role a password 'x'", Some("create role a password <hidden>")),
            (
                "select 1; ALTER USER a ENCRYPTED PASSWORD 'x",
                Some("select 1; ALTER USER a ENCRYPTED PASSWORD <hidden>"),
            ),
            (
                "create subscription s connection 'host=a password=x' publication p",
                Some("create subscription s connection <hidden>"),
            ),
            ("alter subscription s connection 'postgres://a:x@b'", Some("alter subscription s connection <hidden>")),
            ("create subscription s connection 'host=a' publication p", None),
            ("select password from t", None),
            ("create role a login", None),
        ] {
            assert_eq!(hidden(text).as_deref(), shown, "{text}");
        }
    }
}
