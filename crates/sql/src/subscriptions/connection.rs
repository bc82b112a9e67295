//! Checks the text of CONNECTION, which libpq reads: `keyword = value` pairs or a URI.
//!
//! Failure: 42601 in libpq's words; 0A000 for a password, because the text is stored, carried by the trail and archived.

use holdfast_types::{SqlError, SqlResult, SqlState};

/// The keywords that libpq 15 knows.
const KEYWORDS: [&str; 36] = [
    "application_name",
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "dbname",
    "fallback_application_name",
    "gssencmode",
    "gsslib",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "krbsrvname",
    "options",
    "passfile",
    "password",
    "port",
    "replication",
    "requirepeer",
    "service",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcert",
    "sslcompression",
    "sslcrl",
    "sslcrldir",
    "sslkey",
    "sslmode",
    "sslpassword",
    "sslrootcert",
    "sslsni",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// 42601 unless libpq could read the text; 0A000 where it has a password.
pub fn check(text: &str) -> SqlResult<()> {
    let keywords = match uri_keywords(text) {
        Some(keywords) => keywords,
        None => pairs(text)?,
    };
    if let Some(unknown) = keywords.iter().find(|k| !KEYWORDS.contains(&k.as_str())) {
        return Err(invalid(format!("invalid connection option \"{unknown}\"")));
    }
    if keywords.iter().any(|k| k == "password" || k == "sslpassword") {
        return Err(SqlError::unsupported("a password in CONNECTION").with_hint(
            "The text is stored in the database and its archive. Use passfile=FILE with a file on the server, or a client \
             certificate (sslcert, sslkey).",
        ));
    }
    Ok(())
}

fn invalid(what: String) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, format!("invalid connection string syntax: {what}"))
}

/// The keywords of a URI; `None` for another text.
fn uri_keywords(text: &str) -> Option<Vec<String>> {
    let rest = text.strip_prefix("postgresql://").or_else(|| text.strip_prefix("postgres://"))?;
    let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
    let mut keywords = Vec::new();
    if place.rsplit_once('@').is_some_and(|(user, _)| user.contains(':')) {
        keywords.push("password".to_owned());
    }
    // A letter of a keyword may be written by its code.
    let of_query = query.split('&').filter(|p| !p.is_empty()).map(|p| decoded(p.split('=').next().unwrap_or(p)));
    // libpq takes this from JDBC.
    keywords.extend(of_query.filter(|k| k != "ssl"));
    Some(keywords)
}

/// A text of a URI with its `%xx` replaced.
fn decoded(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|hex| std::str::from_utf8(hex).ok());
        match code.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// The keywords of `keyword = value` pairs.
fn pairs(text: &str) -> SqlResult<Vec<String>> {
    let mut keywords = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c == '=' || c.is_ascii_whitespace()).unwrap_or(rest.len());
        let keyword = &rest[..end];
        let Some(value) = rest[end..].trim_start().strip_prefix('=') else {
            return Err(invalid(format!("missing \"=\" after \"{keyword}\" in connection info string")));
        };
        rest = after_value(value.trim_start())?.trim_start();
        keywords.push(keyword.to_owned());
    }
    Ok(keywords)
}

/// What follows the value at the start of a text.
fn after_value(text: &str) -> SqlResult<&str> {
    let quoted = text.strip_prefix('\'');
    let body = quoted.unwrap_or(text);
    let mut chars = body.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                chars.next();
            }
            '\'' if quoted.is_some() => return Ok(&body[at + 1..]),
            c if c.is_ascii_whitespace() && quoted.is_none() => return Ok(&body[at..]),
            _ => {}
        }
    }
    match quoted {
        Some(_) => Err(invalid("unterminated quoted string in connection info string".into())),
        None => Ok(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for good in [
            "",
            "host=hq",
            " host = hq  port=5433 dbname = 'my \\'shop' user=r\\ 2 sslmode=verify-full ",
            "user='password=x'",
            "postgresql://r2@hq:5433/shop?sslmode=require",
            "postgres:///shop",
        ] {
            assert!(check(good).is_ok(), "{good}");
        }
        for (bad, state) in [
            ("host", "42601"),
            ("host hq", "42601"),
            ("host='hq", "42601"),
            ("hots=hq", "42601"),
            ("postgresql://hq/?hots=x", "42601"),
            ("host=hq password=x", "0A000"),
            ("password = 'a b'", "0A000"),
            ("sslkey=k sslpassword=x", "0A000"),
            ("postgresql://r2:secret@hq/shop", "0A000"),
            ("postgresql://hq/shop?password=x", "0A000"),
            ("postgresql://hq/shop?%70assword=x", "0A000"),
        ] {
            assert_eq!(check(bad).unwrap_err().state().0, state, "{bad}");
        }
    }
}
