//! The standbys that a commit waits for, in the syntax of PostgreSQL's `synchronous_standby_names`.
//!
//! | setting | a position has reached a level when |
//! |---|---|
//! | `a, b` or `FIRST 1 (a, b)` or `1 (a, b)` | the first of the list that is connected has it |
//! | `FIRST n (a, b, ...)` or `n (...)` | the first n of the list that are connected have it |
//! | `ANY n (a, b, ...)` | any n of the list that are connected have it |
//! | `*` in a list | it means every standby |
//! | empty | never: there is no standby to wait for |
//!
//! Names are compared without regard to case; a name that is not a plain word is quoted (`"rack-2"`). A disconnected
//! standby does not count: if fewer than n are connected, nothing new is reached, and commits wait.
//!
//! [`SyncSet::parse`] fails with the position in the text. [`Reached`] never decreases: a standby that returns with
//! less than it once confirmed does not change what was answered.

mod parse;
#[cfg(test)]
mod tests;

use std::fmt;

use holdfast_types::Lsn;

use crate::identity::Ack;

pub use parse::SyncSetError;

/// How many of the listed standbys count, and which.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// The first ones in the list.
    First(usize),
    /// Those with the highest positions.
    Any(usize),
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Name {
    /// A name in lower case.
    Is(String),
    Every,
}

/// A parsed setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncSet {
    method: Method,
    names: Vec<Name>,
}

/// Ends below which everything has reached a level.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Reached {
    pub warm: Lsn,
    pub hot: Lsn,
    pub commit: Lsn,
}

impl Reached {
    /// The higher position of both, level by level.
    pub fn max(self, other: Reached) -> Reached {
        Reached { warm: self.warm.max(other.warm), hot: self.hot.max(other.hot), commit: self.commit.max(other.commit) }
    }
}

impl SyncSet {
    /// An empty set: there is no standby to wait for.
    pub fn empty() -> SyncSet {
        SyncSet { method: Method::First(1), names: Vec::new() }
    }

    /// Reads the setting.
    pub fn parse(text: &str) -> Result<SyncSet, SyncSetError> {
        parse::parse(text)
    }

    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The number of standbys that must be connected.
    pub fn quorum(&self) -> usize {
        match self.method {
            Method::First(n) | Method::Any(n) => n,
        }
    }

    /// The names in lower case, if commits wait for every one of them; `None` if some may be missing, or for `*`.
    pub fn all_of(&self) -> Option<Vec<&str>> {
        self.distinct().filter(|names| self.quorum() == names.len())
    }

    /// The names in lower case, if commits wait for any [`SyncSet::quorum`] of them and that is fewer than all.
    pub fn any_of(&self) -> Option<Vec<&str>> {
        let is_any = matches!(self.method, Method::Any(_));
        self.distinct().filter(|names| is_any && self.quorum() < names.len())
    }

    /// The names in order; `None` if one is duplicate, or for `*`.
    fn distinct(&self) -> Option<Vec<&str>> {
        let names = self.names.iter().map(|name| match name {
            Name::Is(name) => Some(name.as_str()),
            Name::Every => None,
        });
        let mut names = names.collect::<Option<Vec<_>>>()?;
        names.sort_unstable();
        names.dedup();
        (names.len() == self.names.len()).then_some(names)
    }

    /// The standby's position in the list, from 0; `None` if commits do not wait for it.
    pub fn priority(&self, standby: &str) -> Option<usize> {
        let standby = standby.to_lowercase();
        self.names.iter().position(|name| match name {
            Name::Every => true,
            Name::Is(name) => *name == standby,
        })
    }

    /// What commits have reached by the acks of the connected standbys; `None` if too few of the list are connected.
    pub fn reached<'a>(&self, connected: impl IntoIterator<Item = (&'a str, Ack)>) -> Option<Reached> {
        let mut listed: Vec<(usize, &str, Ack)> = connected
            .into_iter()
            .filter_map(|(name, ack)| self.priority(name).map(|priority| (priority, name, ack)))
            .collect();
        let quorum = self.quorum();
        if self.is_empty() || listed.len() < quorum {
            return None;
        }
        if let Method::First(n) = self.method {
            // Standbys of equal priority (`*`) are ordered by name, so that the choice does not change from ack to ack.
            listed.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
            listed.truncate(n);
        }
        let nth = |of: fn(&Ack) -> Lsn| {
            let mut ends: Vec<Lsn> = listed.iter().map(|(_, _, ack)| of(ack)).collect();
            ends.sort_unstable_by(|a, b| b.cmp(a));
            ends[quorum - 1]
        };
        Some(Reached { warm: nth(|ack| ack.received), hot: nth(|ack| ack.durable), commit: nth(|ack| ack.applied) })
    }
}

impl fmt::Display for SyncSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return Ok(());
        }
        match self.method {
            Method::First(n) => write!(f, "FIRST {n} (")?,
            Method::Any(n) => write!(f, "ANY {n} (")?,
        }
        for (i, name) in self.names.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            match name {
                Name::Every => write!(f, "{comma}*")?,
                Name::Is(name) => write!(f, "{comma}\"{}\"", name.replace('"', "\"\""))?,
            }
        }
        write!(f, ")")
    }
}
