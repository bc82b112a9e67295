//! What the answer to a commit waits for besides this node's own disk.

use std::fmt;
use std::str::FromStr;

/// Levels, weakest first. Each includes those before it: a commit never gets less than its level says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub enum Level {
    /// Durable on this node; nothing is asked of a standby.
    #[default]
    Local,
    /// A standby has received it.
    Warm,
    /// It is durable on a standby.
    Hot,
    /// A standby shows it to readers.
    Commit,
}

/// Not the name of a level.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("\"{0}\" is not a level; levels are local, warm, hot and commit")]
pub struct NoSuchLevel(pub String);

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Local => "local",
            Level::Warm => "warm",
            Level::Hot => "hot",
            Level::Commit => "commit",
        })
    }
}

impl FromStr for Level {
    type Err = NoSuchLevel;

    fn from_str(name: &str) -> Result<Level, NoSuchLevel> {
        match name.to_ascii_lowercase().as_str() {
            // "cold" is its former name.
            "local" | "cold" => Ok(Level::Local),
            "warm" => Ok(Level::Warm),
            "hot" => Ok(Level::Hot),
            "commit" => Ok(Level::Commit),
            _ => Err(NoSuchLevel(name.to_owned())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Level;

    #[test]
    fn names_go_there_and_back_and_the_order_is_by_strength() {
        let levels = [Level::Local, Level::Warm, Level::Hot, Level::Commit];
        for level in levels {
            assert_eq!(level.to_string().parse(), Ok(level));
        }
        assert!(levels.windows(2).all(|pair| pair[0] < pair[1]));
        assert_eq!(Level::Local.to_string(), "local");
        assert_eq!("LOCAL".parse(), Ok(Level::Local));
        assert_eq!("cold".parse(), Ok(Level::Local));
        assert!("on".parse::<Level>().is_err());
    }
}
