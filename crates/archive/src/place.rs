//! `archive` in the settings: where the archive is.
//!
//! | text | archive |
//! |---|---|
//! | empty | none |
//! | `/path`, `file:///path` | a directory |
//! | `s3://bucket/prefix` | S3, or what speaks its protocol; credentials and the rest from `AWS_...` in the environment |
//! | `gs://bucket/prefix` | Google Cloud Storage; from `GOOGLE_...` |
//! | `az://container/prefix` | Azure Blob Storage; from `AZURE_...` |

use std::path::PathBuf;
use std::sync::Arc;

use holdfast_seams::Disk;
use url::Url;

use crate::cloud::CloudStore;
use crate::error::ArchiveError;
use crate::file::FileStore;
use crate::store::Store;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    Directory(PathBuf),
    Cloud(Url),
}

impl Place {
    /// `None` for an empty text.
    pub fn parse(text: &str) -> Result<Option<Place>, ArchiveError> {
        let refuse = |what: String| ArchiveError::Setting { text: text.to_owned(), what };
        if text.is_empty() {
            return Ok(None);
        }
        if !text.contains("://") {
            return match text.starts_with('/') {
                true => Ok(Some(Place::Directory(PathBuf::from(text)))),
                false => Err(refuse("a directory is given by its whole path, from \"/\" on".to_owned())),
            };
        }
        let url = Url::parse(text).map_err(|error| refuse(error.to_string()))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(refuse("credentials do not stand here; they are taken from the environment".to_owned()));
        }
        match url.scheme() {
            "file" => match url.to_file_path() {
                Ok(path) => Ok(Some(Place::Directory(path))),
                Err(()) => Err(refuse("no path on this machine: write file:///path".to_owned())),
            },
            "s3" | "gs" | "az" if url.host_str().is_some_and(|host| !host.is_empty()) => Ok(Some(Place::Cloud(url))),
            "s3" | "gs" | "az" => Err(refuse("the bucket is missing".to_owned())),
            other => Err(refuse(format!("{other}:// is not known; file, s3, gs and az are"))),
        }
    }

    /// Opens it. Nothing is asked of it yet.
    pub fn open(&self, disk: Arc<dyn Disk>, node: &str) -> Result<Arc<dyn Store>, ArchiveError> {
        Ok(match self {
            Place::Directory(path) => Arc::new(FileStore::new(disk, path, node)),
            Place::Cloud(url) => Arc::new(CloudStore::open(url)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_or_refused() {
        let directory = |path: &str| Some(Place::Directory(PathBuf::from(path)));
        assert_eq!(Place::parse("").unwrap(), None);
        assert_eq!(Place::parse("/mnt/a b").unwrap(), directory("/mnt/a b"));
        assert_eq!(Place::parse("file:///mnt/a%20b").unwrap(), directory("/mnt/a b"));
        assert!(matches!(Place::parse("s3://bucket/some/prefix").unwrap(), Some(Place::Cloud(_))));
        for (bad, word) in [
            ("archive", "whole path"),
            ("file://host/path", "file:///path"),
            ("s3:///prefix", "bucket"),
            ("s3://key:secret@bucket", "environment"),
            ("ftp://x/y", "not known"),
            ("s3://", "bucket"),
        ] {
            let error = Place::parse(bad).unwrap_err().to_string();
            assert!(error.contains(word), "{bad}: {error}");
        }
    }
}
