//! Helpers that the tests of several modules share.

use std::time::{Duration, Instant};

use ekiden_proto::key::PrivateKey;
use ekiden_proto::wire::section::{Hello, NoiseInitiator, NoiseResponder, TransportKeys, Versions};
use tokio::net::{TcpListener, TcpStream};

use crate::config::Config;
use crate::config::read::{Flags, load};

/// Timeout of each wait in these tests.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Repeats `look` until it returns a value.
pub fn eventually<T>(label: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TEST_TIMEOUT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "timeout while waiting for {label}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// Waits until `condition` is true.
pub fn wait_until(label: &str, condition: impl Fn() -> bool) {
    eventually(label, || condition().then_some(()));
}

/// Returns both ends of a connection over loopback, the connecting end first.
pub async fn tcp_pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

/// Like [`tcp_pair`], with blocking sockets whose reads have a timeout.
pub fn blocking_tcp_pair() -> (std::net::TcpStream, std::net::TcpStream) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    for end in [&near, &far] {
        end.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    }
    (near, far)
}

/// Returns the keys of both sides after a handshake, those of the dialler first.
pub fn section_keys() -> (TransportKeys, TransportKeys) {
    let (near, far) = (PrivateKey::generate(), PrivateKey::generate());
    let (initiator, hello) = NoiseInitiator::begin(&near, &far.public_key(), Versions::SUPPORTED);
    let (responder, _) = NoiseResponder::read(&far, &Hello::parse(&hello).unwrap().0, Versions::SUPPORTED).unwrap();
    let (far_keys, answer) = responder.accept(None);
    (initiator.finish(&Hello::parse(&answer).unwrap().0).unwrap(), far_keys)
}

/// Returns a configuration with one listener.
pub fn config_listening_at(url: &str) -> Config {
    load(None, &Flags { listen: vec![url.to_owned()], ..Flags::default() }).unwrap()
}
