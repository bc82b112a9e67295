//! A proxy between a subscriber and its publisher that knows where the messages of the protocol begin, and ends everything in front
//! of a chosen one.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;

/// A kind of message: `<` or `>` for those of the subscriber and of the publisher, and its letter; of a CopyData the letters of what is
/// in it as well. A subscriber's first message on a connection has no letter.
pub type Kind = String;

/// The place of a message: the how manieth of its kind, from 1 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place(pub Kind, pub u64);

#[derive(Default)]
struct State {
    target: String,
    seen: HashMap<Kind, u64>,
    aim: Option<Place>,
    hit: Option<Sender<()>>,
    /// The message was reached: nothing passes until [`Proxy::heal`].
    is_cut: bool,
    open: Vec<TcpStream>,
}

/// See the module. Its threads end with the test's process.
#[derive(Clone)]
pub struct Proxy {
    pub port: u16,
    state: Arc<Mutex<State>>,
}

impl Proxy {
    pub fn to(target: &str) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(Mutex::new(State { target: target.to_owned(), ..State::default() }));
        let proxy = Proxy { port, state };
        let accepting = proxy.clone();
        thread::spawn(move || listener.incoming().flatten().for_each(|near| accepting.connect(near)));
        proxy
    }

    /// Counts from zero. `aim`: in front of that message everything stops, and the receiver hears of it.
    pub fn begin(&self, aim: Option<Place>) -> Receiver<()> {
        let (sender, receiver) = channel();
        let mut state = self.state.lock().unwrap();
        state.seen.clear();
        (state.aim, state.hit) = (aim, Some(sender));
        receiver
    }

    /// How many messages of each kind have passed since [`Proxy::begin`].
    pub fn seen(&self) -> HashMap<Kind, u64> {
        self.state.lock().unwrap().seen.clone()
    }

    /// Ends all connections; the next ones pass.
    pub fn heal(&self) {
        let mut state = self.state.lock().unwrap();
        state.open.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
        (state.is_cut, state.aim) = (false, None);
    }

    fn connect(&self, near: TcpStream) {
        let mut state = self.state.lock().unwrap();
        // What is dropped is closed.
        if state.is_cut {
            return;
        }
        let Ok(far) = TcpStream::connect(&state.target) else { return };
        for (from, to, side) in [(&near, &far, '<'), (&far, &near, '>')] {
            let (from, to, proxy) = (from.try_clone().unwrap(), to.try_clone().unwrap(), self.clone());
            thread::spawn(move || {
                // An end of either is an end of both.
                _ = proxy.pass(&from, &to, side);
                _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
            });
        }
        state.open.extend([near, far]);
    }

    fn pass(&self, mut from: &TcpStream, mut to: &TcpStream, side: char) -> io::Result<()> {
        let mut is_first = side == '<';
        loop {
            let mut message = vec![0; if is_first { 4 } else { 5 }];
            from.read_exact(&mut message)?;
            let length = message[message.len() - 4..].try_into().map_or(0, u32::from_be_bytes) as usize;
            let head = message.len();
            message.resize(head + length - 4, 0);
            from.read_exact(&mut message[head..])?;
            if !self.counts(&kind(&message, side, is_first)) {
                // Stays open: what ends it is the cut, or a process that was killed.
                return self.wait();
            }
            to.write_all(&message)?;
            is_first = false;
        }
    }

    /// Whether the message passes.
    fn counts(&self, kind: &str) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.is_cut {
            return false;
        }
        let count = state.seen.entry(kind.to_owned()).or_default();
        *count += 1;
        let place = Place(kind.to_owned(), *count);
        if state.aim != Some(place) {
            return true;
        }
        state.is_cut = true;
        // The test may have given up.
        _ = state.hit.take().map(|hit| hit.send(()));
        false
    }

    /// Until the cut is healed, which ends the connection.
    fn wait(&self) -> io::Result<()> {
        while self.state.lock().unwrap().is_cut {
            thread::sleep(std::time::Duration::from_millis(2));
        }
        Ok(())
    }
}

fn kind(message: &[u8], side: char, is_first: bool) -> Kind {
    if is_first {
        return format!("{side}start");
    }
    let letter = |at: usize| message.get(at).map_or(' ', |&byte| char::from(byte));
    match (letter(0), letter(5)) {
        // A data message of the feed: its own head has 25 bytes.
        ('d', 'w') if side == '>' => format!("{side}dw{}", letter(30)),
        ('d', of @ ('k' | 'r')) => format!("{side}d{of}"),
        (of, _) => format!("{side}{of}"),
    }
}
