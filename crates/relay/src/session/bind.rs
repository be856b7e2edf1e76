//! SOCKS5 BIND (RFC 1928, 4 and 6): accepts one connection for the client from an expected host, as for the active mode
//! of FTP.
//!
//! The first reply contains the address at which the relay listens, the second the address of the peer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ekiden_proto::addr::{Host, ServerAddr};
use ekiden_proto::cause::Cause;
use ekiden_proto::event::EndReason;
use ekiden_proto::profile::Profile;
use ekiden_proto::wire::socks5::{self, Reply};
use ekiden_sys::sockopt::SocketRole;
use ekiden_sys::transparent::set_mark;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::record::wait_client_end;
use super::{Connected, NamedPath, PathTaken, Session, association, refuse};
use crate::dial::DialError;
use crate::ingress::{BindRequest, Responder, send_and_close};
use crate::path;

/// The path name in the closing event, in metrics and in `ekiden status`.
const PATH: &str = "bind";

/// Longest wait for the connection of the peer.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(60);

/// Accepts the connection of the expected peer.
pub(super) async fn accept(session: &Session, request: BindRequest) -> Result<Connected, EndReason> {
    let BindRequest { peer, early } = request;
    session.dial_context.set_path(PathTaken { path: Some(NamedPath::NotDialled(PATH)), ..PathTaken::default() });
    let profile = check_peer(session, peer).await?;
    // The permit is released as soon as the relay stops listening.
    let Ok(permit) = session.context.services().bind_places.try_acquire() else {
        return Err(refuse(session, &Responder::Socks5, &Cause::Exhausted.into()).await);
    };
    let opened = listen(session, peer.ip(), &profile).and_then(|listener| Ok((listener.local_addr()?, listener)));
    let (local_address, listener) = match opened {
        Ok(opened) => opened,
        Err(error) => return Err(refuse(session, &Responder::Socks5, &cannot_listen(&error)).await),
    };
    reply(session, Reply::Succeeded, local_address).await?;
    let requested_at = Instant::now();
    let accepted = tokio::select! {
        accepted = timeout(ACCEPT_TIMEOUT, accept_from(&listener, peer.ip())) => accepted,
        _ = wait_client_end(session.client_end()) => return Err(EndReason::ResetByClient),
    };
    drop((listener, permit));
    match accepted {
        Ok(Ok((stream, from))) => {
            let server = Rc::new(stream);
            session.on_connected(ServerAddr(from), Rc::clone(&server), requested_at);
            reply(session, Reply::Succeeded, from).await?;
            Ok(Connected { server, section: None, reuse: None, pending_answer: None, early })
        }
        Ok(Err(error)) => Err(refuse(session, &Responder::Socks5, &cannot_listen(&error)).await),
        Err(_) => Err(refuse(session, &Responder::Socks5, &Cause::TimedOut.into()).await),
    }
}

/// Refuses the request if the rules forbid the peer or the path to the peer is not direct. A request without an address
/// of the peer is refused too: any host could connect. Returns the TCP settings of the connection.
async fn check_peer(session: &Session, peer: SocketAddr) -> Result<Arc<Profile>, EndReason> {
    let (host, context) = (Host::from(peer.ip()), &session.context);
    let is_permitted = session.dial_context.access().permits(&host, Some(peer.ip()), peer.port());
    if peer.ip().is_unspecified() || !is_permitted {
        let remark = peer.ip().is_unspecified().then(|| "BIND without the address of the expected peer".to_owned());
        return Err(refuse(session, &Responder::Socks5, &DialError { remark, ..Cause::Denied.into() }).await);
    }
    let path_choice = path::datagram_path(&context.config, &context.services().pools, &host, peer.port());
    let Some(path_choice) = path_choice.filter(|path_choice| path_choice.path.is_direct()) else {
        send_and_close(session.client_end(), &socks5::reply(Reply::CommandNotSupported, None)).await;
        return Err(EndReason::BadHandshake("BIND, and the route to the peer does not begin with the path direct"));
    };
    Ok(path_choice.profile)
}

async fn reply(session: &Session, reply: Reply, address: SocketAddr) -> Result<(), EndReason> {
    let sent = session.client_end().write_all(&socks5::reply(reply, Some(address))).await;
    sent.map_err(|_| EndReason::ResetByClient)
}

fn cannot_listen(error: &io::Error) -> DialError {
    DialError { remark: Some(format!("cannot accept a connection: {error}")), ..Cause::Exhausted.into() }
}

/// Listens at the local address from which this host reaches the peer.
fn listen(session: &Session, peer: IpAddr, profile: &Profile) -> io::Result<TcpListener> {
    // Any port will do for the route lookup: 9 is the discard service.
    let mut local = association::source_address(SocketAddr::new(peer, 9))?;
    local.set_port(0);
    let kind = Type::STREAM.nonblocking().cloexec();
    let socket = Socket::new(Domain::for_address(local), kind, Some(Protocol::TCP))?;
    if let Some(marks) = session.context.config.needed_marks() {
        set_mark(socket.as_fd(), marks.own())?;
    }
    session.context.config.congestion.apply(socket.as_fd(), profile, SocketRole::Listener);
    socket.bind(&local.into())?;
    socket.listen(1)?;
    TcpListener::from_std(socket.into())
}

/// Accepts the connection of the peer. Connections of other hosts are closed.
async fn accept_from(listener: &TcpListener, peer: IpAddr) -> io::Result<(TcpStream, SocketAddr)> {
    loop {
        let (stream, from) = listener.accept().await?;
        if from.ip().to_canonical() == peer {
            return Ok((stream, from));
        }
    }
}
