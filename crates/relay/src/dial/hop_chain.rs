//! A chain of hops, opened from the first to the last.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ekiden_proto::addr::Target;
use ekiden_proto::cause::Cause;
use ekiden_proto::key::PublicKey;
use ekiden_proto::wire::section::Purpose;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::OutgoingSocket;
use super::link::{ASSOCIATIONS_SINCE, SectionLink, SectionReuse};
use super::section::{self, OpenParams, OpenTarget, OutgoingContext, ReadyConnection, SentOpen};
use super::{DialError, Dialled, Dialler, OpenedSession, into_owned_stream, proxy};
use crate::config::{Hop, HopKind, Peering};
use crate::dial;
use crate::pool::{IdleConnection, SessionLoad};
use crate::pump::FramedSection;

/// Minimum time for an attempt at a member, if enough time remains: the retransmission of a lost SYN after 1 s (RFC
/// 6298), and two round trips.
const MIN_ATTEMPT_TIME: Duration = Duration::from_millis(1500);

/// A chain of hops that grows hop by hop.
pub(super) struct HopChain<'a> {
    dialler: &'a Dialler<'a>,
    open_params: &'a OpenParams,
    deadline: Instant,
}

impl<'a> HopChain<'a> {
    pub(super) const fn new(dialler: &'a Dialler<'a>, open_params: &'a OpenParams, deadline: Instant) -> Self {
        Self { dialler, open_params, deadline }
    }

    /// Opens the first hop and extends the chain through each further hop. Consecutive relays are one step: the first
    /// relay gets the keys of the others.
    pub(super) async fn extend(
        &self,
        hops: &[Arc<Hop>],
        later_relays: &[PublicKey],
        end: &Purpose,
    ) -> Result<Dialled, DialError> {
        // Before the first hop is dialled: the address of an absent relay leads nowhere.
        if let Some(absent) = hops.iter().find(|hop| hop.kind == HopKind::Absent) {
            return Err(DialError::hop_absent(absent));
        }
        let mut connection = None;
        let mut rest = hops;
        while let Some((hop, remaining)) = rest.split_first() {
            let following_count = remaining.iter().take_while(|next| next.is_section() && hop.is_section()).count();
            let (following, remaining) = remaining.split_at(following_count);
            let next = remaining.first().map_or_else(|| end.clone(), |hop| Purpose::Stream(hop.address.clone()));
            let dialled = match &hop.kind {
                HopKind::Section(peering) => {
                    let is_last = remaining.is_empty();
                    let relays =
                        RelayRun { hop, peering, following, later_relays: if is_last { later_relays } else { &[] } };
                    let framing = self.choose_framing(&relays, &next, is_last && connection.is_none());
                    let member = match connection {
                        None => self.reach_member(&relays, framing.encrypt).await?,
                        Some(connection) => self.reach_behind_proxy(connection, &relays).await?,
                    };
                    self.open(member, relays, next, framing).await?
                }
                HopKind::Absent => unreachable!("invariant: no hop of the chain is absent"),
                HopKind::Socks5(_) | HopKind::Http(_) => {
                    let next = next.target().ok_or_else(|| DialError::no_lanes(hop))?;
                    let result = self.connect_next(connection, hop, next).await;
                    result.map_err(|error| match remaining.first() {
                        Some(next) => error.blame_next_hop(next),
                        None => error,
                    })?
                }
            };
            (connection, rest) = (Some(dialled), remaining);
        }
        Ok(connection.expect("invariant: a chain has a hop"))
    }

    pub(super) async fn open_hop(&self, hop: &Hop) -> Result<Dialled, DialError> {
        let Dialler { names, congestion, pools, marks, .. } = *self.dialler;
        let outgoing = OutgoingSocket { profile: &hop.profile, congestion, marks, source: None };
        let opened = dial::open(&hop.address, outgoing, names, &|_| Ok(()), self.deadline).await;
        let opened = opened.map_err(|cause| DialError { first_hop_down: true, ..DialError::at_hop(cause, hop) });
        pools.record_attempt(hop, opened.as_ref().err());
        let (stream, server) = opened?;
        Ok(Dialled { stream, server, opened: None })
    }

    async fn connect_next(&self, connection: Option<Dialled>, hop: &Hop, next: &Target) -> Result<Dialled, DialError> {
        let connection = match connection {
            None => self.open_hop(hop).await?,
            Some(connection) => connection,
        };
        let (mut stream, server) = into_owned_stream(connection).await.map_err(|error| error.blame_next_hop(hop))?;
        let result = timeout_at(self.deadline, proxy::request_connect(&mut stream, hop, next)).await;
        result.map_err(|_| DialError::at_hop(Cause::TimedOut, hop))?.map_err(|refusal| DialError {
            hop: hop_at_fault(hop, refusal.cause),
            remark: refusal.remark,
            ..refusal.cause.into()
        })?;
        Ok(Dialled { stream, server, opened: None })
    }

    /// Performs the handshake with the relay behind a proxy, over the proxied `connection`.
    async fn reach_behind_proxy(&self, connection: Dialled, relays: &RelayRun<'_>) -> Result<ReachedMember, DialError> {
        let RelayRun { hop, peering, .. } = *relays;
        let (mut stream, server) = into_owned_stream(connection).await.map_err(|error| error.blame_next_hop(hop))?;
        let keys = section::handshake(&mut stream, hop, peering, self.deadline).await?;
        Ok(ReachedMember { hop: Arc::clone(hop), ready: ReadyConnection::new(stream, server, keys), load: None })
    }

    /// Connects to the first member of the relay that can be reached. A timeout marks a member as down only if the
    /// attempt had all of the remaining time.
    async fn reach_member(&self, relays: &RelayRun<'_>, encrypt: bool) -> Result<ReachedMember, DialError> {
        let pools = self.dialler.pools;
        let members = pools.order(relays.hop, self.open_params.client.0.ip());
        let mut failure = None;
        for (at, hop) in members.iter().enumerate() {
            let (now, rest) = (Instant::now(), &members[at..]);
            let remaining = self.deadline.saturating_duration_since(now);
            if remaining.is_zero() && failure.is_some() {
                break;
            }
            let up_count = rest.iter().filter(|member| !pools.is_down(member)).count();
            let time = attempt_time(remaining, if up_count > 0 { up_count } else { rest.len() });
            let load = pools.start_session(hop);
            match self.ready_connection(hop, relays.peering, encrypt, now + time).await {
                Ok(ready) => {
                    if !ready.waited {
                        pools.record_attempt(hop, None);
                    }
                    return Ok(ReachedMember { hop: Arc::clone(hop), ready, load });
                }
                Err(error) => {
                    let had_all_time = at == 0 && time == remaining;
                    if had_all_time || !error.is_timeout() {
                        pools.record_attempt(hop, Some(&error));
                    }
                    failure = Some(error);
                }
            }
        }
        Err(failure.expect("invariant: a relay has a member"))
    }

    /// Returns a connection on which a session can be opened: a ready connection from the pool, or a new connection.
    async fn ready_connection(
        &self,
        hop: &Hop,
        peering: &Peering,
        encrypt: bool,
        deadline: Instant,
    ) -> Result<ReadyConnection, DialError> {
        let Dialler { names, congestion, pools, marks, .. } = *self.dialler;
        if let Some(IdleConnection { stream, server, link }) = pools.take(hop, encrypt)
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            return Ok(ReadyConnection { stream, server, link, resumption: None, waited: true });
        }
        section::prepare(hop, peering, None, OutgoingContext { names, congestion, marks }, deadline).await
    }

    /// Returns the framing of a session to these relays. `can_return` says whether the connection can be returned to a
    /// pool.
    fn choose_framing(&self, relays: &RelayRun<'_>, purpose: &Purpose, can_return: bool) -> WantedFraming {
        let is_stream = purpose.target().is_some();
        let encrypt = self.open_params.encrypt || relays.requires_encryption() || !is_stream;
        // Code that does not handle framing needs a bridge, which adds a copy. Reuse alone does not justify that cost.
        let can_frame = encrypt || self.open_params.can_frame;
        WantedFraming { encrypt, reusable: can_frame && is_stream && can_return }
    }

    async fn open(
        &self,
        member: ReachedMember,
        relays: RelayRun<'_>,
        purpose: Purpose,
        framing: WantedFraming,
    ) -> Result<Dialled, DialError> {
        if self.open_params.hops_left == 0 {
            return Err(Cause::Loop.into());
        }
        let ReachedMember { hop, ready: ReadyConnection { mut stream, server, link, waited, .. }, load } = member;
        let reusable = framing.reusable && link.is_reusable();
        let SectionLink { cipher, usage, version } = link;
        if purpose == Purpose::Association && version < ASSOCIATIONS_SINCE {
            return Err(DialError::no_associations(&*hop, version));
        }
        let section = FramedSection { cipher, encrypt: framing.encrypt, reusable };
        let destination = OpenTarget { path: relays.keys(), purpose, encrypt: framing.encrypt, reusable };
        let result = section::open(&mut stream, &section.cipher, self.open_params, destination).await;
        let trace = result.map_err(|_| DialError::at_hop(Cause::Reset, &*hop))?;
        section.on_opened();
        let can_redial = waited || relays.hop.group.is_some();
        let pool = can_redial.then(|| Arc::clone(self.dialler.pools));
        let (following, deadline, sent_at) = (relays.names(), self.deadline, Instant::now());
        let pools = Arc::clone(self.dialler.pools);
        let reuse = reusable.then(|| SectionReuse { hop: Arc::clone(&hop), server, version, usage, pools });
        let opening = SentOpen { trace, hop, following, deadline, pool, load, sent_at, setup_times: OnceCell::new() };
        Ok(Dialled { stream, server, opened: Some(OpenedSession { opening, section: Rc::new(section), reuse }) })
    }
}

/// A relay, or the chosen member of a group, with a connection for the session.
struct ReachedMember {
    hop: Arc<Hop>,
    ready: ReadyConnection,
    /// The load of the session; `None` behind a proxy.
    load: Option<Arc<SessionLoad>>,
}

/// The requested framing of a session on a section.
#[derive(Clone, Copy)]
struct WantedFraming {
    encrypt: bool,
    /// Whether another session may follow.
    reusable: bool,
}

/// Consecutive relays on a path.
struct RelayRun<'a> {
    hop: &'a Arc<Hop>,
    peering: &'a Peering,
    /// The relays after `hop`.
    following: &'a [Arc<Hop>],
    /// The keys of the relays after `following`, whose names and settings are not known.
    later_relays: &'a [PublicKey],
}

impl RelayRun<'_> {
    fn peerings(&self) -> impl Iterator<Item = &Peering> {
        self.following.iter().filter_map(|hop| hop.peering())
    }

    fn keys(&self) -> Vec<PublicKey> {
        self.peerings().map(|peering| peering.key).chain(self.later_relays.iter().copied()).collect()
    }

    fn names(&self) -> Vec<Box<str>> {
        self.following.iter().map(|hop| hop.name.clone()).collect()
    }

    /// Returns whether any relay of the run requires encryption. If so, all sections up to that relay are encrypted.
    fn requires_encryption(&self) -> bool {
        self.peering.encrypt || self.peerings().any(|peering| peering.encrypt)
    }
}

/// Returns the time for one attempt if `members` members share the time `remaining`.
fn attempt_time(remaining: Duration, members: usize) -> Duration {
    (remaining / u32::try_from(members).unwrap_or(u32::MAX)).max(MIN_ATTEMPT_TIME).min(remaining)
}

/// Returns the name of the hop if a reported cause concerns the hop itself and not its target.
fn hop_at_fault(hop: &Hop, cause: Cause) -> Option<String> {
    let is_hop_cause = matches!(cause, Cause::DeniedByHop | Cause::HopProtocol | Cause::HopFailed | Cause::Reset);
    is_hop_cause.then(|| hop.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_share_the_timeout_with_a_minimum_per_attempt() {
        let milliseconds = Duration::from_millis;
        assert_eq!(attempt_time(milliseconds(10_000), 4), milliseconds(2500));
        assert_eq!(attempt_time(milliseconds(10_000), 1), milliseconds(10_000));
        assert_eq!(attempt_time(milliseconds(4000), 4), milliseconds(1500));
        assert_eq!(attempt_time(milliseconds(1000), 4), milliseconds(1000));
    }
}
