//! A proxy in front of an object store that breaks requests as a test says: errors, no answer, half an answer, lists that lag,
//! puts that are confirmed and not done.
//!
//! One request for each connection: the client connects again for the next one.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// What is done with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// 500.
    Error,
    /// No answer, until the client gives up.
    Hang,
    /// The head of the answer and half of its body.
    ShortRead,
    /// A put is confirmed, and nothing is stored.
    Lie,
    /// A put is confirmed, and half of the object is stored.
    Half,
    /// A list is the one that was given first.
    OldList,
}

/// A request: its method, and its path with the query.
pub struct Request<'a> {
    pub method: &'a str,
    pub target: &'a str,
}

impl Request<'_> {
    /// The object that it is about lies in this folder.
    pub fn is_in(&self, folder: &str) -> bool {
        let path = self.target.split('?').next().unwrap_or_default().replace("%2F", "/");
        path.contains(&format!("/{folder}/"))
    }

    /// It lists objects.
    pub fn lists(&self) -> bool {
        let asks = ["list-type=", "comp=list", "/o?"];
        self.method == "GET" && asks.iter().any(|ask| self.target.contains(ask)) && !self.target.contains("alt=media")
    }
}

type Decide = Box<dyn FnMut(&Request<'_>) -> Option<Fault> + Send>;

/// See the module.
pub struct Proxy {
    pub port: u16,
    state: Arc<State>,
}

struct State {
    backend: u16,
    translates: bool,
    decide: Mutex<Decide>,
    /// How often each fault was done.
    done: Mutex<HashMap<String, u32>>,
    lists: Mutex<HashMap<String, Vec<u8>>>,
}

impl Proxy {
    pub fn to(backend: u16) -> Proxy {
        Proxy::with(backend, false)
    }

    /// In front of a server that lacks the PUT of Google's XML interface: those requests reach it as the JSON interface's.
    pub fn to_json_uploads(backend: u16) -> Proxy {
        Proxy::with(backend, true)
    }

    fn with(backend: u16, translates: bool) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let none: Decide = Box::new(|_| None);
        let state = Arc::new(State {
            backend,
            translates,
            decide: Mutex::new(none),
            done: Mutex::default(),
            lists: Mutex::default(),
        });
        let shared = state.clone();
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let state = shared.clone();
                // A client that disconnects has given up.
                std::thread::spawn(move || _ = state.serve(client));
            }
        });
        Proxy { port, state }
    }

    /// From now on.
    pub fn breaks(&self, decide: impl FnMut(&Request<'_>) -> Option<Fault> + Send + 'static) {
        *self.state.decide.lock() = Box::new(decide);
        self.state.done.lock().clear();
    }

    pub fn heals(&self) {
        self.breaks(|_| None);
    }

    /// How often this fault was done since the last change.
    pub fn done(&self, fault: Fault) -> u32 {
        self.state.done.lock().get(&format!("{fault:?}")).copied().unwrap_or_default()
    }
}

impl State {
    fn serve(&self, mut client: TcpStream) -> std::io::Result<()> {
        let Some((head, mut body)) = read_request(&mut client)? else { return Ok(()) };
        let line = head.lines().next().unwrap_or_default().to_owned();
        let mut words = line.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let request = Request { method, target };
        let fault = (self.decide.lock())(&request);
        if let Some(fault) = fault {
            *self.done.lock().entry(format!("{fault:?}")).or_default() += 1;
        }
        match fault {
            Some(Fault::Error) => return answer(&mut client, "500 Internal Server Error"),
            Some(Fault::Lie) => {
                return answer(&mut client, if target.contains("uploadType") { "200 OK" } else { "201 Created" });
            }
            Some(Fault::Hang) => {
                // Until the client disconnects.
                let _ = client.read(&mut [0; 1]);
                return Ok(());
            }
            Some(Fault::Half) => body.truncate(body.len() / 2),
            _ => {}
        }
        let upload = if self.translates { json_upload(&request, &head) } else { None };
        let mut response = match upload {
            Some(upload) => put_answer(self.forward(&upload, &body)?),
            None => self.forward(&head, &body)?,
        };
        if request.lists() {
            let mut lists = self.lists.lock();
            let first = lists.entry(target.to_owned()).or_insert_with(|| response.clone());
            if fault == Some(Fault::OldList) {
                response = first.clone();
            }
        }
        if fault == Some(Fault::ShortRead) {
            let end = response.windows(4).position(|four| four == b"\r\n\r\n").map_or(0, |at| at + 4);
            response.truncate(end + (response.len() - end) / 2);
        }
        client.write_all(&response)
    }

    /// The whole answer of the store.
    fn forward(&self, head: &str, body: &[u8]) -> std::io::Result<Vec<u8>> {
        let mut server = TcpStream::connect(("127.0.0.1", self.backend))?;
        let is_kept = |line: &&str| {
            let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
            !["connection", "content-length"].contains(&name.as_str()) && !line.is_empty()
        };
        let lines: Vec<&str> = head.lines().filter(is_kept).collect();
        let head = format!("{}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", lines.join("\r\n"), body.len());
        server.write_all(head.as_bytes())?;
        server.write_all(body)?;
        let mut response = Vec::new();
        server.read_to_end(&mut response)?;
        Ok(response)
    }
}

/// The head of the JSON interface's upload for a PUT of the XML interface; `None` for any other request.
fn json_upload(request: &Request<'_>, head: &str) -> Option<String> {
    let (bucket, name) = request.target.strip_prefix('/').filter(|_| request.method == "PUT")?.split_once('/')?;
    let has_none = |line: &str| line.to_ascii_lowercase().replace(' ', "") == "x-goog-if-generation-match:0";
    let condition = if head.lines().any(has_none) { "&ifGenerationMatch=0" } else { "" };
    let line = format!("POST /upload/storage/v1/b/{bucket}/o?uploadType=media&name={name}{condition} HTTP/1.1");
    Some(std::iter::once(line.as_str()).chain(head.lines().skip(1)).collect::<Vec<_>>().join("\r\n"))
}

/// The XML interface's answer to a PUT, from the JSON interface's. One that is not a success has the same status.
fn put_answer(response: Vec<u8>) -> Vec<u8> {
    let text = String::from_utf8_lossy(&response);
    let Some((_, body)) = text.split_once("\r\n\r\n").filter(|_| text.split(' ').nth(1) == Some("200")) else {
        return response;
    };
    let Ok(object) = serde_json::from_str::<serde_json::Value>(body.trim()) else { return response };
    let (etag, generation) = (object["etag"].as_str().unwrap_or("0"), object["generation"].as_str().unwrap_or("1"));
    let etag = etag.trim_matches('"');
    let head = format!("HTTP/1.1 200 OK\r\nETag: \"{etag}\"\r\nx-goog-generation: {generation}\r\n");
    format!("{head}Content-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}

/// Head and body; `None`: the client has disconnected.
fn read_request(client: &mut TcpStream) -> std::io::Result<Option<(String, Vec<u8>)>> {
    client.set_read_timeout(Some(Duration::from_secs(120)))?;
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        match client.read(&mut buffer)? {
            0 => return Ok(None),
            n => bytes.extend_from_slice(&buffer[..n]),
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    let mut body = bytes.split_off(end);
    while body.len() < length.unwrap_or(0) {
        match client.read(&mut buffer)? {
            0 => return Ok(None),
            n => body.extend_from_slice(&buffer[..n]),
        }
    }
    Ok(Some((head, body)))
}

fn answer(client: &mut TcpStream, status: &str) -> std::io::Result<()> {
    let etag = "ETag: \"0\"\r\nx-amz-version-id: 0\r\nx-goog-generation: 1";
    let length = "Content-Length: 0\r\nConnection: close\r\n\r\n";
    client.write_all(format!("HTTP/1.1 {status}\r\n{etag}\r\n{length}").as_bytes())
}
