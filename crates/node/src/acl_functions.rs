//! The server's functions behind `aclexplode`, `aclcontains` and `makeaclitem`: lists of grants as PostgreSQL writes them, with the
//! names of roles.
//!
//! Failure: 42704 for a role that does not exist, 22P02 for a text that is no list, 22023 for an unknown privilege.

use crate::privilege_functions::Asked;
use holdfast_types::access::predefined::PUBLIC_OID;
use holdfast_types::access::{AclItem, Privileges, Roles};
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef};

fn text<'v>(value: &ValueRef<'v>) -> Option<std::borrow::Cow<'v, str>> {
    if let ValueRef::Text(text) = value { Some(String::from_utf8_lossy(text)) } else { None }
}

/// The elements of an array in its text form.
fn elements(list: &str) -> Option<Vec<String>> {
    let inner = list.strip_prefix('{')?.strip_suffix('}')?;
    let (mut out, mut now, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => now.push(chars.next()?),
            '"' => quoted = !quoted,
            ',' if !quoted => out.push(std::mem::take(&mut now)),
            c => now.push(c),
        }
    }
    if !inner.is_empty() {
        out.push(now);
    }
    Some(out)
}

/// A role's name at the start of a text, quoted or not, and the rest.
fn name(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(['=', '/']).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let (mut out, mut at) = (String::new(), 0);
    loop {
        let end = at + quoted[at..].find('"')?;
        out.push_str(&quoted[at..end]);
        match quoted[end + 1..].starts_with('"') {
            true => out.push('"'),
            false => return Some((out, &quoted[end + 1..])),
        }
        at = end + 2;
    }
}

/// Reads an item.
fn item(written: &str, roles: &Roles) -> SqlResult<AclItem> {
    let invalid = || {
        let message = format!("invalid input syntax for type aclitem: \"{written}\"");
        SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, message)
    };
    let (grantee, rest) = name(written).ok_or_else(invalid)?;
    let (letters, grantor) = rest.strip_prefix('=').and_then(|r| r.split_once('/')).ok_or_else(invalid)?;
    let (grantor, _) = name(grantor).ok_or_else(invalid)?;
    let oid = |name: &str| match roles.by_name(name) {
        Some(role) => Ok(role.oid),
        // A role that was dropped is shown by its number.
        None => name
            .parse::<u32>()
            .map_err(|_| SqlError::new(SqlState::UNDEFINED_OBJECT, format!("role \"{name}\" does not exist"))),
    };
    let item = AclItem::parse(&format!("={letters}/x"), |_| Some(PUBLIC_OID)).ok_or_else(invalid)?;
    let grantee = if grantee.is_empty() { PUBLIC_OID } else { oid(&grantee)? };
    Ok(AclItem { grantee, grantor: oid(&grantor)?, ..item })
}

impl Asked {
    fn items(&self, list: &str) -> SqlResult<Vec<AclItem>> {
        let invalid =
            || SqlError::new(SqlState::INVALID_TEXT_REPRESENTATION, format!("malformed array literal: \"{list}\""));
        elements(list).ok_or_else(invalid)?.iter().map(|written| item(written, &self.roles)).collect()
    }

    /// `hf_acl_items`: a list.
    pub fn acl_items(&self, args: &[ValueRef<'_>]) -> SqlResult<Value> {
        let Some(list) = args.first().and_then(text) else { return Ok(Value::Text("[]".into())) };
        let mut rows = Vec::new();
        for item in self.items(&list)? {
            for (privilege, _, word) in Privileges::ALL.iter().filter(|(p, _, _)| item.granted.contains(*p)) {
                let grantable = u8::from(item.grantable.contains(*privilege));
                rows.push(format!("[{},{},\"{word}\",{grantable}]", item.grantor, item.grantee));
            }
        }
        Ok(Value::Text(format!("[{}]", rows.join(","))))
    }

    /// `hf_acl_contains`: a list and an item.
    pub fn acl_contains(&self, args: &[ValueRef<'_>]) -> SqlResult<Value> {
        let [list, wanted] = args else { return Ok(Value::Null) };
        let (Some(list), Some(wanted)) = (text(list), text(wanted)) else { return Ok(Value::Null) };
        let wanted = item(&wanted, &self.roles)?;
        let has = |item: &AclItem| {
            (item.grantee, item.grantor) == (wanted.grantee, wanted.grantor)
                && item.granted.contains(wanted.granted)
                && item.grantable.contains(wanted.grantable)
        };
        Ok(Value::Int(i64::from(self.items(&list)?.iter().any(has))))
    }

    /// `hf_make_aclitem`: grantee, grantor, privilege, whether it is grantable.
    pub fn make_acl_item(&self, args: &[ValueRef<'_>]) -> SqlResult<Value> {
        let [ValueRef::Int(grantee), ValueRef::Int(grantor), privilege, ValueRef::Int(grantable)] = args else {
            return Ok(Value::Null);
        };
        let Some(word) = text(privilege) else { return Ok(Value::Null) };
        let granted = Privileges::by_word(&word.to_ascii_uppercase()).ok_or_else(|| {
            SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("unrecognized privilege type: \"{word}\""))
        })?;
        let oid = |n: i64| u32::try_from(n).unwrap_or_default();
        let grantable = if *grantable == 0 { Privileges::NONE } else { granted };
        let item = AclItem { grantee: oid(*grantee), grantor: oid(*grantor), granted, grantable };
        Ok(Value::Text(holdfast_sql::catalogue::acl_item_text(&self.roles, &item)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_they_are_written() {
        let list = r#"{holdfast=ar*/holdfast,"=r/\"odd \"\" role\""}"#;
        assert_eq!(elements(list).unwrap(), ["holdfast=ar*/holdfast", r#"=r/"odd "" role""#]);
        assert_eq!(elements("{}").unwrap(), [""; 0]);
        assert_eq!(elements("x"), None);
        assert_eq!(name(r#""a=""b"=r/x"#), Some((r#"a="b"#.to_owned(), "=r/x")));
        assert_eq!(name("\"open"), None);
    }

    #[test]
    fn an_item_of_no_role_is_refused() {
        let roles = Roles::default();
        assert_eq!(item("nobody=r/holdfast", &roles).unwrap_err().state().0, "42704");
        assert_eq!(item("holdfast", &roles).unwrap_err().state().0, "22P02");
        assert_eq!(item("=r*/holdfast", &roles).unwrap().grantable, Privileges::SELECT);
    }
}
