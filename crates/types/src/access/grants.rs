//! Owners and grants of the objects of one database, as its internal table `holdfast_privileges` holds them.
//!
//! An object without a row belongs to the bootstrap superuser and has no grants, so a database without the table needs
//! nothing. The text of a list is versioned: `1 GRANTEE=LETTERS/GRANTOR ...` with OIDs, nothing before `=` for PUBLIC.
//!
//! Failure: a text of another version or with an unknown letter is refused; the caller treats it as damage.

use super::predefined::{BOOTSTRAP_OID, DATABASE_OWNER_OID, PUBLIC_OID};
use super::privilege::{Acl, AclItem, Privileges};
use std::collections::{BTreeMap, HashMap};

/// Version of the text of a list.
const TEXT_VERSION: &str = "1";

/// Owner and grants of a table or view.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectGrants {
    pub owner: u32,
    /// `None`: nothing was granted or revoked; the owner has all privileges.
    pub acl: Option<Acl>,
    /// By column name.
    pub columns: BTreeMap<String, Acl>,
    /// The grants of the implied sequence of a serial column.
    pub sequence: Option<Acl>,
}

impl Default for ObjectGrants {
    fn default() -> ObjectGrants {
        ObjectGrants { owner: BOOTSTRAP_OID, acl: None, columns: BTreeMap::new(), sequence: None }
    }
}

/// What ALTER DEFAULT PRIVILEGES has stored.
#[derive(Clone, Debug, PartialEq)]
pub struct DefaultGrants {
    /// For objects that this role creates.
    pub role: u32,
    /// IN SCHEMA public; such a list is added to the other.
    pub in_schema: bool,
    /// PostgreSQL's `defaclobjtype`: `r`, `S`, `n`.
    pub object: char,
    pub acl: Acl,
}

/// All owners and grants of a database.
#[derive(Clone, Debug, PartialEq)]
pub struct Grants {
    /// The internal table exists.
    pub stored: bool,
    /// By the table's OID.
    tables: HashMap<u32, ObjectGrants>,
    pub schema: ObjectGrants,
    pub defaults: Vec<DefaultGrants>,
    /// By the publication's number; one without an entry is its owner's alone.
    pub publications: BTreeMap<u32, Acl>,
}

impl Default for Grants {
    fn default() -> Grants {
        let (tables, publications) = (HashMap::new(), BTreeMap::new());
        Grants { stored: false, tables, schema: schema_public(), defaults: Vec::new(), publications }
    }
}

/// Schema public as PostgreSQL 15 creates it.
fn schema_public() -> ObjectGrants {
    let item =
        |grantee, granted| AclItem { grantee, grantor: DATABASE_OWNER_OID, granted, grantable: Privileges::NONE };
    let acl = vec![item(DATABASE_OWNER_OID, Privileges::OF_SCHEMA), item(PUBLIC_OID, Privileges::USAGE)];
    ObjectGrants { owner: DATABASE_OWNER_OID, acl: Some(acl), ..ObjectGrants::default() }
}

impl Grants {
    pub fn of(&self, table: u32) -> Option<&ObjectGrants> {
        self.tables.get(&table)
    }

    pub fn of_mut(&mut self, table: u32) -> &mut ObjectGrants {
        self.tables.entry(table).or_default()
    }

    pub fn owner(&self, table: u32) -> u32 {
        self.tables.get(&table).map_or(BOOTSTRAP_OID, |grants| grants.owner)
    }

    /// OIDs of tables and views that have rows, with them.
    pub fn tables(&self) -> impl Iterator<Item = (u32, &ObjectGrants)> {
        self.tables.iter().map(|(oid, grants)| (*oid, grants))
    }
}

/// The list that an object without one stands for.
pub fn default_acl(all: Privileges, owner: u32) -> Acl {
    vec![AclItem { grantee: owner, grantor: owner, granted: all, grantable: Privileges::NONE }]
}

/// A list as the internal table holds it.
pub fn acl_text(acl: &[AclItem]) -> String {
    let items = acl.iter().map(|item| item.text(|oid| oid.to_string()));
    std::iter::once(TEXT_VERSION.to_owned()).chain(items).collect::<Vec<_>>().join(" ")
}

/// Reads [`acl_text`].
pub fn parse_acl(text: &str) -> Option<Acl> {
    let mut words = text.split(' ');
    if words.next() != Some(TEXT_VERSION) {
        return None;
    }
    words.map(parse_item).collect()
}

fn parse_item(text: &str) -> Option<AclItem> {
    let (grantee, rest) = text.split_once('=')?;
    let (letters, grantor) = rest.split_once('/')?;
    let grantee = if grantee.is_empty() { PUBLIC_OID } else { grantee.parse().ok()? };
    let mut item =
        AclItem { grantee, grantor: grantor.parse().ok()?, granted: Privileges::NONE, grantable: Privileges::NONE };
    let mut last = Privileges::NONE;
    for letter in letters.chars() {
        if letter == '*' {
            item.grantable |= last;
            continue;
        }
        last = Privileges::ALL.iter().find(|(_, l, _)| *l == letter)?.0;
        item.granted |= last;
    }
    Some(item)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Golden: what an earlier release has stored must be read by every later one.
    #[test]
    fn the_stored_text_of_a_list() {
        let granted = Privileges::SELECT | Privileges::UPDATE;
        let acl = vec![
            AclItem { grantee: 16384, grantor: 10, granted, grantable: Privileges::SELECT },
            AclItem { grantee: 0, grantor: 10, granted: Privileges::USAGE, grantable: Privileges::NONE },
        ];
        assert_eq!(acl_text(&acl), "1 16384=r*w/10 =U/10");
        assert_eq!(parse_acl("1 16384=r*w/10 =U/10"), Some(acl));
        assert_eq!(parse_acl("1"), Some(Vec::new()));
        for bad in ["", "2 =U/10", "1 x=U/10", "1 =Z/10", "1 =U", "1 =U/", "1  =U/10"] {
            assert_eq!(parse_acl(bad), None, "{bad}");
        }
    }
}
