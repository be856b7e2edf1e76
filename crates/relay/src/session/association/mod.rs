//! UDP associations: the datagrams of one client, of SOCKS5 (RFC 1928, 7) or of the previous relay.
//!
//! An [`Outlet`] sends datagrams on: from sockets of its own, or in records to the next relay. A datagram that cannot be
//! sent at once, or is above the rate of the listener or of the user, is dropped.

mod datagram_sockets;
mod lanes;
mod outlet;
mod relay_client;
mod remotes;
mod socks_client;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use ekiden_proto::direction::Direction;
use ekiden_proto::wire::socks5::DatagramHeader;

use super::Session;
use crate::events::metrics::tunnels::{DropReason, PacketCounters};

pub use datagram_sockets::source_address;
pub use relay_client::serve_relay;
pub use socks_client::{refuse, serve};

use outlet::Outlet;

/// The bytes of a SOCKS5 datagram before its address: two reserved ones, and the number of the fragment. Buffers keep room for
/// them, so that a record of the section protocol and a datagram of SOCKS5 are the same bytes.
const SOCKS_PREFIX: [u8; 3] = [0; 3];

/// The longest header of a datagram from a target, in bytes.
const MAX_HEADER: usize = DatagramHeader::MAX_WRITTEN;

/// The largest payload of UDP over IPv4 and IPv6, in bytes.
const MAX_DATAGRAM: usize = 65_535;

thread_local! {
    /// Holds one datagram with room for its header. No session keeps the buffer over an `await`.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_HEADER + MAX_DATAGRAM]);
}

/// The side of an association on which its client is.
trait ClientSide {
    /// Sends a datagram to the client: [`SOCKS_PREFIX`], the address of the source, and the payload.
    ///
    /// # Errors
    /// Why the datagram is dropped, unless the queue has counted it.
    fn send(&self, datagram: &[u8]) -> Result<(), Option<DropReason>>;
}

/// The part of an association that its lanes need as well.
struct Association {
    session: Rc<Session>,
    client: Box<dyn ClientSide>,
    counters: Arc<PacketCounters>,
    dropped: Cell<u64>,
}

impl Association {
    fn new(session: &Rc<Session>, client: Box<dyn ClientSide>) -> Rc<Self> {
        let counters = session.context.services().events.metrics.datagram_counters(&session.context.listener.name);
        Rc::new(Self { session: Rc::clone(session), client, counters, dropped: Cell::new(0) })
    }

    /// Sends an answer to the client: [`SOCKS_PREFIX`], the address of its source, and `payload` bytes.
    fn answer(&self, datagram: &[u8], payload: usize) {
        if !self.session.accounts().try_pass(Direction::Down, payload) {
            return self.drop_datagram(DropReason::OverLimit);
        }
        match self.client.send(datagram) {
            Ok(()) => self.record_carried(Direction::Down, payload),
            Err(Some(reason)) => self.drop_datagram(reason),
            Err(None) => {}
        }
    }

    fn record_carried(&self, direction: Direction, payload: usize) {
        self.session.stats.record_copied(direction, payload);
        self.counters.record_carried(direction, payload);
    }

    fn drop_datagram(&self, reason: DropReason) {
        self.dropped.set(self.dropped.get() + 1);
        self.counters.record_dropped(reason, 1);
    }
}
