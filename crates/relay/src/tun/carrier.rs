//! Carries packets between a lane and the connection under it: each is one record.

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::pin::pin;
use std::time::Duration;

use ekiden_proto::cause::Cause;
use ekiden_proto::direction::Direction;
use ekiden_proto::wire::section::record::{HEADER, TAG};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::lane::Lane;
use crate::dial::{DialError, Teller};
use crate::ingress::write_all;
use crate::pump::{self, Meter, Seal};

/// Most bytes that are handed to the kernel at once, and that it keeps unsent: what is there cannot be dropped any more.
pub const UNSENT: u32 = 16 * 1024;

/// Records before other sessions of this thread get their turn.
const ROUNDS: usize = 64;

/// How long the other side has to take our last words.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why a lane has ended that was to go on.
#[derive(Debug)]
pub enum Broken {
    /// The other side has not agreed, or the way there does not stand.
    Refused(DialError),
    /// The connection is broken over which packets came in this direction.
    Connection(io::Error, Direction),
}

impl Broken {
    /// Whether the next relay broke off before it has agreed.
    pub fn is_break(&self) -> bool {
        matches!(self, Self::Refused(error) if error.is_break())
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(DialError {
                cause: Cause::Unreachable,
                hop: None,
                teller: Some(Teller { name, .. }),
                ..
            }) => {
                write!(
                    f,
                    "{name} has no tunnel: give it a listener with kind = \"tun\", or route these networks elsewhere"
                )
            }
            Self::Refused(error) => match error.detail() {
                Some(detail) => write!(f, "{} ({detail})", error.cause.word()),
                None => f.write_str(error.cause.word()),
            },
            Self::Connection(error, _) if error.kind() == io::ErrorKind::InvalidData => write!(f, "{error}"),
            Self::Connection(error, _) => write!(f, "its connection is broken: {error}"),
        }
    }
}

impl From<DialError> for Broken {
    fn from(error: DialError) -> Self {
        Self::Refused(error)
    }
}

/// The connection of a lane.
pub struct Carrier<'a> {
    /// Where packets wait.
    pub lane: &'a Lane,
    /// The section.
    pub stream: &'a TcpStream,
    /// Its keys.
    pub seal: &'a Seal,
    /// Who counts its bytes.
    pub meter: &'a Meter,
}

impl Carrier<'_> {
    /// Sends while `receiving`, which ends with the other side's last word, until that or `done`; or until the lane is
    /// retired. Then says goodbye.
    ///
    /// # Errors
    /// Why it has ended otherwise: the socket is to be closed by a reset.
    pub async fn run(
        &self,
        receiving: impl Future<Output = Result<(), Broken>>,
        done: impl Future<Output = ()>,
    ) -> Result<(), Broken> {
        // A relay that is killed closes its sockets, and that must not look like a goodbye.
        pump::abort(self.stream);
        let (mut sending, mut receiving) = (pin!(self.send()), pin!(receiving));
        tokio::select! {
            biased;
            received = &mut receiving => {
                received?;
                self.lane.retire();
                // Whoever has said goodbye may be gone, and need not hear ours.
                let _ = timeout(LAST_WORDS, sending).await;
            }
            () = done => {
                self.lane.retire();
                let sent = timeout(LAST_WORDS, sending).await;
                sent.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).map_err(|error| self.broken(error))?;
            }
            sent = &mut sending => self.sent(sent, receiving).await?,
        }
        pump::settle(self.stream);
        Ok(())
    }

    /// Nothing more can be sent. Where that is an error, what the other side said before is still there to be read: it may
    /// have been goodbye, or why.
    async fn sent(
        &self,
        sent: io::Result<()>,
        receiving: impl Future<Output = Result<(), Broken>>,
    ) -> Result<(), Broken> {
        let Err(error) = sent else { return Ok(()) };
        match timeout(LAST_WORDS, receiving).await {
            Ok(Ok(())) => {
                self.lane.retire();
                Ok(())
            }
            Ok(Err(refused @ Broken::Refused(_))) => Err(refused),
            _ => Err(self.broken(error)),
        }
    }

    fn broken(&self, error: io::Error) -> Broken {
        Broken::Connection(error, self.lane.receives())
    }

    /// Sends what waits, several packets at once if there are, until the lane is retired.
    async fn send(&self) -> io::Result<()> {
        loop {
            self.lane.has_packets().await;
            let records = self.records();
            if !records.is_empty() {
                write_all(self.stream, &records).await?;
            } else if self.lane.is_retired() {
                write_all(self.stream, &self.seal.end()).await?;
                // Whoever is gone already has heard enough.
                let _ = SockRef::from(self.stream).shutdown(Shutdown::Write);
                return Ok(());
            }
        }
    }

    /// What waits and is not late, as records.
    fn records(&self) -> Vec<u8> {
        let mut records = Vec::new();
        let mut room = usize::MAX;
        while let Some(packet) = self.lane.pop(room) {
            let start = records.len();
            records.extend_from_slice(&[0; HEADER]);
            records.extend_from_slice(&packet);
            records.extend_from_slice(&[0; TAG]);
            self.seal.seal(&mut records[start..]);
            self.lane.sent(packet.len());
            self.meter.copied(self.lane.sends(), packet.len());
            room = (UNSENT as usize).saturating_sub(records.len());
        }
        records
    }

    /// Gives every packet that comes to `take`, until the other side says that there are no more.
    ///
    /// # Errors
    /// The socket's; `InvalidData` for a record that was changed, left out, repeated or moved.
    pub async fn receive(&self, mut take: impl FnMut(&[u8])) -> Result<(), Broken> {
        loop {
            for _ in 0..ROUNDS {
                let opened = self.seal.next(self.stream).await.map_err(|error| self.broken(error))?;
                let packet = &opened.record[opened.plain];
                if packet.is_empty() {
                    return Ok(());
                }
                self.lane.received(packet.len());
                self.meter.copied(self.lane.receives(), packet.len());
                take(packet);
            }
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::io::Write;

    use super::*;
    use crate::metrics::Metrics;
    use crate::pump::{seals, sockets};
    use crate::tun::sources::Remote;

    /// What comes of a lane whose other side has said `last` and gone, with our packets unread.
    async fn ends(last: impl FnOnce(&Seal) -> Vec<u8>, reads_late: bool) -> Result<(), Broken> {
        let metrics = Metrics::new();
        let (ours, theirs) = seals();
        ours.only_records();
        let (stream, other) = sockets().await;
        let mut other = other.into_std().unwrap();
        other.write_all(&last(&theirs)).unwrap();
        SockRef::from(&other).set_linger(Some(Duration::ZERO)).unwrap();
        drop(other);
        let lane =
            Lane::new(&metrics.crossing("tunnel"), Remote::Path { name: "osaka".into(), key: None }, Direction::Up);
        lane.is_agreed();
        lane.push(&[0x45; 100]);
        let carrier =
            Carrier { lane: &lane, stream: &stream, seal: &ours, meter: &Meter::new(metrics.totals("tunnel")) };
        let receiving = async {
            if reads_late {
                tokio::task::yield_now().await;
            }
            carrier.receive(|_| {}).await
        };
        let ended = carrier.run(receiving, pending()).await;
        assert!(ended.is_err() || lane.is_retired());
        ended
    }

    #[tokio::test]
    async fn a_goodbye_is_one_even_where_the_connection_is_gone_behind_it() {
        for reads_late in [false, true] {
            assert!(ends(Seal::end, reads_late).await.is_ok(), "late: {reads_late}");
        }
    }

    #[tokio::test]
    async fn without_a_goodbye_it_is_broken() {
        for reads_late in [false, true] {
            let ended = ends(|seal| seal.sealed(b"a packet"), reads_late).await;
            assert!(matches!(ended, Err(Broken::Connection(..))), "late: {reads_late}");
        }
    }
}
