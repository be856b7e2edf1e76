//! Dialling: connects to a target by a path, or reports the true cause of the failure.
//!
//! A dialled stream is clean: the last hop's answer has been read to its end, and no byte after it, so no leftover
//! buffer is needed. Only the answer to OPEN may be outstanding; the session's first bytes are sent before it arrives.

mod bridge;
mod error;
mod hop_chain;
mod proxy;
mod race;
mod resolver;
pub mod section;
mod tcp;

use std::cell::Cell;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::{ClientAddr, Host, ServerAddr, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::profile::Profile;
use ekiden_proto::wire::section::{Purpose, TraceId};
use ekiden_sys::queued::set_notsent_lowat;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::config::access::{AccessPolicy, Denied};
use crate::config::congestion::CongestionControls;
use crate::path::PathChoice;
use crate::pool::Pools;
use crate::pump::{self, RecordCipher};
use crate::rules::Marks;

pub use bridge::{AnswerFuture, PlainSection, into_owned_stream, into_plain};
pub use error::{DialError, FailingRelay};
pub use resolver::Resolver;
pub use section::{OpenParams, ReadyConnection};
pub use tcp::is_exhaustion;

use hop_chain::HopChain;
use section::SentOpen;
use tcp::OutgoingSocket;

/// Most unsent bytes in the kernel on the section of a lane: packets in there can no longer be dropped when they are late.
pub const MAX_UNSENT_LANE: u32 = 16 * 1024;

/// A section that is ready for the session's bytes.
#[derive(Debug)]
pub struct Dialled {
    /// The connection.
    pub stream: TcpStream,
    /// The address of the target or of the first hop.
    pub server: ServerAddr,
    /// The session opened on the connection, if the last hop is a relay; its answer is outstanding.
    pub opened: Option<OpenedSession>,
}

/// A session that a relay was asked for.
#[derive(Debug)]
pub struct OpenedSession {
    /// The answer to wait for.
    pub opening: SentOpen,
    /// The cipher. It is large, so it is dropped after the answer unless the session's bytes are in records.
    pub cipher: Rc<RecordCipher>,
    /// Whether the session's bytes are in records.
    pub encrypt: bool,
}

impl OpenedSession {
    /// The cipher of the session's bytes, if they are in records.
    #[must_use]
    pub fn data_cipher(&self) -> Option<Rc<RecordCipher>> {
        self.encrypt.then(|| Rc::clone(&self.cipher))
    }
}

/// The resources and rules that dialling needs.
#[derive(Clone, Copy)]
pub struct Dialler<'a> {
    /// The marks of our packets, where rules look for them.
    pub marks: Option<Marks>,
    /// The client whose address is kept as the source address.
    pub source: Option<ClientAddr>,
    /// The resolver.
    pub names: &'a Resolver,
    /// The congestion controls that profiles ask for.
    pub congestion: &'a CongestionControls,
    /// The connections that are ready.
    pub pools: &'a Arc<Pools>,
    /// Which targets the client may reach.
    pub rules: AccessPolicy<'a>,
    /// How long the whole path may take to stand.
    pub patience: Duration,
}

impl Dialler<'_> {
    /// Connects to `target` through every hop of a way.
    ///
    /// # Errors
    /// The true cause, and the hop that failed.
    pub async fn connect(
        &self,
        way: &PathChoice,
        target: &Target,
        open_params: &OpenParams,
    ) -> Result<Dialled, DialError> {
        if way.path.is_direct() {
            return self.open_target(target, &way.profile).await;
        }
        self.check_target(target)?;
        HopChain::new(self, open_params).extend(&way.path.hops, &way.beyond, &Purpose::Stream(target.clone())).await
    }

    /// Opens a lane by a way that ends at a relay.
    ///
    /// # Errors
    /// The true cause, and the hop that failed; `Unreachable` when only this relay is on the way.
    pub async fn open_lane(&self, way: &PathChoice, open_params: &OpenParams) -> Result<Dialled, DialError> {
        if way.path.is_direct() {
            return Err(Cause::Unreachable.into());
        }
        let dialled = HopChain::new(self, open_params).extend(&way.path.hops, &way.beyond, &Purpose::Datagrams).await?;
        // A lane drops late packets, so the kernel must not queue many bytes. A socket without this option has no such
        // queue.
        let _ = set_notsent_lowat(dialled.stream.as_fd(), MAX_UNSENT_LANE);
        Ok(dialled)
    }

    /// Connects to the last hop only, for requests that an HTTP proxy is asked in absolute form.
    ///
    /// # Errors
    /// The true cause, and the hop that failed.
    pub async fn connect_to_last_hop(
        &self,
        way: &PathChoice,
        target: &Target,
        open_params: &OpenParams,
    ) -> Result<Dialled, DialError> {
        self.check_target(target)?;
        let (last, before) = way.path.hops.split_last().expect("invariant: asked only where there is a hop");
        let line = HopChain::new(self, open_params);
        if before.is_empty() {
            line.open_hop(last).await
        } else {
            let dialled = line.extend(before, &[], &Purpose::Stream(last.address.clone())).await;
            dialled.map_err(|error| error.blame_next_hop(last))
        }
    }

    /// When the whole path has to stand.
    fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Whether the client may use a connection to `server` that was dialled for `target` before, perhaps by another
    /// listener's rules.
    #[must_use]
    pub fn permits(&self, way: &PathChoice, target: &Target, server: ServerAddr) -> bool {
        let address = way.path.is_direct().then(|| server.0.ip());
        self.rules.permits(&target.host, address, target.port)
    }

    /// Refuses forbidden targets as far as that can be told when a hop is to resolve the name.
    fn check_target(&self, target: &Target) -> Result<(), DialError> {
        if self.rules.permits(&target.host, None, target.port) { Ok(()) } else { Err(Cause::Denied.into()) }
    }

    async fn open_target(&self, target: &Target, profile: &Profile) -> Result<Dialled, DialError> {
        let is_name = matches!(target.host, Host::Name(_));
        // A name on the deny list is not looked up. Other rules apply to the addresses of the name.
        if is_name && self.rules.judge(&target.host, None, target.port) == Err(Denied::Listed) {
            return Err(Cause::Denied.into());
        }
        let is_concealed = Cell::new(false);
        let judge = |ip| {
            if self.rules.permits(&target.host, Some(ip), target.port) {
                return Ok(());
            }
            // To the client, such a name has no address.
            let conceals = is_name && self.rules.listener.conceals(ip);
            is_concealed.set(is_concealed.get() || conceals);
            Err(if conceals { Cause::NameNotFound } else { Cause::Denied })
        };
        let outgoing = OutgoingSocket { profile, congestion: self.congestion, marks: self.marks, source: self.source };
        match tcp::open(target, outgoing, self.names, &judge, self.deadline()).await {
            Ok((stream, server)) => Ok(Dialled { stream, server, opened: None }),
            Err(Cause::NameNotFound) if is_concealed.get() => Err(DialError::private_name()),
            Err(cause) => Err(cause.into()),
        }
    }
}

impl Dialled {
    /// The session's name on the relays.
    #[must_use]
    pub fn trace(&self) -> Option<TraceId> {
        self.opened.as_ref().map(|opened| opened.opening.trace)
    }

    /// Whether a ready connection was used.
    #[must_use]
    pub fn used_ready_connection(&self) -> bool {
        self.opened.as_ref().is_some_and(|opened| opened.opening.pool.is_some())
    }

    /// Waits for an outstanding answer and returns the setup time of each relay.
    ///
    /// # Errors
    /// The true cause, and the relay that reported it.
    pub async fn wait_answer(&self) -> Result<Vec<Duration>, DialError> {
        let Some(opened) = &self.opened else { return Ok(Vec::new()) };
        // A dropped dial resets the connection; otherwise the relay would continue, with the client's own address if it
        // keeps that.
        pump::abort(&self.stream);
        let times = opened.opening.wait_answer(&self.stream, &opened.cipher).await?;
        pump::cancel_abort(&self.stream);
        Ok(times)
    }
}
