//! Errors of dialling: the cause, and the failed hop.

use std::time::Duration;

use ekiden_proto::cause::Cause;
use ekiden_proto::wire::section::OpenFailure;

use super::link::ASSOCIATIONS_SINCE;
use crate::accounting::AccountRefusal;

/// The error of a failed dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialError {
    /// The cause of the failure.
    pub cause: Cause,
    /// The failed hop; `None` if the target failed.
    pub hop: Option<String>,
    /// The relay that detected the failure; `None` if this relay did.
    pub reported_by: Option<FailingRelay>,
    /// Whether the first hop of the path could not be reached, so that no byte of the session has been sent.
    pub first_hop_down: bool,
    /// Details for the log.
    pub remark: Option<String>,
    /// Whether the cause is reported only in the log of this relay. Clients and other relays receive `name_not_found`.
    pub is_concealed: bool,
    /// Time after which the client may try again; `None` if unknown.
    pub retry_after: Option<Duration>,
}

/// The relay on the path that reported the failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingRelay {
    /// Position on the path: 0 for the next relay, 1 for the relay after it, and so on.
    pub place: u8,
    /// Name of the relay.
    pub name: String,
}

impl DialError {
    /// Creates the error of a failed hop.
    #[must_use]
    pub fn at_hop(cause: Cause, hop: impl ToString) -> Self {
        Self { hop: Some(hop.to_string()), ..cause.into() }
    }

    /// Creates the error of a hop that does not support lanes.
    #[must_use]
    pub fn no_lanes(hop: impl ToString) -> Self {
        let remark = Some(
            "the last hop of the path is not a relay, and packets require a relay: route these networks by another path"
                .to_owned(),
        );
        Self { remark, ..Self::at_hop(Cause::Unreachable, hop) }
    }

    /// Creates the error of a relay whose version of the section protocol does not support associations.
    #[must_use]
    pub fn no_associations(hop: impl ToString, version: u8) -> Self {
        let remark = Some(format!(
            "the relay supports version {version} of the section protocol, and datagrams of SOCKS5 clients require \
             version {ASSOCIATIONS_SINCE}: upgrade the relay"
        ));
        Self { remark, ..Self::at_hop(Cause::HopProtocol, hop) }
    }

    /// Creates the error of a relay that the fleet does not have at the moment.
    #[must_use]
    pub fn hop_absent(hop: impl ToString) -> Self {
        let remark = Some("the fleet has no relay of this name now: see `ekiden fleet list`".to_owned());
        Self { remark, first_hop_down: true, ..Self::at_hop(Cause::Unreachable, hop) }
    }

    /// Creates the error of a name that resolves to private addresses, which the client may not reach. Only the log
    /// states that the name exists: otherwise a client could discover the internal names and addresses of this site.
    #[must_use]
    pub fn private_name() -> Self {
        let remark = Some("the name resolves to a private address".to_owned());
        Self { remark, is_concealed: true, ..Cause::Denied.into() }
    }

    /// Returns whether the next hop has closed or reset the connection.
    #[must_use]
    pub fn is_disconnect(&self) -> bool {
        self.reported_by.is_none() && self.cause == Cause::Reset
    }

    /// Returns whether a relay on the path has no resources for the session, independent of the target.
    #[must_use]
    pub const fn is_relay_full(&self) -> bool {
        self.reported_by.is_some() && matches!(self.cause, Cause::OverQuota | Cause::SessionLimit | Cause::Exhausted)
    }

    /// Returns whether the next relay itself has no resources for the session.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        self.is_relay_full() && self.reported_by.as_ref().is_some_and(|relay| relay.place == 0)
    }

    /// Returns whether the next hop did not answer in time.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.reported_by.is_none() && self.cause == Cause::TimedOut
    }

    /// Sets `next` as the failed hop if a hop has reported a failure of its target. `next` must be that target.
    #[must_use]
    pub fn blame_next_hop(self, next: impl ToString) -> Self {
        let is_of_target = matches!(
            self.cause,
            Cause::Refused
                | Cause::Unreachable
                | Cause::TimedOut
                | Cause::NameNotFound
                | Cause::NameServerFailed
                | Cause::Reset
        );
        let hop = self.hop.or_else(|| is_of_target.then(|| next.to_string()));
        Self { hop, ..self }
    }

    /// Returns the cause for the client: an unreachable hop must not look like an unreachable target.
    #[must_use]
    pub fn cause_for_client(&self) -> Cause {
        match (&self.hop, self.reported_cause()) {
            (
                Some(_),
                Cause::Refused | Cause::Unreachable | Cause::NameNotFound | Cause::NameServerFailed | Cause::Reset,
            ) => Cause::HopFailed,
            (_, cause) => cause,
        }
    }

    /// Returns the cause as a sentence, with the name of the failed hop if `names_hops` is set.
    #[must_use]
    pub fn message(&self, names_hops: bool) -> String {
        let cause = self.reported_cause();
        let Some(hop) = &self.hop else {
            let is_limit = matches!(cause, Cause::OverQuota | Cause::SessionLimit);
            let limit = self.remark.as_ref().filter(|_| is_limit);
            return limit
                .map_or_else(|| cause.sentence().to_owned(), |why| format!("This relay refuses the request: {why}."));
        };
        if !names_hops {
            return format!("A hop of this relay's path {}.", cause.hop_predicate());
        }
        // The remark contains the reason of a relay's refusal (an unknown or a wrong key) or the text of an HTTP
        // proxy's response.
        let has_words = matches!(cause, Cause::DeniedByHop | Cause::HopFailed);
        let words = self.remark.as_deref().filter(|_| has_words);
        format!("The hop {hop} {}.", words.unwrap_or(cause.hop_predicate()))
    }

    /// Returns the failure to send to the previous relay.
    #[must_use]
    pub fn open_failure(&self) -> OpenFailure {
        let relay = self.reported_by.as_ref().map_or(0, |relay| relay.place.saturating_add(1));
        OpenFailure { cause: self.reported_cause(), relay, is_about_hop: self.hop.is_some() }
    }

    fn reported_cause(&self) -> Cause {
        if self.is_concealed { Cause::NameNotFound } else { self.cause }
    }

    /// Returns the failing relay and the remark, for the log.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        let hop = self.hop.as_ref().map(|hop| format!("hop {hop}"));
        let reported_by = self.reported_by.as_ref().map(|relay| format!("reported by {}", relay.name));
        let parts: Vec<_> = [hop, reported_by, self.remark.clone()].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl From<AccountRefusal> for DialError {
    fn from(refusal: AccountRefusal) -> Self {
        let AccountRefusal { cause, reason, retry_after } = refusal;
        Self { remark: Some(reason), retry_after, ..cause.into() }
    }
}

impl From<Cause> for DialError {
    fn from(cause: Cause) -> Self {
        Self {
            cause,
            hop: None,
            reported_by: None,
            first_hop_down: false,
            remark: None,
            is_concealed: false,
            retry_after: None,
        }
    }
}
