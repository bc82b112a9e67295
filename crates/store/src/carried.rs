//! What the image of an update carries for subscribers, in addition to the columns that changed.
//!
//! A change of a row is not whole for a subscriber without its primary key, and whether the row is in a publication depends on
//! the columns of the filter. When one of those changes, the row may come into the publication, and then the subscriber needs
//! all of it. The trail's format has no place of its own for this: a carried column is one that changed from a value to the
//! same value.
//!
//! Failure: none; a table of no publication carries nothing.

use crate::publications::in_filter;
use holdfast_types::publication::{Publications, PublishedTable};

/// Positions of stored columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The primary key, where it is not the image's own key, and the columns of filters.
    pub always: Vec<usize>,
    /// The columns of filters.
    pub filter: Vec<usize>,
    /// Every published column: carried when a column of a filter changes.
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
