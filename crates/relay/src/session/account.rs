//! What is known of a session, from accept to its closing event.

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ekiden_proto::addr::{ClientAddr, ServerAddr, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::event::{Closed, End, Event, SectionInfo};
use ekiden_proto::limiting::{Direction, limiting};
use ekiden_proto::wire::section::TraceId;
use ekiden_proto::wire::section::open::MOST_HOPS;
use ekiden_sys::tcp_info::tcp_info;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::config::Connect;
use crate::config::access::Rules;
use crate::dial::{DialError, Dialler, Journey};
use crate::entrance::Entrance;
use crate::ingress::section::Arrival;
use crate::path::{self, Way};
use crate::pump::{self, Meter, Patience, Seal};
use crate::status::SessionView;
use crate::users::Users;

/// What is known of a session.
pub struct Session {
    /// Where it came in.
    pub entrance: Rc<Entrance>,
    /// The client's section.
    pub client: TcpStream,
    /// Exact counters.
    pub meter: Meter,
    /// Unique in this run of the relay.
    pub id: u64,
    /// How it came in, where a relay has sent it.
    pub arrival: Option<Rc<Arrival>>,
    address: ClientAddr,
    opened: Instant,
    story: RefCell<Story>,
    /// Its name on all relays; none where this is the second time that it comes by.
    arrived_as: Option<TraceId>,
    place: Cell<usize>,
}

/// The part of it that changes.
#[derive(Default)]
struct Story {
    user: Option<Box<str>>,
    target: Option<Target>,
    server: Option<ServerAddr>,
    stream: Option<Rc<TcpStream>>,
    path: Option<Box<str>>,
    /// The name under which it went on to relays, the last time.
    trace: Option<TraceId>,
    connect: Option<Duration>,
    hops: Vec<Duration>,
    up: Option<SectionInfo>,
    end: Option<End>,
    detail: Option<String>,
}

impl Session {
    /// A session that has just been accepted; it is listed with its worker until it is dropped.
    pub fn open(
        entrance: Rc<Entrance>,
        client: TcpStream,
        address: ClientAddr,
        arrival: Option<Rc<Arrival>>,
    ) -> Rc<Self> {
        let shared = entrance.shared();
        shared.metrics.accepted(&entrance.listener.name);
        let arrived_as = arrival.as_ref().map(|arrival| arrival.open.trace).filter(|trace| shared.begin_trace(*trace));
        let session = Rc::new(Self {
            id: shared.next_session(),
            meter: Meter::new(entrance.totals()),
            client,
            arrival,
            address,
            opened: Instant::now(),
            story: RefCell::default(),
            arrived_as,
            place: Cell::new(0),
            entrance,
        });
        session.place.set(session.entrance.worker.list(&session));
        session
    }

    /// Notes who the client says it is, and whether that is so. The check is slow on purpose and may have to queue
    /// behind others; it has the time of a handshake.
    pub async fn is_user(&self, users: &Users, user: &[u8], password: &[u8]) -> bool {
        self.story.borrow_mut().user = Some(String::from_utf8_lossy(user).into());
        timeout(self.entrance.config.timeouts.handshake, users.verify(user, password)).await.unwrap_or(false)
    }

    /// Notes where the client wants to go.
    pub fn wants(&self, target: &Target) {
        self.story.borrow_mut().target = Some(target.clone());
    }

    /// Notes which way it tries.
    pub fn goes(&self, way: &Way) {
        self.story.borrow_mut().path = Some(way.path.name.clone());
    }

    /// Notes the section that was dialled for it.
    pub fn reached(&self, server: ServerAddr, stream: Rc<TcpStream>, asked: Instant) {
        let mut story = self.story.borrow_mut();
        story.connect = Some(asked.elapsed());
        story.server = Some(server);
        story.stream = Some(stream);
    }

    /// Notes the name under which it goes on to relays.
    pub fn is_known_as(&self, trace: Option<TraceId>) {
        self.story.borrow_mut().trace = trace;
    }

    /// How long each relay took.
    pub fn hop_times(&self) -> Vec<Duration> {
        self.story.borrow().hops.clone()
    }

    /// Notes that the relays have answered, and how long each of them took.
    pub fn answered(&self, times: Vec<Duration>, asked: Instant) {
        let mut story = self.story.borrow_mut();
        story.connect = Some(asked.elapsed());
        story.hops = times;
    }

    /// The ways to `target`, the best first; at least one.
    ///
    /// # Errors
    /// Why there is none: this is the second time that the session comes by, or whoever sent it may not do that.
    pub fn ways(&self, target: &Target) -> Result<Vec<Way>, Cause> {
        let (config, pools) = (&self.entrance.config, &self.entrance.shared().pools);
        let Some(arrival) = &self.arrival else { return Ok(path::select(config, pools, target)) };
        if self.arrived_as.is_none() {
            return Err(Cause::Loop);
        }
        let section = self.entrance.listener.section.as_ref();
        if section.is_some_and(|section| section.encrypt) && !arrival.open.encrypt {
            return Err(Cause::Denied);
        }
        let ways = match path::chosen(config, &arrival.open.path)? {
            Some(way) => vec![way],
            None => path::select(config, pools, target),
        };
        let permitted: Vec<_> = ways.into_iter().filter(|way| arrival.permits(way)).collect();
        if permitted.is_empty() { Err(Cause::Denied) } else { Ok(permitted) }
    }

    /// What it takes along to the next relay.
    pub fn journey(&self) -> Journey {
        match &self.arrival {
            Some(arrival) => Journey {
                trace: Some(arrival.open.trace),
                client: arrival.open.client,
                early: arrival.open.early,
                encrypt: arrival.open.encrypt,
                hops_left: arrival.open.hops_left,
            },
            None => Journey {
                trace: None,
                client: self.address,
                early: self.entrance.listener.connect == Connect::Early,
                encrypt: false,
                hops_left: MOST_HOPS,
            },
        }
    }

    /// What it takes to dial on its behalf, when so many `ways` share the time.
    pub fn dialler_for(&self, ways: usize) -> Dialler<'_> {
        let patience = self.entrance.config.timeouts.connect / u32::try_from(ways).unwrap_or(u32::MAX);
        let peer = self.arrival.as_ref().and_then(|arrival| arrival.peer.as_ref());
        Dialler {
            names: self.entrance.names(),
            pools: &self.entrance.shared().pools,
            rules: Rules { listener: &self.entrance.listener.access, peer: peer.map(|peer| &peer.access) },
            patience,
        }
    }

    /// The keys of the client's bytes, where those are in records.
    pub fn data_seal(&self) -> Option<Rc<Seal>> {
        self.arrival.as_ref().and_then(|arrival| arrival.data_seal())
    }

    /// Notes that the server's section is no longer this session's; what the kernel knew of it is kept.
    pub fn parted(&self) {
        let mut story = self.story.borrow_mut();
        if let Some(stream) = story.stream.take() {
            story.up = tcp_info(stream.as_fd()).ok();
        }
    }

    /// Notes why the target was not reached.
    pub fn failed(&self, error: &DialError) -> End {
        self.remarks(error.detail());
        End::ConnectFailed(error.cause)
    }

    /// Notes more on how it ends.
    pub fn remarks(&self, detail: Option<String>) {
        self.story.borrow_mut().detail = detail;
    }

    /// Notes how it ended.
    pub fn ends(&self, end: End) {
        self.story.borrow_mut().end = Some(end);
    }

    /// How long it may be silent.
    pub fn patience(&self) -> Patience {
        let timeouts = &self.entrance.config.timeouts;
        Patience { idle: timeouts.idle, half_closed: timeouts.half_close_idle }
    }

    /// What `ekiden status` shows of it.
    pub fn view(&self) -> SessionView {
        let story = self.story.borrow();
        SessionView {
            session: self.id,
            listener: self.entrance.listener.name.clone(),
            client: self.address,
            user: story.user.as_deref().map(str::to_owned),
            peer: self.peer_name(),
            trace: story.trace.or(self.arrived_as),
            target: story.target.clone(),
            server: story.server,
            path: story.path.as_deref().unwrap_or("-").to_owned(),
            seconds: self.opened.elapsed().as_secs_f64(),
            bytes_up: self.meter.bytes(Direction::Up),
            bytes_down: self.meter.bytes(Direction::Down),
            down: tcp_info(self.client.as_fd()).ok(),
            up: story.stream.as_ref().and_then(|stream| tcp_info(stream.as_fd()).ok()),
        }
    }

    fn peer_name(&self) -> Option<String> {
        self.arrival.as_ref().map(|arrival| arrival.peer_name())
    }

    fn closed(&self) -> Closed {
        let story = self.story.take();
        let duration = self.opened.elapsed();
        let down = tcp_info(self.client.as_fd()).ok();
        let up = story.stream.as_ref().and_then(|stream| tcp_info(stream.as_fd()).ok()).or(story.up);
        let cut_off = if std::thread::panicking() { End::Panicked } else { End::Drained };
        let end = story.end.unwrap_or(cut_off);
        let (bytes_up, bytes_down) = (self.meter.bytes(Direction::Up), self.meter.bytes(Direction::Down));
        let (direction, bytes, sending) =
            if bytes_up > bytes_down { (Direction::Up, bytes_up, up) } else { (Direction::Down, bytes_down, down) };
        let stalled = self.meter.blocked_for(direction);
        Closed {
            session: self.id,
            listener: self.entrance.listener.name.clone(),
            client: self.address,
            user: story.user.map(String::from),
            peer: self.peer_name(),
            trace: story.trace.or(self.arrived_as),
            target: story.target,
            server: story.server,
            path: story.path.map_or_else(|| "-".to_owned(), String::from),
            end,
            detail: story.detail.or_else(|| end.detail().map(str::to_owned)),
            duration,
            connect: story.connect,
            hops: story.hops,
            bytes_up,
            bytes_down,
            bytes_spliced: self.meter.moved_by_splice(),
            down,
            up,
            limited: sending.and_then(|sending| limiting(direction, bytes, stalled, duration, &sending)),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let closed = self.closed();
        if matches!(closed.end, End::Drained | End::Panicked) {
            pump::abort(&self.client);
        }
        if let Some(trace) = self.arrived_as {
            self.entrance.shared().end_trace(&trace);
        }
        self.entrance.worker.unlist(self.place.get());
        self.entrance.left(self.address.0.ip(), closed.end != End::ClientLimit);
        self.entrance.shared().emit(&Event::Closed(Box::new(closed)));
    }
}
