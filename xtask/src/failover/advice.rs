//! Reads in a refusal which server the operator has to use: "promote b", "start c", or a server's address.
//!
//! A refusal is a correct answer only if it names the server that has the data. The test does what the refusal says, and
//! then looks whether everything is there.

/// What a refusal tells the operator to do with the server of this index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    Promote(usize),
    Start(usize),
}

/// A server as messages name it.
pub struct Named<'a> {
    pub name: &'a str,
    /// HOST:PORT
    pub address: String,
}

/// The first advice in the text that names another server than `asked`.
pub fn find(text: &str, servers: &[Named<'_>], asked: usize) -> Option<Advice> {
    let text = text.replace(['`', '"'], "");
    let mut found: Vec<(usize, Advice)> = Vec::new();
    for (which, server) in servers.iter().enumerate().filter(|(which, _)| *which != asked) {
        for subject in [server.name, &server.address] {
            for (verb, advice) in VERBS {
                let at = position(&text, &format!("{verb}{subject}"));
                found.extend(at.map(|at| (at, advice(which))));
            }
        }
    }
    found.into_iter().min_by_key(|(at, _)| *at).map(|(_, advice)| advice)
}

/// How a message names a server that the operator has to use.
const VERBS: [(&str, fn(usize) -> Advice); 8] = [
    ("promote ", Advice::Promote),
    ("promote --at ", Advice::Promote),
    ("promote the standby ", Advice::Promote),
    ("promote the server at ", Advice::Promote),
    ("start ", Advice::Start),
    ("start the master ", Advice::Start),
    ("start the server at ", Advice::Start),
    ("cannot be reached: ", Advice::Start),
];

/// Where the words stand, not as the beginning of a longer word.
fn position(text: &str, words: &str) -> Option<usize> {
    let lower = text.to_lowercase();
    let ends = |at: &usize| !lower[at + words.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_');
    lower.match_indices(&words.to_lowercase()).map(|(at, _)| at).find(ends)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers() -> [Named<'static>; 3] {
        [("n1", 1), ("n2", 2), ("n3", 3)].map(|(name, port)| Named { name, address: format!("127.0.0.1:{port}") })
    }

    #[test]
    fn the_named_server_is_found() {
        let advice = |text| find(text, &servers(), 0);
        assert_eq!(advice("n3 has more of the trail; promote n3"), Some(Advice::Promote(2)));
        assert_eq!(advice("run: holdfast promote --at 127.0.0.1:2"), Some(Advice::Promote(1)));
        assert_eq!(advice("cannot be reached: n2"), Some(Advice::Start(1)));
        assert_eq!(advice("Start n2 and try again"), Some(Advice::Start(1)));
    }

    #[test]
    fn advice_that_names_no_other_server_is_none() {
        let advice = |text| find(text, &servers(), 0);
        assert_eq!(advice("promote n1; start it again"), None);
        assert_eq!(advice("promote a node that is in the sync set"), None);
        assert_eq!(advice("holdfast promote --at 127.0.0.1:29"), None);
    }
}
