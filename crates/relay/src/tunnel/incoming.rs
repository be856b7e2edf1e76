//! Lanes that other relays have dialled. Each lane is a session that ends at the tunnels of this host or continues to
//! another relay.

use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ekiden_proto::cause::Cause;
use ekiden_proto::direction::Direction;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::section::Purpose;
use ekiden_sys::queued::set_notsent_lowat;

use super::filter::judge;
use super::flows::FlowTable;
use super::lane::Lane;
use super::sources::LaneRemote;
use super::transport::{LaneError, LaneTransport, run_forwarded};
use crate::config::access::AccessPolicy;
use crate::dial::{DialError, Dialled, MAX_UNSENT_LANE, OpenedSession};
use crate::ingress::Responder;
use crate::ingress::section::IncomingOpen;
use crate::path::PathChoice;
use crate::pump::{self, FlowStats, FramedSection, wait_idle};
use crate::session::Session;

/// The remedy when a relay without a tunnel receives a lane.
const NO_TUNNEL: &str = "this relay has no tunnel: add a listener with kind = \"tun\" whose net contains the addresses \
                         of the packets";

/// Serves a lane from OPEN to its end.
pub async fn serve(session: &Rc<Session>, incoming_open: &Rc<IncomingOpen>) -> EndReason {
    session.accounts().ignore_rates();
    let result = match session.dial_context.next_lane_path(incoming_open) {
        Ok(None) if session.context.services().tunnels.is_empty() => {
            let remark = Some(NO_TUNNEL.to_owned());
            Err(LaneError::Refused(DialError { remark, ..Cause::Unreachable.into() }))
        }
        Ok(None) => IncomingLane::new(session, incoming_open).terminate().await,
        Ok(Some(path_choice)) => IncomingLane::new(session, incoming_open).forward(&path_choice).await,
        Err(cause) => Err(LaneError::Refused(cause.into())),
    };
    end_of_lane(session, incoming_open, result).await
}

/// Returns the end reason of a lane or an association that another relay has dialled. A failure before the answer to
/// OPEN is answered here.
pub async fn end_of_lane(
    session: &Session,
    incoming_open: &Rc<IncomingOpen>,
    result: Result<(), LaneError>,
) -> EndReason {
    match result {
        Ok(()) => EndReason::Finished,
        Err(LaneError::Refused(error)) => {
            Responder::Section(Rc::clone(incoming_open)).send_failure(session.client_end(), &error, false).await;
            session.record_dial_error(&error)
        }
        Err(LaneError::Connection(error, direction)) => pump::end_reason(&pump::FlowError::Reading(error), direction),
    }
}

/// A lane or an association that another relay has dialled.
pub struct IncomingLane<'a> {
    session: &'a Session,
    incoming_open: &'a Rc<IncomingOpen>,
    /// The section from the previous relay.
    section: Rc<FramedSection>,
}

impl<'a> IncomingLane<'a> {
    /// Returns the lane that this OPEN starts.
    ///
    /// # Panics
    /// The OPEN is not for a lane.
    pub fn new(session: &'a Session, incoming_open: &'a Rc<IncomingOpen>) -> Self {
        // A lane drops late packets, so the kernel must not queue many bytes. The error of a socket without this option
        // is ignored.
        let _ = set_notsent_lowat(session.client.as_fd(), MAX_UNSENT_LANE);
        let section = incoming_open.framed_section().expect("invariant: a lane is encrypted");
        Self { session, incoming_open, section }
    }

    /// Registers this end of the lane for other threads. Of a forwarded lane, the end toward the previous relay counts
    /// the carried packets for the listener.
    fn register_lane(&self, remote: LaneRemote, sends: Direction) -> Arc<Lane> {
        let (services, listener) = (self.session.context.services(), &self.session.context.listener.name);
        let counters = services.events.metrics.packet_counters(listener);
        let counters = if sends == Direction::Up { Arc::new(counters.for_drops()) } else { counters };
        services.lanes.register(listener, &counters, remote, sends)
    }

    /// Returns the relay that has dialled the lane.
    pub fn remote_dialler(&self) -> LaneRemote {
        LaneRemote::Dialler { name: self.incoming_open.peer_name().into(), key: self.incoming_open.previous_relay() }
    }

    /// Waits until the lane has been idle for the idle timeout, or the relay starts to drain.
    pub async fn wait_end(&self) {
        tokio::select! {
            () = wait_idle(&self.session.stats, self.session.idle_timeouts().idle) => {}
            () = self.session.context.thread.drain_state.wait_begun() => {}
        }
    }

    /// Answers OPEN: the path is established.
    ///
    /// # Errors
    /// The connection of the lane is broken.
    pub async fn accept(&self) -> Result<(), LaneError> {
        let responder = Responder::Section(Rc::clone(self.incoming_open));
        let granted = responder.send_success(self.session.client_end(), None, &self.session.hop_times()).await;
        granted.map_err(|error| LaneError::Connection(error, Direction::Up))
    }

    /// Carries packets between the previous relay and the tunnels of this host.
    async fn terminate(&self) -> Result<(), LaneError> {
        self.accept().await?;
        let lane = self.register_lane(self.remote_dialler(), Direction::Down);
        lane.mark_established();
        let carrier = self.client_transport(&lane, &self.session.stats);
        let (services, rules) = (self.session.context.services(), [self.session.dial_context.access()]);
        let take = |packet: &[u8]| lane.deliver(packet, services, &rules);
        carrier.run(carrier.receive(take), self.wait_end()).await
    }

    /// Forwards packets between the previous relay and the next. Late packets are dropped, and the access rules apply
    /// to packets as to sessions.
    async fn forward(&self, path_choice: &PathChoice) -> Result<(), LaneError> {
        let (session, requested_at) = (self.session, Instant::now());
        session.dial_context.on_attempt(path_choice);
        let dialler = session.dial_context.dialler_for(&session.context, 1);
        let dialled = dialler.open_lane(path_choice, &Purpose::Datagrams, &session.dial_context.open_params()).await?;
        session.dial_context.on_dialled(&dialled);
        let Dialled { stream, server, opened } = dialled;
        let OpenedSession { opening, section, .. } = opened.expect("invariant: a lane was opened at a relay");
        let stream = Rc::new(stream);
        session.on_connected(server, Rc::clone(&stream), requested_at);
        pump::abort(&stream);
        session.on_relay_answer(opening.wait_answer(&stream, &section.cipher).await?, requested_at);
        self.accept().await?;
        let up = self.register_lane(
            LaneRemote::next_hop(path_choice).expect("invariant: a chosen path begins with a relay"),
            Direction::Up,
        );
        let down = self.register_lane(self.remote_dialler(), Direction::Down);
        up.mark_established();
        down.mark_established();
        let downstream = self.client_transport(&down, &session.stats);
        // Separate counters: the session counts packets at the end toward the previous relay.
        let up_stats = FlowStats::new(Rc::new(()));
        let upstream = LaneTransport { lane: &up, stream: &stream, cipher: &section.cipher, stats: &up_stats };
        // Not the flows of the tunnels of this host: packets in transit may have sources of this site.
        let (tunnels, flows) = (&session.context.services().tunnels, FlowTable::default());
        let forward_packet = |packet: &[u8], rules: &[AccessPolicy<'_>], (from, to): (&Lane, &Lane)| {
            let judged = judge(packet, rules, Some(&flows));
            match judged.and_then(|head| tunnels.check_forward(&head, from.remote())) {
                Ok(()) => {
                    flows.record(packet, Instant::now());
                    to.push(packet);
                }
                Err(reason) => from.record_dropped(reason, 1),
            }
        };
        let (previous, next) = ([session.dial_context.access()], up.remote().access_rules(&session.context.config));
        let upward = |packet: &[u8]| forward_packet(packet, &previous, (&down, &up));
        let downward = |packet: &[u8]| forward_packet(packet, &next, (&up, &down));
        run_forwarded(&downstream, upward, &upstream, downward, self.wait_end()).await
    }

    /// Returns the transport to the previous relay.
    pub fn client_transport<'b>(&'b self, lane: &'b Lane, stats: &'b FlowStats) -> LaneTransport<'b> {
        LaneTransport { lane, stream: &self.session.client, cipher: &self.section.cipher, stats }
    }
}
