//! The messages of the client, as RFC 5802 (section 7) writes them: attributes `a=value`, separated by commas.
//!
//! Errors have PostgreSQL's texts. A message is at most [`MESSAGE_BYTES_MAX`] long; the caller checks it before the bytes
//! have been read.

use holdfast_types::{SqlError, SqlResult, SqlState};

/// Largest SASL message of a client in bytes (PostgreSQL's PG_MAX_SASL_MESSAGE_LENGTH).
pub const MESSAGE_BYTES_MAX: usize = 1024;

/// `malformed SCRAM message` with the reason.
pub(crate) fn malformed(detail: impl Into<String>) -> SqlError {
    SqlError::new(SqlState::PROTOCOL_VIOLATION, "malformed SCRAM message").with_detail(detail)
}

/// A message as text. PostgreSQL refuses an empty one, and one with a zero byte.
fn text(bytes: &[u8]) -> SqlResult<&str> {
    if bytes.is_empty() {
        return Err(malformed("The message is empty."));
    }
    if bytes.contains(&0) {
        return Err(malformed("Message length does not match input length."));
    }
    std::str::from_utf8(bytes).map_err(|_| malformed("The message is not UTF-8."))
}

/// What the client says about channel binding (the GS2 header).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BindingFlag<'a> {
    /// `n`: the client does not support it.
    None,
    /// `y`: the client supports it and believes that the server does not.
    NotOffered,
    /// `p=`: the client uses this type.
    Used(&'a str),
}

/// `client-first-message`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientFirst<'a> {
    pub flag: BindingFlag<'a>,
    /// The GS2 header with its last comma: `n,,`.
    pub header: &'a str,
    /// `client-first-message-bare`.
    pub bare: &'a str,
    pub nonce: &'a str,
}

/// `client-final-message`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ClientFinal<'a> {
    /// `c=`, in base64.
    pub binding: &'a str,
    pub nonce: &'a str,
    /// `p=`, in base64.
    pub proof: &'a str,
    pub without_proof: &'a str,
}

pub(crate) fn client_first(bytes: &[u8]) -> SqlResult<ClientFirst<'_>> {
    let all = text(bytes)?;
    let (flag, rest) = binding_flag(all)?;
    let rest = match rest.strip_prefix(',') {
        Some(rest) => rest,
        None => return Err(malformed(format!("Comma expected, but found {}.", shown(rest)))),
    };
    let bare = match rest.strip_prefix(',') {
        Some(bare) => bare,
        None if rest.starts_with('a') => {
            return Err(SqlError::unsupported("a SASL authorization identity")
                .with_hint("Connect as the role itself, or use SET ROLE."));
        }
        None => {
            return Err(malformed(format!(
                "Unexpected attribute {} in client-first-message.",
                shown(rest).replace("character ", "")
            )));
        }
    };
    let header = &all[..all.len() - bare.len()];
    if bare.starts_with('m') {
        return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "client requires an unsupported SCRAM extension"));
    }
    // The user name is that of the start-up packet; libpq sends an empty one.
    let (_, rest) = attribute(bare, 'n')?;
    let (nonce, mut rest) = attribute(rest, 'r')?;
    if nonce.is_empty() || !nonce.bytes().all(|b| (0x21..=0x7e).contains(&b)) {
        return Err(SqlError::new(SqlState::PROTOCOL_VIOLATION, "non-printable characters in SCRAM nonce"));
    }
    // Extensions that the client does not insist on.
    while !rest.is_empty() {
        (_, _, rest) = any_attribute(rest)?;
    }
    Ok(ClientFirst { flag, header, bare, nonce })
}

fn binding_flag(all: &str) -> SqlResult<(BindingFlag<'_>, &str)> {
    let rest = all.get(1..).unwrap_or_default();
    match all.as_bytes().first() {
        Some(b'n') => Ok((BindingFlag::None, rest)),
        Some(b'y') => Ok((BindingFlag::NotOffered, rest)),
        Some(b'p') => {
            let kind =
                rest.strip_prefix('=').ok_or_else(|| malformed("Expected character \"=\" for attribute \"p\"."))?;
            let end = kind.find(',').unwrap_or(kind.len());
            Ok((BindingFlag::Used(&kind[..end]), &kind[end..]))
        }
        _ => {
            let found = shown(all).replace("character ", "");
            Err(malformed(format!("Unexpected channel-binding flag {found}.")))
        }
    }
}

pub(crate) fn client_final(bytes: &[u8]) -> SqlResult<ClientFinal<'_>> {
    let all = text(bytes)?;
    let (binding, rest) = attribute(all, 'c')?;
    let (nonce, mut rest) = attribute(rest, 'r')?;
    loop {
        let (name, proof, after) = any_attribute(rest)?;
        if name == 'p' {
            if !after.is_empty() || all.ends_with(',') {
                return Err(malformed("Garbage found at the end of client-final-message."));
            }
            let without_proof = &all[..all.len() - proof.len() - ",p=".len()];
            return Ok(ClientFinal { binding, nonce, proof, without_proof });
        }
        rest = after;
    }
}

/// The value of the attribute `name`, which must come next, and what follows its comma.
fn attribute(text: &str, name: char) -> SqlResult<(&str, &str)> {
    let (found, value, rest) = any_attribute(text)?;
    if found != name {
        return Err(malformed(format!("Expected attribute \"{name}\" but found \"{found}\".")));
    }
    Ok((value, rest))
}

fn any_attribute(text: &str) -> SqlResult<(char, &str, &str)> {
    let Some(name) = text.chars().next() else {
        return Err(malformed("Attribute expected, but found end of string."));
    };
    if !name.is_ascii_alphabetic() {
        return Err(malformed(format!("Attribute expected, but found invalid {}.", shown(text))));
    }
    let Some(value) = text[1..].strip_prefix('=') else {
        return Err(malformed(format!("Expected character \"=\" for attribute \"{name}\".")));
    };
    let (value, rest) = value.split_once(',').unwrap_or((value, ""));
    Ok((name, value, rest))
}

/// The first character of a text as PostgreSQL shows it, which must not bring a control character into a log.
fn shown(text: &str) -> String {
    match text.chars().next() {
        None => "end of string".to_owned(),
        Some(c) if (' '..='~').contains(&c) => format!("character \"{c}\""),
        Some(c) => format!("character \"0x{:02x}\"", u32::from(c)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_message() {
        let first = client_first(b"n,,n=user,r=abc,x=y").unwrap();
        assert_eq!((first.flag, first.header, first.nonce), (BindingFlag::None, "n,,", "abc"));
        assert_eq!(first.bare, "n=user,r=abc,x=y");
        let first = client_first(b"p=tls-server-end-point,,n=,r=abc").unwrap();
        assert_eq!(first.flag, BindingFlag::Used("tls-server-end-point"));
        assert_eq!(first.header, "p=tls-server-end-point,,");
        assert_eq!(client_first(b"y,,n=,r=abc").unwrap().flag, BindingFlag::NotOffered);
    }

    #[test]
    fn the_final_message() {
        let last = client_final(b"c=biws,r=abc,e=f,p=cHJvb2Y=").unwrap();
        assert_eq!((last.binding, last.nonce, last.proof), ("biws", "abc", "cHJvb2Y="));
        assert_eq!(last.without_proof, "c=biws,r=abc,e=f");
    }

    #[test]
    fn hostile_messages_are_refused() {
        for bad in [
            &b""[..],
            b"\0",
            b"n,,n=user,r=abc\0",
            b"\xff",
            b"z,,n=,r=abc",
            b"n",
            b"n,",
            b"n,,",
            b"nn,n=,r=a",
            b"p,,n=,r=abc",
            b"p=tls-unique",
            b"n,a=admin,n=user,r=abc",
            b"n,b=x,n=user,r=abc",
            b"n,,m=ext,n=user,r=abc",
            b"n,,r=abc",
            b"n,,n=user",
            b"n,,n=user,",
            b"n,,n=user,r=",
            b"n,,n=user,r=a b",
            b"n,,n=user,r=\xc3\xa4",
            b"n,,n=user,r=abc,1=2",
            b"n,,n=user,r=abc,\xc3\xa4",
            b"\xc3\xa4,,n=user,r=abc",
        ] {
            let error = client_first(bad).unwrap_err();
            assert!(!error.message().contains('\0'), "{error}");
        }
        for bad in [
            &b""[..],
            b"c=biws",
            b"c=biws,r=abc",
            b"r=abc,c=biws,p=x",
            b"c=biws,r=abc,p=x,y=z",
            b"c=biws,r=abc,p=x,",
            b"c=biws,r=abc,,p=x",
            b"c=biws,r=abc,p",
        ] {
            assert!(client_final(bad).is_err(), "{}", String::from_utf8_lossy(bad));
        }
    }
}
