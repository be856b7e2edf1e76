//! The lanes that this relay dials for one device: one for each path, on demand.
//!
//! Without a lane packets are dropped. After a failure the next attempt is delayed, with exponential backoff. Packets
//! take the next path until an attempt has succeeded. The start and the end of an outage are reported.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::addr::{ClientAddr, Host};
use ekiden_proto::direction::Direction;
use ekiden_proto::wire::ip::IpHeader;
use ekiden_proto::wire::section::Purpose;
use ekiden_proto::wire::section::open::MAX_HOPS;
use tokio::net::TcpStream;

use super::filter::judge;
use super::lane::Lane;
use super::sources::LaneRemote;
use super::transport::{LaneError, LaneTransport, dial_and_run};
use crate::config::access::AccessPolicy;
use crate::dial::{Dialled, Dialler, OpenParams, OpenedSession};
use crate::events::metrics::tunnels::DropReason;
use crate::events::metrics::tunnels::PacketCounters;
use crate::ingress::listener::ListenerContext;
use crate::path::{self, PathChoice};
use crate::pump::{FlowStats, wait_idle};
use crate::session::FlowTelemetry;
use crate::shaping::autotune::SectionTuning;

/// The delay after the first failure; it doubles with each further failure.
const INITIAL_BACKOFF: Duration = Duration::from_millis(100);

/// The longest delay between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// Unspecified client address: packets of many hosts share a lane.
const NO_CLIENT: ClientAddr = ClientAddr(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));

/// The lanes of one device, on the thread that reads the device.
pub struct DeviceLanes {
    context: Rc<ListenerContext>,
    /// The counters of the listener.
    pub(super) counters: Arc<PacketCounters>,
    /// The slots by the name of the path.
    slots: RefCell<HashMap<Box<str>, LaneSlot>>,
}

/// The state of a path's lane.
#[derive(Default)]
struct LaneSlot {
    lane: Option<Arc<Lane>>,
    backoff: Option<LaneBackoff>,
}

/// The backoff state of a lane that cannot be established.
struct LaneBackoff {
    failing_since: Instant,
    failures: u32,
    retry_at: Instant,
}

impl DeviceLanes {
    /// Returns the lanes of a device, empty at first.
    pub fn new(context: Rc<ListenerContext>) -> Rc<Self> {
        let packet_counters = context.services().events.metrics.packet_counters(&context.listener.name);
        Rc::new(Self { context, counters: packet_counters, slots: RefCell::default() })
    }

    /// Sends a packet that the host has sent into the device. Never waits.
    pub fn send(self: &Rc<Self>, packet: &[u8]) {
        match judge(packet, &[self.rules()], None).and_then(|head| self.lane_to(&head)) {
            Ok(lane) => {
                // Before the push, because the answer may arrive before this function returns.
                self.context.services().lanes.flows.record(packet, Instant::now());
                lane.push(packet);
            }
            Err(reason) => self.counters.record_dropped(reason, 1),
        }
    }

    fn rules(&self) -> AccessPolicy<'_> {
        AccessPolicy { listener: &self.context.listener.access, peer: None }
    }

    /// Returns the lane in which the destination was last seen as a source, if its relay may still send from that
    /// address; else the lane of the best path whose last attempt has not failed; else the lane of the best path with
    /// an attempt in progress.
    fn lane_to(self: &Rc<Self>, head: &IpHeader) -> Result<Arc<Lane>, DropReason> {
        let services = self.context.services();
        let last_lane = services.lanes.addresses.lane(head.destination);
        if let Some(lane) = last_lane.filter(|lane| services.tunnels.permits(lane.remote(), head.destination)) {
            return Ok(lane);
        }
        let (config, destination) = (&self.context.config, Host::from(head.destination));
        let path_choices = path::paths_to(config, &services.pools, &destination, head.port.unwrap_or(0));
        let mut retried = None;
        // On the path `direct` the kernel would route the packet back into the device.
        for path_choice in path_choices.iter().filter(|path_choice| !path_choice.path.is_direct()) {
            match self.lane_by_path(path_choice) {
                Some(lane) if lane.is_established() || !self.is_failing(&path_choice.path.name) => return Ok(lane),
                lane => retried = retried.or(lane),
            }
        }
        retried.ok_or(DropReason::NoLane)
    }

    /// Returns whether the last completed attempt at a path has failed.
    fn is_failing(&self, path: &str) -> bool {
        self.slots.borrow().get(path).is_some_and(|slot| slot.backoff.is_some())
    }

    /// Returns the lane of a path, and dials a new lane if there is none. `None` during backoff.
    fn lane_by_path(self: &Rc<Self>, path_choice: &PathChoice) -> Option<Arc<Lane>> {
        let mut slots = self.slots.borrow_mut();
        let slot = slots.entry(path_choice.path.name.clone()).or_default();
        if let Some(lane) = slot.lane.as_ref().filter(|lane| !lane.is_retired()) {
            return Some(Arc::clone(lane));
        }
        if slot.backoff.as_ref().is_some_and(|backoff| Instant::now() < backoff.retry_at) {
            return None;
        }
        let listener = &self.context.listener.name;
        let remote = LaneRemote::from_path(&path_choice.path);
        let lane = self.context.services().lanes.register(listener, &self.counters, remote, Direction::Up);
        slot.lane = Some(Arc::clone(&lane));
        let task = LaneTask {
            lanes: Rc::downgrade(self),
            context: Rc::clone(&self.context),
            path_choice: path_choice.clone(),
        };
        tokio::task::spawn_local(task.run(Arc::clone(&lane)));
        Some(lane)
    }

    /// Records that a lane of this path is established.
    fn on_established(&self, path: &str) {
        let mut slots = self.slots.borrow_mut();
        if let Some(backoff) = slots.get_mut(path).and_then(|slot| slot.backoff.take()) {
            let (listener, span) = (&self.context.listener.name, backoff.failing_since.elapsed().as_secs_f64());
            self.context.warn(format!("{listener}: the lane by {path} is open again, after {span:.1} seconds"));
        }
    }

    /// Records the end of a lane, with the error if there was one.
    fn on_ended(&self, path: &str, lane: &Arc<Lane>, error: Option<&LaneError>) {
        let mut slots = self.slots.borrow_mut();
        let Some(slot) = slots.get_mut(path) else { return };
        slot.lane.take_if(|current| Arc::ptr_eq(current, lane));
        let Some(error) = error else { return };
        let now = Instant::now();
        let backoff = slot.backoff.get_or_insert_with(|| {
            let listener = &self.context.listener.name;
            self.context.warn(format!(
                "{listener}: no lane by {path}, so packets that are not TCP take the next path or are dropped: {error}"
            ));
            LaneBackoff { failing_since: now, failures: 0, retry_at: now }
        });
        backoff.retry_at = now + INITIAL_BACKOFF.saturating_mul(1 << backoff.failures.min(16)).min(MAX_BACKOFF);
        backoff.failures += 1;
    }
}

impl Drop for DeviceLanes {
    fn drop(&mut self) {
        self.slots.borrow().values().filter_map(|slot| slot.lane.as_ref()).for_each(|lane| lane.retire());
    }
}

/// One lane, from dialling to its end.
struct LaneTask {
    lanes: Weak<DeviceLanes>,
    context: Rc<ListenerContext>,
    path_choice: PathChoice,
}

impl LaneTask {
    async fn run(self, lane: Arc<Lane>) {
        let dial = async || self.dialler().open_lane(&self.path_choice, &Purpose::Datagrams, &open_params()).await;
        let ended = dial_and_run(dial, async |dialled| self.run_lane(&lane, dialled).await).await;
        lane.retire();
        let lanes = self.lanes.upgrade();
        lanes.iter().for_each(|lanes| lanes.on_ended(&self.path_choice.path.name, &lane, ended.as_ref().err()));
    }

    async fn run_lane(&self, lane: &Arc<Lane>, dialled: Dialled) -> Result<(), LaneError> {
        let Dialled { stream, opened, .. } = dialled;
        let OpenedSession { opening, section, .. } = opened.expect("invariant: a lane was opened at a relay");
        let (stream, context) = (Rc::new(stream), &self.context);
        let telemetry = FlowTelemetry::new(Rc::clone(context));
        telemetry.accounts.ignore_rates();
        telemetry.set_paced_by(Direction::Up, context.thread.shaper.register(&stream, context.listener.weight));
        telemetry.set_tuning(Direction::Up, self.tuning(&stream));
        let stats = FlowStats::new(telemetry);
        let carrier = LaneTransport { lane, stream: &stream, cipher: &section.cipher, stats: &stats };
        let rules = lane.remote().access_rules(&context.config);
        let receiving = async {
            opening.wait_answer(&stream, &section.cipher).await?;
            lane.mark_established();
            self.lanes.upgrade().iter().for_each(|lanes| lanes.on_established(&self.path_choice.path.name));
            carrier.receive(|packet| lane.deliver(packet, context.services(), &rules)).await
        };
        carrier.run(receiving, wait_idle(&stats, context.config.timeouts.idle)).await
    }

    /// Returns the tuning of the section to the first hop.
    fn tuning(&self, stream: &Rc<TcpStream>) -> SectionTuning {
        let hop = self.path_choice.path.hops.first().expect("invariant: the path of a lane has relays");
        self.context.section_tuning(stream, &hop.profile)
    }

    fn dialler(&self) -> Dialler<'_> {
        let context = &self.context;
        Dialler {
            marks: context.config.needed_marks(),
            source: None,
            names: context.resolver(),
            congestion: &context.config.congestion,
            pools: &context.services().pools,
            rules: AccessPolicy { listener: &context.listener.access, peer: None },
            destination: None,
            tls: None,
            server_name: None,
            time_limit: context.config.timeouts.connect,
        }
    }
}

fn open_params() -> OpenParams {
    OpenParams { trace: None, client: NO_CLIENT, early: false, encrypt: true, can_frame: false, hops_left: MAX_HOPS }
}
