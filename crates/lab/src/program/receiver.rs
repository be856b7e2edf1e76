//! What takes many flows: it counts what comes over each while it comes.
//!
//! The first byte of a connection says what it is: one of the long flows, which are counted, or a short one, which is answered
//! with how much there was.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use ekiden_sys::poll::Poll;

use crate::topology::network::HostHandle;

/// What a long flow consists of.
pub const LONG: u8 = 1;
/// What a short flow consists of.
pub const SHORT: u8 = 0;
/// How much is read at once, in bytes.
const PIECE: usize = 64 * 1024;
/// How often it is looked whether it is over, if nobody comes.
const LOOK: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct Seen {
    over: AtomicBool,
    /// Bytes of each long flow, in the order in which the first byte of each came.
    counts: Mutex<Vec<Arc<AtomicU64>>>,
    open: Mutex<Vec<TcpStream>>,
}

/// Takes flows until it is dropped.
#[derive(Debug)]
pub struct Receiver {
    seen: Arc<Seen>,
    listening: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Starts one on `host`.
    ///
    /// # Errors
    /// The host could not be entered, or the port is taken.
    pub fn start(host: &HostHandle, port: u16) -> anyhow::Result<Self> {
        let listener = host.enter(|| TcpListener::bind(SocketAddrV4::new(host.address(), port)))?;
        let listener = listener.with_context(|| format!("port {port} of {}", host.name()))?;
        listener.set_nonblocking(true)?;
        let seen = Arc::new(Seen::default());
        let shared = Arc::clone(&seen);
        // A receiver that cannot go on receives nothing, and that is what will be told.
        let listening = std::thread::spawn(move || drop(listen(&listener, &shared)));
        Ok(Self { seen, listening: Some(listening) })
    }

    /// Bytes of each long flow so far.
    #[must_use]
    pub fn counts(&self) -> Vec<u64> {
        locked(&self.seen.counts).iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Begins anew: what came so far is no flow of what follows.
    pub fn forget(&self) {
        locked(&self.seen.counts).clear();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.seen.over.store(true, Ordering::Release);
        if let Some(listening) = self.listening.take() {
            // It has nothing to say.
            let _ = listening.join();
        }
        // One that has ended is as good.
        locked(&self.seen.open).iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

fn listen(listener: &TcpListener, seen: &Arc<Seen>) -> io::Result<()> {
    let mut poll = Poll::new(vec![listener.as_fd()]);
    while !seen.over.load(Ordering::Acquire) {
        poll.wait(Some(LOOK))?;
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                locked(&seen.open).push(stream.try_clone()?);
                let seen = Arc::clone(seen);
                // A flow that fails here fails at its sender, too, or has moved what it has moved.
                std::thread::spawn(move || drop(take(stream, &seen)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes one flow to its end.
fn take(mut stream: TcpStream, seen: &Seen) -> io::Result<()> {
    let count = Arc::new(AtomicU64::new(0));
    let (mut piece, mut is_known) = (vec![0; PIECE], false);
    loop {
        let bytes = stream.read(&mut piece)?;
        count.fetch_add(bytes as u64, Ordering::Relaxed);
        if !is_known && piece[..bytes].first() == Some(&LONG) {
            locked(&seen.counts).push(Arc::clone(&count));
        }
        is_known = true;
        if bytes == 0 {
            return stream.write_all(&count.load(Ordering::Relaxed).to_be_bytes());
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
