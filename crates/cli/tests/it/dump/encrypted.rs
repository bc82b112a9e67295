//! Dumps and archives that the store cannot read.

use super::bed::{Bed, SMALL, fill, lsn_number, sum};
use crate::node::{Node, holdfast, one, refuses, run, succeeds, until};
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
        // What is being written is no object yet.
        let is_new = path.extension().is_some_and(|extension| extension == "new");
        if path.is_dir() {
            found.extend(files(&path))
        } else if !is_new {
            found.push(path)
        }
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
    let x = unused(&bed);
    let restore = [&["restore"], &from[..], &["--data", data.to_str().unwrap()]].concat();
    for command in [
        &["dump", "list"][..],
        &["dump", "verify"],
        &["dump", "forget", "--keep-last", "1"],
        &["restore", "--data", &x],
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
    // An identity says that the place is encrypted: without a key object nothing is read or written there.
    let identities = ["--identity", identity.to_str().unwrap()];
    let x = unused(&bed);
    for command in
        [&create[..], &["dump", "list", "--from", bed.place()], &["restore", "--from", bed.place(), "--data", &x]]
    {
        let error = refuses(&[command, &identities].concat());
        assert!(
            error.contains("has no key object keys/key.age") && error.contains("leave the identity out"),
            "{error}"
        );
    }
    assert!(refuses(&[&create[..], &["--encrypt-to", "age1nonsense"]].concat()).contains("is not a recipient"));
    let error = refuses(&["dump", "list", "--from", bed.place(), "--identity", "/nowhere"]);
    assert!(error.contains("/nowhere"), "{error}");
    assert!(refuses(&["dump", "key", "--out", identity.to_str().unwrap()]).contains("cannot make"));
}

/// A store that hides the key object gets no plain dump, nor a plain segment, and a forged plain dump is not restored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_hides_the_key_gets_nothing_plain() {
    let bed = Bed::start();
    let (identity, recipient) = key(&bed, "identity");
    let identities = ["--identity", identity.to_str().unwrap()];
    fill(&bed.node.connect().await, 2).await;
    let at = bed.node.at();
    let create = bed.create_arguments(&at);
    succeeds(&[&create[..], &["--encrypt-to", &recipient]].concat());
    let key_object = bed.dumps.join("keys/key.age");
    let kept = std::fs::read(&key_object).unwrap();
    std::fs::remove_file(&key_object).unwrap();
    let before = files(&bed.dumps);
    let both = [&["--encrypt-to", recipient.as_str()], &identities[..]].concat();
    for options in [&identities[..], &["--encrypt-to", &recipient], &both, &[]] {
        let error = refuses(&[&create[..], options].concat());
        assert!(error.contains("keys/key.age"), "{options:?}: {error}");
        assert_eq!(files(&bed.dumps), before, "{options:?}: nothing is written");
    }
    let x = unused(&bed);
    for command in [
        &["dump", "list", "--from", bed.place()][..],
        &["dump", "verify", "--from", bed.place()],
        &["dump", "forget", "--from", bed.place(), "--keep-last", "1"],
        &["restore", "--from", bed.place(), "--data", &x],
    ] {
        for options in [&identities[..], &[]] {
            let error = refuses(&[command, options].concat());
            assert!(error.contains("keys/key.age"), "{command:?} {options:?}: {error}");
        }
    }
    // Another program's plain dump in that place, with the key hidden and with the key there.
    let forged = bed.path("forged");
    std::fs::create_dir(&forged).unwrap();
    succeeds(&["dump", "create", "--at", &at, "--to", forged.to_str().unwrap()]);
    for dir in ["dumps", "chunks"] {
        for file in files(&forged.join(dir)) {
            std::fs::copy(&file, bed.dumps.join(dir).join(file.file_name().unwrap())).unwrap();
        }
    }
    let name = format!("dumps/{}", files(&forged.join("dumps"))[0].file_name().unwrap().to_str().unwrap());
    let restore = ["restore", "--from", bed.place(), "--data", &x, "--dump", &name];
    assert!(refuses(&[&restore[..], &identities].concat()).contains("keys/key.age"));
    std::fs::write(&key_object, kept).unwrap();
    let error = refuses(&[&restore[..], &identities].concat());
    assert!(error.contains(&name) && error.contains("is not sealed, in a place that is encrypted"), "{error}");
}

/// A directory of the bed for restores that are refused: they lock it for a moment, so no two tests may share it.
fn unused(bed: &Bed) -> String {
    bed.path("unused").display().to_string()
}

/// The archive of an encrypted server: a server whose archive has lost its key archives nothing plain, and a restore that knows
/// by the dump's settings that the archive is encrypted does not read a plain one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archive_that_has_lost_its_key_is_not_continued_plain() {
    let scratch = tempfile::TempDir::new().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let (archive, dumps, identity) = (path("archive"), path("dumps"), path("identity"));
    [&archive, &dumps].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let recipient = succeeds(&["dump", "key", "--out", identity.to_str().unwrap()]).trim().to_owned();
    let mut node = Node::new(&scratch, "a");
    let settings = |to: &str| {
        let (archive, identity) = (archive.display(), identity.display());
        format!("{SMALL}archive = \"{archive}\"\narchive_identity = \"{identity}\"\narchive_encrypt_to = \"{to}\"")
    };
    node.configure(&settings(&recipient));
    node.start();
    let client = node.connect().await;
    let archived = async || lsn_number(&one(&client, "select archived_lsn from holdfast_stat_archive").await);
    fill(&client, 1).await;
    until("it archives", async || {
        fill(&client, 1).await;
        archived().await > 0 && archive.join("keys/key.age").exists()
    })
    .await;
    let (at, to) = (node.at(), dumps.to_str().unwrap());
    succeeds(&["dump", "create", "--at", &at, "--to", to, "--archive-identity", identity.to_str().unwrap()]);
    let (key_object, hidden) = (archive.join("keys/key.age"), path("hidden"));
    std::fs::rename(&key_object, &hidden).unwrap();
    // The dumps are plain; that their archive is encrypted stands in their settings.
    let x = path("x").display().to_string();
    for options in [&[][..], &["--archive-identity", identity.to_str().unwrap()]] {
        let error = refuses(&[&["restore", "--from", to, "--data", &x], options].concat());
        assert!(error.contains("keys/key.age"), "{options:?}: {error}");
    }
    drop(client);
    for recipient in [recipient.as_str(), ""] {
        assert!(node.stop().success());
        std::fs::write(node.dir.join("holdfast.toml"), settings(recipient)).unwrap();
        let before = files(&archive);
        node.start();
        let client = node.connect().await;
        until("it says so", async || {
            fill(&client, 1).await;
            let error = one(&client, "select coalesce(last_error, '') from holdfast_stat_archive").await;
            error.contains("keys/key.age")
        })
        .await;
        assert_eq!(files(&archive), before, "nothing plain is written");
    }
    let client = node.connect().await;
    let before = lsn_number(&one(&client, "select archived_lsn from holdfast_stat_archive").await);
    std::fs::rename(&hidden, &key_object).unwrap();
    until("it continues", async || {
        lsn_number(&one(&client, "select archived_lsn from holdfast_stat_archive").await) > before
    })
    .await;
}

/// Any program that knows the recipient can make a key object for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_was_exchanged_gets_no_dump() {
    let bed = Bed::start();
    let (identity, recipient) = key(&bed, "identity");
    let identities = ["--identity", identity.to_str().unwrap()];
    fill(&bed.node.connect().await, 1).await;
    let at = bed.node.at();
    let create = bed.create_arguments(&at);
    let first: Value = serde_json::from_str(&succeeds(&[&create[..], &["--encrypt-to", &recipient]].concat())).unwrap();
    let other = bed.path("other");
    std::fs::create_dir(&other).unwrap();
    succeeds(&["dump", "create", "--at", &at, "--to", other.to_str().unwrap(), "--encrypt-to", &recipient]);
    let object = bed.dumps.join("keys/key.age");
    let kept = std::fs::read(&object).unwrap();
    std::fs::copy(other.join("keys/key.age"), &object).unwrap();
    let before = files(&bed.dumps.join("chunks"));
    let error = refuses(&[&create[..], &identities].concat());
    let name = first["name"].as_str().unwrap();
    assert!(error.contains(name) && error.contains("is sealed with another key"), "{error}");
    assert_eq!((files(&bed.dumps.join("chunks")), files(&bed.dumps.join("dumps")).len()), (before, 1));
    let verify = [&["dump", "verify", "--from", bed.place()], &identities[..]].concat();
    let said = String::from_utf8_lossy(&holdfast(&verify).stdout).into_owned();
    assert!(said.contains(name) && said.contains("another key"), "{said}");
    std::fs::write(&object, kept).unwrap();
    succeeds(&[&create[..], &identities].concat());
}

/// The server could write to such a place until its next start, and then nobody could read it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recipient_of_another_identity_is_refused_before_anything_is_written() {
    let mut bed = Bed::start();
    let (identity, recipient) = key(&bed, "identity");
    let (_, other) = key(&bed, "other");
    let at = bed.node.at();
    let pair = ["--encrypt-to", &other, "--identity", identity.to_str().unwrap()];
    let error = refuses(&[&bed.create_arguments(&at)[..], &pair].concat());
    assert!(error.contains(&format!("Name the recipient {recipient}")), "{error}");
    assert_eq!(files(&bed.dumps), Vec::<PathBuf>::new(), "nothing is written");
    // A new place for the archive, at the server's start.
    assert!(bed.node.stop().success());
    let sealed = bed.path("sealed");
    std::fs::create_dir(&sealed).unwrap();
    let toml = bed.node.dir.join("holdfast.toml");
    let settings = |to: &str, identity: &str| {
        let archive = sealed.display();
        let text =
            format!("archive = \"{archive}\"\narchive_encrypt_to = \"{to}\"\narchive_identity = \"{identity}\"\n");
        std::fs::write(&toml, format!("{SMALL}{text}")).unwrap();
    };
    let named = identity.to_str().unwrap();
    for (to, identity, said) in
        [(&other, named, format!("Name the recipient {recipient}")), (&recipient, "", "archive_identity".to_owned())]
    {
        settings(to, identity);
        let error = bed.node.refuses_to_start();
        assert!(error.contains(&said), "{error}");
        assert_eq!(files(&sealed), Vec::<PathBuf>::new(), "nothing is written");
        let status = ["archive", "status", "--data", bed.node.data()];
        assert!(identity.is_empty() || refuses(&status).contains(&said));
    }
    settings(&recipient, named);
    bed.node.start();
}
