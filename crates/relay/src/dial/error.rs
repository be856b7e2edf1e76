//! A dial that failed: why, and whose fault it is.

use ekiden_proto::cause::Cause;
use ekiden_proto::wire::section::OpenFailure;

/// A dial that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialError {
    /// Why.
    pub cause: Cause,
    /// The hop that failed, where it was not the target itself.
    pub hop: Option<String>,
    /// The relay that found out, where that was not this one.
    pub teller: Option<FailingRelay>,
    /// Whether the first hop of the path could not be used at all, so that nothing has gone that way.
    pub first_hop_down: bool,
    /// More, in words.
    pub remark: Option<String>,
    /// Whether only our own log may have the cause. Clients and other relays get `name_not_found`.
    pub is_concealed: bool,
}

/// A relay further along that says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingRelay {
    /// 0 for the next one, 1 for the one behind it, ...
    pub place: u8,
    /// Its name.
    pub name: String,
}

impl DialError {
    /// A hop is to blame.
    #[must_use]
    pub fn at_hop(cause: Cause, hop: impl ToString) -> Self {
        Self { hop: Some(hop.to_string()), ..cause.into() }
    }

    /// A hop that is asked for a lane, and knows of none.
    #[must_use]
    pub fn no_lanes(hop: impl ToString) -> Self {
        let remark = Some(
            "the last hop of the path is no relay, and packets need one: route these networks elsewhere".to_owned(),
        );
        Self { remark, ..Self::at_hop(Cause::Unreachable, hop) }
    }

    /// A relay of the fleet that is not there.
    #[must_use]
    pub fn hop_absent(hop: impl ToString) -> Self {
        let remark = Some("no relay of this name is in the fleet now: see `ekiden fleet list`".to_owned());
        Self { remark, first_hop_down: true, ..Self::at_hop(Cause::Unreachable, hop) }
    }

    /// The name resolves to private addresses, which the client may not reach. That the name exists is for the log only:
    /// a client could find out the names and addresses of our site from the answers.
    #[must_use]
    pub fn private_name() -> Self {
        let remark = Some("the name resolves to a private address".to_owned());
        Self { remark, is_concealed: true, ..Cause::Denied.into() }
    }

    /// Whether the next hop broke off.
    #[must_use]
    pub fn is_disconnect(&self) -> bool {
        self.teller.is_none() && self.cause == Cause::Reset
    }

    /// Whether it said nothing at all.
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.teller.is_none() && self.cause == Cause::TimedOut
    }

    /// What a hop says of its target is the fault of `next` where that target is the next hop.
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

    /// What the client is told: a hop that cannot be reached must not look like a target that cannot.
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

    /// The same in a sentence; it says which hop failed where the client may know our hops.
    #[must_use]
    pub fn message(&self, names_hops: bool) -> String {
        let cause = self.reported_cause();
        let Some(hop) = &self.hop else { return cause.sentence().to_owned() };
        if !names_hops {
            return format!("A hop of this relay's path {}.", cause.hop_predicate());
        }
        // The remark says why a relay refuses (an unknown or a wrong key), or what an HTTP proxy says.
        let has_words = matches!(cause, Cause::DeniedByHop | Cause::HopFailed);
        let words = self.remark.as_deref().filter(|_| has_words);
        format!("The hop {hop} {}.", words.unwrap_or(cause.hop_predicate()))
    }

    /// What the relay before us is told.
    #[must_use]
    pub fn open_failure(&self) -> OpenFailure {
        let relay = self.teller.as_ref().map_or(0, |teller| teller.place.saturating_add(1));
        OpenFailure { cause: self.reported_cause(), relay, is_about_hop: self.hop.is_some() }
    }

    fn reported_cause(&self) -> Cause {
        if self.is_concealed { Cause::NameNotFound } else { self.cause }
    }

    /// Who and more, for the log.
    #[must_use]
    pub fn detail(&self) -> Option<String> {
        let hop = self.hop.as_ref().map(|hop| format!("hop {hop}"));
        let teller = self.teller.as_ref().map(|teller| format!("said by {}", teller.name));
        let parts: Vec<_> = [hop, teller, self.remark.clone()].into_iter().flatten().collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl From<Cause> for DialError {
    fn from(cause: Cause) -> Self {
        Self { cause, hop: None, teller: None, first_hop_down: false, remark: None, is_concealed: false }
    }
}
