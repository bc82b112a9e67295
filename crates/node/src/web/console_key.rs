//! `console.key` in the data directory: where the console is, and the key of its one-time logins. Only the directory's owner can read
//! it, and so make a login without a password.
//!
//! The file is written at every start with an HTTP listener, with a new key, and removed at a clean stop. It is not synced: after a
//! power cut the next start writes it.

use holdfast_web::one_time::{KEY_BYTES, from_hex, random_hex, ticket};
use serde::{Deserialize, Serialize};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FILE: &str = "console.key";

#[derive(Deserialize, Serialize)]
struct Content {
    /// Where the console is.
    url: String,
    /// In hexadecimal.
    key: String,
}

/// Why `holdfast console` has no address to show.
#[derive(Debug, thiserror::Error)]
pub enum ConsoleError {
    #[error(
        "{path} does not exist: no server with an HTTP listener runs on this directory. Set http_listen = \"127.0.0.1:8008\" in \
         its holdfast.toml and start the server again"
    )]
    None { path: String },
    #[error("cannot read {path}: {source}")]
    Io { path: String, source: io::Error },
    #[error("{path} is not what a server writes; start the server again")]
    Content { path: String },
    #[error("the system has no random numbers")]
    Random,
}

/// The file of a running server; dropping it removes the file.
pub(super) struct KeyFile {
    path: PathBuf,
    text: String,
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        // The next server may run already, with a file of its own.
        if std::fs::read_to_string(&self.path).is_ok_and(|text| text == self.text) {
            // The key is useless without the server.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// A new key.
pub(super) fn draw() -> io::Result<Vec<u8>> {
    random_hex::<KEY_BYTES>().and_then(|text| from_hex(&text)).ok_or_else(|| io::Error::other("no random numbers"))
}

/// Writes the file.
pub(super) fn write(dir: &Path, url: &str, key: &[u8]) -> io::Result<KeyFile> {
    let path = dir.join(FILE);
    let key = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let text = toml::to_string(&Content { url: url.to_owned(), key }).map_err(io::Error::other)?;
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    file.write_all(text.as_bytes())?;
    Ok(KeyFile { path, text })
}

/// The address of the console of the server that runs on `dir`, with a login that is good once, for one minute.
pub fn console_url(dir: &Path) -> Result<String, ConsoleError> {
    let path = dir.join(FILE);
    let shown = || path.display().to_string();
    let text = std::fs::read_to_string(&path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => ConsoleError::None { path: shown() },
        _ => ConsoleError::Io { path: shown(), source },
    })?;
    let content: Content = toml::from_str(&text).map_err(|_| ConsoleError::Content { path: shown() })?;
    let key = from_hex(&content.key).ok_or_else(|| ConsoleError::Content { path: shown() })?;
    let unix_s = u64::try_from(crate::clock::now_us() / 1_000_000).unwrap_or_default();
    let ticket = ticket(&key, unix_s).ok_or(ConsoleError::Random)?;
    // Behind the #: the browser does not send it, and so no log has it.
    Ok(format!("{}#ticket={ticket}", content.url))
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_web::one_time::Tickets;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_file_makes_tickets_for_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        assert!(console_url(dir.path()).unwrap_err().to_string().contains("http_listen"));
        let key = draw().unwrap();
        let file = write(dir.path(), "http://127.0.0.1:1/", &key).unwrap();
        let mode = std::fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let url = console_url(dir.path()).unwrap();
        let ticket = url.strip_prefix("http://127.0.0.1:1/#ticket=").unwrap();
        let now = u64::try_from(crate::clock::now_us() / 1_000_000).unwrap();
        assert!(Tickets::new(&key).take(ticket, now));
        std::fs::write(dir.path().join(FILE), "url = 1").unwrap();
        assert!(matches!(console_url(dir.path()), Err(ConsoleError::Content { .. })));
        drop(write(dir.path(), "http://127.0.0.1:1/", &key).unwrap());
        assert!(matches!(console_url(dir.path()), Err(ConsoleError::None { .. })));
        drop(file);
    }
}
