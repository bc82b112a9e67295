//! Everything that can stand in a trail, decoded and named; what `--json` prints.

use super::names::Names;
use holdfast_types::access::{Membership, Role, RoleParameter};
use holdfast_types::record::{self, AuthorNames, Batch, DecodeError, Key, Op, Ops, ParametersOf, Record};
use holdfast_types::schema::Dialect;
use holdfast_types::{TableId, Value, ValueRef, VolumeId};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "item", rename_all = "snake_case")]
pub enum Item {
    Segment {
        file: String,
        segment: u32,
        epoch: Option<u32>,
        recycled: bool,
    },
    Boxcar {
        lsn: u64,
        end: u64,
        kind: &'static str,
        epoch: u32,
        incarnation: u32,
        proven: u64,
        written_unix_ms: u64,
        checksum: u32,
        records: Vec<RecordItem>,
    },
    /// Here the segment ends, or is torn or damaged.
    Stop {
        file: String,
        offset: u64,
        lsn: u64,
        reason: String,
    },
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum RecordItem {
    Batch {
        volume: u32,
        database: Option<String>,
        #[serde(skip)]
        dialect: Dialect,
        number: u64,
        schema_epoch: u32,
        transactions: Vec<TxnItem>,
    },
    Fragment {
        volume: u32,
        database: Option<String>,
        #[serde(skip)]
        dialect: Dialect,
        transaction: u64,
        number: u32,
        ops: Vec<OpItem>,
    },
    FragmentDrop {
        volume: u32,
        database: Option<String>,
        transaction: u64,
    },
    Checkpoint {
        volume: u32,
        database: Option<String>,
        number: u64,
        redo_start: u64,
        file_size_bytes: u64,
        file_mtime_ns: i64,
    },
    VolumeCreate {
        volume: u32,
        dialect: &'static str,
        name: String,
    },
    VolumeDrop {
        volume: u32,
    },
    Parameters {
        /// The database's, or else the role's.
        volume: Option<u32>,
        role: Option<String>,
        parameters: Vec<(String, String)>,
    },
    /// The verifier of its password is not shown.
    Role {
        oid: u32,
        name: String,
        attributes: Vec<&'static str>,
        connection_limit: i32,
        has_password: bool,
        valid_until_us: Option<i64>,
        member_of: Vec<MembershipItem>,
        parameters: Vec<RoleParameterItem>,
    },
    RoleDrop {
        oid: u32,
    },
    DatabaseAccess {
        volume: u32,
        owner: u32,
        connection_limit: i32,
        /// `None`: the initial grants. OIDs stand for names.
        acl: Option<Vec<String>>,
    },
    Unreadable {
        error: String,
    },
}

#[derive(Clone, Debug, Serialize)]
pub struct MembershipItem {
    pub role: u32,
    pub grantor: u32,
    pub admin: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct RoleParameterItem {
    /// 0: in every database.
    pub volume: u32,
    pub name: String,
    pub value: String,
}

#[derive(Clone, Debug, Serialize)]
pub struct TxnItem {
    pub id: u64,
    pub site: u16,
    /// The hybrid logical clock: milliseconds since 1970, and the counter within one.
    pub unix_ms: u64,
    pub counter: u16,
    /// The role that made it, and the one of SET ROLE; not in trails of releases that did not record roles.
    pub session_user: Option<String>,
    pub current_user: Option<String>,
    pub ops: Vec<OpItem>,
}

impl TxnItem {
    /// The roles that made it.
    pub fn by(&self) -> Option<AuthorNames<'_>> {
        let session_user = self.session_user.as_deref()?;
        Some(AuthorNames { session_user, current_user: self.current_user.as_deref() })
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum OpItem {
    Insert { table: String, rowid: Option<i64>, values: Cells },
    Update { table: String, key: Cells, new_key: Option<Cells>, changes: Vec<Change> },
    Delete { table: String, key: Cells, before: Cells },
    Ddl { sql: String, schema_epoch_after: u32, sqlite_version: u32, schema_hash: u64 },
    Sequence { table: String, rowid: i64, value: Val },
    AllSequences { rows: Vec<Cells> },
    Pragma { sql: String },
    Fragments { transaction: u64, count: u32 },
    Unreadable { error: String },
}

#[derive(Clone, Debug, Serialize)]
pub struct Change {
    pub column: String,
    pub before: Val,
    pub after: Val,
}

/// Named values, an object in JSON.
#[derive(Clone, Debug)]
pub struct Cells(pub Vec<(String, Val)>);

/// A value; in JSON a blob is `{"blob": "hexadecimal"}`.
#[derive(Clone, Debug)]
pub struct Val(pub Value);

impl Serialize for Cells {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl Serialize for Val {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            Value::Null => s.serialize_unit(),
            Value::Int(n) => s.serialize_i64(*n),
            Value::Real(r) => s.serialize_f64(*r),
            Value::Text(t) => s.serialize_str(t),
            Value::Blob(b) => {
                let mut map = s.serialize_map(Some(1))?;
                map.serialize_entry("blob", &hex(b))?;
                map.end()
            }
        }
    }
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

fn val(value: ValueRef<'_>) -> Val {
    Val(value.to_value())
}

pub fn volume_of(record: &Record<'_>) -> VolumeId {
    match record {
        Record::Batch(b) => b.volume,
        Record::Checkpoint(c) => c.volume,
        Record::Fragment { volume, .. }
        | Record::FragmentDrop { volume, .. }
        | Record::VolumeCreate { volume, .. }
        | Record::VolumeDrop { volume }
        | Record::DatabaseAccess { volume, .. }
        | Record::Parameters { of: ParametersOf::Database(volume), .. } => *volume,
        Record::Parameters { of: ParametersOf::Role(_) | ParametersOf::Server, .. }
        | Record::Role(_)
        | Record::RoleDrop { .. } => VolumeId(0),
    }
}

pub fn record(record: Result<Record<'_>, DecodeError>, names: &Names) -> RecordItem {
    let record = match record {
        Ok(record) => record,
        Err(e) => return unreadable(e),
    };
    let id = volume_of(&record);
    let (volume, database) = (id.0, names.database(id));
    match record {
        Record::Batch(b) => batch(&b, names),
        Record::Fragment { txn, number, ops: all, .. } => {
            let dialect = names.dialect(id);
            RecordItem::Fragment { volume, database, dialect, transaction: txn.0, number, ops: ops(all, id, names) }
        }
        Record::FragmentDrop { txn, .. } => RecordItem::FragmentDrop { volume, database, transaction: txn.0 },
        Record::Checkpoint(c) => RecordItem::Checkpoint {
            volume,
            database,
            number: c.number,
            redo_start: c.redo_start.0,
            file_size_bytes: c.file_size_bytes,
            file_mtime_ns: c.file_mtime_ns,
        },
        Record::VolumeCreate { dialect, name, .. } => {
            let dialect = match dialect {
                Dialect::Sqlite => "sqlite",
                Dialect::Postgres => "postgres",
            };
            RecordItem::VolumeCreate { volume, dialect, name: name.to_owned() }
        }
        Record::VolumeDrop { .. } => RecordItem::VolumeDrop { volume },
        Record::Parameters { of, pairs } => {
            let parameters = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
            let (volume, role) = match of {
                ParametersOf::Database(_) => (Some(volume), None),
                ParametersOf::Role(role) => (None, Some(role.to_owned())),
                ParametersOf::Server => (None, None),
            };
            RecordItem::Parameters { volume, role, parameters }
        }
        Record::Role(body) => body.role().map_or_else(unreadable, role),
        Record::RoleDrop { oid } => RecordItem::RoleDrop { oid },
        Record::DatabaseAccess { access, .. } => match access.access() {
            Ok(access) => RecordItem::DatabaseAccess {
                volume,
                owner: access.owner,
                connection_limit: access.connection_limit,
                acl: access.acl.map(|acl| acl.iter().map(|item| item.text(|oid| oid.to_string())).collect()),
            },
            Err(e) => unreadable(e),
        },
    }
}

fn unreadable(error: DecodeError) -> RecordItem {
    RecordItem::Unreadable { error: error.to_string() }
}

fn role(role: Role) -> RecordItem {
    let attributes = [
        (role.superuser, "superuser"),
        (role.inherit, "inherit"),
        (role.create_role, "create_role"),
        (role.create_db, "create_db"),
        (role.login, "login"),
        (role.replication, "replication"),
        (role.bypass_rls, "bypass_rls"),
    ];
    let membership = |m: Membership| MembershipItem { role: m.role, grantor: m.grantor, admin: m.admin };
    let parameter = |p: RoleParameter| RoleParameterItem { volume: p.database.0, name: p.name, value: p.value };
    RecordItem::Role {
        oid: role.oid,
        name: role.name,
        attributes: attributes.into_iter().filter(|(on, _)| *on).map(|(_, name)| name).collect(),
        connection_limit: role.connection_limit,
        has_password: role.password.is_some(),
        valid_until_us: role.valid_until_us,
        member_of: role.member_of.into_iter().map(membership).collect(),
        parameters: role.parameters.into_iter().map(parameter).collect(),
    }
}

fn batch(batch: &Batch<'_>, names: &Names) -> RecordItem {
    let transactions = batch.transactions().map(|transaction| match transaction {
        Ok(t) => TxnItem {
            id: t.head.id.0,
            site: t.head.site.0,
            unix_ms: t.head.hlc.unix_ms(),
            counter: (t.head.hlc.0 & 0xffff) as u16,
            session_user: t.author.map(|author| author.session_user.to_owned()),
            current_user: t.author.and_then(|author| author.current_user).map(str::to_owned),
            ops: ops(t.ops, batch.volume, names),
        },
        Err(e) => {
            let ops = vec![OpItem::Unreadable { error: e.to_string() }];
            TxnItem { id: 0, site: 0, unix_ms: 0, counter: 0, session_user: None, current_user: None, ops }
        }
    });
    RecordItem::Batch {
        volume: batch.volume.0,
        database: names.database(batch.volume),
        dialect: names.dialect(batch.volume),
        number: batch.number,
        schema_epoch: batch.schema_epoch,
        transactions: transactions.collect(),
    }
}

fn ops(ops: Ops<'_>, volume: VolumeId, names: &Names) -> Vec<OpItem> {
    ops.map(|o| match o {
        Ok(o) => op(o, volume, names),
        Err(e) => OpItem::Unreadable { error: e.to_string() },
    })
    .collect()
}

fn op(op: Op<'_>, volume: VolumeId, names: &Names) -> OpItem {
    let name = |table| names.table(volume, table);
    let row = |table: TableId, cells: record::Cells<'_>| {
        Cells(cells.enumerate().map(|(i, cell)| (names.column(volume, table, i), val(cell))).collect())
    };
    match op {
        Op::Insert { table, rowid, values } => OpItem::Insert { table: name(table), rowid, values: row(table, values) },
        Op::Update { table, key: old, new_key, mask, changes } => {
            let cells: Vec<_> = changes.map(val).collect();
            let pairs = mask.positions().zip(cells.chunks_exact(2));
            let changes = pairs.map(|(position, pair)| Change {
                column: names.column(volume, table, position),
                before: pair[0].clone(),
                after: pair[1].clone(),
            });
            let changes = changes.collect();
            let key = |k| key(k, &names.key(volume, table));
            OpItem::Update { table: name(table), key: key(old), new_key: new_key.map(key), changes }
        }
        Op::Delete { table, key: old, before } => {
            let key = key(old, &names.key(volume, table));
            OpItem::Delete { table: name(table), key, before: row(table, before) }
        }
        Op::Ddl(d) => OpItem::Ddl {
            sql: d.text.to_owned(),
            schema_epoch_after: d.epoch_after,
            sqlite_version: d.sqlite_version,
            schema_hash: d.schema_hash,
        },
        Op::Sequence { table, rowid, value } => OpItem::Sequence { table: name(table), rowid, value: val(value) },
        Op::AllSequences(rows) => {
            let row = |(rowid, name, value)| {
                let rowid = ("rowid".to_owned(), Val(Value::Int(rowid)));
                Cells(vec![rowid, ("name".to_owned(), val(name)), ("seq".to_owned(), val(value))])
            };
            OpItem::AllSequences { rows: rows.map(row).collect() }
        }
        Op::Pragma(sql) => OpItem::Pragma { sql: sql.to_owned() },
        Op::Fragments { txn, count } => OpItem::Fragments { transaction: txn.0, count },
    }
}

/// A rowid, or the columns of a primary key in its order, as they are called where that is known.
fn key(key: Key<'_>, called: &[String]) -> Cells {
    let name = |i: usize, or: String| called.get(i).cloned().unwrap_or(or);
    match key {
        Key::Rowid(rowid) => Cells(vec![(name(0, "rowid".to_owned()), Val(Value::Int(rowid)))]),
        Key::Columns(cells) => {
            Cells(cells.enumerate().map(|(i, cell)| (name(i, format!("key {}", i + 1)), val(cell))).collect())
        }
    }
}
