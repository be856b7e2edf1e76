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
pub const LONG_FLOW_BYTE: u8 = 1;
/// What a short flow consists of.
pub const SHORT_FLOW_BYTE: u8 = 0;
/// How much is read at once, in bytes.
const READ_CHUNK: usize = 64 * 1024;
/// How often it is looked whether it is over, if nobody comes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct ReceiverState {
    stopped: AtomicBool,
    /// Bytes of each long flow, in the order in which the first byte of each came.
    long_flow_bytes: Mutex<Vec<Arc<AtomicU64>>>,
    streams: Mutex<Vec<TcpStream>>,
}

/// Takes flows until it is dropped.
#[derive(Debug)]
pub struct FlowReceiver {
    state: Arc<ReceiverState>,
    thread: Option<JoinHandle<()>>,
}

impl FlowReceiver {
    /// Starts one on `host`.
    ///
    /// # Errors
    /// The host could not be entered, or the port is taken.
    pub fn start(host: &HostHandle, port: u16) -> anyhow::Result<Self> {
        let listener = host.enter(|| TcpListener::bind(SocketAddrV4::new(host.address(), port)))?;
        let listener = listener.with_context(|| format!("port {port} of {}", host.name()))?;
        listener.set_nonblocking(true)?;
        let seen = Arc::new(ReceiverState::default());
        let shared = Arc::clone(&seen);
        // A receiver that cannot go on receives nothing, and that is what will be told.
        let listening = std::thread::spawn(move || drop(accept_flows(&listener, &shared)));
        Ok(Self { state: seen, thread: Some(listening) })
    }

    /// Bytes of each long flow so far.
    #[must_use]
    pub fn counts(&self) -> Vec<u64> {
        lock(&self.state.long_flow_bytes).iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Begins anew: what came so far is no flow of what follows.
    pub fn reset(&self) {
        lock(&self.state.long_flow_bytes).clear();
    }
}

impl Drop for FlowReceiver {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Release);
        if let Some(listening) = self.thread.take() {
            // It has nothing to say.
            let _ = listening.join();
        }
        // One that has ended is as good.
        lock(&self.state.streams).iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

fn accept_flows(listener: &TcpListener, seen: &Arc<ReceiverState>) -> io::Result<()> {
    let mut poll = Poll::new(vec![listener.as_fd()]);
    while !seen.stopped.load(Ordering::Acquire) {
        poll.wait(Some(POLL_INTERVAL))?;
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                lock(&seen.streams).push(stream.try_clone()?);
                let seen = Arc::clone(seen);
                // A flow that fails here fails at its sender, too, or has moved what it has moved.
                std::thread::spawn(move || drop(receive_flow(stream, &seen)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Takes one flow to its end.
fn receive_flow(mut stream: TcpStream, seen: &ReceiverState) -> io::Result<()> {
    let count = Arc::new(AtomicU64::new(0));
    let (mut piece, mut is_known) = (vec![0; READ_CHUNK], false);
    loop {
        let bytes = stream.read(&mut piece)?;
        count.fetch_add(bytes as u64, Ordering::Relaxed);
        if !is_known && piece[..bytes].first() == Some(&LONG_FLOW_BYTE) {
            lock(&seen.long_flow_bytes).push(Arc::clone(&count));
        }
        is_known = true;
        if bytes == 0 {
            return stream.write_all(&count.load(Ordering::Relaxed).to_be_bytes());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
