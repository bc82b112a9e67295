//! Reading a trail back where nodes have parted.

use std::sync::Arc;

use crate::support::{fill_up_to, promoted, put_one, recycle_up_to, shipped, store, trail_up_to};
use holdfast_archive::{ArchiveError, History, Holding, Holdings, is_archived};
use holdfast_seams::testing::FaultDisk;
use holdfast_trail::Match;
use holdfast_types::Epoch;

#[tokio::test]
async fn what_is_recycled_comes_back_boxcar_by_boxcar() {
    let disk = FaultDisk::new(1);
    let (trail, store) = (trail_up_to(&disk, "/trail", 6), store(&disk));
    let before = shipped(&trail);
    for number in 1..6 {
        put_one(&store, &trail, number).await;
    }
    recycle_up_to(&trail, 5);
    let history = History::new(Arc::new(store), trail.clone());
    let mut back = Vec::new();
    let mut at = before[0].lsn;
    while let Some(segment) = history.segment(at).await.unwrap() {
        back.extend(segment.boxcars_from(at).map(Result::unwrap));
        at = back.last().unwrap().end;
    }
    assert_eq!(at, trail.first(), "it ends where the trail begins");
    assert_eq!(back, before[..back.len()]);
    for boxcar in &back {
        let yes = history.ends_with(boxcar.end, boxcar.checksum).await.unwrap();
        // The last one's end is the trail's own affair.
        assert_eq!(yes, if boxcar.end == trail.first() { Match::Gone } else { Match::Yes });
        if boxcar.end < trail.first() {
            assert_eq!(history.ends_with(boxcar.end, boxcar.checksum ^ 1).await.unwrap(), Match::No);
        }
    }
}

/// `a` is master of epoch 1; `b` was promoted in epoch 2 in the middle of segment 3, which `a` finished all the same, and
/// went on; both have archived all they had. Then `a` is promoted by the operator once more, in epoch 3, with its own end.
#[tokio::test]
async fn the_history_that_led_here_is_found_among_others() {
    let (disk, archive) = (FaultDisk::new(1), FaultDisk::new(2));
    let store = store(&archive);
    let a = trail_up_to(&disk, "/a", 3);
    let fork = shipped(&a).last().unwrap().end;
    let b = promoted(&disk, "/b", &a, fork, 2);
    fill_up_to(&a, 5, 1);
    fill_up_to(&b, 6, 2);
    for number in 1..5 {
        put_one(&store, &a, number).await;
    }
    for number in 1..6 {
        put_one(&store, &b, number).await;
    }
    let names = |holdings: &Holdings, n| holdings.names(n).iter().map(|name| name.epoch.0).collect::<Vec<_>>();
    let holdings = Holdings::of(&store, a.trail_id()).await.unwrap();
    assert_eq!([1, 2, 3, 4, 5].map(|n| names(&holdings, n)), [vec![1], vec![1], vec![2, 1], vec![2, 1], vec![2]]);
    a.close().unwrap();
    let c = promoted(&disk, "/c", &a, a.durable(), 3);
    fill_up_to(&c, 7, 3);
    for number in 5..7 {
        put_one(&store, &c, number).await;
    }
    // Both know that the other's object is not theirs.
    let holdings = Holdings::of(&store, a.trail_id()).await.unwrap();
    let of_epoch = |epoch| holdings.names(3).into_iter().find(|name| name.epoch == Epoch(epoch)).unwrap();
    assert_eq!(is_archived(&store, &b, 3, &holdings).await.unwrap(), Some(of_epoch(2)));
    let mut theirs = Holdings::default();
    theirs.insert(Holding { name: of_epoch(1), bytes: 1 });
    assert_eq!(is_archived(&store, &b, 3, &theirs).await.unwrap(), None);
    let store = Arc::new(store);
    for (trail, first, expected) in [(&b, 6, [1, 1, 2, 2, 2]), (&c, 6, [1, 1, 1, 1, 3]), (&b, 5, [1, 1, 2, 2, 0])] {
        let trail = match first {
            5 => promoted(&disk, "/b5", &b, b.durable(), 9),
            _ => trail.clone(),
        };
        recycle_up_to(&trail, first);
        let history = History::new(store.clone(), trail.clone());
        let mut found = [0; 5];
        for number in 1..first {
            let segment = history.segment(trail.start_of(number)).await.unwrap().unwrap();
            found[number as usize - 1] = segment.manifest.last_epoch.0;
        }
        assert_eq!(found, expected);
    }
}

/// What is missing in this history is not taken from another one, though that has the only object of the segment.
#[tokio::test]
async fn a_lone_object_of_another_history_is_not_taken() {
    let (disk, archive) = (FaultDisk::new(1), FaultDisk::new(2));
    let store = store(&archive);
    let a = trail_up_to(&disk, "/a", 3);
    let fork = shipped(&a).last().unwrap().end;
    let b = promoted(&disk, "/b", &a, fork, 2);
    fill_up_to(&a, 6, 1);
    for number in 1..5 {
        put_one(&store, &a, number).await;
    }
    fill_up_to(&b, 5, 2);
    recycle_up_to(&b, 4);
    let store = Arc::new(store);
    let history = History::new(store.clone(), b.clone());
    assert!(history.segment(b.start_of(3)).await.unwrap().is_none(), "only the other one's is there");
    assert!(history.segment(b.start_of(2)).await.unwrap().is_none(), "nothing leads there");
    assert_eq!(history.ends_with(b.start_of(3), 7).await.unwrap(), Match::Gone);
    // The other one's own history is whole.
    recycle_up_to(&a, 5);
    let theirs = History::new(store, a.clone());
    assert_eq!(theirs.segment(a.start_of(4)).await.unwrap().unwrap().manifest.last_epoch, Epoch(1));
}

/// The object was put behind the last look.
#[tokio::test]
async fn what_comes_later_is_found() {
    let (disk, archive) = (FaultDisk::new(1), FaultDisk::new(2));
    let (trail, store) = (trail_up_to(&disk, "/trail", 6), Arc::new(store(&archive)));
    for number in 1..3 {
        put_one(&*store, &trail, number).await;
    }
    recycle_up_to(&trail, 3);
    let history = History::new(store.clone(), trail.clone());
    assert!(history.segment(trail.start_of(1)).await.unwrap().is_some());
    for number in 3..5 {
        put_one(&*store, &trail, number).await;
    }
    recycle_up_to(&trail, 5);
    for number in [4, 3, 1] {
        assert_eq!(history.segment(trail.start_of(number)).await.unwrap().unwrap().manifest.segment, number);
    }
}

#[tokio::test]
async fn a_gap_is_gone_and_damage_is_told_by_name() {
    let (disk, archive) = (FaultDisk::new(1), FaultDisk::new(2));
    let (trail, store) = (trail_up_to(&disk, "/trail", 5), store(&archive));
    for number in [1, 3, 4] {
        put_one(&store, &trail, number).await;
    }
    recycle_up_to(&trail, 4);
    let history = History::new(Arc::new(store), trail.clone());
    assert!(history.segment(trail.start_of(2)).await.unwrap().is_none());
    assert_eq!(history.ends_with(trail.start_of(2), 7).await.unwrap(), Match::Gone);
    let name = history.segment(trail.start_of(3)).await.unwrap().unwrap().manifest.name();
    archive.rot(&std::path::Path::new("/archive").join(name.to_string()), 200, 3);
    let error = history.segment(trail.start_of(3)).await.unwrap_err();
    assert!(matches!(&error, ArchiveError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains(&name.to_string()), "{error}");
}
