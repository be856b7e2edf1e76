//! A man in the middle between two relays, which passes each frame to a handler that can record or change it.
//!
//! A section consists of frames: a hello in each direction (a header of ten bytes, whose last two are the length of the
//! rest), then records (two bytes of length, then the record). When a session is not encrypted, raw bytes follow the
//! first record.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use crate::harness::*;

/// Direction of bytes: `Up` toward the relay that is dialled, `Down` toward the dialling relay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    Up,
    Down,
}

/// A message from one relay to the other.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Number of the connection; the first is 0.
    pub connection: usize,
    pub direction: Direction,
    /// 0 for the hello, 1 for the first record, ...
    pub number: usize,
    pub bytes: Vec<u8>,
}

/// Action of the interceptor for one frame.
pub enum FrameAction {
    /// Sends these bytes in place of the frame.
    Send(Vec<u8>),
    /// Sends these bytes in place of the frame, then FIN.
    SendAndClose(Vec<u8>),
    /// Resets the connections to both relays.
    Reset,
}

/// Part of each direction that is parsed as frames.
#[derive(Clone, Copy)]
pub enum Framed {
    /// Hello and first record; the rest is raw bytes.
    Plain,
    /// The whole direction.
    Encrypted,
}

type FrameHandler = Arc<Mutex<dyn FnMut(Frame) -> FrameAction + Send>>;

/// Listens in place of the relay at `to`, and forwards to it. Returns the address to dial.
pub fn start_interceptor(
    to: SocketAddr,
    framed: Framed,
    handler: impl FnMut(Frame) -> FrameAction + Send + 'static,
) -> SocketAddr {
    let handler: FrameHandler = Arc::new(Mutex::new(handler));
    let connections = Arc::new(AtomicUsize::new(0));
    serve(move |down| {
        let connection = connections.fetch_add(1, Ordering::Relaxed);
        // If the relay is down, the dialling relay gets a reset.
        let Ok(up) = TcpStream::connect(to) else { return reset(down) };
        let broken = Arc::new(AtomicBool::new(false));
        let make = |from: &TcpStream, to: &TcpStream, direction| DirectionForwarder {
            from: from.try_clone().unwrap(),
            to: to.try_clone().unwrap(),
            broken: Arc::clone(&broken),
            handler: Arc::clone(&handler),
            framed,
            direction,
            connection,
        };
        let (mut upward, mut downward) = (make(&down, &up, Direction::Up), make(&up, &down, Direction::Down));
        drop((up, down));
        let thread = std::thread::spawn(move || upward.forward());
        downward.forward();
        let _ = thread.join();
    })
}

/// One direction of one connection.
struct DirectionForwarder {
    from: TcpStream,
    to: TcpStream,
    broken: Arc<AtomicBool>,
    handler: FrameHandler,
    framed: Framed,
    direction: Direction,
    connection: usize,
}

impl DirectionForwarder {
    fn forward(&mut self) {
        for number in 0.. {
            let Ok(bytes) = self.read(number) else { return self.reset_both() };
            if self.broken.load(Ordering::Relaxed) {
                return;
            }
            if bytes.is_empty() {
                let _ = self.to.shutdown(Shutdown::Write);
                return;
            }
            let frame = Frame { connection: self.connection, direction: self.direction, number, bytes };
            let action = (self.handler.lock().unwrap())(frame);
            match action {
                FrameAction::Send(bytes) if self.to.write_all(&bytes).is_ok() => {}
                FrameAction::SendAndClose(bytes) => {
                    let _ = self.to.write_all(&bytes);
                    let _ = self.to.shutdown(Shutdown::Write);
                    return;
                }
                FrameAction::Send(_) | FrameAction::Reset => return self.reset_both(),
            }
        }
    }

    /// Reads the next frame, which is incomplete or empty at the end of the stream.
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

    /// Makes both connections end in a reset, which the kernel sends when both directions have closed their
    /// descriptors.
    fn reset_both(&self) {
        self.broken.store(true, Ordering::Relaxed);
        for stream in [&self.from, &self.to] {
            let _ = socket2::SockRef::from(stream).set_linger(Some(std::time::Duration::ZERO));
            // Wakes the thread of the other direction; sends nothing to the peer.
            let _ = stream.shutdown(Shutdown::Read);
        }
    }
}

/// Handler that changes nothing.
pub fn forward_unchanged(frame: Frame) -> FrameAction {
    FrameAction::Send(frame.bytes)
}
