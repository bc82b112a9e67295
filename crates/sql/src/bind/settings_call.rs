//! Functions on the session's parameters: `current_setting`, `set_config`, and the schemas of `search_path`.
//!
//! A parameter with a constant name is read when the statement is bound; `set_config`, and what stands behind it, run with the
//! statement, row by row, on the copy of the parameters that the session gives it.

use super::coerce::When;
use super::typed::{Shape, Typed};
use super::{Binder, Settings};
use crate::params::SessionValue;
use crate::types::{Type, more};
use holdfast_types::SqlResult;

/// The server's function behind `set_config`: name, value, whether it is local.
pub const SET_CONFIG_FUNCTION: &str = "hf_set_config";

/// The server's function behind `current_setting` with a name that is not constant: name, whether it may be missing.
pub const CURRENT_SETTING_FUNCTION: &str = "hf_current_setting";

impl Binder<'_> {
    pub(super) fn settings_call(&mut self, name: &str, args: &[Typed]) -> SqlResult<Option<Typed>> {
        Ok(match (name, args) {
            ("current_setting", [name]) => Some(self.current_setting(name, None)?),
            ("current_setting", [name, missing_ok]) => Some(self.current_setting(name, Some(missing_ok))?),
            ("set_config", [name, value, local]) => {
                let name = self.coerce(name.clone(), Type::TEXT, When::Implicit)?.sql;
                let value = self.coerce(value.clone(), Type::TEXT, When::Implicit)?.sql;
                let local = self.coerce(local.clone(), Type::BOOL, When::Implicit)?.sql;
                self.settings = Settings::Set;
                Some(Typed::new(self.helper(SET_CONFIG_FUNCTION, &[&name, &value, &local])?, Type::TEXT))
            }
            ("current_schemas", [implicit]) => {
                let implicit = self.coerce(implicit.clone(), Type::BOOL, When::Implicit)?.sql;
                let with = self.session(SessionValue::Schemas { implicit: true }, Type::new(more::NAME_ARRAY))?.sql;
                let without = self.session(SessionValue::Schemas { implicit: false }, Type::new(more::NAME_ARRAY))?.sql;
                let sql = format!("(CASE WHEN {implicit} THEN {with} WHEN NOT {implicit} THEN {without} END)");
                Some(Typed::new(sql, Type::new(more::NAME_ARRAY)))
            }
            _ => None,
        })
    }

    fn current_setting(&mut self, name: &Typed, missing_ok: Option<&Typed>) -> SqlResult<Typed> {
        // What a set_config before it in the same statement has set is known only when it runs.
        let is_early = self.settings < Settings::Set;
        if let (true, Shape::Text { value, .. }) = (is_early, &name.shape)
            && missing_ok.is_none_or(|m| ["0", "1"].contains(&m.sql.as_str()))
        {
            let missing_ok = missing_ok.is_some_and(|m| m.sql == "1");
            let which = SessionValue::Setting { name: value.to_lowercase(), missing_ok };
            let typed = self.session(which, Type::TEXT)?;
            return Ok(Typed { not_null: false, ..typed });
        }
        let name = self.coerce(name.clone(), Type::TEXT, When::Implicit)?.sql;
        let missing_ok = match missing_ok {
            Some(missing_ok) => self.coerce(missing_ok.clone(), Type::BOOL, When::Implicit)?.sql,
            None => "0".to_owned(),
        };
        self.settings = self.settings.max(Settings::Read);
        Ok(Typed::new(self.helper(CURRENT_SETTING_FUNCTION, &[&name, &missing_ok])?, Type::TEXT))
    }
}
