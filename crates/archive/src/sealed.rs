//! Objects that only the holder of a key can read: the store sees sealed bytes.
//!
//! A place, an archive's or one with dumps, is encrypted as a whole or not at all. The object `keys/key.age` says that it is: a
//! random key of 32 bytes, in the age format, for the recipients that were named when the place was first written
//! ([`crate::keys`]). From that key come, by BLAKE3's key derivation, the keys of all objects and that of their names.
//!
//! A sealed object, little-endian:
//!
//! ```text
//! offset length
//!      0      8  magic "HFSEAL01"
//!      8      2  format version, 1
//!     10      6  zero
//!     16      8  the place's key: the first bytes of a hash of it
//!     24     32  salt, random
//!     56      8  zero
//!     64      n  the object in pieces of 65,536 bytes, the last one shorter or as long; each followed by its tag of 16 bytes
//! ```
//! Each piece is sealed with ChaCha20-Poly1305. The key is BLAKE3 of salt and name, keyed; the nonce is the piece's number
//! in 11 bytes, big-endian, and a byte that is 1 in the last piece; the header is authenticated with each. So a piece that was
//! changed, moved, left out or cut off, and an object under another object's name, are found.
//!
//! What the store can learn: names of objects (of an archive: trail, epochs, segments and a checksum of 32 bits; of dumps: time
//! and LSN), their number, sizes and times, which dumps were made and forgotten when, and that a chunk is used again. Names of
//! chunks are hashes under the key, so that nothing shows which content they have, and equal content in two places has two names.
//!
//! A store that loses or hides the key object does not turn an encrypted place into a plain one:
//!
//! | no `keys/key.age`, and | reading | writing |
//! |---|---|---|
//! | recipients are named, and the place is empty | nothing is there | the place becomes encrypted |
//! | recipients are named, and it has objects | refused | refused |
//! | an identity is named for this place, or other settings say that it is encrypted | refused | refused |
//! | neither | plain objects are read, sealed ones refused | plain |
//!
//! In a place that has its key no plain object is read, also if another program has put it there.
//!
//! Failure: without the key everything but a list of names is [`ArchiveError::NoKey`]; with another one it is
//! [`ArchiveError::WrongKey`]; an object that does not open is [`ArchiveError::Damaged`], one
//! that was sealed with another place's key [`ArchiveError::OtherKey`]; without the key object it is
//! [`ArchiveError::NoKeyObject`] or [`ArchiveError::KeyLost`]. A place that would become encrypted to recipients that the
//! named identity does not belong to is [`ArchiveError::NoPair`].

use crate::error::{ArchiveError, blocking};
use crate::keys::{KEY_BYTES, KEY_NAME, Keys, new_key, unwrap_key, wrap_key};
use crate::store::{Listed, Pending, Put, Store};
use bytes::Bytes;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use std::sync::Arc;
use tokio::sync::OnceCell;

pub const FORMAT_VERSION: u16 = 1;
const MAGIC: [u8; 8] = *b"HFSEAL01";
const HEADER_BYTES: usize = 64;
const PIECE_BYTES: usize = 64 << 10;
const TAG_BYTES: usize = 16;
const SEALED_PIECE_BYTES: usize = PIECE_BYTES + TAG_BYTES;
const KEY_OBJECT_BYTES_MAX: u64 = 1 << 20;
/// Where objects lie: those of an archive in folders of trails, which the first name lists, and the others.
const FOLDERS: [&str; 7] = ["", "dumps", "chunks", "running", "servers", "place", "places"];

/// The key of a place, and what comes from it.
#[derive(Clone)]
pub struct PlaceKey {
    id: [u8; 8],
    objects: [u8; 32],
    /// Under which chunks are named.
    pub names: [u8; 32],
}

impl PlaceKey {
    pub fn of(key: &[u8; KEY_BYTES]) -> PlaceKey {
        let mut id = [0; 8];
        id.copy_from_slice(&blake3::derive_key("holdfast 2026-11 id of a place's key", key)[..8]);
        PlaceKey {
            id,
            objects: blake3::derive_key("holdfast 2026-11 sealed objects of a place", key),
            names: blake3::derive_key("holdfast 2026-11 names of chunks of a place", key),
        }
    }

    fn piece_key(&self, salt: &[u8], name: &str) -> Result<LessSafeKey, String> {
        let mut hasher = blake3::Hasher::new_keyed(&self.objects);
        hasher.update(salt).update(name.as_bytes());
        let key = UnboundKey::new(&CHACHA20_POLY1305, hasher.finalize().as_bytes());
        key.map(LessSafeKey::new).map_err(|_| "no key can be made".to_owned())
    }
}

fn nonce(piece: usize, is_last: bool) -> Nonce {
    let mut bytes = [0; 12];
    bytes[3..11].copy_from_slice(&(piece as u64).to_be_bytes());
    bytes[11] = u8::from(is_last);
    Nonce::assume_unique_for_key(bytes)
}

/// Seals an object under its name.
fn seal(key: &PlaceKey, name: &str, salt: [u8; 32], object: &[u8]) -> Result<Vec<u8>, String> {
    let mut sealed = Vec::with_capacity(sealed_bytes(object.len() as u64) as usize);
    sealed.extend_from_slice(&MAGIC);
    sealed.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    sealed.extend_from_slice(&[0; 6]);
    sealed.extend_from_slice(&key.id);
    sealed.extend_from_slice(&salt);
    sealed.extend_from_slice(&[0; 8]);
    let header = sealed.clone();
    let piece_key = key.piece_key(&salt, name)?;
    let pieces = pieces(object.len() as u64) as usize;
    for piece in 0..pieces {
        let from = piece * PIECE_BYTES;
        let start = sealed.len();
        sealed.extend_from_slice(&object[from..object.len().min(from + PIECE_BYTES)]);
        let nonce = nonce(piece, piece + 1 == pieces);
        let tag = piece_key.seal_in_place_separate_tag(nonce, Aad::from(&header), &mut sealed[start..]);
        let tag = tag.map_err(|_| "it cannot be sealed".to_owned())?;
        sealed.extend_from_slice(tag.as_ref());
    }
    Ok(sealed)
}

/// An object has a piece even if it is empty.
fn pieces(bytes: u64) -> u64 {
    bytes.div_ceil(PIECE_BYTES as u64).max(1)
}

fn sealed_bytes(bytes: u64) -> u64 {
    HEADER_BYTES as u64 + bytes + pieces(bytes) * TAG_BYTES as u64
}

/// The length of an object by that of its sealed form.
fn plain_bytes(sealed: u64) -> u64 {
    let body = sealed.saturating_sub(HEADER_BYTES as u64);
    body.saturating_sub(body.div_ceil(SEALED_PIECE_BYTES as u64) * TAG_BYTES as u64)
}

/// Opens a sealed object, or its beginning: then the last piece that is there need not be the object's last.
fn open(key: &PlaceKey, (place, name): (&str, &str), sealed: &[u8], is_head: bool) -> Result<Vec<u8>, ArchiveError> {
    let damaged = |what: &str| ArchiveError::Damaged { name: name.to_owned(), what: what.to_owned() };
    let Some((header, mut body)) = sealed.split_at_checked(HEADER_BYTES) else {
        return Err(damaged("it is shorter than the header of a sealed object"));
    };
    if header[..8] != MAGIC {
        return Err(damaged("it is not sealed, in a place that is encrypted"));
    }
    let found = u16::from_le_bytes([header[8], header[9]]);
    if found > FORMAT_VERSION {
        return Err(ArchiveError::Newer { name: name.to_owned(), found, known: FORMAT_VERSION });
    }
    if header[16..24] != key.id {
        return Err(ArchiveError::OtherKey { name: name.to_owned(), place: place.to_owned() });
    }
    let piece_key = key.piece_key(&header[24..56], name).map_err(|what| damaged(&what))?;
    let mut object = Vec::with_capacity(body.len());
    for piece in 0.. {
        let (taken, rest) = body.split_at(body.len().min(SEALED_PIECE_BYTES));
        let ends = rest.is_empty();
        let open = |is_last: bool| {
            let mut bytes = taken.to_vec();
            let opened = piece_key.open_in_place(nonce(piece, is_last), Aad::from(header), &mut bytes);
            opened.ok().map(|plain| plain.len()).map(|length| {
                bytes.truncate(length);
                bytes
            })
        };
        let opened = open(ends).or_else(|| if ends && is_head { open(false) } else { None });
        let opened = opened.ok_or_else(|| {
            damaged("it does not open with the place's key: it is not what was sealed under its name")
        })?;
        object.extend_from_slice(&opened);
        body = rest;
        if ends {
            break;
        }
    }
    Ok(object)
}

/// A store of an encrypted place, or of one that is not: which one it is is found at the first operation.
pub struct SealedStore {
    inner: Arc<dyn Store>,
    keys: Keys,
    key: OnceCell<Option<Arc<PlaceKey>>>,
}

impl SealedStore {
    pub fn new(inner: Arc<dyn Store>, keys: Keys) -> SealedStore {
        SealedStore { inner, keys, key: OnceCell::new() }
    }

    /// The place's key; `None` where it is not encrypted. `writes`: a place without any object becomes encrypted where
    /// recipients are named.
    pub async fn key(&self, writes: bool) -> Result<Option<Arc<PlaceKey>>, ArchiveError> {
        let wants_key = writes && self.keys.encrypts();
        if let Some(found) = self.key.get()
            && (found.is_some() || !wants_key)
        {
            return Ok(found.clone());
        }
        let found = self.find_key(wants_key).await?;
        // A place that only was read so far may become encrypted.
        if found.is_some() || !self.keys.encrypts() {
            let _ = self.key.set(found.clone());
        }
        Ok(found)
    }

    /// Whether this process could read the place again that it is to write: refused is a place without a key for which the
    /// keys do not belong together, or an identity is missing. A place that has its key, or does not answer now, is
    /// judged when it is used.
    pub async fn check_keys(&self) -> Result<(), ArchiveError> {
        let keys = self.keys.clone();
        let checked = match keys.encrypts() && keys.identity.is_none() {
            true => Err(ArchiveError::NoKey { place: self.inner.place().to_owned() }),
            false => blocking(move || keys.check_pair()).await,
        };
        match checked {
            Err(error) if matches!(self.inner.get(KEY_NAME, KEY_OBJECT_BYTES_MAX).await, Ok(None)) => Err(error),
            _ => Ok(()),
        }
    }

    async fn find_key(&self, wants_key: bool) -> Result<Option<Arc<PlaceKey>>, ArchiveError> {
        loop {
            if let Some(key) = self.read_key().await? {
                return Ok(Some(key));
            }
            let keys = self.keys.clone();
            blocking(move || keys.check_pair()).await?;
            if !wants_key {
                return match self.keys.encrypts() || self.keys.allows_plain() {
                    // What is read there is looked at.
                    true => Ok(None),
                    false => Err(ArchiveError::NoKeyObject { place: self.inner.place().to_owned() }),
                };
            }
            for folder in FOLDERS {
                if let Some(key) = self.key_of_listed(&self.inner.list(folder).await?).await? {
                    return Ok(Some(key));
                }
            }
            let keys = self.keys.clone();
            let (key, object) = blocking(move || {
                let key = new_key()?;
                Ok((key, wrap_key(&keys, &key)?))
            })
            .await?;
            // Another program may have put its key meanwhile: that one counts.
            if self.inner.put_new(KEY_NAME, object.into()).await? == Put::Done {
                return Ok(Some(Arc::new(PlaceKey::of(&key))));
            }
        }
    }

    async fn read_key(&self) -> Result<Option<Arc<PlaceKey>>, ArchiveError> {
        let Some(object) = self.inner.get(KEY_NAME, KEY_OBJECT_BYTES_MAX).await? else { return Ok(None) };
        let (keys, place) = (self.keys.clone(), self.inner.place().to_owned());
        let key = blocking(move || unwrap_key(&keys, &place, &object)).await?;
        Ok(Some(Arc::new(PlaceKey::of(&key))))
    }

    /// Judges an object that was found in a place without a key; `None`: it is plain and may be. Its key, where another program
    /// has made the place encrypted meanwhile.
    async fn key_of_found(&self, name: &str, object: &[u8]) -> Result<Option<Arc<PlaceKey>>, ArchiveError> {
        let place = || self.inner.place().to_owned();
        if object.starts_with(&MAGIC) {
            let key = self.read_key().await?;
            return key.map(Some).ok_or_else(|| ArchiveError::KeyLost { place: place(), name: name.to_owned() });
        }
        if self.keys.encrypts() { Err(ArchiveError::NotEncrypted { place: place() }) } else { Ok(None) }
    }

    /// The same by the first object of a list that is there. Files that are being written are none.
    async fn key_of_listed(&self, listed: &[Listed]) -> Result<Option<Arc<PlaceKey>>, ArchiveError> {
        for Listed { name, .. } in listed.iter().filter(|object| !object.name.ends_with(".new")) {
            if let Some(begins) = self.inner.get_head(name, MAGIC.len() as u64).await? {
                return self.key_of_found(name, &begins).await;
            }
        }
        Ok(None)
    }

    async fn put_sealed(&self, name: &str, object: Bytes) -> Result<Put, ArchiveError> {
        let Some(key) = self.key(true).await? else { return self.inner.put_new(name, object).await };
        let owned = name.to_owned();
        let sealed = blocking(move || {
            let failed = |what: String| ArchiveError::store("seal", owned.clone(), what);
            let mut salt = [0; 32];
            SystemRandom::new().fill(&mut salt).map_err(|_| failed("the system gives no random bytes".to_owned()))?;
            seal(&key, &owned, salt, &object).map_err(failed)
        });
        self.inner.put_new(name, sealed.await?.into()).await
    }

    async fn get_opened(&self, name: &str, bytes_max: u64) -> Result<Option<Bytes>, ArchiveError> {
        let key = match self.key(false).await? {
            Some(key) => key,
            None => {
                let Some(found) = self.inner.get(name, bytes_max).await? else { return Ok(None) };
                match self.key_of_found(name, &found).await? {
                    None => return Ok(Some(found)),
                    Some(key) => key,
                }
            }
        };
        let Some(sealed) = self.inner.get(name, sealed_bytes(bytes_max)).await? else { return Ok(None) };
        let (place, name) = (self.inner.place().to_owned(), name.to_owned());
        blocking(move || open(&key, (&place, &name), &sealed, false)).await.map(|object| Some(object.into()))
    }

    async fn get_head_opened(&self, name: &str, bytes: u64) -> Result<Option<Bytes>, ArchiveError> {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let key = match self.key(false).await? {
            Some(key) => key,
            None => {
                let bytes = bytes.max(MAGIC.len() as u64);
                let Some(found) = self.inner.get_head(name, bytes).await? else { return Ok(None) };
                match self.key_of_found(name, &found).await? {
                    None => return Ok(Some(found.slice(..found.len().min(length)))),
                    Some(key) => key,
                }
            }
        };
        let wanted = HEADER_BYTES as u64 + pieces(bytes) * SEALED_PIECE_BYTES as u64;
        let Some(sealed) = self.inner.get_head(name, wanted).await? else { return Ok(None) };
        let mut object = open(&key, (self.inner.place(), name), &sealed, true)?;
        object.truncate(length);
        Ok(Some(object.into()))
    }

    /// Lengths are those of the objects before they were sealed.
    async fn listed(&self, mut listed: Vec<Listed>) -> Result<Vec<Listed>, ArchiveError> {
        let mut is_encrypted = self.key(false).await?.is_some();
        if !is_encrypted && self.keys.encrypts() {
            is_encrypted = self.key_of_listed(&listed).await?.is_some();
        }
        if is_encrypted {
            listed.retain(|object| object.name != KEY_NAME);
            listed.iter_mut().for_each(|object| object.bytes = plain_bytes(object.bytes));
        }
        Ok(listed)
    }
}

impl Store for SealedStore {
    fn place(&self) -> &str {
        self.inner.place()
    }

    fn put_new<'a>(&'a self, name: &'a str, object: Bytes) -> Pending<'a, Put> {
        Box::pin(self.put_sealed(name, object))
    }

    fn get<'a>(&'a self, name: &'a str, bytes_max: u64) -> Pending<'a, Option<Bytes>> {
        Box::pin(self.get_opened(name, bytes_max))
    }

    fn get_head<'a>(&'a self, name: &'a str, bytes: u64) -> Pending<'a, Option<Bytes>> {
        Box::pin(self.get_head_opened(name, bytes))
    }

    fn remove<'a>(&'a self, name: &'a str) -> Pending<'a, ()> {
        self.inner.remove(name)
    }

    fn list<'a>(&'a self, directory: &'a str) -> Pending<'a, Vec<Listed>> {
        Box::pin(async move { self.listed(self.inner.list(directory).await?).await })
    }

    fn list_from<'a>(&'a self, directory: &'a str, from: &'a str) -> Pending<'a, Vec<Listed>> {
        Box::pin(async move { self.listed(self.inner.list_from(directory, from).await?).await })
    }
}

#[cfg(test)]
mod tests;
