//! `archive` in the settings: where the archive is.
//!
//! | text | archive |
//! |---|---|
//! | empty | none |
//! | `/path`, `file:///path` | a directory |
//! | `s3://bucket/prefix` | S3, or what speaks its protocol; credentials and the rest from `AWS_...` in the environment |
//! | `gs://bucket/prefix` | Google Cloud Storage; from `GOOGLE_...` |
//! | `az://container/prefix` | Azure Blob Storage; from `AZURE_...` |
//!
//! The last three need the feature `object-stores`; without it they are refused with the command that builds it in.

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_seams::Disk;
use url::Url;

#[cfg(feature = "object-stores")]
use crate::cloud::CloudStore;
use crate::error::ArchiveError;
use crate::file::FileStore;
use crate::keys::Keys;
use crate::sealed::SealedStore;
use crate::store::Store;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ArchiveLocation {
    Directory(PathBuf),
    #[cfg(feature = "object-stores")]
    Cloud(Url),
}

impl ArchiveLocation {
    /// `None` for an empty text.
    pub fn parse(text: &str) -> Result<Option<ArchiveLocation>, ArchiveError> {
        let refuse = |what: String| ArchiveError::Setting { text: text.to_owned(), what };
        if text.is_empty() {
            return Ok(None);
        }
        if !text.contains("://") {
            return match text.starts_with('/') {
                true => Ok(Some(ArchiveLocation::Directory(PathBuf::from(text)))),
                false => Err(refuse("a directory is given by its whole path, from \"/\" on".to_owned())),
            };
        }
        let url = Url::parse(text).map_err(|error| refuse(error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse("credentials do not stand here; they are taken from the environment".to_owned()));
        }
        match url.scheme() {
            "file" => match url.to_file_path() {
                Ok(path) => Ok(Some(ArchiveLocation::Directory(path))),
                Err(()) => Err(refuse("no path on this machine: write file:///path".to_owned())),
            },
            "s3" | "gs" | "az" if url.host_str().is_some_and(|host| !host.is_empty()) => cloud(url).map_err(refuse),
            "s3" | "gs" | "az" => Err(refuse("the bucket is missing".to_owned())),
            other => Err(refuse(format!("{other}:// is not known; file, s3, gs and az are"))),
        }
    }

    /// Whether both name one place: a directory may have several paths, by symbolic links.
    pub fn is_same_place(&self, other: &ArchiveLocation) -> bool {
        match (self, other) {
            (ArchiveLocation::Directory(one), ArchiveLocation::Directory(two)) => {
                // A directory that does not exist yet is compared by its path.
                let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.components().collect());
                real(one) == real(two)
            }
            #[cfg(feature = "object-stores")]
            (ArchiveLocation::Cloud(one), ArchiveLocation::Cloud(two)) => {
                let parts = |url: &Url| {
                    let path = url.path().split('/').filter(|part| !part.is_empty()).map(str::to_owned);
                    (url.scheme().to_owned(), url.host_str().map(str::to_owned), path.collect::<Vec<_>>())
                };
                parts(one) == parts(two)
            }
            #[cfg(feature = "object-stores")]
            _ => false,
        }
    }

    /// Opens it, encrypted or not. Nothing is asked of it yet.
    pub fn open_with(&self, disk: Arc<dyn Disk>, node: &str, keys: Keys) -> Result<Arc<SealedStore>, ArchiveError> {
        Ok(Arc::new(SealedStore::new(self.open(disk, node)?, keys)))
    }

    /// Opens it as it is. Nothing is asked of it yet.
    pub fn open(&self, disk: Arc<dyn Disk>, node: &str) -> Result<Arc<dyn Store>, ArchiveError> {
        Ok(match self {
            ArchiveLocation::Directory(path) => Arc::new(FileStore::new(disk, path, node)),
            #[cfg(feature = "object-stores")]
            ArchiveLocation::Cloud(url) => Arc::new(CloudStore::open(url)?),
        })
    }
}

#[cfg(feature = "object-stores")]
fn cloud(url: Url) -> Result<Option<ArchiveLocation>, String> {
    Ok(Some(ArchiveLocation::Cloud(url)))
}

#[cfg(not(feature = "object-stores"))]
fn cloud(_: Url) -> Result<Option<ArchiveLocation>, String> {
    Err("this program was built without object stores; build it with `cargo build --release --features object-stores`, \
         or name a directory"
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_known_by_other_names() {
        let scratch = tempfile::TempDir::new().unwrap();
        let (place, link) = (scratch.path().join("a"), scratch.path().join("link"));
        std::fs::create_dir(&place).unwrap();
        std::os::unix::fs::symlink(&place, &link).unwrap();
        let parse = |text: &str| ArchiveLocation::parse(text).unwrap().unwrap();
        let same = |one: &str, two: &str| parse(one).is_same_place(&parse(two));
        let path = place.to_str().unwrap();
        assert!(same(path, link.to_str().unwrap()) && same(path, &format!("file://{path}/")));
        assert!(same("/not/there", "/not/there/") && !same("/not/there", "/not/here"));
        assert!(!same(path, scratch.path().to_str().unwrap()) && !same(path, &format!("{path}/dumps")));
        #[cfg(feature = "object-stores")]
        {
            assert!(same("s3://bucket/a", "s3://bucket/a/") && same("s3://bucket", "s3://bucket/"));
            assert!(!same("s3://bucket/a", "s3://bucket/b") && !same("s3://bucket/a", "gs://bucket/a"));
            assert!(!same("s3://bucket/a", "/bucket/a"));
        }
    }

    #[test]
    fn places_are_read_or_refused() {
        let directory = |path: &str| Some(ArchiveLocation::Directory(PathBuf::from(path)));
        assert_eq!(ArchiveLocation::parse("").unwrap(), None);
        assert_eq!(ArchiveLocation::parse("/mnt/a b").unwrap(), directory("/mnt/a b"));
        assert_eq!(ArchiveLocation::parse("file:///mnt/a%20b").unwrap(), directory("/mnt/a b"));
        #[cfg(feature = "object-stores")]
        assert!(matches!(ArchiveLocation::parse("s3://bucket/some/prefix").unwrap(), Some(ArchiveLocation::Cloud(_))));
        for (bad, word) in [
            ("archive", "whole path"),
            ("file://host/path", "file:///path"),
            ("s3:///prefix", "bucket"),
            ("s3://key:secret@bucket", "environment"),
            ("ftp://x/y", "not known"),
            ("s3://", "bucket"),
        ] {
            let error = ArchiveLocation::parse(bad).unwrap_err().to_string();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }

    #[cfg(not(feature = "object-stores"))]
    #[test]
    fn without_object_stores_the_command_that_builds_them_in_is_named() {
        for url in ["s3://bucket/some/prefix", "gs://bucket", "az://container/prefix"] {
            let error = ArchiveLocation::parse(url).unwrap_err().to_string();
            assert!(error.contains("--features object-stores"), "{url}: {error}");
        }
    }
}
