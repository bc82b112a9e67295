//! The roles for which a transaction was made, as a batch record of version 2 has them in front of its operations.
//!
//! | tag | roles | then |
//! |---|---|---|
//! | 0 | those of the transaction before it in the record; of the first one: none | nothing |
//! | 1 | one role is session user and current user | its name string |
//! | 2 | two roles | the session user's name string, the current user's name string |
//! | 3 | none: the server itself, or a program that embeds the library | nothing |
//!
//! Names, not OIDs: the trail is read when the role may have been dropped. They are in the record where they differ from the
//! transaction before, so that a batch of one role's transactions has its name only once.
//!
//! Failure: see [`super`].

use super::DecodeError;
use super::bytes::{Cursor, put_bytes};
use std::fmt;

const AS_BEFORE: u8 = 0;
const ONE: u8 = 1;
const TWO: u8 = 2;
const NO_ROLE: u8 = 3;

/// Bytes of a role's name, as in PostgreSQL.
pub const ROLE_NAME_BYTES_MAX: usize = 63;

/// The roles for which a session makes changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    session_user: Box<str>,
    /// The role of SET ROLE, where it is another one.
    current_user: Option<Box<str>>,
}

impl Author {
    /// Names longer than [`ROLE_NAME_BYTES_MAX`] are cut.
    pub fn new(session_user: &str, current_user: &str) -> Author {
        let cut = |name: &str| {
            let end = (0..=ROLE_NAME_BYTES_MAX.min(name.len())).rev().find(|end| name.is_char_boundary(*end));
            Box::from(&name[..end.unwrap_or_default()])
        };
        let current_user = (session_user != current_user).then(|| cut(current_user));
        Author { session_user: cut(session_user), current_user }
    }

    /// The roles as a transaction takes them.
    pub fn names(&self) -> AuthorNames<'_> {
        AuthorNames { session_user: &self.session_user, current_user: self.current_user.as_deref() }
    }
}

/// The roles of a transaction, borrowed from a record or a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthorNames<'a> {
    pub session_user: &'a str,
    /// The role whose privileges the statements had, where SET ROLE had named another one.
    pub current_user: Option<&'a str>,
}

impl AuthorNames<'_> {
    pub fn to_author(self) -> Author {
        Author::new(self.session_user, self.current_user.unwrap_or(self.session_user))
    }
}

/// `ann`, or `ann as app` where SET ROLE had named another role. Unusual names are quoted.
impl fmt::Display for AuthorNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = |f: &mut fmt::Formatter<'_>, name: &str| {
            let is_plain = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_-.@".contains(c));
            if is_plain { f.write_str(name) } else { write!(f, "{name:?}") }
        };
        write(f, self.session_user)?;
        let Some(name) = self.current_user else { return Ok(()) };
        f.write_str(" as ")?;
        write(f, name)
    }
}

/// Appends the roles of a transaction. `before`: where those of the transaction before are, if it has any. Returns where
/// those of this one are.
pub(super) fn put_author(
    buf: &mut Vec<u8>,
    author: Option<AuthorNames<'_>>,
    before: Option<(usize, usize)>,
) -> Option<(usize, usize)> {
    let at = buf.len();
    let Some(AuthorNames { session_user, current_user }) = author else {
        buf.push(if before.is_some() { NO_ROLE } else { AS_BEFORE });
        return None;
    };
    buf.push(if current_user.is_some() { TWO } else { ONE });
    put_bytes(buf, session_user.as_bytes());
    current_user.iter().for_each(|name| put_bytes(buf, name.as_bytes()));
    match before {
        Some((from, to)) if buf[from..to] == buf[at..] => {
            buf.truncate(at);
            buf.push(AS_BEFORE);
            before
        }
        _ => Some((at, buf.len())),
    }
}

/// Takes the roles of a transaction from the front; `before` are those of the transaction before it.
pub(super) fn take_author<'a>(
    c: &mut Cursor<'a>,
    before: Option<AuthorNames<'a>>,
) -> Result<Option<AuthorNames<'a>>, DecodeError> {
    let at = c.at();
    match c.u8()? {
        AS_BEFORE => Ok(before),
        ONE => Ok(Some(AuthorNames { session_user: c.string()?, current_user: None })),
        TWO => Ok(Some(AuthorNames { session_user: c.string()?, current_user: Some(c.string()?) })),
        NO_ROLE => Ok(None),
        tag => Err(DecodeError::Tag { what: "author", tag, at }),
    }
}
