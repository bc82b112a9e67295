//! Start-up: begins TLS, handles cancel requests, and reads version and parameters.
//!
//! | request code | what |
//! |---|---|
//! | 80877103 | SSLRequest: answered `S` and followed by TLS, or `N` where there is none |
//! | 80877104 | GSSENCRequest: answered `N` |
//! | 80877102 | CancelRequest: pid, key |
//! | 0x48464c4b ("HFLK") | another Holdfast node: the socket is handed over with the bytes that follow this packet |
//! | 3 << 16 + minor | StartupMessage: names and values, each ended by a zero byte, then a zero byte |
//!
//! A connection whose first byte is 0x16, a record of TLS, begins with TLS (`sslnegotiation=direct`) and must name the protocol
//! `postgresql` by ALPN, so that no other protocol's client can be led here. Each request for encryption is answered once.
//! Bytes that follow an SSLRequest before its answer may come from an attacker between the two ends, and end the connection
//! (CVE-2021-23214).

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
    Tls,
    Gss,
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

/// The first byte of a record of TLS's handshake. No start-up packet is so long that it begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// What was asked for already.
#[derive(Default)]
struct Asked {
    tls: bool,
    gss: bool,
}

async fn exchange(client: &mut Client) -> Result<Hello, Lost> {
    let mut asked = Asked::default();
    loop {
        if client.raw_input().first() == Some(&TLS_HANDSHAKE) && !asked.tls && !asked.gss {
            let Some(config) = client.tls_offer() else {
                tracing::info!("a client began with TLS, and this server has none for it (tls_certificate)");
                return Ok(Hello::Gone);
            };
            asked.tls = true;
            client.start_tls(&config, true).await?;
        }
        match packet(client.raw_input()) {
            Err(malformed) => return Ok(Hello::Malformed(malformed)),
            Ok(None) => match client.fill(None).await? {
                Wake::Input => {}
                Wake::Stop | Wake::TimedOut | Wake::Terminate => return Ok(Hello::Stopping),
            },
            Ok(Some((packet, bytes))) => {
                client.raw_input().advance(bytes);
                match packet {
                    Packet::Tls if !asked.tls => {
                        asked.tls = true;
                        if let Some(refused) = answer_tls(client).await? {
                            return Ok(refused);
                        }
                    }
                    Packet::Gss if !asked.gss => {
                        asked.gss = true;
                        client.send(b"N").await?;
                    }
                    Packet::Tls => return Ok(Hello::Malformed(unsupported(SSL_REQUEST))),
                    Packet::Gss => return Ok(Hello::Malformed(unsupported(GSSENC_REQUEST))),
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

/// Reads the first packet of a connection and drops it: its length, once all of it has arrived. For the fuzzer.
pub fn check_packet(input: &[u8]) -> Result<Option<usize>, Malformed> {
    Ok(packet(input)?.map(|(_, bytes)| bytes))
}

/// Answers an SSLRequest, and runs the handshake if the answer is yes. Returns the outcome where that is the end.
async fn answer_tls(client: &mut Client) -> Result<Option<Hello>, Lost> {
    let Some(config) = client.tls_offer() else {
        client.send(b"N").await?;
        return Ok(None);
    };
    if !client.raw_input().is_empty() {
        return Ok(Some(Hello::Malformed(Malformed("received unencrypted data after SSL request".into()))));
    }
    client.send(b"S").await?;
    client.start_tls(&config, false).await?;
    Ok(None)
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
        SSL_REQUEST => Packet::Tls,
        GSSENC_REQUEST => Packet::Gss,
        LINK_REQUEST => Packet::Link,
        CANCEL_REQUEST => Packet::Cancel { pid: fields.i32()?, key: fields.i32()? },
        version if version >> 16 == 3 => start(fields, version as u16)?,
        version => return Err(unsupported(version)),
    };
    Ok(Some((packet, bytes)))
}

fn unsupported(version: u32) -> Malformed {
    let (major, minor) = (version >> 16, version & 0xffff);
    Malformed(format!("unsupported frontend protocol {major}.{minor}: server supports 3.0"))
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
        assert_eq!(packet(&framed(b"\x04\xd2\x16\x2f")).unwrap().unwrap().0, Packet::Tls);
        assert_eq!(packet(&framed(b"HFLK")).unwrap().unwrap().0, Packet::Link);
    }
}
