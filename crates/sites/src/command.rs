//! Reads the commands of PostgreSQL's replication protocol. A session that speaks it may send SQL as well; [`parse`] returns
//! `None` for that.
//!
//! ```text
//! IDENTIFY_SYSTEM
//! CREATE_REPLICATION_SLOT name [TEMPORARY] LOGICAL plugin [(option [value], ...) | option ...]
//! DROP_REPLICATION_SLOT name [WAIT]
//! START_REPLICATION SLOT name LOGICAL lsn [(option 'value', ...)]
//! ```
//!
//! Source: the PostgreSQL 15 manual, 55.4; `repl_gram.y`.
//!
//! Failure: 42601 for another form, 0A000 for what only physical replication has.

use holdfast_types::lsn::parse_lsn;
use holdfast_types::{SqlError, SqlResult, SqlState};

/// A replication command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    IdentifySystem,
    CreateSlot {
        name: String,
        temporary: bool,
        plugin: String,
        snapshot: Snapshot,
        two_phase: bool,
    },
    /// `waits`: until no session reads it.
    DropSlot {
        name: String,
        waits: bool,
    },
    Start {
        name: String,
        lsn: u64,
        options: Vec<(String, String)>,
    },
}

/// What becomes of the snapshot at a new slot's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Snapshot {
    Export,
    Use,
    Nothing,
}

/// First words of commands.
const WORDS: [&str; 7] = [
    "IDENTIFY_SYSTEM",
    "CREATE_REPLICATION_SLOT",
    "DROP_REPLICATION_SLOT",
    "START_REPLICATION",
    "READ_REPLICATION_SLOT",
    "TIMELINE_HISTORY",
    "BASE_BACKUP",
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// As written.
    Word(String),
    Quoted(String),
    Text(String),
    Sign(char),
}

/// Whether a message is a command of the replication protocol.
pub fn is_command(text: &str) -> bool {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_alphabetic() && c != '_').unwrap_or(text.len());
    WORDS.iter().any(|word| word.eq_ignore_ascii_case(&text[..end]))
}

/// Reads a command; `None` for anything else, which is SQL.
pub fn parse(text: &str) -> Option<SqlResult<Command>> {
    is_command(text).then(|| Parser { tokens: tokens(text)?, at: 0 }.command())
}

fn syntax(what: impl AsRef<str>) -> SqlError {
    SqlError::new(SqlState::SYNTAX_ERROR, format!("syntax error in a replication command: {}", what.as_ref()))
}

fn tokens(text: &str) -> SqlResult<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            c if c.is_whitespace() => {}
            '"' | '\'' => {
                let mut quoted = String::new();
                loop {
                    match rest.next() {
                        None => return Err(syntax("unterminated quoted text")),
                        Some(end) if end == c && rest.peek() == Some(&c) => quoted.extend(rest.next()),
                        Some(end) if end == c => break,
                        Some(other) => quoted.push(other),
                    }
                }
                tokens.push(if c == '"' { Token::Quoted(quoted) } else { Token::Text(quoted) });
            }
            '(' | ')' | ',' | ';' => tokens.push(Token::Sign(c)),
            c if c.is_alphanumeric() || c == '_' => {
                let mut word = String::from(c);
                while let Some(c) = rest.next_if(|c| c.is_alphanumeric() || matches!(c, '_' | '/' | '$')) {
                    word.push(c);
                }
                tokens.push(Token::Word(word));
            }
            other => return Err(syntax(format!("unexpected \"{other}\""))),
        }
    }
    if tokens.last() == Some(&Token::Sign(';')) {
        tokens.pop();
    }
    Ok(tokens)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn next(&mut self) -> Option<Token> {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned()
    }

    /// Takes a word if it comes next.
    fn takes(&mut self, word: &str) -> bool {
        let is_it = matches!(self.tokens.get(self.at), Some(Token::Word(found)) if found.eq_ignore_ascii_case(word));
        self.at += usize::from(is_it);
        is_it
    }

    fn takes_sign(&mut self, sign: char) -> bool {
        let is_it = self.tokens.get(self.at) == Some(&Token::Sign(sign));
        self.at += usize::from(is_it);
        is_it
    }

    fn expect(&mut self, word: &str) -> SqlResult<()> {
        if self.takes(word) { Ok(()) } else { Err(syntax(format!("{word} expected"))) }
    }

    fn name(&mut self) -> SqlResult<String> {
        match self.next() {
            Some(Token::Quoted(name)) => Ok(name),
            Some(Token::Word(name)) => Ok(name.to_lowercase()),
            _ => Err(syntax("a name expected")),
        }
    }

    fn end(&self) -> SqlResult<()> {
        if self.at >= self.tokens.len() { Ok(()) } else { Err(syntax("unexpected text at the end")) }
    }

    fn command(mut self) -> SqlResult<Command> {
        if self.takes("IDENTIFY_SYSTEM") {
            return self.end().map(|()| Command::IdentifySystem);
        }
        if self.takes("CREATE_REPLICATION_SLOT") {
            return self.create_slot();
        }
        if self.takes("DROP_REPLICATION_SLOT") {
            let name = self.name()?;
            let waits = self.takes("WAIT");
            return self.end().map(|()| Command::DropSlot { name, waits });
        }
        if self.takes("START_REPLICATION") {
            return self.start();
        }
        Err(physical())
    }

    fn create_slot(&mut self) -> SqlResult<Command> {
        let name = self.name()?;
        let temporary = self.takes("TEMPORARY");
        if self.takes("PHYSICAL") {
            return Err(physical());
        }
        self.expect("LOGICAL")?;
        let plugin = self.name()?;
        let (mut snapshot, mut two_phase) = (Snapshot::Export, false);
        if self.takes_sign('(') {
            for (option, value) in self.options()? {
                match (option.to_ascii_lowercase().as_str(), value.to_ascii_lowercase().as_str()) {
                    ("snapshot", "export") => snapshot = Snapshot::Export,
                    ("snapshot", "use") => snapshot = Snapshot::Use,
                    ("snapshot", "nothing") => snapshot = Snapshot::Nothing,
                    ("two_phase", value) => two_phase = !matches!(value, "false" | "off" | "0"),
                    _ => return Err(syntax(format!("unrecognized option: {option} {value}"))),
                }
            }
        } else {
            // The form before PostgreSQL 15.
            loop {
                match () {
                    () if self.takes("EXPORT_SNAPSHOT") => snapshot = Snapshot::Export,
                    () if self.takes("NOEXPORT_SNAPSHOT") => snapshot = Snapshot::Nothing,
                    () if self.takes("USE_SNAPSHOT") => snapshot = Snapshot::Use,
                    () if self.takes("TWO_PHASE") => two_phase = true,
                    () => break,
                }
            }
        }
        self.end()?;
        Ok(Command::CreateSlot { name, temporary, plugin, snapshot, two_phase })
    }

    fn start(&mut self) -> SqlResult<Command> {
        if !self.takes("SLOT") {
            return Err(physical());
        }
        let name = self.name()?;
        if !self.takes("LOGICAL") {
            return Err(physical());
        }
        let lsn = match self.next() {
            Some(Token::Word(text)) => parse_lsn(&text).ok_or_else(|| syntax(format!("\"{text}\" is no LSN")))?,
            _ => return Err(syntax("an LSN expected")),
        };
        let options = if self.takes_sign('(') { self.options()? } else { Vec::new() };
        self.end()?;
        Ok(Command::Start { name, lsn, options })
    }

    /// Options up to the closing parenthesis, each with its value, empty for none.
    fn options(&mut self) -> SqlResult<Vec<(String, String)>> {
        let mut options = Vec::new();
        loop {
            let option = self.name()?;
            let value = match self.tokens.get(self.at) {
                Some(Token::Text(value) | Token::Word(value)) => {
                    self.at += 1;
                    value.clone()
                }
                _ => String::new(),
            };
            options.push((option, value));
            if self.takes_sign(')') {
                return Ok(options);
            }
            if !self.takes_sign(',') {
                return Err(syntax("\",\" or \")\" expected"));
            }
        }
    }
}

fn physical() -> SqlError {
    SqlError::unsupported("physical replication over the clients' port")
        .with_hint("A standby is made with: holdfast standby create. Logical replication works.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Command {
        parse(text).expect("a command").unwrap()
    }

    fn state(text: &str) -> &'static str {
        parse(text).expect("a command").unwrap_err().state().0
    }

    /// What pg_recvlogical and a stock subscriber send.
    #[test]
    fn commands_of_stock_clients() {
        assert_eq!(read("IDENTIFY_SYSTEM"), Command::IdentifySystem);
        let slot = |name: &str, snapshot, two_phase| Command::CreateSlot {
            name: name.into(),
            temporary: false,
            plugin: "pgoutput".into(),
            snapshot,
            two_phase,
        };
        let text = "CREATE_REPLICATION_SLOT \"Pe\"\"ople\" LOGICAL pgoutput (SNAPSHOT 'nothing')";
        assert_eq!(read(text), slot("Pe\"ople", Snapshot::Nothing, false));
        let text = "CREATE_REPLICATION_SLOT \"s\" LOGICAL \"pgoutput\" (TWO_PHASE,  SNAPSHOT 'use');";
        assert_eq!(read(text), slot("s", Snapshot::Use, true));
        let text = "create_replication_slot S LOGICAL pgoutput NOEXPORT_SNAPSHOT";
        assert_eq!(read(text), slot("s", Snapshot::Nothing, false));
        assert_eq!(read("DROP_REPLICATION_SLOT \"x\" WAIT"), Command::DropSlot { name: "x".into(), waits: true });
        let text =
            "START_REPLICATION SLOT \"people\" LOGICAL 0/15354E8 (proto_version '3', publication_names '\"people\"')";
        let option = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let options = vec![option("proto_version", "3"), option("publication_names", "\"people\"")];
        assert_eq!(read(text), Command::Start { name: "people".into(), lsn: 0x15354E8, options });
    }

    #[test]
    fn other_texts() {
        assert_eq!(parse("SELECT pg_catalog.set_config('search_path', '', false)"), None);
        assert_eq!(parse("show wal_segment_size"), None);
        for text in [
            "CREATE_REPLICATION_SLOT",
            "CREATE_REPLICATION_SLOT x LOGICAL",
            "CREATE_REPLICATION_SLOT x LOGICAL p (snapshot 'other')",
            "START_REPLICATION SLOT x LOGICAL nowhere",
            "START_REPLICATION SLOT x LOGICAL 0/0 (a 'b'",
            "START_REPLICATION SLOT 'x' LOGICAL 0/0",
            "DROP_REPLICATION_SLOT x y",
            "IDENTIFY_SYSTEM \"",
        ] {
            assert_eq!(state(text), "42601", "{text}");
        }
        for text in ["START_REPLICATION 0/0", "BASE_BACKUP", "CREATE_REPLICATION_SLOT x PHYSICAL", "TIMELINE_HISTORY 1"]
        {
            assert_eq!(state(text), "0A000", "{text}");
        }
    }
}
