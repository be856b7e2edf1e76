//! What `ekiden doctor` says of what goes into the kernel: whether it can, and what of ours is there.

use ekiden_bpf::congestion::{self, Origin, Presence, Way};
use ekiden_bpf::kernel::{self, Kernel};
use ekiden_relay::doctor::{Finding, Verdict};

use crate::cc;

/// Looks at all of it.
pub fn findings() -> Vec<Finding> {
    let kernel = Kernel::running();
    let mut findings = vec![types(kernel.as_ref()), privileges(), file_system()];
    findings.extend(congestion::list().iter().filter_map(control));
    findings.extend(congestion::pinned().iter().filter_map(|name| half(name)));
    findings
}

fn finding(subject: &str, found: impl Into<String>, wrong: Option<(Verdict, String)>) -> Finding {
    let (verdict, remedy) = wrong.unwrap_or((Verdict::Good, String::new()));
    Finding { verdict, subject: subject.to_owned(), found: found.into(), remedy }
}

fn types(kernel: Option<&Kernel>) -> Finding {
    const SUBJECT: &str = "BPF congestion controls";
    let could = |remedy: &str| Some((Verdict::Could, remedy.to_owned()));
    let Some(kernel) = kernel else {
        let remedy = "`ekiden cc` takes it: a kernel with CONFIG_DEBUG_INFO_BTF=y, and /sys/kernel visible";
        return finding(SUBJECT, "the kernel does not show its types (BTF)", could(remedy));
    };
    if congestion::fits(kernel).is_err() {
        let remedy = "`ekiden cc` takes it: Linux 5.6 with CONFIG_BPF_SYSCALL=y and CONFIG_BPF_JIT=y";
        return finding(SUBJECT, "the kernel takes none", could(remedy));
    }
    match Way::of(kernel) {
        Way::Link => finding(SUBJECT, "BTF, and links that go with their owner", None),
        Way::Map => {
            let remedy = "what a killed relay has loaded stays until `ekiden cc unload`; Linux 6.4 is tidier";
            finding(SUBJECT, "BTF, and no links", could(remedy))
        }
    }
}

fn privileges() -> Finding {
    let lacking: Vec<_> = kernel::lacking().iter().map(|capability| capability.name()).collect();
    let remedy = "to load congestion controls: root, or AmbientCapabilities=CAP_BPF CAP_PERFMON in the systemd unit; to \
        choose what `ekiden cc load` has loaded takes none";
    let wrong = (!lacking.is_empty()).then(|| (Verdict::Could, remedy.to_owned()));
    let found =
        if lacking.is_empty() { "CAP_BPF, CAP_PERFMON".to_owned() } else { format!("no {}", lacking.join(", ")) };
    finding("BPF privileges", found, wrong)
}

fn file_system() -> Finding {
    let mounted = congestion::is_mounted();
    let found = if mounted { "at /sys/fs/bpf" } else { "none at /sys/fs/bpf" };
    let remedy = "`ekiden cc load` keeps things there: mount -t bpf bpf /sys/fs/bpf";
    finding("BPF file system", found, (!mounted).then(|| (Verdict::Could, remedy.to_owned())))
}

/// One that is in the kernel because of us.
fn control(one: &Presence) -> Option<Finding> {
    let found = match &one.origin {
        Origin::Kernel | Origin::NotLoaded | Origin::Hidden => return None,
        Origin::Pinned => "kept by `ekiden cc load`".to_owned(),
        Origin::Held(processes) => format!("held by {}", cc::holders(processes)),
        Origin::Left => "left by a process that was killed".to_owned(),
    };
    let remedy = format!("ekiden cc unload {}", one.name);
    let wrong = (one.origin == Origin::Left).then_some((Verdict::Bad, remedy));
    Some(finding(&format!("congestion control {}", one.name), found, wrong))
}

/// Pins of one that is not in the kernel any more: a part of them was removed by hand.
fn half(name: &str) -> Option<Finding> {
    let gone = congestion::presence(name).origin == Origin::NotLoaded;
    let remedy = format!("ekiden cc unload {name}");
    let found = format!("a part of it is left under {}", congestion::ROOT);
    gone.then(|| finding(&format!("congestion control {name}"), found, Some((Verdict::Bad, remedy))))
}
