//! MD5 (RFC 1321), hexadecimal and base64 text of bytes, and random UUIDs.

use super::function::{Function, text};
use holdfast_types::cancel::check;
use holdfast_types::{SqlError, SqlResult, SqlState, Value, ValueRef};
use std::sync::LazyLock;

pub(super) const FUNCTIONS: &[Function] = &[
    Function::strict("hf_md5", 1, |a| Ok(Value::Text(hex(&md5(text(a, 0)?.as_bytes())?)?))).linear(),
    Function::strict("hf_encode", 2, encode).linear(),
    Function::strict("hf_decode", 2, decode).linear(),
    Function::strict("hf_uuid", 1, uuid).linear(),
];

/// A cancel is looked for after so many bytes.
const SLICE_BYTES: usize = 1 << 20;

const HEX: &[u8; 16] = b"0123456789abcdef";

fn hex(bytes: &[u8]) -> SqlResult<String> {
    let mut out = String::with_capacity(bytes.len() * 2);
    for slice in bytes.chunks(SLICE_BYTES) {
        check()?;
        out.extend(slice.iter().flat_map(|b| [HEX[usize::from(b >> 4)] as char, HEX[usize::from(b & 15)] as char]));
    }
    Ok(out)
}

/// The digest after one more block of 64 bytes.
fn md5_block(state: &mut [u32; 4], block: &[u8]) {
    const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];
    static SINES: LazyLock<[u32; 64]> =
        LazyLock::new(|| std::array::from_fn(|i| (((i + 1) as f64).sin().abs() * 4_294_967_296.0) as u32));
    let sines = &*SINES;
    let word = |i: usize| u32::from_le_bytes([block[i * 4], block[i * 4 + 1], block[i * 4 + 2], block[i * 4 + 3]]);
    let [mut a, mut b, mut c, mut d] = *state;
    for i in 0..64 {
        let (mix, k) = match i / 16 {
            0 => ((b & c) | (!b & d), i),
            1 => ((d & b) | (!d & c), (5 * i + 1) % 16),
            2 => (b ^ c ^ d, (3 * i + 5) % 16),
            _ => (c ^ (b | !d), (7 * i) % 16),
        };
        let sum = a.wrapping_add(mix).wrapping_add(sines[i]).wrapping_add(word(k));
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(SHIFTS[i / 16][i % 4]));
    }
    for (s, v) in state.iter_mut().zip([a, b, c, d]) {
        *s = s.wrapping_add(v);
    }
}

fn md5(input: &[u8]) -> SqlResult<[u8; 16]> {
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let (whole, rest) = input.split_at(input.len() - input.len() % 64);
    for slice in whole.chunks(SLICE_BYTES) {
        check()?;
        slice.chunks_exact(64).for_each(|block| md5_block(&mut state, block));
    }
    let mut end = rest.to_vec();
    end.push(0x80);
    while end.len() % 64 != 56 {
        end.push(0);
    }
    end.extend_from_slice(&((input.len() as u64) << 3).to_le_bytes());
    end.chunks_exact(64).for_each(|block| md5_block(&mut state, block));
    let mut out = [0; 16];
    for (chunk, s) in out.chunks_exact_mut(4).zip(state) {
        chunk.copy_from_slice(&s.to_le_bytes());
    }
    Ok(out)
}

fn format_of(name: &str) -> SqlResult<bool> {
    match name {
        "hex" => Ok(true),
        "base64" => Ok(false),
        other => Err(SqlError::new(SqlState::INVALID_PARAMETER_VALUE, format!("unrecognized encoding: \"{other}\""))),
    }
}

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Writes base64 in lines of 76 characters, as PostgreSQL does.
fn base64(bytes: &[u8]) -> SqlResult<String> {
    let mut out = String::with_capacity(bytes.len() / 3 * 4 + bytes.len() / 57 + 4);
    for (i, chunk) in bytes.chunks(3).enumerate() {
        if i % SLICE_BYTES == 0 {
            check()?;
        }
        if i > 0 && i % 19 == 0 {
            out.push('\n');
        }
        let bits = chunk.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for k in 0..4 {
            let digit = BASE64[(bits >> (18 - 6 * k)) as usize & 63] as char;
            out.push(if k <= chunk.len() { digit } else { '=' });
        }
    }
    Ok(out)
}

fn encode(args: &[ValueRef<'_>]) -> SqlResult<Value> {
    let ValueRef::Blob(bytes) = args[0] else {
        return Err(SqlError::new(SqlState::DATATYPE_MISMATCH, "encode requires a bytea argument"));
    };
    Ok(Value::Text(if format_of(&text(args, 1)?)? { hex(bytes)? } else { base64(bytes)? }))
}

fn decode(args: &[ValueRef<'_>]) -> SqlResult<Value> {
    let source = text(args, 0)?;
    let is_hex = format_of(&text(args, 1)?)?;
    if is_hex {
        return crate::types::input(holdfast_types::desc::oid::BYTEA, -1, &format!("\\x{source}"));
    }
    let bad = || SqlError::new(SqlState::INVALID_PARAMETER_VALUE, "invalid base64 sequence");
    let (mut out, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for (i, c) in source.bytes().filter(|c| !c.is_ascii_whitespace() && *c != b'=').enumerate() {
        if i % SLICE_BYTES == 0 {
            check()?;
        }
        let digit = BASE64.iter().position(|d| *d == c).ok_or_else(bad)?;
        bits = bits << 6 | digit as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Ok(Value::Blob(out))
}

/// Sixteen random bytes as a version 4 UUID.
fn uuid(args: &[ValueRef<'_>]) -> SqlResult<Value> {
    let ValueRef::Blob(bytes) = args[0] else {
        return Err(SqlError::internal("gen_random_uuid received a value that is not a blob"));
    };
    let mut bytes = bytes.to_vec();
    if bytes.len() != 16 {
        return Err(SqlError::internal("gen_random_uuid received a blob that is not 16 bytes long"));
    }
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let h = hex(&bytes)?;
    Ok(Value::Text(format!("{}-{}-{}-{}-{}", &h[..8], &h[8..12], &h[12..16], &h[16..20], &h[20..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test suite of RFC 1321.
    #[test]
    fn md5_of_the_rfc() {
        assert_eq!(hex(&md5(b"").unwrap()).unwrap(), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex(&md5(b"message digest").unwrap()).unwrap(), "f96b697d7cb7938d525a2f31aaf161d0");
        let long = "1234567890".repeat(8);
        assert_eq!(hex(&md5(long.as_bytes()).unwrap()).unwrap(), "57edf4a22be3c955ac49da2e2107b67a");
    }

    #[test]
    fn a_cancel_ends_a_call() {
        let asked: holdfast_types::cancel::Asked = std::sync::Arc::new(|| true);
        let _watched = holdfast_types::cancel::watch(&asked);
        let (bytes, encoded) = (vec![0; 100], "AA".repeat(50));
        let of = |name: &str, args: &[ValueRef<'_>]| {
            let function = crate::functions::functions().find(|f| f.name == name).unwrap();
            function.call(args).map_err(|e| e.state())
        };
        let text = ValueRef::Text(encoded.as_bytes());
        for (name, args) in [
            ("hf_md5", &[text][..]),
            ("hf_encode", &[ValueRef::Blob(&bytes), ValueRef::Text(b"hex")]),
            ("hf_encode", &[ValueRef::Blob(&bytes), ValueRef::Text(b"base64")]),
            ("hf_decode", &[text, ValueRef::Text(b"base64")]),
            ("hf_repeat", &[text, ValueRef::Int(1_000_000)]),
        ] {
            assert_eq!(of(name, args), Err(SqlState::QUERY_CANCELED), "{name}");
        }
    }

    #[test]
    fn base64_goes_both_ways() {
        for (bytes, expected) in [(&b"f"[..], "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"foob", "Zm9vYg==")] {
            assert_eq!(base64(bytes).unwrap(), expected);
            let back = decode(&[ValueRef::Text(expected.as_bytes()), ValueRef::Text(b"base64")]).unwrap();
            assert_eq!(back, Value::Blob(bytes.to_vec()));
        }
    }
}
