//! Calls of PostgreSQL's advisory lock functions.

use super::Binder;
use super::coerce::When;
use super::scope::Scope;
use super::typed::Typed;
use crate::advisory::{ADVISORY_FUNCTION, AdvisoryOp};
use crate::types::Type;
use holdfast_types::desc::oid;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::Expr;

impl Binder<'_> {
    /// Binds a call of an advisory lock function. 42883 where PostgreSQL has no function for these arguments.
    pub(super) fn advisory_call(
        &mut self,
        name: &str,
        op: AdvisoryOp,
        args: &[&Expr],
        scope: &Scope<'_>,
    ) -> SqlResult<Typed> {
        let args: Vec<Typed> = args.iter().map(|a| self.expr(a, scope)).collect::<SqlResult<_>>()?;
        let fits =
            |arg: &Typed, to: Type| arg.is_open() || (arg.ty.is_integer() && arg.ty.number_rank() <= to.number_rank());
        let (key, space) = match args.as_slice() {
            [] if op == AdvisoryOp::UnlockAll => ("0".to_owned(), 0),
            [key] if op != AdvisoryOp::UnlockAll && fits(key, Type::INT8) => {
                (self.coerce(key.clone(), Type::INT8, When::Implicit)?.sql, 0)
            }
            [a, b] if op != AdvisoryOp::UnlockAll && fits(a, Type::INT4) && fits(b, Type::INT4) => {
                let a = self.coerce(a.clone(), Type::INT4, When::Implicit)?;
                let b = self.coerce(b.clone(), Type::INT4, When::Implicit)?;
                (format!("(({} << 32) | ({} & 4294967295))", a.sql, b.sql), 1)
            }
            _ => return Err(undefined(name, &args)),
        };
        let call = self.helper(ADVISORY_FUNCTION, &[&(op as i64).to_string(), &key, &space.to_string()])?;
        self.advisory = true;
        // The protocol shows void as an empty text.
        let (answer, ty) = if op.is_void() { (format!("coalesce({call}, '')"), oid::VOID) } else { (call, oid::BOOL) };
        if args.iter().all(|arg| arg.not_null) {
            return Ok(Typed::sure(answer, Type::new(ty)));
        }
        // Strict: a NULL argument locks nothing.
        Ok(Typed::new(format!("(CASE WHEN {key} IS NOT NULL THEN {answer} END)"), Type::new(ty)))
    }
}

fn undefined(name: &str, args: &[Typed]) -> SqlError {
    let types: Vec<String> = args.iter().map(|a| Type::new(a.ty.oid).name()).collect();
    let message = format!("function {name}({}) does not exist", types.join(", "));
    SqlError::new(SqlState::UNDEFINED_FUNCTION, message)
        .with_hint("No function matches the given name and argument types. You might need to add explicit type casts.")
}
