//! A SOCKS5 UDP association (RFC 1928, 7): relays the datagrams of one client directly to their targets.
//!
//! The association ends with its TCP connection. One socket faces the client, and one of each address family the targets.
//! A datagram that cannot be sent at once, or is above the rate of the listener or of the user, is dropped.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;

use ekiden_proto::addr::{Host, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::direction::Direction;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::socks5::{self, DatagramHeader, Reply};
use ekiden_sys::transparent::set_mark;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;

use super::remotes::{self, Destination, Remotes};
use super::{PathTaken, Session};
use crate::dial::DialError;
use crate::ingress::send_and_close;
use crate::path;
use crate::pump::wait_idle;

/// The name of the path in the closing event, in metrics and in `ekiden status`.
const PATH: &str = "udp";

/// The reason of the closing event if no route permits the association.
const NO_DIRECT_ROUTE: &str = "UDP ASSOCIATE, and no route begins with the path direct";

/// Datagrams of one socket before other sessions of the thread get their turn.
const DATAGRAMS_PER_TURN: usize = 64;

/// Most names that are being looked up for one association. Each lookup holds one datagram.
const MAX_LOOKUPS: usize = 8;

/// The largest payload of UDP over IPv4 and IPv6, in bytes.
const MAX_DATAGRAM: usize = 65_535;

thread_local! {
    /// Holds one datagram with room for its header. No session keeps the buffer over an `await`.
    static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; DatagramHeader::MAX_WRITTEN + MAX_DATAGRAM]);
}

/// An association and its sockets.
struct Association {
    session: Rc<Session>,
    client: UdpSocket,
    /// The address of the client to which `client` is connected, so that the kernel drops the datagrams of others.
    client_address: Cell<Option<SocketAddr>>,
    v4: Option<UdpSocket>,
    v6: Option<UdpSocket>,
    remotes: RefCell<Remotes>,
    lookups: RefCell<JoinSet<(Target, Destination, Vec<u8>)>>,
    dropped: Cell<u64>,
}

/// Serves an association to its end. `announced` is the address from which the client says it will send.
pub(super) async fn serve(session: &Rc<Session>, announced: Option<SocketAddr>) -> EndReason {
    if !path::has_direct_route(&session.context.config) {
        send_and_close(session.client_end(), &socks5::reply(Reply::CommandNotSupported, None)).await;
        return EndReason::BadHandshake(NO_DIRECT_ROUTE);
    }
    let opened = Association::open(session, announced).and_then(|this| Ok((this.client.local_addr()?, this)));
    let Ok((bound, association)) = opened else { return refuse(session, &Cause::Exhausted.into()).await };
    session.dial_context.set_path(PathTaken { path: Some(PATH.into()), ..PathTaken::default() });
    if session.client_end().write_all(&socks5::reply(Reply::Succeeded, Some(bound))).await.is_err() {
        return EndReason::ResetByClient;
    }
    let end = association.relay().await;
    match association.dropped.get() {
        0 => {}
        dropped => session.set_detail(Some(format!("{dropped} datagrams dropped"))),
    }
    end
}

/// Refuses an association with the cause of `error`.
pub(super) async fn refuse(session: &Session, error: &DialError) -> EndReason {
    send_and_close(session.client_end(), &socks5::reply(error.cause.into(), None)).await;
    session.record_dial_error(error)
}

impl Association {
    fn open(session: &Rc<Session>, announced: Option<SocketAddr>) -> io::Result<Self> {
        let mut local = session.client.local_addr()?;
        local.set_port(0);
        if local.ip().to_canonical().is_ipv4() {
            local = SocketAddr::new(local.ip().to_canonical(), 0);
        }
        let this = Self {
            session: Rc::clone(session),
            client: bind(local)?,
            client_address: Cell::new(None),
            v4: bind_family(session, Ipv4Addr::UNSPECIFIED.into()),
            v6: bind_family(session, Ipv6Addr::UNSPECIFIED.into()),
            remotes: RefCell::default(),
            lookups: RefCell::default(),
            dropped: Cell::new(0),
        };
        // Behind address translation the client does not know the address that arrives here.
        if let Some(announced) = announced.filter(|announced| announced.ip() == this.client_ip()) {
            this.connect_client(announced);
        }
        Ok(this)
    }

    fn client_ip(&self) -> IpAddr {
        self.session.dial_context.client.0.ip()
    }

    /// Sends to and receives from this address of the client only. Before, nothing is sent to the client.
    fn connect_client(&self, address: SocketAddr) {
        let connected = SockRef::from(&self.client).connect(&address.into());
        self.client_address.set(connected.is_ok().then_some(address));
    }

    /// Whether a datagram is the client's. Its address is known after its first datagram, if not before.
    fn is_from_client(&self, from: SocketAddr) -> bool {
        self.client_address.get().map_or_else(|| from.ip() == self.client_ip(), |address| from == address)
    }

    async fn relay(&self) -> EndReason {
        let session = &self.session;
        let mut ended = std::pin::pin!(wait_end(&session.client));
        let mut idle = std::pin::pin!(wait_idle(&session.stats, session.context.config.timeouts.idle));
        while session.accounts().used_up().is_none() {
            tokio::select! {
                end = &mut ended => return end,
                () = &mut idle => return EndReason::Idle,
                _ = self.client.readable() => self.receive_from_client(),
                _ = readable(self.v4.as_ref()) => self.receive_from_targets(self.v4.as_ref()),
                _ = readable(self.v6.as_ref()) => self.receive_from_targets(self.v6.as_ref()),
                (target, verdict, payload) = self.next_lookup() => self.on_lookup(target, verdict, &payload),
            }
            tokio::task::yield_now().await;
        }
        EndReason::OverQuota
    }

    fn receive_from_client(&self) {
        each_datagram(&self.client, |buffer, length, from| {
            if !self.is_from_client(from) {
                return self.drop_datagram();
            }
            let datagram = &buffer[DatagramHeader::MAX_WRITTEN..][..length];
            match DatagramHeader::parse(datagram) {
                Ok((DatagramHeader { fragment: 0, target }, used)) => {
                    if self.client_address.get().is_none() {
                        self.connect_client(from);
                    }
                    self.send_to_target(target, &datagram[used..]);
                }
                _ => self.drop_datagram(),
            }
        });
    }

    fn send_to_target(&self, target: Target, payload: &[u8]) {
        let known = self.remotes.borrow_mut().verdict(&target);
        match (known, &target.host) {
            (Some(verdict), _) => self.send(verdict, payload),
            (None, Host::Ip(ip)) => {
                let verdict = remotes::judge(&self.session, &target, *ip);
                let has_place = self.remotes.borrow_mut().insert(target, verdict);
                self.send(verdict.filter(|_| has_place), payload);
            }
            (None, Host::Name(_)) => self.start_lookup(target, payload),
        }
    }

    /// Looks up a name. Datagrams to the name are dropped until the answer, except for `payload`.
    fn start_lookup(&self, target: Target, payload: &[u8]) {
        let mut lookups = self.lookups.borrow_mut();
        if lookups.len() >= MAX_LOOKUPS || !self.remotes.borrow_mut().insert(target.clone(), None) {
            return self.drop_datagram();
        }
        let (session, payload) = (Rc::clone(&self.session), payload.to_vec());
        lookups.spawn_local(async move {
            let verdict = remotes::resolve(&session, &target).await;
            (target, verdict, payload)
        });
    }

    /// The next answer of a lookup; pending while there is no lookup.
    async fn next_lookup(&self) -> (Target, Destination, Vec<u8>) {
        loop {
            let next = std::future::poll_fn(|cx| self.lookups.borrow_mut().poll_join_next(cx)).await;
            match next {
                Some(Ok(answer)) => return answer,
                // A lookup that has panicked counts as one without an answer.
                Some(Err(_)) => {}
                None => pending().await,
            }
        }
    }

    fn on_lookup(&self, target: Target, verdict: Destination, payload: &[u8]) {
        let has_place = self.remotes.borrow_mut().insert(target, verdict);
        self.send(verdict.filter(|_| has_place), payload);
    }

    fn send(&self, verdict: Destination, payload: &[u8]) {
        let sent =
            verdict.filter(|_| self.session.accounts().try_pass(Direction::Up, payload.len())).is_some_and(|address| {
                let socket = if address.is_ipv4() { &self.v4 } else { &self.v6 };
                socket.as_ref().is_some_and(|socket| socket.try_send_to(payload, address).is_ok())
            });
        if sent { self.session.stats.record_copied(Direction::Up, payload.len()) } else { self.drop_datagram() }
    }

    fn receive_from_targets(&self, socket: Option<&UdpSocket>) {
        let Some(socket) = socket else { return };
        let mut header = Vec::with_capacity(DatagramHeader::MAX_WRITTEN);
        each_datagram(socket, |buffer, length, from| {
            let is_expected = self.client_address.get().is_some() && self.remotes.borrow().has_address(from.ip());
            if !is_expected || !self.session.accounts().try_pass(Direction::Down, length) {
                return self.drop_datagram();
            }
            header.clear();
            DatagramHeader::write(from, &mut header);
            let start = DatagramHeader::MAX_WRITTEN - header.len();
            buffer[start..DatagramHeader::MAX_WRITTEN].copy_from_slice(&header);
            match self.client.try_send(&buffer[start..DatagramHeader::MAX_WRITTEN + length]) {
                Ok(_) => self.session.stats.record_copied(Direction::Down, length),
                Err(_) => self.drop_datagram(),
            }
        });
    }

    fn drop_datagram(&self) {
        self.dropped.set(self.dropped.get() + 1);
    }
}

/// A socket toward the targets of one family; `None` where the host does not have the family.
fn bind_family(session: &Session, any: IpAddr) -> Option<UdpSocket> {
    let socket = bind(SocketAddr::new(any, 0)).ok()?;
    if let Some(marks) = session.context.config.needed_marks() {
        set_mark(socket.as_fd(), marks.own()).ok()?;
    }
    Some(socket)
}

fn bind(address: SocketAddr) -> io::Result<UdpSocket> {
    let kind = Type::DGRAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

/// Passes on the datagrams that have arrived, with the buffer, their length behind the room for a header, and their source.
fn each_datagram(socket: &UdpSocket, mut each: impl FnMut(&mut [u8], usize, SocketAddr)) {
    BUFFER.with_borrow_mut(|buffer| {
        for _ in 0..DATAGRAMS_PER_TURN {
            match socket.try_recv_from(&mut buffer[DatagramHeader::MAX_WRITTEN..]) {
                Ok((length, from)) => each(buffer, length, from),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An ICMP error of an earlier datagram (udp(7)); the next call returns a datagram.
                Err(_) => {}
            }
        }
    });
}

async fn readable(socket: Option<&UdpSocket>) -> io::Result<()> {
    match socket {
        Some(socket) => socket.readable().await,
        None => pending().await,
    }
}

/// Waits until the client ends its TCP connection. The connection carries no further bytes; those that come are discarded.
async fn wait_end(client: &TcpStream) -> EndReason {
    let mut bytes = [0; 256];
    loop {
        let read = match client.readable().await {
            Ok(()) => client.try_read(&mut bytes),
            Err(error) => Err(error),
        };
        match read {
            Ok(0) => return EndReason::Finished,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return EndReason::ResetByClient,
            Err(_) => return EndReason::ClientLost,
        }
    }
}
