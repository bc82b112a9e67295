//! What the image of an update carries for subscribers, in addition to the columns that changed.
//!
//! A change of a row is not whole for a subscriber without its primary key, and whether the row is in a publication depends on
//! the columns of the filter. All published columns are carried as well, as PostgreSQL sends them: a subscriber may have the row from a
//! time before changes of it that were not published, so that the columns which change now would make a row that never existed
//! of it. A large value that did not change is left out, as PostgreSQL leaves out what it stores out of line: else each update of a
//! counter next to a picture would write the picture twice. When a column of a filter changes, the row may come into the
//! publication, and then all of it is carried. The trail's format has no place of its own for this: a carried column is
//! one that changed from a value to the same value.
//!
//! Failure: none; a table of no publication carries nothing.

use crate::publications::in_filter;
use holdfast_types::publication::{Publications, PublishedTable};

/// A longer value that did not change is left out (`TOAST_TUPLE_THRESHOLD` in PostgreSQL, where a row is meant).
pub const UNCHANGED_BYTES_MAX: usize = 2000;

/// Positions of stored columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The primary key, where it is not the image's own key, and the columns of filters.
    pub always: Vec<usize>,
    /// The columns of filters.
    pub filter: Vec<usize>,
    /// Every published column: carried when it is not large, or a column of a filter changes.
    pub published: Vec<usize>,
}

/// What the images of a table carry; `None` if no publication has it. `columns` are its stored columns, `key` those of its
/// primary key that are not in the image's own key.
pub(crate) fn carried(
    publications: &Publications,
    table: u32,
    columns: impl Iterator<Item = impl AsRef<str>> + Clone,
    key: Vec<usize>,
) -> Option<Carried> {
    let all = publications.list.iter().any(|p| p.all_tables);
    let entries: Vec<&PublishedTable> = publications.of_table(table).map(|(_, entry)| entry).collect();
    if !all && entries.is_empty() {
        return None;
    }
    let whole = all || entries.iter().any(|entry| entry.columns.is_none());
    let positions = |is_in: &dyn Fn(&str) -> bool| -> Vec<usize> {
        columns.clone().enumerate().filter(|(_, name)| is_in(name.as_ref())).map(|(position, _)| position).collect()
    };
    let filter = positions(&|name| entries.iter().any(|entry| in_filter(entry, name)));
    let listed = |name: &str| entries.iter().flat_map(|e| e.columns.iter().flatten()).any(|column| column == name);
    let published = positions(&|name| whole || listed(name));
    let mut always = key;
    always.extend(&filter);
    Some(Carried { always, filter, published })
}
