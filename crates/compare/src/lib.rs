//! Compares what a subscriber has with what its publisher publishes, as a client of both; either is a Holdfast or a PostgreSQL.
//!
//! | file | what |
//! |---|---|
//! | [`subscription`] | what there is to compare: publisher, tables, columns, filters |
//! | [`rows`] | the rows of one table on both sides, as hashes by key |
//! | [`settle`] | rows that differ are looked at again, until they are equal, or differ with nothing under way |
//!
//! Both sides may be written meanwhile. A row counts as different only if the publisher's row stayed as it was while the subscriber
//! applied everything that the publisher had by then, and its row is another one.
//!
//! How it fails: a side that cannot be asked ends the comparison with its error; a table that cannot be compared is named.

#![cfg_attr(not(test), warn(clippy::unwrap_used))]

mod rows;
mod settle;
mod subscription;

pub use settle::{Difference, Report, TableReport, compare};
pub use subscription::{CompareError, Subscription, subscriptions};
