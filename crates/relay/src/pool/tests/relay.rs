//! A relay that only completes handshakes, on its own threads.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ekiden_proto::key::PrivateKey;
use ekiden_proto::wire::WireError;
use ekiden_proto::wire::section::{Hello, NoiseResponder, TransportKeys, Versions};
use ekiden_testing::TEST_TIMEOUT;

type Connections = Arc<Mutex<Vec<(TcpStream, TransportKeys)>>>;

/// A relay that completes handshakes until it is dropped, which closes all its connections.
pub struct TestRelay {
    pub address: SocketAddr,
    pub key: Arc<PrivateKey>,
    connections: Connections,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl TestRelay {
    pub fn start() -> Self {
        // Each relay has an address of its own, so no other test can use its address and port after its end.
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let process = 1 + u8::try_from(std::process::id() % 250).expect("less than 250");
        Self::at((Ipv4Addr::new(127, process, high, low), 0).into(), Arc::new(PrivateKey::generate()))
    }

    /// Starts a relay at `address`, which an earlier relay may have used.
    pub fn at(address: SocketAddr, key: Arc<PrivateKey>) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, ended) = (Connections::default(), Arc::new(AtomicBool::new(false)));
        let (list, end, own) = (Arc::clone(&connections), Arc::clone(&ended), Arc::clone(&key));
        let thread = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if end.load(Ordering::Acquire) {
                    break;
                }
                list.lock().unwrap().extend(shake_hands(stream, &own));
            }
        });
        Self { address, key, connections, ended, thread: Some(thread) }
    }

    /// The number of connections with a completed handshake, open or not.
    pub fn handshakes(&self) -> usize {
        self.connections.lock().unwrap().len()
    }

    /// The number of connections that the other side has not closed.
    pub fn open_count(&self) -> usize {
        let list = self.connections.lock().unwrap();
        list.iter().filter(|(stream, _)| !matches!(stream.peek(&mut [0]), Ok(0))).count()
    }

    /// Closes all connections without an END.
    pub fn close_all(&self) {
        self.connections.lock().unwrap().clear();
    }

    /// The plaintext of the first record on the connection from `client`.
    pub fn receive(&self, client: SocketAddr, length: usize) -> Vec<u8> {
        let mut list = self.connections.lock().unwrap();
        let (stream, transport) = list
            .iter_mut()
            .find(|(stream, _)| stream.peer_addr().unwrap() == client)
            .expect("a connection from the client");
        stream.set_nonblocking(false).unwrap();
        let mut record = vec![0; length];
        stream.read_exact(&mut record).unwrap();
        let plain = transport.open.open(&mut record).unwrap();
        record[plain].to_vec()
    }
}

impl Drop for TestRelay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        // Ends the wait of the thread in accept(2).
        drop(TcpStream::connect(self.address));
        self.thread.take().unwrap().join().unwrap();
    }
}

fn shake_hands(mut stream: TcpStream, own: &PrivateKey) -> Option<(TcpStream, TransportKeys)> {
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let mut bytes = Vec::new();
    let hello = loop {
        let mut more = [0; 256];
        let count = stream.read(&mut more).ok().filter(|count| *count > 0)?;
        bytes.extend(&more[..count]);
        match Hello::parse(&bytes) {
            Ok((hello, _)) => break hello,
            Err(WireError::Incomplete) => {}
            Err(_) => return None,
        }
    };
    match NoiseResponder::read(own, &hello, Versions::SUPPORTED) {
        Ok((responder, _)) => {
            let (transport, answer) = responder.accept(None);
            stream.write_all(&answer).ok()?;
            stream.set_nonblocking(true).unwrap();
            Some((stream, transport))
        }
        Err(why) => {
            stream.write_all(&ekiden_proto::wire::section::noise::write_refusal(Versions::SUPPORTED, why)).ok()?;
            None
        }
    }
}
