//! The side of a report connection that asks: calls one relay, asks it every few seconds, and looks at the section to it
//! when nothing else does.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::{ClientAddr, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::event::Event;
use ekiden_proto::path::prefix::Prefix;
use ekiden_proto::wire::section::report::{Ask, Look, MOST_LOOK, Report};
use ekiden_proto::wire::section::{Answer, Failure, Purpose, open};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::answer::Line;
use super::keeper::Means;
use super::{Book, Place};
use crate::config::{Hop, Peering};
use crate::dial::section::{self, Destination};
use crate::dial::{Journey, Ready};
use crate::pump::{Seal, abort};
use crate::shared::Shared;

/// How often it asks.
const ASK: Duration = Duration::from_secs(3);

/// How often it looks where nothing flows: 16 KiB each way are 22 kbit/s, and twice as much where both sides look.
const LOOK: Duration = Duration::from_secs(12);

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Pauses between two calls: after a connection that broke, and after a relay has not understood.
const PAUSE: Duration = Duration::from_secs(5);
const LONG_PAUSE: Duration = Duration::from_secs(600);

/// How a call ended.
enum Ended {
    /// The relay cannot be reached, or has gone.
    Broken,
    /// It does not know what a report is.
    NotUnderstood,
}

/// Calls `hop` for as long as it is wanted.
pub async fn run(hop: Arc<Hop>, means: Rc<Means>, shared: Arc<Shared>) {
    let Some(peering) = hop.peering() else { return };
    let mut has_told = false;
    loop {
        let pause = match call(&hop, peering, &means, &shared).await {
            Ended::Broken => PAUSE,
            Ended::NotUnderstood => {
                if !has_told {
                    let message = format!(
                        "relay {hop} does not say what its sections are like: update ekiden there to have it choose well"
                    );
                    shared.emit(&Event::Warning { message });
                }
                has_told = true;
                LONG_PAUSE
            }
        };
        sleep(pause).await;
    }
}

async fn call(hop: &Arc<Hop>, peering: &Peering, means: &Means, shared: &Shared) -> Ended {
    let Ok((stream, seal)) = open(hop, peering, means, Purpose::Report, true).await else { return Ended::Broken };
    let answer = timeout(PATIENCE, seal.next(&stream)).await;
    match answer {
        Ok(Ok(record)) if Answer::read(&record.record[record.plain.clone()]).is_ok_and(|it| it.outcome.is_ok()) => {}
        _ => return Ended::NotUnderstood,
    }
    let mut caller =
        Caller { line: Line::new(stream, &seal, peering.key, true), place: Place::Relay(peering.key), from: None };
    // However it ends, it begins anew.
    let _: io::Result<()> = caller.talk(&shared.book, hop, peering, means).await;
    Ended::Broken
}

struct Caller<'a> {
    line: Line<'a>,
    place: Place,
    /// Where the last question has ended.
    from: Option<Prefix>,
}

impl Caller<'_> {
    async fn talk(&mut self, book: &Book, hop: &Arc<Hop>, peering: &Peering, means: &Means) -> io::Result<()> {
        loop {
            let begun = Instant::now();
            self.ask(book).await?;
            if book.needs_look(self.place, LOOK) {
                self.look(book).await?;
            }
            for target in book.take_looks(&peering.key) {
                if let Some(took) = look_at(target, hop, peering, means).await {
                    book.looked(peering.key, target, took);
                }
            }
            tokio::time::sleep_until(begun + ASK).await;
        }
    }

    async fn ask(&mut self, book: &Book) -> io::Result<()> {
        let (prefixes, end) = book.wanted(self.from);
        self.from = end;
        self.line.send(&Report::Ask(Ask { neighbours: true, prefixes })).await?;
        match self.line.next(PATIENCE).await? {
            Report::Tell(entries) => {
                let Place::Relay(teller) = self.place else { return Ok(()) };
                book.hear(teller, &entries);
                Ok(())
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    async fn look(&mut self, book: &Book) -> io::Result<()> {
        self.line.send(&Report::Look(Look { bytes: MOST_LOOK, back: MOST_LOOK })).await?;
        match self.line.next(PATIENCE).await? {
            Report::Look(_) => {
                self.line.measure(book);
                Ok(())
            }
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Has a relay connect to a target, and says how long that took there.
async fn look_at(target: SocketAddr, hop: &Arc<Hop>, peering: &Peering, means: &Means) -> Option<Duration> {
    let purpose = Purpose::Stream(Target::from(target));
    let (stream, seal) = open(hop, peering, means, purpose, peering.encrypt).await.ok()?;
    let record = timeout(means.config.timeouts.connect, seal.next(&stream)).await.ok()?.ok()?;
    abort(&stream);
    let answer = Answer::read(&record.record[record.plain]).ok()?;
    let has_heard = match answer.outcome {
        Ok(()) => true,
        Err(Failure { cause, relay, of_hop }) => cause == Cause::Refused && relay == 0 && !of_hop,
    };
    answer.times.first().copied().filter(|_| has_heard)
}

/// Dials a relay, and opens on the connection what `purpose` says.
async fn open(
    hop: &Arc<Hop>,
    peering: &Peering,
    means: &Means,
    purpose: Purpose,
    encrypt: bool,
) -> Result<(TcpStream, Seal), Ended> {
    let deadline = Instant::now() + means.config.timeouts.connect;
    let dialling = (&means.names, &means.config.congestion, means.config.needed_marks());
    let ready = section::prepare(hop, peering, None, dialling, deadline).await;
    let Ready { mut stream, transport, .. } = ready.map_err(|_| Ended::Broken)?;
    let client = ClientAddr(stream.local_addr().map_err(|_| Ended::Broken)?);
    let journey = Journey { trace: None, client, early: false, encrypt, hops_left: open::MOST_HOPS };
    let seal = Seal::new(transport, open::Answer::MOST);
    let destination = Destination { path: Vec::new(), purpose, encrypt };
    section::open(&mut stream, &seal, &journey, destination).await.map_err(|_| Ended::Broken)?;
    if encrypt {
        seal.only_records();
    }
    Ok((stream, seal))
}
