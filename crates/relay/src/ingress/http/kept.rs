//! Idle connections to servers and `http` hops, kept for the next request that goes the same way.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::addr::ServerAddr;
use socket2::SockRef;
use tokio::net::TcpStream;

use crate::shared::Shared;

/// The idle connections of one thread.
pub struct Kept {
    shared: Arc<Shared>,
    by_way: RefCell<HashMap<String, Vec<Idle>>>,
}

struct Idle {
    stream: Rc<TcpStream>,
    server: ServerAddr,
    until: Instant,
}

impl Kept {
    /// None yet.
    #[must_use]
    pub fn new(shared: Arc<Shared>) -> Self {
        Self { shared, by_way: RefCell::default() }
    }

    /// A connection that goes this way to a server that is permitted and is still alive, the one used last.
    pub fn take(&self, way: &str, permits: impl Fn(ServerAddr) -> bool) -> Option<(Rc<TcpStream>, ServerAddr)> {
        let mut by_way = self.by_way.borrow_mut();
        let found = by_way.get_mut(way).and_then(|idle| {
            while let Some(at) = idle.iter().rposition(|kept| permits(kept.server)) {
                let last = idle.remove(at);
                if is_alive(&last.stream) {
                    return Some((last.stream, last.server));
                }
                self.shared.metrics.kept("stale");
            }
            None
        });
        self.shared.metrics.kept(if found.is_some() { "hit" } else { "miss" });
        found
    }

    /// Keeps a connection for `span`, unless `most` are kept already.
    pub fn give(&self, way: String, stream: Rc<TcpStream>, server: ServerAddr, span: Duration, most: usize) {
        let mut by_way = self.by_way.borrow_mut();
        if by_way.values().map(Vec::len).sum::<usize>() < most {
            by_way.entry(way).or_default().push(Idle { stream, server, until: Instant::now() + span });
        }
    }

    /// Closes what nobody asked for in time, and what the server has closed.
    pub fn expire(&self) {
        let now = Instant::now();
        self.by_way.borrow_mut().retain(|_, idle| {
            idle.retain(|kept| kept.until > now && is_alive(&kept.stream));
            !idle.is_empty()
        });
    }
}

/// An idle connection is alive while there is nothing to read: bytes nobody asked for are as bad as its end.
fn is_alive(stream: &TcpStream) -> bool {
    let mut byte = [MaybeUninit::uninit()];
    matches!(SockRef::from(stream).peek(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}
