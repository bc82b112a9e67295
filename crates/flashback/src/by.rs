//! The roles that made a transaction, as the commands show them.
//!
//! Trails of releases that did not record roles have none, nor have changes by the server itself.

use holdfast_types::record::{Author, AuthorNames};
use serde::Serialize;
use std::fmt;

/// The session user, and the current user where SET ROLE had named another role.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct By {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_user: Option<String>,
}

impl By {
    pub fn of(author: Option<&Author>) -> By {
        let names = author.map(Author::names);
        let current_user = names.and_then(|names| names.current_user).map(str::to_owned);
        By { session_user: names.map(|names| names.session_user.to_owned()), current_user }
    }
}

/// `by ann`, `by ann as app`, or nothing.
impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(session_user) = &self.session_user else { return Ok(()) };
        write!(f, "by {}", AuthorNames { session_user, current_user: self.current_user.as_deref() })
    }
}
