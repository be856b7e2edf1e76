//! Clients that know nothing of us: where they wanted to go is what the kernel says.

use ekiden_proto::addr::{ClientAddr, ServerAddr, Target};
use ekiden_proto::event::EndReason;
use ekiden_sys::origdst::original_destination;
use ekiden_sys::transparent::is_local;
use std::os::fd::AsFd;
use tokio::net::TcpStream;

use super::{Manner, Tunnel, Wish};
use crate::config::ListenerKind;
use crate::entrance::{Entrance, canonical};
use crate::gate::Ends;
use crate::pump;
use crate::session::Session;

/// The ends of a connection that the rules have caught; none for one that was made to a listener of ours itself, which
/// would lead back here for ever.
pub fn ends(entrance: &Entrance, stream: &TcpStream, client: ClientAddr) -> Option<Ends> {
    let server = match entrance.listener.kind {
        ListenerKind::Redirect => original_destination(stream.as_fd()),
        _ => stream.local_addr(),
    };
    let server = canonical(server.ok()?);
    let our_port = entrance.config.transparent_listeners().any(|listener| listener.bind.port() == server.port());
    let is_ours = our_port && is_local(server.ip()).unwrap_or(true);
    (!is_ours).then_some(Ends { client, server: ServerAddr(server) })
}

/// What it wants is to reach whom it called.
///
/// # Errors
/// It called us.
pub fn accept(session: &Session) -> Result<Wish, EndReason> {
    let Some(ends) = session.caught else {
        pump::abort(&session.client);
        return Err(EndReason::BadHandshake("it came to the listener itself"));
    };
    if let Some(ahead) = session.take_ahead() {
        session.wants(&Target::from(ends.server.0));
        return Ok(Wish::Dialled(Box::new(ahead)));
    }
    let target = Target::from(ends.server.0);
    Ok(Wish::Tunnel(Tunnel { target, early: Vec::new(), manner: Manner::Caught }))
}
