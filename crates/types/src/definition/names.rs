//! The names that PostgreSQL gives to constraints, indexes and sequences without one.

/// PostgreSQL's longest name, in bytes.
const NAME_BYTES_MAX: usize = 63;

/// `table_label_suffix`, where the longer of table and label is shortened until the name fits.
pub fn default_name(table: &str, label: &str, suffix: &str) -> String {
    let marks = 1 + suffix.len() + usize::from(!label.is_empty());
    let room = NAME_BYTES_MAX.saturating_sub(marks);
    let (mut first, mut second) = (table.len(), label.len());
    while first + second > room {
        if first > second { first -= 1 } else { second -= 1 }
    }
    let mut parts = vec![cut(table, first)];
    parts.extend((!label.is_empty()).then(|| cut(label, second)));
    parts.push(suffix);
    parts.join("_")
}

/// The first bytes of a name, without a part of a character.
fn cut(name: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(name.len())).rev().find(|&end| name.is_char_boundary(end)).unwrap_or(0);
    &name[..end]
}

/// The name itself where it is free, else with the first number after its suffix that makes it so.
pub fn free(table: &str, label: &str, suffix: &str, mut is_free: impl FnMut(&str) -> bool) -> String {
    let wanted = default_name(table, label, suffix);
    if is_free(&wanted) {
        return wanted;
    }
    let numbered = (1..10_000_u32).map(|n| default_name(table, label, &format!("{suffix}{n}")));
    numbered.into_iter().find(|name| is_free(name)).unwrap_or(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_postgresqls() {
        assert_eq!(default_name("t", "a_b", "fkey"), "t_a_b_fkey");
        assert_eq!(default_name("t", "", "pkey"), "t_pkey");
        let (table, column) = ("t".repeat(50), "c".repeat(40));
        assert_eq!(default_name(&table, &column, "fkey"), format!("{}_{}_fkey", "t".repeat(29), "c".repeat(28)));
        assert_eq!(default_name(&"é".repeat(40), "", "pkey").len(), 2 * 29 + 5);
        assert_eq!(free("t", "a", "key", |name| name != "t_a_key" && name != "t_a_key1"), "t_a_key2");
    }
}
