//! Sections between sockets of loopback, without a relay around them.

use std::net::{TcpListener, TcpStream as Socket};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ekiden_proto::share::Claim;
use ekiden_sys::pacing::{UNLIMITED, max_pacing_rate, set_max_pacing_rate};
use tokio::net::TcpStream;

use super::interface::{FairnessStats, ShareReport};
use super::*;

fn lo(rate: &str) -> Vec<config::InterfaceConfig> {
    vec![config::InterfaceConfig { name: "lo".to_owned(), rate: rate.parse().unwrap() }]
}

/// A desk that shares lo, and what it takes to change that.
fn desk(rate: &str) -> (Arc<SharedInterfaces>, Rc<ThreadShaper>) {
    let shares = Arc::new(SharedInterfaces::default());
    shares.apply_config(&lo(rate));
    let shaper = ThreadShaper::new(Arc::clone(&shares));
    shaper.update_interfaces();
    (shares, shaper)
}

/// Both ends of a connection; for `tokio`, in a runtime.
fn section() -> (Rc<TcpStream>, Socket) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = Socket::connect(listener.local_addr().unwrap()).unwrap();
    near.set_nonblocking(true).unwrap();
    (Rc::new(TcpStream::from_std(near).unwrap()), listener.accept().unwrap().0)
}

fn pace(stream: &TcpStream) -> u64 {
    max_pacing_rate(stream.as_fd()).unwrap()
}

fn in_a_runtime(test: impl FnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { test() });
}

#[test]
fn only_sections_of_shared_interfaces_are_members() {
    in_a_runtime(|| {
        let (shares, shaper) = desk("8Mbit/s");
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
fn who_moves_much_has_a_ceiling_until_it_leaves() {
    in_a_runtime(|| {
        let (_shares, shaper) = desk("8Mbit/s");
        let (stream, _far) = section();
        set_max_pacing_rate(stream.as_fd(), 5_000_000).unwrap();
        let member = shaper.register(&stream, 1).unwrap();
        member.record_bytes(1000);
        assert_eq!(pace(&stream), 5_000_000, "short messages are not worth a look");
        member.record_bytes(100_000);
        assert!((500_000..1_000_000).contains(&pace(&stream)), "{} of a megabyte", pace(&stream));
        member.deactivate();
        assert_eq!(pace(&stream), 5_000_000);
    });
}

#[test]
fn its_own_ceiling_stays_where_it_is_lower() {
    in_a_runtime(|| {
        let (_shares, shaper) = desk("8Mbit/s");
        let (stream, _far) = section();
        set_max_pacing_rate(stream.as_fd(), 10_000).unwrap();
        shaper.register(&stream, 1).unwrap().record_bytes(100_000);
        assert_eq!(pace(&stream), 10_000);
    });
}

#[test]
fn a_reload_changes_rates_and_frees_members() {
    in_a_runtime(|| {
        let (shares, shaper) = desk("8Mbit/s");
        let (stream, _far) = section();
        let member = shaper.register(&stream, 1).unwrap();
        member.record_bytes(100_000);
        let before = pace(&stream);
        shares.apply_config(&lo("16Mbit/s"));
        shaper.update_interfaces();
        shaper.run_round(Instant::now());
        assert_eq!(pace(&stream), before * 2, "a new rate holds for those who send");
        shares.apply_config(&[]);
        shaper.update_interfaces();
        assert_eq!(pace(&stream), UNLIMITED);
        member.record_bytes(100_000);
        assert_eq!(pace(&stream), UNLIMITED, "and nobody comes back to an interface that is gone");
    });
}

#[test]
fn who_has_stopped_or_gone_is_forgotten() {
    in_a_runtime(|| {
        let (shares, shaper) = desk("8Mbit/s");
        let ((stops, _far), (goes, _other)) = (section(), section());
        shaper.register(&stops, 1).unwrap().record_bytes(100_000);
        shaper.register(&goes, 1).unwrap().record_bytes(100_000);
        let mut now = Instant::now();
        shaper.run_round(now);
        assert_eq!(shares.views()[0].sending, 2);
        drop(goes);
        shaper.run_round(now);
        assert_eq!(shares.views()[0].sending, 1);
        for _ in 0..3 {
            now += Duration::from_secs(1);
            shaper.run_round(now);
        }
        assert_eq!(shares.views()[0].sending, 0);
        assert_eq!(pace(&stops), UNLIMITED);
    });
}

#[test]
fn all_desks_share_one_rate() {
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
fn who_comes_with_others_gets_less() {
    let interface = SharedInterface::new("one", 1200);
    assert_eq!([1, 1, 1, 3].map(|weight| interface.initial_ceiling(weight)), [1200, 600, 400, 600]);
    interface.exchange_report(
        0,
        &mut ShareReport { claims: vec![Claim { weight: 1, demand: u64::MAX }], stats: FairnessStats::default() },
    );
    assert_eq!([1, 1].map(|weight| interface.initial_ceiling(weight)), [600, 300]);
}
