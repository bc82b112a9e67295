//! The text form of an LSN, that of PostgreSQL's type `pg_lsn`: the high and the low 32 bits in hexadecimal, `16/B374D848`.
//! Whatever reads one from a client or an operator reads the plain number too, as Holdfast's commands print it.

use crate::Lsn;
use std::fmt;
use std::str::FromStr;

/// Writes a position as PostgreSQL does.
pub fn lsn_text(lsn: u64) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn as u32)
}

/// Reads a position in PostgreSQL's form, or as a plain number.
pub fn parse_lsn(text: &str) -> Option<u64> {
    match text.trim().split_once('/') {
        Some((high, low)) if high.len() <= 8 && low.len() <= 8 => {
            let part = |digits: &str| {
                let hex = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
                if hex { u64::from_str_radix(digits, 16).ok() } else { None }
            };
            Some(part(high)? << 32 | part(low)?)
        }
        Some(_) => None,
        None => text.trim().parse().ok().filter(|_| !text.trim().starts_with('+')),
    }
}

/// Why a text is not an LSN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAnLsn;

impl fmt::Display for NotAnLsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an LSN; write it as pg_current_wal_lsn() shows it, such as 0/34001000, or as a plain number")
    }
}

impl std::error::Error for NotAnLsn {}

impl FromStr for Lsn {
    type Err = NotAnLsn;

    fn from_str(text: &str) -> Result<Lsn, NotAnLsn> {
        parse_lsn(text).map(Lsn).ok_or(NotAnLsn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_go_there_and_back() {
        assert_eq!(lsn_text(0x16_B374_D848), "16/B374D848");
        assert_eq!(parse_lsn("16/B374D848"), Some(0x16_B374_D848));
        assert_eq!(parse_lsn("0/0"), Some(0));
        assert_eq!(parse_lsn(" 4096 "), Some(4096));
        for bad in ["", "/", "1/", "x/1", "123456789/0", "1/+1", "-1", "+1", "0x10", "B374D848"] {
            assert_eq!(parse_lsn(bad), None, "{bad}");
        }
    }

    #[test]
    fn an_option_takes_both_forms() {
        assert_eq!("0/34001000".parse(), Ok(Lsn(0x3400_1000)));
        assert_eq!("872419328".parse(), Ok(Lsn(0x3400_1000)));
        assert_eq!("0/34001000x".parse::<Lsn>(), Err(NotAnLsn));
    }
}
