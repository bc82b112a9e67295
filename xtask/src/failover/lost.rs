//! Reads what `holdfast rejoin` has written down: which of the recorder's transactions stand in a lost-*.sql file.

use std::collections::HashSet;
use std::path::Path;

use anyhow::Context as _;

/// How the recorder's transactions begin, as rejoin writes them.
const ROW: &str = "INSERT INTO \"ack\" (\"id\", \"client\", \"note\") VALUES (";

/// The ids of the recorder's transactions in these files.
pub fn ids<'a>(files: impl IntoIterator<Item = &'a Path>) -> anyhow::Result<HashSet<i64>> {
    let mut found = HashSet::new();
    for file in files {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        found.extend(ids_in(&text).with_context(|| file.display().to_string())?);
    }
    Ok(found)
}

fn ids_in(text: &str) -> anyhow::Result<Vec<i64>> {
    let values = text.lines().filter_map(|line| line.strip_prefix(ROW));
    let id = |values: &str| values.split(',').next().and_then(|id| id.trim_matches('\'').parse().ok());
    values.map(|values| id(values).with_context(|| format!("a row without its id: {values}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rows_of_the_recorder_count() {
        let text = "-- database holdfast\nBEGIN;\n\
            INSERT INTO \"ack\" (\"id\", \"client\", \"note\") VALUES ('17', '3', 'x');\n\
            INSERT INTO \"ack_part\" (\"id\", \"part\", \"note\") VALUES ('18', '1', 'x');\nCOMMIT;\n";
        assert_eq!(ids_in(text).unwrap(), [17]);
        assert!(ids_in("INSERT INTO \"ack\" (\"id\", \"client\", \"note\") VALUES (x, 3, 'x');\n").is_err());
    }
}
