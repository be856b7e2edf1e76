//! Bridges a framed section to a plain stream, for code that does not handle records: requests to the next hop, HTTP
//! and FTP.
//!
//! A bridge is a loopback connection with a pump between the section and one end. A bridge adds one copy; tunnelled
//! sessions, which move most bytes, need no bridge.

use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use ekiden_proto::addr::ServerAddr;
use ekiden_proto::cause::Cause;
use ekiden_proto::event::EndReason;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::{DialError, Dialled, OpenedSession};
use crate::pump::{self, Endpoint, FlowStats, IdleTimeouts, PendingAnswer, PipePool, PumpParams, loopback_pair};

/// Idle timeout of a bridge, for bridges whose session has ended; sessions have their own timeouts.
const BRIDGE_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// The answer to OPEN: the setup time of each relay, or the cause of the failure.
pub type AnswerFuture = Pin<Box<dyn Future<Output = Result<Vec<Duration>, DialError>>>>;

/// A section as a plain stream.
pub struct PlainSection {
    /// The stream to use.
    pub stream: Rc<TcpStream>,
    /// The section itself, if the stream is a bridge.
    pub section: Rc<TcpStream>,
    /// The peer of the section.
    pub server: ServerAddr,
    /// The outstanding answer to OPEN, which must be awaited before the first read.
    pub answer: Option<AnswerFuture>,
}

/// Converts a section into a plain stream, without waiting for the answer to OPEN.
///
/// # Errors
/// No file descriptors are left.
pub async fn into_plain(dialled: Dialled) -> Result<PlainSection, DialError> {
    let Dialled { stream, server, opened } = dialled;
    let section = Rc::new(stream);
    let (stream, answer) = match opened {
        None => (Rc::clone(&section), None),
        Some(opened) if !opened.section.framing().is_raw() => {
            let (session_end, answer) = bridge(Rc::clone(&section), opened).await.map_err(|_| Cause::Exhausted)?;
            (Rc::new(session_end), Some(answer))
        }
        Some(opened) => {
            let stream = Rc::clone(&section);
            let answer: AnswerFuture =
                Box::pin(async move { opened.opening.wait_answer(&stream, &opened.section.cipher).await });
            (Rc::clone(&section), Some(answer))
        }
    };
    Ok(PlainSection { stream, section, server, answer })
}

/// As [`into_plain`], but waits for the answer and returns an owned stream.
///
/// # Errors
/// The cause in the answer, or no file descriptors are left.
pub async fn into_owned_stream(dialled: Dialled) -> Result<(TcpStream, ServerAddr), DialError> {
    let PlainSection { stream, section, server, answer, .. } = into_plain(dialled).await?;
    drop(section);
    if let Some(answer) = answer {
        answer.await?;
    }
    let stream = Rc::into_inner(stream).expect("invariant: the answer held the only other reference");
    Ok((stream, server))
}

async fn bridge(stream: Rc<TcpStream>, opened: OpenedSession) -> io::Result<(TcpStream, AnswerFuture)> {
    let (session_end, pump_end) = loopback_pair().await?;
    let (answer_sender, answer) = oneshot::channel();
    tokio::task::spawn_local(async move {
        let OpenedSession { opening, section, reuse } = opened;
        let pending_answer: PendingAnswer<'_, DialError> = Box::pin(async {
            let answer = opening.wait_answer(&stream, &section.cipher).await;
            let result = answer.clone().map(drop);
            // If the receiver has been dropped, the other end of the bridge is closed, which the pump detects.
            let _ = answer_sender.send(answer);
            result
        });
        let stats = FlowStats::new(Rc::new(()));
        let params = PumpParams {
            client: Endpoint::plain(&pump_end),
            server: Endpoint { stream: &stream, framing: section.framing() },
            early: Vec::new(),
            stats: &stats,
            pipes: &PipePool::new(0),
            idle_timeouts: IdleTimeouts { idle: BRIDGE_TIMEOUT, half_closed: BRIDGE_TIMEOUT },
        };
        let end = pump::run(params, Some(pending_answer)).await;
        // The section is returned to the pool only if the session holds no reference to it any more.
        if let (Ok(EndReason::Finished), Some(reuse)) = (end, reuse)
            && let (Some(stream), Some(section)) = (Rc::into_inner(stream), Rc::into_inner(section))
        {
            reuse.put_back(stream, section, stats.moved());
        }
    });
    let answer = async move { answer.await.unwrap_or_else(|_| Err(Cause::Reset.into())) };
    Ok((session_end, Box::pin(answer)))
}
