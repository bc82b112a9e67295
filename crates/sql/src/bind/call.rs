//! Calls of ordinary functions.
//!
//! Most functions are rows of [`SIMPLE`]: argument types, result type, and SQLite's text. A function whose types depend
//! on its arguments has an arm in [`Binder::call_typed`].

use super::Binder;
use super::aggregate::{is_aggregate, is_window};
use super::coerce::When;
use super::scope::Scope;
use super::typed::{Shape, Typed};
use crate::advisory::AdvisoryOp;
use crate::names::{object_name, quote_text};
use crate::types::{Category, Type};
use holdfast_types::desc::oid;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::ast::{BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments};

/// A function with fixed types. `{0}`, `{1}` ... in `sql` are the arguments.
struct Simple {
    name: &'static str,
    args: &'static [u32],
    result: u32,
    sql: &'static str,
}

const fn f(name: &'static str, args: &'static [u32], result: u32, sql: &'static str) -> Simple {
    Simple { name, args, result, sql }
}

const T: u32 = oid::TEXT;
const I: u32 = oid::INT4;
const F: u32 = oid::FLOAT8;

const SIMPLE: &[Simple] = &[
    f("lower", &[T], T, "lower({0})"),
    f("upper", &[T], T, "upper({0})"),
    f("length", &[oid::BYTEA], I, "length({0})"),
    f("length", &[T], I, "length({0})"),
    f("char_length", &[T], I, "length({0})"),
    f("character_length", &[T], I, "length({0})"),
    f("octet_length", &[oid::BYTEA], I, "length({0})"),
    f("octet_length", &[T], I, "length(CAST({0} AS BLOB))"),
    f("bit_length", &[T], I, "(8 * length(CAST({0} AS BLOB)))"),
    f("substr", &[T, I], T, "hf_substr({0}, {1})"),
    f("substr", &[T, I, I], T, "hf_substr({0}, {1}, {2})"),
    f("substring", &[T, I], T, "hf_substr({0}, {1})"),
    f("substring", &[T, I, I], T, "hf_substr({0}, {1}, {2})"),
    f("overlay", &[T, T, I], T, "hf_overlay({0}, {1}, {2}, length({1}))"),
    f("overlay", &[T, T, I, I], T, "hf_overlay({0}, {1}, {2}, {3})"),
    f("strpos", &[T, T], I, "instr({0}, {1})"),
    f("btrim", &[T], T, "trim({0})"),
    f("btrim", &[T, T], T, "trim({0}, {1})"),
    f("ltrim", &[T], T, "ltrim({0})"),
    f("ltrim", &[T, T], T, "ltrim({0}, {1})"),
    f("rtrim", &[T], T, "rtrim({0})"),
    f("rtrim", &[T, T], T, "rtrim({0}, {1})"),
    f("replace", &[T, T, T], T, "hf_replace({0}, {1}, {2})"),
    f("translate", &[T, T, T], T, "hf_translate({0}, {1}, {2})"),
    f("left", &[T, I], T, "hf_left({0}, {1})"),
    f("right", &[T, I], T, "hf_right({0}, {1})"),
    f("lpad", &[T, I], T, "hf_pad({0}, {1}, ' ', 1)"),
    f("lpad", &[T, I, T], T, "hf_pad({0}, {1}, {2}, 1)"),
    f("rpad", &[T, I], T, "hf_pad({0}, {1}, ' ', 0)"),
    f("rpad", &[T, I, T], T, "hf_pad({0}, {1}, {2}, 0)"),
    f("repeat", &[T, I], T, "hf_repeat({0}, {1})"),
    f("reverse", &[T], T, "hf_reverse({0})"),
    f("split_part", &[T, T, I], T, "hf_split_part({0}, {1}, {2})"),
    f("starts_with", &[T, T], oid::BOOL, "(hf_left({0}, length({1})) = {1})"),
    f("initcap", &[T], T, "hf_initcap({0})"),
    f("ascii", &[T], I, "hf_ascii({0})"),
    f("chr", &[I], T, "hf_chr({0})"),
    f("md5", &[T], T, "hf_md5({0})"),
    f("host", &[oid::INET], T, "hf_inet_host({0})"),
    f("abbrev", &[oid::INET], T, "hf_inet_abbrev({0})"),
    f("masklen", &[oid::INET], I, "hf_inet_masklen({0})"),
    f("family", &[oid::INET], I, "hf_inet_family({0})"),
    f("text", &[oid::INET], T, "hf_inet_text({0})"),
    f("quote_ident", &[T], T, "hf_quote_ident({0})"),
    f("quote_literal", &[T], T, "hf_quote_literal({0})"),
    f("to_hex", &[oid::INT8], T, "lower(printf('%x', {0}))"),
    f("encode", &[oid::BYTEA, T], T, "hf_encode({0}, {1})"),
    f("decode", &[T, T], oid::BYTEA, "hf_decode({0}, {1})"),
    f("sqrt", &[F], F, "hf_sqrt({0})"),
    f("exp", &[F], F, "hf_exp({0})"),
    f("ln", &[F], F, "hf_ln({0})"),
    f("log10", &[F], F, "hf_log10({0})"),
    f("log", &[F], F, "hf_log10({0})"),
    f("power", &[F, F], F, "hf_power({0}, {1})"),
    f("pow", &[F, F], F, "hf_power({0}, {1})"),
    f("pi", &[], F, "3.141592653589793"),
    f("sin", &[F], F, "sin({0})"),
    f("cos", &[F], F, "cos({0})"),
    f("tan", &[F], F, "tan({0})"),
    f("radians", &[F], F, "radians({0})"),
    f("degrees", &[F], F, "degrees({0})"),
    f("random", &[], F, "((random() & 9007199254740991) / 9007199254740992.0)"),
    f("gen_random_uuid", &[], oid::UUID, "hf_uuid(randomblob(16))"),
    f("make_date", &[I, I, I], oid::DATE, "hf_cast(printf('%04d-%02d-%02d', {0}, {1}, {2}), 25, -1, 1082, -1, 1)"),
    f("to_timestamp", &[F], oid::TIMESTAMPTZ, "hf_to_timestamp({0})"),
    f("justify_hours", &[oid::INTERVAL], oid::INTERVAL, "hf_justify_hours({0})"),
    f("justify_days", &[oid::INTERVAL], oid::INTERVAL, "hf_justify_days({0})"),
    f("justify_interval", &[oid::INTERVAL], oid::INTERVAL, "hf_justify_interval({0})"),
    f("pg_client_encoding", &[], oid::NAME, "'UTF8'"),
    f("txid_current", &[], oid::INT8, "1"),
];

impl Binder<'_> {
    pub(super) fn function(&mut self, call: &Function, scope: &Scope<'_>) -> SqlResult<Typed> {
        let (schema, name) = object_name(&call.name)?;
        if schema.as_deref().is_some_and(|s| !matches!(s, "pg_catalog" | "public" | "information_schema")) {
            return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, format!("function {} does not exist", call.name)));
        }
        let default =
            sqlparser::ast::FunctionArgumentList { duplicate_treatment: None, args: Vec::new(), clauses: Vec::new() };
        let list = match &call.args {
            FunctionArguments::None => &default,
            FunctionArguments::List(list) => list,
            FunctionArguments::Subquery(query) if name == "array" => return self.array_of(query, scope),
            FunctionArguments::Subquery(_) => {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    format!("function {name} does not accept a query as its argument"),
                ));
            }
        };
        let mut args = Vec::new();
        let mut star = false;
        for arg in &list.args {
            match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(e)) => args.push(e),
                FunctionArg::Unnamed(FunctionArgExpr::Wildcard) => star = true,
                _ => return Err(SqlError::unsupported(format!("named arguments of {name}"))),
            }
        }
        if is_aggregate(&name) {
            return self.aggregate(&name, call, list, &args, star, scope);
        }
        if is_window(&name) {
            return self.window_function(&name, call, &args, scope);
        }
        if call.over.is_some() || call.filter.is_some() || star {
            let message = format!("{name} is not an aggregate or window function");
            return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
        }
        self.call_named(&name, &args, scope)
    }

    /// Binds a call of a function by its name.
    pub(super) fn call_named(&mut self, name: &str, args: &[&Expr], scope: &Scope<'_>) -> SqlResult<Typed> {
        if args.is_empty()
            && let Some(value) = self.keyword_value(name)?
        {
            return Ok(value);
        }
        if matches!((name, args.len()), ("date_part", 2) | ("date_trunc", 2)) {
            return self.date_function(name, args, scope);
        }
        if let Some(op) = AdvisoryOp::by_name(name) {
            return self.lifting(|b| b.advisory_call(name, op, args, scope));
        }
        let bound: Vec<Typed> = args.iter().map(|a| self.expr(a, scope)).collect::<SqlResult<_>>()?;
        if let Some(found) = self.catalogue_call(name, &bound)? {
            return Ok(found);
        }
        if let Some(found) = self.call_typed(name, &bound)? {
            return Ok(found);
        }
        self.call_simple(name, bound)
    }

    fn call_simple(&mut self, name: &str, bound: Vec<Typed>) -> SqlResult<Typed> {
        let fits = |arg: &Typed, want: u32| {
            let want = Type::new(want);
            arg.is_open()
                || arg.ty.oid == want.oid
                || (arg.ty.is_string() && want.oid == oid::TEXT)
                || (arg.ty.category() == Category::Number
                    && want.category() == Category::Number
                    && !arg.ty.is_oid()
                    && arg.ty.number_rank() <= want.number_rank())
        };
        let candidates = || SIMPLE.iter().filter(|s| s.name == name && s.args.len() == bound.len());
        let best = candidates()
            .filter(|s| bound.iter().zip(s.args).all(|(a, w)| fits(a, *w)))
            // An untyped argument prefers text.
            .max_by_key(|s| bound.iter().zip(s.args).filter(|(a, w)| a.is_open() && **w == T).count());
        let Some(simple) = best else {
            let types: Vec<String> = bound.iter().map(|b| Type::new(b.ty.oid).name()).collect();
            let message = format!("function {name}({}) does not exist", types.join(", "));
            let hint = if SIMPLE.iter().any(|s| s.name == name) {
                "No function matches the given name and argument types. You might need to add explicit type casts."
            } else {
                "Holdfast may not support this PostgreSQL function; see COMPAT.md."
            };
            return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message).with_hint(hint));
        };
        if self.stored && (simple.sql.contains("hf_") || simple.sql.contains("random")) {
            return Err(SqlError::unsupported(format!("{name} in a stored definition")));
        }
        if simple.name != "gen_random_uuid" && bound.iter().any(|b| b.ty.oid == oid::NUMERIC) {
            return Err(
                SqlError::unsupported(format!("{name} with a numeric argument")).with_hint("Cast to double precision.")
            );
        }
        let not_null = bound.iter().all(|b| b.not_null);
        let mut sql = simple.sql.to_owned();
        let mut texts = Vec::new();
        for (arg, want) in bound.into_iter().zip(simple.args) {
            texts.push(self.coerce(arg, Type::new(*want), When::Implicit)?.sql);
        }
        // From the end of the text, so that braces inside an argument are not replaced.
        for (at, _) in simple.sql.rmatch_indices('{') {
            let index = usize::from(simple.sql.as_bytes()[at + 1] - b'0');
            sql.replace_range(at..at + 3, &texts[index]);
        }
        Ok(Typed { not_null, ..Typed::new(sql, Type::new(simple.result)) })
    }

    /// Binds the functions whose result type follows from their arguments.
    fn call_typed(&mut self, name: &str, args: &[Typed]) -> SqlResult<Option<Typed>> {
        Ok(Some(match (name, args) {
            ("coalesce", [_, ..]) => {
                let not_null = args.iter().any(|a| a.not_null);
                let (items, ty) = self.unify("COALESCE", args.to_vec())?;
                let sql = match items.as_slice() {
                    [only] => only.sql.clone(),
                    items => format!("coalesce({})", join(items)),
                };
                Typed { not_null, ..Typed::new(sql, ty) }
            }
            ("greatest" | "least", [_, ..]) => {
                let (items, ty) = self.unify(&name.to_uppercase(), args.to_vec())?;
                if matches!(ty.oid, oid::INTERVAL | oid::JSONB) {
                    return Err(SqlError::unsupported(format!("{name} of values of type {}", ty.name())));
                }
                let numeric = if ty.oid == oid::NUMERIC { "1" } else { "0" };
                let sql = self.helper(&format!("hf_{name}"), &[numeric, &join(&items)])?;
                Typed::new(sql, ty)
            }
            ("nullif", [a, b]) => {
                let equal = self.compare(a.clone(), &BinaryOperator::Eq, b.clone())?;
                let a = self.settle(a.clone(), b.ty)?;
                Typed::new(format!("(CASE WHEN {} THEN NULL ELSE {} END)", equal.sql, a.sql), a.ty)
            }
            ("abs" | "ceil" | "ceiling" | "floor" | "sign" | "round" | "trunc", [x]) => return self.rounding(name, x),
            ("round" | "trunc", [x, digits]) if !x.ty.is_float() => {
                let x = self.coerce(x.clone(), Type::NUMERIC, When::Implicit)?;
                let digits = self.coerce(digits.clone(), Type::INT4, When::Implicit)?;
                let sql = self.helper(&format!("hf_num_{name}"), &[&x.sql, &digits.sql])?;
                Typed::new(sql, Type::NUMERIC)
            }
            ("mod", [a, b]) => {
                let (items, ty) = self.unify("mod", vec![a.clone(), b.clone()])?;
                let helper = if ty.oid == oid::NUMERIC { "hf_num_mod" } else { "hf_mod" };
                if !ty.is_integer() && ty.oid != oid::NUMERIC {
                    return Ok(None);
                }
                Typed::new(self.helper(helper, &[&join(&items)])?, ty)
            }
            ("div", [a, b]) => {
                let a = self.coerce(a.clone(), Type::NUMERIC, When::Implicit)?;
                let b = self.coerce(b.clone(), Type::NUMERIC, When::Implicit)?;
                Typed::new(self.helper("hf_num_quotient", &[&a.sql, &b.sql])?, Type::NUMERIC)
            }
            ("concat", _) => {
                let items = self.texts(args)?;
                Typed::sure(self.helper("hf_concat", &[&items])?, Type::TEXT)
            }
            ("concat_ws", [_, ..]) => {
                let items = self.texts(args)?;
                Typed::new(self.helper("hf_concat_ws", &[&items])?, Type::TEXT)
            }
            ("pg_typeof", [x]) => {
                let ty = if x.is_open() { Type::UNKNOWN } else { x.ty };
                Typed::sure(ty.oid.to_string(), Type::new(crate::types::more::REGTYPE))
            }
            ("row", _) => return Err(SqlError::unsupported("a row value")),
            ("age" | "to_char" | "to_date" | "to_number", _) => {
                return Err(SqlError::unsupported(format!("the function {name}")));
            }
            ("nextval" | "currval" | "setval", _) => {
                return Err(SqlError::unsupported(format!("{name} on a sequence that no serial column owns"))
                    .with_hint("Use a serial primary key; RETURNING or lastval() returns its value."));
            }
            ("date", [x]) => self.coerce(x.clone(), Type::new(oid::DATE), When::Explicit)?,
            ("text", [x]) => self.coerce(x.clone(), Type::TEXT, When::Explicit)?,
            ("int4", [x]) => self.coerce(x.clone(), Type::INT4, When::Explicit)?,
            ("int8", [x]) => self.coerce(x.clone(), Type::INT8, When::Explicit)?,
            ("float8", [x]) => self.coerce(x.clone(), Type::FLOAT8, When::Explicit)?,
            ("octet_length", [x]) if x.ty.oid == oid::BPCHAR => {
                let padded = self.padded(x)?;
                Typed::new(format!("length(CAST({padded} AS BLOB))"), Type::INT4)
            }
            ("length" | "octet_length", [x]) if x.ty.oid == oid::BYTEA => {
                Typed::new(format!("length({})", x.sql), Type::INT4)
            }
            _ => return Ok(None),
        }))
    }

    /// A char(n) value padded with its blanks.
    fn padded(&mut self, x: &Typed) -> SqlResult<String> {
        let width = (x.ty.typmod - 4).max(0).to_string();
        self.helper("hf_rpad", &[&x.sql, &width])
    }

    fn texts(&mut self, args: &[Typed]) -> SqlResult<String> {
        let mut items = Vec::new();
        for arg in args {
            // Here a boolean is printed as t or f, not as its cast to text prints it.
            if arg.ty.oid == oid::BOOL && !arg.is_open() {
                items.push(Typed::new(format!("(CASE {} WHEN 1 THEN 't' WHEN 0 THEN 'f' END)", arg.sql), Type::TEXT));
            } else if arg.ty.oid == oid::BPCHAR {
                items.push(Typed::new(self.padded(arg)?, Type::TEXT));
            } else {
                items.push(self.coerce(arg.clone(), Type::TEXT, When::Assignment)?);
            }
        }
        Ok(join(&items))
    }

    fn rounding(&mut self, name: &str, x: &Typed) -> SqlResult<Option<Typed>> {
        let x = if x.is_open() { self.coerce(x.clone(), Type::FLOAT8, When::Implicit)? } else { x.clone() };
        if x.ty.category() != Category::Number || x.ty.is_oid() {
            return Ok(None);
        }
        let name = if name == "ceiling" { "ceil" } else { name };
        let (sql, ty) = match (name, x.ty) {
            ("abs", ty) => (self.helper("hf_abs", &[&x.sql, &ty.oid.to_string()])?, Type::new(ty.oid)),
            (_, ty) if ty.oid == oid::NUMERIC && matches!(name, "round" | "trunc") => {
                (self.helper(&format!("hf_num_{name}"), &[&x.sql, "0"])?, Type::NUMERIC)
            }
            (_, ty) if ty.oid == oid::NUMERIC => (self.helper(&format!("hf_num_{name}"), &[&x.sql])?, Type::NUMERIC),
            (_, _) => {
                // PostgreSQL converts integers to double precision here.
                let float = self.coerce(x.clone(), Type::FLOAT8, When::Implicit)?;
                (self.helper("hf_rounding", &[&float.sql, &quote_text(name)])?, Type::FLOAT8)
            }
        };
        Ok(Some(Typed { not_null: x.not_null, ..Typed::new(sql, ty) }))
    }

    fn date_function(&mut self, name: &str, args: &[&Expr], scope: &Scope<'_>) -> SqlResult<Typed> {
        let field = self.expr(args[0], scope)?;
        let Shape::Text { value, .. } = &field.shape else {
            return Err(SqlError::unsupported(format!("{name} with a field that is not a constant")));
        };
        let field = value.to_ascii_lowercase();
        if name == "date_part" {
            let extracted = self.extract(&field, args[1], scope)?;
            return self.coerce(extracted, Type::FLOAT8, When::Explicit);
        }
        let typed = self.value_expr(args[1], scope)?;
        let ty = match typed.ty.oid {
            oid::TIMESTAMP | oid::TIMESTAMPTZ => typed.ty,
            oid::DATE => Type::new(oid::TIMESTAMPTZ),
            _ => {
                let message = format!("function date_trunc(unknown, {}) does not exist", typed.ty.name());
                return Err(SqlError::new(SqlState::UNDEFINED_FUNCTION, message));
            }
        };
        let typed = self.coerce(typed, ty, When::Implicit)?;
        crate::functions::datetime::check_trunc(&field)?;
        let zone = if ty.oid == oid::TIMESTAMPTZ { "'+00'" } else { "''" };
        let sql = self.helper("hf_date_trunc", &[&quote_text(&field), &typed.sql, zone])?;
        Ok(Typed::new(sql, Type::new(ty.oid)))
    }
}

fn join(items: &[Typed]) -> String {
    items.iter().map(|i| i.sql.as_str()).collect::<Vec<_>>().join(", ")
}
