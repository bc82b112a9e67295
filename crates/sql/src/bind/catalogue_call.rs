//! Functions over the catalogue, and the names and OIDs of objects (`regclass` and similar types).
//!
//! A function that needs the schema becomes a subquery on the catalogue's own tables.

use super::Binder;
use super::coerce::When;
use super::typed::Typed;
use crate::catalogue;
use crate::names::quote_text;
use crate::params::SessionValue;
use crate::types::{Type, more};
use holdfast_types::desc::oid;
use holdfast_types::schema::Table;
use holdfast_types::{SqlError, SqlResult, SqlState};

/// The server's function behind `holdfast_wait_for_lsn`. It takes a position and milliseconds. It returns -1 when
/// readers see everything below the position; otherwise it sleeps briefly and returns the milliseconds that remain.
pub const WAIT_SLICE_FUNCTION: &str = "hf_wait_for_lsn";

/// The server's function behind `pg_cancel_backend` and `pg_terminate_backend`: an operation, a process number, and
/// milliseconds where there is a time. Cancel and Terminate return whether there is such a session. Wait returns -1 when
/// there is none, otherwise it sleeps briefly and returns the milliseconds that remain.
pub const SIGNAL_FUNCTION: &str = "hf_signal";

/// The server's function behind `pg_stat_statements_reset`: role, database and number, 0 for all.
pub const RESET_STATEMENTS_FUNCTION: &str = "hf_reset_statements";

/// What [`SIGNAL_FUNCTION`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i64)]
pub enum SignalOp {
    Cancel = 1,
    Terminate = 2,
    Wait = 3,
}

impl SignalOp {
    /// The operation of this number.
    pub fn from_i64(number: i64) -> Option<SignalOp> {
        [SignalOp::Cancel, SignalOp::Terminate, SignalOp::Wait].into_iter().find(|op| *op as i64 == number)
    }
}

/// `hf_reload_conf(user)` reads the files of rules again, if the user is a superuser.
pub const RELOAD_FUNCTION: &str = "hf_reload_conf";

/// `pg_switch_wal()`: ends the segment of the trail that is being written; the position behind it.
pub const SWITCH_FUNCTION: &str = "hf_switch_wal";

/// A column of the one row with the server's role and positions.
fn standing(column: &str) -> String {
    format!("(SELECT \"{column}\" FROM pg_catalog.\"hf_standing\")")
}

/// `version()`.
pub const VERSION: &str = concat!("PostgreSQL 15.0 (Holdfast ", env!("CARGO_PKG_VERSION"), "), SQLite storage");

impl Binder<'_> {
    pub(super) fn catalogue_call(&mut self, name: &str, args: &[Typed]) -> SqlResult<Option<Typed>> {
        if self.stored {
            return Ok(None);
        }
        for part in [Self::privilege_call, Self::acl_call] {
            if let Some(found) = part(self, name, args)? {
                return Ok(Some(found));
            }
        }
        if let Some(found) = call_of_nothing(name, args.len()) {
            return Ok(Some(found));
        }
        for part in [Self::settings_call, Self::definition_call, Self::trail_call, Self::value_call, Self::array_call] {
            if let Some(found) = part(self, name, args)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// The first argument of a call, as an OID.
    pub(super) fn first_oid(&mut self, args: &[Typed]) -> SqlResult<String> {
        let arg = args.first().cloned().unwrap_or_else(Typed::null);
        Ok(self.coerce(arg, Type::OID, When::Assignment)?.sql)
    }

    /// Functions that return an object's definition or name, or whether its name alone finds it.
    fn definition_call(&mut self, name: &str, args: &[Typed]) -> SqlResult<Option<Typed>> {
        Ok(match (name, args.len()) {
            ("format_type", 2) => {
                let typmod = self.coerce(args[1].clone(), Type::INT4, When::Implicit)?.sql;
                let of = self.first_oid(args)?;
                text(self.helper("hf_format_type", &[&of, &typmod])?)
            }
            ("pg_has_role", 2 | 3) => Some(self.has_role(args)?),
            ("pg_get_expr", 2 | 3) => text(args[0].sql.clone()),
            ("pg_get_indexdef", 1 | 3) => {
                let index = self.first_oid(args)?;
                let column = match args.get(1) {
                    Some(n) => self.coerce(n.clone(), Type::INT4, When::Implicit)?.sql,
                    None => "0".into(),
                };
                text(found("hf_indexdef", "def", &format!("{ROW}.\"oid\" = {index} AND {ROW}.\"attnum\" = {column}")))
            }
            ("pg_get_replica_identity_index", 1) => {
                let table = self.coerce(args[0].clone(), Type::new(oid::REGCLASS), When::Assignment)?.sql;
                let condition = format!("{ROW}.\"indrelid\" = {table} AND {ROW}.\"indisprimary\"");
                Some(Typed::new(found("pg_index", "indexrelid", &condition), Type::new(oid::REGCLASS)))
            }
            ("pg_get_constraintdef", 1 | 2) => {
                let id = self.first_oid(args)?;
                text(by_oid("pg_constraint", "condef", &id))
            }
            ("pg_get_viewdef", 1 | 2) => {
                let id = self.first_oid(args)?;
                text(by_oid("hf_viewdef", "definition", &id))
            }
            ("pg_get_triggerdef", 1 | 2) => {
                let id = self.first_oid(args)?;
                text(by_oid("pg_trigger", "tgdef", &id))
            }
            ("pg_blocking_pids", 1) => {
                let pid = self.coerce(args[0].clone(), Type::INT4, When::Implicit)?.sql;
                Some(Typed::new(
                    format!(
                        "coalesce({}, '{{}}')",
                        found("hf_blocking_pids", "blocked_by", &format!("{ROW}.\"pid\" = {pid}"))
                    ),
                    Type::new(more::INT4_ARRAY),
                ))
            }
            ("pg_get_userbyid", 1) => {
                let id = self.first_oid(args)?;
                Some(Typed::new(
                    format!("coalesce({}, 'unknown (OID=' || {id} || ')')", by_oid("pg_roles", "rolname", &id)),
                    Type::NAME,
                ))
            }
            ("obj_description" | "shobj_description", 1 | 2) => text(self.description(name, args)?),
            ("pg_get_serial_sequence", 2) => text(self.serial_sequence(args)?),
            ("pg_encoding_to_char", 1) => {
                Some(Typed::new(format!("(CASE {} WHEN 6 THEN 'UTF8' ELSE '' END)", self.first_oid(args)?), Type::NAME))
            }
            ("pg_relation_is_publishable", 1) => {
                let id = self.coerce(args[0].clone(), Type::new(oid::REGCLASS), When::Assignment)?.sql;
                let condition =
                    format!("({ROW}.\"relkind\" = 'r' AND {ROW}.\"relpersistence\" = 'p' AND {ROW}.\"oid\" >= 16384)");
                let from = format!("FROM pg_catalog.\"pg_class\" AS {ROW} WHERE {ROW}.\"oid\" = {id}");
                Some(Typed::new(format!("(SELECT {condition} {from})"), Type::BOOL))
            }
            ("pg_table_is_visible", 1) => {
                // The name alone does not find a permanent table that a temporary one hides.
                let schema = self.ctx.schema;
                let hidden = |t: &&std::sync::Arc<Table>| !t.temp && schema.table(&t.name).is_some_and(|f| f.temp);
                let hidden = schema.tables.iter().filter(hidden).map(|t| t.oid);
                // No search path contains information_schema.
                let elsewhere = catalogue::tables().filter(|t| t.schema == "information_schema");
                let elsewhere = elsewhere.filter_map(|t| catalogue::of_catalogue_table(t.schema, t.name));
                let hidden: Vec<String> = hidden.chain(elsewhere).map(|oid| oid.to_string()).collect();
                let id = self.first_oid(args)?;
                Some(Typed::sure(format!("({id} NOT IN ({}))", hidden.join(", ")), Type::BOOL))
            }
            _ => None,
        })
    }

    /// `obj_description` and `shobj_description`: the description of an object, by its OID and its table's name.
    fn description(&mut self, name: &str, args: &[Typed]) -> SqlResult<String> {
        let id = self.first_oid(args)?;
        let (table, also) = match name {
            "obj_description" => ("pg_description", format!(" AND {ROW}.\"objsubid\" = 0")),
            _ => ("pg_shdescription", String::new()),
        };
        let class = match args.get(1) {
            Some(class) => {
                let class = self.coerce(class.clone(), Type::TEXT, When::Implicit)?.sql;
                format!(" AND {ROW}.\"classoid\" = {}", lookup("pg_class", "relname", &class))
            }
            None => String::new(),
        };
        Ok(found(table, "description", &format!("{ROW}.\"objoid\" = {id}{also}{class} LIMIT 1")))
    }

    /// `pg_get_serial_sequence`: the sequence of a column; both are given by name.
    fn serial_sequence(&mut self, args: &[Typed]) -> SqlResult<String> {
        let table = self.coerce(args[0].clone(), Type::TEXT, When::Implicit)?;
        let table = self.object_id_of(&table.sql, Type::new(oid::REGCLASS))?;
        let column = self.coerce(args[1].clone(), Type::TEXT, When::Implicit)?.sql;
        Ok(format!(
            "(SELECT 'public.' || \"hf s\".\"relname\" FROM pg_catalog.\"pg_depend\" AS \"hf d\" \
             JOIN pg_catalog.\"pg_class\" AS \"hf s\" ON \"hf s\".\"oid\" = \"hf d\".\"objid\" \
             JOIN pg_catalog.\"pg_attribute\" AS \"hf a\" ON \"hf a\".\"attrelid\" = \"hf d\".\"refobjid\" \
             AND \"hf a\".\"attnum\" = \"hf d\".\"refobjsubid\" \
             WHERE \"hf d\".\"refobjid\" = {table} AND \"hf a\".\"attname\" = {column})"
        ))
    }

    /// Functions on positions of the trail.
    fn trail_call(&mut self, name: &str, args: &[Typed]) -> SqlResult<Option<Typed>> {
        Ok(match (name, args.len()) {
            ("pg_wal_lsn_diff", 2) => {
                let one = self.coerce(args[0].clone(), Type::new(oid::PG_LSN), When::Implicit)?;
                let other = self.coerce(args[1].clone(), Type::new(oid::PG_LSN), When::Implicit)?;
                let (one, other) = (self.helper("hf_lsn", &[&one.sql])?, self.helper("hf_lsn", &[&other.sql])?);
                Some(Typed::new(format!("CAST(({one} - {other}) AS TEXT)"), Type::NUMERIC))
            }
            ("holdfast_wait_for_lsn", 1 | 2) => {
                let lsn = self.coerce(args[0].clone(), Type::TEXT, When::Assignment)?;
                let lsn = self.helper("hf_lsn", &[&lsn.sql])?;
                let wait_ms = match args.get(1) {
                    Some(wait) => self.coerce(wait.clone(), Type::INT8, When::Implicit)?.sql,
                    None => "0x7fffffff".into(),
                };
                let nap = format!(
                    "WITH RECURSIVE nap(remaining) AS (SELECT CAST({wait_ms} AS INTEGER) UNION ALL \
                     SELECT {WAIT_SLICE_FUNCTION}({lsn}, remaining) FROM nap WHERE remaining > 0)"
                );
                Some(Typed::new(
                    format!("({nap} SELECT min({WAIT_SLICE_FUNCTION}({lsn}, 0)) < 0 FROM nap)"),
                    Type::BOOL,
                ))
            }
            _ => None,
        })
    }

    /// Functions on settings, sizes and times.
    fn value_call(&mut self, name: &str, args: &[Typed]) -> SqlResult<Option<Typed>> {
        Ok(match (name, args.len()) {
            ("pg_postmaster_start_time", 0) => {
                Some(self.session(SessionValue::ServerStart, Type::new(oid::TIMESTAMPTZ))?)
            }
            ("pg_conf_load_time", 0) => Some(self.session(SessionValue::SettingsRead, Type::new(oid::TIMESTAMPTZ))?),
            ("inet_client_addr", 0) => self.of_peer(SessionValue::ClientAddress, oid::INET)?,
            ("inet_client_port", 0) => self.of_peer(SessionValue::ClientPort, oid::INT4)?,
            ("inet_server_addr", 0) => self.of_peer(SessionValue::ServerAddress, oid::INET)?,
            ("inet_server_port", 0) => self.of_peer(SessionValue::ServerPort, oid::INT4)?,
            ("pg_reload_conf", 0) => {
                let user = self.session(SessionValue::User, Type::NAME)?;
                Some(Typed::sure(format!("{RELOAD_FUNCTION}({})", user.sql), Type::BOOL))
            }
            ("pg_switch_wal", 0) => position(format!("{SWITCH_FUNCTION}()")),
            ("pg_size_pretty", 1) => {
                let size = self.coerce(args[0].clone(), Type::INT8, When::Assignment)?;
                text(self.helper("hf_size_pretty", &[&size.sql])?)
            }
            ("pg_database_size", 1) => Some(self.database_size(&args[0])?),
            // All databases are in one place.
            ("pg_tablespace_size", 1) => {
                Some(Typed::new("(SELECT sum(\"bytes\") FROM pg_catalog.\"hf_database_size\")", Type::INT8))
            }
            ("pg_table_size" | "pg_relation_size" | "pg_total_relation_size" | "pg_indexes_size", 1 | 2) => {
                let relation = args.first().cloned().unwrap_or_else(Typed::null);
                let id = self.coerce(relation, Type::new(oid::REGCLASS), When::Assignment)?.sql;
                let what = match name {
                    "pg_indexes_size" => "\"index_bytes\"",
                    "pg_total_relation_size" => "\"bytes\" + \"index_bytes\"",
                    _ => "\"bytes\"",
                };
                let size = |from: &str, what: &str| {
                    format!("SELECT {what} FROM pg_catalog.\"{from}\" AS {ROW} WHERE {ROW}.\"oid\" = {id}")
                };
                let (size, none) = (size("hf_relation_size", what), size("pg_class", "0"));
                Some(Typed::new(format!("({size} UNION ALL {none} LIMIT 1)"), Type::INT8))
            }
            ("pg_stat_statements_reset", 0..=3) => Some(self.reset_statements(args)?),
            ("pg_cancel_backend", 1) => Some(self.signal(SignalOp::Cancel, &args[0])?),
            ("pg_terminate_backend", 1) => Some(self.signal(SignalOp::Terminate, &args[0])?),
            ("pg_terminate_backend", 2) => Some(self.terminate_and_wait(&args[0], &args[1])?),
            ("pg_sleep", 1) => {
                let seconds = self.coerce(args[0].clone(), Type::FLOAT8, When::Implicit)?;
                let slice = self.helper("hf_sleep_slice", &["remaining"])?;
                let nap = format!(
                    "WITH RECURSIVE nap(remaining) AS (SELECT {} UNION ALL SELECT {slice} FROM nap WHERE remaining > 0)",
                    seconds.sql
                );
                Some(Typed::new(format!("({nap} SELECT substr('', count(*)) FROM nap)"), Type::new(oid::VOID)))
            }

            _ => None,
        })
    }

    fn reset_statements(&mut self, args: &[Typed]) -> SqlResult<Typed> {
        let mut given = vec!["0".to_owned(); 3];
        for (i, arg) in args.iter().enumerate() {
            let to = if i == 2 { Type::INT8 } else { Type::OID };
            given[i] = self.coerce(arg.clone(), to, When::Implicit)?.sql;
        }
        Ok(Typed::new(format!("{RESET_STATEMENTS_FUNCTION}({})", given.join(", ")), Type::new(oid::VOID)))
    }

    /// A call of the server's function that cancels or ends another session.
    fn signal(&mut self, op: SignalOp, pid: &Typed) -> SqlResult<Typed> {
        let pid = self.coerce(pid.clone(), Type::INT4, When::Implicit)?.sql;
        Ok(Typed::new(format!("{SIGNAL_FUNCTION}({}, {pid})", op as i64), Type::BOOL))
    }

    /// `pg_terminate_backend` with a time: between two looks SQLite checks whether the statement was interrupted, as in
    /// `pg_sleep`.
    fn terminate_and_wait(&mut self, pid: &Typed, timeout: &Typed) -> SqlResult<Typed> {
        let pid = self.coerce(pid.clone(), Type::INT4, When::Implicit)?.sql;
        let timeout = self.coerce(timeout.clone(), Type::INT8, When::Implicit)?.sql;
        let (terminate, wait) = (SignalOp::Terminate as i64, SignalOp::Wait as i64);
        let begin = format!(
            "CASE WHEN {SIGNAL_FUNCTION}({terminate}, {pid}, {timeout}) THEN CAST({timeout} AS INTEGER) ELSE -2 END"
        );
        let step = format!("CASE WHEN remaining = 0 THEN -3 ELSE {SIGNAL_FUNCTION}({wait}, {pid}, remaining) END");
        let wait = format!(
            "WITH RECURSIVE nap(remaining, asked) AS (SELECT {begin}, {timeout} > 0 UNION ALL \
             SELECT {step}, asked FROM nap WHERE remaining >= 0 AND asked)"
        );
        // -1: it has ended; -2: there was no such session; -3: it did not end in time.
        let sql =
            format!("({wait} SELECT CASE WHEN asked THEN min(remaining) = -1 ELSE min(remaining) >= 0 END FROM nap)");
        Ok(Typed::new(format!("(CASE WHEN {pid} IS NOT NULL AND {timeout} IS NOT NULL THEN {sql} END)"), Type::BOOL))
    }

    /// A value of the session's connection, which a Unix socket does not have.
    fn of_peer(&mut self, which: SessionValue, type_oid: u32) -> SqlResult<Option<Typed>> {
        let typed = self.session(which, Type::new(type_oid))?;
        Ok(Some(Typed { not_null: false, ..typed }))
    }

    /// Functions on arrays, and functions that find an OID by name.
    fn array_call(&mut self, name: &str, args: &[Typed]) -> SqlResult<Option<Typed>> {
        Ok(match (name, args.len()) {
            ("array_to_string", 2 | 3) => {
                let array = self.settle(args[0].clone(), Type::new(more::TEXT_ARRAY))?;
                let separator = self.coerce(args[1].clone(), Type::TEXT, When::Implicit)?;
                text(self.helper("hf_array_to_string", &[&array.sql, &separator.sql])?)
            }
            ("array_upper" | "array_lower" | "array_length", 2) => {
                let array = self.settle(args[0].clone(), Type::new(more::TEXT_ARRAY))?;
                let dim = self.coerce(args[1].clone(), Type::INT4, When::Implicit)?.sql;
                Some(Typed::new(self.helper(&format!("hf_{name}"), &[&array.sql, &dim])?, Type::INT4))
            }
            ("cardinality" | "array_ndims", 1) => {
                let array = self.settle(args[0].clone(), Type::new(more::TEXT_ARRAY))?;
                let helper = if name == "cardinality" { "hf_cardinality" } else { "hf_array_ndims" };
                Some(Typed::new(self.helper(helper, &[&array.sql])?, Type::INT4))
            }
            ("to_regclass" | "to_regtype" | "to_regnamespace", 1) => return self.looked_up(name, &args[0]).map(Some),
            ("array_position", 2) => {
                let array = self.settle(args[0].clone(), Type::new(more::TEXT_ARRAY))?;
                let element = Type::new(crate::types::element_of(array.ty.oid).unwrap_or(oid::TEXT));
                let item = self.coerce(args[1].clone(), element, When::Implicit)?;
                Some(Typed::new(
                    self.helper(
                        "hf_array_position",
                        &[
                            &array.sql,
                            &crate::types::element_of(array.ty.oid).unwrap_or(oid::TEXT).to_string(),
                            &item.sql,
                            "NULL",
                        ],
                    )?,
                    Type::INT4,
                ))
            }
            _ => None,
        })
    }

    /// `pg_database_size` of an OID or a name; a name that no database has is 3D000.
    fn database_size(&mut self, of: &Typed) -> SqlResult<Typed> {
        let from = format!(
            "SELECT hf_size_of_database({ROW}.\"bytes\", {ROW}.\"name\") FROM pg_catalog.\"hf_database_size\" AS {ROW} WHERE"
        );
        let sql = match of.ty.is_integer() || of.ty.is_oid() {
            true => format!("({from} {ROW}.\"oid\" = {})", self.coerce(of.clone(), Type::OID, When::Assignment)?.sql),
            false => {
                let name = self.coerce(of.clone(), Type::TEXT, When::Assignment)?.sql;
                format!("coalesce(({from} {ROW}.\"name\" = {name}), hf_no_database({name}))")
            }
        };
        Ok(Typed::new(sql, Type::INT8))
    }

    fn looked_up(&mut self, name: &str, arg: &Typed) -> SqlResult<Typed> {
        let text = self.settle(arg.clone(), Type::TEXT)?;
        let (sql, type_oid) = match name {
            "to_regclass" => (lookup("pg_class", "relname", &bare(&text.sql)), oid::REGCLASS),
            "to_regnamespace" => (lookup("pg_namespace", "nspname", &text.sql), more::REGNAMESPACE),
            _ => (self.helper("hf_to_regtype", &[&text.sql])?, more::REGTYPE),
        };
        Ok(Typed::new(sql, Type::new(type_oid)))
    }

    /// The name behind an OID, as text.
    pub(super) fn oid_name(&mut self, sql: &str, from: Type) -> SqlResult<String> {
        if self.stored {
            return Err(SqlError::unsupported("the conversion of an OID to a name in a stored definition"));
        }
        let (table, column) = match from.oid {
            oid::REGCLASS => ("pg_class", "relname"),
            more::REGNAMESPACE => ("pg_namespace", "nspname"),
            more::REGROLE => ("pg_roles", "rolname"),
            more::REGTYPE => return self.helper("hf_format_type", &[sql, "-1"]),
            _ => return Ok(format!("CAST({sql} AS TEXT)")),
        };
        Ok(format!("coalesce({}, CAST({sql} AS TEXT))", by_oid(table, column, sql)))
    }

    /// The displayed form of a value whose type shows OIDs as names.
    pub(super) fn shown_oid(&mut self, typed: &Typed) -> SqlResult<String> {
        match typed.ty.oid {
            oid::REGCLASS | more::REGNAMESPACE | more::REGROLE | more::REGTYPE => {
                let name = self.oid_name(&typed.sql, typed.ty)?;
                Ok(format!("(CASE {} WHEN 0 THEN '-' ELSE {name} END)", typed.sql))
            }
            _ => Ok(typed.sql.clone()),
        }
    }

    /// The OID behind a constant name: `'t'::regclass`.
    pub(super) fn object_id(&mut self, name: &str, to: Type) -> SqlResult<Typed> {
        let unquoted = name.trim();
        let (schema, bare) = match unquoted.split_once('.') {
            Some((schema, bare)) => (Some(schema.trim_matches('"')), bare),
            None => (None, unquoted),
        };
        let bare = match bare.strip_prefix('"').and_then(|b| b.strip_suffix('"')) {
            Some(quoted) => quoted.replace("\"\"", "\""),
            None => bare.to_lowercase(),
        };
        let found = match to.oid {
            oid::REGCLASS => catalogue::relation_oid(self.ctx.schema, schema, &bare)
                .ok_or_else(|| (SqlState::UNDEFINED_TABLE, format!("relation \"{unquoted}\" does not exist"))),
            more::REGNAMESPACE => catalogue::namespace_oid(&bare)
                .ok_or_else(|| (SqlState::INVALID_SCHEMA_NAME, format!("schema \"{unquoted}\" does not exist"))),
            more::REGROLE if !unquoted.starts_with('"') && unquoted.contains(char::is_whitespace) => {
                return Err(SqlError::new(SqlState("42602"), "invalid name syntax"));
            }
            more::REGROLE => return self.regrole(&bare),
            oid::REGPROC | more::REGPROCEDURE => return Ok(Typed::sure("0", to)),
            _ => {
                let message = format!("invalid input syntax for type oid: \"{name}\"");
                Err((SqlState::INVALID_TEXT_REPRESENTATION, message))
            }
        };
        match found {
            Ok(id) => Ok(Typed::sure(id.to_string(), to)),
            Err((state, message)) => Err(SqlError::new(state, message)),
        }
    }

    /// The OID behind a name that is known only at run time.
    pub(super) fn object_id_of(&mut self, sql: &str, to: Type) -> SqlResult<String> {
        if self.stored {
            return Err(SqlError::unsupported("the conversion of a name to an OID in a stored definition"));
        }
        match to.oid {
            oid::REGCLASS => Ok(lookup("pg_class", "relname", &bare(sql))),
            more::REGNAMESPACE => Ok(lookup("pg_namespace", "nspname", sql)),
            oid::OID => self.helper("hf_cast", &[sql, "25", "-1", "26", "-1", "1"]),
            _ => Err(SqlError::unsupported(format!("a cast of text to {}", to.name()))),
        }
    }
}

/// Functions whose result does not depend on their arguments.
fn call_of_nothing(name: &str, args: usize) -> Option<Typed> {
    match (name, args) {
        ("version", 0) => text(quote_text(VERSION)),
        ("pg_char_to_encoding", 1) => Some(Typed::sure("6", Type::INT4)),
        ("pg_my_temp_schema", 0) => {
            let sql = lookup("pg_namespace", "nspname", "'pg_temp_1'");
            Some(Typed::sure(format!("coalesce({sql}, 0)"), Type::new(oid::OID)))
        }
        (
            "pg_type_is_visible"
            | "pg_function_is_visible"
            | "pg_operator_is_visible"
            | "pg_opclass_is_visible"
            | "pg_collation_is_visible",
            1,
        ) => yes(),
        ("pg_is_in_recovery", 0) => Some(Typed::sure(standing("in_recovery"), Type::BOOL)),
        ("pg_current_wal_lsn" | "pg_current_wal_insert_lsn" | "pg_current_wal_flush_lsn", 0) => {
            position(standing("current_lsn"))
        }
        ("pg_last_wal_receive_lsn", 0) => position(standing("receive_lsn")),
        ("pg_last_wal_replay_lsn", 0) => position(standing("replay_lsn")),
        ("holdfast_epoch", 0) => Some(Typed::new(standing("epoch"), Type::INT8)),
        ("pg_is_wal_replay_paused", 0) => Some(Typed::sure("0", Type::BOOL)),
        ("pg_is_other_temp_schema", 1) => Some(Typed::sure("0", Type::BOOL)),
        (_, 2 | 3) if name.starts_with("has_") && name.ends_with("_privilege") => yes(),
        ("row_security_active", 1) => Some(Typed::sure("0", Type::BOOL)),
        ("col_description", 2) => text("NULL".into()),
        ("getdatabaseencoding", 0) => Some(Typed::sure("'UTF8'", Type::NAME)),
        // A table that is not a partition has no ancestors; for IN, a NULL has the same effect as no row.
        ("pg_partition_ancestors", 1) => Some(Typed::new("NULL", Type::new(oid::REGCLASS))),
        (
            "pg_get_partkeydef"
            | "pg_get_statisticsobjdef_columns"
            | "pg_get_function_result"
            | "pg_get_function_arguments"
            | "pg_get_function_identity_arguments"
            | "pg_get_ruledef"
            | "pg_get_functiondef"
            | "pg_tablespace_location",
            _,
        ) => text("NULL".into()),
        _ => None,
    }
}

fn text(sql: String) -> Option<Typed> {
    Some(Typed::new(sql, Type::TEXT))
}

fn position(sql: String) -> Option<Typed> {
    Some(Typed::new(sql, Type::new(oid::PG_LSN)))
}

fn yes() -> Option<Typed> {
    Some(Typed::sure("1", Type::BOOL))
}

/// A name without its schema.
fn bare(sql: &str) -> String {
    format!("replace(replace({sql}, 'public.', ''), 'pg_temp.', '')")
}

/// The alias of a catalogue table that a function reads: with its own name, an argument such as `pg_class.oid` of the query
/// around it would mean the function's own row. No name in PostgreSQL's catalogue contains a blank.
const ROW: &str = "\"hf row\"";

/// A column of the row of a catalogue table that the condition finds.
fn found(table: &str, column: &str, condition: &str) -> String {
    format!("(SELECT {ROW}.\"{column}\" FROM pg_catalog.\"{table}\" AS {ROW} WHERE {condition})")
}

/// A column of the row with this OID.
fn by_oid(table: &str, column: &str, oid: &str) -> String {
    found(table, column, &format!("{ROW}.\"oid\" = {oid}"))
}

/// The OID of the row with this name.
pub(super) fn lookup(table: &str, column: &str, name: &str) -> String {
    found(table, "oid", &format!("{ROW}.\"{column}\" = {name}"))
}
