//! One client connection, from accept to its closing event.
//!
//! [`run`] is the life of a connection: what does the client want, which way, dial, answer, pump. Everything that is
//! known of it gathers in [`Session`], whose drop writes the closing event, so there is always exactly one, even when
//! the session was cut off or panicked.

use std::cell::{Cell, RefCell};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Instant;

use ekiden_proto::addr::{ClientAddr, ServerAddr, Target};
use ekiden_proto::event::{Closed, End, Event, SectionInfo};
use ekiden_proto::limiting::{Direction, limiting};
use ekiden_sys::tcp_info::tcp_info;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::dial::{DialError, Dialled};
use crate::entrance::Entrance;
use crate::ingress::{self, Tunnel, Wish};
use crate::pump::{self, Meter, Patience};
use crate::status::SessionView;
use crate::users::Users;

/// Serves one client.
pub async fn run(session: Rc<Session>) {
    // Handshake and dial need much more room than what lasts longer, the pump or an exchange: each gets its own, and gives
    // it back.
    let connected = Box::pin(connect(&session)).await;
    let end = match connected {
        Ok(tunnel) => {
            let patience = session.patience();
            let Connected { server, early } = tunnel;
            pump::run(&session.client, &server, early, &session.meter, session.entrance.pipes(), patience).await
        }
        Err(end) => end,
    };
    session.ends(end);
}

/// A session that has reached its target.
struct Connected {
    server: Rc<TcpStream>,
    early: Vec<u8>,
}

async fn connect(session: &Rc<Session>) -> Result<Connected, End> {
    let mut inbox = ingress::Inbox::new(session);
    let mut wish = Box::pin(ingress::accept(session, &mut inbox)).await?;
    let tunnel = loop {
        match wish {
            Wish::Tunnel(tunnel) => break tunnel,
            Wish::Upgraded { server, early } => return Ok(Connected { server, early }),
            Wish::Http(request) => wish = ingress::http::serve(session, &mut inbox, *request).await?,
        }
    };
    Box::pin(open_tunnel(session, tunnel)).await
}

async fn open_tunnel(session: &Session, tunnel: Tunnel) -> Result<Connected, End> {
    let Tunnel { target, early, manner } = tunnel;
    session.wants(&target);
    let asked = Instant::now();
    match session.entrance.dialler().connect(&target).await {
        Ok(Dialled { stream, server }) => {
            let stream = Rc::new(stream);
            session.reached(server, Rc::clone(&stream), asked);
            manner.granted(&session.client, &stream).await.map_err(|_| End::ResetByClient)?;
            Ok(Connected { server: stream, early })
        }
        Err(error) => {
            manner.refused(&session.client, error.told_to_client()).await;
            Err(session.failed(error))
        }
    }
}

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
    address: ClientAddr,
    opened: Instant,
    story: RefCell<Story>,
    place: Cell<usize>,
}

/// The part of it that changes.
#[derive(Default)]
struct Story {
    user: Option<Box<str>>,
    target: Option<Target>,
    server: Option<ServerAddr>,
    stream: Option<Rc<TcpStream>>,
    connect: Option<std::time::Duration>,
    up: Option<SectionInfo>,
    end: Option<End>,
    detail: Option<String>,
}

impl Session {
    /// A session that has just been accepted; it is listed with its worker until it is dropped.
    pub fn open(entrance: Rc<Entrance>, client: TcpStream, address: ClientAddr) -> Rc<Self> {
        let shared = entrance.shared();
        shared.metrics.accepted(&entrance.listener.name);
        let session = Rc::new(Self {
            id: shared.next_session(),
            meter: Meter::new(entrance.totals()),
            client,
            address,
            opened: Instant::now(),
            story: RefCell::default(),
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

    /// Notes that the path stands.
    pub fn reached(&self, server: ServerAddr, stream: Rc<TcpStream>, asked: Instant) {
        let mut story = self.story.borrow_mut();
        story.connect = Some(asked.elapsed());
        story.server = Some(server);
        story.stream = Some(stream);
    }

    /// Notes that the server's section is no longer this session's; what the kernel knew of it is kept.
    pub fn parted(&self) {
        let mut story = self.story.borrow_mut();
        if let Some(stream) = story.stream.take() {
            story.up = tcp_info(stream.as_fd()).ok();
        }
    }

    /// Notes why the target was not reached.
    pub fn failed(&self, error: DialError) -> End {
        if let Some(hop) = error.hop {
            self.story.borrow_mut().detail = Some(format!("hop {hop}"));
        }
        End::ConnectFailed(error.cause)
    }

    /// Notes how it ended.
    pub fn ends(&self, end: End) {
        self.story.borrow_mut().end = Some(end);
    }

    fn patience(&self) -> Patience {
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
            target: story.target.clone(),
            server: story.server,
            path: self.entrance.path.to_string(),
            seconds: self.opened.elapsed().as_secs_f64(),
            bytes_up: self.meter.bytes(Direction::Up),
            bytes_down: self.meter.bytes(Direction::Down),
            down: tcp_info(self.client.as_fd()).ok(),
            up: story.stream.as_ref().and_then(|stream| tcp_info(stream.as_fd()).ok()),
        }
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
            target: story.target,
            server: story.server,
            path: self.entrance.path.to_string(),
            end,
            detail: story.detail.or_else(|| end.detail().map(str::to_owned)),
            duration,
            connect: story.connect,
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
        self.entrance.worker.unlist(self.place.get());
        self.entrance.left(self.address.0.ip(), closed.end != End::ClientLimit);
        self.entrance.shared().emit(&Event::Closed(Box::new(closed)));
    }
}
