//! Binding: resolves names, infers the type of every expression, and writes SQLite's SQL as it goes.
//!
//! One [`Binder`] serves one statement. An expression becomes a [`Typed`]: SQLite text with a PostgreSQL type. An
//! untyped literal or parameter stays open until the surrounding expression gives it a type ([`coerce`]). Where
//! SQLite's result would differ from PostgreSQL's, the expression becomes a call of a function of [`crate::functions`].
//! A stored definition may not call one, because stock sqlite3 must read it; there the expression is refused.

pub mod acl_call;
mod advisory_call;
mod aggregate;
mod call;
pub mod catalogue_call;
pub mod coerce;
mod expr;
mod from;
mod group_order;
mod like;
mod lock;
pub mod need;
mod operator;
pub mod privilege_call;
mod query;
mod role_call;
pub mod scope;
mod select;
pub mod settings_call;
mod special;
mod typed;
pub mod write;

use crate::context::Context;
use crate::locks::Clause;
use crate::names::{quote, quote_table};
use crate::params::{Coerce, LIFTED_MAX, Param, ParamSource, SessionValue};
use crate::scan::{Literal, Piece};
use crate::types::Type;
use holdfast_types::access::needs::Need;
use holdfast_types::schema::Table;
use holdfast_types::{RowLock, SqlError, SqlResult, SqlState, Value};
use lock::Locking;
use scope::Columns;
use sqlparser::ast::{Expr, Spanned};
use sqlparser::tokenizer::Location;
use std::collections::{BTreeSet, HashMap};
use typed::{Shape, Typed};

/// What a statement does with the session's parameters while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Settings {
    Unused,
    Read,
    Set,
}

/// The state of one statement's translation.
pub struct Binder<'a> {
    pub ctx: &'a Context<'a>,
    text: &'a str,
    /// Literals of the text by line and column.
    literal_at: HashMap<(u64, u64), (usize, Literal<'a>)>,
    pub params: Vec<Param>,
    /// OIDs of `$1` ..., 0 while unknown.
    pub client_types: Vec<u32>,
    /// The numbers of parameters that are not literals, by what they are.
    shared_params: HashMap<String, usize>,
    /// A literal bound now may become a parameter.
    lift: bool,
    /// The text is stored in the schema: it may have no parameters and call no function of Holdfast.
    pub stored: bool,
    /// What is bound now is never evaluated.
    lenient: bool,
    ctes: Vec<(String, Columns)>,
    pub locks: bool,
    /// The locking clauses of the query that is bound next.
    locking: Locking,
    pub row_locks: Vec<RowLock>,
    /// The statement calls an advisory lock function.
    pub advisory: bool,
    pub settings: Settings,
    /// The statement names a temporary table.
    pub temporary: bool,
    /// The SELECT bound next is the statement itself: its regclass columns are shown as names.
    outermost: bool,
    /// The tables and views that the statement names, with what it needs of them.
    used: Vec<need::Used>,
    /// Tables whose serial column chooses a value.
    sequences: BTreeSet<u32>,
    /// Tables of the catalogue that only superusers may read, with the word for each.
    secrets: Vec<(&'static str, &'static str)>,
    /// What refuses a change of a published table without a primary key.
    unidentified: Option<Need>,
    /// The condition that joins the function of FROM that was bound last to the tables to its left.
    lateral_on: Option<String>,
}

/// The largest number of parameters in a statement, as in the protocol.
const PARAMS_MAX: usize = 65_535;

impl<'a> Binder<'a> {
    pub fn new(piece: &Piece<'a>, ctx: &'a Context<'a>) -> Binder<'a> {
        Binder {
            ctx,
            text: piece.text(),
            literal_at: locate_literals(piece),
            params: Vec::new(),
            shared_params: HashMap::new(),
            client_types: ctx.param_types.to_vec(),
            lift: false,
            stored: false,
            lenient: false,
            ctes: Vec::new(),
            locks: false,
            locking: Locking::default(),
            row_locks: Vec::new(),
            advisory: false,
            settings: Settings::Unused,
            temporary: false,
            outermost: false,
            used: Vec::new(),
            sequences: BTreeSet::new(),
            secrets: Vec::new(),
            unidentified: None,
            lateral_on: None,
        }
    }

    /// Marks the query bound next as the statement itself, with these locking clauses.
    pub fn begin_outermost(&mut self, clauses: Vec<Clause>) {
        self.outermost = true;
        self.locking = Locking { clauses, limit: None };
    }

    /// A table in SQLite's SQL, outside stored definitions. A permanent table that a temporary one hides is qualified
    /// with its schema: if it is dropped meanwhile, its name alone would mean the temporary table.
    fn stands(&self, table: &Table) -> String {
        let hidden = !table.temp && !self.stored && self.ctx.schema.table_among(true, &table.name).is_some();
        if hidden { format!("main.{}", quote(&table.name)) } else { quote_table(table) }
    }

    /// A call of a function of Holdfast. In a stored definition it is refused.
    fn helper(&self, name: &str, args: &[&str]) -> SqlResult<String> {
        if self.stored {
            return Err(SqlError::unsupported(
                "a stored definition with an expression that stock SQLite cannot compute",
            )
            .with_hint("Stock SQLite must be able to read views, checks, defaults and indexes."));
        }
        Ok(format!("{name}({})", args.join(", ")))
    }

    fn param(&mut self, source: ParamSource, coerce: Option<Coerce>) -> SqlResult<String> {
        if self.stored {
            return Err(SqlError::unsupported("a parameter or session value in a stored definition"));
        }
        let param = Param { source, coerce };
        // A literal's number is its own; the others may come again.
        let shared = (!matches!(param.source, ParamSource::Literal(_))).then(|| format!("{param:?}"));
        let index = match shared.as_ref().and_then(|key| self.shared_params.get(key)) {
            Some(index) => *index,
            None => {
                self.params.push(param);
                self.params.len() - 1
            }
        };
        if let Some(key) = shared {
            self.shared_params.insert(key, index);
        }
        Ok(format!("?{}", index + 1))
    }

    fn session(&mut self, which: SessionValue, ty: Type) -> SqlResult<Typed> {
        let coerce = Some(Coerce { from: ty, to: ty });
        Ok(Typed::sure(self.param(ParamSource::Session(which), coerce)?, ty))
    }

    /// The number of the literal at this location, if its value is the one that the parser read.
    fn literal(&self, at: Location, value: &Value) -> Option<usize> {
        let (index, literal) = self.literal_at.get(&(at.line, at.column))?;
        (literal.value() == *value).then_some(*index)
    }

    fn client_param(&mut self, n: usize) -> SqlResult<Typed> {
        if n == 0 || n > PARAMS_MAX {
            return Err(SqlError::new(SqlState::UNDEFINED_PARAMETER, format!("there is no parameter ${n}")));
        }
        if self.client_types.len() < n {
            self.client_types.resize(n, 0);
        }
        match self.client_types[n - 1] {
            0 => Ok(Typed { shape: Shape::Param(n - 1), ..Typed::new("", Type::UNKNOWN) }),
            known => Ok(Typed::new(self.param(ParamSource::Client(n - 1), None)?, Type::new(known))),
        }
    }

    /// Runs `f` so that no literal becomes a parameter.
    fn fixed<T>(&mut self, f: impl FnOnce(&mut Self) -> SqlResult<T>) -> SqlResult<T> {
        let before = std::mem::replace(&mut self.lift, false);
        let result = f(self);
        self.lift = before;
        result
    }

    /// Whether a literal bound now becomes a parameter. In a long list of values only the first ones do.
    fn lifts(&self) -> bool {
        self.lift && self.params.len() < LIFTED_MAX
    }

    /// Runs `f` so that plain literals may become parameters.
    fn lifting<T>(&mut self, f: impl FnOnce(&mut Self) -> SqlResult<T>) -> SqlResult<T> {
        let before = std::mem::replace(&mut self.lift, !self.stored);
        let result = f(self);
        self.lift = before;
        result
    }

    /// Adds the position of an expression to an error that has none.
    fn at_expr<T>(&self, result: SqlResult<T>, e: &Expr) -> SqlResult<T> {
        match result {
            Err(error) if error.parts().position.is_none() => self.at(Err(error), e.span().start),
            other => other,
        }
    }

    /// Adds the position of a token of the statement to an error that has none.
    fn at<T>(&self, result: SqlResult<T>, location: Location) -> SqlResult<T> {
        result.map_err(|e| {
            if e.parts().position.is_some() || location.line == 0 {
                return e;
            }
            e.with_position(crate::parse::position(self.text, location))
        })
    }
}

/// The literals by where they begin, as the parser counts: lines and characters from 1.
fn locate_literals<'a>(piece: &Piece<'a>) -> HashMap<(u64, u64), (usize, Literal<'a>)> {
    let mut found = HashMap::new();
    let (mut line, mut column, mut at) = (1, 1, 0);
    for i in 0..piece.literal_count() {
        let start = piece.literal_start(i);
        for c in piece.text()[at..start].chars() {
            if c == '\n' {
                line += 1;
                column = 1;
            } else {
                column += 1;
            }
        }
        at = start;
        if let Some(literal) = piece.literal(i) {
            found.insert((line, column), (i, literal));
        }
    }
    found
}
