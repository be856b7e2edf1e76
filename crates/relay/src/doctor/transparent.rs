//! Checks of the requirements of transparent listeners and tunnels, and of their rules and devices in the kernel.
//! Without the privilege to read these, the checks report nothing.

use std::io;
use std::os::fd::AsFd;

use ekiden_sys::{netns, tun};

use super::Finding;
use super::system::SystemState;
use super::workload::Workload;
use crate::rules::{self, Counter, Holder, Queue, RulesError};

/// Checks the requirements of transparent listeners.
pub fn transparent_checks(reading: &SystemState, purpose: &Workload) -> Vec<Finding> {
    let mut findings = vec![check_rules()];
    let instances: Vec<_> = (1..=15).flat_map(check_instance).collect();
    if purpose.is_transparent() || !instances.is_empty() {
        findings.push(forwarding(reading));
    }
    findings.extend(instances);
    findings
}

/// Checks that the kernel accepts every kind of rule.
fn check_rules() -> Finding {
    let finding = |found: String| Finding::new("transparent", "transparent listeners", found);
    let needs = "only tproxy, redirect and keep_client_address need these rules";
    match rules::probe().map(|applied| applied.map(|applied| applied.queue)) {
        Ok(None) => finding("not tested: the test creates a network namespace, which requires root".to_owned()),
        Ok(Some(Queue::Nft)) => finding("all rules work, with queues of nftables".to_owned()),
        Ok(Some(Queue::Iptables)) => finding("all rules work, with queues of iptables".to_owned()),
        Ok(Some(Queue::Missing(why))) => {
            let effect = "connect = \"hold\" works like \"strict\": a closed port looks open for a moment. Install \
                iptables, or use a kernel with \
                CONFIG_NFT_QUEUE or CONFIG_NETFILTER_XT_TARGET_NFQUEUE";
            finding(format!("all rules work, no queues: {why}")).with_hint(effect, "apt-get install iptables")
        }
        Err(RulesError::NotInstalled { program, package }) => {
            finding(format!("no {program}")).with_hint(needs, format!("apt-get install {package}"))
        }
        Err(error) => finding(error.to_string()).with_hint(needs, ""),
    }
}

/// Checks IP forwarding, without which this host routes no packets of other hosts.
fn forwarding(reading: &SystemState) -> Finding {
    let off: Vec<_> = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"]
        .into_iter()
        .filter(|key| reading.number(key, 0).unwrap_or(0) == 0)
        .collect();
    let found = if off.is_empty() { "on".to_owned() } else { format!("off: {}", off.join(", ")) };
    let sysctl: Vec<_> = off.iter().map(|key| format!("{key}=1")).collect();
    let fix = format!("sysctl -w {}", sysctl.join(" "));
    Finding::new("forwarding", "forwarding", found).with_hint_if(
        !off.is_empty(),
        "the kernel does not forward connections that no listener catches",
        fix,
    )
}

/// Checks the rules of one daemon, and the QUIC packets that they count; empty without rules.
fn check_instance(instance: u8) -> Vec<Finding> {
    let holder = match rules::holder(instance) {
        Ok(None) if !rules::has_parts(instance) => return Vec::new(),
        Ok(holder) => holder,
        Err(_) => return Vec::new(),
    };
    let counters = rules::counters(instance).unwrap_or_default();
    let (quic, others): (Vec<_>, Vec<_>) = counters.iter().partition(|counter| counter.what.starts_with("quic-"));
    let mut findings = vec![check_holder(instance, holder.as_ref(), &others)];
    findings.extend(check_quic(instance, &quic));
    findings
}

/// Checks whether the rules of one daemon have an owner.
fn check_holder(instance: u8, holder: Option<&Holder>, counters: &[&Counter]) -> Finding {
    let finding = |found: String| Finding::new("rules", format!("rules of instance {instance}"), found);
    let effect = "connections that these rules catch bypass the relay after a short delay";
    let remove = format!("ekiden rules remove --instance {instance}");
    match holder {
        Some(Holder::Running(pid)) => finding(format!("owned by pid {pid}: {}", counter_summary(counters))),
        Some(Holder::Operator) => finding(format!("applied by ekiden rules: {}", counter_summary(counters))),
        Some(Holder::Gone(pid)) => {
            finding(format!("rules of instance {instance} were left by pid {pid}, which has ended"))
                .with_error(effect, remove)
        }
        None => {
            let effect = "the next relay of this instance must remove them first";
            finding(format!("a part of the rules of instance {instance} remains in the kernel"))
                .with_error(effect, remove)
        }
    }
}

/// Reports the QUIC packets that the rules of one daemon have counted. Packets that pass bypass the relay.
fn check_quic(instance: u8, counters: &[&Counter]) -> Option<Finding> {
    let describe = |counter: &&Counter| {
        let what = counter.what.trim_start_matches("quic-");
        format!("{} {what} by {}", counter.packets, counter.listener.as_deref().unwrap_or_default())
    };
    let found: Vec<_> = counters.iter().map(describe).collect();
    let passing = counters.iter().any(|counter| counter.what == "quic-passed" && counter.packets > 0);
    let finding =
        Finding::new("quic", format!("QUIC of instance {instance}"), format!("UDP 443 packets: {}", found.join(", ")));
    let effect = "HTTP/3 of these clients bypasses the relay: quic = \"refuse\" of the listener makes clients use TCP";
    (!found.is_empty()).then(|| finding.with_hint_if(passing, effect, ""))
}

/// Formats counters, as in `3 caught by tproxy-7001, 1 passed`.
fn counter_summary(counters: &[&Counter]) -> String {
    if counters.is_empty() {
        return "catching nothing".to_owned();
    }
    let describe = |counter: &&Counter| match &counter.listener {
        Some(listener) => format!("{} {} by {listener}", counter.packets, counter.what),
        None => format!("{} {}", counter.packets, counter.what),
    };
    counters.iter().map(describe).collect::<Vec<_>>().join(", ")
}

/// Checks /dev/net/tun, and stale devices.
pub fn tunnel_checks(reading: &SystemState) -> Vec<Finding> {
    let mut findings = vec![check_device()];
    findings.extend(reading.persistent_devices.iter().map(|name| persistent_device(name)));
    findings
}

/// Checks that a device can be created, in a new network namespace.
fn check_device() -> Finding {
    let finding = |found: String| Finding::new("tunnels", "tunnels", found);
    match try_create_device() {
        None => finding("not tested: the test creates a network namespace, which requires root".to_owned()),
        Some(Ok(())) => finding(format!("{} creates devices", tun::PATH)),
        Some(Err(error)) => {
            let effect = "tun listeners need the module tun, or a kernel with CONFIG_TUN; a container needs \
                --device /dev/net/tun";
            finding(format!("{}: {error}", tun::PATH)).with_hint(effect, "modprobe tun")
        }
    }
}

/// Creates a device in a temporary network namespace; `None` without the privilege to create the namespace.
fn try_create_device() -> Option<io::Result<()>> {
    let namespace = netns::new_network_namespace().ok()?;
    let create = || {
        netns::enter_network_namespace(namespace.as_fd()).ok()?;
        Some(tun::create_plain("ekiden0").map(drop))
    };
    std::thread::scope(|scope| scope.spawn(create).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}

/// Reports a persistent device, which an operator has created: the devices of a relay are removed when it ends.
fn persistent_device(name: &str) -> Finding {
    let finding = Finding::new("device", format!("device {name}"), "persists without a relay");
    finding.with_error(format!("a tun listener with device = {name:?} cannot start"), format!("ip link delete {name}"))
}
