//! Sections with the same egress interface share its rate by pacing: no section sends faster than its share, with any
//! congestion control (docs/decisions/0015).
//!
//! A section is a [`PacedSocket`] of its egress [`SharedInterface`]. While the section sends, the [`ThreadShaper`] of
//! its thread samples the socket ten times a second, reports the claim of the section, and sets its ceiling; the
//! computation is in [`ekiden_proto::share`]. Threads share the claims and figures of an interface, but no sockets.
//! Idle sections cost nothing. Bytes of other programs and ACKs are not counted in claims.

mod pacing;
mod shaper;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ekiden_proto::share::{Allocation, Claim, allocate, jain_index};
use ekiden_sys::route::has_interface;

use crate::config;
use crate::status::InterfaceView;

pub use shaper::PacedSocket;
pub use shaper::ThreadShaper;

/// All interfaces with a shared rate.
#[derive(Debug, Default)]
pub struct SharedInterfaces {
    interfaces: Mutex<Vec<Arc<SharedInterface>>>,
    next_index: AtomicUsize,
}

impl SharedInterfaces {
    /// Applies these interfaces. Remaining interfaces have their new rate at once. Each thread releases its sections on
    /// removed interfaces ([`ThreadShaper::update_interfaces`]).
    pub fn apply_config(&self, configs: &[config::InterfaceConfig]) {
        let mut interfaces = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        let interface_for = |interface_config: &config::InterfaceConfig| {
            let rate = interface_config.rate.bytes_per_second();
            match interfaces.iter().find(|known| known.name() == interface_config.name) {
                Some(known) => {
                    known.set_rate(rate);
                    Arc::clone(known)
                }
                None => Arc::new(SharedInterface::new(&interface_config.name, rate)),
            }
        };
        *interfaces = configs.iter().map(interface_for).collect();
    }

    /// Returns the views of the interfaces for `ekiden status`.
    pub fn views(&self) -> Vec<InterfaceView> {
        self.interfaces().iter().map(|interface| interface.view()).collect()
    }

    fn interfaces(&self) -> Vec<Arc<SharedInterface>> {
        self.interfaces.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn next_shaper_index(&self) -> usize {
        self.next_index.fetch_add(1, Ordering::Relaxed)
    }
}

/// Returns warnings about interfaces that do not exist. This is no error, because they may appear later.
pub fn missing_interface_warnings(interfaces: &[config::InterfaceConfig]) -> impl Iterator<Item = String> {
    let missing = interfaces.iter().filter(|interface| !has_interface(&interface.name));
    missing.map(|interface| {
        let name = &interface.name;
        format!(
            "interface {name} does not exist now, so no session shares its rate: compare `ip link` with [[interface]] \
             in the configuration"
        )
    })
}

/// An interface whose rate is shared by sections.
#[derive(Debug)]
pub struct SharedInterface {
    name: String,
    state: Mutex<InterfaceState>,
}

#[derive(Debug)]
struct InterfaceState {
    /// Rate in bytes per second, including the headers of all packets.
    rate: u64,
    /// The report of each thread, by the index of its shaper.
    reports: Vec<ShareReport>,
    division: Allocation,
    /// Total weight of the sections that started since the last allocation.
    new_weight: u64,
    /// All claims; kept to reuse the allocation.
    claims: Vec<Claim>,
}

/// The report of one thread.
#[derive(Debug, Clone, Default)]
pub struct ShareReport {
    /// The claims of the thread's active sections.
    pub claims: Vec<Claim>,
    /// The rates of the thread's sections.
    pub stats: FairnessStats,
}

/// Rates of sections over the last second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FairnessStats {
    /// Total rate of all sections, in bytes per second.
    pub rate: f64,
    /// Number of sections that were limited most of the time, so that their shares can be compared.
    pub limited: usize,
    /// Sum of the limited sections' rates per unit of weight, in bytes per second.
    pub rate_sum: f64,
    /// Sum of the squares of these rates per unit of weight.
    pub rate_square_sum: f64,
}

impl SharedInterface {
    /// Returns an interface without active sections.
    pub fn new(name: &str, rate: u64) -> Self {
        let state = InterfaceState {
            rate,
            reports: Vec::new(),
            division: Allocation::empty(rate),
            new_weight: 0,
            claims: Vec::new(),
        };
        Self { name: name.to_owned(), state: Mutex::new(state) }
    }

    /// Returns the name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets the rate, in bytes per second, and allocates it anew.
    pub fn set_rate(&self, rate: u64) {
        let mut books = self.lock();
        books.rate = rate;
        books.divide();
    }

    /// Replaces the report of a thread and allocates the rate anew.
    pub fn exchange_report(&self, shaper: usize, report: &mut ShareReport) -> Allocation {
        let mut state = self.lock();
        if state.reports.len() <= shaper {
            state.reports.resize_with(shaper + 1, ShareReport::default);
        }
        std::mem::swap(&mut state.reports[shaper], report);
        state.divide()
    }

    /// Returns the ceiling of a section that has just started. The ceiling decreases with each start until the next
    /// allocation.
    pub fn initial_ceiling(&self, weight: u32) -> u64 {
        let mut state = self.lock();
        state.new_weight += u64::from(weight);
        let ceiling = state.division.ceiling(Claim { weight, demand: 0 });
        (u128::from(ceiling) * u128::from(weight) / u128::from(state.new_weight)) as u64
    }

    /// Returns the view of the interface for `ekiden status`.
    pub fn view(&self) -> InterfaceView {
        let state = self.lock();
        let stats = || state.reports.iter().map(|report| report.stats);
        let (limited, sum, squares) = (
            stats().map(|f| f.limited).sum(),
            stats().map(|f| f.rate_sum).sum(),
            stats().map(|f| f.rate_square_sum).sum(),
        );
        InterfaceView {
            interface: self.name.clone(),
            rate_bits_per_second: state.rate * 8,
            sending: state.reports.iter().map(|report| report.claims.len()).sum(),
            level_bits_per_second: state.division.level().map(|level| level * 8),
            sent_bits_per_second: (stats().map(|f| f.rate).sum::<f64>() * 8.0) as u64,
            fairness: jain_index(limited, sum, squares),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, InterfaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InterfaceState {
    fn divide(&mut self) -> Allocation {
        self.claims.clear();
        self.claims.extend(self.reports.iter().flat_map(|report| &report.claims));
        self.new_weight = 0;
        self.division = allocate(self.rate, &mut self.claims);
        self.division
    }
}

#[cfg(test)]
mod tests {
    //! Sections over loopback, without a relay.

    use std::net::TcpStream as Socket;
    use std::os::fd::AsFd;
    use std::rc::Rc;
    use std::time::{Duration, Instant};

    use ekiden_proto::share::Claim;
    use ekiden_sys::pacing::{UNLIMITED, max_pacing_rate, set_max_pacing_rate};
    use tokio::net::TcpStream;

    use super::*;
    use super::{FairnessStats, ShareReport};
    use ekiden_testing::tcp_pair;

    fn lo(rate: &str) -> Vec<config::InterfaceConfig> {
        vec![config::InterfaceConfig { name: "lo".to_owned(), rate: rate.parse().unwrap() }]
    }

    /// Returns a shaper of `lo`, and the shared interfaces through which a test changes the configuration.
    fn lo_shaper(rate: &str) -> (Arc<SharedInterfaces>, Rc<ThreadShaper>) {
        let shares = Arc::new(SharedInterfaces::default());
        shares.apply_config(&lo(rate));
        let shaper = ThreadShaper::new(Arc::clone(&shares));
        shaper.update_interfaces();
        (shares, shaper)
    }

    /// Returns both ends of a connection. Must be called in a tokio runtime.
    fn section() -> (Rc<TcpStream>, Socket) {
        let (near, far) = tcp_pair();
        near.set_nonblocking(true).unwrap();
        (Rc::new(TcpStream::from_std(near).unwrap()), far)
    }

    fn pace(stream: &TcpStream) -> u64 {
        max_pacing_rate(stream.as_fd()).unwrap()
    }

    fn in_a_runtime(test: impl FnOnce()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { test() });
    }

    #[test]
    fn only_sections_of_shared_interfaces_are_registered() {
        in_a_runtime(|| {
            let (shares, shaper) = lo_shaper("8Mbit/s");
            let (stream, _far) = section();
            assert!(shaper.register(&stream, 1).is_some());
            shares.apply_config(&[config::InterfaceConfig {
                name: "elsewhere".to_owned(),
                rate: "8Mbit/s".parse().unwrap(),
            }]);
            shaper.update_interfaces();
            assert!(shaper.register(&stream, 1).is_none());
            shares.apply_config(&[]);
            shaper.update_interfaces();
            assert!(shaper.register(&stream, 1).is_none());
        });
    }

    #[test]
    fn busy_section_is_paced_until_deactivated() {
        in_a_runtime(|| {
            let (_shares, shaper) = lo_shaper("8Mbit/s");
            let (stream, _far) = section();
            set_max_pacing_rate(stream.as_fd(), 5_000_000).unwrap();
            let member = shaper.register(&stream, 1).unwrap();
            member.record_bytes(1000);
            assert_eq!(pace(&stream), 5_000_000, "short messages are not paced");
            member.record_bytes(100_000);
            assert!((500_000..1_000_000).contains(&pace(&stream)), "{} of a megabyte", pace(&stream));
            member.deactivate();
            assert_eq!(pace(&stream), 5_000_000);
        });
    }

    #[test]
    fn lower_pacing_rate_of_the_profile_is_kept() {
        in_a_runtime(|| {
            let (_shares, shaper) = lo_shaper("8Mbit/s");
            let (stream, _far) = section();
            set_max_pacing_rate(stream.as_fd(), 10_000).unwrap();
            shaper.register(&stream, 1).unwrap().record_bytes(100_000);
            assert_eq!(pace(&stream), 10_000);
        });
    }

    #[test]
    fn reload_changes_rates_and_ends_pacing() {
        in_a_runtime(|| {
            let (shares, shaper) = lo_shaper("8Mbit/s");
            let (stream, _far) = section();
            let member = shaper.register(&stream, 1).unwrap();
            member.record_bytes(100_000);
            let before = pace(&stream);
            shares.apply_config(&lo("16Mbit/s"));
            shaper.update_interfaces();
            shaper.run_round(Instant::now());
            assert_eq!(pace(&stream), before * 2, "a new rate applies to active sections");
            shares.apply_config(&[]);
            shaper.update_interfaces();
            assert_eq!(pace(&stream), UNLIMITED);
            member.record_bytes(100_000);
            assert_eq!(pace(&stream), UNLIMITED, "a section does not return to a removed interface");
        });
    }

    #[test]
    fn idle_and_closed_sections_release_their_share() {
        in_a_runtime(|| {
            let (shares, shaper) = lo_shaper("8Mbit/s");
            let ((idle, _far), (closed, _other)) = (section(), section());
            shaper.register(&idle, 1).unwrap().record_bytes(100_000);
            shaper.register(&closed, 1).unwrap().record_bytes(100_000);
            let mut now = Instant::now();
            shaper.run_round(now);
            assert_eq!(shares.views()[0].sending, 2);
            drop(closed);
            shaper.run_round(now);
            assert_eq!(shares.views()[0].sending, 1);
            for _ in 0..3 {
                now += Duration::from_secs(1);
                shaper.run_round(now);
            }
            assert_eq!(shares.views()[0].sending, 0);
            assert_eq!(pace(&idle), UNLIMITED);
        });
    }

    #[test]
    fn all_threads_share_the_rate_of_an_interface() {
        let interface = SharedInterface::new("one", 1000);
        let greedy = Claim { weight: 1, demand: u64::MAX };
        let figures = FairnessStats { rate: 500.0, limited: 1, rate_sum: 500.0, rate_square_sum: 250_000.0 };
        interface.exchange_report(0, &mut ShareReport { claims: vec![greedy], stats: figures });
        assert_eq!(
            interface.exchange_report(2, &mut ShareReport { claims: vec![greedy], stats: figures }).share(greedy),
            500
        );
        let view = interface.view();
        assert_eq!(
            (view.rate_bits_per_second, view.sending, view.level_bits_per_second, view.sent_bits_per_second),
            (8000, 2, Some(4000), 8000)
        );
        assert_eq!(view.fairness, Some(1.0));
        interface.set_rate(3000);
        assert_eq!(interface.view().level_bits_per_second, Some(12_000));
        assert_eq!(interface.exchange_report(2, &mut ShareReport::default()).share(greedy), 3000);
        assert_eq!(interface.view().fairness, None);
    }

    #[test]
    fn initial_ceiling_shrinks_with_concurrent_sections() {
        let interface = SharedInterface::new("one", 1200);
        assert_eq!([1, 1, 1, 3].map(|weight| interface.initial_ceiling(weight)), [1200, 600, 400, 600]);
        interface.exchange_report(
            0,
            &mut ShareReport { claims: vec![Claim { weight: 1, demand: u64::MAX }], stats: FairnessStats::default() },
        );
        assert_eq!([1, 1].map(|weight| interface.initial_ceiling(weight)), [600, 300]);
    }
}
