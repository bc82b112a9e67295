//! Functions on internet addresses (type `inet`), which are stored as text.

use super::function::{Function, text};
use crate::types::Type;
use core::net::IpAddr;
use holdfast_types::desc::oid;
use holdfast_types::inet::Inet;
use holdfast_types::{SqlResult, Value, ValueRef};

type Args<'a> = &'a [ValueRef<'a>];

pub(super) const FUNCTIONS: &[Function] = &[
    Function::strict("hf_inet_host", 1, |a| Ok(Value::Text(address(a)?.address.to_string()))).linear(),
    Function::strict("hf_inet_text", 1, |a| Ok(Value::Text(address(a)?.with_length()))).linear(),
    Function::strict("hf_inet_abbrev", 1, |a| Ok(Value::Text(address(a)?.to_string()))).linear(),
    Function::strict("hf_inet_masklen", 1, |a| Ok(Value::Int(address(a)?.bits.into()))).linear(),
    Function::strict("hf_inet_family", 1, |a| Ok(Value::Int(address(a)?.family()))).linear(),
    Function::strict("hf_inet_key", 1, |a| Ok(Value::Blob(sort_key(address(a)?)))).linear(),
];

fn address(args: Args<'_>) -> SqlResult<Inet> {
    let given = text(args, 0)?;
    Inet::parse(&given).ok_or_else(|| crate::types::invalid_input(&given, Type::new(oid::INET)))
}

/// PostgreSQL's order: the family, then the bits that both networks have, then the length of the prefix, then the host.
fn sort_key(of: Inet) -> Vec<u8> {
    let octets = match of.address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let mut key = vec![of.family() as u8];
    key.extend(octets.iter().enumerate().map(|(i, octet)| octet & mask(of.bits, i)));
    key.push(of.bits);
    key.extend(octets);
    key
}

/// The bits of octet `i` that belong to a prefix of this length.
fn mask(bits: u8, i: usize) -> u8 {
    match usize::from(bits).saturating_sub(8 * i) {
        0 => 0,
        n @ 1..=7 => 0xff << (8 - n),
        _ => 0xff,
    }
}
