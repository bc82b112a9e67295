//! The key of an encrypted place, wrapped for its recipients in the age format (age-encryption.org/v1).
//!
//! `keys/key.age` is an age file in binary form; its content is one line of text, so that the age program can read it, and wrap
//! the key for other recipients:
//!
//! ```text
//! HOLDFAST-KEY-1 <64 hexadecimal digits>
//! ```
//! Recipients are those of age-keygen (`age1...`), identities its files (`AGE-SECRET-KEY-1...`, comments allowed).
//!
//! Failure: each is an error that names the file or the place, never a guess.

use crate::error::ArchiveError;
use age::secrecy::ExposeSecret;
use age::x25519::{Identity, Recipient};
use ring::rand::{SecureRandom, SystemRandom};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

pub const KEY_NAME: &str = "keys/key.age";
pub const KEY_BYTES: usize = 32;
const MARK: &str = "HOLDFAST-KEY-1 ";
const IDENTITY_FILE_BYTES_MAX: u64 = 1 << 20;

/// How a place is encrypted and read.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Keys {
    /// Recipients of a place that is written for the first time; none: it is not encrypted.
    pub encrypt_to: Vec<String>,
    /// A file with identities, to read an encrypted place.
    pub identity: Option<PathBuf>,
    pub expects: Expects,
}

/// What a place without a key object is taken for. The store can hide that object, so its absence alone shows nothing.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Expects {
    /// A plain place where neither recipients nor an identity are named, else one that has lost its key.
    #[default]
    AsNamed,
    /// Either: the identity is named for another place, and may be needed here, too.
    Either,
    /// One that has lost its key: other settings say that it is encrypted.
    Encrypted,
}

impl Keys {
    /// Whether a new place becomes encrypted.
    pub fn encrypts(&self) -> bool {
        !self.encrypt_to.is_empty()
    }

    /// Whether a place without a key object may be plain.
    pub(crate) fn allows_plain(&self) -> bool {
        match self.expects {
            Expects::AsNamed => self.encrypt_to.is_empty() && self.identity.is_none(),
            Expects::Either => true,
            Expects::Encrypted => false,
        }
    }

    /// Every recipient is one, and the identity file can be read: what can be known before a place is.
    pub fn check(&self) -> Result<(), ArchiveError> {
        self.recipients()?;
        self.identity.as_deref().map_or(Ok(()), |file| identities(file).map(drop))
    }

    /// Where both are named, an identity in the file is that of a recipient. It need not be for a place that has its key:
    /// the key may have been encrypted again to others than those that are named here.
    pub fn check_pair(&self) -> Result<(), ArchiveError> {
        let (Some(file), true) = (&self.identity, self.encrypts()) else { return Ok(()) };
        let recipients: Vec<String> = self.recipients()?.iter().map(Recipient::to_string).collect();
        let own: Vec<String> = identities(file)?.iter().map(|identity| identity.to_public().to_string()).collect();
        match own.iter().any(|own| recipients.contains(own)) {
            true => Ok(()),
            false => Err(ArchiveError::NoPair {
                recipients: recipients.join(" "),
                file: file.display().to_string(),
                own: own.join(" "),
            }),
        }
    }

    fn recipients(&self) -> Result<Vec<Recipient>, ArchiveError> {
        let parse = |text: &String| {
            let recipient = Recipient::from_str(text.trim());
            recipient.map_err(|why| ArchiveError::Recipient { text: text.clone(), what: why.to_owned() })
        };
        self.encrypt_to.iter().map(parse).collect()
    }
}

/// The identities in a file.
fn identities(file: &Path) -> Result<Vec<Identity>, ArchiveError> {
    let failed = |what: String| ArchiveError::Identity { file: file.display().to_string(), what };
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(|e| failed(e.to_string()))?;
    opened.take(IDENTITY_FILE_BYTES_MAX).read_to_string(&mut text).map_err(|e| failed(e.to_string()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let identities: Result<Vec<Identity>, _> = lines.map(Identity::from_str).collect();
    // The line is a secret.
    let identities =
        identities.map_err(|_| failed("a line in it is not an identity AGE-SECRET-KEY-1...".to_owned()))?;
    if identities.is_empty() { Err(failed("it has no identity".to_owned())) } else { Ok(identities) }
}

/// A random key.
pub fn new_key() -> Result<[u8; KEY_BYTES], ArchiveError> {
    let mut key = [0; KEY_BYTES];
    let random = SystemRandom::new().fill(&mut key);
    random.map_err(|_| ArchiveError::store("make", KEY_NAME, "the system gives no random bytes"))?;
    Ok(key)
}

/// The object of a key, for the recipients.
pub fn wrap_key(keys: &Keys, key: &[u8; KEY_BYTES]) -> Result<Vec<u8>, ArchiveError> {
    let failed = |what: String| ArchiveError::store("make", KEY_NAME, what);
    let recipients = keys.recipients()?;
    let encryptor =
        age::Encryptor::with_recipients(recipients.iter().map(|recipient| recipient as &dyn age::Recipient));
    let encryptor = encryptor.map_err(|e| failed(e.to_string()))?;
    let mut object = Vec::new();
    let mut writer = encryptor.wrap_output(&mut object).map_err(|e| failed(e.to_string()))?;
    let hex = key.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
    writer.write_all(format!("{MARK}{hex}\n").as_bytes()).map_err(|e| failed(e.to_string()))?;
    writer.finish().map_err(|e| failed(e.to_string()))?;
    Ok(object)
}

/// The key in an object of `place`.
pub fn unwrap_key(keys: &Keys, place: &str, object: &[u8]) -> Result<[u8; KEY_BYTES], ArchiveError> {
    let Some(file) = &keys.identity else { return Err(ArchiveError::NoKey { place: place.to_owned() }) };
    let damaged = |what: String| ArchiveError::Damaged { name: KEY_NAME.to_owned(), what };
    let identities = identities(file)?;
    let decryptor = age::Decryptor::new_buffered(object).map_err(|e| damaged(e.to_string()))?;
    let opened = decryptor.decrypt(identities.iter().map(|identity| identity as &dyn age::Identity));
    let reader = opened.map_err(|error| match error {
        age::DecryptError::NoMatchingKeys => {
            ArchiveError::WrongKey { place: place.to_owned(), file: file.display().to_string() }
        }
        other => damaged(other.to_string()),
    })?;
    let mut text = String::new();
    reader.take(KEY_OBJECT_TEXT_MAX).read_to_string(&mut text).map_err(|e| damaged(e.to_string()))?;
    parse(&text).ok_or_else(|| damaged("it does not have a key".to_owned()))
}

const KEY_OBJECT_TEXT_MAX: u64 = 4096;

fn parse(text: &str) -> Option<[u8; KEY_BYTES]> {
    let digits = text.trim_end().strip_prefix(MARK)?;
    let mut key = [0; KEY_BYTES];
    if digits.len() != 2 * KEY_BYTES || !digits.is_ascii() {
        return None;
    }
    for (place, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(key)
}

/// A new identity as age-keygen writes its file, and its recipient.
pub fn new_identity() -> (String, String) {
    let identity = Identity::generate();
    let recipient = identity.to_public().to_string();
    let text = format!("# public key: {recipient}\n{}\n", identity.to_string().expose_secret());
    (text, recipient)
}
