//! The targets of an association: whether its client may reach them, and at which address.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use ekiden_proto::addr::{Host, Target};
use ekiden_proto::cause::Cause;

use crate::config::access::Denied;
use crate::path;
use crate::session::Session;

/// The address of a target that the client may reach; `None` drops the datagram.
pub type Destination = Option<SocketAddr>;

/// Most targets at one time; datagrams to others are dropped.
const MAX_TARGETS: usize = 1024;

/// How long a verdict is valid: names and the addresses of this host change.
const VERDICT_AGE: Duration = Duration::from_secs(10);

/// How long a target may answer after its last verdict.
const ANSWER_AGE: Duration = Duration::from_secs(5 * 60);

/// The targets of an association, bounded in number.
#[derive(Default)]
pub struct Remotes {
    verdicts: HashMap<Target, (Destination, Instant)>,
    /// The addresses that may send to the client: those the client has sent to. The port is free, because protocols such
    /// as TFTP (RFC 1350) answer from another one.
    addresses: HashMap<IpAddr, Instant>,
}

impl Remotes {
    /// The verdict on `target`, while it is valid.
    pub fn verdict(&self, target: &Target) -> Option<Destination> {
        self.verdicts.get(target).filter(|(_, at)| at.elapsed() < VERDICT_AGE).map(|(verdict, _)| *verdict)
    }

    /// Stores a verdict. Returns false if there is no place.
    pub fn insert(&mut self, target: Target, verdict: Destination) -> bool {
        if self.verdicts.len() >= MAX_TARGETS && !self.verdicts.contains_key(&target) {
            self.verdicts.retain(|_, (_, at)| at.elapsed() < VERDICT_AGE);
        }
        if let Some(address) = verdict {
            if self.addresses.len() >= MAX_TARGETS {
                self.addresses.retain(|_, at| at.elapsed() < ANSWER_AGE);
            }
            if self.addresses.len() >= MAX_TARGETS && !self.addresses.contains_key(&address.ip()) {
                return false;
            }
            self.addresses.insert(address.ip(), Instant::now());
        }
        let has_place = self.verdicts.len() < MAX_TARGETS || self.verdicts.contains_key(&target);
        if has_place {
            self.verdicts.insert(target, (verdict, Instant::now()));
        }
        has_place
    }

    /// Whether the client has sent to `address`.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.get(&address).is_some_and(|at| at.elapsed() < ANSWER_AGE)
    }
}

/// The verdict on `target` at `ip`: by the routes, which must permit the path direct, and by the access rules.
pub fn judge(session: &Session, target: &Target, ip: IpAddr) -> Destination {
    let is_permitted = path::permits_direct(&session.context.config, &target.host, target.port)
        && session.dial_context.access().permits(&target.host, Some(ip), target.port);
    is_permitted.then(|| SocketAddr::new(ip, target.port))
}

/// Looks up the name of `target`. An IPv4 address is preferred: a datagram has no second attempt by the other family.
pub async fn resolve(session: &Session, target: &Target) -> Destination {
    let Host::Name(name) = &target.host else { return None };
    // A name on the deny list is not looked up. Other rules apply to the addresses of the name.
    if session.dial_context.access().judge(&target.host, None, target.port) == Err(Denied::Listed) {
        return None;
    }
    let lookup = session.context.resolver().lookup(name, session.context.config.timeouts.connect);
    let judge = |ip| judge(session, target, ip).filter(|address| has_route(*address)).map(drop).ok_or(Cause::Denied);
    lookup.first_address(&judge).await.ok().map(|ip| SocketAddr::new(ip, target.port))
}

/// Whether this host has a route to `address`: connect(2) of a datagram socket sends nothing.
fn has_route(address: SocketAddr) -> bool {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    UdpSocket::bind(any).and_then(|socket| socket.connect(address)).is_ok()
}
