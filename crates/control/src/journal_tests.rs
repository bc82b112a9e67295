//! The journal on the simulated disk: what a power cut, damage and a failed sync leave of it.

use super::*;
use crate::record::Command;
use holdfast_seams::testing::{FaultDisk, Seeded};
use holdfast_types::Epoch;
use openraft::{CommittedLeaderId, EntryPayload};

const DIR: &str = "/control";

fn node(name: &str) -> NodeId {
    name.parse().unwrap()
}

fn position(term: u64, index: u64) -> LogId {
    LogId::new(CommittedLeaderId::new(term, node("a")), index)
}

fn entry(term: u64, index: u64) -> Entry {
    let command = Command::RenewLease { epoch: Epoch(index as u32), by: node("a"), positions: Default::default() };
    Entry { log_id: position(term, index), payload: EntryPayload::Normal(command) }
}

fn open(disk: &FaultDisk) -> Result<Journal, ControlError> {
    Journal::open(Arc::new(disk.clone()), Path::new(DIR), node("a"), DiskId(77))
}

#[test]
fn what_was_saved_is_there_after_a_restart() {
    let disk = FaultDisk::new(1);
    let mut journal = open(&disk).unwrap();
    journal.save_vote(Vote::new(3, node("b"))).unwrap();
    journal.save_entries((0..10).map(|index| entry(3, index)).collect()).unwrap();
    journal.truncate(8).unwrap();
    journal.purge(position(3, 2)).unwrap();
    journal.save_committed(Some(position(3, 7))).unwrap();
    let again = Journal::open(Arc::new(disk.clone()), Path::new(DIR), node("a"), DiskId(1)).unwrap();
    assert_eq!(again.disk_id(), DiskId(77), "the disk keeps the number it got first");
    assert_eq!(again.content.vote, Some(Vote::new(3, node("b"))));
    assert_eq!(again.content.entries.keys().copied().collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
    assert_eq!(again.content.last(), Some(position(3, 7)));
    assert_eq!((again.content.purged, again.content.committed), (Some(position(3, 2)), Some(position(3, 7))));
    let other = Journal::open(Arc::new(disk), Path::new(DIR), node("b"), DiskId(1));
    assert!(matches!(other, Err(ControlError::OtherNode { .. })));
}

/// Random work, with the power cut at a random operation: what was confirmed is there, and nothing else is invented.
#[test]
fn power_cuts_lose_nothing_that_was_confirmed() {
    let (mut torn, mut rewritten) = (0, 0);
    for seed in 0..400 {
        let disk = FaultDisk::new(seed);
        let mut random = Seeded::new(seed);
        let (mut vote, mut next) = (0, 0);
        drop(open(&disk).unwrap());
        for _ in 0..4 {
            let mut journal = open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            let found = journal.content.vote.map_or(0, |vote| vote.leader_id().term);
            assert!(found == vote || found == vote + 1, "seed {seed}: vote {found} after {vote} was confirmed");
            let last = journal.content.last().map_or(0, |last| last.index + 1);
            assert!(last == next || last == next + 2, "seed {seed}: {last} entries after {next} were confirmed");
            (vote, next) = (found, last);
            disk.cut_power_after(1 + random.below(60));
            loop {
                let size = journal.end;
                let done = match random.below(4) {
                    0 => journal.save_vote(Vote::new(vote + 1, node("a"))).map(|()| vote += 1),
                    1 if next > 20 => journal.purge(position(1, next - 10)),
                    2 => journal.save_committed(Some(position(1, next))),
                    _ => journal.save_entries(vec![entry(1, next), entry(1, next + 1)]).map(|()| next += 2),
                };
                rewritten += u64::from(journal.end < size);
                if done.is_err() {
                    break;
                }
            }
            disk.restore_power();
        }
        torn += u64::from(disk.contents(&Path::new(DIR).join(NAME_TAIL)).is_some());
    }
    assert!(torn > 20 && rewritten > 100, "{torn} torn tails, {rewritten} rewrites");
}

#[test]
fn rot_in_what_was_durable_refuses_to_open() {
    let disk = FaultDisk::new(1);
    let mut journal = open(&disk).unwrap();
    journal.save_vote(Vote::new(3, node("b"))).unwrap();
    let vote_at = journal.end;
    journal.save_entries(vec![entry(3, 0)]).unwrap();
    journal.save_entries(vec![entry(3, 1)]).unwrap();
    let path = Path::new(DIR).join(NAME);
    disk.rot(&path, vote_at - 20, 2);
    let refused = open(&disk).err();
    assert!(matches!(&refused, Some(ControlError::Damage { .. })), "{refused:?}");
    assert!(refused.unwrap().to_string().contains("admit it again"));
    disk.rot(&path, vote_at - 20, 2);
    drop(open(&disk).unwrap());
    disk.rot(&path, 40, 2);
    assert!(matches!(open(&disk).err(), Some(ControlError::Damage { offset: 0, .. })));
}

#[test]
fn a_journal_that_is_missing_beside_a_snapshot_is_damage() {
    let disk = FaultDisk::new(1);
    files::replace(&disk, Path::new(DIR), machine::NAME, b"anything").unwrap();
    let refused = open(&disk).err();
    assert!(matches!(&refused, Some(ControlError::Damage { .. })), "{refused:?}");
    let said = refused.unwrap().to_string();
    assert!(said.contains("journal is damaged") && said.contains("admit it again"), "{said}");
    assert_eq!(disk.contents(&Path::new(DIR).join(NAME)), None, "nothing was begun");
}

#[test]
fn after_a_failed_sync_nothing_is_accepted_any_more() {
    let disk = FaultDisk::new(1);
    let mut journal = open(&disk).unwrap();
    disk.fail_sync(1);
    assert!(matches!(journal.save_vote(Vote::new(3, node("b"))), Err(ControlError::Io { what: "sync", .. })));
    assert!(matches!(journal.save_vote(Vote::new(4, node("b"))), Err(ControlError::Stopped(_))));
    assert_eq!(journal.content.vote, None);
    assert_eq!(open(&disk).unwrap().content.vote, None, "read past the page cache, which shows the lost vote");
}

#[test]
fn a_newer_format_is_refused_as_such() {
    let disk = FaultDisk::new(1);
    let begin = Item::Begin { version: 2, node: node("a"), disk: DiskId(1) };
    let bytes = encode(&mut 0, 0, &[begin]).unwrap();
    files::replace(&disk, Path::new(DIR), NAME, &bytes).unwrap();
    assert!(matches!(open(&disk).err(), Some(ControlError::Newer { found: 2, .. })));
}

#[test]
fn golden_items() {
    let golden = [
        (
            Item::Begin { version: 1, node: node("a"), disk: DiskId(5) },
            r#"{"begin":{"version":1,"node":"a","disk":5}}"#,
        ),
        (Item::Vote(Vote::new(3, node("b"))), r#"{"vote":{"leader_id":{"term":3,"node_id":"b"},"committed":false}}"#),
        (
            Item::Entry(entry(3, 1)),
            r#"{"entry":{"log_id":{"leader_id":{"term":3,"node_id":"a"},"index":1},"payload":{"Normal":{"renew_lease":{"epoch":1,"by":"a"}}}}}"#,
        ),
        (Item::Truncate(4), r#"{"truncate":4}"#),
        (Item::Purge(position(3, 1)), r#"{"purge":{"leader_id":{"term":3,"node_id":"a"},"index":1}}"#),
        (Item::Committed(None), r#"{"committed":null}"#),
    ];
    for (item, text) in golden {
        assert_eq!(serde_json::to_string(&item).unwrap(), text);
    }
}
