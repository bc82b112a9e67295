//! CREATE, ALTER and DROP of roles, users and groups; GRANT and REVOKE of roles and on databases; ALTER DATABASE ... OWNER TO
//! and CONNECTION LIMIT.
//!
//! They are only read here. [`translate`] returns `None` for the GRANT and REVOKE on objects of a database, which
//! have their own module.
//!
//! A name of more than 63 bytes is cut, with PostgreSQL's notice. Failure: 42601 for what PostgreSQL's grammar does not have,
//! 42939 for reserved names. No message contains a password.

mod options;

use crate::command::Kind;
use crate::parse;
use crate::role_statement::{DatabaseGrant, RoleSpec, RoleStatement};
use crate::start_parameters;
use crate::translated::{Notice, Translated};
use crate::words::Words;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;

/// reserved_name
const RESERVED_NAME: SqlState = SqlState("42939");
/// name_too_long
const NAME_TOO_LONG: SqlState = SqlState("42622");
/// The longest name in bytes, as in PostgreSQL.
pub const NAME_BYTES_MAX: usize = 63;

/// Words that PostgreSQL reserves: unquoted they are no names of roles.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "both",
    "case",
    "cast",
    "check",
    "collate",
    "column",
    "constraint",
    "create",
    "current_catalog",
    "current_date",
    "current_time",
    "current_timestamp",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "false",
    "fetch",
    "for",
    "foreign",
    "from",
    "grant",
    "group",
    "having",
    "in",
    "initially",
    "intersect",
    "into",
    "lateral",
    "leading",
    "limit",
    "localtime",
    "localtimestamp",
    "not",
    "null",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "placing",
    "primary",
    "references",
    "returning",
    "select",
    "some",
    "symmetric",
    "table",
    "then",
    "to",
    "trailing",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "variadic",
    "when",
    "where",
    "window",
    "with",
];

/// Reads a statement, and the notices about its names.
struct Reader<'t> {
    words: Words<'t>,
    notices: Vec<Notice>,
}

/// Translates a statement about roles or the access to databases; `None` where it is another one.
pub fn translate(text: &str) -> SqlResult<Option<Translated>> {
    let tokens = parse::tokens(text)?;
    let mut reader = Reader { words: Words::new(&tokens), notices: Vec::new() };
    let read = if reader.accept("CREATE") {
        reader.create()?
    } else if reader.accept("DROP") {
        reader.drop()?
    } else if reader.words.accept(&["ALTER", "ROLE", "ALL"]) || reader.words.accept(&["ALTER", "USER", "ALL"]) {
        return reader.alter_all(text).map(Some);
    } else if reader.accept("ALTER") {
        reader.alter(text)?
    } else {
        reader.grant()?
    };
    let Some((statement, verb)) = read else { return Ok(None) };
    reader.words.take(&Token::SemiColon);
    reader.end()?;
    let kind = Kind::Role(Box::new(statement));
    let notices = reader.notices;
    Ok(Some(Translated { cacheable: false, notices, ..Translated::command(kind, verb) }))
}

/// Translates SET ROLE and SET SESSION AUTHORIZATION, each with SESSION or LOCAL.
pub fn set(text: &str) -> SqlResult<Translated> {
    let tokens = parse::tokens(text)?;
    let mut reader = Reader { words: Words::new(&tokens), notices: Vec::new() };
    reader.expect("SET")?;
    let local = reader.accept("LOCAL");
    let authorization = |reader: &mut Reader<'_>| reader.words.accept(&["SESSION", "AUTHORIZATION"]);
    let is_authorization =
        authorization(&mut reader) || (!local && reader.accept("SESSION") && authorization(&mut reader));
    let (name, value) = if is_authorization {
        let default = reader.accept("DEFAULT");
        ("session_authorization", if default { None } else { Some(reader.value()?) })
    } else {
        reader.accept("SESSION");
        reader.expect("ROLE")?;
        let assigned = reader.accept("TO") || reader.words.take(&Token::Eq);
        let default = assigned && reader.accept("DEFAULT");
        ("role", if default { None } else { Some(reader.value()?) })
    };
    reader.words.take(&Token::SemiColon);
    reader.end()?;
    let kind = Kind::Set { name: name.to_owned(), value, local };
    Ok(Translated { cacheable: false, notices: reader.notices, ..Translated::command(kind, "SET") })
}

type Read = Option<(RoleStatement, &'static str)>;

fn reserved(name: &str) -> SqlError {
    SqlError::new(RESERVED_NAME, format!("role name \"{name}\" is reserved"))
}

impl Reader<'_> {
    /// 42601 for the current token; a text, which may be a password, is not repeated.
    fn syntax(&self) -> SqlError {
        match self.words.token() {
            Some(Token::Word(_)) | None => self.words.syntax(),
            Some(token) if token.to_string().len() == 1 => self.words.syntax(),
            Some(_) => SqlError::new(SqlState::SYNTAX_ERROR, "syntax error at or near a constant"),
        }
    }

    fn end(&self) -> SqlResult<()> {
        if self.words.token().is_some() { Err(self.syntax()) } else { Ok(()) }
    }

    fn accept(&mut self, word: &str) -> bool {
        self.words.accept(&[word])
    }

    fn expect(&mut self, word: &str) -> SqlResult<()> {
        if self.accept(word) { Ok(()) } else { Err(self.syntax()) }
    }

    /// ROLE, USER or GROUP.
    fn noun(&mut self) -> Option<&'static str> {
        ["ROLE", "USER", "GROUP"].into_iter().find(|noun| self.accept(noun))
    }

    fn create(&mut self) -> SqlResult<Read> {
        let Some(noun) = self.noun() else { return Ok(None) };
        let name = self.new_name()?;
        self.accept("WITH");
        let options = self.options(true)?;
        Ok(Some((RoleStatement::Create { name, user: noun == "USER", options }, "CREATE ROLE")))
    }

    fn drop(&mut self) -> SqlResult<Read> {
        if self.noun().is_none() {
            return Ok(None);
        }
        let if_exists = self.words.accept(&["IF", "EXISTS"]);
        let roles = self.list(Reader::role)?;
        Ok(Some((RoleStatement::Drop { roles, if_exists }, "DROP ROLE")))
    }

    fn alter(&mut self, text: &str) -> SqlResult<Read> {
        if self.accept("DATABASE") {
            return self.alter_database();
        }
        let Some(noun) = self.noun() else { return Ok(None) };
        let role = self.role()?;
        if self.words.accept(&["RENAME", "TO"]) {
            let RoleSpec::Name(name) = role else { return Err(not_a_name(&role)) };
            return Ok(Some((RoleStatement::Rename { name, to: self.new_name()? }, "ALTER ROLE")));
        }
        if noun == "GROUP" {
            let add = self.accept("ADD");
            if !add {
                self.expect("DROP")?;
            }
            self.expect("USER")?;
            let members = self.list(Reader::role)?;
            return Ok(Some((RoleStatement::AlterGroup { role, add, members }, "ALTER ROLE")));
        }
        let database = if self.words.accept(&["IN", "DATABASE"]) { Some(self.name()?) } else { None };
        if self.words.peek("SET") || self.words.peek("RESET") {
            let rest = self.words.rest_of(text);
            let change = start_parameters::change(rest, "ALTER ROLE")?;
            self.words.skip_all();
            return Ok(Some((RoleStatement::Parameter { role, database, change }, "ALTER ROLE")));
        }
        if database.is_some() {
            return Err(self.syntax());
        }
        self.accept("WITH");
        let options = self.options(false)?;
        Ok(Some((RoleStatement::Alter { role, options }, "ALTER ROLE")))
    }

    /// ALTER ROLE ALL: SET and RESET for all roles. In a database it is what ALTER DATABASE sets.
    fn alter_all(&mut self, text: &str) -> SqlResult<Translated> {
        let database = if self.words.accept(&["IN", "DATABASE"]) { Some(self.name()?) } else { None };
        if !self.words.peek("SET") && !self.words.peek("RESET") {
            return Err(self.syntax());
        }
        let change = start_parameters::change(self.words.rest_of(text), "ALTER ROLE")?;
        let kind = Kind::AlterParameters { database, change };
        let notices = std::mem::take(&mut self.notices);
        Ok(Translated { cacheable: false, notices, ..Translated::command(kind, "ALTER ROLE") })
    }

    fn alter_database(&mut self) -> SqlResult<Read> {
        let database = self.name()?;
        let statement = if self.words.accept(&["OWNER", "TO"]) {
            RoleStatement::DatabaseOwner { database, to: self.role()? }
        } else {
            let with = self.accept("WITH");
            if !self.words.accept(&["CONNECTION", "LIMIT"]) {
                return if with { Err(self.syntax()) } else { Ok(None) };
            }
            RoleStatement::DatabaseLimit { database, limit: self.integer()? }
        };
        Ok(Some((statement, "ALTER DATABASE")))
    }

    fn grant(&mut self) -> SqlResult<Read> {
        let grant = self.accept("GRANT");
        if !grant {
            self.expect("REVOKE")?;
        }
        let verb = if grant { "GRANT" } else { "REVOKE" };
        let admin_for = !grant && self.words.accept(&["ADMIN", "OPTION", "FOR"]);
        let option_for = !grant && !admin_for && self.words.accept(&["GRANT", "OPTION", "FOR"]);
        let all = self.words.peek("ALL");
        let Some(words) = self.privileges()? else { return Ok(None) };
        if self.accept("ON") {
            if admin_for || !self.accept("DATABASE") {
                return Ok(None);
            }
            let databases = self.list(Reader::name)?;
            let (grantees, by) = self.grantees(grant)?;
            let option = option_for || (grant && self.words.accept(&["WITH", "GRANT", "OPTION"]));
            let by = if grant { self.granted_by()?.or(by) } else { by };
            let cascade = !grant && self.behaviour();
            let privileges = if all { Vec::new() } else { words };
            let of = DatabaseGrant { grant, privileges, databases, grantees, option, cascade, by };
            return Ok(Some((RoleStatement::OnDatabase(Box::new(of)), verb)));
        }
        if option_for || all {
            return Err(self.syntax());
        }
        let (members, by) = self.grantees(grant)?;
        let admin = admin_for || (grant && self.words.accept(&["WITH", "ADMIN", "OPTION"]));
        let by = if grant { self.granted_by()?.or(by) } else { by };
        if !grant {
            self.behaviour();
        }
        let verb = if grant { "GRANT ROLE" } else { "REVOKE ROLE" };
        Ok(Some((RoleStatement::Membership { grant, roles: words, members, admin, by }, verb)))
    }

    /// Names of roles or of privileges; `None` where columns follow one, which only privileges on objects have.
    fn privileges(&mut self) -> SqlResult<Option<Vec<String>>> {
        if self.accept("ALL") {
            self.accept("PRIVILEGES");
            return Ok((!self.words.at_token(&Token::LParen)).then(Vec::new));
        }
        let mut words = Vec::new();
        loop {
            // Words of privileges, some of which are reserved.
            words.push(self.name()?);
            if self.words.at_token(&Token::LParen) {
                return Ok(None);
            }
            if !self.words.take(&Token::Comma) {
                return Ok(Some(words));
            }
        }
    }

    /// `TO` or `FROM` and the roles, and the grantor of a REVOKE.
    fn grantees(&mut self, grant: bool) -> SqlResult<(Vec<RoleSpec>, Option<RoleSpec>)> {
        self.expect(if grant { "TO" } else { "FROM" })?;
        let roles = self.list(|reader| {
            reader.accept("GROUP");
            reader.role()
        })?;
        let by = if grant { None } else { self.granted_by()? };
        Ok((roles, by))
    }

    fn granted_by(&mut self) -> SqlResult<Option<RoleSpec>> {
        if self.words.accept(&["GRANTED", "BY"]) { self.role().map(Some) } else { Ok(None) }
    }

    /// CASCADE; RESTRICT is the default.
    fn behaviour(&mut self) -> bool {
        let cascade = self.accept("CASCADE");
        if !cascade {
            self.accept("RESTRICT");
        }
        cascade
    }

    fn integer(&mut self) -> SqlResult<i32> {
        let minus = self.words.take(&Token::Minus);
        let Some(Token::Number(digits, _)) = self.words.token() else { return Err(self.syntax()) };
        let number: i32 = digits.parse().map_err(|_| self.syntax())?;
        self.words.at += 1;
        Ok(if minus { -number } else { number })
    }

    fn string(&mut self) -> SqlResult<String> {
        let text = match self.words.token() {
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => text.clone(),
            Some(Token::UnicodeStringLiteral(text)) => text.clone(),
            Some(Token::DollarQuotedString(text)) => text.value.clone(),
            // A password without quotation marks is not repeated.
            Some(_) => {
                return Err(SqlError::new(
                    SqlState::SYNTAX_ERROR,
                    "syntax error: a text in quotation marks is expected",
                ));
            }
            None => return Err(self.syntax()),
        };
        self.words.at += 1;
        Ok(text)
    }

    /// The value of SET: a name or a text.
    fn value(&mut self) -> SqlResult<String> {
        match self.words.token() {
            Some(Token::Word(_)) => self.name(),
            _ => self.string(),
        }
    }

    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> SqlResult<T>) -> SqlResult<Vec<T>> {
        let mut all = vec![one(self)?];
        while self.words.take(&Token::Comma) {
            all.push(one(self)?);
        }
        Ok(all)
    }

    /// A name of any kind, cut to its longest length.
    fn name(&mut self) -> SqlResult<String> {
        let mut name = self.words.name()?;
        if name.len() > NAME_BYTES_MAX {
            let end = (0..=NAME_BYTES_MAX).rev().find(|end| name.is_char_boundary(*end)).unwrap_or_default();
            let message = format!("identifier \"{name}\" will be truncated to \"{}\"", &name[..end]);
            self.notices.push(Notice { severity: "NOTICE", state: NAME_TOO_LONG, message });
            name.truncate(end);
        }
        Ok(name)
    }

    /// A role where an existing one is named.
    fn role(&mut self) -> SqlResult<RoleSpec> {
        let quoted = matches!(self.words.token(), Some(Token::Word(w)) if w.quote_style.is_some());
        let here = self.words.at;
        let name = self.name()?;
        Ok(match name.as_str() {
            "public" => RoleSpec::Public,
            "none" => return Err(reserved(&name)),
            "current_user" | "current_role" if !quoted => RoleSpec::CurrentRole,
            "session_user" if !quoted => RoleSpec::SessionUser,
            word if !quoted && RESERVED.contains(&word) => {
                self.words.at = here;
                return Err(self.syntax());
            }
            _ => RoleSpec::Name(name),
        })
    }

    /// The name of a new role.
    fn new_name(&mut self) -> SqlResult<String> {
        match self.role()? {
            RoleSpec::Name(name) => Ok(name),
            other => Err(not_a_name(&other)),
        }
    }
}

/// The error for a word that means a role but names none.
fn not_a_name(role: &RoleSpec) -> SqlError {
    let word = match role {
        RoleSpec::CurrentRole => "CURRENT_USER",
        RoleSpec::SessionUser => "SESSION_USER",
        RoleSpec::Public | RoleSpec::Name(_) => return reserved("public"),
    };
    SqlError::new(RESERVED_NAME, format!("{word} cannot be used as a role name here"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::role_statement::RoleOption;

    fn read(text: &str) -> RoleStatement {
        match translate(text).unwrap().unwrap().kind {
            Kind::Role(statement) => *statement,
            other => panic!("{other:?}"),
        }
    }

    fn name(name: &str) -> RoleSpec {
        RoleSpec::Name(name.to_owned())
    }

    #[test]
    fn every_option_of_create_role_is_read() {
        let text = "create user \"My \"\"App\"\"\" with superuser nocreatedb createrole noinherit nologin replication bypassrls \
                    connection limit -1 encrypted password 'it''s' valid until 'infinity' in role a, B role c admin current_user \
                    sysid 7";
        let RoleStatement::Create { name: called, user, options } = read(text) else { panic!("not a CREATE") };
        assert_eq!((called.as_str(), user, options.len()), ("My \"App\"", true, 14));
        assert!(options.contains(&RoleOption::Password(Some("it's".into()))));
        assert!(options.contains(&RoleOption::ConnectionLimit(-1)));
        assert!(options.contains(&RoleOption::InRole(vec![name("a"), name("b")])));
        assert!(options.contains(&RoleOption::Admins(vec![RoleSpec::CurrentRole])));
        assert!(!format!("{options:?}").contains("it's"), "a password is not shown");
    }

    #[test]
    fn grants_of_roles_and_on_databases_are_told_from_others() {
        let RoleStatement::Membership { grant, roles, members, admin, by } =
            read("GRANT a, \"B\" TO GROUP c, session_user WITH ADMIN OPTION GRANTED BY d")
        else {
            panic!("not a GRANT")
        };
        assert_eq!((grant, admin, by), (true, true, Some(name("d"))));
        assert_eq!((roles, members), (vec!["a".to_owned(), "B".into()], vec![name("c"), RoleSpec::SessionUser]));
        let RoleStatement::OnDatabase(of) =
            read("revoke grant option for all privileges on database x, \"Y\" from public granted by z cascade")
        else {
            panic!("not on a database")
        };
        assert_eq!((of.grant, of.option, of.cascade, of.by), (false, true, true, Some(name("z"))));
        assert_eq!(
            (of.privileges.len(), of.databases, of.grantees),
            (0, vec!["x".to_owned(), "Y".into()], vec![RoleSpec::Public])
        );
        for text in [
            "grant select on t to a",
            "grant select(x), update(y) on t to a",
            "revoke all on schema s from a",
            "grant all on all tables in schema s to a",
            "create table role(x int)",
            "alter table t owner to a",
        ] {
            assert_eq!(translate(text).map(|t| t.is_some()), Ok(false), "{text}");
        }
    }

    #[test]
    fn set_role_is_read() {
        let set = |name: &str, value: Option<&str>, local| {
            let (name, value) = (name.to_owned(), value.map(str::to_owned));
            Kind::Set { name, value, local }
        };
        for (text, kind) in [
            ("set role Ann", set("role", Some("ann"), false)),
            ("set local role \"My Role\"", set("role", Some("My Role"), true)),
            ("set session role 'Ann'", set("role", Some("Ann"), false)),
            ("SET ROLE NONE", set("role", Some("none"), false)),
            ("set role to Ann", set("role", Some("ann"), false)),
            ("set local role = default", set("role", None, true)),
            ("set session authorization ann", set("session_authorization", Some("ann"), false)),
            ("set session session authorization default", set("session_authorization", None, false)),
            ("set local session authorization 'x'", set("session_authorization", Some("x"), true)),
        ] {
            assert_eq!(super::set(text).unwrap().kind, kind, "{text}");
        }
    }

    #[test]
    fn names_are_checked_and_cut() {
        let state = |text: &str| translate(text).err().map(|e| e.state().0);
        assert_eq!(state("create role public"), Some("42939"));
        assert_eq!(state("create role \"none\""), Some("42939"));
        assert_eq!(state("create role current_user"), Some("42939"));
        assert_eq!(state("create role user"), Some("42601"));
        assert_eq!(state("create role a login nologin"), Some("42601"));
        assert_eq!(state("create role a flies"), Some("42601"));
        let long = "ä".repeat(40);
        let translated = translate(&format!("create role {long}")).unwrap().unwrap();
        assert_eq!((translated.notices.len(), translated.notices[0].state.0), (1, "42622"));
        let Kind::Role(statement) = translated.kind else { panic!() };
        let RoleStatement::Create { name, .. } = *statement else { panic!() };
        assert_eq!(name.len(), 62);
    }
}
