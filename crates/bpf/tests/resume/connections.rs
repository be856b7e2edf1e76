//! Connections with `cubicresume` over a path with an RTT of 100 ms.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ekiden_bpf::congestion::{
    RegistrationGuard, ResumeError, ResumePhase, ResumeRejection, ResumeRequest, ResumeState, acquire,
};
use ekiden_proto::event::SectionInfo;
use ekiden_sys::pacing::{pacing_rate, set_max_pacing_rate};
use ekiden_sys::tcp_info::tcp_info;

use crate::long_path::{Line, LongPath, RTT};
use crate::name_lock::RegistrationLock;
use crate::network::connect;

const NAME: &str = "cubicresume";
const MIB: usize = 1 << 20;

/// The bandwidth-delay product is 863 packets, and the queue holds more than that.
const FAST: Line = Line { rate: 100_000_000, queue: 1000 };
/// A jump of half the bandwidth-delay product of [`FAST`], in bytes.
const JUMP: u32 = 625_000;

/// The congestion control, registered in the kernel, and a path.
struct Bench {
    registration: RegistrationGuard,
    path: LongPath,
    _lock: RegistrationLock,
}

impl Bench {
    /// `None`, with a printed reason, where the kernel accepts no programs of this process.
    fn new(line: Line) -> Option<Self> {
        let lock = RegistrationLock::acquire_named(NAME)?;
        let registration = acquire(NAME, None).unwrap();
        Some(Self { registration, path: LongPath::new(line), _lock: lock })
    }

    /// A connection that has transferred a message in each direction, like a ready connection of a relay.
    fn connect(&self) -> Session<'_> {
        let listener = self.path.server.inside(|| TcpListener::bind("10.0.0.2:0").unwrap());
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || serve(listener.accept().unwrap().0));
        let stream = self.path.client.inside(|| connect(address, NAME));
        stream.set_nodelay(true).unwrap();
        let session = Session { registration: &self.registration, stream, server: Some(server) };
        session.send(40);
        session
    }
}

/// Confirms each message, which begins with its length, by one byte.
fn serve(mut stream: TcpStream) {
    let mut length = [0; 4];
    while stream.read_exact(&mut length).is_ok() {
        let mut message = vec![0; u32::from_ne_bytes(length) as usize];
        stream.read_exact(&mut message).unwrap();
        assert!(message.iter().all(|byte| *byte == 7));
        stream.write_all(&[1]).unwrap();
    }
}

struct Session<'a> {
    registration: &'a RegistrationGuard,
    stream: TcpStream,
    server: Option<thread::JoinHandle<()>>,
}

impl Session<'_> {
    /// Requests a jump whose saved RTT is the current RTT of the connection: a busy machine increases the RTT.
    fn request_jump(&self, jump_bytes: u32) {
        self.request(&ResumeRequest { saved_rtt: self.info().rtt, ..jump(jump_bytes) });
    }

    fn request(&self, request: &ResumeRequest) {
        self.registration.resumes.as_ref().unwrap().request(self.stream.as_fd(), request).unwrap();
    }

    fn state(&self) -> Option<ResumeState> {
        self.registration.resumes.as_ref().unwrap().state(self.stream.as_fd())
    }

    fn phase(&self) -> Option<ResumePhase> {
        self.state().map(|state| state.phase)
    }

    fn info(&self) -> SectionInfo {
        tcp_info(self.stream.as_fd()).unwrap()
    }

    /// Sends `bytes` bytes, and waits until the server has received them. Returns the number of round trips.
    fn send(&self, bytes: usize) -> u32 {
        let before = self.rounds();
        self.write(bytes);
        self.wait();
        self.rounds() - before
    }

    fn write(&self, bytes: usize) {
        let mut message = vec![7; bytes];
        message[..4].copy_from_slice(&u32::try_from(bytes - 4).unwrap().to_ne_bytes());
        (&self.stream).write_all(&message).unwrap();
    }

    /// Waits until the server has received a message.
    fn wait(&self) {
        (&self.stream).read_exact(&mut [0]).unwrap();
    }

    /// The pacing rate of the jump, and the current pacing rate of the socket, in bytes per second.
    fn paces(&self) -> [f64; 2] {
        let jump = f64::from(self.state().unwrap().window_jumped) * 1448.0 / self.info().rtt.as_secs_f64();
        [jump, pacing_rate(self.stream.as_fd()).unwrap() as f64]
    }

    /// Number of round trips in the telemetry of the connection. A round trip ends with the acknowledgement of data
    /// that was sent after the start of the round trip.
    fn rounds(&self) -> u32 {
        self.registration.sections.as_ref().unwrap().read(self.stream.as_fd()).map_or(0, |section| section.rounds)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        let failed = self.server.take().is_some_and(|server| server.join().is_err());
        assert!(!failed || thread::panicking(), "the server thread panicked");
    }
}

fn jump(jump_bytes: u32) -> ResumeRequest {
    ResumeRequest { jump_bytes, saved_rtt: RTT, lifetime: Duration::from_secs(60) }
}

/// 1 MiB is 725 packets. Slow start takes seven round trips, with 10, 20, 40, 80, 160 and 320 packets and the rest. The
/// jump takes two, with 431 packets and the rest. A busy machine increases the RTT over which the jump is paced; then
/// the jump is not complete when its first packet is acknowledged.
#[test]
fn jump_reduces_the_round_trips_of_a_megabyte() {
    let Some(bench) = Bench::new(FAST) else { return };
    let cold = bench.connect();
    let cold_rounds = cold.send(MIB);
    assert_eq!(cold.state(), None);

    let warm = bench.connect();
    warm.request_jump(JUMP);
    assert_eq!(warm.phase(), Some(ResumePhase::Waiting));
    warm.send(2000);
    assert_eq!(warm.phase(), Some(ResumePhase::Waiting), "two packets use no credit");
    let before = warm.info();
    bench.path.most_queued.store(0, Ordering::Relaxed);
    let warm_rounds = warm.send(MIB);
    let (after, state) = (warm.info(), warm.state().unwrap());
    let sent = after.segments_out - before.segments_out;
    let queued = bench.path.most_queued.load(Ordering::Relaxed);
    eprintln!("{cold_rounds} round trips, with a jump {warm_rounds}, {sent} packets, {queued} queued; {state:?}");
    assert_eq!((state.phase, state.window_jumped), (ResumePhase::Validated, JUMP / 1448), "{state:?}");
    assert!((JUMP / 3..JUMP + 20 * 1448).contains(&state.sent_bytes), "{state:?}");
    assert!(state.pipe_bytes >= state.sent_bytes, "in whole packets: {state:?}");
    assert!(cold_rounds >= 6 && warm_rounds <= 5, "{cold_rounds} and {warm_rounds}");
    assert!(after.retransmitted - before.retransmitted < 20, "{after:?}");
    // Without pacing, all packets of the jump would be in the queue at once.
    assert!(queued < 300, "{queued}");
    // The request is used up.
    warm.send(2000);
    assert_eq!(warm.phase(), Some(ResumePhase::Validated));
}

/// Waits for `time`, repeatedly as `park_timeout` may return early.
fn wait_idle(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}

/// The kernel halves the window for each retransmission timeout (here 300 ms) without data.
#[test]
fn idle_connection_regains_its_window_by_a_jump() {
    let Some(bench) = Bench::new(FAST) else { return };
    let session = bench.connect();
    session.send(MIB);
    wait_idle(Duration::from_secs(2));
    session.request_jump(JUMP);
    let rounds = session.send(MIB);
    let state = session.state().unwrap();
    eprintln!("{rounds} round trips; {state:?}");
    assert_eq!(state.phase, ResumePhase::Validated, "{state:?}");
    assert!(state.window_before < JUMP / 1448 / 4, "{state:?}");
    assert_eq!(state.window_jumped, JUMP / 1448);
    assert!(state.sent_bytes > 2 * state.window_before * 1448, "{state:?}");
}

/// At 10 Mbit/s the path carries 83 packets in a round trip, and the queue holds ten. The jump is to 250 packets.
#[test]
fn jump_on_a_path_with_a_short_queue_ends_in_a_retreat() {
    let Some(bench) = Bench::new(Line { rate: 10_000_000, queue: 10 }) else { return };
    let session = bench.connect();
    session.request_jump(250 * 1448);
    session.send(250 * 1448);
    let (state, info) = (session.state().unwrap(), session.info());
    eprintln!("{state:?}, {info:?}");
    assert_eq!(state.phase, ResumePhase::Retreated, "{state:?}");
    assert!(state.sent_bytes > 100 * 1448, "{state:?}");
    assert!((10 * 1448..state.sent_bytes).contains(&state.pipe_bytes), "{state:?}");
    let half_pipe = state.pipe_bytes / 1448 / 2;
    assert!((half_pipe / 2..=half_pipe).contains(&info.cwnd), "{state:?}, {info:?}");
    assert!(info.retransmitted > 50, "{info:?}");
    // The same number of bytes again: no second jump, and almost no losses.
    let rounds = session.send(250 * 1448);
    let (again, later) = (session.state().unwrap(), session.info());
    eprintln!("{rounds} round trips, {later:?}");
    assert_eq!(again, state);
    assert!(rounds >= 4, "{rounds}");
    // If CUBIC had recorded the window of the jump as W_max, its window would grow faster.
    assert!(later.cwnd < half_pipe * 4 / 3, "{later:?}");
    assert!(later.retransmitted - info.retransmitted < 50, "{later:?}");
}

/// The maximum is a tenth of the pacing rate of the jump. The first ten packets of a connection are not paced.
#[test]
fn max_pacing_rate_limits_the_jump() {
    let Some(bench) = Bench::new(FAST) else { return };
    let session = bench.connect();
    set_max_pacing_rate(session.stream.as_fd(), u64::from(JUMP)).unwrap();
    session.request_jump(JUMP);
    session.send(MIB / 4);
    let state = session.state().unwrap();
    eprintln!("{state:?}");
    assert!(state.window_jumped == JUMP / 1448 && state.sent_bytes < JUMP / 4, "{state:?}");
}

#[test]
fn kernel_rejects_expired_requests_and_deviating_rtts() {
    let Some(bench) = Bench::new(FAST) else { return };
    let asked = jump(JUMP);
    for (request, reason) in [
        (ResumeRequest { lifetime: Duration::ZERO, ..asked }, ResumeRejection::Expired),
        (ResumeRequest { saved_rtt: RTT * 4, ..asked }, ResumeRejection::ShorterRtt),
        (ResumeRequest { saved_rtt: RTT / 4, ..asked }, ResumeRejection::LongerRtt),
    ] {
        let session = bench.connect();
        let before = session.info().cwnd;
        session.request(&request);
        session.send(2000);
        assert_eq!(session.phase(), Some(ResumePhase::Rejected(reason)));
        assert!(session.info().cwnd <= before + 4, "{:?}", session.info());
        // Another request replaces the rejected request.
        session.request(&asked);
        assert_eq!(session.phase(), Some(ResumePhase::Waiting));
    }
}

#[test]
fn unfinished_jump_refuses_another_request() {
    let Some(bench) = Bench::new(FAST) else { return };
    let session = bench.connect();
    session.request_jump(JUMP);
    // The server confirms the message after a round trip.
    session.write(100_000);
    let refused = session.registration.resumes.as_ref().unwrap().request(session.stream.as_fd(), &jump(JUMP));
    assert!(matches!(refused, Err(ResumeError::Unfinished(ResumePhase::Unvalidated))), "{refused:?}");
    session.wait();
}

/// The client sends two packets, and after half a round trip the rest of the jump. The server confirms the two packets
/// before it has received the rest. At each packet that the client receives, the kernel computes the pacing rate of
/// slow start, which is twice that of the jump.
#[test]
fn pacing_rate_of_the_jump_holds_while_the_server_sends() {
    let Some(bench) = Bench::new(FAST) else { return };
    // A machine that stalls for half a round trip misses the unvalidated phase, so there are several attempts.
    let is_observed = (0..10).any(|_| {
        let session = bench.connect();
        session.request_jump(JUMP);
        session.write(2000);
        let first = session.paces();
        wait_idle(RTT / 2);
        thread::scope(|scope| {
            let rest = scope.spawn(|| session.write(MIB));
            session.wait();
            let second = session.paces();
            let is_unvalidated = session.phase() == Some(ResumePhase::Unvalidated);
            rest.join().unwrap();
            session.wait();
            eprintln!("{first:?}, {second:?}, {is_unvalidated}");
            for [jump, pace] in [first, second].into_iter().filter(|_| is_unvalidated) {
                assert!((pace / jump - 1.0).abs() < 0.01, "{pace} instead of {jump}");
            }
            is_unvalidated
        })
    });
    assert!(is_observed, "the unvalidated phase was never observed");
}
