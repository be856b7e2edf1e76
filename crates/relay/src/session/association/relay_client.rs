//! An association that the previous relay has opened: its datagrams are records of the section.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use ekiden_proto::cause::Cause;
use ekiden_proto::direction::Direction;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::section::datagram::read_destination;

use super::lanes::push;
use super::{Association, ClientSide, Outlet, SOCKS_PREFIX, socks_client};
use crate::dial::DialError;
use crate::events::metrics::tunnels::DropReason;
use crate::ingress::section::IncomingOpen;
use crate::pump::FlowStats;
use crate::session::Session;
use crate::tunnel::{self, IncomingLane, Lane, LaneError};

/// The detail for the log if the listener does not serve associations.
const NO_UDP: &str = "a UDP association, and the listener has udp = false";

/// Serves an association from OPEN to its end.
pub async fn serve_relay(session: &Rc<Session>, incoming_open: &Rc<IncomingOpen>) -> EndReason {
    match relay(session, incoming_open).await {
        Ok(end) => end,
        Err(error) => tunnel::end_of_lane(session, incoming_open, Err(error)).await,
    }
}

async fn relay(session: &Rc<Session>, incoming_open: &Rc<IncomingOpen>) -> Result<EndReason, LaneError> {
    if !session.context.listener.udp {
        return Err(LaneError::Refused(DialError { remark: Some(NO_UDP.to_owned()), ..Cause::Denied.into() }));
    }
    session.accounts().enter().map_err(DialError::from)?;
    let requested = session.dial_context.next_lane_path(incoming_open).map_err(DialError::from)?;
    let section = IncomingLane::new(session, incoming_open);
    let counters = session.context.services().events.metrics.datagram_counters(&session.context.listener.name);
    let lane = Lane::new(&Arc::new(counters.for_drops()), section.remote_dialler(), Direction::Down);
    let association = Association::new(session, Box::new(Previous(Arc::clone(&lane))));
    let outlet = Outlet::new(&association, requested);
    // Separate counters: the session itself counts payloads when they are forwarded, not the records of the lane.
    let stats = FlowStats::new(Rc::new(()));
    let transport = section.client_transport(&lane, &stats);
    let receive = || {
        transport.receive(|record| match read_destination(record) {
            Ok((target, payload)) => outlet.send(target, payload),
            Err(_) => association.drop_datagram(DropReason::Malformed),
        })
    };
    socks_client::set_direct_path(session);
    if let Some(answer) = outlet.open_default_lane() {
        // Datagrams that follow OPEN are forwarded before the answer.
        tokio::select! {
            biased;
            opened = answer => opened.unwrap_or_else(|_| Err(DialError::from(Cause::Reset).into()))?,
            received = receive() => return received.map(|()| EndReason::Finished),
        }
    }
    section.accept().await?;
    lane.mark_established();
    let end = Cell::new(EndReason::Finished);
    let done = async {
        tokio::select! {
            () = section.wait_end() => {}
            reason = outlet.run() => end.set(reason),
        }
    };
    let ended = transport.run(receive(), done).await;
    socks_client::report_dropped(session, outlet.dropped() + lane.dropped());
    ended.map(|()| end.get())
}

/// The previous relay as the client.
struct Previous(Arc<Lane>);

impl ClientSide for Previous {
    fn send(&self, datagram: &[u8]) -> Result<(), Option<DropReason>> {
        push(&self.0, &datagram[SOCKS_PREFIX.len()..])
    }
}
