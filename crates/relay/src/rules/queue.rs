//! The queue in which first packets wait for the gate: of nftables if the kernel supports it, else of iptables.

use ekiden_sys::nfqueue::{self, NfQueue};

use super::apply::run;
use super::error::RulesError;
use super::{Family, Marks, Ruleset, marks};

/// How first packets reach the gate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Queue {
    /// By a rule in the relay's nftables table.
    Nft,
    /// By a chain of iptables.
    Iptables,
    /// There is no queue, for this reason: first packets go to their listener at once.
    Missing(String),
}

/// A chain with only a queue statement. nft 1.0 requires the semicolon after a chain on the same line.
const PROBE: &str = "table inet ekiden-probe { chain probe { type filter hook prerouting priority raw; \
    meta l4proto 6 queue flags bypass to 57344; }; }";

impl Queue {
    /// Tests which queues the kernel supports. Changes nothing.
    #[must_use]
    pub fn probe() -> Self {
        // The rules would be accepted, but the gate could not bind the queue.
        if nfqueue::check_available().is_err_and(|error| NfQueue::is_unsupported(&error)) {
            return Self::Missing("the kernel has no CONFIG_NETFILTER_NETLINK_QUEUE".to_owned());
        }
        if run("nft", &["-c", "-f", "-"], PROBE).is_ok() { Self::Nft } else { Self::Iptables }
    }
}

/// Returns the relay's chain as input of `iptables-restore --noflush`, which creates the chain or replaces its rules.
pub(super) fn add(rules: &Ruleset, jump: bool) -> String {
    let name = chain(rules.marks);
    let mut text = format!("*raw\n:{name} - [0:0]\n");
    if jump {
        // The jump is appended, so that packets that earlier rules drop stay dropped.
        text += &format!("-A PREROUTING {}\n", jump_to(rules.marks));
    }
    for (number, _) in rules.catching_others() {
        let (caught, queue) = (rules.marks.caught(number), rules.marks.queue(number));
        text += &format!(
            "-A {name} -p 6 -m mark --mark {caught:#x}/{:#x} -j NFQUEUE --queue-num {queue} --queue-bypass\n",
            marks::MASK
        );
    }
    text + "COMMIT\n"
}

/// Adds the chain with iptables.
pub(super) fn apply(rules: &Ruleset) -> Result<(), RulesError> {
    for family in &rules.families {
        let saved = run(family.save(), &["-t", "raw"], "")?;
        let jump = jumps(&saved, rules.marks) == 0;
        run(family.restore(), &["-w", "5", "--noflush"], &add(rules, jump))?;
    }
    Ok(())
}

/// Removes the relay's chain from iptables. Returns whether the chain existed; false without iptables.
pub(super) fn remove(family: Family, marks: Marks) -> Result<bool, RulesError> {
    let saved = match run(family.save(), &["-t", "raw"], "") {
        Err(RulesError::NotInstalled { .. }) => return Ok(false),
        // A kernel without iptables, or without this family.
        Err(RulesError::Failed { .. }) => return Ok(false),
        saved => saved?,
    };
    let name = chain(marks);
    if !saved.lines().any(|line| line.starts_with(&format!(":{name} "))) {
        return Ok(false);
    }
    let jumps = format!("-D PREROUTING {}\n", jump_to(marks)).repeat(jumps(&saved, marks));
    let text = format!("*raw\n{jumps}-F {name}\n-X {name}\nCOMMIT\n");
    run(family.restore(), &["-w", "5", "--noflush"], &text).map(|_| true)
}

fn jumps(saved: &str, marks: Marks) -> usize {
    let jump = format!("-A PREROUTING {}", jump_to(marks));
    saved.lines().filter(|line| **line == *jump).count()
}

/// Returns the jump into the relay's chain. It matches only packets that a listener intercepts, so that most packets
/// skip the chain.
fn jump_to(marks: Marks) -> String {
    format!("-m mark --mark {:#x}/{:#x} -j {}", marks.caught(0), Marks::CAUGHT, chain(marks))
}

fn chain(marks: Marks) -> String {
    format!("EKIDEN-{}", marks.instance())
}

#[cfg(test)]
mod tests {
    use ekiden_testing::skipped;

    use super::*;

    /// Regression: nft rejected the text, so the probe found no queue on any kernel, and first packets were queued by
    /// iptables.
    #[test]
    fn nft_accepts_the_syntax_of_the_probe() {
        let Err(error) = run("nft", &["-c", "-f", "-"], PROBE) else { return };
        let error = error.to_string();
        // nft also fails if it is not installed, without the privilege, or if the kernel has no queue.
        skipped(format_args!("in part: nft refuses the probe: {error}"));
        assert!(!error.contains("syntax error"), "{error}");
    }
}
