//! A connection of a client that carries sessions as streams (RFC 9113).

use std::cell::Cell;
use std::rc::Rc;

use crate::ingress::listener::ListenerContext;
use crate::pump::tls_stream::TlsConnection;
use crate::shaping::autotune::Tuner;
use crate::shaping::fair_share::PacedSocket;

/// The connection that carries the sessions of one client. It is the client section of each of these sessions.
#[derive(Debug)]
pub struct CarrierConnection {
    /// The connection and its cipher.
    pub connection: Rc<TlsConnection>,
    /// Paces the connection; `None` if its interface is not shared.
    pub paced: Option<Rc<PacedSocket>>,
    /// Tunes the connection; `None` if its profile leaves nothing to tune.
    pub tuner: Option<Rc<Tuner>>,
    sessions: Cell<u32>,
}

impl CarrierConnection {
    /// Creates the state of a client's connection to `context` that has carried no session.
    pub fn new(context: &ListenerContext, connection: Rc<TlsConnection>) -> Self {
        let paced = context.pace_client_section(&connection.stream);
        let tuner = context.tuner(&connection.stream, &context.listener.profile);
        Self { connection, paced, tuner, sessions: Cell::new(0) }
    }

    /// Counts a session, and returns the number of earlier sessions.
    pub fn count_session(&self) -> u32 {
        self.sessions.replace(self.sessions.get().saturating_add(1))
    }
}
