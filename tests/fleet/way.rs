//! A proxy between a relay and its etcd, controlled by the test.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::harness::*;

/// Forwards bytes to a port and back.
pub struct Way {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Delay of each read.
    delay: Duration,
    /// After a response of etcd with these words in a value, requests are held back.
    words: Option<&'static str>,
    held: Mutex<Held>,
    changed: Condvar,
    carried: AtomicU64,
}

#[derive(Default)]
struct Held {
    /// No connection is forwarded.
    cut: bool,
    /// The words were in a response.
    waits: bool,
    /// Requests are no longer held back.
    open: bool,
    streams: Vec<TcpStream>,
}

impl Way {
    pub fn slow(port: u16, delay: Duration) -> Self {
        Self::of(port, State { delay, ..State::default() })
    }

    /// A proxy that holds back requests after a response of etcd with these words in a value.
    pub fn held_after(port: u16, words: &'static str) -> Self {
        Self::of(port, State { words: Some(words), ..State::default() })
    }

    fn of(port: u16, state: State) -> Self {
        let ((listener, address), state) = (server(), Arc::new(state));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || run(&listener, port, &shared));
        Self { port: address.port(), state }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn carried(&self) -> u64 {
        self.state.carried.load(Ordering::Relaxed)
    }

    /// Waits until a response had the words.
    pub fn assert_held(&self) {
        eventually("the words", || self.state.held.lock().unwrap().waits.then_some(()));
    }

    /// Forwards all bytes from now on.
    pub fn open(&self) {
        self.state.held.lock().unwrap().open = true;
        self.state.changed.notify_all();
    }

    /// Closes all connections, and forwards no new ones.
    pub fn cut(&self) {
        let mut held = self.state.held.lock().unwrap();
        held.cut = true;
        held.streams.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    /// Forwards new connections again.
    pub fn mend(&self) {
        self.state.held.lock().unwrap().cut = false;
    }
}

fn run(listener: &TcpListener, port: u16, state: &Arc<State>) {
    for stream in listener.incoming().map_while(Result::ok) {
        let Ok(onward) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        let mut held = state.held.lock().unwrap();
        if held.cut {
            continue;
        }
        held.streams.extend([stream.try_clone().unwrap(), onward.try_clone().unwrap()]);
        for (from, to, answers) in [(&stream, &onward, false), (&onward, &stream, true)] {
            let (from, to, state) = (from.try_clone().unwrap(), to.try_clone().unwrap(), Arc::clone(state));
            std::thread::spawn(move || carry(from, to, answers, &state));
        }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, answers: bool, state: &State) {
    let (mut bytes, mut heard) = (vec![0; 65_536], Vec::new());
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        // A deliberate delay, which is the subject of the test.
        std::thread::park_timeout(state.delay);
        if answers {
            heard.extend_from_slice(&bytes[..count]);
            state.listen(&heard);
        } else {
            let held = state.held.lock().unwrap();
            drop(state.changed.wait_while(held, |held| held.waits && !held.open).unwrap());
        }
        state.carried.fetch_add(count as u64, Ordering::Relaxed);
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

impl State {
    fn listen(&self, heard: &[u8]) {
        let said = |words: &str| values(heard).iter().any(|value| String::from_utf8_lossy(value).contains(words));
        if self.words.is_some_and(said) {
            self.held.lock().unwrap().waits = true;
        }
    }
}

/// The values of keys in responses of etcd, which are base64 in JSON.
fn values(heard: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(heard);
    let encoded = text.split(r#""value":""#).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0));
    encoded.filter_map(|value| STANDARD.decode(value).ok()).collect()
}
