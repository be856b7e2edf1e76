//! One client connection, from accept to its closing event.
//!
//! [`run`] is the life of a connection: what does the client want, which way, dial, answer, pump. Everything that is
//! known of it gathers in [`EtcdSession`], whose drop writes the closing event, so there is always exactly one, even when
//! the session was cut off or panicked.

mod account;
mod errand;
mod limits;
mod outcome;
mod race;
mod reach;
mod samples;

use std::rc::Rc;
use std::time::Instant;

use ekiden_proto::cause::Cause;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::section::Purpose;
use tokio::io::Interest;
use tokio::net::TcpStream;

use crate::config::ConnectMode;
use crate::dial::{DialError, Dialled, Opened};
use crate::gate::Ahead;
use crate::ingress::{self, Manner, Tunnel, Wish};
use crate::pump::{self, Between, Opening, Seal, Side};
use crate::tun;

pub use account::{Came, Session};
pub use errand::{Errand, Taken};
pub use outcome::Course;
pub use reach::{Reached, dial, reach, reach_by};
pub use samples::Samples;

/// Serves one client.
pub async fn run(session: Rc<Session>) {
    let lane = session.errand.arrival.as_ref().filter(|arrival| arrival.open.purpose == Purpose::Datagrams);
    let end =
        if let Some(arrival) = lane { Box::pin(tun::serve(&session, arrival)).await } else { stream(&session).await };
    session.ends(end);
}

async fn stream(session: &Rc<Session>) -> EndReason {
    match connect(session).await {
        Ok(connected) => carry(session, connected).await,
        Err(end) => end,
    }
}

/// A session that has reached its target, or will have when a relay has answered.
struct Connected {
    server: Rc<TcpStream>,
    /// The keys of the server's bytes, where those are in records.
    seal: Option<Rc<Seal>>,
    /// None when there is nothing to wait for.
    awaits: Option<Awaited>,
    early: Vec<u8>,
}

/// An answer that a relay still owes, how the client is to hear of it, and since when it is awaited.
type Awaited = (Opened, Manner, Instant);

/// Handshake, exchange and dial need much more room than the pump, which lasts longer: each gets its own, and gives it back.
async fn connect(session: &Rc<Session>) -> Result<Connected, EndReason> {
    let mut inbox = ingress::Inbox::new(session);
    let mut wish = Box::pin(ingress::accept(session, &mut inbox)).await?;
    let tunnel = loop {
        match wish {
            Wish::Tunnel(tunnel) => break tunnel,
            Wish::Upgraded { server, early } => return Ok(Connected { server, seal: None, awaits: None, early }),
            Wish::Dialled(ahead) => return go_on(session, *ahead),
            Wish::Http(request) => {
                wish = Box::pin(ingress::http::serve(session, &mut inbox, *request)).await?;
            }
        }
    };
    Box::pin(open_tunnel(session, tunnel)).await
}

/// Goes on where the gate has dialled already.
fn go_on(session: &Session, ahead: Ahead) -> Result<Connected, EndReason> {
    let Ahead { stream, server, seal, taken, times, took } = ahead;
    session.errand.went(taken);
    let stream = TcpStream::from_std(stream).map_err(|_| EndReason::ConnectFailed(Cause::Exhausted))?;
    let asked = Instant::now().checked_sub(took).unwrap_or_else(Instant::now);
    let stream = Rc::new(stream);
    session.reached(server, Rc::clone(&stream), asked);
    session.answered(times, asked);
    Ok(Connected { server: stream, seal: seal.map(Rc::new), awaits: None, early: Vec::new() })
}

async fn open_tunnel(session: &Session, tunnel: Tunnel) -> Result<Connected, EndReason> {
    let Tunnel { target, early, manner } = tunnel;
    session.wants(&target);
    let manner = if session.entrance.listener.connect == ConnectMode::Early {
        manner.granted_early(&session.client).await?
    } else {
        manner
    };
    let (errand, asked) = (&session.errand, Instant::now());
    let reaching = async { if manner.waits() { reach(errand, &target).await } else { dial(errand, &target).await } };
    let reached = tokio::select! {
        biased;
        reached = reaching => reached,
        _ = session.client.ready(Interest::ERROR) => return Err(EndReason::ResetByClient),
    };
    let Reached { dialled: Dialled { stream, server, opened }, times, .. } = match reached {
        Ok(reached) => reached,
        Err(error) => return Err(refuse(session, &manner, &error).await),
    };
    let stream = Rc::new(stream);
    session.reached(server, Rc::clone(&stream), asked);
    let seal = opened.as_ref().and_then(Opened::data_seal);
    let Some(times) = times else {
        let awaits = opened.map(|opened| (opened, manner, asked));
        return Ok(Connected { server: stream, seal, awaits, early });
    };
    session.answered(times, asked);
    let granted = manner.granted(&session.client, stream.local_addr().ok(), &session.hop_times()).await;
    granted.map_err(|_| EndReason::ResetByClient)?;
    Ok(Connected { server: stream, seal, awaits: None, early })
}

async fn refuse(session: &Session, manner: &Manner, error: &DialError) -> EndReason {
    let names_hops = !session.entrance.listener.admits_unauthenticated();
    manner.refused(&session.client, error, names_hops).await;
    session.failed(error)
}

/// Pumps, from the first byte on; where a relay still owes an answer, the client is told of it when it comes.
async fn carry(session: &Session, connected: Connected) -> EndReason {
    let Connected { server, seal: up, awaits, early } = connected;
    let down = session.data_seal();
    let manner = awaits.as_ref().map_or(Manner::Silent, |(_, manner, _)| manner.clone());
    let opening = awaits.map(|(opened, manner, asked)| -> Opening<'_, DialError> {
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
