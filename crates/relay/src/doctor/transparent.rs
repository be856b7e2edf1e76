//! What transparent listeners need, and what the kernel has of theirs. Who may not look sees nothing of this.

use super::checks::{finding, number};
use super::{Finding, Verdict};
use crate::rules::{self, Counter, Holder, Queue, RulesError};

/// Looks at what may be wrong with transparent listeners.
pub fn all() -> Vec<Finding> {
    let mut findings = vec![fitness()];
    let live: Vec<_> = (1..=15).filter_map(instance).collect();
    if !live.is_empty() {
        findings.push(forwarding());
    }
    findings.extend(live);
    findings
}

/// Tries every kind of rule.
fn fitness() -> Finding {
    let subject = "transparent listeners";
    let (found, wrong) = match rules::probe().map(|applied| applied.map(|applied| applied.queue)) {
        Ok(None) => ("not tried: a network namespace to try them in takes root".to_owned(), None),
        Ok(Some(Queue::Nft)) => ("all rules work, and queues of nftables".to_owned(), None),
        Ok(Some(Queue::Iptables)) => ("all rules work, and queues of iptables".to_owned(), None),
        Ok(Some(Queue::Missing(why))) => {
            let remedy = "connect = \"hold\" is only \"strict\": apt-get install iptables, or a kernel with \
                CONFIG_NFT_QUEUE or CONFIG_NETFILTER_XT_TARGET_NFQUEUE";
            (format!("all rules work, no queues: {why}"), Some((Verdict::Could, remedy.to_owned())))
        }
        Err(RulesError::NotInstalled { program, package }) => {
            let remedy = format!("tproxy, redirect and keep_client_address need it: apt-get install {package}");
            (format!("no {program}"), Some((Verdict::Could, remedy)))
        }
        Err(error) => {
            let remedy = "tproxy, redirect and keep_client_address need it; all else works without".to_owned();
            (error.to_string(), Some((Verdict::Could, remedy)))
        }
    };
    finding(subject, found, wrong)
}

/// Nothing is routed through this host while it does not forward.
fn forwarding() -> Finding {
    let off: Vec<_> = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"]
        .into_iter()
        .filter(|key| number(&format!("/proc/sys/{}", key.replace('.', "/"))) == 0)
        .collect();
    let found = if off.is_empty() { "on".to_owned() } else { format!("off: {}", off.join(", ")) };
    let sysctl: Vec<_> = off.iter().map(|key| format!("{key}=1")).collect();
    let remedy = format!("what is not caught goes nowhere: sysctl {}", sysctl.join(" "));
    finding("forwarding", found, (!off.is_empty()).then_some((Verdict::Could, remedy)))
}

/// The rules of one daemon, where there are any.
fn instance(instance: u8) -> Option<Finding> {
    let remove = (Verdict::Bad, format!("ekiden rules remove --instance {instance}"));
    let (found, wrong) = match rules::holder(instance) {
        Ok(Some(Holder::Running(pid))) => (format!("of pid {pid}: {}", counted(instance)), None),
        Ok(Some(Holder::Operator)) => (format!("by ekiden rules: {}", counted(instance)), None),
        Ok(Some(Holder::Gone(pid))) => {
            (format!("rules of instance {instance} were left by pid {pid}, which is gone"), Some(remove))
        }
        Ok(None) if rules::has_parts(instance) => {
            (format!("a part of the rules of instance {instance} is left"), Some(remove))
        }
        Ok(None) | Err(_) => return None,
    };
    Some(finding(&format!("rules of instance {instance}"), found, wrong))
}

/// `3 caught by tproxy-7001, 1 passed`.
fn counted(instance: u8) -> String {
    let shown = |counter: &Counter| match &counter.listener {
        Some(listener) => format!("{} {} by {listener}", counter.packets, counter.what),
        None => format!("{} {}", counter.packets, counter.what),
    };
    match rules::counters(instance).unwrap_or_default() {
        none if none.is_empty() => "catching nothing".to_owned(),
        counters => counters.iter().map(shown).collect::<Vec<_>>().join(", "),
    }
}
