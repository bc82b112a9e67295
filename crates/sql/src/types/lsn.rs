//! Positions of the trail, PostgreSQL's type `pg_lsn`: the high and the low 32 bits in hexadecimal, `16/B374D848`.

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
        None => text.trim().parse().ok(),
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
        for bad in ["", "/", "1/", "x/1", "123456789/0", "1/+1", "-1"] {
            assert_eq!(parse_lsn(bad), None, "{bad}");
        }
    }
}
