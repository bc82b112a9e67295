//! Object stores: the same through `object_store`, in memory, and at a server that speaks S3 where one is named.

use std::sync::Arc;

use crate::support::{ID, open, options, put_one, recycle_up_to, trail_up_to};
use bytes::Bytes;
use holdfast_archive::{ArchiveLocation, CloudStore, History, Holdings, Put, Store, verify};
use holdfast_seams::RealDisk;
use holdfast_seams::testing::FaultDisk;
use object_store::memory::InMemory;

async fn archives_and_reads_back(store: Arc<dyn Store>) {
    let disk = FaultDisk::new(1);
    let trail = trail_up_to(&disk, "/trail", 5);
    for number in 1..5 {
        assert!(!put_one(&*store, &trail, number).await.was_there);
    }
    assert!(put_one(&*store, &trail, 2).await.was_there);
    // Another node of the same trail and epoch, which wrote something else.
    let other = open(&FaultDisk::new(2), options("/trail")).unwrap();
    crate::support::fill_up_to(&other, 2, 9);
    assert!(!put_one(&*store, &other, 1).await.was_there);
    store.put_new("elsewhere/x", Bytes::from_static(b"?")).await.unwrap();
    assert_eq!(store.put_new("elsewhere/x", Bytes::from_static(b"!")).await.unwrap(), Put::Exists);
    assert_eq!(store.get("elsewhere/x", 1).await.unwrap().unwrap(), b"?"[..]);
    assert!(store.get("elsewhere/x", 0).await.is_err());
    assert_eq!(store.get("elsewhere/y", 1).await.unwrap(), None);
    let all = Holdings::of_all(&*store).await.unwrap();
    let holdings = &all[&ID.to_string()].1;
    assert_eq!((all.len(), holdings.objects().count(), holdings.gaps()), (1, 5, vec![]));
    let report = verify(&*store, holdings, || {}).await.unwrap();
    assert_eq!((report.objects, report.problems, report.notes.len()), (5, vec![], 1));
    recycle_up_to(&trail, 4);
    let history = History::new(store, trail.clone());
    let segment = history.segment(trail.start_of(2)).await.unwrap().unwrap();
    assert_eq!(segment.manifest.end, trail.start_of(3));
}

#[tokio::test]
async fn in_memory() {
    archives_and_reads_back(Arc::new(CloudStore::over(Arc::new(InMemory::new()), ""))).await;
    archives_and_reads_back(Arc::new(CloudStore::over(Arc::new(InMemory::new()), "some/prefix"))).await;
}

/// `HOLDFAST_TEST_S3=s3://bucket/prefix`, with `AWS_...` for a server whose bucket is empty there.
#[tokio::test]
#[ignore = "needs a server that speaks S3, named by HOLDFAST_TEST_S3"]
async fn at_a_server() {
    let url = std::env::var("HOLDFAST_TEST_S3").expect("HOLDFAST_TEST_S3 names the server");
    let place = ArchiveLocation::parse(&url).unwrap().unwrap();
    archives_and_reads_back(place.open(Arc::new(RealDisk::new()), "a").unwrap()).await;
}
