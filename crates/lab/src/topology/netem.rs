//! Links by the kernel's netem (tc-netem(8)), to cross-check the emulator. Only conditions with the same meaning in
//! both are supported.

use std::process::Command;

use anyhow::{Context as _, anyhow, bail, ensure};

use crate::topology::{Lab, ip};
use ekiden_emulator::conditions::{
    Conditions, Loss, LossPosition, QueueKind, QueueLimit, SizeAccounting, TailDropSettings,
};
use ekiden_emulator::links::Link;
use ekiden_emulator::stage::line::DEFAULT_QUEUE;

/// Queue limit for links without a rate, in packets: more than any test has in flight.
const UNLIMITED_PACKETS: u64 = 10_000_000;

/// Bridges the veth peers of a link in the emulator's network namespace; each end applies the conditions of its
/// direction. Offloads of the hosts' interfaces must be off, because netem counts a superpacket as one packet.
///
/// # Errors
/// netem does not support the conditions, or the kernel has no netem.
pub fn create_link(lab: &Lab, name: &str, link: &Link, peers: &[String; 2]) -> anyhow::Result<()> {
    ensure!(lab.events.iter().all(|event| event.link != name), "backend = \"netem\" does not support events");
    // Packets from ends[0] leave by the peer of ends[1].
    for (conditions, interface) in [(&link.forward, &peers[1]), (&link.reverse, &peers[0])] {
        let arguments = netem_arguments(conditions, link.mtu)
            .map_err(|feature| anyhow!("backend = \"netem\" does not support {feature}"))?;
        let mut tc = Command::new("tc");
        tc.args(["qdisc", "add", "dev", interface, "root", "netem"]).args(arguments.split(' '));
        let output = tc.output().context("cannot start `tc`: install the package iproute2")?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("this kernel refuses netem (module sch_netem; `backend = \"packet\"` needs none): {}", stderr.trim());
        }
    }
    let bridge = format!("{}-{}", peers[0], peers[1]);
    let join = |interface: &String| format!("link set dev {interface} master {bridge}");
    ip::run_batch(
        None,
        &[
            format!("link add name {bridge} mtu {} type bridge", link.mtu),
            join(&peers[0]),
            join(&peers[1]),
            format!("link set dev {bridge} up"),
        ],
    )
}

/// Returns the netem arguments for one direction, or the condition that netem does not support.
fn netem_arguments(conditions: &Conditions, mtu: u32) -> Result<String, &'static str> {
    let Conditions { down, access_rate, rate, trace, count, queue, delay, jitter, loss, reorder, duplicate } =
        conditions;
    for (present, feature) in [
        (access_rate.is_some(), "access_rate"),
        (trace.is_some(), "trace"),
        (jitter.is_some(), "jitter: netem's jitter is on both sides of the delay"),
        (reorder.is_some(), "reorder: netem sends reordered packets early, not late"),
        (duplicate.is_some(), "duplicate: netem's copies use capacity of the line"),
    ] {
        if present {
            return Err(feature);
        }
    }
    let mut arguments = format!("limit {}", packet_limit(conditions, mtu, queue.as_ref())?);
    if let Some(delay) = delay {
        arguments += &format!(" delay {}us", delay.0.as_micros());
    }
    if *down {
        arguments += " loss random 100%";
    } else if let Some(loss) = loss {
        arguments += &loss_arguments(loss, rate.is_some())?;
    }
    if let Some(rate) = rate {
        // netem counts the Ethernet frame; its overhead argument corrects the difference.
        let overhead = i64::from(count.overhead()) - i64::from(SizeAccounting::L2.overhead());
        arguments += &format!(" rate {}bit {overhead}", rate.bits_per_second());
    }
    Ok(arguments)
}

/// Returns the queue limit in packets. netem also counts the packet on the line and delayed packets against its limit.
fn packet_limit(conditions: &Conditions, mtu: u32, queue: Option<&QueueKind>) -> Result<u64, &'static str> {
    let waiting = match queue.unwrap_or(&DEFAULT_QUEUE) {
        QueueKind::TailDrop(TailDropSettings { limit: QueueLimit::Packets(packets) }) => *packets,
        _ => return Err("this queue: netem has only tail-drop with a limit in packets"),
    };
    let Some(rate) = conditions.rate else { return Ok(UNLIMITED_PACKETS) };
    let delay = conditions.delay.map_or(0, |delay| delay.0.as_micros());
    let delayed = u128::from(rate.bytes_per_second()) * delay / 1_000_000 / u128::from(mtu);
    Ok(u64::try_from(u128::from(waiting) + 1 + delayed).unwrap_or(UNLIMITED_PACKETS))
}

fn loss_arguments(loss: &Loss, has_rate: bool) -> Result<String, &'static str> {
    if has_rate && loss.at() == LossPosition::Wire {
        return Err(r#"loss at = "wire": packets lost by netem use no capacity of the line"#);
    }
    let percent = |p: &f64| format!("{}%", p * 100.0);
    match loss {
        Loss::Bernoulli { p, .. } => Ok(format!(" loss random {}", percent(p))),
        Loss::GilbertElliott { to_bad, to_good, p_good, p_bad, .. } => {
            let [to_bad, to_good, p_bad, p_good] = [to_bad, to_good, p_bad, p_good].map(percent);
            Ok(format!(" loss gemodel {to_bad} {to_good} {p_bad} {p_good}"))
        }
        Loss::Pattern { .. } => Err("pattern loss"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments_of(conditions: &str) -> Result<String, &'static str> {
        netem_arguments(&toml::from_str(conditions).unwrap(), 1500)
    }

    #[test]
    fn supported_conditions_become_netem_arguments() {
        for (conditions, expected) in [
            ("", "limit 10000000"),
            ("delay = \"50ms\"\ndown = true", "limit 10000000 delay 50000us loss random 100%"),
            (
                "rate = \"12Mbit/s\"\ndelay = \"100ms\"\nqueue = { kind = \"tail-drop\", limit = \"50pkt\" }",
                "limit 151 delay 100000us rate 12000000bit -14",
            ),
            ("rate = \"1Mbit/s\"\ncount = \"wire\"", "limit 1001 rate 1000000bit 24"),
            ("delay = \"50ms\"\nqueue = { kind = \"tail-drop\", limit = \"50pkt\" }", "limit 10000000 delay 50000us"),
            (
                "loss = { model = \"gilbert-elliott\", to_bad = 0.25, to_good = 0.5 }",
                "limit 10000000 loss gemodel 25% 50% 100% 0%",
            ),
        ] {
            assert_eq!(arguments_of(conditions), Ok(expected.to_owned()), "{conditions}");
        }
    }

    #[test]
    fn unsupported_conditions_are_refused() {
        for (conditions, expected) in [
            ("access_rate = \"1Gbit/s\"", "access_rate"),
            ("trace = [1, 5]", "trace"),
            ("rate = \"1Mbit/s\"\nloss = { model = \"bernoulli\", p = 0.1 }", "loss at"),
            ("queue = { kind = \"codel\", limit = \"50pkt\" }", "this queue"),
            ("queue = { kind = \"tail-drop\", limit = \"50KiB\" }", "this queue"),
        ] {
            assert!(arguments_of(conditions).unwrap_err().starts_with(expected), "{conditions}");
        }
    }
}
