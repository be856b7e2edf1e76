//! Intercepted clients: the kernel supplies the original destination, which is the target.

use std::os::fd::AsFd;
use std::time::Duration;

use ekiden_proto::addr::{ClientAddr, ServerAddr, Target};
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::server_name;
use ekiden_sys::origdst::original_destination;
use ekiden_sys::transparent::is_local;
use tokio::net::TcpStream;

use super::gate::FourTuple;
use super::listener::{ListenerContext, canonical};
use super::{ClientRequest, HandshakeReader, Responder, TunnelRequest};
use crate::config::ListenerKind;
use crate::pump;
use crate::session::Session;

/// Returns the four-tuple of an intercepted connection; `None` for a connection to the listener's own address, which
/// the relay would dial again and again.
pub fn four_tuple(context: &ListenerContext, stream: &TcpStream, client: ClientAddr) -> Option<FourTuple> {
    let server = match context.listener.kind {
        ListenerKind::Redirect => original_destination(stream.as_fd()),
        _ => stream.local_addr(),
    };
    let server = canonical(server.ok()?);
    let our_port = context.config.transparent_listeners().any(|listener| listener.bind.port() == server.port());
    let is_ours = our_port && is_local(server.ip()).unwrap_or(true);
    (!is_ours).then_some(FourTuple { client, server: ServerAddr(server) })
}

/// Longest wait for the server name. In protocols in which the server sends first, every connection is delayed by this
/// time.
const MAX_NAME_WAIT: Duration = Duration::from_millis(150);

/// Accepts an intercepted client: its target is the server address of the four-tuple.
///
/// # Errors
/// The client connected to the listener itself, and was not intercepted.
pub async fn accept(session: &Session, reader: &mut HandshakeReader<'_>) -> Result<ClientRequest, EndReason> {
    let Some(ends) = &session.caught else {
        pump::abort(&session.client);
        return Err(EndReason::BadHandshake("a connection to the address of the listener, not intercepted"));
    };
    if let Some(pre_dialed) = session.take_pre_dialed() {
        session.set_target(&Target::from(ends.server.0));
        return Ok(ClientRequest::Dialled(Box::new(pre_dialed)));
    }
    let target = Target::from(ends.server.0);
    if session.context.listener.capture.as_ref().is_some_and(|capture| capture.server_names) {
        reader.set_deadline(Some(MAX_NAME_WAIT));
        // An error is ignored here: the pump meets the end or the reset of the stream again.
        if let Ok(Some(name)) = reader.next(server_name::read).await {
            session.dial_context.set_server_name(name);
        }
    }
    Ok(ClientRequest::Tunnel(TunnelRequest { target, early: reader.take_all(), responder: Responder::Caught }))
}
