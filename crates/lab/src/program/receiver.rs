//! Receiver of many flows, with live byte counts per flow.
//!
//! The first byte of a connection is its type: a long flow, which is counted, or a short flow, which is answered with
//! the number of its bytes.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use ekiden_sys::poll::Poll;

use crate::topology::network::HostHandle;

/// Value of all bytes of a long flow.
pub const LONG_FLOW_BYTE: u8 = 1;
/// Value of all bytes of a short flow.
pub const SHORT_FLOW_BYTE: u8 = 0;
/// Size of the read buffer, in bytes.
const READ_CHUNK: usize = 64 * 1024;
/// Interval at which an idle accept loop checks for the end.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct ReceiverState {
    stopped: AtomicBool,
    /// Byte counts of long flows, in order of the arrival of their first bytes.
    long_flow_bytes: Mutex<Vec<Arc<AtomicU64>>>,
    streams: Mutex<Vec<TcpStream>>,
}

/// A receiver of flows. It stops when dropped.
#[derive(Debug)]
pub struct FlowReceiver {
    state: Arc<ReceiverState>,
    thread: Option<JoinHandle<()>>,
}

impl FlowReceiver {
    /// Starts a receiver on `host`.
    ///
    /// # Errors
    /// The thread cannot enter the host's namespace, or the port is in use.
    pub fn start(host: &HostHandle, port: u16) -> anyhow::Result<Self> {
        let listener = host.enter(|| TcpListener::bind(SocketAddr::new(host.address(), port)))?;
        let listener = listener.with_context(|| format!("cannot listen on port {port} of {}", host.name()))?;
        listener.set_nonblocking(true)?;
        let state = Arc::new(ReceiverState::default());
        let thread_state = Arc::clone(&state);
        // A failed receiver shows up as missing bytes.
        let listening = std::thread::spawn(move || drop(accept_flows(&listener, &thread_state)));
        Ok(Self { state, thread: Some(listening) })
    }

    /// Returns the byte counts of all long flows so far.
    #[must_use]
    pub fn counts(&self) -> Vec<u64> {
        lock(&self.state.long_flow_bytes).iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    /// Removes the byte counts of all flows so far. These flows are no longer counted.
    pub fn reset(&self) {
        lock(&self.state.long_flow_bytes).clear();
    }
}

impl Drop for FlowReceiver {
    fn drop(&mut self) {
        self.state.stopped.store(true, Ordering::Release);
        if let Some(listening) = self.thread.take() {
            // The thread has no result.
            let _ = listening.join();
        }
        // A shutdown fails only if the flow has already ended.
        lock(&self.state.streams).iter().for_each(|stream| drop(stream.shutdown(Shutdown::Both)));
    }
}

fn accept_flows(listener: &TcpListener, state: &Arc<ReceiverState>) -> io::Result<()> {
    let mut poll = Poll::new(vec![listener.as_fd()]);
    while !state.stopped.load(Ordering::Acquire) {
        poll.wait(Some(POLL_INTERVAL))?;
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                lock(&state.streams).push(stream.try_clone()?);
                let state = Arc::clone(state);
                // A failure also shows up at the sender, or the bytes so far are counted.
                std::thread::spawn(move || drop(receive_flow(stream, &state)));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Receives one flow until its end.
fn receive_flow(mut stream: TcpStream, state: &ReceiverState) -> io::Result<()> {
    let count = Arc::new(AtomicU64::new(0));
    let (mut buffer, mut is_known) = (vec![0; READ_CHUNK], false);
    loop {
        let bytes = stream.read(&mut buffer)?;
        count.fetch_add(bytes as u64, Ordering::Relaxed);
        if !is_known && buffer[..bytes].first() == Some(&LONG_FLOW_BYTE) {
            lock(&state.long_flow_bytes).push(Arc::clone(&count));
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
