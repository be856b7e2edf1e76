//! Into the kernel and out again. Routing comes first and goes last, so that no packet is ever marked for a way that is
//! not there. nftables takes all of the new rules and drops all of the old ones at one moment.

use super::error::RulesError;
use super::marks::MASK;
use super::owner::{Holder, Owner, holder, table};
use super::queue::{self, Queue};
use super::tool::run;
use super::{Family, Marks, Ruleset, nft, routing};

/// What came of applying.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// How first packets get to the gate. Where they do not, `connect = "hold"` is as good as `"strict"`.
    pub queue: Queue,
}

impl Ruleset {
    /// Puts the rules into the kernel, in the place of whatever this instance had there before. On failure everything is
    /// as it was.
    ///
    /// # Errors
    /// What a program complained about, or that another daemon that runs has this instance.
    pub fn apply(&self, owner: Owner) -> Result<Applied, RulesError> {
        let before = claim(self.marks.instance(), owner)?;
        self.put(owner).inspect_err(|_| {
            if before.is_none() {
                // What failed is told; the rest of an undoing that fails is found by `ekiden doctor`.
                let _ = remove(self.marks.instance());
            }
        })
    }

    fn put(&self, owner: Owner) -> Result<Applied, RulesError> {
        let mut queue = if self.holds() { Queue::probe() } else { Queue::Nft };
        let comment = owner.comment(self.marks);
        let text = |queue: &Queue| nft::replace(self.marks) + &nft::text(self, queue, &comment);
        run("nft", &["-c", "-f", "-"], &text(&queue))?;
        for family in &self.families {
            routing::apply(*family, self.marks)?;
        }
        if queue == Queue::Iptables
            && let Err(error) = queue::apply(self)
        {
            queue = Queue::Missing(error.to_string());
        }
        run("nft", &["-f", "-"], &text(&queue))?;
        self.tidy(&queue)?;
        Ok(Applied { queue })
    }

    /// Removes what an older configuration needed and this one does not.
    fn tidy(&self, queue: &Queue) -> Result<(), RulesError> {
        for family in [Family::Ipv4, Family::Ipv6] {
            let needed = self.families.contains(&family);
            if !needed || *queue != Queue::Iptables {
                queue::remove(family, self.marks)?;
            }
            if !needed {
                // Where there is no IPv6 there is no rule of ours either.
                let _ = routing::remove(family, self.marks);
            }
        }
        Ok(())
    }
}

/// Says whose rules of `instance` are there, if `owner` may have it.
///
/// # Errors
/// Another daemon that runs has it, or what nft complained about.
pub fn claim(instance: u8, owner: Owner) -> Result<Option<Holder>, RulesError> {
    match holder(instance)? {
        Some(Holder::Running(pid)) if !owner.succeeds(pid) => Err(owned(instance, pid)),
        holder => Ok(holder),
    }
}

/// Takes everything of `instance` out of the kernel, also what only partly exists; says whether something was there.
///
/// # Errors
/// What a program complained about. What came after that is still there.
pub fn remove(instance: u8) -> Result<bool, RulesError> {
    let marks = Marks::new(instance);
    let mut found = match holder(instance) {
        Err(RulesError::NotInstalled { .. }) => false,
        there => there?.is_some(),
    };
    if found {
        run("nft", &["delete", "table", "inet", &table(marks)], "")?;
    }
    forget_ended(marks);
    for family in [Family::Ipv4, Family::Ipv6] {
        found |= queue::remove(family, marks)?;
        found |= match routing::remove(family, marks) {
            // The kernel may have no IPv6.
            Err(RulesError::Failed { .. }) if family == Family::Ipv6 => false,
            removed => removed?,
        };
    }
    Ok(found)
}

/// Ends what our sessions have left in TIME_WAIT with other hosts' addresses: when clients use their ports again, packets
/// that are none of our business any more would meet it. Where the kernel cannot do that, it takes a minute.
pub fn forget_ended(marks: Marks) {
    let ours = format!("fwmark = {:#x}/{:#x}", marks.kept(), MASK);
    let _ = run("ss", &["-H", "-K", "-t", "-n", "-a", "state", "time-wait", &ours], "");
}

/// Tells which instance is free instead.
fn owned(instance: u8, pid: u32) -> RulesError {
    let free = (1..=15).find(|other| matches!(holder(*other), Ok(None))).unwrap_or(instance);
    RulesError::Owned { instance, pid, free }
}
