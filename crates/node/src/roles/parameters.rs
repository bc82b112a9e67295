//! ALTER ROLE ... [IN DATABASE ...] SET and RESET.

use super::attributes::check_not_reserved;
use super::{Work, denied};
use crate::settings;
use holdfast_sql::RoleSpec;
use holdfast_types::access::{Role, RoleParameter};
use holdfast_types::{ParameterChange, SqlResult, VolumeId};

impl Work<'_> {
    pub(super) fn set_parameter(
        &mut self,
        spec: &RoleSpec,
        database: Option<&str>,
        change: &ParameterChange,
    ) -> SqlResult<()> {
        check_not_reserved(spec)?;
        let role = self.role(spec)?;
        if role.superuser {
            self.superuser_only("must be superuser to alter superusers")?;
        } else if !self.may_create_roles() && role.oid != self.scope.current {
            return Err(denied("permission denied"));
        }
        let database = database.map_or(Ok(VolumeId(0)), |name| self.database(name).map(|found| found.volume))?;
        let mut after = Role::clone(&role);
        let named = match change {
            ParameterChange::Set { name, .. } | ParameterChange::Reset(name) => Some(settings::known(name)?),
            ParameterChange::ResetAll => None,
        };
        after.parameters.retain(|p| p.database != database || named.is_some_and(|name| p.name != name));
        if let ParameterChange::Set { name, value } = change {
            let (name, value) = settings::check_stored(name, value, false)?;
            after.parameters.push(RoleParameter { database, name: name.to_owned(), value });
            after.parameters.sort();
        }
        self.set(role.oid, Some(after));
        Ok(())
    }
}
