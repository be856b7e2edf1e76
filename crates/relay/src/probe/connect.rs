//! One connection to the target over one candidate: its setup time, and the round-trip times of its sections.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::addr::{ClientAddr, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::event::SectionInfo;
use ekiden_proto::wire::section::open::MAX_HOPS;
use ekiden_sys::tcp_info::tcp_info;
use ekiden_sys::transparent::set_mark;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::{ProbeTarget, empty_pools};
use crate::config::access::AccessPolicy;
use crate::config::congestion::CongestionControls;
use crate::config::{AccessRules, Config, HopKind, Path};
use crate::dial::{DialError, Dialler, OpenParams, Resolver, into_plain};
use crate::path::PathChoice;
use crate::pool::Pools;
use crate::rules::Marks;

/// Timeout for the return of a section to the pool after its session, and the interval of checks.
const RETURN_TIMEOUT: Duration = Duration::from_secs(1);
const RETURN_INTERVAL: Duration = Duration::from_millis(1);

/// The context of dialling, as for a session.
pub struct ProbeContext<'a> {
    config: &'a Config,
    names: Resolver,
    pools: Arc<Pools>,
    marks: Option<Marks>,
    access: AccessRules,
    /// Whether the pool keeps sections for the next session.
    is_reusing: bool,
}

impl<'a> ProbeContext<'a> {
    /// Returns the context for `config`. The access rules of listeners do not apply.
    pub fn new(config: &'a Config) -> Self {
        Self {
            names: Resolver::new(&config.dns_servers),
            pools: empty_pools(),
            // Without the privilege to set marks, the rules treat the probe as a client, which also works.
            marks: config.needed_marks().filter(may_mark),
            access: allow_all(),
            is_reusing: false,
            config,
        }
    }

    /// Like [`Self::new`], with a pool for the first hop of `path_choice`, which keeps the section of an ended session
    /// for the next session.
    pub fn with_reuse(config: &'a Config, path_choice: &PathChoice) -> Self {
        let context = Self::new(config);
        let Some(hop) = path_choice.path.hops.first().filter(|hop| hop.is_section()) else { return context };
        let mut pool_config = config.clone();
        pool_config.relays = vec![Arc::clone(hop)];
        for route in &mut pool_config.routes {
            (route.paths, route.auto) = (vec![Arc::clone(&path_choice.path)], false);
        }
        // A pool that cannot start keeps nothing; the report then shows that no section was reused.
        let is_reusing = context.pools.serve(&Arc::new(pool_config), usize::MAX).is_ok();
        Self { is_reusing, ..context }
    }

    /// Waits until the section of an ended session is in the pool.
    pub async fn wait_section_pooled(&self) {
        let returned = async {
            while self.pools.views().iter().all(|pool| pool.used == 0) {
                sleep(RETURN_INTERVAL).await;
            }
        };
        // On a timeout the next session begins on a new section, and the report shows that.
        let _ = timeout(RETURN_TIMEOUT, returned).await;
    }

    fn open_params(&self) -> OpenParams {
        OpenParams { can_frame: self.is_reusing, ..open_params() }
    }

    fn dialler(&self) -> Dialler<'_> {
        Dialler {
            marks: self.marks,
            source: None,
            names: &self.names,
            congestion: &self.config.congestion,
            pools: &self.pools,
            rules: AccessPolicy { listener: &self.access, peer: None },
            destination: None,
            tls: None,
            server_name: None,
            time_limit: self.config.timeouts.connect,
        }
    }
}

fn allow_all() -> AccessRules {
    AccessRules { allow_private: true, ..AccessRules::default() }
}

fn may_mark(marks: &Marks) -> bool {
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).is_ok_and(|socket| set_mark(socket.as_fd(), marks.own()).is_ok())
}

/// An established connection of a probe to its target.
pub struct ProbeConnection {
    /// The stream to the target.
    pub stream: TcpStream,
    /// The socket of the first section, for `TCP_INFO`.
    pub section: OwnedFd,
    /// Start of the session: with a ready connection, the time at which the connection was ready.
    pub started_at: Instant,
    /// The result of the connection.
    pub result: ConnectResult,
    /// Sessions that the section has carried before; `None` if it ends with this one.
    pub earlier_sessions: Option<u32>,
}

/// The measurements of one connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectResult {
    /// Time from the client's request to "connected", with a ready connection if the relays keep some.
    pub setup: Duration,
    /// The round-trip times of the sections, the nearest first; empty if the hops do not report them.
    pub sections: Vec<Duration>,
    /// Number of segments sent, as the kernel counts them.
    pub segments: u32,
    /// Number of retransmitted segments.
    pub retransmitted: u32,
}

/// Connects once, and closes the connection.
pub async fn connect_once(
    context: &ProbeContext<'_>,
    path_choice: &PathChoice,
    probe_target: &ProbeTarget,
) -> Result<ConnectResult, DialError> {
    open(context, path_choice, probe_target).await.map(|connection| connection.result)
}

/// Connects, and waits until the path is established from end to end.
pub async fn open(
    context: &ProbeContext<'_>,
    path_choice: &PathChoice,
    probe_target: &ProbeTarget,
) -> Result<ProbeConnection, DialError> {
    let dialler = context.dialler();
    let requested_at = Instant::now();
    let by_proxy = probe_target.http_proxy(path_choice).is_some();
    let dialled = if by_proxy {
        dialler.connect_to_last_hop(path_choice, &probe_target.target, &context.open_params()).await?
    } else {
        dialler.connect(path_choice, &probe_target.target, &context.open_params()).await?
    };
    let connected = requested_at.elapsed();
    let ready = dialled.opened.is_some();
    let session_start = if ready { Instant::now() } else { requested_at };
    let reuse = dialled.opened.as_ref().and_then(|opened| opened.reuse.as_ref());
    let earlier_sessions = reuse.map(|reuse| reuse.usage.sessions());
    let section = dialled.stream.as_fd().try_clone_to_owned().map_err(|_| Cause::Exhausted)?;
    let plain = into_plain(dialled).await?;
    let times = match plain.answer {
        Some(answer) => answer.await?,
        None => Vec::new(),
    };
    drop(plain.section);
    let setup = if ready { session_start.elapsed() } else { connected };
    let info = tcp_info(section.as_fd()).unwrap_or_default();
    let sections = match () {
        // The round-trip time from the proxy to the target is unknown until the request is sent.
        () if by_proxy => Vec::new(),
        () if ready => section_times(setup, &times),
        () => proxy_section_times(path_choice, setup, &info),
    };
    let (segments, retransmitted) = (info.segments_out, info.retransmitted);
    let connect_result = ConnectResult { setup, sections, segments, retransmitted };
    let stream = Rc::into_inner(plain.stream).expect("invariant: the answer held the only other reference");
    Ok(ProbeConnection { stream, section, started_at: session_start, result: connect_result, earlier_sessions })
}

/// Returns the round-trip times of the sections: each relay reports the setup time of all sections after it, and the
/// differences are the round-trip times.
fn section_times(total: Duration, times: &[Duration]) -> Vec<Duration> {
    let from = [total].into_iter().chain(times.iter().copied());
    let next = times.iter().copied().chain([Duration::ZERO]);
    from.zip(next).map(|(total, next)| total.saturating_sub(next)).collect()
}

/// Returns the round-trip times to a proxy and from the proxy to the target. The setup takes a fixed number of round
/// trips to the proxy, and only the last answer waits for the target. Empty for a chain of proxies, where the sections
/// cannot be separated.
fn proxy_section_times(path_choice: &PathChoice, setup: Duration, info: &SectionInfo) -> Vec<Duration> {
    let round_trips = match &path_choice.path.hops[..] {
        [] => return vec![setup],
        [hop] => match &hop.kind {
            HopKind::Http(_) => 2,
            HopKind::Socks5(None) => 3,
            HopKind::Socks5(Some(_)) => 4,
            HopKind::Section(_) | HopKind::Absent => return Vec::new(),
        },
        _ => return Vec::new(),
    };
    vec![info.min_rtt, setup.saturating_sub(info.min_rtt * round_trips)]
}

fn open_params() -> OpenParams {
    let client = ClientAddr(own_address());
    OpenParams { trace: None, client, early: false, encrypt: false, can_frame: false, hops_left: MAX_HOPS }
}

/// Returns this host's address on the default route, for relays that keep the client's address.
fn own_address() -> SocketAddr {
    let any_target = SocketAddr::from(([192, 0, 2, 1], 9));
    let local_address = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| {
        // connect(2) sends no datagram: the kernel only looks up a route.
        socket.connect(any_target)?;
        socket.local_addr()
    });
    let loopback = SocketAddr::from((IpAddr::from(Ipv4Addr::LOCALHOST), 0));
    local_address.map_or(loopback, |address| SocketAddr::new(address.ip(), 0))
}

/// Returns the shortest setup time of `count` direct connections to `target`; a refusal counts as an answer. The first
/// other failure ends the measurement, so that a silent target takes one timeout, and the times before it count.
pub async fn min_connect_time(
    names: &Resolver,
    pools: &Arc<Pools>,
    target: &Target,
    count: u32,
) -> Result<Duration, Cause> {
    let (access, congestion) = (allow_all(), CongestionControls::default());
    let path = Arc::new(Path { name: "direct".into(), hops: Vec::new() });
    let path_choice = PathChoice::new(path, Arc::default());
    let time_limit = Duration::from_secs(5);
    let rules = AccessPolicy { listener: &access, peer: None };
    let dialler = Dialler {
        marks: None,
        source: None,
        names,
        congestion: &congestion,
        pools,
        rules,
        destination: None,
        tls: None,
        server_name: None,
        time_limit,
    };
    let mut shortest = Err(Cause::TimedOut);
    for _ in 0..count {
        let started_at = Instant::now();
        match dialler.connect(&path_choice, target, &open_params()).await {
            Err(error) if error.cause != Cause::Refused => return shortest.or(Err(error.cause)),
            Ok(_) | Err(_) => {}
        }
        let took = started_at.elapsed();
        shortest = Ok(shortest.map_or(took, |shortest: Duration| shortest.min(took)));
    }
    shortest
}

/// Returns the bound on data in flight toward this host, in bytes: half of the largest receive buffer, because the
/// kernel uses the other half for overhead (tcp(7), `tcp_rmem`). `None` if the setting cannot be read.
pub fn receive_window() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").ok()?;
    text.split_whitespace().nth(2)?.parse::<u64>().ok().map(|bytes| bytes / 2)
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, Type};
    use tokio::io::unix::AsyncFd;

    use super::*;

    /// A timeout discarded the times of the connections before it.
    #[tokio::test]
    async fn setup_times_before_a_timeout_count() {
        // The accept queue is full after one connection: the kernel drops further SYNs.
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
        listener.listen(0).unwrap();
        let target = Target::from(listener.local_addr().unwrap().as_socket().unwrap());
        #[expect(
            deprecated,
            reason = "`register` is unsafe, for types that change their descriptor; a socket never does"
        )]
        let listener = AsyncFd::new(listener).unwrap();
        // A paused clock advances at once to the timeout of the next connection.
        let skip_timeout = async {
            let _readable = listener.readable().await.unwrap();
            tokio::time::pause();
        };
        let (names, pools) = (Resolver::new(&[]), empty_pools());
        let (shortest, ()) = tokio::join!(min_connect_time(&names, &pools, &target, 5), skip_timeout);
        assert!(shortest.is_ok(), "{shortest:?}");
    }

    #[test]
    fn section_times_are_differences_of_round_trips() {
        let ms = Duration::from_millis;
        assert_eq!(section_times(ms(90), &[ms(60), ms(20)]), [ms(30), ms(40), ms(20)]);
        assert_eq!(section_times(ms(90), &[]), [ms(90)]);
        assert_eq!(section_times(ms(10), &[ms(11)]), [ms(0), ms(11)], "clocks are read at different moments");
    }

    /// Connecting is a round trip, and so is each question to the proxy.
    #[test]
    fn proxy_round_trips_are_subtracted_from_the_setup_time() {
        let hops = |url: &str| {
            let flags = crate::config::read::Flags {
                listen: vec!["auto://127.0.0.1:0".to_owned()],
                forward: vec![url.to_owned()],
                ..Default::default()
            };
            let config = crate::config::read::load(None, &flags).unwrap();
            PathChoice::new(Arc::clone(&config.routes[0].paths[0]), Arc::default())
        };
        let info = SectionInfo { min_rtt: Duration::from_millis(10), ..SectionInfo::default() };
        for (url, rest) in [("http://192.0.2.1:1", 80), ("socks5://192.0.2.1:1", 70), ("socks5://u:p@192.0.2.1:1", 60)]
        {
            let sections = proxy_section_times(&hops(url), Duration::from_millis(100), &info);
            assert_eq!(sections, [info.min_rtt, Duration::from_millis(rest)], "{url}");
        }
    }
}
