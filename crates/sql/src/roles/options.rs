//! The options of CREATE ROLE and ALTER ROLE.
//!
//! Failure: 42601 for an option that PostgreSQL's grammar does not have or that is named twice, 0A000 for UNENCRYPTED PASSWORD.

use super::{RESERVED, Reader};
use crate::role_statement::RoleOption;
use holdfast_types::{SqlError, SqlResult, SqlState};
use sqlparser::tokenizer::Token;

impl Reader<'_> {
    /// The options up to the statement's end.
    pub(super) fn options(&mut self, create: bool) -> SqlResult<Vec<RoleOption>> {
        let mut options: Vec<RoleOption> = Vec::new();
        while !matches!(self.words.token(), None | Some(Token::SemiColon)) {
            let option = self.option(create)?;
            if options.iter().any(|o| o.words() == option.words()) {
                return Err(SqlError::new(SqlState::SYNTAX_ERROR, "conflicting or redundant options"));
            }
            options.push(option);
        }
        Ok(options)
    }

    fn option(&mut self, create: bool) -> SqlResult<RoleOption> {
        type Make = fn(bool) -> RoleOption;
        const SWITCHES: [(&str, &str, Make); 7] = [
            ("SUPERUSER", "NOSUPERUSER", RoleOption::Superuser),
            ("CREATEDB", "NOCREATEDB", RoleOption::CreateDb),
            ("CREATEROLE", "NOCREATEROLE", RoleOption::CreateRole),
            ("INHERIT", "NOINHERIT", RoleOption::Inherit),
            ("LOGIN", "NOLOGIN", RoleOption::Login),
            ("REPLICATION", "NOREPLICATION", RoleOption::Replication),
            ("BYPASSRLS", "NOBYPASSRLS", RoleOption::BypassRls),
        ];
        for (on, off, make) in SWITCHES {
            if self.accept(on) {
                return Ok(make(true));
            }
            if self.accept(off) {
                return Ok(make(false));
            }
        }
        if self.words.accept(&["CONNECTION", "LIMIT"]) {
            return Ok(RoleOption::ConnectionLimit(self.integer()?));
        }
        if self.accept("PASSWORD") {
            let null = self.accept("NULL");
            return Ok(RoleOption::Password(if null { None } else { Some(self.string()?) }));
        }
        if self.words.accept(&["ENCRYPTED", "PASSWORD"]) {
            return Ok(RoleOption::Password(Some(self.string()?)));
        }
        if self.words.peek("UNENCRYPTED") {
            let message = "UNENCRYPTED PASSWORD is no longer supported";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
                .with_hint("Remove UNENCRYPTED to store the password in encrypted form instead."));
        }
        if self.words.accept(&["VALID", "UNTIL"]) {
            return Ok(RoleOption::ValidUntil(self.string()?));
        }
        if self.accept("ROLE") || self.accept("USER") {
            // ALTER ROLE takes it too in PostgreSQL's grammar, and then reads no role from it.
            return if create { Ok(RoleOption::Members(self.list(Reader::role)?)) } else { Err(self.syntax()) };
        }
        if create {
            if self.accept("SYSID") {
                self.integer()?;
                return Ok(RoleOption::SysId);
            }
            if self.accept("ADMIN") {
                return Ok(RoleOption::Admins(self.list(Reader::role)?));
            }
            if self.words.accept(&["IN", "ROLE"]) || self.words.accept(&["IN", "GROUP"]) {
                return Ok(RoleOption::InRole(self.list(Reader::role)?));
            }
        }
        match self.words.token() {
            Some(Token::Word(w)) if w.quote_style.is_none() && !RESERVED.contains(&&*w.value.to_lowercase()) => {
                let message = format!("unrecognized role option \"{}\"", w.value.to_lowercase());
                Err(SqlError::new(SqlState::SYNTAX_ERROR, message))
            }
            _ => Err(self.syntax()),
        }
    }
}
