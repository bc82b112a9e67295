//! Bodies of boxcars made by hand, and what is read of them.

use super::*;
use holdfast_types::record::op::{put_count, put_ddl, put_delete, put_fragments, put_insert, put_rowid_key};
use holdfast_types::record::{
    Author, BatchBuilder, Ddl, Op, Ops, TxnHead, put_cell, put_fragment, put_fragment_drop, put_volume_drop,
};
use holdfast_types::{Epoch, Hlc, Lsn, SiteId, TableId, TxnId, ValueRef, VolumeId};

const A: VolumeId = VolumeId(1);
const B: VolumeId = VolumeId(2);
const TABLE: TableId = TableId(5);
/// Where prepared transactions are kept.
const PREPARED: TableId = TableId(6);

fn insert(table: TableId, rowid: i64) -> Vec<u8> {
    let mut ops = Vec::new();
    put_insert(&mut ops, table, Some(rowid), 1);
    put_cell(&mut ops, ValueRef::Int(rowid));
    ops
}

fn delete(table: TableId, rowid: i64) -> Vec<u8> {
    let mut ops = Vec::new();
    put_delete(&mut ops, table);
    put_rowid_key(&mut ops, rowid);
    put_count(&mut ops, 1);
    put_cell(&mut ops, ValueRef::Int(rowid));
    ops
}

fn rows(rowids: impl IntoIterator<Item = i64>) -> Vec<u8> {
    rowids.into_iter().flat_map(|rowid| insert(TABLE, rowid)).collect()
}

fn reference(txn: TxnId, count: u32) -> Vec<u8> {
    let mut ops = Vec::new();
    put_fragments(&mut ops, txn, count);
    ops
}

/// The number of a transaction of an epoch.
fn id(epoch: u32, number: u64) -> TxnId {
    TxnId(u64::from(epoch) << 32 | number)
}

fn put_batch(body: &mut Vec<u8>, volume: VolumeId, transactions: &[(TxnId, Vec<u8>)]) {
    let mut batch = BatchBuilder::begin(body, volume, 1, 1);
    let author = Author::new("ann", "ann");
    for (id, ops) in transactions {
        batch.begin_transaction(body, TxnHead { id: *id, site: SiteId(1), hlc: Hlc(id.0) }, Some(author.names()));
        body.extend_from_slice(ops);
        batch.end_transaction(body);
    }
    batch.finish(body);
}

/// Boxcars one behind the other, as a trail has them: longer than their bodies.
#[derive(Default)]
struct Cars(Vec<(Lsn, Epoch, Vec<u8>)>);

impl Cars {
    fn add(&mut self, epoch: u32, fill: impl FnOnce(&mut Vec<u8>)) -> Lsn {
        let lsn = self.0.last().map_or(Lsn(4096), |(lsn, _, body)| Lsn(lsn.0 + 64 + body.len() as u64));
        let mut body = Vec::new();
        fill(&mut body);
        self.0.push((lsn, Epoch(epoch), body));
        lsn
    }

    fn fragment(&mut self, txn: TxnId, number: u32, ops: &[u8]) -> Lsn {
        self.add(txn.epoch().0, |body| put_fragment(body, A, txn, number, ops))
    }

    fn commit(&mut self, txn: TxnId, ops: Vec<u8>) -> Lsn {
        self.add(txn.epoch().0, |body| put_batch(body, A, &[(txn, ops)]))
    }

    fn parts(&self, from: Lsn) -> impl Iterator<Item = Part<'_>> {
        let cars = self.0.iter().filter(move |(lsn, ..)| *lsn >= from);
        cars.flat_map(|(lsn, epoch, body)| parts(Car { lsn: *lsn, epoch: *epoch, body }, |_| true)).map(Result::unwrap)
    }

    /// What an assembly hands out that begins at a place.
    fn read(&self, from: Position) -> Vec<Seen> {
        let mut assembly = Assembly::new(Fragments::default(), from);
        self.parts(from.boxcar).filter_map(|part| Seen::add(&mut assembly, part)).collect()
    }
}

/// A transaction that was handed out, and where reading had to begin again behind it.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    volume: VolumeId,
    id: TxnId,
    start: Position,
    end: Position,
    /// Rowids, negative where the row was deleted; `None`: fragments are missing.
    rows: Option<Vec<i64>>,
    restart: Position,
}

impl Seen {
    fn add(assembly: &mut Assembly, part: Part<'_>) -> Option<Seen> {
        let of = assembly.add(part).unwrap()?;
        assert_eq!((of.head.hlc.0, of.author.as_ref().map(|a| a.names().session_user)), (of.head.id.0, Some("ann")));
        let mut rows = Vec::new();
        for piece in of.pieces() {
            for op in Ops::new(&piece.unwrap()) {
                rows.extend(match op.unwrap() {
                    Op::Insert { rowid, .. } => rowid,
                    Op::Delete { key: holdfast_types::record::Key::Rowid(rowid), .. } => Some(-rowid),
                    _ => None,
                });
            }
        }
        let (volume, id, start, end, rows) = (of.volume, of.head.id, of.start, of.end, of.is_whole.then_some(rows));
        Some(Seen { volume, id, start, end, rows, restart: assembly.restart() })
    }
}

fn of(seen: &[Seen]) -> Vec<(VolumeId, u64, Option<Vec<i64>>)> {
    seen.iter().map(|s| (s.volume, s.id.0 & 0xffff_ffff, s.rows.clone())).collect()
}

#[test]
fn transactions_of_one_boxcar_have_places_of_their_own() {
    let mut cars = Cars::default();
    let first = cars.add(1, |body| {
        put_batch(body, A, &[(id(1, 1), rows([1])), (id(1, 2), rows([2, 3]))]);
        put_batch(body, A, &[(id(1, 3), rows([4]))]);
    });
    let second = cars.commit(id(1, 4), rows([5]));
    let seen = cars.read(Position::default());
    assert_eq!(seen.iter().map(|s| s.start.boxcar).collect::<Vec<_>>(), [first, first, first, second]);
    assert_eq!(seen[0].end, seen[1].start, "in one batch one begins where the one before ends");
    let body = &cars.0[0].2;
    let length = &body[seen[1].start.offset as usize..][..4];
    assert_eq!(length, (seen[1].end.offset - seen[1].start.offset - 4).to_le_bytes(), "it begins with its length");
    assert_eq!(seen[2].end.offset as usize, body.len());
    let numbers: Vec<u64> = seen.iter().flat_map(|s| [s.start.lsn().0, s.end.lsn().0]).collect();
    assert!(numbers.is_sorted(), "{numbers:?}");
    assert!(seen.iter().all(|s| s.start.lsn() < s.end.lsn()) && seen[2].end.lsn() < second, "{numbers:?}");
}

#[test]
fn reading_begins_again_between_two_transactions_of_one_boxcar() {
    let mut cars = Cars::default();
    cars.add(1, |body| put_batch(body, A, &[(id(1, 1), rows([1])), (id(1, 2), rows([2])), (id(1, 3), rows([3]))]));
    let all = cars.read(Position::default());
    assert_eq!(all[0].restart, all[0].end);
    for (place, last) in all.iter().enumerate() {
        assert_eq!(cars.read(last.end), all[place + 1..], "behind transaction {}", place + 1);
    }
}

#[test]
fn fragments_between_other_transactions_come_with_their_commit() {
    let (large, other) = (id(1, 1), id(1, 2));
    let mut cars = Cars::default();
    let first = cars.fragment(large, 0, &rows([1, 2]));
    cars.commit(id(1, 3), rows([10]));
    let of_other = cars.add(1, |body| {
        put_fragment(body, A, other, 0, &rows([20]));
        put_fragment(body, A, large, 1, &rows([3]));
    });
    cars.add(1, |body| put_batch(body, B, &[(id(1, 4), rows([11]))]));
    cars.commit(large, reference(large, 2));
    cars.fragment(other, 1, &rows([21]));
    cars.commit(other, reference(other, 2));
    let seen = cars.read(Position::default());
    let whole = |rows: &[i64]| Some(rows.to_vec());
    let expected = [(A, 3, whole(&[10])), (B, 4, whole(&[11])), (A, 1, whole(&[1, 2, 3])), (A, 2, whole(&[20, 21]))];
    assert_eq!(of(&seen), expected);
    let restarts: Vec<Position> = seen.iter().map(|s| s.restart).collect();
    let at = |boxcar| Position { boxcar, offset: 0 };
    assert_eq!(restarts, [at(first), at(first), at(of_other), seen[3].end]);
    assert_eq!(
        of(&cars.read(at(of_other)))[1..],
        [(A, 1, None), (A, 2, whole(&[20, 21]))],
        "one is read from its middle on"
    );
}

#[test]
fn what_is_read_from_its_middle_on_is_not_kept() {
    let (large, mut cars) = (id(1, 1), Cars::default());
    cars.fragment(large, 0, &rows([1]));
    let from = Position { boxcar: cars.fragment(large, 1, &rows([2])), offset: 0 };
    cars.fragment(large, 2, &rows([3]));
    let mut assembly = Assembly::new(Fragments::default(), from);
    for part in cars.parts(from.boxcar) {
        assert_eq!(Seen::add(&mut assembly, part), None);
        assert_eq!((assembly.restart(), assembly.fragments_bytes()), (from, (0, 0)));
    }
    cars.commit(large, reference(large, 3));
    assert_eq!(of(&cars.read(from)), [(A, 1, None)]);
}

#[test]
fn fragments_that_no_commit_will_use_are_forgotten() {
    let mut assembly = Assembly::new(Fragments::default(), Position::default());
    let mut cars = Cars::default();
    cars.commit(id(1, 1), rows([1]));
    cars.fragment(id(1, 2), 0, &rows([2]));
    cars.add(1, |body| put_fragment(body, B, id(1, 3), 0, &rows([3])));
    let last = cars.fragment(id(1, 4), 0, &rows([4]));
    cars.add(1, |body| put_fragment_drop(body, A, id(1, 2)));
    cars.add(1, |body| put_volume_drop(body, B));
    let later = cars.commit(id(2, 5), rows([5]));
    let mut restarts = Vec::new();
    for part in cars.parts(Lsn(0)) {
        _ = Seen::add(&mut assembly, part);
        restarts.push(assembly.restart());
    }
    let at = |place: usize| Position { boxcar: cars.0[place].0, offset: 0 };
    let end = |seen: &[Seen], place: usize| seen[place].end;
    let seen = cars.read(Position::default());
    assert_eq!(of(&seen), [(A, 1, Some(vec![1])), (A, 5, Some(vec![5]))]);
    let expected = [end(&seen, 0), at(1), at(1), at(1), at(2), at(3), end(&seen, 1)];
    assert_eq!((restarts, at(3).boxcar, seen[1].start.boxcar), (expected.to_vec(), last, later));
    assert_eq!(assembly.fragments_bytes(), (0, 0));
}

#[test]
fn a_later_epoch_is_heard_of_without_a_part() {
    let mut assembly = Assembly::new(Fragments::default(), Position::default());
    let mut cars = Cars::default();
    cars.commit(id(1, 1), rows([1]));
    cars.fragment(id(1, 2), 0, &rows([2]));
    let mut end = Position::default();
    for part in cars.parts(Lsn(0)) {
        end = Seen::add(&mut assembly, part).map_or(end, |seen| seen.end);
    }
    assert_eq!(assembly.restart().boxcar, cars.0[1].0);
    assembly.begin_epoch(Epoch(1));
    assert_eq!(assembly.restart().boxcar, cars.0[1].0, "its own epoch");
    assembly.begin_epoch(Epoch(2));
    assert_eq!(assembly.restart(), end);
}

#[test]
fn fragments_are_in_scratch_beyond_the_bound_until_they_were_handed_out() {
    let dir = tempfile::tempdir().unwrap();
    let beyond = Beyond { memory_bytes_max: 100, scratch_dir: dir.path().to_owned() };
    let mut assembly = Assembly::new(Fragments::new(beyond), Position::default());
    let (large, mut cars) = (id(1, 1), Cars::default());
    let numbers: Vec<i64> = (0..1000).collect();
    let pieces = numbers.chunks(10).enumerate();
    pieces.for_each(|(number, piece)| _ = cars.fragment(large, number as u32, &rows(piece.iter().copied())));
    cars.commit(large, reference(large, 100));
    let mut seen = Vec::new();
    for part in cars.parts(Lsn(0)) {
        seen.extend(Seen::add(&mut assembly, part));
        assert!(assembly.fragments_bytes().0 <= 100);
    }
    assert!(assembly.fragments_bytes().1 > 4000, "{:?}", assembly.fragments_bytes());
    assert_eq!(of(&seen), [(A, 1, Some(numbers))]);
    let mut more = Vec::new();
    put_batch(&mut more, A, &[(id(1, 2), rows([1]))]);
    let lsn = Lsn(1 << 20);
    for part in parts(Car { lsn, epoch: Epoch(1), body: &more }, |_| true) {
        assert!(Seen::add(&mut assembly, part.unwrap()).is_some());
    }
    assert_eq!(assembly.fragments_bytes(), (0, 0));
}

#[test]
fn a_prepared_transaction_changes_rows_when_it_is_committed() {
    let mut cars = Cars::default();
    let mut prepare = Vec::new();
    let text = "CREATE TABLE holdfast_prepared(gid TEXT)";
    put_ddl(&mut prepare, &Ddl { text, epoch_after: 2, sqlite_version: 1, schema_hash: 1 });
    prepare.extend(insert(PREPARED, 1));
    cars.commit(id(1, 1), prepare);
    cars.commit(id(1, 2), rows([7]));
    cars.commit(id(1, 3), [rows([8, 9]), delete(TABLE, 5), delete(PREPARED, 1)].concat());
    let large = id(1, 4);
    cars.fragment(large, 0, &[rows([10]), insert(PREPARED, 2)].concat());
    cars.fragment(large, 1, &insert(PREPARED, 3));
    cars.commit(large, reference(large, 2));
    let wanted = |op: &Op<'_>| match op {
        Op::Insert { table, .. } | Op::Update { table, .. } | Op::Delete { table, .. } => *table == TABLE,
        _ => false,
    };
    let mut assembly = Assembly::new(Fragments::default(), Position::default());
    let seen: Vec<Seen> =
        cars.parts(Lsn(0)).filter_map(|part| Seen::add(&mut assembly, part.keeping(wanted).unwrap())).collect();
    let rows = |rows: &[i64]| Some(rows.to_vec());
    assert_eq!(of(&seen), [(A, 1, rows(&[])), (A, 2, rows(&[7])), (A, 3, rows(&[8, 9, -5])), (A, 4, rows(&[10]))]);
    let places = |seen: &[Seen]| seen.iter().map(|s| (s.start, s.end)).collect::<Vec<_>>();
    assert_eq!(places(&seen), places(&cars.read(Position::default())), "what is left out changes no place");
}

#[test]
fn a_transaction_over_several_databases_is_one_in_each() {
    let mut cars = Cars::default();
    cars.add(1, |body| {
        put_batch(body, A, &[(id(1, 1), rows([1]))]);
        put_batch(body, B, &[(id(1, 2), rows([2]))]);
    });
    let seen = cars.read(Position::default());
    assert_eq!(of(&seen), [(A, 1, Some(vec![1])), (B, 2, Some(vec![2]))]);
    assert!(seen[0].end < seen[1].start);
    let body = &cars.0[0].2;
    let of_b = parts(Car { lsn: Lsn(1), epoch: Epoch(1), body }, |volume| volume == B);
    assert_eq!(of_b.map(|part| part.unwrap().volume).collect::<Vec<_>>(), [B]);
}

#[test]
fn a_body_that_cannot_be_read_names_its_boxcar() {
    let mut body = Vec::new();
    put_batch(&mut body, A, &[(id(1, 1), rows([1]))]);
    body.extend([9, 0, 0, 0, 1]);
    let read: Vec<_> = parts(Car { lsn: Lsn(77), epoch: Epoch(1), body: &body }, |_| true).collect();
    assert!(matches!(read[..], [Ok(_), Err(ChangesError::Boxcar { lsn: Lsn(77), .. })]), "{read:?}");
    let mut assembly = Assembly::new(Fragments::default(), Position::default());
    let mut body = Vec::new();
    put_batch(&mut body, A, &[(id(1, 1), vec![99])]);
    let part = parts(Car { lsn: Lsn(78), epoch: Epoch(1), body: &body }, |_| true).next().unwrap().unwrap();
    assert!(matches!(assembly.add(part), Err(ChangesError::Boxcar { lsn: Lsn(78), .. })));
}

/// A trail of small and large transactions of two databases, some dropped, some lost with their master.
fn random_cars(mut random: impl FnMut(u64) -> u64) -> Cars {
    let (mut cars, mut epoch, mut next, mut row) = (Cars::default(), 1, 0, 0);
    let mut open: Vec<(TxnId, VolumeId, u32)> = Vec::new();
    for _ in 0..60 {
        if random(20) == 0 {
            epoch += 1;
            open.clear();
        }
        let mut number = || {
            next += 1;
            id(epoch, next)
        };
        let mut some = |random: &mut dyn FnMut(u64) -> u64| {
            let from = row;
            row += random(4) as i64;
            rows(from..row)
        };
        cars.add(epoch, |body| {
            for _ in 0..=random(3) {
                let volume = if random(3) == 0 { B } else { A };
                match random(5) {
                    0 => open.push((number(), volume, 0)),
                    1 | 2 if !open.is_empty() => {
                        let at = random(open.len() as u64) as usize;
                        let (txn, volume, count) = &mut open[at];
                        put_fragment(body, *volume, *txn, *count, &some(&mut random));
                        *count += 1;
                    }
                    3 if !open.is_empty() => {
                        let (txn, volume, count) = open.swap_remove(random(open.len() as u64) as usize);
                        match random(4) {
                            0 => put_fragment_drop(body, volume, txn),
                            _ => put_batch(body, volume, &[(txn, reference(txn, count))]),
                        }
                    }
                    _ => {
                        let all: Vec<_> = (0..=random(3)).map(|_| (number(), some(&mut random))).collect();
                        put_batch(body, volume, &all);
                    }
                }
            }
        });
    }
    cars
}

#[test]
fn wherever_reading_ends_it_begins_again_without_a_loss() {
    for seed in 0..40u64 {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let cars = random_cars(|below| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        });
        let all = cars.read(Position::default());
        assert!(all.iter().all(|seen| seen.rows.is_some()), "seed {seed}");
        assert!(
            all.windows(2).all(|two| two[0].end <= two[1].start && two[0].restart <= two[1].restart),
            "seed {seed}"
        );
        for (place, last) in all.iter().enumerate() {
            assert!(last.restart.lsn() >= last.end.lsn() || last.restart < last.start, "seed {seed}");
            let again: Vec<Seen> = cars.read(last.restart).into_iter().filter(|seen| seen.start >= last.end).collect();
            assert_eq!(again, all[place + 1..], "seed {seed}, behind transaction {place}");
        }
    }
}
