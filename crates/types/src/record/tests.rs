//! Tests of the trail's records: golden bytes, round trips, and bytes that are not a record.

use super::*;
use crate::access::{AclItem, Membership, Privileges, RoleParameter};
use crate::ids::{Hlc, SiteId, TableId};
use crate::value::ValueRef;
use op::*;

/// A body with every record and every operation in it.
fn sample() -> Vec<u8> {
    let mut buf = Vec::new();
    let mut batch = BatchBuilder::begin(&mut buf, VolumeId(7), 300, 2);
    let head = TxnHead { id: TxnId(9), site: SiteId(1), hlc: Hlc(0x0102) };
    let author = Author::new("ann", "app");
    batch.begin_transaction(&mut buf, head, Some(author.names()));
    put_insert(&mut buf, TableId(4), Some(-1), 2);
    put_cell(&mut buf, ValueRef::Int(300));
    put_cell(&mut buf, ValueRef::Text(b"x"));
    put_update(&mut buf, TableId(4), true);
    put_rowid_key(&mut buf, -1);
    put_rowid_key(&mut buf, 1);
    put_mask(&mut buf, &[0b10, 0b1, 0]);
    for value in [ValueRef::Text(b"x"), ValueRef::Null, ValueRef::Blob(b"b"), ValueRef::Real(1.0)] {
        put_cell(&mut buf, value);
    }
    put_delete(&mut buf, TableId(5));
    put_columns_key(&mut buf, 1);
    put_cell(&mut buf, ValueRef::Int(1));
    put_count(&mut buf, 1);
    put_cell(&mut buf, ValueRef::Int(1));
    put_sequence(&mut buf, TableId(4), 1, ValueRef::Int(8));
    batch.end_transaction(&mut buf);
    batch.begin_transaction(&mut buf, head, Some(author.names()));
    put_insert(&mut buf, TableId(5), None, 1);
    put_cell(&mut buf, ValueRef::Int(2));
    put_ddl(&mut buf, &Ddl { text: "create view v", epoch_after: 3, sqlite_version: 3054001, schema_hash: 0xabc });
    put_all_sequences(&mut buf, [(2, ValueRef::Text(b"t"), ValueRef::Int(5))].into_iter());
    put_pragma(&mut buf, "pragma user_version=3");
    put_fragments(&mut buf, TxnId(9), 2);
    batch.end_transaction(&mut buf);
    batch.finish(&mut buf);
    put_fragment(&mut buf, VolumeId(7), TxnId(9), 1, &[]);
    put_fragment_drop(&mut buf, VolumeId(7), TxnId(9));
    let checkpoint = Checkpoint {
        volume: VolumeId(7),
        number: 300,
        redo_start: Lsn(4096),
        file_size_bytes: 8192,
        file_mtime_ns: -1,
    };
    put_checkpoint(&mut buf, &checkpoint);
    put_volume_create(&mut buf, VolumeId(8), Dialect::Postgres, "shop");
    put_volume_drop(&mut buf, VolumeId(8));
    put_parameters(&mut buf, ParametersOf::Database(VolumeId(8)), [("a", "on")].into_iter());
    put_parameters(&mut buf, ParametersOf::Role("tom"), [].into_iter());
    put_role(&mut buf, &role());
    put_role_drop(&mut buf, 16384);
    put_database_access(&mut buf, VolumeId(8), &database());
    buf
}

fn role() -> Role {
    Role {
        login: true,
        connection_limit: 5,
        password: Some("SCRAM-SHA-256$".into()),
        valid_until_us: Some(-1),
        member_of: vec![Membership { role: 16385, grantor: 10, admin: true }],
        parameters: vec![RoleParameter { database: VolumeId(8), name: "a".into(), value: "on".into() }],
        ..Role::new(16384, "tom")
    }
}

fn database() -> DatabaseAccess {
    let granted = Privileges::CONNECT | Privileges::CREATE;
    let item = AclItem { grantee: 0, grantor: 10, granted, grantable: Privileges::CREATE };
    DatabaseAccess { owner: 16384, connection_limit: -1, acl: Some(vec![item]) }
}

#[test]
fn what_nodes_share_is_neither_a_roles_nor_a_databases() {
    let mut buf = Vec::new();
    put_parameters(&mut buf, ParametersOf::Server, [("a", "x")].into_iter());
    assert_eq!(buf, b"\x0f\0\0\0\x07\x01\0\0\0\0\0\x01\0\0\0\x01a\x01x");
    match RecordReader::new(&buf).next() {
        Some(Ok(Record::Parameters { of: ParametersOf::Server, mut pairs })) => {
            assert_eq!((pairs.next(), pairs.next()), (Some(("a", "x")), None));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn roles_and_access_are_read_as_they_were_written() {
    let all = [role(), Role::bootstrap(), Role::new(16385, "")];
    for role in all {
        let mut buf = Vec::new();
        put_role(&mut buf, &role);
        match RecordReader::new(&buf).next() {
            Some(Ok(Record::Role(body))) => assert_eq!(body.role(), Ok(role)),
            other => panic!("{other:?}"),
        }
    }
    for access in [database(), DatabaseAccess::default(), DatabaseAccess { acl: Some(Vec::new()), ..database() }] {
        let mut buf = Vec::new();
        put_database_access(&mut buf, VolumeId(8), &access);
        match RecordReader::new(&buf).next() {
            Some(Ok(Record::DatabaseAccess { volume: VolumeId(8), access: body })) => {
                assert_eq!(body.access(), Ok(access));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// The bytes of [`sample`], record by record. They change only together with a version byte.
const GOLDEN: &str = "
c60000000102070000002c0100000000000002000000020000004b0000000900000000000000010002010000000000000203
616e6e0361707001040102112c010301780404000100020202010301780004016202000000000000f03f0505010901010901
07040209085d0000000900000000000000010002010000000000000002050109020603b1b3ba01bc0a0000000000000d6372
656174652076696577207608010403017409050915707261676d6120757365725f76657273696f6e3d330a09000000000000
0002
12000000020107000000090000000000000001000000
0e0000000301070000000900000000000000
260000000401070000002c0100000000000000100000000000000020000000000000ffffffffffffffff
0c000000050108000000010473686f70
06000000060108000000
1000000007010800000000010000000161026f6e
0e00000007010000000003746f6d00000000
4300000008010040000003746f6d120005000000010e534352414d2d5348412d3235362401ffffffffffffffff0100000001
4000000a0000000101000000080000000161026f6e
06000000090100400000
1f0000000a010800000000400000ffffffff0101000000000000000a000000000a0002
";

/// The first record of [`sample`] as programs before roles were recorded wrote it.
const GOLDEN_WITHOUT_ROLES: &str = "
bc0000000101070000002c010000000000000200000002000000420000000900000000000000010002010000000000000104
0102112c010301780404000100020202010301780004016202000000000000f03f050501090101090107040209085c000000
09000000000000000100020100000000000002050109020603b1b3ba01bc0a0000000000000d637265617465207669657720
7608010403017409050915707261676d6120757365725f76657273696f6e3d330a090000000000000002
";

fn unhex(text: &str) -> Vec<u8> {
    let digits = text.split_whitespace().collect::<String>();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn the_format_has_not_changed() {
    assert_eq!(hex(&sample()), GOLDEN.split_whitespace().collect::<String>());
}

#[test]
fn what_was_written_is_read() {
    let body = sample();
    let shown: Vec<String> = RecordReader::new(&body).map(|record| format!("{:?}", show(record.unwrap()))).collect();
    assert_eq!(shown.len(), 11);
    assert_eq!(
        shown[0],
        concat!(
            r#"["batch 7 300 2 2", "#,
            r#""insert 4 Some(-1) [Int(300), Text([120])]", "#,
            r#""update 4 rowid -1 Some(\"rowid 1\") [1, 8] [Text([120]), Null, Blob([98]), Real(1.0)]", "#,
            r#""delete 5 [Int(1)] [Int(1)]", "sequence 4 1 Int(8)", "#,
            r#""insert 5 None [Int(2)]", "ddl 3 3054001 2748 create view v", "#,
            r#""sequences [(2, Text([116]), Int(5))]", "pragma pragma user_version=3", "fragments 9 2"]"#
        )
    );
    assert_eq!(shown[1], r#"["fragment 7 9 1"]"#);
    assert!(shown[3].contains("number: 300, redo_start: Lsn(4096), file_size_bytes: 8192, file_mtime_ns: -1"));
    assert!(shown[6].contains("on") && shown[7].contains("tom"));
    assert!(shown[4].contains("Postgres") && shown[4].contains("shop"));
}

/// Who made the transactions of the first record.
fn authors(body: &[u8]) -> Vec<Option<Author>> {
    let Some(Ok(Record::Batch(batch))) = RecordReader::new(body).next() else { panic!("not a batch") };
    batch.transactions().map(|t| t.unwrap().author.map(AuthorNames::to_author)).collect()
}

#[test]
fn a_batch_of_an_earlier_program_has_no_roles() {
    let old = unhex(GOLDEN_WITHOUT_ROLES);
    assert_eq!(authors(&old), [None, None]);
    let ops = |body: &[u8]| show(RecordReader::new(body).next().unwrap().unwrap());
    assert_eq!(ops(&old), ops(&sample()));
    let mut newer = old;
    newer[5] = 3;
    let error = RecordReader::new(&newer).next().unwrap().unwrap_err();
    assert_eq!(error, DecodeError::Version { kind: 1, version: 3 });
}

#[test]
fn each_transaction_has_its_roles_and_a_name_is_written_once() {
    let (ann, as_app) = (Author::new("ann", "ann"), Author::new("ann", "app"));
    let made = [None, Some(&ann), Some(&ann), Some(&as_app), None, None, Some(&as_app), Some(&ann)];
    let head = TxnHead { id: TxnId(1), site: SiteId(0), hlc: Hlc(1) };
    let mut buf = b"in front".to_vec();
    let mut batch = BatchBuilder::begin(&mut buf, VolumeId(1), 1, 1);
    let mut bytes = Vec::new();
    for author in made {
        // One that is backed out is not the one before.
        batch.begin_transaction(&mut buf, head, Some(Author::new("undone", "undone").names()));
        buf.truncate(batch.transaction_start());
        let before = buf.len();
        batch.begin_transaction(&mut buf, head, author.map(Author::names));
        batch.end_transaction(&mut buf);
        bytes.push(buf.len() - before - 22);
    }
    batch.finish(&mut buf);
    assert_eq!(bytes, [1, 5, 1, 9, 1, 1, 9, 5]);
    let expected: Vec<_> = made.into_iter().map(|author| author.cloned()).collect();
    assert_eq!(authors(&buf[8..]), expected);
    // A part of the record, as a restore to a moment takes it, names them too.
    let Some(Ok(Record::Batch(batch))) = RecordReader::new(&buf[8..]).next() else { panic!("not a batch") };
    let mut part = b"x".to_vec();
    batch.put_first(&mut part, 5).unwrap();
    assert_eq!(authors(&part[1..]), expected[..5]);
}

#[test]
fn a_name_is_cut_at_a_character() {
    let long = format!("{}é", "x".repeat(62));
    assert_eq!(Author::new(&long, &long).names().session_user, &long[..62]);
    assert_eq!(Author::new("", "a").names(), AuthorNames { session_user: "", current_user: Some("a") });
}

/// Reads everything in a record.
fn show(record: Record<'_>) -> Vec<String> {
    match record {
        Record::Batch(b) => {
            let mut lines = vec![format!("batch {} {} {} {}", b.volume, b.number, b.schema_epoch, b.count)];
            for transaction in b.transactions() {
                lines.extend(transaction.unwrap().ops.map(|op| show_op(op.unwrap())));
            }
            lines
        }
        Record::Fragment { volume, txn, number, ops } => {
            assert_eq!(ops.count(), 0);
            vec![format!("fragment {volume} {txn} {number}")]
        }
        Record::Parameters { of, pairs } => vec![format!("parameters {of:?} {:?}", pairs.collect::<Vec<_>>())],
        other => vec![format!("{other:?}")],
    }
}

fn show_key(key: Key<'_>) -> String {
    match key {
        Key::Rowid(rowid) => format!("rowid {rowid}"),
        Key::Columns(cells) => format!("{:?}", cells.collect::<Vec<_>>()),
    }
}

fn show_op(op: Op<'_>) -> String {
    match op {
        Op::Insert { table, rowid, values } => format!("insert {table} {rowid:?} {:?}", values.collect::<Vec<_>>()),
        Op::Update { table, key, new_key, mask, changes } => format!(
            "update {table} {} {:?} {:?} {:?}",
            show_key(key),
            new_key.map(show_key),
            mask.positions().collect::<Vec<_>>(),
            changes.collect::<Vec<_>>()
        ),
        Op::Delete { table, key, before } => {
            format!("delete {table} {} {:?}", show_key(key), before.collect::<Vec<_>>())
        }
        Op::Ddl(d) => format!("ddl {} {} {} {}", d.epoch_after, d.sqlite_version, d.schema_hash, d.text),
        Op::Sequence { table, rowid, value } => format!("sequence {table} {rowid} {value:?}"),
        Op::AllSequences(rows) => format!("sequences {:?}", rows.collect::<Vec<_>>()),
        Op::Pragma(text) => format!("pragma {text}"),
        Op::Fragments { txn, count } => format!("fragments {txn} {count}"),
    }
}

/// Reads as far as the bytes allow. Returns whether all of them could be read.
fn read_all(body: &[u8]) -> bool {
    RecordReader::new(body).all(|record| match record {
        Ok(Record::Batch(b)) => b.transactions().all(|t| t.is_ok_and(|mut t| t.ops.all(|op| op.map(show_op).is_ok()))),
        Ok(Record::Fragment { mut ops, .. }) => ops.all(|op| op.is_ok()),
        other => other.is_ok(),
    })
}

#[test]
fn no_damage_panics_or_passes_a_cut() {
    let body = sample();
    assert!(read_all(&body));
    let mut whole_cuts = 0;
    for cut in 0..body.len() {
        whole_cuts += usize::from(read_all(&body[..cut]));
    }
    assert_eq!(whole_cuts, 11, "only cuts between the eleven records leave whole records");
    for i in 0..body.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = body.clone();
            damaged[i] ^= flip;
            read_all(&damaged);
        }
    }
}

#[test]
fn a_newer_version_is_named() {
    let mut buf = Vec::new();
    put_volume_drop(&mut buf, VolumeId(1));
    buf[5] = 2;
    let error = RecordReader::new(&buf).next().unwrap().unwrap_err();
    assert_eq!(error, DecodeError::Version { kind: 6, version: 2 });
}

#[test]
fn a_transaction_backed_out_leaves_no_trace() {
    let build = |with_second: bool| {
        let mut buf = Vec::new();
        let mut batch = BatchBuilder::begin(&mut buf, VolumeId(1), 1, 1);
        let head = TxnHead { id: TxnId(1), site: SiteId(0), hlc: Hlc(1) };
        batch.begin_transaction(&mut buf, head, None);
        put_pragma(&mut buf, "a");
        batch.end_transaction(&mut buf);
        if with_second {
            batch.begin_transaction(&mut buf, head, Some(Author::new("ann", "ann").names()));
            put_pragma(&mut buf, "b");
            buf.truncate(batch.transaction_start());
        }
        batch.finish(&mut buf);
        buf
    };
    assert_eq!(build(true), build(false));
}
