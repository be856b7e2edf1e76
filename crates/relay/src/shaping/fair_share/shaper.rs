//! The shaper of one thread: finds the interface of each section, samples active sections, and sets their ceilings. A
//! [`PacedSocket`] never leaves its thread.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::share::{Allocation, Claim};
use ekiden_sys::pacing::is_multipath;
use ekiden_sys::route::{Routes, interface_name};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use super::pacing::{AchievedRate, PacingState};
use super::{FairnessStats, ShareReport};
use super::{SharedInterface, SharedInterfaces};

/// Interval of sampling rounds.
const ROUND_INTERVAL: Duration = Duration::from_millis(100);

/// Largest number of sections that are sampled in a round; further sections are sampled in later rounds. A sample costs
/// about 2 us.
const MAX_SAMPLES_PER_ROUND: usize = 1000;

/// Interval at which the statistics are updated.
const STATS_INTERVAL: Duration = Duration::from_secs(1);

/// The sections of one thread on shared interfaces.
#[derive(Debug)]
pub struct ThreadShaper {
    index: usize,
    shared_interfaces: Arc<SharedInterfaces>,
    interfaces: RefCell<Vec<ShapedInterface>>,
    routes: OnceCell<Option<Routes>>,
    /// Active sections; the next one to sample comes first.
    sending: RefCell<VecDeque<Rc<PacedSocket>>>,
    /// Time of the last update of the statistics, or of the first activation.
    stats_at: RefCell<Option<Instant>>,
    wake: Notify,
}

/// An interface and the report of this thread.
#[derive(Debug)]
struct ShapedInterface {
    interface: Arc<SharedInterface>,
    stats: FairnessStats,
    /// Kept to reuse the allocation.
    report: ShareReport,
}

impl ThreadShaper {
    /// Returns a shaper without sections.
    pub fn new(shares: Arc<SharedInterfaces>) -> Rc<Self> {
        Rc::new(Self {
            index: shares.next_shaper_index(),
            shared_interfaces: shares,
            interfaces: RefCell::default(),
            routes: OnceCell::new(),
            sending: RefCell::default(),
            stats_at: RefCell::default(),
            wake: Notify::new(),
        })
    }

    /// Applies a change of the interfaces. Sections on removed interfaces are released.
    pub fn update_interfaces(&self) {
        let interfaces = self.shared_interfaces.interfaces();
        self.sending.borrow_mut().retain(|member| {
            let is_shared = interfaces.iter().any(|interface| member.is_on(interface));
            if !is_shared {
                member.deactivate();
            }
            is_shared
        });
        let shaped =
            |interface| ShapedInterface { interface, stats: FairnessStats::default(), report: ShareReport::default() };
        *self.interfaces.borrow_mut() = interfaces.into_iter().map(shaped).collect();
    }

    /// Registers a section. Returns `None` if its interface is not shared.
    pub fn register(self: &Rc<Self>, stream: &Rc<TcpStream>, weight: u32) -> Option<Rc<PacedSocket>> {
        let interfaces = self.interfaces.borrow();
        if interfaces.is_empty() || is_multipath(stream.as_fd()) {
            return None;
        }
        let routes = self.routes.get_or_init(|| Routes::open().ok()).as_ref()?;
        let name = interface_name(routes.egress_interface(stream.as_fd()).ok()?).ok()?;
        let shaped = interfaces.iter().find(|shaped| shaped.interface.name() == name)?;
        Some(PacedSocket::new(stream, &shaped.interface, self, weight))
    }

    /// Returns whether the interface of `member` is still shared.
    pub fn is_shaping(&self, member: &PacedSocket) -> bool {
        self.interfaces.borrow().iter().any(|shaped| member.is_on(&shaped.interface))
    }

    /// Samples `member` from now on.
    pub fn activate(&self, member: Rc<PacedSocket>) {
        self.sending.borrow_mut().push_back(member);
        self.wake.notify_one();
    }

    /// Runs rounds while sections are active.
    pub async fn run(self: Rc<Self>) {
        loop {
            self.wake.notified().await;
            let mut rounds = interval(ROUND_INTERVAL);
            rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                rounds.tick().await;
                self.run_round(Instant::now());
                if self.sending.borrow().is_empty() {
                    break;
                }
            }
        }
    }

    /// Samples sections, reports claims, and sets ceilings.
    pub fn run_round(&self, now: Instant) {
        let mut sending = self.sending.borrow_mut();
        let sampled = self.sample_due(&mut sending, now);
        self.update_stats(&sending, now);
        for shaped in &mut *self.interfaces.borrow_mut() {
            let members = || sending.iter().filter(|member| member.is_on(&shaped.interface));
            shaped.report.claims.clear();
            shaped.report.claims.extend(members().map(|member| member.claim()));
            shaped.report.stats = shaped.stats;
            let division = shaped.interface.exchange_report(self.index, &mut shaped.report);
            for member in sending.iter().rev().take(sampled).filter(|member| member.is_on(&shaped.interface)) {
                // The next sample detects a closed socket.
                let _ = member.apply_share(&division);
            }
        }
    }

    /// Samples the sections that are due and moves them to the end. Returns their number.
    fn sample_due(&self, sending: &mut VecDeque<Rc<PacedSocket>>, now: Instant) -> usize {
        let mut stay = 0;
        for _ in 0..sending.len().min(MAX_SAMPLES_PER_ROUND) {
            let Some(member) = sending.pop_front() else { break };
            if member.sample(now) {
                sending.push_back(member);
                stay += 1;
            } else {
                member.deactivate();
            }
        }
        stay
    }

    /// Updates the statistics once a second, and clears them when no section is active.
    fn update_stats(&self, sending: &VecDeque<Rc<PacedSocket>>, now: Instant) {
        let since = *self.stats_at.borrow_mut().get_or_insert(now);
        if sending.is_empty() {
            self.stats_at.take();
        } else if now.saturating_duration_since(since) < STATS_INTERVAL {
            return;
        } else {
            self.stats_at.replace(Some(now));
        }
        for shaped in &mut *self.interfaces.borrow_mut() {
            let mut figures = FairnessStats::default();
            let members = sending.iter().filter(|member| member.is_on(&shaped.interface));
            for (achieved, weight) in members.filter_map(|member| member.take_rate(now)) {
                figures.rate += achieved.rate;
                if achieved.is_limited {
                    figures.limited += 1;
                    figures.rate_sum += achieved.rate / weight;
                    figures.rate_square_sum += (achieved.rate / weight).powi(2);
                }
            }
            shaped.stats = figures;
        }
    }
}

/// Bytes that an idle section transfers before it counts as active. Occasional short messages need no sampling, because
/// they delay no other section.
const ACTIVE_BYTES: u64 = 16 * 1024;

/// A section on a shared interface. The session's telemetry reports its bytes; the shaper holds it while it is active.
#[derive(Debug)]
pub struct PacedSocket {
    /// The socket; cannot be upgraded after the section has closed.
    stream: Weak<TcpStream>,
    interface: Arc<SharedInterface>,
    shaper: Weak<ThreadShaper>,
    weight: Cell<u32>,
    /// Bytes transferred while idle; `None` while active.
    idle_bytes: Cell<Option<u64>>,
    active: RefCell<Option<Box<PacingState>>>,
}

impl PacedSocket {
    /// Returns a section that has not sent yet.
    pub fn new(
        stream: &Rc<TcpStream>,
        interface: &Arc<SharedInterface>,
        shaper: &Rc<ThreadShaper>,
        weight: u32,
    ) -> Rc<Self> {
        Rc::new(Self {
            stream: Rc::downgrade(stream),
            interface: Arc::clone(interface),
            shaper: Rc::downgrade(shaper),
            weight: Cell::new(weight),
            idle_bytes: Cell::new(Some(0)),
            active: RefCell::default(),
        })
    }

    /// Sets the weight of the section.
    pub fn set_weight(&self, weight: u32) {
        self.weight.set(weight);
    }

    /// Returns whether the section is on `interface`.
    pub fn is_on(&self, interface: &Arc<SharedInterface>) -> bool {
        Arc::ptr_eq(&self.interface, interface)
    }

    /// Records bytes written to the section.
    pub fn record_bytes(self: &Rc<Self>, bytes: u64) {
        let Some(before) = self.idle_bytes.get() else { return };
        if before + bytes < ACTIVE_BYTES {
            return self.idle_bytes.set(Some(before + bytes));
        }
        self.idle_bytes.set(Some(0));
        self.activate(Instant::now());
    }

    /// Applies the section's initial ceiling, and starts to sample the section. If the kernel rejects the ceiling, the
    /// section stays idle.
    fn activate(self: &Rc<Self>, now: Instant) {
        let (Some(stream), Some(shaper)) = (self.stream.upgrade(), self.shaper.upgrade()) else { return };
        if !shaper.is_shaping(self) {
            return;
        }
        let Ok(active) = PacingState::new(stream.as_fd(), now) else { return };
        *self.active.borrow_mut() = Some(Box::new(active));
        let ceiling = self.interface.initial_ceiling(self.weight.get());
        if self.with_active(|active, stream| active.apply_ceiling(stream.as_fd(), ceiling).is_ok()) {
            self.idle_bytes.set(None);
            shaper.activate(Rc::clone(self));
        } else {
            self.deactivate();
        }
    }

    /// Returns the section's claim on the rate.
    pub fn claim(&self) -> Claim {
        let rate = self.active.borrow().as_ref().map_or(0, |active| active.demand());
        Claim { weight: self.weight.get(), demand: rate }
    }

    /// Samples the bytes sent. Returns false if the section has closed or become idle.
    pub fn sample(&self, now: Instant) -> bool {
        self.with_active(|active, stream| active.sample(stream.as_fd(), now).unwrap_or(false))
    }

    /// Applies the section's part of `division`. Returns false if the section has closed.
    pub fn apply_share(&self, division: &Allocation) -> bool {
        let ceiling = division.ceiling(self.claim());
        self.with_active(|active, stream| active.apply_ceiling(stream.as_fd(), ceiling).is_ok())
    }

    /// Returns the rate since the last call, and the weight; `None` while idle.
    pub fn take_rate(&self, now: Instant) -> Option<(AchievedRate, f64)> {
        let rate = self.active.borrow_mut().as_mut().map(|active| active.take_rate(now));
        rate.map(|rate| (rate, f64::from(self.weight.get())))
    }

    /// Makes the section idle and restores its ceiling. Also called when the interface is no longer shared.
    pub fn deactivate(&self) {
        if let Some(active) = self.active.take()
            && let Some(stream) = self.stream.upgrade()
        {
            active.restore_ceiling(stream.as_fd());
        }
        self.idle_bytes.set(Some(0));
    }

    fn with_active(&self, act: impl FnOnce(&mut PacingState, &TcpStream) -> bool) -> bool {
        let mut active = self.active.borrow_mut();
        let (Some(active), Some(stream)) = (active.as_mut(), self.stream.upgrade()) else { return false };
        act(active, &stream)
    }
}
