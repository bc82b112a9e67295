//! Privileges on an object, and the list of who has granted which of them: PostgreSQL's `aclitem[]`.
//!
//! | letter | privilege | applies to |
//! |---|---|---|
//! | `a` | INSERT | tables, columns |
//! | `r` | SELECT | tables, columns, sequences, publications |
//! | `w` | UPDATE | tables, columns, sequences |
//! | `d` | DELETE | tables |
//! | `D` | TRUNCATE | tables |
//! | `x` | REFERENCES | tables, columns |
//! | `t` | TRIGGER | tables |
//! | `X` | EXECUTE | functions |
//! | `U` | USAGE | schemas, sequences, types |
//! | `C` | CREATE | databases, schemas |
//! | `T` | TEMPORARY | databases |
//! | `c` | CONNECT | databases |
//!
//! Source: PostgreSQL 15, table 5.1.

use std::ops::{BitAnd, BitOr, BitOrAssign, Not};

/// A set of privileges; the bits are PostgreSQL's (`nodes/parsenodes.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Privileges(pub u16);

impl Privileges {
    pub const NONE: Privileges = Privileges(0);
    pub const INSERT: Privileges = Privileges(1 << 0);
    pub const SELECT: Privileges = Privileges(1 << 1);
    pub const UPDATE: Privileges = Privileges(1 << 2);
    pub const DELETE: Privileges = Privileges(1 << 3);
    pub const TRUNCATE: Privileges = Privileges(1 << 4);
    pub const REFERENCES: Privileges = Privileges(1 << 5);
    pub const TRIGGER: Privileges = Privileges(1 << 6);
    pub const EXECUTE: Privileges = Privileges(1 << 7);
    pub const USAGE: Privileges = Privileges(1 << 8);
    pub const CREATE: Privileges = Privileges(1 << 9);
    pub const TEMPORARY: Privileges = Privileges(1 << 10);
    pub const CONNECT: Privileges = Privileges(1 << 11);

    /// All privileges of a table, of a column, of a sequence, of a schema, of a database, of a publication (Holdfast's own).
    pub const OF_TABLE: Privileges = Privileges(0x7f);
    pub const OF_COLUMN: Privileges = Privileges(1 | 1 << 1 | 1 << 2 | 1 << 5);
    pub const OF_SEQUENCE: Privileges = Privileges(1 << 1 | 1 << 2 | 1 << 8);
    pub const OF_SCHEMA: Privileges = Privileges(1 << 8 | 1 << 9);
    pub const OF_DATABASE: Privileges = Privileges(1 << 9 | 1 << 10 | 1 << 11);
    pub const OF_PUBLICATION: Privileges = Privileges::SELECT;

    /// Bit, letter and word of each, in the order in which PostgreSQL writes them.
    pub const ALL: [(Privileges, char, &'static str); 12] = [
        (Privileges::INSERT, 'a', "INSERT"),
        (Privileges::SELECT, 'r', "SELECT"),
        (Privileges::UPDATE, 'w', "UPDATE"),
        (Privileges::DELETE, 'd', "DELETE"),
        (Privileges::TRUNCATE, 'D', "TRUNCATE"),
        (Privileges::REFERENCES, 'x', "REFERENCES"),
        (Privileges::TRIGGER, 't', "TRIGGER"),
        (Privileges::EXECUTE, 'X', "EXECUTE"),
        (Privileges::USAGE, 'U', "USAGE"),
        (Privileges::CREATE, 'C', "CREATE"),
        (Privileges::TEMPORARY, 'T', "TEMPORARY"),
        (Privileges::CONNECT, 'c', "CONNECT"),
    ];

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every privilege of `other` is in this set.
    pub fn contains(self, other: Privileges) -> bool {
        self.0 & other.0 == other.0
    }

    /// The privilege with this word, in any case.
    pub fn by_word(word: &str) -> Option<Privileges> {
        let found = Privileges::ALL.iter().find(|(_, _, w)| w.eq_ignore_ascii_case(word));
        found.map(|(p, _, _)| *p).or_else(|| word.eq_ignore_ascii_case("TEMP").then_some(Privileges::TEMPORARY))
    }
}

impl BitOr for Privileges {
    type Output = Privileges;
    fn bitor(self, other: Privileges) -> Privileges {
        Privileges(self.0 | other.0)
    }
}

impl BitOrAssign for Privileges {
    fn bitor_assign(&mut self, other: Privileges) {
        self.0 |= other.0;
    }
}

impl BitAnd for Privileges {
    type Output = Privileges;
    fn bitand(self, other: Privileges) -> Privileges {
        Privileges(self.0 & other.0)
    }
}

impl Not for Privileges {
    type Output = Privileges;
    fn not(self) -> Privileges {
        Privileges(!self.0)
    }
}

/// What one role has granted to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclItem {
    /// The role's OID; [`super::predefined::PUBLIC_OID`] for PUBLIC.
    pub grantee: u32,
    pub grantor: u32,
    pub granted: Privileges,
    /// Those of `granted` that the grantee may grant to others (WITH GRANT OPTION).
    pub grantable: Privileges,
}

impl AclItem {
    /// PostgreSQL's text of it: `ann=arw*/holdfast`, with nothing before `=` for PUBLIC. `name` gives a role's name.
    pub fn text(&self, name: impl Fn(u32) -> String) -> String {
        let grantee = if self.grantee == super::predefined::PUBLIC_OID { String::new() } else { name(self.grantee) };
        let letters: String = Privileges::ALL
            .iter()
            .filter(|(p, _, _)| self.granted.contains(*p))
            .flat_map(|(p, letter, _)| std::iter::once(*letter).chain(self.grantable.contains(*p).then_some('*')))
            .collect();
        format!("{grantee}={letters}/{}", name(self.grantor))
    }

    /// Reads [`AclItem::text`]. `oid` gives the OID of a name; without a name it is PUBLIC.
    pub fn parse(text: &str, oid: impl Fn(&str) -> Option<u32>) -> Option<AclItem> {
        let (grantee, rest) = text.split_once('=')?;
        let (letters, grantor) = rest.split_once('/')?;
        let grantee = if grantee.is_empty() { super::predefined::PUBLIC_OID } else { oid(grantee)? };
        let mut item =
            AclItem { grantee, grantor: oid(grantor)?, granted: Privileges::NONE, grantable: Privileges::NONE };
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
}

/// The grants of one object, in the order in which they were made.
pub type Acl = Vec<AclItem>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_item_is_written_as_postgresql_writes_it() {
        let name = |oid: u32| if oid == 10 { "holdfast".to_owned() } else { "ann".to_owned() };
        let (granted, grantable) = (Privileges::SELECT | Privileges::INSERT | Privileges::UPDATE, Privileges::UPDATE);
        let item = AclItem { grantee: 16384, grantor: 10, granted, grantable };
        assert_eq!(item.text(name), "ann=arw*/holdfast");
        let numbered = |item: AclItem| AclItem::parse(&item.text(|oid| oid.to_string()), |n| n.parse().ok());
        assert_eq!(numbered(item), Some(item));
        let of_public = AclItem { grantee: 0, ..item };
        assert_eq!(numbered(of_public), Some(of_public));
        for text in ["", "1=r", "1=?/10", "r/10", "x=r/10"] {
            assert_eq!(AclItem::parse(text, |n| n.parse().ok()), None, "{text}");
        }
        assert_eq!(AclItem { grantee: 0, granted: Privileges::USAGE, ..item }.text(name), "=U/holdfast");
        assert_eq!(Privileges::by_word("temp"), Some(Privileges::TEMPORARY));
    }
}
