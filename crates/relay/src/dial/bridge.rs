//! From an encrypted section to a plain stream: for what cannot be done on records, as asking the next hop by its own
//! protocol, or HTTP and FTP requests.
//!
//! A pair of loopback connections and a pump between. It costs a copy; tunnels, which move most bytes, do not come here.

use std::io;
use std::net::Ipv4Addr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use ekiden_proto::addr::ServerAddr;
use ekiden_proto::cause::Cause;
use ekiden_proto::wire::section::TraceId;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

use super::{DialError, Dialled, OpenedSession};
use crate::pump::{self, Endpoint, FlowStats, IdleTimeouts, PendingAnswer, PipePool, PumpParams};

/// The session that uses the stream has deadlines of its own; this one is for when it has forgotten it.
const BRIDGE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// The answer to OPEN: how long each relay took, or why the path does not stand.
pub type AnswerFuture = Pin<Box<dyn Future<Output = Result<Vec<Duration>, DialError>>>>;

/// A section whose bytes are as they are, for whoever speaks a protocol on it.
pub struct PlainSection {
    /// Where to speak.
    pub stream: Rc<TcpStream>,
    /// The section itself, where the stream is only a bridge to it.
    pub section: Rc<TcpStream>,
    /// What the section is connected to.
    pub server: ServerAddr,
    /// The name of the session on the relays.
    pub trace: Option<TraceId>,
    /// What has to be awaited before the first byte is read.
    pub answer: Option<AnswerFuture>,
}

/// Makes the section one for bytes as they are, and does not wait for the answer.
///
/// # Errors
/// There are no descriptors left.
pub async fn into_plain(dialled: Dialled) -> Result<PlainSection, DialError> {
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
            let answer: AnswerFuture =
                Box::pin(async move { opened.opening.wait_answer(&stream, &opened.cipher).await });
            (Rc::clone(&section), Some(answer))
        }
    };
    Ok(PlainSection { stream, section, server, trace, answer })
}

/// The same for whoever wants to own the stream, and knows that the path stands when this is done.
///
/// # Errors
/// The answer's cause; or there are no descriptors left.
pub async fn into_owned_stream(dialled: Dialled) -> Result<(TcpStream, ServerAddr), DialError> {
    let PlainSection { stream, section, server, answer, .. } = into_plain(dialled).await?;
    drop(section);
    if let Some(answer) = answer {
        answer.await?;
    }
    let stream = Rc::into_inner(stream).expect("invariant: the answer held the only other one");
    Ok((stream, server))
}

async fn bridge(section: Rc<TcpStream>, opened: OpenedSession) -> io::Result<(TcpStream, AnswerFuture)> {
    let (near, far) = loopback_pair().await?;
    let (told, answer) = oneshot::channel();
    tokio::task::spawn_local(async move {
        let opening: PendingAnswer<'_, DialError> = Box::pin(async {
            let answer = opened.opening.wait_answer(&section, &opened.cipher).await;
            let stands = answer.clone().map(drop);
            // Whoever does not wait for it any more has closed the other end, which the pump sees.
            let _ = told.send(answer);
            stands
        });
        let params = PumpParams {
            client: Endpoint::plain(&far),
            server: Endpoint { stream: &section, cipher: Some(&opened.cipher) },
            early: Vec::new(),
            stats: &FlowStats::new(Rc::new(())),
            pipes: &PipePool::new(0),
            patience: IdleTimeouts { idle: BRIDGE_TIMEOUT, half_closed: BRIDGE_TIMEOUT },
        };
        pump::run(params, Some(opening)).await
    });
    let answer = async move { answer.await.unwrap_or_else(|_| Err(Cause::Reset.into())) };
    Ok((near, Box::pin(answer)))
}

/// Two ends of one loopback connection.
async fn loopback_pair() -> io::Result<(TcpStream, TcpStream)> {
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
