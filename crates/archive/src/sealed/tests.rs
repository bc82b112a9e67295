use super::*;
use crate::file::FileStore;
use crate::keys::{Expects, new_identity};
use holdfast_seams::RealDisk;

fn key(byte: u8) -> PlaceKey {
    PlaceKey::of(&[byte; KEY_BYTES])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn golden_bytes() {
    let sealed = seal(&key(7), "chunks/a.hfc", [9; 32], b"pages").unwrap();
    assert_eq!(hex(&sealed[..16]), "48465345414c30310100000000000000");
    assert_eq!(sealed[16..24], key(7).id);
    assert_eq!(sealed[24..56], [9; 32]);
    assert_eq!(sealed[56..64], [0; 8]);
    assert_eq!(sealed.len(), 64 + 5 + 16);
    assert_eq!(hex(&key(7).id), GOLDEN_ID);
    assert_eq!(hex(&sealed[64..]), GOLDEN_SEALED);
}

const GOLDEN_ID: &str = "ceee8f992c3de878";
/// By Python: `blake3` and ChaCha20Poly1305 of `cryptography`.
const GOLDEN_SEALED: &str = "ed26c5cfb874d41e4c0fcd815fe94a70637220a629";

fn content(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 + at) as u8).collect()
}

#[test]
fn objects_of_every_length_come_back_and_so_do_their_beginnings() {
    for bytes in [0, 1, 64, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 3 * PIECE_BYTES + 77] {
        let object = content(bytes);
        let sealed = seal(&key(1), "n", [bytes as u8; 32], &object).unwrap();
        assert_eq!(sealed.len() as u64, sealed_bytes(bytes as u64));
        assert_eq!(plain_bytes(sealed.len() as u64), bytes as u64);
        assert_eq!(open(&key(1), ("p", "n"), &sealed, false).unwrap(), object);
        let head = &sealed[..sealed.len().min(HEADER_BYTES + SEALED_PIECE_BYTES)];
        assert_eq!(open(&key(1), ("p", "n"), head, true).unwrap(), object[..bytes.min(PIECE_BYTES)]);
    }
}

#[test]
fn every_damage_is_refused_by_name() {
    let object = content(2 * PIECE_BYTES);
    let sealed = seal(&key(1), "here", [3; 32], &object).unwrap();
    let refused = |key: &PlaceKey, name: &str, bytes: &[u8]| {
        let error = open(key, ("p", name), bytes, false).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    };
    for at in (0..HEADER_BYTES).chain([HEADER_BYTES, sealed.len() / 2, sealed.len() - 1]) {
        let mut bytes = sealed.clone();
        bytes[at] ^= 1;
        refused(&key(1), "here", &bytes);
    }
    // Cut off where a piece ends, too; two pieces in the other order; under another name; another place's.
    for length in [0, 10, HEADER_BYTES, HEADER_BYTES + SEALED_PIECE_BYTES, sealed.len() - 1] {
        refused(&key(1), "here", &sealed[..length]);
    }
    let (head, pieces) = sealed.split_at(HEADER_BYTES);
    let (first, second) = pieces.split_at(SEALED_PIECE_BYTES);
    refused(&key(1), "here", &[head, second, first].concat());
    refused(&key(1), "here", &[&sealed[..], second].concat());
    refused(&key(1), "there", &sealed);
    refused(&key(2), "here", &sealed);
    refused(&key(1), "here", &object);
    // A beginning is not taken for the whole, and a whole object's end is not left out of a beginning.
    let first_of_two = &sealed[..HEADER_BYTES + SEALED_PIECE_BYTES];
    assert_eq!(open(&key(1), ("p", "here"), first_of_two, true).unwrap(), object[..PIECE_BYTES]);
    let mut newer = sealed.clone();
    newer[8] = 2;
    assert!(matches!(open(&key(1), ("p", "here"), &newer, false), Err(ArchiveError::Newer { found: 2, .. })));
}

struct Bed {
    dir: tempfile::TempDir,
    recipient: String,
    identity: std::path::PathBuf,
}

impl Bed {
    fn new() -> Bed {
        let dir = tempfile::TempDir::new().unwrap();
        std::fs::create_dir(dir.path().join("place")).unwrap();
        let (text, recipient) = new_identity();
        let identity = dir.path().join("identity");
        std::fs::write(&identity, text).unwrap();
        Bed { dir, recipient, identity }
    }

    fn store(&self, encrypt_to: &[&str], identity: Option<&std::path::Path>) -> SealedStore {
        let inner = FileStore::new(Arc::new(RealDisk::new()), &self.dir.path().join("place"), "n");
        let encrypt_to = encrypt_to.iter().map(|recipient| (*recipient).to_owned()).collect();
        SealedStore::new(Arc::new(inner), Keys { encrypt_to, identity: identity.map(Into::into), ..Keys::default() })
    }
}

#[tokio::test]
async fn a_place_is_encrypted_from_its_first_object_on() {
    let bed = Bed::new();
    let object = Bytes::from(content(PIECE_BYTES + 5));
    // Only the recipient: it can be written by this process, and read by the holder of the identity.
    let writer = bed.store(&[&bed.recipient], None);
    assert_eq!(writer.put_new("chunks/a", object.clone()).await.unwrap(), Put::Done);
    assert_eq!(writer.get("chunks/a", 1 << 20).await.unwrap(), Some(object.clone()));
    let reader = bed.store(&[], Some(&bed.identity));
    assert_eq!(reader.get("chunks/a", 1 << 20).await.unwrap(), Some(object.clone()));
    assert_eq!(reader.get_head("chunks/a", 9).await.unwrap(), Some(object.slice(..9)));
    assert_eq!(reader.get("chunks/b", 9).await.unwrap(), None);
    assert_eq!(reader.list("chunks").await.unwrap(), [Listed { name: "chunks/a".into(), bytes: object.len() as u64 }]);
    assert_eq!(reader.put_new("chunks/b", object.clone()).await.unwrap(), Put::Done);
    let there = std::fs::read(bed.dir.path().join("place/chunks/a")).unwrap();
    assert!(!there.windows(64).any(|window| object.windows(64).step_by(64).any(|plain| plain == window)));
    // Without the key, or with another one, nothing is read and nothing is written.
    let (other, _) = new_identity();
    let wrong = bed.dir.path().join("wrong");
    std::fs::write(&wrong, other).unwrap();
    for store in [bed.store(&[], None), bed.store(&[&bed.recipient], None)] {
        for error in [
            store.get("chunks/a", 9).await.unwrap_err(),
            store.list("chunks").await.unwrap_err(),
            store.put_new("chunks/c", Bytes::new()).await.unwrap_err(),
        ] {
            assert!(matches!(error, ArchiveError::NoKey { .. }), "{error}");
        }
    }
    let error = bed.store(&[], Some(&wrong)).get("chunks/a", 9).await.unwrap_err();
    assert!(matches!(error, ArchiveError::WrongKey { .. }) && error.to_string().contains("wrong"), "{error}");
    std::fs::write(&wrong, "AGE-SECRET-KEY-1NONSENSE").unwrap();
    let error = bed.store(&[], Some(&wrong)).get("chunks/a", 9).await.unwrap_err().to_string();
    assert!(error.contains("wrong") && !error.contains("NONSENSE"), "{error}");
    // A key object that is damaged.
    let object = bed.dir.path().join("place").join(KEY_NAME);
    let good = std::fs::read(&object).unwrap();
    for bytes in [b"nonsense".to_vec(), good[..good.len() - 3].to_vec(), Vec::new()] {
        std::fs::write(&object, bytes).unwrap();
        let error = bed.store(&[], Some(&bed.identity)).get("chunks/a", 9).await.unwrap_err();
        assert!(matches!(error, ArchiveError::Damaged { .. }) && error.to_string().contains(KEY_NAME), "{error}");
    }
}

#[tokio::test]
async fn a_new_place_is_not_encrypted_to_recipients_of_another_identity() {
    let bed = Bed::new();
    let place = bed.dir.path().join("place");
    let (text, other) = new_identity();
    let identity = Some(bed.identity.as_path());
    let wrong = bed.store(&[&other], identity);
    for error in [
        wrong.put_new("chunks/a", Bytes::from_static(b"secret")).await.unwrap_err(),
        wrong.get("chunks/a", 9).await.unwrap_err(),
        wrong.list("chunks").await.unwrap_err(),
        wrong.check_keys().await.unwrap_err(),
    ] {
        let said = error.to_string();
        assert!(matches!(error, ArchiveError::NoPair { .. }) && error.needs_operator(), "{said}");
        assert!(said.contains(&format!("Name the recipient {}", bed.recipient)) && said.contains(&other), "{said}");
    }
    let error = bed.store(&[&other], None).check_keys().await.unwrap_err();
    assert!(matches!(error, ArchiveError::NoKey { .. }), "{error}");
    assert_eq!(std::fs::read_dir(&place).unwrap().count(), 0, "nothing was written");
    // One of several is enough.
    let both = bed.store(&[&other, &bed.recipient], identity);
    both.check_keys().await.unwrap();
    assert_eq!(both.put_new("chunks/a", Bytes::from_static(b"secret")).await.unwrap(), Put::Done);
    // The key is there: what counts is whether the identity opens it, and no longer who is named as a recipient.
    wrong.check_keys().await.unwrap();
    assert_eq!(wrong.get("chunks/a", 9).await.unwrap(), Some(Bytes::from_static(b"secret")));
    std::fs::write(&bed.identity, text).unwrap();
    assert_eq!(bed.store(&[], identity).get("chunks/a", 9).await.unwrap(), Some(Bytes::from_static(b"secret")));
}

#[tokio::test]
async fn a_place_with_plain_objects_does_not_become_encrypted() {
    let bed = Bed::new();
    bed.store(&[], None).put_new("chunks/a", Bytes::from_static(b"plain")).await.unwrap();
    for identity in [None, Some(bed.identity.as_path())] {
        let store = bed.store(&[&bed.recipient], identity);
        for error in [
            store.put_new("chunks/b", Bytes::new()).await.unwrap_err(),
            store.get("chunks/a", 9).await.unwrap_err(),
            store.get_head("chunks/a", 1).await.unwrap_err(),
            store.list("chunks").await.unwrap_err(),
        ] {
            assert!(matches!(error, ArchiveError::NotEncrypted { .. }), "{error}");
        }
        assert_eq!(store.list("dumps").await.unwrap(), []);
    }
    let error = bed.store(&["age1nonsense"], None).put_new("x/y", Bytes::new()).await.unwrap_err().to_string();
    assert!(error.contains("not encrypted"), "{error}");
}

/// An encrypted place whose store hides the key is neither read as a plain one nor written as one.
#[tokio::test]
async fn a_place_that_has_lost_its_key_is_refused() {
    let bed = Bed::new();
    let store = bed.store(&[&bed.recipient], Some(&bed.identity));
    store.put_new("chunks/a", Bytes::from_static(b"secret")).await.unwrap();
    let place = bed.dir.path().join("place");
    // Another program has put a plain object: it is not read where the key is there, either.
    std::fs::write(place.join("chunks/plain"), b"forged").unwrap();
    for error in [store.get("chunks/plain", 9).await.unwrap_err(), store.get_head("chunks/plain", 3).await.unwrap_err()]
    {
        assert!(matches!(&error, ArchiveError::Damaged { name, .. } if name == "chunks/plain"), "{error}");
    }
    let key = place.join(KEY_NAME);
    let kept = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    // What the store may be asked with: an identity; recipients; both; an identity that may be another place's; nothing.
    let identity = Some(bed.identity.as_path());
    for (encrypt_to, identity, expects) in [
        (None, identity, Expects::AsNamed),
        (None, None, Expects::Encrypted),
        (Some(&bed.recipient), None, Expects::AsNamed),
        (Some(&bed.recipient), identity, Expects::AsNamed),
        (None, identity, Expects::Either),
        (None, None, Expects::AsNamed),
    ] {
        let inner = FileStore::new(Arc::new(RealDisk::new()), &place, "n");
        let encrypt_to: Vec<String> = encrypt_to.into_iter().cloned().collect();
        let keys = Keys { encrypt_to, identity: identity.map(Into::into), expects };
        let said = format!("{keys:?}");
        let allows_plain = keys.allows_plain();
        let store = SealedStore::new(Arc::new(inner), keys);
        let refused = |error: ArchiveError| {
            let is_named = matches!(error, ArchiveError::KeyLost { .. } | ArchiveError::NoKeyObject { .. });
            assert!(is_named && error.to_string().contains(KEY_NAME), "{said}: {error}");
        };
        refused(store.get("chunks/a", 99).await.unwrap_err());
        refused(store.get_head("chunks/a", 1).await.unwrap_err());
        if !allows_plain {
            refused(store.put_new("chunks/b", Bytes::new()).await.unwrap_err());
            refused(store.list("chunks").await.unwrap_err());
            assert!(store.get("chunks/plain", 9).await.is_err(), "{said}");
            assert!(!place.join("chunks/b").exists() && !key.exists());
        }
    }
    // With the key back everything is there again.
    std::fs::write(&key, kept).unwrap();
    let store = bed.store(&[], Some(&bed.identity));
    assert_eq!(store.get("chunks/a", 9).await.unwrap(), Some(Bytes::from_static(b"secret")));
}

#[tokio::test]
async fn an_identity_of_another_place_reads_a_plain_one() {
    let bed = Bed::new();
    bed.store(&[], None).put_new("chunks/a", Bytes::from_static(b"plain")).await.unwrap();
    let inner = FileStore::new(Arc::new(RealDisk::new()), &bed.dir.path().join("place"), "n");
    let keys = Keys { encrypt_to: Vec::new(), identity: Some(bed.identity.clone()), expects: Expects::Either };
    let store = SealedStore::new(Arc::new(inner), keys);
    assert_eq!(store.get("chunks/a", 9).await.unwrap(), Some(Bytes::from_static(b"plain")));
    // Named for this place, it is a reason to refuse: an identity says that the place is encrypted.
    let store = bed.store(&[], Some(&bed.identity));
    for error in [
        store.get("chunks/a", 9).await.unwrap_err(),
        store.list("chunks").await.unwrap_err(),
        store.put_new("chunks/b", Bytes::new()).await.unwrap_err(),
    ] {
        assert!(matches!(error, ArchiveError::NoKeyObject { .. }), "{error}");
    }
}
