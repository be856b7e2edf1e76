//! From an encrypted section to a plain stream: for what cannot be done on records, as asking the next hop by its own
//! protocol, or HTTP and FTP requests.
//!
//! A pair of loopback connections and a pump between. It costs a copy; tunnels, which move most bytes, do not come here.

use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::ServerAddr;
use ekiden_proto::cause::Cause;
use ekiden_proto::wire::section::TraceId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::{DialError, Dialled, Opened};
use crate::pump::{self, Between, Meter, Opening, Patience, PipePool, Side, Totals};

/// The session that uses the stream has deadlines of its own; this one is for when it has forgotten it.
const PATIENCE: Duration = Duration::from_secs(24 * 3600);

/// The answer to OPEN: how long each relay took, or why the path does not stand.
pub type Answer = Pin<Box<dyn Future<Output = Result<Vec<Duration>, DialError>>>>;

/// A section whose bytes are as they are, for whoever speaks a protocol on it.
pub struct Plain {
    /// Where to speak.
    pub stream: Rc<TcpStream>,
    /// The section itself, where the stream is only a bridge to it.
    pub section: Rc<TcpStream>,
    /// What the section is connected to.
    pub server: ServerAddr,
    /// The name of the session on the relays.
    pub trace: Option<TraceId>,
    /// What has to be awaited before the first byte is read.
    pub answer: Option<Answer>,
}

/// Makes the section one for bytes as they are, and does not wait for the answer.
///
/// # Errors
/// There are no descriptors left.
pub async fn plain(dialled: Dialled) -> Result<Plain, DialError> {
    let trace = dialled.trace();
    let Dialled { stream, server, opened } = dialled;
    let section = Rc::new(stream);
    let (stream, answer) = match opened {
        None => (Rc::clone(&section), None),
        Some(opened) if opened.encrypt => {
            let (near, answer) = bridge(Rc::clone(&section), opened).await.map_err(|_| Cause::Exhausted)?;
            (Rc::new(near), Some(answer))
        }
        Some(opened) => {
            let stream = Rc::clone(&section);
            let answer: Answer = Box::pin(async move { opened.opening.answer(&stream, &opened.seal).await });
            (Rc::clone(&section), Some(answer))
        }
    };
    Ok(Plain { stream, section, server, trace, answer })
}

/// The same for whoever wants to own the stream, and knows that the path stands when this is done.
///
/// # Errors
/// The answer's cause; or there are no descriptors left.
pub async fn settled(dialled: Dialled) -> Result<(TcpStream, ServerAddr), DialError> {
    let Plain { stream, section, server, answer, .. } = plain(dialled).await?;
    drop(section);
    if let Some(answer) = answer {
        answer.await?;
    }
    let stream = Rc::into_inner(stream).expect("invariant: the answer held the only other one");
    Ok((stream, server))
}

async fn bridge(section: Rc<TcpStream>, opened: Opened) -> io::Result<(TcpStream, Answer)> {
    let (near, far) = pair().await?;
    let (told, answer) = oneshot::channel();
    tokio::task::spawn_local(async move {
        let opening: Opening<'_, DialError> = Box::pin(async {
            let answer = opened.opening.answer(&section, &opened.seal).await;
            let stands = answer.clone().map(drop);
            // Whoever does not wait for it any more has closed the other end, which the pump sees.
            let _ = told.send(answer);
            stands
        });
        let between = Between {
            client: Side::plain(&far),
            server: Side { stream: &section, seal: Some(&opened.seal) },
            early: Vec::new(),
            meter: &Meter::new(Arc::new(Totals::default())),
            pipes: &PipePool::new(0),
            patience: Patience { idle: PATIENCE, half_closed: PATIENCE },
        };
        pump::run(between, Some(opening)).await
    });
    let answer = async move { answer.await.unwrap_or_else(|_| Err(Cause::Reset.into())) };
    Ok((near, Box::pin(answer)))
}

/// Two ends of one loopback connection.
async fn pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let near = TcpStream::connect(listener.local_addr()?).await?;
    loop {
        let (far, address) = listener.accept().await?;
        // Anybody on this host may have been faster.
        if address == near.local_addr()? {
            near.set_nodelay(true)?;
            far.set_nodelay(true)?;
            return Ok((near, far));
        }
    }
}
