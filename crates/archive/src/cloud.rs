//! An archive in an object store: S3 and compatible stores, Google Cloud Storage, Azure Blob Storage.
//!
//! An object is put under the condition that no object has its name, which all three stores support (`If-None-Match: *`
//! at S3). Credentials, region and endpoint come from the environment as the crate `object_store` reads it: `AWS_...`,
//! `GOOGLE_...`, `AZURE_...`. Requests are retried a few times here; after that the caller decides.
//!
//! TLS is rustls with the provider that the workspace uses, and the certificates of the operating system.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::azure::{AzureConfigKey, MicrosoftAzureBuilder};
use object_store::gcp::{GoogleCloudStorageBuilder, GoogleConfigKey};
use object_store::path::Path;
use object_store::{
    ClientConfigKey, Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig,
};
use url::Url;

use crate::error::ArchiveError;
use crate::store::{Listed, Pending, Put, Store, is_from};

/// One request, a whole segment up or down.
const REQUEST_MAX: Duration = Duration::from_secs(600);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Further tries of one request that the store answers with an error, and how long they may take together. Of 3 of them, some
/// 100 ms apart, a store that fails every third request used up all for one of them now and then.
const RETRIES_MAX: usize = 10;
const RETRY_MAX: Duration = Duration::from_secs(60);

/// See the module.
pub struct CloudStore {
    store: Arc<dyn ObjectStore>,
    prefix: Path,
    place: String,
}

impl CloudStore {
    /// By a URL of `s3://`, `gs://` or `az://`: bucket, then the prefix of all names.
    pub fn open(url: &Url) -> Result<CloudStore, ArchiveError> {
        // The first caller has chosen; the choice is the same everywhere in this program.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let refuse = |what: String| ArchiveError::Setting { text: url.to_string(), what };
        let prefix = Path::from_url_path(url.path()).map_err(|error| refuse(error.to_string()))?;
        let mut bucket = url.clone();
        bucket.set_path("");
        let bucket = bucket.to_string();
        let retry = RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_MAX, ..RetryConfig::default() };
        let store: Result<Arc<dyn ObjectStore>, Error> = match url.scheme() {
            "s3" => {
                let s3 = AmazonS3Builder::from_env().with_url(bucket).with_retry(retry);
                let s3 = times("AWS")
                    .into_iter()
                    .fold(s3, |s3, (key, value)| s3.with_config(AmazonS3ConfigKey::Client(key), value));
                s3.build().map(|store| Arc::new(store) as _)
            }
            "gs" => {
                let gs = GoogleCloudStorageBuilder::from_env().with_url(bucket).with_retry(retry);
                let gs = times("GOOGLE")
                    .into_iter()
                    .fold(gs, |gs, (key, value)| gs.with_config(GoogleConfigKey::Client(key), value));
                gs.build().map(|store| Arc::new(store) as _)
            }
            "az" => {
                let az = MicrosoftAzureBuilder::from_env().with_url(bucket).with_retry(retry);
                let az = times("AZURE")
                    .into_iter()
                    .fold(az, |az, (key, value)| az.with_config(AzureConfigKey::Client(key), value));
                az.build().map(|store| Arc::new(store) as _)
            }
            other => return Err(refuse(format!("{other}:// is not known"))),
        };
        let store = store.map_err(|error| refuse(error.to_string()))?;
        Ok(CloudStore { store, prefix, place: url.to_string() })
    }

    /// Any object store.
    pub fn over(store: Arc<dyn ObjectStore>, prefix: &str) -> CloudStore {
        CloudStore { place: store.to_string(), store, prefix: Path::from(prefix) }
    }

    fn path(&self, name: &str) -> Path {
        name.split('/').fold(self.prefix.clone(), |path, part| path.join(part))
    }

    async fn read(&self, name: &str, options: GetOptions, bytes_max: Option<u64>) -> Result<Option<Bytes>, Error> {
        let found = match self.store.get_opts(&self.path(name), options).await {
            Err(Error::NotFound { .. }) => return Ok(None),
            found => found?,
        };
        if let Some(max) = bytes_max
            && found.meta.size > max
        {
            let source = format!("it is {} bytes long, at most {max} can be", found.meta.size).into();
            return Err(Error::Generic { store: "archive", source });
        }
        found.bytes().await.map(Some)
    }

    /// Names are relative to the prefix.
    async fn names(&self, directory: &str, from: &str) -> Result<Vec<Listed>, Error> {
        let under = if directory.is_empty() { self.prefix.clone() } else { self.path(directory) };
        let under = Some(&under).filter(|path| !path.as_ref().is_empty());
        let listed = |meta: object_store::ObjectMeta| {
            let parts: Option<Vec<_>> =
                meta.location.prefix_match(&self.prefix).map(|parts| parts.map(|p| p.as_ref().to_owned()).collect());
            parts.map(|parts| Listed { name: parts.join("/"), bytes: meta.size })
        };
        let all: Vec<_> = match from {
            "" => self.store.list(under).try_collect().await?,
            // A list begins behind its offset: no object has the name `from` itself, which is the beginning of names.
            from => self.store.list_with_offset(under, &self.path(directory).join(from)).try_collect().await?,
        };
        Ok(all.into_iter().filter_map(listed).collect())
    }
}

/// Set one by one, so that what the environment says of the client otherwise stays: `AWS_TIMEOUT`, `AWS_CONNECT_TIMEOUT` and
/// the like override these.
fn times(store: &str) -> Vec<(ClientConfigKey, String)> {
    let times = [
        (ClientConfigKey::Timeout, "TIMEOUT", REQUEST_MAX),
        (ClientConfigKey::ConnectTimeout, "CONNECT_TIMEOUT", CONNECT_MAX),
    ];
    let is_free = |name: &str| std::env::var_os(format!("{store}_{name}")).is_none();
    let free = times.into_iter().filter(|(_, name, _)| is_free(name));
    free.map(|(key, _, time)| (key, format!("{} seconds", time.as_secs()))).collect()
}

impl Store for CloudStore {
    fn place(&self) -> &str {
        &self.place
    }

    fn put_new<'a>(&'a self, name: &'a str, object: Bytes) -> Pending<'a, Put> {
        Box::pin(async move {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            match self.store.put_opts(&self.path(name), object.into(), options).await {
                Ok(_) => Ok(Put::Done),
                Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Put::Exists),
                Err(error) => Err(ArchiveError::store("put", name, error)),
            }
        })
    }

    fn get<'a>(&'a self, name: &'a str, bytes_max: u64) -> Pending<'a, Option<Bytes>> {
        Box::pin(async move {
            let read = self.read(name, GetOptions::default(), Some(bytes_max)).await;
            read.map_err(|error| ArchiveError::store("read", name, error))
        })
    }

    fn get_head<'a>(&'a self, name: &'a str, bytes: u64) -> Pending<'a, Option<Bytes>> {
        Box::pin(async move {
            let options = GetOptions { range: Some(GetRange::Bounded(0..bytes)), ..GetOptions::default() };
            let read = self.read(name, options, None).await;
            read.map_err(|error| ArchiveError::store("read", name, error))
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> Pending<'a, ()> {
        Box::pin(async move {
            match self.store.delete(&self.path(name)).await {
                Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(ArchiveError::store("remove", name, error)),
            }
        })
    }

    fn list<'a>(&'a self, directory: &'a str) -> Pending<'a, Vec<Listed>> {
        Box::pin(async move {
            self.names(directory, "").await.map_err(|error| ArchiveError::store("list", directory, error))
        })
    }

    /// Of Azure the client lists the whole directory.
    fn list_from<'a>(&'a self, directory: &'a str, from: &'a str) -> Pending<'a, Vec<Listed>> {
        Box::pin(async move {
            let listed = self.names(directory, from).await;
            let mut listed = listed.map_err(|error| ArchiveError::store("list", directory, error))?;
            listed.retain(|object| is_from(&object.name, directory, from));
            Ok(listed)
        })
    }
}
