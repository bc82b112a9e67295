//! What calls of SQL functions cost: whether a statement that calls one may run where other sessions wait for it.
//!
//! | a function is | its cost |
//! |---|---|
//! | listed here or by the caller as constant | [`Cost::Constant`] |
//! | listed as linear | [`Cost::Linear`]: time and result are at most proportional to its arguments |
//! | anything else: a function that no list knows | [`Cost::Unbounded`] |
//!
//! SQLite's own functions are listed here; every other one has its cost where it is registered ([`Conn::register_function`]). A function is
//! named as EXPLAIN shows it, with or without the number of its arguments: `trim(1)` removes blanks, `trim(2)` compares each character with a set.

use super::conn::Conn;
use holdfast_types::Cost;
use rusqlite::ffi;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const CONSTANT: &[&str] = &[
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "ceil",
    "ceiling",
    "changes",
    "cos",
    "cosh",
    "count",
    "degrees",
    "exp",
    "floor",
    "last_insert_rowid",
    "ln",
    "log",
    "log10",
    "log2",
    "mod",
    "pi",
    "pow",
    "power",
    "radians",
    "random",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "total_changes",
    "trunc",
    "typeof",
];

const LINEAR: &[&str] = &[
    "avg",
    "char",
    "coalesce",
    "concat",
    "concat_ws",
    "date",
    "datetime",
    "hex",
    "if",
    "ifnull",
    "iif",
    "julianday",
    "length",
    "likelihood",
    "likely",
    "lower",
    "ltrim(1)",
    "max",
    "min",
    "nullif",
    "octet_length",
    "quote",
    "round",
    "rtrim(1)",
    "strftime",
    "substr",
    "substring",
    "subtype",
    "sum",
    "time",
    "timediff",
    "total",
    "trim(1)",
    "unhex",
    "unicode",
    "unixepoch",
    "unlikely",
    "upper",
];

/// The costs of the functions that were registered on a connection, and the bounds that hold for a statement at work.
pub(super) struct Costs {
    registered: HashMap<&'static str, Cost>,
    /// See [`Bounds::argument_bytes`].
    pub argument_bytes_max: Arc<AtomicUsize>,
    /// SQLite's own limit on the length of a value.
    usual_value_bytes: i32,
}

/// What a statement may handle where other sessions wait for it; beyond it fails with SQLITE_TOOBIG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The longest value or row.
    pub value_bytes: i32,
    /// The arguments of one call of a registered function, together.
    pub argument_bytes: usize,
}

impl Costs {
    pub fn of(db: *mut ffi::sqlite3) -> Costs {
        // SAFETY: `db` is open; a negative limit only asks for the present one.
        let usual_value_bytes = unsafe { ffi::sqlite3_limit(db, ffi::SQLITE_LIMIT_LENGTH, -1) };
        let argument_bytes_max = Arc::new(AtomicUsize::new(usize::MAX));
        Costs { registered: HashMap::new(), argument_bytes_max, usual_value_bytes }
    }

    /// Takes the cost of a function that is registered on the connection.
    pub fn register(&mut self, function: &'static str, cost: Cost) {
        self.registered.insert(function, cost);
    }
}

impl Conn {
    /// The cost of a function as EXPLAIN names it: `name(arguments)`.
    pub fn cost(&self, shown: &str) -> Cost {
        let name = shown.split('(').next().unwrap_or(shown);
        if let Some(cost) = self.costs.registered.get(name) {
            return *cost;
        }
        let listed = |list: &[&str]| list.iter().any(|f| f.eq_ignore_ascii_case(shown) || f.eq_ignore_ascii_case(name));
        match () {
            () if listed(CONSTANT) => Cost::Constant,
            () if listed(LINEAR) => Cost::Linear,
            () => Cost::Unbounded,
        }
    }

    /// Sets the bounds for what runs from now on; `None` removes them.
    pub fn set_bounds(&mut self, bounds: Option<Bounds>) {
        let value = bounds.map_or(self.costs.usual_value_bytes, |b| b.value_bytes);
        // SAFETY: `db` is open. A lower limit does not touch values that exist already.
        unsafe { ffi::sqlite3_limit(self.db(), ffi::SQLITE_LIMIT_LENGTH, value) };
        let arguments = bounds.map_or(usize::MAX, |b| b.argument_bytes);
        self.costs.argument_bytes_max.store(arguments, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::OpenFlags;
    use holdfast_types::{Value, ValueRef};

    fn conn() -> Conn {
        Conn::open(":memory:", OpenFlags { write: true, create: true }, None).unwrap()
    }

    #[test]
    fn what_is_not_listed_is_unbounded() {
        let mut c = conn();
        c.register_function("hf_add", 2, true, Cost::Constant, |_| Ok(Value::Null)).unwrap();
        c.register_function("hf_pad", 2, true, Cost::Unbounded, |_| Ok(Value::Null)).unwrap();
        c.register_next_id("next_id", Cost::Linear, |_, _| Ok(1)).unwrap();
        for (shown, cost) in [
            ("hf_add(2)", Cost::Constant),
            ("hf_pad(2)", Cost::Unbounded),
            ("next_id(1)", Cost::Linear),
            ("ABS(1)", Cost::Constant),
            ("upper(1)", Cost::Linear),
            ("trim(1)", Cost::Linear),
            ("trim(2)", Cost::Unbounded),
            ("replace(3)", Cost::Unbounded),
            ("printf(-1)", Cost::Unbounded),
            ("randomblob(1)", Cost::Unbounded),
            ("like(2)", Cost::Unbounded),
            ("not_listed(1)", Cost::Unbounded),
        ] {
            assert_eq!(c.cost(shown), cost, "{shown}");
        }
    }

    #[test]
    fn bounds_hold_for_values_and_arguments_until_they_are_removed() {
        let mut c = conn();
        c.register_function("first", 1, true, Cost::Linear, |a| Ok(a[0].to_value())).unwrap();
        c.register_function("made", 1, true, Cost::Linear, |a| match a[0] {
            ValueRef::Int(n) => Ok(Value::Text("x".repeat(n as usize))),
            _ => Ok(Value::Null),
        })
        .unwrap();
        let sqls =
            ["select length(first('0123456789'))", "select length(made(100))", "select length('01234567' || made(93))"];
        let run = |c: &mut Conn| sqls.map(|sql| c.query_value(sql).map_err(|e| e.code));
        let unlimited = [Ok(Value::Int(10)), Ok(Value::Int(100)), Ok(Value::Int(101))];
        assert_eq!(run(&mut c), unlimited);
        c.set_bounds(Some(Bounds { value_bytes: 100, argument_bytes: 9 }));
        let too_big = Err(ffi::SQLITE_TOOBIG);
        assert_eq!(run(&mut c), [too_big, Ok(Value::Int(100)), Err(ffi::SQLITE_TOOBIG)]);
        c.set_bounds(None);
        assert_eq!(run(&mut c), unlimited);
    }
}
