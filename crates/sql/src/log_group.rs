//! The groups in which `log_statement` divides statements, as PostgreSQL does.

use crate::scan::Piece;
use crate::session::after_comments;

/// What a statement changes, as far as `log_statement` asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogGroup {
    /// Changes definitions: logged by `ddl`, `mod` and `all`.
    Ddl,
    /// Changes data, or may do so: logged by `mod` and `all`.
    Mod,
    /// Everything else: logged by `all`.
    Other,
}

/// The group of a statement, by its first word. It need not be one that can be translated.
pub fn log_group(piece: &Piece<'_>) -> LogGroup {
    let text = after_comments(piece.text());
    let word = text.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default().to_ascii_lowercase();
    match word.as_str() {
        "create" | "alter" | "drop" | "comment" | "grant" | "revoke" | "reassign" | "reindex" | "analyze"
        | "vacuum" => LogGroup::Ddl,
        "insert" | "update" | "delete" | "truncate" | "copy" | "prepare" | "execute" | "explain" | "with" => {
            LogGroup::Mod
        }
        _ => LogGroup::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Scan;
    use holdfast_types::schema::Dialect;

    #[test]
    fn the_group_is_that_of_the_first_word_behind_comments() {
        for (text, group) in [
            (" CREATE table t(x int)", LogGroup::Ddl),
            ("insert into t values (1)", LogGroup::Mod),
            ("/* job 7 */ -- nightly\nDelete from t", LogGroup::Mod),
            ("/* alter */ select 1", LogGroup::Other),
            ("select 1", LogGroup::Other),
            ("(select 1)", LogGroup::Other),
        ] {
            let scan = Scan::new(text, Dialect::Postgres).unwrap();
            let group_of: Vec<LogGroup> = scan.pieces().map(|piece| log_group(&piece)).collect();
            assert_eq!(group_of, [group], "{text}");
        }
    }
}
