//! `cubicresume` on sockets, over a path of 100 ms.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
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
use socket2::{Domain, Socket, Type};

use crate::long_path::{Line, LongPath, RTT};
use crate::turn::RegistrationLock;

const NAME: &str = "cubicresume";
const PATIENCE: Duration = Duration::from_secs(60);
const MIB: usize = 1 << 20;

/// 863 packets in a round trip, and room for as many.
const FAST: Line = Line { rate: 100_000_000, queue: 1000 };
/// Half of a round trip of [`FAST`].
const JUMP: u32 = 625_000;

/// The congestion control in the kernel, and a path.
struct Bench {
    held: RegistrationGuard,
    path: LongPath,
    _turn: RegistrationLock,
}

impl Bench {
    /// `None`, said aloud, where the kernel takes no programs of this process.
    fn new(line: Line) -> Option<Self> {
        let turn = RegistrationLock::acquire_named(NAME)?;
        let held = acquire(NAME, None).unwrap();
        Some(Self { held, path: LongPath::new(line), _turn: turn })
    }

    /// A connection that has carried a greeting in each direction, as one that a relay keeps ready.
    fn connect(&self) -> Session<'_> {
        let listener = self.path.server.inside(|| TcpListener::bind("10.0.0.2:0").unwrap());
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || serve(listener.accept().unwrap().0));
        let stream = self.path.client.inside(|| connect(address));
        let session = Session { held: &self.held, stream, server: Some(server) };
        session.send(40);
        session
    }
}

/// The congestion control is chosen first: another one, such as bbr, would leave the socket paced.
fn connect(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_tcp_congestion(NAME.as_bytes()).unwrap();
    socket.connect_timeout(&address.into(), PATIENCE).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Confirms each message, which begins with its length, with a byte.
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
    held: &'a RegistrationGuard,
    stream: TcpStream,
    server: Option<thread::JoinHandle<()>>,
}

impl Session<'_> {
    /// Requests a jump, saved at the round-trip time that the connection has: a busy machine makes it longer.
    fn request_jump(&self, jump_bytes: u32) {
        self.request(&ResumeRequest { saved_rtt: self.info().rtt, ..jump(jump_bytes) });
    }

    fn request(&self, request: &ResumeRequest) {
        self.held.resumes.as_ref().unwrap().request(self.stream.as_fd(), request).unwrap();
    }

    fn state(&self) -> Option<ResumeState> {
        self.held.resumes.as_ref().unwrap().state(self.stream.as_fd())
    }

    fn phase(&self) -> Option<ResumePhase> {
        self.state().map(|state| state.phase)
    }

    fn info(&self) -> SectionInfo {
        tcp_info(self.stream.as_fd()).unwrap()
    }

    /// Sends so many bytes, and waits until the server has them. Returns how many round trips of the sender that took.
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

    /// Waits until the server has a message.
    fn wait(&self) {
        (&self.stream).read_exact(&mut [0]).unwrap();
    }

    /// The pace of the jump, and that of the connection.
    fn paces(&self) -> [f64; 2] {
        let jump = f64::from(self.state().unwrap().window_jumped) * 1448.0 / self.info().rtt.as_secs_f64();
        [jump, pacing_rate(self.stream.as_fd()).unwrap() as f64]
    }

    /// A round trip ends with the acknowledgement of data that was sent after its begin.
    fn rounds(&self) -> u32 {
        self.held.sections.as_ref().unwrap().read(self.stream.as_fd()).map_or(0, |section| section.rounds)
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(std::net::Shutdown::Write);
        let failed = self.server.take().is_some_and(|server| server.join().is_err());
        assert!(!failed || thread::panicking(), "the server");
    }
}

fn jump(jump_bytes: u32) -> ResumeRequest {
    ResumeRequest { jump_bytes, saved_rtt: RTT, lifetime: Duration::from_secs(60) }
}

/// 1 MiB is 725 packets: 10, 20, 40, 80, 160, 320 and the rest in seven round trips; 431 and the rest in two. A busy
/// machine makes the round-trip time longer for which the jump is paced, and then it is not complete when its first packet
/// is acknowledged.
#[test]
fn a_megabyte_takes_the_round_trips_of_the_jump() {
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
    // Without a pace all of it waits in the queue at once.
    assert!(queued < 300, "{queued}");
    // The request is used up.
    warm.send(2000);
    assert_eq!(warm.phase(), Some(ResumePhase::Validated));
}

/// `park_timeout` may return early.
fn be_idle(time: Duration) {
    let end = Instant::now() + time;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        thread::park_timeout(left);
    }
}

/// The kernel halves the window for each retransmission timeout (here 300 ms) without data.
#[test]
fn an_idle_connection_gets_its_window_back() {
    let Some(bench) = Bench::new(FAST) else { return };
    let session = bench.connect();
    session.send(MIB);
    be_idle(Duration::from_secs(2));
    session.request_jump(JUMP);
    let rounds = session.send(MIB);
    let state = session.state().unwrap();
    eprintln!("{rounds} round trips; {state:?}");
    assert_eq!(state.phase, ResumePhase::Validated, "{state:?}");
    assert!(state.window_before < JUMP / 1448 / 4, "{state:?}");
    assert_eq!(state.window_jumped, JUMP / 1448);
    assert!(state.sent_bytes > 2 * state.window_before * 1448, "{state:?}");
}

/// At 10 Mbit/s 83 packets are in a round trip, and ten in the queue; the jump is to 250.
#[test]
fn a_path_with_a_short_queue_makes_it_retreat() {
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
    // The same amount once more: no second jump, and hardly a loss.
    let rounds = session.send(250 * 1448);
    let (again, later) = (session.state().unwrap(), session.info());
    eprintln!("{rounds} round trips, {later:?}");
    assert_eq!(again, state);
    assert!(rounds >= 4, "{rounds}");
    // CUBIC would hurry to the window of the jump (W_max), had it learnt it.
    assert!(later.cwnd < half_pipe * 4 / 3, "{later:?}");
    assert!(later.retransmitted - info.retransmitted < 50, "{later:?}");
}

/// A tenth of the jump's pace. The first ten packets of a connection are not paced.
#[test]
fn a_limit_of_the_pace_holds_for_the_jump() {
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
fn a_request_is_rejected_for_time_and_for_another_path() {
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
        // Another request takes its place.
        session.request(&asked);
        assert_eq!(session.phase(), Some(ResumePhase::Waiting));
    }
}

#[test]
fn a_jump_that_is_not_over_refuses_another_request() {
    let Some(bench) = Bench::new(FAST) else { return };
    let session = bench.connect();
    session.request_jump(JUMP);
    // Not confirmed before a round trip is over.
    session.write(100_000);
    let refused = session.held.resumes.as_ref().unwrap().request(session.stream.as_fd(), &jump(JUMP));
    assert!(matches!(refused, Err(ResumeError::Unfinished(ResumePhase::Unvalidated))), "{refused:?}");
    session.wait();
}

/// Two packets, and in the middle of the round trip the rest of the jump. The server answers the two before it has the
/// rest, and with each packet that comes the kernel computes the pace of slow start: twice that of the jump.
#[test]
fn the_pace_of_the_jump_holds_while_the_server_sends() {
    let Some(bench) = Bench::new(FAST) else { return };
    // A machine that stands still for half a round trip does not see the moment.
    let held = (0..10).any(|_| {
        let session = bench.connect();
        session.request_jump(JUMP);
        session.write(2000);
        let first = session.paces();
        be_idle(RTT / 2);
        thread::scope(|scope| {
            let rest = scope.spawn(|| session.write(MIB));
            session.wait();
            let second = session.paces();
            let is_seen = session.phase() == Some(ResumePhase::Unvalidated);
            rest.join().unwrap();
            session.wait();
            eprintln!("{first:?}, {second:?}, {is_seen}");
            for [jump, pace] in [first, second].into_iter().filter(|_| is_seen) {
                assert!((pace / jump - 1.0).abs() < 0.01, "{pace} instead of {jump}");
            }
            is_seen
        })
    });
    assert!(held, "never seen");
}
