//! Dumps and archives that the store cannot read.

use super::bed::{Bed, fill, sum};
use crate::node::{holdfast, refuses, run, succeeds};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Makes an identity; its file and its recipient.
fn key(bed: &Bed, name: &str) -> (PathBuf, String) {
    let file = bed.path(name);
    let recipient = succeeds(&["dump", "key", "--out", file.to_str().unwrap()]).trim().to_owned();
    assert!(recipient.starts_with("age1"), "{recipient}");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    (file, recipient)
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort_unstable();
    found
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    memchr::memmem::find(bytes, part).is_some()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dumps_and_archive_are_encrypted_and_read_with_the_identity_only() {
    let mut bed = Bed::start();
    let (identity, recipient) = key(&bed, "identity");
    let (other, _) = key(&bed, "other");
    let identity = identity.to_str().unwrap();
    assert!(bed.node.stop().success());
    // A new archive, as the first one has plain objects.
    let sealed = bed.path("sealed");
    std::fs::create_dir(&sealed).unwrap();
    bed.archive = sealed.clone();
    let toml = bed.node.dir.join("holdfast.toml");
    let settings = std::fs::read_to_string(&toml).unwrap();
    let without: Vec<&str> = settings.lines().filter(|line| !line.starts_with("archive ")).collect();
    std::fs::write(&toml, without.join("\n") + "\n").unwrap();
    bed.node.start();
    assert!(bed.node.stop().success());
    bed.node.configure(&format!(
        "archive = \"{}\"\narchive_encrypt_to = \"{recipient}\"\narchive_identity = \"{identity}\"",
        sealed.display()
    ));
    bed.node.start();
    let client = bed.node.connect().await;
    run(&client, "create table secret(v text); insert into secret values ('a word that no store may read')").await;
    fill(&client, 9).await;
    let at = bed.node.at();
    let create = bed.create_arguments(&at);
    let first: Value = serde_json::from_str(&succeeds(&[&create[..], &["--encrypt-to", &recipient]].concat())).unwrap();
    run(&client, "update t set v = 'x' where id <= 10").await;
    let second: Value = serde_json::from_str(&succeeds(&[&create[..], &["--identity", identity]].concat())).unwrap();
    let stored = |dump: &Value| dump["stored_bytes"].as_u64().unwrap();
    assert!(stored(&second) * 4 < stored(&first), "chunks are still used again: {first} {second}");
    fill(&client, 2).await;
    run(&client, "insert into secret values ('another word')").await;
    let expected = sum(&bed.node).await;
    bed.until_archived(&client).await;
    let objects: Vec<PathBuf> = files(&bed.dumps).into_iter().chain(files(&sealed)).collect();
    assert!(objects.len() > 6, "{objects:?}");
    for object in &objects {
        let bytes = std::fs::read(object).unwrap();
        let is_plain =
            ["no store may", "another word", "create table", "CREATE TABLE", "holdfast.toml", "SQLite format"]
                .into_iter()
                .find(|word| has(&bytes, word.as_bytes()));
        assert_eq!(is_plain, None, "{object:?}");
        let begins = if object.ends_with("key.age") { &b"age-encryption.org/v1"[..] } else { b"HFSEAL01" };
        assert!(bytes.starts_with(begins), "{object:?}");
    }
    // Nothing without the identity, nothing with another one.
    let (from, data) = (["--from", bed.place()], bed.path("restored"));
    let restore = [&["restore"], &from[..], &["--data", data.to_str().unwrap()]].concat();
    for command in [
        &["dump", "list"][..],
        &["dump", "verify"],
        &["dump", "forget", "--keep-last", "1"],
        &["restore", "--data", "x"],
    ] {
        let error = refuses(&[command, &from].concat());
        assert!(error.contains("is encrypted: name a file with an identity"), "{command:?}: {error}");
        let error = refuses(&[command, &from, &["--identity", other.to_str().unwrap()]].concat());
        assert!(
            error.contains("is not encrypted to an identity in") && error.contains("other"),
            "{command:?}: {error}"
        );
    }
    assert!(refuses(&create).contains("is encrypted"));
    assert!(refuses(&[&create[..], &["--encrypt-to", &recipient]].concat()).contains("is encrypted"));
    assert!(refuses(&["archive", "status", "--archive", sealed.to_str().unwrap()]).contains("is encrypted"));
    assert!(!data.exists());
    // With it everything.
    let listed = succeeds(&[&["dump", "list"], &from[..], &["--identity", identity]].concat());
    assert!(listed.contains(first["name"].as_str().unwrap()), "{listed}");
    assert!(succeeds(&["archive", "verify", "--data", bed.node.data()]).contains("sound"));
    succeeds(&[&restore[..], &["--identity", identity]].concat());
    let mut node = crate::node::Node::new_in(data);
    // Its settings are those of the old server, whose archive it does not continue.
    node.start();
    assert_eq!(sum(&node).await, expected);
    drop(node);
    // A bit of a sealed object.
    let verify = [&["dump", "verify"], &from[..], &["--identity", identity]].concat();
    succeeds(&verify);
    let chunk = files(&bed.dumps.join("chunks")).remove(0);
    let good = std::fs::read(&chunk).unwrap();
    let mut bytes = good.clone();
    bytes[good.len() / 2] ^= 1;
    std::fs::write(&chunk, &bytes).unwrap();
    let output = holdfast(&verify);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && said.contains(chunk.file_name().unwrap().to_str().unwrap()), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_encrypted_does_not_become_so_half_way() {
    let bed = Bed::start();
    let (identity, recipient) = key(&bed, "identity");
    fill(&bed.node.connect().await, 1).await;
    bed.dump();
    let at = bed.node.at();
    let create = bed.create_arguments(&at);
    assert!(
        refuses(&[&create[..], &["--encrypt-to", &recipient]].concat()).contains("has objects that are not encrypted")
    );
    // An identity that is not needed does no harm.
    succeeds(&[&create[..], &["--identity", identity.to_str().unwrap()]].concat());
    assert!(refuses(&[&create[..], &["--encrypt-to", "age1nonsense"]].concat()).contains("is not a recipient"));
    let error = refuses(&["dump", "list", "--from", bed.place(), "--identity", "/nowhere"]);
    assert!(error.contains("/nowhere"), "{error}");
    assert!(refuses(&["dump", "key", "--out", identity.to_str().unwrap()]).contains("cannot make"));
}
