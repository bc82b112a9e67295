//! The subscriptions of one database, as its internal table `holdfast_subscriptions` holds them: from where it takes which
//! publications, and into which tables. No I/O and no SQL; `store` keeps them, `sql` reads statements about them, `node` follows
//! the publishers.
//!
//! Anchor: PostgreSQL 15, chapter 31 (Logical Replication), `pg_subscription`, `pg_subscription_rel`.
//!
//! Failure: an unknown letter among the options is refused; the caller treats it as damage.

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
}

/// What may be set WITH (...).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionOptions {
    pub enabled: bool,
    /// The rows that the tables have are copied first.
    pub copy_data: bool,
    /// An error disables the subscription; else it is tried again.
    pub disable_on_error: bool,
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
        let letters = [(self.enabled, 'e'), (self.copy_data, 'c'), (self.disable_on_error, 'd')];
        letters.into_iter().filter(|(on, _)| *on).map(|(_, letter)| letter).collect()
    }

    /// Reads [`SubscriptionOptions::letters`].
    pub fn parse_letters(text: &str) -> Option<SubscriptionOptions> {
        let has = |letter| text.contains(letter);
        let options = SubscriptionOptions { enabled: has('e'), copy_data: has('c'), disable_on_error: has('d') };
        text.chars().all(|c| "ecd".contains(c)).then_some(options)
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
