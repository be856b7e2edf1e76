//! The lanes that this relay dials for one device: one for each path, made when there is something to send.
//!
//! While there is no lane packets are dropped; after a failure the next attempt waits, longer each time. The operator is
//! told when that begins and when it ends, and not in between.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::addr::{ClientAddr, Host};
use ekiden_proto::direction::Direction;
use ekiden_proto::wire::ip::Head;
use ekiden_proto::wire::section::open::MOST_HOPS;
use tokio::net::TcpStream;

use super::carrier::{Broken, Carrier};
use super::crossing::Crossing;
use super::judge::{Dropped, judge};
use super::lane::Lane;
use super::sources::Remote;
use crate::config::access::Rules;
use crate::dial::{Dialled, Dialler, Journey, Opened};
use crate::entrance::Entrance;
use crate::path::{self, Way};
use crate::pump::{Meter, silence};
use crate::tuning::Tuner;

/// How long nobody tries after the first failure; twice as long after each that follows.
const REST: Duration = Duration::from_millis(100);

/// The longest of these.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// Packets of many hosts share a lane.
const NOBODY: ClientAddr = ClientAddr(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));

/// The lanes of one device, on the thread that reads it.
pub struct Lanes {
    entrance: Rc<Entrance>,
    crossing: Arc<Crossing>,
    /// By the name of their path.
    kept: RefCell<HashMap<Box<str>, Kept>>,
}

/// What is known of the lane of a path.
#[derive(Default)]
struct Kept {
    lane: Option<Arc<Lane>>,
    trouble: Option<Trouble>,
}

/// A lane that cannot be had.
struct Trouble {
    since: Instant,
    failures: u32,
    rests_until: Instant,
}

impl Lanes {
    /// None so far.
    pub fn new(entrance: Rc<Entrance>) -> Rc<Self> {
        let crossing = entrance.shared().metrics.crossing(&entrance.listener.name);
        Rc::new(Self { entrance, crossing, kept: RefCell::default() })
    }

    /// Takes a packet that the host sent into the device. Never waits.
    pub fn carry(self: &Rc<Self>, packet: &[u8]) {
        match judge(packet, Some(self.rules())).and_then(|head| self.lane(&head)) {
            Ok(lane) => lane.push(packet),
            Err(why) => self.crossing.dropped(why, 1),
        }
    }

    fn rules(&self) -> Rules<'_> {
        Rules { listener: &self.entrance.listener.access, peer: None }
    }

    /// The lane in which the destination was last seen as a source, if the relay there may still send from that address; else the
    /// lane of the best path that has not failed.
    fn lane(self: &Rc<Self>, head: &Head) -> Result<Arc<Lane>, Dropped> {
        let shared = self.entrance.shared();
        let seen = shared.lanes.seen.lane(head.destination);
        if let Some(lane) = seen.filter(|lane| shared.tunnels.permits(lane.remote(), head.destination)) {
            return Ok(lane);
        }
        let (config, destination) = (&self.entrance.config, Host::from(head.destination));
        let ways = path::ways_to(config, &shared.pools, &destination, head.port.unwrap_or(0));
        // Past all relays it would come back into the device.
        let mut onward = ways.iter().filter(|way| !way.path.is_direct());
        onward.find_map(|way| self.lane_of(way)).ok_or(Dropped::NoLane)
    }

    /// The lane of a path, which is dialled if there is none; nothing while that rests.
    fn lane_of(self: &Rc<Self>, way: &Way) -> Option<Arc<Lane>> {
        let mut all = self.kept.borrow_mut();
        let kept = all.entry(way.path.name.clone()).or_default();
        if let Some(lane) = kept.lane.as_ref().filter(|lane| !lane.is_retired()) {
            return Some(Arc::clone(lane));
        }
        if kept.trouble.as_ref().is_some_and(|trouble| Instant::now() < trouble.rests_until) {
            return None;
        }
        let listener = &self.entrance.listener.name;
        let remote = Remote::of_path(&way.path);
        let lane = self.entrance.shared().lanes.enter(listener, &self.crossing, remote, Direction::Up);
        kept.lane = Some(Arc::clone(&lane));
        let trip = Trip { lanes: Rc::downgrade(self), entrance: Rc::clone(&self.entrance), way: way.clone() };
        tokio::task::spawn_local(trip.run(Arc::clone(&lane)));
        Some(lane)
    }

    /// Notes that a lane of this path stands.
    fn stands(&self, path: &str) {
        let mut all = self.kept.borrow_mut();
        if let Some(trouble) = all.get_mut(path).and_then(|kept| kept.trouble.take()) {
            let (listener, span) = (&self.entrance.listener.name, trouble.since.elapsed().as_secs_f64());
            self.entrance.warn(format!("{listener}: the lane by {path} is there again, after {span:.1} seconds"));
        }
    }

    /// Notes that it has ended, and whether something went wrong.
    fn ended(&self, path: &str, lane: &Arc<Lane>, broken: Option<&Broken>) {
        let mut all = self.kept.borrow_mut();
        let Some(kept) = all.get_mut(path) else { return };
        kept.lane.take_if(|kept| Arc::ptr_eq(kept, lane));
        let Some(broken) = broken else { return };
        let now = Instant::now();
        let trouble = kept.trouble.get_or_insert_with(|| {
            let listener = &self.entrance.listener.name;
            self.entrance
                .warn(format!("{listener}: no lane by {path}, so packets that are not TCP are dropped: {broken}"));
            Trouble { since: now, failures: 0, rests_until: now }
        });
        trouble.rests_until = now + REST.saturating_mul(1 << trouble.failures.min(16)).min(LONGEST_REST);
        trouble.failures += 1;
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.kept.borrow().values().filter_map(|kept| kept.lane.as_ref()).for_each(|lane| lane.retire());
    }
}

/// One lane from dialling to its end.
struct Trip {
    lanes: Weak<Lanes>,
    entrance: Rc<Entrance>,
    way: Way,
}

impl Trip {
    async fn run(self, lane: Arc<Lane>) {
        let mut ended = self.go(&lane).await;
        // The relay has restarted since that connection was made ready, and nobody has heard of a lane yet.
        if let Err((broken, true)) = &ended
            && broken.is_break()
        {
            ended = self.go(&lane).await;
        }
        lane.retire();
        let lanes = self.lanes.upgrade();
        let broken = ended.err().map(|(broken, _)| broken);
        lanes.iter().for_each(|lanes| lanes.ended(&self.way.path.name, &lane, broken.as_ref()));
    }

    /// Dials and carries; with an error, whether the connection had been ready before.
    async fn go(&self, lane: &Arc<Lane>) -> Result<(), (Broken, bool)> {
        let dialled = self.dialler().open_lane(&self.way, &journey()).await.map_err(|error| (error.into(), false))?;
        let was_ready = dialled.was_ready();
        self.carry(lane, dialled).await.map_err(|broken| (broken, was_ready))
    }

    async fn carry(&self, lane: &Arc<Lane>, dialled: Dialled) -> Result<(), Broken> {
        let Dialled { stream, opened, .. } = dialled;
        let Opened { opening, seal, .. } = opened.expect("invariant: a lane was opened at a relay");
        let (stream, entrance) = (Rc::new(stream), &self.entrance);
        let meter = Meter::new(entrance.totals());
        meter.is_sent_by(Direction::Up, entrance.worker.desk.member(&stream, entrance.listener.weight));
        meter.is_tuned_by(Direction::Up, self.tuner(&stream));
        let carrier = Carrier { lane, stream: &stream, seal: &seal, meter: &meter };
        let receiving = async {
            opening.answer(&stream, &seal).await?;
            lane.is_agreed();
            self.lanes.upgrade().iter().for_each(|lanes| lanes.stands(&self.way.path.name));
            carrier.receive(|packet| lane.gives(packet, entrance.shared(), None)).await
        };
        carrier.run(receiving, silence(&meter, entrance.config.timeouts.idle)).await
    }

    /// Who tunes the section to the first hop.
    fn tuner(&self, stream: &Rc<TcpStream>) -> Option<Rc<Tuner>> {
        let hop = self.way.path.hops.first().expect("invariant: a lane goes by relays");
        self.entrance.worker.rounds.tuner(stream, &hop.profile, self.entrance.config.timeouts.idle)
    }

    fn dialler(&self) -> Dialler<'_> {
        let entrance = &self.entrance;
        Dialler {
            marks: entrance.config.needed_marks(),
            source: None,
            names: entrance.names(),
            congestion: &entrance.config.congestion,
            pools: &entrance.shared().pools,
            rules: Rules { listener: &entrance.listener.access, peer: None },
            patience: entrance.config.timeouts.connect,
        }
    }
}

fn journey() -> Journey {
    Journey { trace: None, client: NOBODY, early: false, encrypt: true, hops_left: MOST_HOPS }
}
