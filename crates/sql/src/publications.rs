//! Publications: reads the statements about them. What a statement changes depends on the role that runs it and on the schema,
//! so the session has it worked out when it runs ([`change`]).
//!
//! The grammar and its errors are PostgreSQL 15's (`CreatePublicationStmt` and following, `parse_publication_options`).
//!
//! Failure: 42601 for what PostgreSQL's grammar does not have; 0A000 for TABLES IN SCHEMA.

mod change;
mod filter;

use crate::command::Kind;
use crate::parse;
use crate::privilege_statement::{RelationName, RoleName};
use crate::publication_statement::{Alteration, Content, PublicationStatement, WrittenOptions, WrittenTable};
use crate::translated::Translated;
use crate::words::Words;
pub use change::{Actor, Outcome, work_out};
pub(crate) use filter::bound as bound_condition;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;

/// Translates a statement about publications.
pub fn translate(text: &str) -> SqlResult<Translated> {
    let tokens = parse::tokens(text)?;
    let mut words = Words::new(&tokens);
    let (statement, verb) = if words.accept(&["CREATE", "PUBLICATION"]) {
        (create(&mut words, text)?, "CREATE PUBLICATION")
    } else if words.accept(&["ALTER", "PUBLICATION"]) {
        let name = words.name()?;
        (PublicationStatement::Alter { name, change: alteration(&mut words, text)? }, "ALTER PUBLICATION")
    } else if words.accept(&["DROP", "PUBLICATION"]) {
        let if_exists = words.accept(&["IF", "EXISTS"]);
        let names = comma_separated(&mut words, |words| words.name())?;
        let _ = words.accept(&["CASCADE"]) || words.accept(&["RESTRICT"]);
        (PublicationStatement::Drop { names, if_exists }, "DROP PUBLICATION")
    } else if words.accept(&["COMMENT", "ON", "PUBLICATION"]) {
        let name = words.name()?;
        if !words.accept(&["IS"]) {
            return Err(words.syntax());
        }
        words.skip_all();
        (PublicationStatement::Comment(name), "COMMENT")
    } else {
        return Err(words.syntax());
    };
    words.take(&Token::SemiColon);
    words.end()?;
    let kind = Kind::Publication(Box::new(statement));
    Ok(Translated { cacheable: false, ..Translated::command(kind, verb) })
}

pub(crate) fn comma_separated<T>(
    words: &mut Words<'_>,
    mut one: impl FnMut(&mut Words<'_>) -> SqlResult<T>,
) -> SqlResult<Vec<T>> {
    let mut all = vec![one(words)?];
    while words.take(&Token::Comma) {
        all.push(one(words)?);
    }
    Ok(all)
}

fn create(words: &mut Words<'_>, text: &str) -> SqlResult<PublicationStatement> {
    let name = words.name()?;
    let content = if words.accept(&["FOR", "ALL", "TABLES"]) {
        Content::AllTables
    } else if words.accept(&["FOR"]) {
        Content::Tables(tables(words, text)?)
    } else {
        Content::Tables(Vec::new())
    };
    let options = if words.accept(&["WITH"]) { options(words)? } else { WrittenOptions::default() };
    Ok(PublicationStatement::Create { name, content, options })
}

fn alteration(words: &mut Words<'_>, text: &str) -> SqlResult<Alteration> {
    if words.accept(&["RENAME", "TO"]) {
        return Ok(Alteration::Rename(words.name()?));
    }
    if words.accept(&["OWNER", "TO"]) {
        return Ok(Alteration::Owner(role(words)?));
    }
    if words.accept(&["ADD"]) {
        return Ok(Alteration::Add(tables(words, text)?));
    }
    if words.accept(&["DROP"]) {
        return Ok(Alteration::Drop(tables(words, text)?));
    }
    if !words.accept(&["SET"]) {
        return Err(words.syntax());
    }
    match words.at_token(&Token::LParen) {
        true => Ok(Alteration::Options(options(words)?)),
        false => Ok(Alteration::Set(tables(words, text)?)),
    }
}

pub(crate) fn role(words: &mut Words<'_>) -> SqlResult<RoleName> {
    let quoted = matches!(words.token(), Some(Token::Word(w)) if w.quote_style.is_some());
    let name = words.name()?;
    Ok(match name.as_str() {
        "current_role" | "current_user" if !quoted => RoleName::CurrentRole,
        "session_user" if !quoted => RoleName::SessionUser,
        "public" => RoleName::Public,
        _ => RoleName::Name(name),
    })
}

/// Reads `TABLE t (columns) WHERE (condition), u, TABLE v`.
fn tables(words: &mut Words<'_>, text: &str) -> SqlResult<Vec<WrittenTable>> {
    let mut first = true;
    comma_separated(words, |words| {
        if words.accept(&["TABLES", "IN", "SCHEMA"]) {
            return Err(SqlError::unsupported("TABLES IN SCHEMA").with_hint("List the tables, or use FOR ALL TABLES."));
        }
        if !matches!(words.token(), Some(Token::Word(_))) {
            return Err(words.syntax());
        }
        if !words.accept(&["TABLE"]) && first {
            let message = "invalid publication object list";
            return Err(SqlError::new(SqlState::SYNTAX_ERROR, message).with_detail(
                "One of TABLE or TABLES IN SCHEMA must be specified before a standalone table or schema name.",
            ));
        }
        first = false;
        table(words, text)
    })
}

fn table(words: &mut Words<'_>, text: &str) -> SqlResult<WrittenTable> {
    let relation = if words.accept(&["ONLY"]) && words.take(&Token::LParen) {
        let relation = relation(words)?;
        if !words.take(&Token::RParen) {
            return Err(words.syntax());
        }
        relation
    } else {
        relation(words)?
    };
    words.take(&Token::Mul);
    let mut columns = None;
    if words.take(&Token::LParen) {
        columns = Some(comma_separated(words, |words| words.name())?);
        if !words.take(&Token::RParen) {
            return Err(words.syntax());
        }
    }
    let filter = if words.accept(&["WHERE"]) { Some(condition(words, text)?) } else { None };
    Ok(WrittenTable { relation, columns, filter })
}

fn relation(words: &mut Words<'_>) -> SqlResult<RelationName> {
    let mut parts = vec![words.name()?];
    while words.take(&Token::Period) {
        parts.push(words.name()?);
    }
    if parts.len() == 2 && parts[0] == "pg_catalog" {
        parts.remove(0);
    }
    let idents: Vec<_> = parts.iter().map(|p| sqlparser::ast::Ident::with_quote('"', p.clone())).collect();
    let (among, name) = crate::names::relation_name(&idents.into())?;
    Ok(RelationName { among, name })
}

/// Steps over `(condition)` and returns it as a query of its value, at the same place as in the statement.
fn condition(words: &mut Words<'_>, text: &str) -> SqlResult<String> {
    let from = text.len() - words.rest_of(text).len();
    if !words.take(&Token::LParen) {
        return Err(words.syntax());
    }
    let mut depth = 1;
    loop {
        match words.token() {
            None => return Err(words.syntax()),
            Some(Token::LParen) => depth += 1,
            Some(Token::RParen) => depth -= 1,
            Some(_) => {}
        }
        if depth == 0 {
            break;
        }
        words.at += 1;
    }
    let to = text.len() - words.rest_of(text).len();
    words.at += 1;
    let place = text[..from].chars().count();
    const SELECT: &str = "SELECT ";
    Ok(format!("{:>place$}{}", SELECT, text.get(from..=to).unwrap_or("")))
}

/// Reads `(publish = 'insert, update', publish_via_partition_root = true)`.
fn options(words: &mut Words<'_>) -> SqlResult<WrittenOptions> {
    if !words.take(&Token::LParen) {
        return Err(words.syntax());
    }
    let mut options = WrittenOptions::default();
    let conflicting = || Err(SqlError::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options"));
    comma_separated(words, |words| {
        let name = words.name()?;
        let value = if words.take(&Token::Eq) { Some(value(words)?) } else { None };
        match name.as_str() {
            "publish" if options.publish.is_some() => return conflicting(),
            "publish" => options.publish = Some(kinds(value)?),
            "publish_via_partition_root" if options.via_root.is_some() => return conflicting(),
            "publish_via_partition_root" => options.via_root = Some(boolean(&name, value)?),
            other => {
                let message = format!("unrecognized publication parameter: \"{other}\"");
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, message));
            }
        }
        Ok(())
    })?;
    if words.take(&Token::RParen) { Ok(options) } else { Err(words.syntax()) }
}

pub(crate) fn value(words: &mut Words<'_>) -> SqlResult<String> {
    let value = match words.token() {
        Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => text.clone(),
        Some(Token::Number(text, _)) => text.clone(),
        _ => return words.name(),
    };
    words.at += 1;
    Ok(value)
}

fn kinds(value: Option<String>) -> SqlResult<[bool; 4]> {
    let syntax = |message: String| SqlError::new(SqlState::SYNTAX_ERROR, message);
    let value = value.ok_or_else(|| syntax("publish requires a parameter".into()))?;
    let mut found = [false; 4];
    if value.trim().is_empty() {
        return Ok(found);
    }
    for word in value.split(',').map(str::trim) {
        if word.is_empty() || word.contains(char::is_whitespace) {
            return Err(syntax("invalid list syntax in parameter \"publish\"".into()));
        }
        let word = word.to_ascii_lowercase();
        match ["insert", "update", "delete", "truncate"].iter().position(|kind| *kind == word) {
            Some(at) => found[at] = true,
            None => {
                return Err(syntax(format!("unrecognized value for publication option \"publish\": \"{word}\"")));
            }
        }
    }
    Ok(found)
}

pub(crate) fn boolean(name: &str, value: Option<String>) -> SqlResult<bool> {
    match value.map(|value| value.to_ascii_lowercase()).as_deref() {
        None | Some("true" | "on" | "1") => Ok(true),
        Some("false" | "off" | "0") => Ok(false),
        Some(_) => Err(SqlError::new(SqlState::SYNTAX_ERROR, format!("{name} requires a Boolean value"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> PublicationStatement {
        match translate(text).unwrap().kind {
            Kind::Publication(statement) => *statement,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn statements() {
        let text = "create publication P for table a (x, \"Y\") where (x > (1)\n and s = ')'), only b *, table public.c \
                    with (publish = 'insert, Update', publish_via_partition_root);";
        let PublicationStatement::Create { name, content: Content::Tables(tables), options } = read(text) else {
            panic!()
        };
        assert_eq!(name, "p");
        assert_eq!(tables.iter().map(|t| t.relation.name.as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
        assert_eq!(tables[0].columns.as_deref(), Some(&["x".to_owned(), "Y".to_owned()][..]));
        let filter = tables[0].filter.as_deref().unwrap();
        assert_eq!(filter.trim_start(), "SELECT (x > (1)\n and s = ')')");
        assert_eq!(filter.find("(x"), text.find("(x >"), "an error in it has its place in the statement");
        assert_eq!(options, WrittenOptions { publish: Some([true, true, false, false]), via_root: Some(true) });
        let all = read("CREATE PUBLICATION p FOR ALL TABLES WITH (publish = '')");
        assert!(matches!(all, PublicationStatement::Create { content: Content::AllTables, options, .. }
            if options.publish == Some([false; 4])));
        for (text, expected) in [
            ("alter publication p rename to Q", Alteration::Rename("q".into())),
            ("alter publication p owner to current_user", Alteration::Owner(RoleName::CurrentRole)),
            (
                "alter publication p set (publish_via_partition_root = 0)",
                Alteration::Options(WrittenOptions { publish: None, via_root: Some(false) }),
            ),
        ] {
            assert_eq!(read(text), PublicationStatement::Alter { name: "p".into(), change: expected });
        }
        let drop = read("drop publication if exists a, b cascade");
        assert_eq!(drop, PublicationStatement::Drop { names: vec!["a".into(), "b".into()], if_exists: true });
    }

    #[test]
    fn what_the_grammar_does_not_have() {
        for bad in [
            "create publication p for all tables (a)",
            "create publication p for table t where a = 1",
            "create publication p for table t where (a = 1",
            "create publication p for table t (a",
            "create publication p for t",
            "create publication p with publish = 'insert'",
            "create publication p with (publish = 'insert' 'update')",
            "create publication p with (publish = insert, publish = update)",
            "alter publication p set",
            "drop publication p nonsense",
        ] {
            assert_eq!(translate(bad).unwrap_err().state(), SqlState::SYNTAX_ERROR, "{bad}");
        }
        let schema = translate("create publication p for tables in schema public").unwrap_err();
        assert_eq!(schema.state(), SqlState::FEATURE_NOT_SUPPORTED);
    }
}
