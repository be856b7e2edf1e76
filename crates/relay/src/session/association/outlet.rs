//! The target side of an association: decides how each datagram is forwarded, and sends it.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use ekiden_proto::addr::{Host, Target};
use ekiden_proto::cause::Cause;
use ekiden_proto::direction::Direction;
use ekiden_proto::event::EndReason;
use ekiden_proto::wire::section::datagram::write_destination;
use ekiden_proto::wire::socks5::DatagramHeader;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::datagram_sockets::{TargetSockets, source_address};
use super::lanes::{LaneAnswer, Lanes};
use super::remotes::{Destination, RelayedTarget, Remotes, TargetVerdict};
use super::{Association, MAX_HEADER};
use crate::config::Resolve;
use crate::config::access::Denied;
use crate::events::metrics::tunnels::DropReason;
use crate::path::{self, PathChoice};

/// Largest number of names that are looked up for one association at the same time. Each lookup holds one datagram.
const MAX_LOOKUPS: usize = 8;

/// The target side of an association.
pub struct Outlet {
    association: Rc<Association>,
    /// The path that the previous relay has chosen, if any.
    requested: Option<PathChoice>,
    sockets: TargetSockets,
    remotes: RefCell<Remotes>,
    lookups: RefCell<JoinSet<(Target, TargetVerdict, Vec<u8>)>>,
    lookup_begun: Notify,
    lanes: Lanes,
}

/// The decision about a target before a lookup.
enum Decision {
    Known(TargetVerdict),
    /// This relay must look up the name, for this path.
    LookUp(PathChoice),
}

impl Outlet {
    /// Creates an outlet that forwards datagrams by the path that the previous relay has chosen, or else by the routes
    /// of this relay.
    pub fn new(association: &Rc<Association>, requested: Option<PathChoice>) -> Self {
        Self {
            sockets: TargetSockets::open(&association.session),
            association: Rc::clone(association),
            requested,
            remotes: RefCell::default(),
            lookups: RefCell::default(),
            lookup_begun: Notify::new(),
            lanes: Lanes::new(association),
        }
    }

    /// Opens the lane of the path for targets without a route of their own, unless that path is direct. Returns the
    /// answer of the relays.
    pub fn open_default_lane(&self) -> Option<LaneAnswer> {
        let context = &self.association.session.context;
        let default = || path::default_datagram_path(&context.config, &context.services().pools);
        let path_choice =
            self.requested.clone().or_else(default).filter(|path_choice| !path_choice.path.is_direct())?;
        Some(self.lanes.open_first(&path_choice))
    }

    /// Forwards datagrams of targets to the client, until a quota is used up: the next datagram of either direction ends
    /// the association.
    pub async fn run(&self) -> EndReason {
        let session = &self.association.session;
        while session.accounts().used_up().is_none() {
            tokio::select! {
                () = self.sockets.receive(|buffer, length, from| self.on_answer(buffer, length, from)) => {}
                (target, verdict, payload) = self.next_lookup() => self.on_lookup(target, verdict, &payload),
                () = self.association.refused.notified() => {}
            }
            tokio::task::yield_now().await;
        }
        EndReason::OverQuota
    }

    /// Returns the number of datagrams that this association has dropped.
    pub fn dropped(&self) -> u64 {
        self.association.dropped.get() + self.lanes.dropped()
    }

    /// Sends a datagram of the client to its target.
    pub fn send(&self, target: Target, payload: &[u8]) {
        let cached = self.remotes.borrow().verdict(&target);
        let verdict = match cached {
            Some(verdict) => verdict,
            None => match self.decide(&target) {
                Decision::Known(verdict) => self.remotes.borrow_mut().insert(target, verdict),
                Decision::LookUp(path_choice) => return self.start_lookup(target, path_choice, payload),
            },
        };
        self.send_by(verdict, payload);
    }

    fn send_by(&self, verdict: TargetVerdict, payload: &[u8]) {
        let association = &self.association;
        let destination = match verdict {
            Ok(destination) => destination,
            Err(reason) => return association.drop_datagram(reason),
        };
        if !association.try_pass(Direction::Up, payload.len()) {
            return;
        }
        let sent = match destination {
            Destination::Direct(address) => {
                self.sockets.try_send(payload, address).then_some(()).ok_or(Some(DropReason::NotTaken))
            }
            Destination::Relayed(relayed) => self.send_relayed(&relayed, payload),
        };
        match sent {
            Ok(()) => association.record_carried(Direction::Up, payload.len()),
            Err(Some(reason)) => association.drop_datagram(reason),
            Err(None) => {}
        }
    }

    fn send_relayed(&self, relayed: &RelayedTarget, payload: &[u8]) -> Result<(), Option<DropReason>> {
        let mut record = Vec::with_capacity(MAX_HEADER + payload.len());
        write_destination(&relayed.target, &mut record);
        record.extend_from_slice(payload);
        let lane = self.lanes.lane(&relayed.path_choice).ok_or(Some(DropReason::NoLane))?;
        super::lanes::push(&lane, &record)
    }

    /// Decides about a target by the path and the access rules.
    fn decide(&self, target: &Target) -> Decision {
        let session = &self.association.session;
        let context = &session.context;
        let by_route = || path::datagram_path(&context.config, &context.services().pools, &target.host, target.port);
        let incoming = session.dial_context.incoming_open.as_ref();
        let path_choice = self.requested.clone().or_else(by_route);
        let Some(path_choice) =
            path_choice.filter(|path_choice| incoming.is_none_or(|incoming| incoming.permits(path_choice)))
        else {
            return Decision::Known(Err(DropReason::Denied));
        };
        let is_direct = path_choice.path.is_direct();
        let is_permitted = |ip| session.dial_context.access().permits(&target.host, ip, target.port);
        match &target.host {
            Host::Ip(ip) if is_permitted(Some(*ip)) => {
                Decision::Known(Ok(destination(path_choice, Target { host: target.host.clone(), port: target.port })))
            }
            Host::Name(_) if is_direct || path_choice.resolve == Resolve::Here => Decision::LookUp(path_choice),
            Host::Name(_) if is_permitted(None) => Decision::Known(Ok(destination(path_choice, target.clone()))),
            Host::Ip(_) | Host::Name(_) => Decision::Known(Err(DropReason::Denied)),
        }
    }

    /// Looks up a name, and then sends `payload`. Other datagrams to the name are dropped until the lookup has
    /// completed.
    fn start_lookup(&self, target: Target, path_choice: PathChoice, payload: &[u8]) {
        let mut lookups = self.lookups.borrow_mut();
        // Only a name whose lookup starts has a verdict.
        let wait = || self.remotes.borrow_mut().insert(target.clone(), Err(DropReason::Unresolved));
        if lookups.len() >= MAX_LOOKUPS || matches!(wait(), Err(DropReason::OverLimit)) {
            return self.association.drop_datagram(DropReason::OverLimit);
        }
        let (association, payload) = (Rc::clone(&self.association), payload.to_vec());
        lookups.spawn_local(async move {
            let verdict = resolve(&association, &target, path_choice).await;
            (target, verdict, payload)
        });
        self.lookup_begun.notify_one();
    }

    /// Waits for the next lookup to complete.
    async fn next_lookup(&self) -> (Target, TargetVerdict, Vec<u8>) {
        loop {
            let next = std::future::poll_fn(|cx| self.lookups.borrow_mut().poll_join_next(cx)).await;
            match next {
                Some(Ok(answer)) => return answer,
                // A panicked lookup is skipped.
                Some(Err(_)) => {}
                None => self.lookup_begun.notified().await,
            }
        }
    }

    fn on_lookup(&self, target: Target, verdict: TargetVerdict, payload: &[u8]) {
        let verdict = self.remotes.borrow_mut().insert(target, verdict);
        self.send_by(verdict, payload);
    }

    /// Forwards a datagram of a target to the client.
    fn on_answer(&self, buffer: &mut [u8], length: usize, from: SocketAddr) {
        if !self.remotes.borrow().has_address(from.ip()) {
            return self.association.drop_datagram(DropReason::Stranger);
        }
        let mut header = Vec::with_capacity(MAX_HEADER);
        DatagramHeader::write(from, &mut header);
        let start = MAX_HEADER - header.len();
        buffer[start..MAX_HEADER].copy_from_slice(&header);
        self.association.answer(&buffer[start..MAX_HEADER + length], length);
    }
}

/// Returns the destination of datagrams to a target that the rules permit. On a direct path the target must be an
/// address.
fn destination(path_choice: PathChoice, target: Target) -> Destination {
    match target.host {
        Host::Ip(ip) if path_choice.path.is_direct() => Destination::Direct(SocketAddr::new(ip, target.port)),
        _ => Destination::Relayed(Rc::new(RelayedTarget { path_choice, target })),
    }
}

/// Looks up the name of `target`. An IPv4 address is preferred: a datagram cannot be retried with the other address
/// family.
async fn resolve(association: &Association, target: &Target, path_choice: PathChoice) -> TargetVerdict {
    let (session, Host::Name(name)) = (&association.session, &target.host) else { return Err(DropReason::Unresolved) };
    let rules = session.dial_context.access();
    // A name on the deny list is not looked up. Other rules apply to the addresses of the name.
    if rules.judge(&target.host, None, target.port) == Err(Denied::Listed) {
        return Err(DropReason::Denied);
    }
    let lookup = session.context.resolver().lookup(name, session.context.config.timeouts.connect);
    let is_direct = path_choice.path.is_direct();
    let judge = |ip: IpAddr| {
        let is_permitted = rules.permits(&target.host, Some(ip), target.port);
        let is_usable = is_permitted && (!is_direct || source_address(SocketAddr::new(ip, target.port)).is_ok());
        is_usable.then_some(()).ok_or(Cause::Denied)
    };
    match lookup.first_address(&judge).await {
        Ok(ip) => Ok(destination(path_choice, Target { host: Host::Ip(ip), port: target.port })),
        Err(Cause::Denied) => Err(DropReason::Denied),
        Err(_) => Err(DropReason::Unresolved),
    }
}
