//! A man in the middle between two relays, which records all frames and changes selected ones.
//!
//! A section consists of frames: a hello each way (ten bytes, whose last two are the length of the rest), then records
//! (two bytes of length, then the record). When a session is not encrypted, raw bytes follow the first record.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::harness::*;

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    Up,
    Down,
}

/// A message from one relay to the other.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Number of the connection; the first is 0.
    pub connection: usize,
    pub way: Way,
    /// 0 for the hello, 1 for the first record, ...
    pub number: usize,
    pub bytes: Vec<u8>,
}

/// The fate of a frame.
pub enum Fate {
    /// These bytes are sent instead.
    Said(Vec<u8>),
    /// These bytes are sent instead, and FIN after them.
    Last(Vec<u8>),
    /// Both sides get a reset.
    Reset,
}

/// Number of frames of a direction; raw bytes follow.
#[derive(Clone, Copy)]
pub enum Framed {
    /// Hello and first record.
    Plain,
    /// All.
    Encrypted,
}

type Touch = Arc<Mutex<dyn FnMut(Frame) -> Fate + Send>>;

/// Listens for a relay that dials the relay at `to`. Returns the address to dial instead.
pub fn between(to: SocketAddr, framed: Framed, touch: impl FnMut(Frame) -> Fate + Send + 'static) -> SocketAddr {
    let touch: Touch = Arc::new(Mutex::new(touch));
    let connections = Arc::new(AtomicUsize::new(0));
    serve(move |down| {
        let connection = connections.fetch_add(1, Ordering::Relaxed);
        // If the relay is down, the dialling relay gets a reset.
        let Ok(up) = TcpStream::connect(to) else { return reset(down) };
        let broken = Arc::new(AtomicBool::new(false));
        let make = |from: &TcpStream, to: &TcpStream, way| Direction {
            from: from.try_clone().unwrap(),
            to: to.try_clone().unwrap(),
            broken: Arc::clone(&broken),
            touch: Arc::clone(&touch),
            framed,
            way,
            connection,
        };
        let (mut upward, mut downward) = (make(&down, &up, Way::Up), make(&up, &down, Way::Down));
        drop((up, down));
        let thread = std::thread::spawn(move || upward.carry());
        downward.carry();
        let _ = thread.join();
    })
}

/// One direction of one connection.
struct Direction {
    from: TcpStream,
    to: TcpStream,
    broken: Arc<AtomicBool>,
    touch: Touch,
    framed: Framed,
    way: Way,
    connection: usize,
}

impl Direction {
    fn carry(&mut self) {
        for number in 0.. {
            let Ok(bytes) = self.read(number) else { return self.tear() };
            if self.broken.load(Ordering::Relaxed) {
                return;
            }
            if bytes.is_empty() {
                let _ = self.to.shutdown(Shutdown::Write);
                return;
            }
            let frame = Frame { connection: self.connection, way: self.way, number, bytes };
            let fate = (self.touch.lock().unwrap())(frame);
            match fate {
                Fate::Said(bytes) if self.to.write_all(&bytes).is_ok() => {}
                Fate::Last(bytes) => {
                    let _ = self.to.write_all(&bytes);
                    let _ = self.to.shutdown(Shutdown::Write);
                    return;
                }
                Fate::Said(_) | Fate::Reset => return self.tear(),
            }
        }
    }

    /// The next frame; fewer bytes than it should have, or none, at the end of the stream.
    fn read(&mut self, number: usize) -> std::io::Result<Vec<u8>> {
        if number > 1 && matches!(self.framed, Framed::Plain) {
            let mut bytes = vec![0; 65_536];
            let count = self.from.read(&mut bytes)?;
            bytes.truncate(count);
            return Ok(bytes);
        }
        let header = if number == 0 { 10 } else { 2 };
        let mut bytes = Vec::new();
        (&self.from).take(header).read_to_end(&mut bytes)?;
        if bytes.len() as u64 == header {
            let length = u16::from_be_bytes([bytes[bytes.len() - 2], bytes[bytes.len() - 1]]);
            (&self.from).take(length.into()).read_to_end(&mut bytes)?;
        }
        Ok(bytes)
    }

    /// Both sections end in a reset, once both directions have closed their copies.
    fn tear(&self) {
        self.broken.store(true, Ordering::Relaxed);
        for stream in [&self.from, &self.to] {
            let _ = socket2::SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
            // Wakes the other direction, and sends nothing to the peer.
            let _ = stream.shutdown(Shutdown::Read);
        }
    }
}

/// Passes everything on.
pub fn untouched(frame: Frame) -> Fate {
    Fate::Said(frame.bytes)
}
