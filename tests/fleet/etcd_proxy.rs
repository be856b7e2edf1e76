//! A proxy between a relay and its etcd, controlled by the test.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::harness::*;

/// A TCP proxy for a port of the loopback interface.
pub struct EtcdProxy {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Delay of each read.
    delay: Duration,
    /// After a response of etcd with this text in a value, requests are held back.
    trigger: Option<&'static str>,
    held: Mutex<HoldState>,
    changed: Condvar,
}

#[derive(Default)]
struct HoldState {
    /// No connection is forwarded.
    cut: bool,
    /// The trigger was in a response.
    triggered: bool,
    /// Requests are no longer held back.
    released: bool,
    streams: Vec<TcpStream>,
}

impl EtcdProxy {
    pub fn with_delay(port: u16, delay: Duration) -> Self {
        Self::with_state(port, State { delay, ..State::default() })
    }

    /// Starts a proxy that holds back requests after a response of etcd with this text in a value.
    pub fn with_hold_after(port: u16, trigger: &'static str) -> Self {
        Self::with_state(port, State { trigger: Some(trigger), ..State::default() })
    }

    fn with_state(port: u16, state: State) -> Self {
        let ((listener, address), state) = (server(), Arc::new(state));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || run(&listener, port, &shared));
        Self { port: address.port(), state }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Waits until a response had the trigger.
    pub fn wait_held(&self) {
        eventually("a response with the trigger", || self.state.held.lock().unwrap().triggered.then_some(()));
    }

    /// Forwards the requests that are held back, and all later requests.
    pub fn release(&self) {
        self.state.held.lock().unwrap().released = true;
        self.state.changed.notify_all();
    }

    /// Closes all connections, and forwards no new connections.
    pub fn cut(&self) {
        let mut held = self.state.held.lock().unwrap();
        held.cut = true;
        held.streams.drain(..).for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }

    /// Forwards new connections again.
    pub fn resume(&self) {
        self.state.held.lock().unwrap().cut = false;
    }
}

fn run(listener: &TcpListener, port: u16, state: &Arc<State>) {
    for stream in listener.incoming().map_while(Result::ok) {
        let Ok(upstream) = TcpStream::connect(("127.0.0.1", port)) else { continue };
        let mut held = state.held.lock().unwrap();
        if held.cut {
            continue;
        }
        held.streams.extend([stream.try_clone().unwrap(), upstream.try_clone().unwrap()]);
        for (from, to, is_response) in [(&stream, &upstream, false), (&upstream, &stream, true)] {
            let (from, to, state) = (from.try_clone().unwrap(), to.try_clone().unwrap(), Arc::clone(state));
            std::thread::spawn(move || forward(from, to, is_response, &state));
        }
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, is_response: bool, state: &State) {
    let (mut bytes, mut received) = (vec![0; 65_536], Vec::new());
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        // This delay is the condition under test; it synchronises nothing.
        std::thread::park_timeout(state.delay);
        if is_response {
            received.extend_from_slice(&bytes[..count]);
            state.check_trigger(&received);
        } else {
            let held = state.held.lock().unwrap();
            drop(state.changed.wait_while(held, |held| held.triggered && !held.released).unwrap());
        }
        if to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

impl State {
    fn check_trigger(&self, received: &[u8]) {
        let seen =
            |trigger: &str| values(received).iter().any(|value| String::from_utf8_lossy(value).contains(trigger));
        if self.trigger.is_some_and(seen) {
            self.held.lock().unwrap().triggered = true;
        }
    }
}

/// Returns the values of keys in responses of etcd, which are base64 in JSON.
fn values(received: &[u8]) -> Vec<Vec<u8>> {
    let text = String::from_utf8_lossy(received);
    let encoded = text.split(r#""value":""#).skip(1).filter_map(|rest| Some(rest.split_once('"')?.0));
    encoded.filter_map(|value| STANDARD.decode(value).ok()).collect()
}
