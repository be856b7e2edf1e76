//! Lanes that other relays have dialled: each is a session. Here it ends at the tunnels, or goes on to another relay.

use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use ekiden_proto::cause::Cause;
use ekiden_proto::direction::Direction;
use ekiden_proto::event::End;
use ekiden_sys::queued::set_notsent_lowat;

use super::carrier::{Broken, Carrier, UNSENT};
use super::judge::judge;
use super::lane::Lane;
use super::sources::Remote;
use crate::dial::{DialError, Dialled, Opened};
use crate::ingress::Manner;
use crate::ingress::section::Arrival;
use crate::path::Way;
use crate::pump::{self, Seal, silence};
use crate::session::Session;

/// What somebody has to do who wants lanes to end here.
const NO_TUNNEL: &str = "there is no tunnel here: give this relay a listener with kind = \"tun\" \
    whose net has the addresses of the packets that are to come";

/// Serves a lane from OPEN to its end.
pub async fn serve(session: &Rc<Session>, arrival: &Rc<Arrival>) -> End {
    let served = match session.errand.lane_onward(arrival) {
        Ok(None) if session.entrance.shared().tunnels.is_empty() => {
            let remark = Some(NO_TUNNEL.to_owned());
            Err(Broken::Refused(DialError { remark, ..Cause::Unreachable.into() }))
        }
        Ok(None) => Served::new(session, arrival).end_here().await,
        Ok(Some(way)) => Served::new(session, arrival).go_on(&way).await,
        Err(cause) => Err(Broken::Refused(cause.into())),
    };
    match served {
        Ok(()) => End::Finished,
        Err(Broken::Refused(error)) => {
            Manner::Section(Rc::clone(arrival)).refused(&session.client, &error, false).await;
            session.failed(&error)
        }
        Err(Broken::Connection(error, direction)) => pump::end_of(&pump::Broken::Reading(error), direction),
    }
}

struct Served<'a> {
    session: &'a Session,
    arrival: &'a Rc<Arrival>,
    /// The keys of the section that it came by.
    seal: Rc<Seal>,
}

impl<'a> Served<'a> {
    fn new(session: &'a Session, arrival: &'a Rc<Arrival>) -> Self {
        // A lane keeps nothing back for long, and so the kernel must not. One that cannot be told has no such queue.
        let _ = set_notsent_lowat(session.client.as_fd(), UNSENT);
        let seal = arrival.data_seal().expect("invariant: a lane is encrypted");
        Self { session, arrival, seal }
    }

    /// An end of the lane, as others know it.
    fn lane(&self, remote: Remote, sends: Direction) -> Arc<Lane> {
        let (shared, listener) = (self.session.entrance.shared(), &self.session.entrance.listener.name);
        shared.lanes.enter(listener, &shared.metrics.crossing(listener), remote, sends)
    }

    /// The relay that has dialled the lane.
    fn dialler(&self) -> Remote {
        Remote::Dialler { name: self.arrival.peer_name().into(), key: self.arrival.key() }
    }

    /// Until nothing has moved for long, or the relay is about to end.
    async fn done(&self) {
        tokio::select! {
            () = silence(&self.session.meter, self.session.patience().idle) => {}
            () = self.session.entrance.worker.leaving.begins() => {}
        }
    }

    async fn grant(&self) -> Result<(), Broken> {
        let manner = Manner::Section(Rc::clone(self.arrival));
        let granted = manner.granted(&self.session.client, None, &self.session.hop_times()).await;
        granted.map_err(|error| Broken::Connection(error, Direction::Up))
    }

    /// Between the relay before us and the tunnels of this host.
    async fn end_here(&self) -> Result<(), Broken> {
        self.grant().await?;
        let lane = self.lane(self.dialler(), Direction::Down);
        lane.is_agreed();
        let carrier = self.toward_client(&lane);
        let shared = self.session.entrance.shared();
        let take = |packet: &[u8]| lane.gives(packet, shared, Some(self.session.errand.rules()));
        carrier.run(carrier.receive(take), self.done()).await
    }

    /// Between the relay before us and another one. What would have to wait is dropped here as anywhere, and our rules hold
    /// for packets as they do for sessions.
    async fn go_on(&self, way: &Way) -> Result<(), Broken> {
        let (session, asked) = (self.session, Instant::now());
        session.errand.goes(way);
        let dialler = session.errand.dialler_for(&session.entrance, 1);
        let dialled = dialler.open_lane(way, &session.errand.journey()).await?;
        session.errand.is_known_as(dialled.trace());
        let Dialled { stream, server, opened } = dialled;
        let Opened { opening, seal, .. } = opened.expect("invariant: a lane was opened at a relay");
        let stream = Rc::new(stream);
        session.reached(server, Rc::clone(&stream), asked);
        pump::abort(&stream);
        session.answered(opening.answer(&stream, &seal).await?, asked);
        self.grant().await?;
        let up = self.lane(Remote::next(way).expect("invariant: a chosen path begins with a relay"), Direction::Up);
        let down = self.lane(self.dialler(), Direction::Down);
        up.is_agreed();
        down.is_agreed();
        let near = self.toward_client(&down);
        let far = Carrier { lane: &up, stream: &stream, seal: &seal, meter: &session.meter };
        let tunnels = &session.entrance.shared().tunnels;
        let passes = |packet: &[u8], rules, (from, to): (&Lane, &Lane)| match judge(packet, rules)
            .and_then(|head| tunnels.pass(&head, from.remote()))
        {
            Ok(()) => to.push(packet),
            Err(why) => from.drops(why, 1),
        };
        let upward = |packet: &[u8]| passes(packet, Some(session.errand.rules()), (&down, &up));
        let downward = |packet: &[u8]| passes(packet, None, (&up, &down));
        let mut near = pin!(near.run(near.receive(upward), self.done()));
        let mut far = pin!(far.run(far.receive(downward), std::future::pending()));
        tokio::select! {
            ended = &mut near => {
                ended?;
                up.retire();
                far.await
            }
            ended = &mut far => {
                ended?;
                down.retire();
                near.await
            }
        }
    }

    fn toward_client<'b>(&'b self, lane: &'b Lane) -> Carrier<'b> {
        Carrier { lane, stream: &self.session.client, seal: &self.seal, meter: &self.session.meter }
    }
}
