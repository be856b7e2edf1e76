//! The targets of an association: whether the client may reach them, and by which path.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use ekiden_proto::addr::Target;

use crate::events::metrics::tunnels::DropReason;
use crate::path::PathChoice;

/// The destination of datagrams to a target, or why they are dropped.
pub type TargetVerdict = Result<Destination, DropReason>;

/// The destination of datagrams to a target.
#[derive(Debug, Clone)]
pub enum Destination {
    /// From a socket of this relay to an address.
    Direct(SocketAddr),
    /// In records to the next relay.
    Relayed(Rc<RelayedTarget>),
}

/// A target behind other relays.
#[derive(Debug)]
pub struct RelayedTarget {
    /// The path of the datagrams.
    pub path_choice: PathChoice,
    /// The target in records: its name, or the address that this relay has found for the name.
    pub target: Target,
}

/// Largest number of targets at a time, to which the client sends or which may answer; datagrams to other targets are
/// dropped.
const MAX_TARGETS: usize = 1024;

/// Validity of a verdict: names, the addresses of this host and the state of relays change.
const VERDICT_AGE: Duration = Duration::from_secs(10);

/// Time for which a target may answer after its last verdict.
const ANSWER_AGE: Duration = Duration::from_secs(5 * 60);

/// The targets of an association, bounded in number.
#[derive(Default)]
pub struct Remotes {
    verdicts: HashMap<Target, (TargetVerdict, Instant)>,
    /// The addresses that may send to the client: those to which the client has sent. The port is not compared, because
    /// protocols such as TFTP (RFC 1350) answer from another port.
    addresses: HashMap<IpAddr, Instant>,
}

impl Remotes {
    /// Returns the verdict on `target`, if it is still valid.
    pub fn verdict(&self, target: &Target) -> Option<TargetVerdict> {
        self.verdicts.get(target).filter(|(_, at)| at.elapsed() < VERDICT_AGE).map(|(verdict, _)| verdict.clone())
    }

    /// Stores a verdict. Returns the verdict in force: `verdict`, or `OverLimit` if there are too many targets.
    pub fn insert(&mut self, target: Target, verdict: TargetVerdict) -> TargetVerdict {
        if self.verdicts.len() >= MAX_TARGETS && !self.verdicts.contains_key(&target) {
            self.verdicts.retain(|_, (_, at)| at.elapsed() < VERDICT_AGE);
            if self.verdicts.len() >= MAX_TARGETS {
                return Err(DropReason::OverLimit);
            }
        }
        if let Ok(Destination::Direct(address)) = &verdict {
            self.insert_address(address.ip());
        }
        self.verdicts.insert(target, (verdict.clone(), Instant::now()));
        verdict
    }

    /// Permits answers from `address`, if necessary in place of the address with the oldest verdict. That verdict is no
    /// longer valid: fewer than [`MAX_TARGETS`] others are.
    fn insert_address(&mut self, address: IpAddr) {
        if self.addresses.len() >= MAX_TARGETS && !self.addresses.contains_key(&address) {
            let oldest = self.addresses.iter().min_by_key(|(_, at)| **at).map(|(oldest, _)| *oldest);
            oldest.map(|oldest| self.addresses.remove(&oldest));
        }
        self.addresses.insert(address, Instant::now());
    }

    /// Whether the client has recently sent to `address`.
    pub fn has_address(&self, address: IpAddr) -> bool {
        self.addresses.get(&address).is_some_and(|at| at.elapsed() < ANSWER_AGE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_of_an_expired_verdict_makes_room_for_a_new_address() {
        let address = |number: u32| SocketAddr::new(IpAddr::V4(number.into()), 53);
        let insert = |remotes: &mut Remotes, number| {
            remotes.insert(address(number).into(), Ok(Destination::Direct(address(number)))).is_ok()
        };
        let mut remotes = Remotes::default();
        assert!((1..=1024).all(|number| insert(&mut remotes, number)));
        assert!(!insert(&mut remotes, 1025), "1024 verdicts are valid");
        remotes.verdicts.remove(&address(7).into());
        *remotes.addresses.get_mut(&address(7).ip()).unwrap() -= VERDICT_AGE;
        assert!(insert(&mut remotes, 1025));
        let absent: Vec<u32> = (1..=1025).filter(|number| !remotes.has_address(address(*number).ip())).collect();
        assert_eq!(absent, [7]);
    }
}
