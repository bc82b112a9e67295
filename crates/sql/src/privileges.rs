//! GRANT and REVOKE on objects of a database, ALTER ... OWNER TO, REASSIGN OWNED, DROP OWNED, ALTER DEFAULT PRIVILEGES.
//!
//! They are only read here: what they change depends on the role that runs them, so the session computes it. GRANT and
//! REVOKE of roles and on databases are not read here ([`translate`] returns `None`).
//!
//! Failure: 42601 for what PostgreSQL's grammar does not have, 0A000 for kinds of objects that Holdfast does not have.

use crate::command::Kind;
use crate::parse;
use crate::privilege_statement::{GrantOn, GrantStatement, Owned, PrivilegeStatement, RelationName, RoleName};
use crate::translated::Translated;
use crate::words::Words;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::keywords::Keyword;
use sqlparser::tokenizer::Token;

/// Translates a statement about owners and privileges; `None` where it is not one of these.
pub fn translate(text: &str) -> SqlResult<Option<Translated>> {
    let tokens = parse::tokens(text)?;
    let mut words = Words::new(&tokens);
    let (statement, verb) = if words.accept(&["GRANT"]) {
        match grant(&mut words, true, false)? {
            Some(change) => (PrivilegeStatement::Change(Box::new(change)), "GRANT"),
            None => return Ok(None),
        }
    } else if words.accept(&["REVOKE"]) {
        match grant(&mut words, false, false)? {
            Some(change) => (PrivilegeStatement::Change(Box::new(change)), "REVOKE"),
            None => return Ok(None),
        }
    } else if words.accept(&["REASSIGN", "OWNED", "BY"]) {
        let from = roles(&mut words)?;
        expect(&mut words, "TO")?;
        (PrivilegeStatement::Reassign { from, to: role(&mut words)? }, "REASSIGN OWNED")
    } else if words.accept(&["DROP", "OWNED", "BY"]) {
        let roles = roles(&mut words)?;
        let cascade = behaviour(&mut words);
        (PrivilegeStatement::DropOwned { roles, cascade }, "DROP OWNED")
    } else if words.accept(&["ALTER", "DEFAULT", "PRIVILEGES"]) {
        (defaults(&mut words)?, "ALTER DEFAULT PRIVILEGES")
    } else {
        match owner(&mut words)? {
            Some(found) => found,
            None => return Ok(None),
        }
    };
    words.take(&Token::SemiColon);
    words.end()?;
    let kind = Kind::Privileges(Box::new(statement));
    Ok(Some(Translated { cacheable: false, ..Translated::command(kind, verb) }))
}

fn expect(words: &mut Words<'_>, word: &str) -> SqlResult<()> {
    if words.accept(&[word]) { Ok(()) } else { Err(words.syntax()) }
}

fn comma_separated<T>(words: &mut Words<'_>, mut one: impl FnMut(&mut Words<'_>) -> SqlResult<T>) -> SqlResult<Vec<T>> {
    let mut all = vec![one(words)?];
    while words.take(&Token::Comma) {
        all.push(one(words)?);
    }
    Ok(all)
}

fn role(words: &mut Words<'_>) -> SqlResult<RoleName> {
    words.accept(&["GROUP"]);
    let quoted = matches!(words.token(), Some(Token::Word(w)) if w.quote_style.is_some());
    let name = words.name()?;
    Ok(match name.as_str() {
        "public" => RoleName::Public,
        "current_role" | "current_user" if !quoted => RoleName::CurrentRole,
        "session_user" if !quoted => RoleName::SessionUser,
        "none" => {
            let message = "role name \"none\" is reserved";
            return Err(SqlError::new(SqlState("42939"), message));
        }
        _ => RoleName::Name(name),
    })
}

fn roles(words: &mut Words<'_>) -> SqlResult<Vec<RoleName>> {
    comma_separated(words, role)
}

fn relation(words: &mut Words<'_>) -> SqlResult<RelationName> {
    let mut parts = vec![words.name()?];
    while words.take(&Token::Period) {
        parts.push(words.name()?);
    }
    let idents: Vec<_> = parts.iter().map(|p| sqlparser::ast::Ident::with_quote('"', p.clone())).collect();
    let (among, name) = crate::names::relation_name(&idents.into())?;
    Ok(RelationName { among, name })
}

fn columns(words: &mut Words<'_>) -> SqlResult<Vec<String>> {
    if !words.take(&Token::LParen) {
        return Ok(Vec::new());
    }
    let names = comma_separated(words, |words| words.name())?;
    if words.take(&Token::RParen) { Ok(names) } else { Err(words.syntax()) }
}

/// CASCADE or RESTRICT, where one is written.
fn behaviour(words: &mut Words<'_>) -> bool {
    let cascade = words.accept(&["CASCADE"]);
    words.accept(&["RESTRICT"]);
    cascade
}

/// Reads what follows GRANT or REVOKE; `None` for roles and databases.
fn grant(words: &mut Words<'_>, grant: bool, future: bool) -> SqlResult<Option<GrantStatement>> {
    let option = !grant && words.accept(&["GRANT", "OPTION", "FOR"]);
    let privileges = match words.accept(&["ALL"]) {
        true => {
            words.accept(&["PRIVILEGES"]);
            vec![(None, columns(words)?)]
        }
        false => comma_separated(words, |words| {
            let word = words.name()?;
            Ok((Some(word), columns(words)?))
        })?,
    };
    if !words.accept(&["ON"]) {
        return Ok(None);
    }
    let on = match future {
        true => GrantOn::Future,
        false => match objects(words)? {
            Some(on) => on,
            None => return Ok(None),
        },
    };
    if future {
        // The kind of object was read by the caller's rules.
        return Ok(Some(GrantStatement { grant, option, cascade: false, privileges, on, to: Vec::new(), by: None }));
    }
    let mut statement = GrantStatement { grant, option, cascade: false, privileges, on, to: Vec::new(), by: None };
    grantees(words, &mut statement)?;
    Ok(Some(statement))
}

/// Reads TO or FROM, and what follows.
fn grantees(words: &mut Words<'_>, statement: &mut GrantStatement) -> SqlResult<()> {
    expect(words, if statement.grant { "TO" } else { "FROM" })?;
    statement.to = roles(words)?;
    if statement.grant {
        statement.option = words.accept(&["WITH", "GRANT", "OPTION"]);
    }
    if words.accept(&["GRANTED", "BY"]) {
        statement.by = Some(role(words)?);
    }
    statement.cascade = !statement.grant && behaviour(words);
    Ok(())
}

fn objects(words: &mut Words<'_>) -> SqlResult<Option<GrantOn>> {
    if words.peek("DATABASE") {
        return Ok(None);
    }
    if words.accept(&["ALL"]) {
        let letter = match () {
            () if words.accept(&["TABLES"]) => 'r',
            () if words.accept(&["SEQUENCES"]) => 'S',
            () if words.accept(&["FUNCTIONS"]) || words.accept(&["PROCEDURES"]) || words.accept(&["ROUTINES"]) => 'f',
            () => return Err(words.syntax()),
        };
        if !words.accept(&["IN", "SCHEMA"]) {
            return Err(words.syntax());
        }
        return Ok(Some(GrantOn::All(letter, comma_separated(words, |words| words.name())?)));
    }
    if words.accept(&["SCHEMA"]) {
        return Ok(Some(GrantOn::Schemas(comma_separated(words, |words| words.name())?)));
    }
    let begun = words.at;
    if words.accept(&["PUBLICATION"])
        && matches!(words.token(), Some(Token::Word(w)) if w.keyword != Keyword::TO && w.keyword != Keyword::FROM)
    {
        return Ok(Some(GrantOn::Publications(comma_separated(words, |words| words.name())?)));
    }
    words.at = begun;
    if words.accept(&["SEQUENCE"]) {
        return Ok(Some(GrantOn::Sequences(comma_separated(words, relation)?)));
    }
    for absent in ["FUNCTION", "PROCEDURE", "ROUTINE", "TYPE", "DOMAIN", "LANGUAGE", "TABLESPACE", "PARAMETER"] {
        let begun = words.at;
        if words.accept(&[absent]) && words.name().is_ok() {
            return Err(SqlError::unsupported(format!("GRANT or REVOKE on a {}", absent.to_lowercase())));
        }
        words.at = begun;
    }
    if words.accept(&["FOREIGN"]) || words.accept(&["LARGE", "OBJECT"]) {
        return Err(SqlError::unsupported("GRANT or REVOKE on this kind of object"));
    }
    let begun = words.at;
    if words.accept(&["TABLE"]) && !matches!(words.token(), Some(Token::Word(_))) {
        words.at = begun;
    }
    Ok(Some(GrantOn::Tables(comma_separated(words, relation)?)))
}

/// Reads ALTER DEFAULT PRIVILEGES.
fn defaults(words: &mut Words<'_>) -> SqlResult<PrivilegeStatement> {
    let (mut of, mut schemas) = (Vec::new(), Vec::new());
    loop {
        if words.accept(&["FOR", "ROLE"]) || words.accept(&["FOR", "USER"]) {
            of = roles(words)?;
        } else if words.accept(&["IN", "SCHEMA"]) {
            schemas = comma_separated(words, |words| words.name())?;
        } else {
            break;
        }
    }
    let is_grant = words.accept(&["GRANT"]);
    if !is_grant && !words.accept(&["REVOKE"]) {
        return Err(words.syntax());
    }
    let Some(mut change) = grant(words, is_grant, true)? else { return Err(words.syntax()) };
    let object = match words.name()?.as_str() {
        "tables" => 'r',
        "sequences" => 'S',
        "functions" | "routines" => 'f',
        "types" => 'T',
        "schemas" => 'n',
        _ => {
            words.at -= 1;
            return Err(words.syntax());
        }
    };
    grantees(words, &mut change)?;
    Ok(PrivilegeStatement::Default { of, schemas, object, change: Box::new(change) })
}

/// Reads ALTER ... OWNER TO; `None` for any other ALTER.
fn owner(words: &mut Words<'_>) -> SqlResult<Option<(PrivilegeStatement, &'static str)>> {
    if !words.accept(&["ALTER"]) {
        return Ok(None);
    }
    let kind = ["TABLE", "VIEW", "SEQUENCE", "SCHEMA"].into_iter().find(|kind| words.accept(&[kind]));
    let Some(kind) = kind else { return Ok(None) };
    let if_exists = words.accept(&["IF", "EXISTS"]);
    words.accept(&["ONLY"]);
    let named = if kind == "SCHEMA" {
        words.name().map(Owned::Schema)
    } else {
        relation(words).map(|name| match kind {
            "TABLE" => Owned::Table(name),
            "VIEW" => Owned::View(name),
            _ => Owned::Sequence(name),
        })
    };
    // The parser reports what is wrong with any other ALTER.
    let Ok(of) = named else { return Ok(None) };
    if !words.accept(&["OWNER", "TO"]) {
        return Ok(None);
    }
    let verb = match kind {
        "TABLE" => "ALTER TABLE",
        "VIEW" => "ALTER VIEW",
        "SEQUENCE" => "ALTER SEQUENCE",
        _ => "ALTER SCHEMA",
    };
    Ok(Some((PrivilegeStatement::Owner { of, if_exists, to: role(words)? }, verb)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> PrivilegeStatement {
        match translate(text).unwrap().unwrap().kind {
            Kind::Privileges(statement) => *statement,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn statements() {
        let PrivilegeStatement::Change(grant) = read(
            "grant select (a, \"B\"), update on table T, public.u to Ann, public with grant option granted by current_user",
        ) else {
            panic!()
        };
        assert!(grant.grant && grant.option && !grant.cascade && grant.by == Some(RoleName::CurrentRole));
        let words = [(Some("select".into()), vec!["a".into(), "B".into()]), (Some("update".into()), Vec::new())];
        assert_eq!(grant.privileges, words);
        assert_eq!(grant.to, [RoleName::Name("ann".into()), RoleName::Public]);
        let GrantOn::Tables(tables) = grant.on else { panic!() };
        assert_eq!(tables.iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["t", "u"]);
        let PrivilegeStatement::Change(revoke) =
            read("REVOKE GRANT OPTION FOR ALL PRIVILEGES ON ALL SEQUENCES IN SCHEMA public FROM bob CASCADE")
        else {
            panic!()
        };
        assert!(!revoke.grant && revoke.option && revoke.cascade);
        assert_eq!(revoke.on, GrantOn::All('S', vec!["public".into()]));
        let PrivilegeStatement::Default { of, schemas, object, change } =
            read("alter default privileges for role ann in schema public revoke all on tables from bob")
        else {
            panic!()
        };
        assert_eq!((of.len(), schemas.len(), object, change.grant), (1, 1, 'r', false));
        for (text, names) in [("publication p, \"Q\"", vec!["p", "Q"]), ("publication \"to\"", vec!["to"])] {
            let PrivilegeStatement::Change(grant) = read(&format!("grant select on {text} to ann")) else { panic!() };
            assert_eq!(grant.on, GrantOn::Publications(names.into_iter().map(str::to_owned).collect()));
        }
        let PrivilegeStatement::Change(grant) = read("grant select on publication to ann") else { panic!() };
        assert!(matches!(grant.on, GrantOn::Tables(_)), "a table of that name");
        assert!(matches!(read("alter table if exists t owner to ann;"), PrivilegeStatement::Owner { .. }));
        assert!(matches!(read("reassign owned by a, b to c"), PrivilegeStatement::Reassign { .. }));
        assert!(matches!(read("drop owned by a cascade"), PrivilegeStatement::DropOwned { cascade: true, .. }));
    }

    #[test]
    fn roles_databases_and_other_changes_are_left() {
        for text in [
            "grant staff to ann",
            "grant connect on database d to ann",
            "revoke admin option for staff from ann",
            "alter table t add column owner int",
            "alter table owner rename to t",
        ] {
            assert_eq!(translate(text).unwrap().map(|t| t.kind), None, "{text}");
        }
        for bad in ["grant select on t", "grant select on to a", "revoke select on t to a"] {
            assert_eq!(translate(bad).unwrap_err().state(), SqlState::SYNTAX_ERROR, "{bad}");
        }
        let function = translate("grant execute on function f(int) to a").unwrap_err();
        assert_eq!(function.state(), SqlState::FEATURE_NOT_SUPPORTED);
    }
}
