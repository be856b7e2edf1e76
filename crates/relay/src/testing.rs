//! Helpers that the tests of several modules share.

use ekiden_proto::key::PrivateKey;
use ekiden_proto::wire::section::{Hello, NoiseInitiator, NoiseResponder, TransportKeys, Versions};
use ekiden_testing::eventually;
use tokio::net::{TcpListener, TcpStream};

use crate::config::Config;
use crate::config::read::{Flags, load};

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
