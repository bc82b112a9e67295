//! Tests of the tables in the module's documentation, row by row.

use holdfast_trail::TrailId;
use holdfast_types::{Epoch, Lsn};

use super::*;

fn identity() -> Identity {
    Identity { trail_id: TrailId([1; 16]), format: 3, segment_bytes: 64 << 20, epoch: Epoch(5) }
}

fn tip(lsn: u64) -> Tip {
    Tip { lsn: Lsn(lsn), checksum: 7 }
}

/// The refusal of such a standby by the master of these tests.
fn refused(standby: Identity) -> Refusal {
    check(&standby, &identity()).unwrap_err()
}

#[test]
fn who_may_follow_whom() {
    assert_eq!(check(&identity(), &identity()), Ok(()));
    assert_eq!(refused(Identity { trail_id: TrailId([2; 16]), ..identity() }).reason, Reason::OtherTrail);
    assert_eq!(refused(Identity { format: 2, ..identity() }).reason, Reason::Format);
    assert_eq!(
        check(&Identity { format: 4, ..identity() }, &identity()),
        Ok(()),
        "a newer standby reads older formats"
    );
    assert_eq!(refused(Identity { segment_bytes: 32 << 20, ..identity() }).reason, Reason::SegmentSize);
    assert_eq!(refused(Identity { epoch: Epoch(6), ..identity() }).reason, Reason::Deposed);
    assert_eq!(check(&Identity { epoch: Epoch(4), ..identity() }, &identity()), Ok(()), "behind");
}

#[test]
fn each_refusal_names_both_values_and_a_way_out() {
    let texts = [
        (Identity { trail_id: TrailId([2; 16]), ..identity() }, ["0202", "0101", "standby create"]),
        (Identity { format: 2, ..identity() }, ["format 3", "up to 2", "Upgrade the standby"]),
        (Identity { segment_bytes: 1 << 20, ..identity() }, ["1048576", "67108864", "standby create"]),
        (Identity { epoch: Epoch(6), ..identity() }, ["epoch 6", "epoch 5", "holdfast rejoin"]),
    ];
    for (standby, parts) in texts {
        let text = refused(standby).to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    }
}

fn reason(place: Decision) -> Reason {
    match place {
        Decision::Refused(refusal) => refusal.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn where_to_go_on() {
    let (end, nothing) = (tip(9000), Tip { lsn: Lsn(100), checksum: 0 });
    assert_eq!(decide(end, Lsn(0), Finding::Continues, Lineage::Continues), Decision::Start(end));
    assert_eq!(reason(decide(end, Lsn(0), Finding::Gone, Lineage::Continues)), Reason::Gone);
    let forked = Finding::Forked { common: Some(tip(5000)) };
    assert_eq!(decide(end, Lsn(4000), forked, Lineage::Continues), Decision::CutBack(tip(5000)));
    assert_eq!(decide(end, Lsn(5000), forked, Lineage::Continues), Decision::CutBack(tip(5000)));
    assert_eq!(
        reason(decide(end, Lsn(5001), forked, Lineage::Continues)),
        Reason::Diverged,
        "what was applied is never cut"
    );
    assert_eq!(reason(decide(end, Lsn(0), Finding::Forked { common: None }, Lineage::Continues)), Reason::Diverged);
    let empty = |answer| Finding::Copied { anchor: tip(300), answer };
    assert_eq!(decide(nothing, Lsn(0), empty(Answer::Yes), Lineage::Continues), Decision::Start(nothing));
    assert_eq!(reason(decide(nothing, Lsn(0), empty(Answer::No), Lineage::Continues)), Reason::Diverged);
    assert_eq!(reason(decide(nothing, Lsn(0), empty(Answer::Gone), Lineage::Continues)), Reason::Gone);
    // The master of the standby's own epoch wrote what it lacks: it has lost it.
    assert_eq!(reason(decide(end, Lsn(5001), forked, Lineage::WroteIt)), Reason::RolledBack);
    assert_eq!(reason(decide(end, Lsn(1), Finding::Forked { common: None }, Lineage::WroteIt)), Reason::RolledBack);
    assert_eq!(
        decide(end, Lsn(5000), forked, Lineage::WroteIt),
        Decision::CutBack(tip(5000)),
        "only a tail that was never durable"
    );
    assert_eq!(decide(end, Lsn(5000), Finding::Continues, Lineage::WroteIt), Decision::Start(end));
    let Decision::Refused(unknown) = decide(end, Lsn(5001), forked, Lineage::Unknown) else { panic!("not refused") };
    assert!(unknown.reason == Reason::Diverged && !unknown.advice.contains("rejoin"), "{unknown}");
    let Decision::Refused(refusal) = decide(end, Lsn(5001), forked, Lineage::WroteIt) else { panic!("not refused") };
    assert!(refusal.advice.contains("promote this standby") && refusal.advice.contains("Do not rejoin"), "{refusal}");
}
