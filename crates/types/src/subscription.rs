//! The subscriptions of one database, as its internal table `holdfast_subscriptions` holds them: from where it takes which
//! publications, and into which tables. No I/O and no SQL; `store` keeps them, `sql` reads statements about them, `node` follows
//! the publishers.
//!
//! In partition mode other rows of its tables are this database's own: which rows are the subscription's is the condition that the
//! publications have for the table.
//!
//! Anchor: PostgreSQL 15, chapter 31 (Logical Replication), `pg_subscription`, `pg_subscription_rel`.
//!
//! Failure: an unknown letter among the options is refused; the caller treats it as damage.

use std::collections::BTreeMap;

/// A subscription.
#[derive(Clone, Debug, PartialEq)]
pub struct Subscription {
    /// Its number in the database.
    pub number: u32,
    pub name: String,
    /// OID of a role.
    pub owner: u32,
    /// As libpq reads it: `host=hq port=5433 dbname=shop user=r2`. It has no password.
    pub connection: String,
    /// The slot at the publisher; `None`: none is associated.
    pub slot: Option<String>,
    /// Names of publications, in the order of the statement.
    pub publications: Vec<String>,
    pub options: SubscriptionOptions,
    /// ALTER SUBSCRIPTION ... SKIP: the transaction that ends at this LSN of the publisher is not applied; 0: none.
    pub skip: u64,
    /// The OIDs of the tables into which it writes, in their order.
    pub tables: Vec<u32>,
    /// In partition mode the condition of each table's subscribed rows, in SQLite's SQL, in parentheses.
    pub conditions: BTreeMap<u32, String>,
}

/// What may be set WITH (...).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionOptions {
    pub enabled: bool,
    /// The rows that the tables have are copied first.
    pub copy_data: bool,
    /// An error disables the subscription; else it is tried again.
    pub disable_on_error: bool,
    pub synchronous_commit: SynchronousCommit,
    /// `mode = 'partition'`: only the rows that meet the publications' condition are the subscription's.
    pub partition: bool,
}

/// PostgreSQL's `synchronous_commit` of what the subscription applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SynchronousCommit {
    #[default]
    Off,
    Local,
    RemoteWrite,
    On,
    RemoteApply,
}

/// All subscriptions of a database.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subscriptions {
    /// The internal table exists.
    pub stored: bool,
    /// In the order of their numbers.
    pub list: Vec<Subscription>,
}

impl SubscriptionOptions {
    /// The letters of the options that are on, as the internal table holds them.
    pub fn letters(&self) -> String {
        let letters = [(self.enabled, 'e'), (self.copy_data, 'c'), (self.disable_on_error, 'd'), (self.partition, 'p')];
        let on = letters.into_iter().filter(|(on, _)| *on).map(|(_, letter)| letter);
        on.chain(self.synchronous_commit.letter()).collect()
    }

    /// Reads [`SubscriptionOptions::letters`].
    pub fn parse_letters(text: &str) -> Option<SubscriptionOptions> {
        let has = |letter| text.contains(letter);
        let is_set = |c: &SynchronousCommit| c.letter().is_some_and(has);
        let synchronous_commit = SynchronousCommit::ALL.into_iter().find(is_set).unwrap_or_default();
        let options = SubscriptionOptions {
            enabled: has('e'),
            copy_data: has('c'),
            disable_on_error: has('d'),
            synchronous_commit,
            partition: has('p'),
        };
        text.chars().all(|c| "ecdplwsa".contains(c)).then_some(options)
    }
}

impl SynchronousCommit {
    const ALL: [SynchronousCommit; 5] = [Self::Off, Self::Local, Self::RemoteWrite, Self::On, Self::RemoteApply];

    /// As PostgreSQL writes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Local => "local",
            Self::RemoteWrite => "remote_write",
            Self::On => "on",
            Self::RemoteApply => "remote_apply",
        }
    }

    /// Reads a value of PostgreSQL's parameter, in any case.
    pub fn parse(text: &str) -> Option<SynchronousCommit> {
        match text.to_ascii_lowercase().as_str() {
            "true" | "yes" | "1" => Some(Self::On),
            "false" | "no" | "0" => Some(Self::Off),
            name => Self::ALL.into_iter().find(|c| c.name() == name),
        }
    }

    fn letter(self) -> Option<char> {
        match self {
            Self::Off => None,
            Self::Local => Some('l'),
            Self::RemoteWrite => Some('w'),
            Self::On => Some('s'),
            Self::RemoteApply => Some('a'),
        }
    }
}

impl Subscriptions {
    pub fn by_name(&self, name: &str) -> Option<&Subscription> {
        self.list.iter().find(|s| s.name == name)
    }

    /// The number of the next subscription.
    pub fn next_number(&self) -> u32 {
        self.list.last().map_or(1, |s| s.number + 1)
    }

    /// The subscription that writes into a table.
    pub fn of_table(&self, oid: u32) -> Option<&Subscription> {
        self.list.iter().find(|s| s.tables.contains(&oid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden: what an earlier release has stored must be read by every later one.
    #[test]
    fn the_stored_letters() {
        let mut options = SubscriptionOptions { enabled: true, copy_data: true, ..SubscriptionOptions::default() };
        assert_eq!(options.letters(), "ec");
        assert_eq!(SubscriptionOptions::parse_letters("ec"), Some(options));
        options = SubscriptionOptions { disable_on_error: true, ..SubscriptionOptions::default() };
        assert_eq!(options.letters(), "d");
        assert_eq!(SubscriptionOptions::parse_letters("d"), Some(options));
        for (synchronous_commit, letters) in SynchronousCommit::ALL.into_iter().zip(["d", "dl", "dw", "ds", "da"]) {
            options.synchronous_commit = synchronous_commit;
            assert_eq!(options.letters(), letters);
            assert_eq!(SubscriptionOptions::parse_letters(letters), Some(options));
            assert_eq!(SynchronousCommit::parse(synchronous_commit.name()), Some(synchronous_commit));
        }
        options = SubscriptionOptions { partition: true, ..SubscriptionOptions::default() };
        assert_eq!(options.letters(), "p");
        assert_eq!(SubscriptionOptions::parse_letters("p"), Some(options));
        assert_eq!(SubscriptionOptions::parse_letters(""), Some(SubscriptionOptions::default()));
        assert_eq!(SubscriptionOptions::parse_letters("ex"), None);
        assert_eq!(SynchronousCommit::parse("x"), None);
    }
}
