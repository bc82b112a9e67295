//! File names as SQLite's URIs (sqlite.org/uri.html).

use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A `file:` URI for `path` with a query such as `mode=ro`. Every byte with another possible meaning is escaped, also
/// the single quote, so that the URI may be part of an SQL string.
pub fn sqlite_uri(path: &Path, query: &str) -> String {
    let mut uri = String::from("file:");
    // Two slashes at the start would begin a host name.
    let bytes = path.as_os_str().as_bytes();
    let doubled = bytes.iter().take_while(|b| **b == b'/').count().saturating_sub(1);
    for &byte in &bytes[doubled..] {
        if byte.is_ascii_alphanumeric() || b"/._-~".contains(&byte) {
            uri.push(byte.into());
        } else {
            // Writing to a String cannot fail.
            let _ = write!(uri, "%{byte:02x}");
        }
    }
    uri + "?" + query
}

#[cfg(test)]
mod tests {
    use super::sqlite_uri;
    use std::path::Path;

    #[test]
    fn nothing_in_a_name_is_taken_for_something_else() {
        assert_eq!(
            sqlite_uri(Path::new("//tmp/a b?c#'%é.db"), "mode=ro"),
            "file:/tmp/a%20b%3fc%23%27%25%c3%a9.db?mode=ro"
        );
    }
}
