//! How severe a notice is, in the order of `client_min_messages`.

/// The severity of a message to the client, least severe first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    Debug,
    Log,
    #[default]
    Notice,
    Warning,
    Error,
}

impl Severity {
    /// The severity behind a word of the protocol or of `client_min_messages`. INFO is always sent, as in PostgreSQL.
    pub fn named(word: &str) -> Severity {
        match word.to_ascii_lowercase().as_str() {
            "debug5" | "debug4" | "debug3" | "debug2" | "debug1" | "debug" => Severity::Debug,
            "log" => Severity::Log,
            "warning" => Severity::Warning,
            "notice" => Severity::Notice,
            _ => Severity::Error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Severity;

    #[test]
    fn the_order_is_that_of_client_min_messages() {
        let words = ["debug5", "LOG", "NOTICE", "WARNING", "error"].map(Severity::named);
        assert!(words.is_sorted());
        assert!(Severity::named("INFO") >= Severity::Error);
    }
}
