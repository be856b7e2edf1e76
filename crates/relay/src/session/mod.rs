//! One client connection, from accept to its closing event.
//!
//! [`run`] is the life of a connection: what does the client want, which way, dial, answer, pump. Everything that is
//! known of it gathers in [`Session`], whose drop writes the closing event, so there is always exactly one, even when
//! the session was cut off or panicked.

mod account;
mod reach;

use std::rc::Rc;
use std::time::Instant;

use ekiden_proto::event::End;
use tokio::net::TcpStream;

use crate::config::Connect;
use crate::dial::{DialError, Dialled, Opened};
use crate::ingress::{self, Manner, Tunnel, Wish};
use crate::pump::{self, Between, Opening, Side};

pub use account::Session;
pub use reach::{Reached, dial, reach};

/// Serves one client.
pub async fn run(session: Rc<Session>) {
    let end = match connect(&session).await {
        Ok(connected) => carry(&session, connected).await,
        Err(end) => end,
    };
    session.ends(end);
}

/// A session that has reached its target, or will have when a relay has answered.
struct Connected {
    server: Rc<TcpStream>,
    opened: Option<Opened>,
    /// How the client is to hear of the answer, and since when it is awaited; none when there is nothing to wait for.
    awaits: Option<(Manner, Instant)>,
    early: Vec<u8>,
}

/// Handshake, exchange and dial need much more room than the pump, which lasts longer: each gets its own, and gives it back.
async fn connect(session: &Rc<Session>) -> Result<Connected, End> {
    let mut inbox = ingress::Inbox::new(session);
    let mut wish = Box::pin(ingress::accept(session, &mut inbox)).await?;
    let tunnel = loop {
        match wish {
            Wish::Tunnel(tunnel) => break tunnel,
            Wish::Upgraded { server, early } => return Ok(Connected { server, opened: None, awaits: None, early }),
            Wish::Http(request) => {
                wish = Box::pin(ingress::http::serve(session, &mut inbox, *request)).await?;
            }
        }
    };
    Box::pin(open_tunnel(session, tunnel)).await
}

async fn open_tunnel(session: &Session, tunnel: Tunnel) -> Result<Connected, End> {
    let Tunnel { target, early, manner } = tunnel;
    session.wants(&target);
    let manner = if session.entrance.listener.connect == Connect::Early {
        manner.granted_early(&session.client).await?
    } else {
        manner
    };
    let asked = Instant::now();
    let reached = if manner.waits() { reach(session, &target).await } else { dial(session, &target).await };
    let Reached { dialled: Dialled { stream, server, opened }, times, .. } = match reached {
        Ok(reached) => reached,
        Err(error) => return Err(refuse(session, &manner, &error).await),
    };
    let stream = Rc::new(stream);
    session.reached(server, Rc::clone(&stream), asked);
    let Some(times) = times else {
        return Ok(Connected { server: stream, opened, awaits: Some((manner, asked)), early });
    };
    session.answered(times, asked);
    let granted = manner.granted(&session.client, stream.local_addr().ok(), &session.hop_times()).await;
    granted.map_err(|_| End::ResetByClient)?;
    Ok(Connected { server: stream, opened, awaits: None, early })
}

async fn refuse(session: &Session, manner: &Manner, error: &DialError) -> End {
    manner.refused(&session.client, error).await;
    session.failed(error)
}

/// Pumps, from the first byte on; where a relay still owes an answer, the client is told of it when it comes.
async fn carry(session: &Session, connected: Connected) -> End {
    let Connected { server, opened, awaits, early } = connected;
    let manner = awaits.as_ref().map_or(Manner::Silent, |(manner, _)| manner.clone());
    let (up, down) = (opened.as_ref().and_then(Opened::data_seal), session.data_seal());
    let opening = opened.zip(awaits).map(|(opened, (manner, asked))| -> Opening<'_, DialError> {
        let server = &server;
        Box::pin(async move {
            let times = opened.opening.answer(server, &opened.seal).await?;
            session.answered(times, asked);
            // A client that is gone is what the pump sees next.
            let _ = manner.granted(&session.client, None, &session.hop_times()).await;
            Ok(())
        })
    });
    let between = Between {
        client: Side { stream: &session.client, seal: down.as_deref() },
        server: Side { stream: &server, seal: up.as_deref() },
        early,
        meter: &session.meter,
        pipes: session.entrance.pipes(),
        patience: session.patience(),
    };
    match pump::run(between, opening).await {
        Ok(end) => end,
        Err(error) => Box::pin(refuse(session, &manner, &error)).await,
    }
}
