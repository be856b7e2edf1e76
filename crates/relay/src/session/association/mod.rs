//! UDP associations: the datagrams of one client, which is a SOCKS5 client (RFC 1928, 7) or the previous relay.
//!
//! An [`Outlet`] forwards datagrams: from its own sockets, or in records to the next relay. A datagram that cannot be
//! sent at once, or that exceeds the rate of the listener or of the user, is dropped.

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
use tokio::sync::Notify;

use super::Session;
use crate::events::metrics::tunnels::{DropReason, PacketCounters};

pub use datagram_sockets::source_address;
pub use relay_client::serve_relay;
pub use socks_client::serve;

use outlet::Outlet;

/// The bytes of a SOCKS5 datagram before its address: two reserved bytes, and the fragment number. Buffers reserve room
/// for them, so that a record of the section protocol and a SOCKS5 datagram differ only in this prefix.
const SOCKS_PREFIX: [u8; 3] = [0; 3];

/// Longest header of a datagram from a target, in bytes.
const MAX_HEADER: usize = DatagramHeader::MAX_WRITTEN;

/// Upper bound of the payload of UDP over IPv4 and IPv6, in bytes.
const MAX_DATAGRAM: usize = 65_535;

thread_local! {
    /// Buffer for one datagram, with room for its header. No session holds the buffer across an `await`.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; MAX_HEADER + MAX_DATAGRAM]);
}

/// The client side of an association.
trait ClientSide {
    /// Sends a datagram to the client: [`SOCKS_PREFIX`], the address of the source, and the payload.
    ///
    /// # Errors
    /// Why the datagram is dropped; `None` if the queue has already counted the drop.
    fn send(&self, datagram: &[u8]) -> Result<(), Option<DropReason>>;
}

/// The state of an association that its outlet and its lanes share.
struct Association {
    session: Rc<Session>,
    client: Box<dyn ClientSide>,
    counters: Arc<PacketCounters>,
    dropped: Cell<u64>,
    /// Notified when the accounts refuse a datagram, possibly because a quota is used up.
    refused: Notify,
}

impl Association {
    fn new(session: &Rc<Session>, client: Box<dyn ClientSide>) -> Rc<Self> {
        let counters = session.context.services().events.metrics.datagram_counters(&session.context.listener.name);
        let (session, dropped, refused) = (Rc::clone(session), Cell::new(0), Notify::new());
        Rc::new(Self { session, client, counters, dropped, refused })
    }

    /// Sends a datagram of a target to the client: [`SOCKS_PREFIX`], the address of the source, and `payload` bytes.
    fn answer(&self, datagram: &[u8], payload: usize) {
        if !self.try_pass(Direction::Down, payload) {
            return;
        }
        match self.client.send(datagram) {
            Ok(()) => self.record_carried(Direction::Down, payload),
            Err(Some(reason)) => self.drop_datagram(reason),
            Err(None) => {}
        }
    }

    /// Returns whether the accounts admit a datagram of `payload` bytes. Otherwise the datagram counts as dropped.
    fn try_pass(&self, direction: Direction, payload: usize) -> bool {
        let may_pass = self.session.accounts().try_pass(direction, payload);
        if !may_pass {
            self.drop_datagram(DropReason::OverLimit);
            self.refused.notify_one();
        }
        may_pass
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
