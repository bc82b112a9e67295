//! Reads in a refusal which server the operator has to use: "promote n2", "start n3", or a server's address.
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
pub struct Named {
    pub name: &'static str,
    /// HOST:PORT
    pub address: String,
}

/// What a message says before and after the name of a server that the operator has to use, and what it means.
type Phrase = (&'static str, &'static str, fn(usize) -> Advice);

const PHRASES: [Phrase; 9] = [
    ("promote ", "", Advice::Promote),
    ("promote --at ", "", Advice::Promote),
    ("promote the standby ", "", Advice::Promote),
    ("promote the server at ", "", Advice::Promote),
    ("standby ", " has acknowledged commits that", Advice::Promote),
    ("start ", "", Advice::Start),
    ("start the master ", "", Advice::Start),
    ("start the server at ", "", Advice::Start),
    ("cannot be reached: ", "", Advice::Start),
];

/// What stands between the names where a message has several.
const BETWEEN: [&str; 2] = [", ", " or "];

/// All that the text advises to do with servers that are not in `except`, in the order of the text.
pub fn find(text: &str, servers: &[Named], except: &[usize]) -> Vec<Advice> {
    let text = text.to_lowercase().replace(['`', '"'], "");
    let mut found: Vec<(usize, Advice)> = Vec::new();
    for (before, after, advice) in PHRASES {
        for (at, _) in text.match_indices(before) {
            let mut names = at + before.len();
            while let Some((which, end)) = server_at(&text, names, servers) {
                if text[end..].starts_with(after) && !except.contains(&which) {
                    found.push((names, advice(which)));
                }
                let Some(between) = BETWEEN.iter().find(|between| text[end..].starts_with(**between)) else { break };
                names = end + between.len();
            }
        }
    }
    found.sort_by_key(|(at, _)| *at);
    found.into_iter().map(|(_, advice)| advice).collect()
}

/// The server whose name or address stands there, and where that ends.
fn server_at(text: &str, at: usize, servers: &[Named]) -> Option<(usize, usize)> {
    servers.iter().enumerate().find_map(|(which, server)| {
        let is_word = |word: &&str| {
            let rest = text[at..].strip_prefix(*word);
            rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
        };
        let word = [server.name, server.address.as_str()].into_iter().find(is_word)?;
        Some((which, at + word.len()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(text: &str) -> Vec<Advice> {
        let named = |(name, port)| Named { name, address: format!("127.0.0.1:{port}") };
        find(text, &[("n1", 1), ("n2", 2), ("n3", 3)].map(named), &[0])
    }

    #[test]
    fn the_named_servers_are_found() {
        assert_eq!(advice("n3 has more of the trail; promote n3"), [Advice::Promote(2)]);
        assert_eq!(advice("Promote n1 or n2 (holdfast promote --at HOST:PORT)"), [Advice::Promote(1)]);
        assert_eq!(advice("run: holdfast promote --at 127.0.0.1:2"), [Advice::Promote(1)]);
        assert_eq!(advice("cannot be reached: n2, n3"), [Advice::Start(1), Advice::Start(2)]);
        assert_eq!(advice("Start the server at 127.0.0.1:2 and let n1 catch up"), [Advice::Start(1)]);
        let rolled_back = "from now on: standby n2 has acknowledged commits that this server lacks";
        assert_eq!(advice(rolled_back), [Advice::Promote(1)]);
    }

    #[test]
    fn advice_that_names_no_other_server_is_none() {
        assert_eq!(advice("promote n1; start it again"), []);
        assert_eq!(advice("promote a node that is in the sync set"), []);
        assert_eq!(advice("holdfast promote --at 127.0.0.1:29; standby n2 follows n1"), []);
    }
}
