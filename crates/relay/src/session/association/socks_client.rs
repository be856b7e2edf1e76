//! An association of a SOCKS5 client (RFC 1928, 7). The association ends with its TCP connection.

use std::cell::Cell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use ekiden_proto::cause::Cause;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::socks5::{self, DatagramHeader, Reply};
use socket2::SockRef;
use tokio::net::{TcpStream, UdpSocket};

use super::datagram_sockets::{bind, each_datagram};
use super::{Association, ClientSide, MAX_HEADER, Outlet};
use crate::config::ConnectMode;
use crate::events::metrics::tunnels::DropReason;
use crate::ingress::{Responder, send_and_close};
use crate::path;
use crate::pump::wait_idle;
use crate::session::{NamedPath, PathTaken, Session, refuse};
use crate::tunnel::LaneError;

/// The path name in the closing event, in metrics and in `ekiden status`, if datagrams are sent directly.
const DIRECT_PATH: &str = "udp";

/// The reason of the closing event if no route permits the association.
const NO_ROUTE: &str = "UDP ASSOCIATE, and no route begins with a path of relays or with the path direct";

/// Serves an association to its end. `announced` is the source address of the datagrams that the client has announced.
pub async fn serve(session: &Rc<Session>, announced: Option<SocketAddr>) -> EndReason {
    if !path::has_datagram_route(&session.context.config) {
        send_and_close(session.client_end(), &socks5::reply(Reply::CommandNotSupported, None)).await;
        return EndReason::BadHandshake(NO_ROUTE);
    }
    let opened = SocksClient::open(session, announced).and_then(|client| Ok((client.socket.local_addr()?, client)));
    let Ok((local_address, client)) = opened else {
        return refuse(session, &Responder::Socks5, &Cause::Exhausted.into()).await;
    };
    let client = Rc::new(client);
    let association = Association::new(session, Box::new(Rc::clone(&client)));
    let outlet = Outlet::new(&association, None);
    set_direct_path(session);
    if let Err(end) = open_default_lane(session, &outlet).await {
        return end;
    }
    if session.client_end().write_all(&socks5::reply(Reply::Succeeded, Some(local_address))).await.is_err() {
        return EndReason::ResetByClient;
    }
    let end = tokio::select! {
        end = wait_end(&session.client) => end,
        () = wait_idle(&session.stats, session.context.config.timeouts.idle) => EndReason::Idle,
        end = outlet.run() => end,
        end = client.receive(&association, &outlet) => end,
    };
    report_dropped(session, outlet.dropped());
    end
}

/// Opens the lane of the default path. The client waits for the answer of the relays, unless the listener answers
/// early.
async fn open_default_lane(session: &Session, outlet: &Outlet) -> Result<(), EndReason> {
    let answer = outlet.open_default_lane();
    let Some(answer) = answer.filter(|_| session.context.listener.connect != ConnectMode::Early) else { return Ok(()) };
    let opened = tokio::select! {
        opened = answer => opened,
        end = wait_end(&session.client) => return Err(end),
    };
    let error = match opened {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(LaneError::Refused(error))) => error,
        Ok(Err(LaneError::Connection(..))) | Err(_) => Cause::Reset.into(),
    };
    Err(refuse(session, &Responder::Socks5, &error).await)
}

/// Sets the path name of an association whose datagrams are sent directly, until a lane is opened.
pub fn set_direct_path(session: &Session) {
    session.dial_context.set_path(PathTaken { path: Some(NamedPath::NotDialled(DIRECT_PATH)), ..PathTaken::default() });
}

/// Reports the number of dropped datagrams in the detail of the closing event.
pub fn report_dropped(session: &Session, dropped: u64) {
    if dropped > 0 {
        session.set_detail(Some(format!("{dropped} datagrams dropped")));
    }
}

/// The client of an association.
struct SocksClient {
    session: Rc<Session>,
    socket: UdpSocket,
    /// The address of the client to which `socket` is connected, so that the kernel drops datagrams of other hosts.
    /// `None` until that address is known.
    address: Cell<Option<SocketAddr>>,
}

impl SocksClient {
    fn open(session: &Rc<Session>, announced: Option<SocketAddr>) -> io::Result<Self> {
        let mut local = session.client.local_addr()?;
        local.set_port(0);
        if local.ip().to_canonical().is_ipv4() {
            local = SocketAddr::new(local.ip().to_canonical(), 0);
        }
        let client = Self { session: Rc::clone(session), socket: bind(local)?, address: Cell::new(None) };
        // A client behind address translation does not know the address that the relay sees, so an announced address
        // counts only if it matches.
        if let Some(announced) = announced.filter(|announced| announced.ip() == client.ip()) {
            client.connect(announced);
        }
        Ok(client)
    }

    fn ip(&self) -> IpAddr {
        self.session.dial_context.client.0.ip()
    }

    /// Connects the socket to an address of the client, so that only that address can send and receive. Before, nothing
    /// is sent to the client.
    fn connect(&self, address: SocketAddr) {
        let connected = SockRef::from(&self.socket).connect(&address.into());
        self.address.set(connected.is_ok().then_some(address));
    }

    /// Whether a datagram is from the client. Until the client's port is known, its IP address is compared.
    fn is_from_client(&self, from: SocketAddr) -> bool {
        self.address.get().map_or_else(|| from.ip() == self.ip(), |address| from == address)
    }

    /// Forwards the datagrams of the client, until a quota is used up.
    async fn receive(&self, association: &Association, outlet: &Outlet) -> EndReason {
        while self.session.accounts().used_up().is_none() {
            // The next receive returns an error, if there is one.
            let _ = self.socket.readable().await;
            each_datagram(&self.socket, |buffer, length, from| {
                if let Err(reason) = self.on_datagram(outlet, &buffer[MAX_HEADER..][..length], from) {
                    association.drop_datagram(reason);
                }
            });
            tokio::task::yield_now().await;
        }
        EndReason::OverQuota
    }

    fn on_datagram(&self, outlet: &Outlet, datagram: &[u8], from: SocketAddr) -> Result<(), DropReason> {
        if !self.is_from_client(from) {
            return Err(DropReason::Stranger);
        }
        let (header, used) = DatagramHeader::parse(datagram).map_err(|_| DropReason::Malformed)?;
        if header.fragment != 0 {
            return Err(DropReason::Fragment);
        }
        if self.address.get().is_none() {
            self.connect(from);
        }
        outlet.send(header.target, &datagram[used..]);
        Ok(())
    }
}

impl ClientSide for Rc<SocksClient> {
    fn send(&self, datagram: &[u8]) -> Result<(), Option<DropReason>> {
        if self.address.get().is_none() {
            return Err(Some(DropReason::Stranger));
        }
        SockRef::from(&self.socket).send(datagram).map(drop).map_err(|_| Some(DropReason::NotTaken))
    }
}

/// Waits until the client ends its TCP connection. Bytes on the connection are discarded.
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
