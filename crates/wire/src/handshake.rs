//! Start-up: refuses TLS, handles cancel requests, and reads version and parameters.
//!
//! | request code | what |
//! |---|---|
//! | 80877103 | SSLRequest: answered `N` |
//! | 80877104 | GSSENCRequest: answered `N` |
//! | 80877102 | CancelRequest: pid, key |
//! | 0x48464c4b ("HFLK") | another Holdfast node: the socket is handed over with the bytes that follow this packet |
//! | 3 << 16 + minor | StartupMessage: names and values, each ended by a zero byte, then a zero byte |

use crate::backend;
use crate::client::{Client, Lost, Wake};
use crate::frontend::{Fields, Malformed};
use crate::limits::STARTUP_PACKET_BYTES_MAX;
use crate::session::Startup;
use bytes::Buf;
use std::collections::BTreeMap;

const SSL_REQUEST: u32 = 80_877_103;
const GSSENC_REQUEST: u32 = 80_877_104;
const CANCEL_REQUEST: u32 = 80_877_102;
/// "HFLK", which is not a version of PostgreSQL's protocol.
pub const LINK_REQUEST: u32 = 0x4846_4c4b;

/// The request in the first packet of a connection.
#[derive(Debug, PartialEq, Eq)]
enum Packet {
    Encryption,
    Cancel { pid: i32, key: i32 },
    Link,
    Start { startup: Startup, minor: u16, unknown_options: Vec<String> },
}

/// The outcome of a start-up exchange.
pub(crate) enum Hello {
    Start(Startup),
    Cancel {
        pid: i32,
        key: i32,
    },
    /// Another node; the bytes that it has sent after the packet are still in the client's input.
    Link,
    /// The client disconnected.
    Gone,
    /// The server stops before the client has said what it wants.
    Stopping,
    Malformed(Malformed),
}

/// Reads packets until one starts a session or asks for a cancel. The caller limits the time.
pub(crate) async fn hello(client: &mut Client) -> Hello {
    match exchange(client).await {
        Ok(hello) => hello,
        Err(Lost) => Hello::Gone,
    }
}

async fn exchange(client: &mut Client) -> Result<Hello, Lost> {
    loop {
        match packet(client.raw_input()) {
            Err(malformed) => return Ok(Hello::Malformed(malformed)),
            Ok(None) => match client.fill(None).await? {
                Wake::Input => {}
                Wake::Stop | Wake::TimedOut | Wake::Terminate => return Ok(Hello::Stopping),
            },
            Ok(Some((packet, bytes))) => {
                client.raw_input().advance(bytes);
                match packet {
                    Packet::Encryption => client.send(b"N").await?,
                    Packet::Cancel { pid, key } => return Ok(Hello::Cancel { pid, key }),
                    Packet::Link => return Ok(Hello::Link),
                    Packet::Start { startup, minor, unknown_options } => {
                        if minor > 0 || !unknown_options.is_empty() {
                            backend::negotiate_protocol_version(client.reply().out(), unknown_options);
                        }
                        return Ok(Hello::Start(startup));
                    }
                }
            }
        }
    }
}

/// The packet at the start of `input` and its length, once all of it has arrived.
fn packet(input: &[u8]) -> Result<Option<(Packet, usize)>, Malformed> {
    let Some(length) = input.first_chunk::<4>() else { return Ok(None) };
    let bytes = u32::from_be_bytes(*length) as usize;
    if !(8..=STARTUP_PACKET_BYTES_MAX).contains(&bytes) {
        return Err(Malformed("invalid length of startup packet".into()));
    }
    let Some(body) = input.get(4..bytes) else { return Ok(None) };
    let mut fields = Fields::new(body);
    let packet = match fields.u32()? {
        SSL_REQUEST | GSSENC_REQUEST => Packet::Encryption,
        LINK_REQUEST => Packet::Link,
        CANCEL_REQUEST => Packet::Cancel { pid: fields.i32()?, key: fields.i32()? },
        version if version >> 16 == 3 => start(fields, version as u16)?,
        version => {
            return Err(Malformed(format!(
                "unsupported frontend protocol {}.{}: server supports 3.0",
                version >> 16,
                version & 0xffff
            )));
        }
    };
    Ok(Some((packet, bytes)))
}

fn start(mut fields: Fields<'_>, minor: u16) -> Result<Packet, Malformed> {
    let mut parameters = BTreeMap::new();
    let mut unknown_options = Vec::new();
    loop {
        let name = fields.text()?;
        if name.is_empty() {
            break;
        }
        let value = fields.text()?;
        if name.starts_with("_pq_.") {
            unknown_options.push(name.to_owned());
        } else {
            parameters.insert(name.to_owned(), value.to_owned());
        }
    }
    fields.end()?;
    let user = parameters.remove("user").filter(|u| !u.is_empty());
    let user = user.ok_or_else(|| Malformed("no PostgreSQL user name specified in startup packet".into()))?;
    let database = parameters.remove("database").filter(|d| !d.is_empty()).unwrap_or_else(|| user.clone());
    Ok(Packet::Start { startup: Startup { user, database, parameters, ..Startup::default() }, minor, unknown_options })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(body: &[u8]) -> Vec<u8> {
        let mut all = (body.len() as u32 + 4).to_be_bytes().to_vec();
        all.extend_from_slice(body);
        all
    }

    #[test]
    fn start_up_packets() {
        let whole = framed(b"\0\x03\0\0user\0ann\0application_name\0x\0\0");
        let (Packet::Start { startup, minor, .. }, bytes) = packet(&whole).unwrap().unwrap() else { panic!() };
        assert_eq!((startup.user.as_str(), startup.database.as_str(), minor, bytes), ("ann", "ann", 0, whole.len()));
        assert_eq!(startup.parameters["application_name"], "x");
        for n in 0..whole.len() {
            assert_eq!(packet(&whole[..n]), Ok(None), "cut at {n}");
        }
        let newer = framed(b"\0\x03\0\x02user\0ann\0_pq_.x\0y\0\0");
        let (Packet::Start { minor, unknown_options, .. }, _) = packet(&newer).unwrap().unwrap() else { panic!() };
        assert_eq!((minor, unknown_options), (2, vec!["_pq_.x".to_owned()]));
    }

    #[test]
    fn malformed_ones_are_refused() {
        assert!(packet(&[0, 0, 0x27, 0x11, 0, 3, 0, 0]).is_err(), "10,001 bytes");
        assert!(packet(&[0xff; 8]).is_err());
        assert!(packet(&framed(b"\0\x02\0\0")).is_err(), "protocol 2");
        assert!(packet(&framed(b"\0\x03\0\0\0")).is_err(), "no user");
        assert!(packet(&framed(b"\0\x03\0\0user\0ann\0")).is_err(), "no end");
        assert!(packet(&framed(b"\x04\xd2\x16\x2e\0\0\0\x01")).is_err(), "cancel without a key");
        assert_eq!(packet(&framed(b"\x04\xd2\x16\x2f")).unwrap().unwrap().0, Packet::Encryption);
        assert_eq!(packet(&framed(b"HFLK")).unwrap().unwrap().0, Packet::Link);
    }
}
