//! Tunes the TCP options of running sections: samples the sections while they transfer bytes, and applies the settings
//! that [`ekiden_proto::tuning`] computes (docs/tuning.md).
//!
//! A [`Tuner`] belongs to one section of a session. The session's counters mark it active, and the [`TuneScheduler`] of
//! its thread samples active tuners ten times a second; idle sections cost nothing. Settings that the profile fixes are
//! not changed, and a setting that the kernel has rejected is not tried again.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::profile::{Outcome, Profile, Setting};
use ekiden_proto::tuning::{SHORT_PATH_CONTROL, SectionTuner, Tuning, TuningSample, needs_system_control};
use ekiden_proto::units::Span;
use ekiden_sys::congestion;
use ekiden_sys::route::Routes;
use ekiden_sys::sockopt::{SocketRole, apply_setting};
use ekiden_sys::tuned::{TcpTimers, tcp_timers, tuning_sample};
use serde::Serialize;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval};

use crate::config::congestion::CongestionControls;

/// Interval of tuning rounds.
const ROUND_INTERVAL: Duration = Duration::from_millis(100);

/// Largest number of sections that are sampled in a round; further sections are sampled in later rounds. A sample costs
/// about 2 us.
const MAX_TUNED_PER_ROUND: usize = 1000;

/// Bytes after which a section is first sampled if its profile leaves only the congestion control to the path. From
/// then on the section is sampled each time the bytes have doubled, and in every round. Most sessions end before, and
/// sampling them would cost more than it gains.
const CHOOSE_AFTER: u64 = 64 * 1024;

/// The tuned sections with recent traffic.
#[derive(Debug)]
pub struct TuneScheduler {
    /// The next section to tune comes first.
    queue: RefCell<VecDeque<Rc<Tuner>>>,
    routes: OnceCell<Option<Routes>>,
    started_at: Instant,
    wake: Notify,
}

impl TuneScheduler {
    /// Returns a scheduler without sections.
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            queue: RefCell::default(),
            routes: OnceCell::new(),
            started_at: Instant::now(),
            wake: Notify::new(),
        })
    }

    /// Returns a tuner for a section, if its profile leaves a setting to the path. `idle` is the idle timeout of the
    /// session.
    pub fn tuner(
        self: &Rc<Self>,
        stream: &Rc<TcpStream>,
        profile: &Profile,
        controls: &CongestionControls,
        idle: Duration,
    ) -> Option<Rc<Tuner>> {
        let long_path_control = controls.long_path_control(profile);
        let timers = profile.is_tuned().then(|| Box::new(TimerTuning::new(profile, idle)));
        let is_needed = timers.is_some() || long_path_control.is_some();
        is_needed.then(|| Tuner::new(stream, self, timers, long_path_control, 0))
    }

    /// Returns the tuning of a section of a session, with the parameters of [`Self::tuner`].
    pub fn section_tuning(
        self: &Rc<Self>,
        stream: &Rc<TcpStream>,
        profile: &Profile,
        controls: &CongestionControls,
        idle: Duration,
    ) -> SectionTuning {
        if !profile.is_tuned() && controls.long_path_control(profile).is_some() {
            return SectionTuning::Later { stream: Rc::downgrade(stream), moved: 0 };
        }
        self.tuner(stream, profile, controls, idle).into()
    }

    /// Schedules a section for the next round.
    pub fn enqueue(&self, tuner: Rc<Tuner>) {
        let mut moving = self.queue.borrow_mut();
        if moving.is_empty() {
            self.wake.notify_one();
        }
        moving.push_back(tuner);
    }

    /// Runs rounds while sections transfer bytes.
    pub async fn run(self: Rc<Self>) {
        let mut rounds = interval(ROUND_INTERVAL);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            self.wake.notified().await;
            while !self.queue.borrow().is_empty() {
                rounds.tick().await;
                self.run_round(self.started_at.elapsed());
            }
        }
    }

    /// Tunes the scheduled sections. Each section is scheduled again when it transfers bytes.
    pub fn run_round(&self, now: Duration) {
        let turns = self.queue.borrow().len().min(MAX_TUNED_PER_ROUND);
        for _ in 0..turns {
            let Some(tuner) = self.queue.borrow_mut().pop_front() else { break };
            tuner.tune(now);
        }
    }

    /// Returns the netlink socket for routes, opened on the first call; `None` if it cannot be opened.
    pub fn routes(&self) -> Option<&Routes> {
        self.routes.get_or_init(|| Routes::open().ok()).as_ref()
    }
}

/// The tuning of a section of a session.
#[derive(Debug, Default)]
pub enum SectionTuning {
    /// The profile leaves no setting to the path.
    #[default]
    None,
    /// Only the congestion control is to be chosen, and too few bytes were transferred to choose it. Most sections end
    /// in this state and never have a tuner.
    Later {
        /// The socket; cannot be upgraded after the section has closed.
        stream: Weak<TcpStream>,
        /// Bytes that have moved through the section.
        moved: u32,
    },
    /// The tuner of the section.
    Tuner(Rc<Tuner>),
}

impl From<Option<Rc<Tuner>>> for SectionTuning {
    fn from(tuner: Option<Rc<Tuner>>) -> Self {
        tuner.map_or(Self::None, Self::Tuner)
    }
}

impl SectionTuning {
    /// Counts `bytes` read from or written to the section, and schedules tuning when it is due.
    pub fn on_bytes_moved(&mut self, bytes: u64, scheduler: &Rc<TuneScheduler>, controls: &CongestionControls) {
        if let Self::Later { stream, moved } = self {
            let before = u64::from(*moved);
            if before + bytes < CHOOSE_AFTER {
                *moved = (before + bytes) as u32;
                return;
            }
            let Some(stream) = stream.upgrade() else { return };
            *self = Self::Tuner(Tuner::new(&stream, scheduler, None, controls.costly_default(), before));
        }
        if let Self::Tuner(tuner) = self {
            tuner.on_bytes_moved(bytes);
        }
    }

    /// Returns the tuner, if the section has one.
    pub const fn tuner(&self) -> Option<&Rc<Tuner>> {
        match self {
            Self::Tuner(tuner) => Some(tuner),
            Self::None | Self::Later { .. } => None,
        }
    }
}

/// The tuner of one section of a session. The scheduler holds it while the section transfers bytes.
#[derive(Debug)]
pub struct Tuner {
    /// The socket; cannot be upgraded after the section has closed.
    stream: Weak<TcpStream>,
    scheduler: Weak<TuneScheduler>,
    /// The settings that follow the path; `None` if the profile has no tuning.
    timers: Option<Box<TimerTuning>>,
    /// The congestion control for a long path.
    long_path_control: Option<Arc<str>>,
    /// Whether the section may still change to `long_path_control`.
    has_choice: Cell<bool>,
    /// Bytes that have moved through the section.
    moved: Cell<u64>,
    /// Whether the section is scheduled for the next round.
    is_queued: Cell<bool>,
}

/// The part of a tuner that follows the path for the lifetime of the section.
#[derive(Debug)]
struct TimerTuning {
    /// Settings that the profile fixes.
    overrides: ProfileOverrides,
    /// `None` before the first sample.
    section: RefCell<Option<SectionTuner>>,
    /// Idle timeout of the session.
    idle_timeout: Duration,
    /// Options that the kernel has rejected, with the errors.
    refused: RefCell<Vec<(&'static str, String)>>,
    /// Largest plaintext of a record at present, in bytes; `None` if the session is not encrypted.
    max_record: Cell<Option<usize>>,
}

/// Settings that the profile fixes and tuning does not change.
#[derive(Debug, Clone, Copy)]
struct ProfileOverrides {
    rto_min: bool,
    rto_max: bool,
    delack_max: bool,
    thin_linear_timeouts: bool,
    user_timeout: bool,
}

impl ProfileOverrides {
    fn from_profile(profile: &Profile) -> Self {
        let user_timeout = profile.has_setting("user_timeout");
        // With the number or the interval of probes, the profile defines when a peer is dead. A user timeout (tcp(7)),
        // which `rto_max` needs, would override it.
        let probes = profile.has_setting("keepalive_interval") || profile.has_setting("keepalive_count");
        Self {
            rto_min: profile.has_setting("rto_min"),
            rto_max: profile.has_setting("rto_max") || probes && !user_timeout,
            delack_max: profile.has_setting("delack_max"),
            thin_linear_timeouts: profile.has_setting("thin_linear_timeouts"),
            user_timeout,
        }
    }

    fn has(self, setting: &Setting) -> bool {
        match setting {
            Setting::RtoMin(_) => self.rto_min,
            Setting::RtoMax(_) => self.rto_max,
            Setting::DelackMax(_) => self.delack_max,
            Setting::ThinLinearTimeouts(_) => self.thin_linear_timeouts,
            Setting::UserTimeout(_) => self.user_timeout,
            _ => true,
        }
    }
}

impl Tuner {
    /// Returns a tuner for a section that has transferred `moved` bytes.
    fn new(
        stream: &Rc<TcpStream>,
        scheduler: &Rc<TuneScheduler>,
        timers: Option<Box<TimerTuning>>,
        long_path_control: Option<Arc<str>>,
        moved: u64,
    ) -> Rc<Self> {
        Rc::new(Self {
            stream: Rc::downgrade(stream),
            scheduler: Rc::downgrade(scheduler),
            timers,
            has_choice: Cell::new(long_path_control.is_some()),
            long_path_control,
            moved: Cell::new(moved),
            is_queued: Cell::new(false),
        })
    }

    /// Returns whether the profile has tuning beyond the choice of a congestion control.
    pub fn tunes_timers(&self) -> bool {
        self.timers.is_some()
    }

    /// Counts `bytes` read from or written to the section, and schedules the section.
    pub fn on_bytes_moved(self: &Rc<Self>, bytes: u64) {
        let before = self.moved.get();
        let moved = before + bytes;
        self.moved.set(moved);
        // On a lossy path the first round of the scheduler would be late: a download of one second would lose a tenth
        // of its time.
        if moved >= CHOOSE_AFTER && moved.ilog2() != before.max(1).ilog2() {
            self.choose_control_now();
        }
        let has_choice = moved >= CHOOSE_AFTER && self.has_choice.get();
        if (self.tunes_timers() || has_choice)
            && !self.is_queued.replace(true)
            && let Some(scheduler) = self.scheduler.upgrade()
        {
            scheduler.enqueue(Rc::clone(self));
        }
    }

    /// Sets the current largest plaintext of a record, in bytes.
    pub fn set_max_record(&self, most: usize) {
        if let Some(timers) = &self.timers {
            timers.max_record.set(Some(most));
        }
    }

    /// Samples the section and applies changed settings.
    pub fn tune(&self, now: Duration) {
        self.is_queued.set(false);
        let Some(stream) = self.stream.upgrade() else { return };
        // Fails only when the socket is already dead.
        let Ok(sample) = tuning_sample(stream.as_fd(), now) else { return };
        self.choose_control(&stream, &sample);
        let Some(timers) = &self.timers else { return };
        let mut section = timers.section.borrow_mut();
        let section = section.get_or_insert_with(|| SectionTuner::new(settings_in_force(stream.as_fd())));
        let before = section.tuning();
        for setting in section.update(sample).changes_from(before) {
            timers.set(&stream, &setting);
        }
    }

    /// Samples the section for the choice of its congestion control, if the choice is not yet made.
    fn choose_control_now(&self) {
        if self.has_choice.get()
            && let (Some(stream), Some(rounds)) = (self.stream.upgrade(), self.scheduler.upgrade())
            && let Ok(sample) = tuning_sample(stream.as_fd(), rounds.started_at.elapsed())
        {
            self.choose_control(&stream, &sample);
        }
    }

    /// Changes to the congestion control for long paths, once, if the section needs it.
    fn choose_control(&self, stream: &TcpStream, sample: &TuningSample) {
        if !self.has_choice.get() || !needs_system_control(sample) {
            return;
        }
        self.has_choice.set(false);
        // A route has set another control (`congctl` of ip-route(8)), which takes precedence.
        if congestion::of_socket(stream).is_ok_and(|name| name != SHORT_PATH_CONTROL) {
            return;
        }
        let refused = self.long_path_control.as_ref().and_then(|name| congestion::set(stream, name).err());
        if let (Some(error), Some(timers)) = (refused, &self.timers) {
            timers.refused.borrow_mut().push(("congestion", error.to_string()));
        }
    }

    /// Returns the settings in force for `ekiden status`; `None` if the section has closed or has no tuning.
    pub fn view(&self) -> Option<TuningView> {
        let timers = self.timers.as_ref()?;
        let stream = self.stream.upgrade()?;
        let scheduler = self.scheduler.upgrade()?;
        let refused = timers.refused.borrow().iter().map(|(key, why)| format!("{key}: {why}")).collect();
        Some(TuningView::from_socket(stream.as_fd(), timers.max_record.get(), scheduler.routes(), refused))
    }
}

impl TimerTuning {
    fn new(profile: &Profile, idle_timeout: Duration) -> Self {
        Self {
            overrides: ProfileOverrides::from_profile(profile),
            section: RefCell::default(),
            idle_timeout,
            refused: RefCell::default(),
            max_record: Cell::new(None),
        }
    }

    fn set(&self, stream: &TcpStream, setting: &Setting) {
        let refused = self.refused.borrow().iter().any(|(key, _)| *key == setting.key());
        if self.overrides.has(setting) || refused {
            return;
        }
        if let Outcome::Unsupported(why) = apply_setting(stream.as_fd(), setting, SocketRole::Dialer) {
            self.refused.borrow_mut().push((setting.key(), why));
        } else if matches!(setting, Setting::RtoMax(_)) {
            // The kernel counts fifteen retransmissions (`tcp_retries2`), so shorter intervals would end the connection
            // after a shorter outage. A user timeout keeps the connection for the idle timeout of its session.
            self.set(stream, &Setting::UserTimeout(Span(self.idle_timeout)));
        }
    }
}

/// Returns the settings of a socket, in which an earlier session may have left its tuning. `rto_max` is the initial
/// value, so that it is set again, and with it the user timeout of this session.
fn settings_in_force(socket: BorrowedFd<'_>) -> Tuning {
    let TcpTimers { rto_min, delack_max, thin_linear_timeouts, .. } = tcp_timers(socket);
    let initial = Tuning::INITIAL;
    Tuning {
        rto_min: rto_min.unwrap_or(initial.rto_min),
        delack_max: delack_max.unwrap_or(initial.delack_max),
        thin_linear_timeouts: thin_linear_timeouts.unwrap_or(initial.thin_linear_timeouts),
        ..initial
    }
}

/// The settings in force, according to the kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TuningView {
    /// Lower bound of the part of the retransmission timeout above the round-trip time.
    pub rto_min_seconds: Option<f64>,
    /// Upper bound of the retransmission timeout.
    pub rto_max_seconds: Option<f64>,
    /// The retransmission timeout, in seconds.
    pub rto_seconds: Option<f64>,
    /// Longest delay of acknowledgements.
    pub delack_max_seconds: Option<f64>,
    /// Unsent bytes that the kernel may hold; 0 for the host's default.
    pub notsent_lowat: Option<u32>,
    /// Whether timeouts of few segments are not doubled.
    pub thin_linear_timeouts: Option<bool>,
    /// Largest plaintext of a record, in bytes; `None` if the session is not encrypted.
    pub record: Option<usize>,
    /// The lower bound of the route, which takes precedence over that of the socket.
    pub route_rto_min_seconds: Option<f64>,
    /// Options that the kernel has rejected, with the errors.
    pub refused: Vec<String>,
}

impl TuningView {
    /// Reads the settings in force from `socket`.
    pub fn from_socket(
        socket: BorrowedFd<'_>,
        record: Option<usize>,
        routes: Option<&Routes>,
        refused: Vec<String>,
    ) -> Self {
        let timers = tcp_timers(socket);
        let seconds = |span: Option<Duration>| span.map(|span| span.as_secs_f64());
        Self {
            rto_min_seconds: seconds(timers.rto_min),
            rto_max_seconds: seconds(timers.rto_max),
            rto_seconds: seconds(timers.rto),
            delack_max_seconds: seconds(timers.delack_max),
            notsent_lowat: timers.notsent_lowat,
            thin_linear_timeouts: timers.thin_linear_timeouts,
            record,
            route_rto_min_seconds: seconds(routes.and_then(|routes| routes.locked_rto_min(socket).ok().flatten())),
            refused,
        }
    }
}

#[cfg(test)]
mod tests {
    use ekiden_testing::skipped;
    use socket2::{Domain, Protocol, Socket, Type};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const IDLE: Duration = Duration::from_secs(77);

    fn profile(settings: &[(&str, &str)]) -> Profile {
        let mut profile = Profile::named("test");
        let tune = ("tune", "true");
        settings.iter().chain([&tune]).for_each(|(key, value)| profile.set(Setting::read(key, value).unwrap()));
        profile
    }

    /// The tuner of a section on a system whose own congestion control is cheap.
    fn tuner(scheduler: &Rc<TuneScheduler>, stream: &Rc<TcpStream>, profile: &Profile) -> Option<Rc<Tuner>> {
        scheduler.tuner(stream, profile, &CongestionControls::default(), IDLE)
    }

    /// Returns a connection after its first round trip, and the other end, which is not tuned; `None` without the
    /// protocol `kind`.
    async fn connection(kind: Protocol) -> Option<(Rc<TcpStream>, TcpStream)> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(kind)).ok()?;
        socket.connect(&listener.local_addr().unwrap().into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut near = TcpStream::from_std(socket.into()).unwrap();
        let (mut far, _) = listener.accept().await.unwrap();
        near.write_all(b"ping").await.unwrap();
        far.read_exact(&mut [0; 4]).await.unwrap();
        Some((Rc::new(near), far))
    }

    /// Whether the kernel has the timer options. If not, the function prints the reason, and the test must return.
    fn has_timer_options() -> bool {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let has = tcp_timers(socket.as_fd()).rto_min.is_some();
        if !has {
            skipped("this kernel has no TCP_RTO_MIN_US (Linux 6.15)");
        }
        has
    }

    /// Returns the socket's timers after one tuning sample, for a profile with these settings, and the tuning that was
    /// computed from the sample.
    async fn tuned_timers(settings: &[(&str, &str)]) -> (TcpTimers, Tuning) {
        let (stream, _far) = connection(Protocol::TCP).await.unwrap();
        let scheduler = TuneScheduler::new();
        let tuner = tuner(&scheduler, &stream, &profile(settings)).unwrap();
        tuner.on_bytes_moved(1);
        tuner.on_bytes_moved(1);
        scheduler.run_round(Duration::from_secs(1));
        assert_eq!(tuner.view().unwrap().refused, Vec::<String>::new());
        let tuning = tuner.timers.as_ref().unwrap().section.borrow().as_ref().unwrap().tuning();
        (tcp_timers(stream.as_fd()), tuning)
    }

    #[tokio::test]
    async fn tuning_sets_only_options_that_the_profile_leaves_open() {
        if !has_timer_options() {
            return;
        }
        let (all, tuning) = tuned_timers(&[]).await;
        let millis = Duration::from_millis;
        // The kernel rounds to its clock ticks.
        let rounded = |span: Option<Duration>, wanted| span.is_some_and(|span| span.abs_diff(wanted) <= millis(4));
        assert_ne!(tuning, Tuning::INITIAL);
        assert!(
            rounded(all.rto_min, tuning.rto_min) && rounded(all.delack_max, tuning.delack_max),
            "{all:?} {tuning:?}"
        );
        assert!(rounded(all.rto_max, tuning.rto_max), "{all:?} {tuning:?}");
        assert_eq!(all.user_timeout, Some(IDLE));

        let (all, tuning) = tuned_timers(&[("user_timeout", "5min")]).await;
        assert!(rounded(all.rto_max, tuning.rto_max), "{all:?} {tuning:?}");
        assert_eq!(all.user_timeout, Some(Duration::ZERO), "a configured timeout is left alone");
        let (all, _) = tuned_timers(&[("rto_max", "9s"), ("rto_min", "60ms"), ("delack_max", "60ms")]).await;
        let untouched = (Some(millis(120_000)), Some(Duration::ZERO));
        assert_eq!((all.rto_max, all.user_timeout), untouched, "{all:?}");
        assert!(rounded(all.rto_min, millis(200)) && all.delack_max > Some(millis(8)), "{all:?}");
        let (all, _) = tuned_timers(&[("keepalive_count", "3")]).await;
        assert_eq!((all.rto_max, all.user_timeout), untouched, "keepalive settings decide when a peer is dead");
        let (stream, _far) = connection(Protocol::TCP).await.unwrap();
        assert!(tuner(&TuneScheduler::new(), &stream, &Profile::named("none")).is_none());
    }

    /// Regression: the tuner of the next session compared its decision with the initial settings, not with those that the
    /// earlier session had left in the socket.
    #[tokio::test]
    async fn settings_of_an_earlier_session_are_replaced() {
        let (stream, _far) = connection(Protocol::TCP).await.unwrap();
        // This path loses nothing, so timeouts are not to be linear, which is also the initial setting.
        let left = apply_setting(stream.as_fd(), &Setting::ThinLinearTimeouts(true), SocketRole::Dialer);
        assert_eq!(left, Outcome::Applied);
        tuner(&TuneScheduler::new(), &stream, &profile(&[])).unwrap().tune(Duration::from_secs(1));
        assert_eq!(tcp_timers(stream.as_fd()).thin_linear_timeouts, Some(false));
    }

    /// Sockets of Multipath TCP support a user timeout, but not these options. Regression: the user timeout was set
    /// also without `rto_max`, and kept sections to dead peers open for the idle timeout.
    #[tokio::test]
    async fn refused_options_are_reported_and_not_retried() {
        let Some((stream, _far)) = connection(Protocol::MPTCP).await else {
            return skipped("this kernel has no Multipath TCP, so it refuses nothing");
        };
        let scheduler = TuneScheduler::new();
        let tuner = tuner(&scheduler, &stream, &profile(&[])).unwrap();
        for second in 1..5 {
            tuner.tune(Duration::from_secs(second));
        }
        let refused = tuner.view().unwrap().refused;
        let keys: Vec<&str> = refused.iter().map(|reason| reason.split(':').next().unwrap()).collect();
        assert!(keys.contains(&"rto_min") && keys.contains(&"rto_max"), "{refused:?}");
        assert_ne!(tcp_timers(stream.as_fd()).user_timeout, Some(IDLE), "only `rto_max` needs it");
        let mut once = keys.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), keys.len(), "{refused:?}");
    }

    #[tokio::test]
    async fn long_path_replaces_the_control_of_short_paths() {
        let (stream, _far) = connection(Protocol::TCP).await.unwrap();
        let controls = CongestionControls::with_costly_default("cubic");
        let lan = Profile::built_in("lan").unwrap();
        controls.apply(stream.as_fd(), &lan, SocketRole::Dialer);
        let scheduler = TuneScheduler::new();
        let tuner = scheduler.tuner(&stream, &lan, &controls, IDLE).unwrap();
        assert!(!tuner.tunes_timers() && tuner.view().is_none(), "`lan` has no tuning");
        tuner.on_bytes_moved(CHOOSE_AFTER - 1);
        assert!(scheduler.queue.borrow().is_empty(), "most sessions end before the choice");
        tuner.on_bytes_moved(1);
        assert_eq!(scheduler.queue.borrow().len(), 1);
        scheduler.run_round(Duration::from_secs(1));
        assert_eq!(congestion::of_socket(&stream).unwrap(), "reno");

        let long = Duration::from_millis(5);
        tuner.choose_control(&stream, &TuningSample { rtt: long, min_rtt: long, ..TuningSample::default() });
        assert_eq!(congestion::of_socket(&stream).unwrap(), "cubic");
        tuner.on_bytes_moved(1);
        assert!(scheduler.queue.borrow().is_empty(), "nothing is left to choose");

        assert!(scheduler.tuner(&stream, &lan, &CongestionControls::default(), IDLE).is_none(), "a cheap control");
        let pinned = Profile::built_in("longhaul").unwrap();
        assert!(scheduler.tuner(&stream, &pinned, &controls, IDLE).is_none(), "the profile names its control");
    }

    /// connect(2) replaces the control for short paths by the control of the route, if the route has one. Regression:
    /// on a long path the relay replaced the control of the route.
    #[tokio::test]
    async fn control_of_a_route_is_kept() {
        let (stream, _far) = connection(Protocol::TCP).await.unwrap();
        congestion::set(&stream, "cubic").unwrap();
        let controls = CongestionControls::with_costly_default("reno");
        let lan = Profile::built_in("lan").unwrap();
        let tuner = TuneScheduler::new().tuner(&stream, &lan, &controls, IDLE).unwrap();
        let long = Duration::from_millis(5);
        tuner.choose_control(&stream, &TuningSample { rtt: long, min_rtt: long, ..TuningSample::default() });
        assert_eq!(congestion::of_socket(&stream).unwrap(), "cubic");
        assert!(!tuner.has_choice.get(), "nothing is left to choose");
    }

    #[tokio::test]
    async fn section_without_timers_gets_a_tuner_after_enough_bytes() {
        let (stream, _far) = connection(Protocol::TCP).await.unwrap();
        let controls = CongestionControls::with_costly_default("cubic");
        let scheduler = TuneScheduler::new();
        let lan = Profile::built_in("lan").unwrap();
        let mut tuning = scheduler.section_tuning(&stream, &lan, &controls, IDLE);
        tuning.on_bytes_moved(CHOOSE_AFTER - 1, &scheduler, &controls);
        assert!(tuning.tuner().is_none(), "most sessions end before the choice");
        tuning.on_bytes_moved(1, &scheduler, &controls);
        assert_eq!(tuning.tuner().map(|tuner| tuner.moved.get()), Some(CHOOSE_AFTER));
        assert_eq!(scheduler.queue.borrow().len(), 1);
        assert!(
            scheduler.section_tuning(&stream, &profile(&[]), &controls, IDLE).tuner().is_some(),
            "the profile tunes timers"
        );
    }

    #[tokio::test]
    async fn section_without_traffic_is_not_tuned() {
        if !has_timer_options() {
            return;
        }
        let (stream, _far) = connection(Protocol::TCP).await.unwrap();
        let scheduler = TuneScheduler::new();
        let tuner = tuner(&scheduler, &stream, &profile(&[])).unwrap();
        scheduler.run_round(Duration::from_secs(1));
        assert_eq!(tcp_timers(stream.as_fd()).rto_max, Some(Duration::from_secs(120)));
        tuner.on_bytes_moved(1);
        scheduler.run_round(Duration::from_secs(2));
        assert_eq!(tcp_timers(stream.as_fd()).rto_max, Some(Duration::from_secs(1)));
        drop(stream);
        tuner.on_bytes_moved(1);
        scheduler.run_round(Duration::from_secs(3));
        assert_eq!(tuner.view(), None, "the section is gone");
    }
}
