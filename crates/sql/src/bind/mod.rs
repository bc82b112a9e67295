//! Binding: resolves names, infers the type of every expression, and writes SQLite's SQL as it goes.
//!
//! One [`Binder`] serves one statement. An expression becomes a [`Typed`]: SQLite text with a PostgreSQL type. An
//! untyped literal or parameter stays open until its surroundings give it a type ([`coerce`]). What SQLite would
//! compute otherwise than PostgreSQL becomes a call of a function of [`crate::functions`]; in a stored definition,
//! where there may be none (stock sqlite3 must read it), that is refused.

mod advisory_call;
mod aggregate;
mod call;
mod catalogue_call;
pub mod coerce;
mod expr;
mod from;
mod like;
mod lock;
mod names;
mod operator;
mod query;
pub mod scope;
mod select;
mod special;
mod write;

pub use catalogue_call::WAIT_SLICE_FUNCTION;

pub use names::{Among, TEMP_SCHEMA, exact_name, fold, is_temp_schema, quote, quote_in, quote_table, relation_name};
pub use write::{delete, insert, is_primary_index, not_null_columns, update};

use crate::locks::{Clause, RowLock};
use crate::scan::{Literal, Piece};
use crate::translate::{Coerce, Context, Param, ParamSource, SessionValue};
use crate::types::Type;
use holdfast_types::schema::Table;
use holdfast_types::{SqlError, SqlResult, SqlState, Value};
use lock::Locking;
use scope::Columns;
use sqlparser::ast::{Expr, Spanned};
use sqlparser::tokenizer::Location;
use std::collections::HashMap;

/// An expression in SQLite's SQL.
#[derive(Clone, Debug)]
pub struct Typed {
    /// Complete in itself: safe to stand as an operand.
    pub sql: String,
    pub ty: Type,
    pub shape: Shape,
    /// It is known never to be NULL.
    pub not_null: bool,
}

/// What an expression is made of, where that matters.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    Expr,
    /// A plain column: OID of its table and attribute number (0 where it comes from a subquery), and whether a
    /// literal compared with it may become a parameter.
    Column {
        table_oid: u32,
        attnum: i16,
        lifts: bool,
    },
    Null,
    /// An untyped string literal, and its number among the literals of the text.
    Text {
        value: String,
        literal: Option<usize>,
    },
    Number {
        text: String,
        literal: Option<usize>,
    },
    /// The client's `$n`, from 0.
    Param(usize),
}

impl Typed {
    pub fn new(sql: impl Into<String>, ty: Type) -> Typed {
        Typed { sql: sql.into(), ty, shape: Shape::Expr, not_null: false }
    }

    /// An expression that is never NULL.
    pub fn sure(sql: impl Into<String>, ty: Type) -> Typed {
        Typed { not_null: true, ..Typed::new(sql, ty) }
    }

    fn null() -> Typed {
        Typed { shape: Shape::Null, ..Typed::new("NULL", Type::UNKNOWN) }
    }

    /// It takes the type of its surroundings.
    pub fn is_open(&self) -> bool {
        matches!(self.shape, Shape::Null | Shape::Text { .. } | Shape::Param(_)) && self.ty == Type::UNKNOWN
    }

    fn is_column(&self) -> bool {
        matches!(self.shape, Shape::Column { .. })
    }
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
    /// A literal met now may become a parameter.
    lift: bool,
    /// The text goes into the schema: no parameters, no functions of ours.
    pub stored: bool,
    /// Nothing of what is bound now will ever be evaluated.
    lenient: bool,
    ctes: Vec<(String, Columns)>,
    pub locks: bool,
    /// What the next query bound is to lock.
    locking: Locking,
    pub row_locks: Vec<RowLock>,
    /// It calls a function of advisory locks.
    pub advisory: bool,
    /// It names a temporary table.
    pub temporary: bool,
    /// The next SELECT is the statement itself: its regclass columns are shown as names.
    outermost: bool,
}

/// Most parameters a statement may have, as in the protocol.
const PARAMS_MAX: usize = 65_535;

impl<'a> Binder<'a> {
    pub fn new(piece: &Piece<'a>, ctx: &'a Context<'a>) -> Binder<'a> {
        Binder {
            ctx,
            text: piece.text(),
            literal_at: locate_literals(piece),
            params: Vec::new(),
            client_types: ctx.param_types.to_vec(),
            lift: false,
            stored: false,
            lenient: false,
            ctes: Vec::new(),
            locks: false,
            locking: Locking::default(),
            row_locks: Vec::new(),
            advisory: false,
            temporary: false,
            outermost: false,
        }
    }

    /// The next query bound is the statement itself, with these locking clauses.
    pub fn begin_outermost(&mut self, clauses: Vec<Clause>) {
        self.outermost = true;
        self.locking = Locking { clauses, limit: None };
    }

    /// A table in SQLite's SQL, outside stored definitions. One that a temporary table hides must not be taken for that,
    /// should it be dropped meanwhile.
    fn stands(&self, table: &Table) -> String {
        let hidden = !table.temp && !self.stored && self.ctx.schema.table_among(true, &table.name).is_some();
        if hidden { format!("main.{}", quote(&table.name)) } else { quote_table(table) }
    }

    /// A call of one of our functions. In a stored definition it is refused.
    fn helper(&self, name: &str, args: &[&str]) -> SqlResult<String> {
        if self.stored {
            return Err(SqlError::unsupported(
                "an expression that SQLite cannot compute by itself, in a stored definition,",
            )
            .with_hint("Views, checks, defaults and indexes are kept readable for stock SQLite."));
        }
        Ok(format!("{name}({})", args.join(", ")))
    }

    fn param(&mut self, source: ParamSource, coerce: Option<Coerce>) -> SqlResult<String> {
        if self.stored {
            return Err(SqlError::unsupported("a parameter or session value in a stored definition"));
        }
        let param = Param { source, coerce };
        let shared = !matches!(param.source, ParamSource::Literal(_));
        let known = if shared { self.params.iter().position(|p| *p == param) } else { None };
        let index = known.unwrap_or_else(|| {
            self.params.push(param);
            self.params.len() - 1
        });
        Ok(format!("?{}", index + 1))
    }

    fn session(&mut self, which: SessionValue, ty: Type) -> SqlResult<Typed> {
        let coerce = Some(Coerce { from: ty, to: ty });
        Ok(Typed::sure(self.param(ParamSource::Session(which), coerce)?, ty))
    }

    /// The literal that was written at this place, if its value is the one the parser saw.
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

    /// Binds something with literals kept where they are.
    fn fixed<T>(&mut self, f: impl FnOnce(&mut Self) -> SqlResult<T>) -> SqlResult<T> {
        let before = std::mem::replace(&mut self.lift, false);
        let result = f(self);
        self.lift = before;
        result
    }

    /// Binds something whose plain literals may become parameters.
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

/// Where each literal begins, as the parser counts: lines and characters from 1.
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
