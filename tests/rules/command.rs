//! `ekiden rules`: its effects on a host, and failures of `ip` and `nft`, which scripts simulate.

use std::os::unix::process::ExitStatusExt as _;

use super::harness::{Folder, SIGPIPE, broken_pipe, ekiden};
use super::network::{CommandOutput, Host, all_rules, apply, decode_output, ekiden_rules};

const BOTH: [&str; 4] =
    ["-L", "tproxy://[::]:7001?interfaces=lan0", "-L", "redirect://0.0.0.0:7002?interfaces=lan1&interfaces=lo"];

fn rules(host: &Host, action: &str) -> CommandOutput {
    host.ekiden(&[&["rules", action][..], &BOTH].concat())
}

#[test]
fn apply_installs_all_rules_and_remove_deletes_them() {
    let Some(host) = Host::new() else { return };
    let applied = rules(&host, "apply");
    assert_eq!((applied.code, applied.err.as_str()), (Some(0), ""));
    assert!(applied.out.starts_with("rules of instance 1 are in the kernel"), "{}", applied.out);
    let there = all_rules(&host);
    for part in [
        "table inet ekiden {",
        "by ekiden rules",
        "tproxy to :7001",
        "redirect to :7002",
        "184:\tfrom all fwmark 0xe1010000/0xffff0000 lookup 57345",
        "local default dev lo table 57345",
    ] {
        assert!(there.contains(part), "no {part} in {there}");
    }
    let queued = there.contains("queue flags bypass to 57360") || there.matches("--queue-num 57360").count() == 2;
    assert!(queued, "{there}");

    let once = ekiden_rules(&host);
    let again = rules(&host, "apply");
    assert_eq!(again.code, Some(0), "{}", again.err);
    assert_eq!(ekiden_rules(&host), once);

    let removed = host.run_ekiden(&["rules", "remove"]);
    assert_eq!(removed, "removed the rules of instance 1\n");
    assert_eq!(ekiden_rules(&host), Vec::<String>::new());
    assert_eq!(host.run_ekiden(&["rules", "remove"]), "there are no rules of instance 1\n");
}

#[test]
fn apply_removes_rules_of_an_older_configuration() {
    let Some(host) = Host::new() else { return };
    host.run_ekiden(&[&["rules", "apply"][..], &BOTH].concat());
    host.run_ekiden(&["rules", "apply", "-L", "socks://127.0.0.1:1080?keep_client_address=true"]);
    let there = all_rules(&host);
    assert!(there.contains("socket transparent 1") && !there.contains("tproxy"), "{there}");
    assert!(!there.contains("EKIDEN") && !host.ip("-6 rule").contains("57345"), "{there}");
    assert!(host.ip("rule").contains("57345"));
}

#[test]
fn partial_rules_are_replaced_and_removed() {
    let Some(host) = Host::new() else { return };
    for damage in ["nft delete table inet ekiden", "ip rule del pref 184", "ip -6 route flush table 57345"] {
        rules(&host, "apply");
        assert_eq!(host.shell(damage).code, Some(0), "{damage}");
        assert_eq!(rules(&host, "apply").code, Some(0), "{damage}");
        assert!(all_rules(&host).contains("table inet ekiden {") && host.ip("rule").contains("57345"), "{damage}");
        assert!(host.ip("-6 route show table 57345").contains("local default"), "{damage}");
        assert_eq!(host.shell(damage).code, Some(0), "{damage}");
        assert_eq!(host.run_ekiden(&["rules", "remove"]), "removed the rules of instance 1\n", "{damage}");
        assert_eq!(ekiden_rules(&host), Vec::<String>::new(), "{damage}");
    }
}

#[test]
fn printed_script_has_the_effect_of_apply() {
    let Some(host) = Host::new() else { return };
    let printed = host.run_ekiden(&[&["rules", "print"][..], &BOTH].concat());
    assert_eq!(ekiden_rules(&host), Vec::<String>::new(), "rules print has changed the kernel");
    let (_, table) = printed.split_once("nft -f - <<'END'\n").unwrap();
    let table = table.strip_suffix("END\n").unwrap();
    assert_eq!(host.shell(&format!("nft -c -f - <<'END'\n{table}END\n")).code, Some(0), "{table}");
    let done = host.shell(&printed);
    assert_eq!(done.code, Some(0), "{printed}{}", done.err);
    let by_script = ekiden_rules(&host);
    host.run_ekiden(&["rules", "remove"]);
    rules(&host, "apply");
    assert_eq!(by_script, ekiden_rules(&host));
}

#[test]
fn rules_of_other_instances_are_unchanged() {
    let Some(host) = Host::new() else { return };
    let folder = Folder::new();
    let file = |instance: u8| {
        let text = format!(
            "version = 1\n[transparent]\ninstance = {instance}\n[[listener]]\nkind = \"tproxy\"\nbind = \"[::]:7001\"\n\
             interfaces = [\"lan0\"]\n"
        );
        folder.write(&format!("{instance}.toml"), text).display().to_string()
    };
    host.run_ekiden(&["rules", "apply", "-c", &file(1)]);
    let first = ekiden_rules(&host);
    host.run_ekiden(&["rules", "apply", "-c", &file(15)]);
    assert!(all_rules(&host).contains("table inet ekiden-15 {"));
    assert_eq!(host.run_ekiden(&["rules", "remove", "-c", &file(15)]), "removed the rules of instance 15\n");
    assert_eq!(ekiden_rules(&host), first);
    assert_eq!(host.run_ekiden(&["rules", "remove", "--instance", "2"]), "there are no rules of instance 2\n");
}

/// The rules contain the PID of a running process: this test.
#[test]
fn apply_refuses_to_replace_rules_of_a_running_daemon() {
    let Some(host) = Host::new() else { return };
    let pid = std::process::id();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let started = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap();
    host.nft(&format!("table inet ekiden {{ comment \"ekiden instance 1, pid {pid}, started {started}\"; }}"));
    let refused = rules(&host, "apply");
    let expected =
        format!("ekiden: instance 1 belongs to ekiden with pid {pid}: set [transparent] instance = 2 here\n");
    assert_eq!((refused.code, refused.err), (Some(1), expected));
    assert!(!host.ip("rule").contains("57345"));
    // An operator must always be able to remove the rules.
    assert_eq!(host.run_ekiden(&["rules", "remove"]), "removed the rules of instance 1\n");
}

#[test]
fn missing_capability_is_reported_with_a_remedy() {
    let Some(host) = Host::new() else { return };
    for action in ["apply", "remove"] {
        let binary = ekiden().get_program().to_owned();
        let mut command = host.command("setpriv");
        command.args(["--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]).arg(binary).args(["rules", action]);
        let output =
            decode_output(&mut command.args(if action == "apply" { &BOTH[..] } else { &[] }).output().unwrap());
        assert_eq!(output.code, Some(1), "{}", output.out);
        let remedy = "needs CAP_NET_ADMIN: run as root, or AmbientCapabilities=CAP_NET_ADMIN in the systemd unit\n";
        assert!(output.err.starts_with("ekiden: nft: ") && output.err.ends_with(remedy), "{}", output.err);
    }
}

#[test]
fn missing_program_is_reported_with_its_package() {
    let Some(host) = Host::new() else { return };
    // Empty file systems hide the programs.
    let script = "mount -t tmpfs none /usr/sbin && mount -t tmpfs none /sbin; exec \"$@\"";
    let mut unshared = host.command("unshare");
    unshared.args(["--mount", "sh", "-c", script, "sh"]).arg(ekiden().get_program()).args(["rules", "apply"]);
    let output = decode_output(&mut unshared.args(BOTH).output().unwrap());
    assert_eq!(
        (output.code, output.err.as_str()),
        (Some(1), "ekiden: nft is not installed: apt-get install nftables\n")
    );
}

/// nft(8) reads protocol names from /etc/protocols, which minimal containers lack. Regression: a rule with a protocol
/// name failed with "Could not resolve protocol name".
#[test]
fn rules_are_applied_and_removed_without_etc_protocols() {
    let Some(host) = Host::new() else { return };
    let without_protocols = |action: &str| {
        let script =
            "[ ! -e /etc/protocols ] || mount --bind /dev/null /etc/protocols; ! getent protocols tcp; exec \"$@\"";
        let mut unshared = host.command("unshare");
        unshared.args(["--mount", "sh", "-euc", script, "sh"]).arg(ekiden().get_program()).args(["rules", action]);
        decode_output(&mut unshared.args(if action == "apply" { &BOTH[..] } else { &[] }).output().expect("unshare"))
    };
    let applied = without_protocols("apply");
    assert_eq!((applied.code, applied.err.as_str()), (Some(0), ""));
    let there = ekiden_rules(&host);
    assert!(there.iter().any(|line| line.contains("tproxy to :7001")), "{there:#?}");
    assert_eq!(rules(&host, "apply").code, Some(0));
    assert_eq!(ekiden_rules(&host), there, "the rules depend on /etc/protocols");
    assert_eq!(without_protocols("remove").out, "removed the rules of instance 1\n");
    assert_eq!(ekiden_rules(&host), Vec::<String>::new());
}

#[test]
fn invalid_configuration_is_reported_and_changes_nothing() {
    let Some(host) = Host::new() else { return };
    let wrong = host.ekiden(&["rules", "apply", "-L", "tproxy://0.0.0.0:7001"]);
    assert_eq!(wrong.code, Some(2), "{}", wrong.err);
    assert!(wrong.err.contains("interfaces"), "{}", wrong.err);
    let none = host.ekiden(&["rules", "apply", "-L", "auto://127.0.0.1:1080"]);
    assert_eq!(none.code, Some(0));
    assert!(none.err.contains("no rules"), "{}", none.err);
    assert_eq!(ekiden_rules(&host), Vec::<String>::new());
}

const OLD: &str = "tproxy://[::]:7001?interfaces=lan0";
const NEW: &str = "tproxy://[::]:7003?interfaces=lan0";

/// Applies the rules of [`NEW`] with `script` in place of `program`. In the script, `$real` is the path of the real
/// program.
fn apply_with(host: &Host, program: &str, script: &str) -> CommandOutput {
    apply_listener_with(host, program, script, NEW)
}

fn apply_listener_with(host: &Host, program: &str, script: &str, listener: &str) -> CommandOutput {
    let folder = Folder::new();
    let text = format!("#!/bin/sh\nreal=$(PATH=/usr/sbin:/sbin:/usr/bin:/bin command -v {program})\n{script}\n");
    folder.program(program, &text);
    let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").unwrap());
    let mut command = host.in_namespace(ekiden());
    decode_output(
        &mut command.env("PATH", path).args(["rules", "apply", "-L", listener]).output().expect("ekiden runs"),
    )
}

const IP_FAILS: &str = "case \"$*\" in *-6*-batch*) echo 'RTNETLINK answers: No buffer space' >&2; exit 2;; esac\n\
    exec $real \"$@\"";
const NFT_FAILS: &str = "if [ \"$1\" = -f ]; then echo 'Error: no luck today' >&2; exit 1; fi\nexec $real \"$@\"";
const NFT_ENDS: &str = "if [ \"$1\" = -c ]; then echo 'Error: no luck today' >&2; exit 1; fi\nexec $real \"$@\"";

#[test]
fn failed_apply_is_rolled_back() {
    let Some(host) = Host::new() else { return };
    for (program, script, message) in [
        ("ip", IP_FAILS, "ekiden: ip: RTNETLINK answers: No buffer space\n"),
        ("nft", NFT_FAILS, "ekiden: nft: Error: no luck today\n"),
    ] {
        let failed = apply_with(&host, program, script);
        assert_eq!((failed.code, failed.err.as_str()), (Some(1), message));
        assert_eq!(ekiden_rules(&host), Vec::<String>::new(), "{program}");
    }
}

/// The rules are larger than the buffer of a pipe, so the write to the standard input of `nft` fails.
#[test]
fn error_of_a_program_that_exits_early_is_reported() {
    let Some(host) = Host::new() else { return };
    let networks: Vec<String> = (0..6000).map(|n| format!("10.{}.{}.0/24", n / 128, n % 128 * 2)).collect();
    let listener = format!("tun://ekiden9?net={}&answer_only=true", networks.join(","));
    let failed = apply_listener_with(&host, "nft", NFT_ENDS, &listener);
    assert_eq!((failed.code, failed.err.as_str()), (Some(1), "ekiden: nft: Error: no luck today\n"));
}

/// Regression: `ekiden rules` changed the rules, and then panicked when it printed the result.
#[test]
fn closed_stdout_ends_a_command_after_the_rules_change() {
    let Some(host) = Host::new() else { return };
    for (action, is_there) in [("apply", true), ("remove", false)] {
        let output =
            host.in_namespace(ekiden()).args(["rules", action]).args(BOTH).stdout(broken_pipe()).output().unwrap();
        assert_eq!((output.status.signal(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(SIGPIPE), ""));
        assert_eq!(!ekiden_rules(&host).is_empty(), is_there, "{action}");
    }
}

#[test]
fn failed_apply_keeps_the_earlier_rules() {
    let Some(host) = Host::new() else { return };
    apply(&host, &[OLD]);
    let before = ekiden_rules(&host);
    for (program, script) in [("ip", IP_FAILS), ("nft", NFT_FAILS)] {
        assert_eq!(apply_with(&host, program, script).code, Some(1));
        assert_eq!(ekiden_rules(&host), before, "{program}");
    }
}

#[test]
fn missing_queue_is_reported_and_the_rules_work() {
    let Some(host) = Host::new() else { return };
    // The scripts simulate a kernel that supports queues neither in nftables nor in iptables.
    let no_queue = "for name in iptables-save ip6tables-save; do printf '#!/bin/sh\\necho no such table >&2; exit 3\\n' \
        > ${0%/*}/$name; chmod 755 ${0%/*}/$name; done\n\
        if [ \"$1\" = -c ]; then input=$(cat); case $input in *ekiden-probe*) exit 1;; esac\n\
        printf '%s' \"$input\" | $real \"$@\"; exit; fi\nexec $real \"$@\"";
    let applied = apply_with(&host, "nft", no_queue);
    assert_eq!(applied.code, Some(0), "{}", applied.err);
    let expected = "; without a queue, so \"hold\" works like \"strict\": iptables-save: no such table\n";
    assert!(applied.out.ends_with(expected), "{}", applied.out);
    assert!(host.run("nft", "list table inet ekiden").contains("tproxy to :7003"));
}

/// The error has the form that nft prints for `queue` on a kernel without this feature.
#[test]
fn missing_kernel_feature_is_named() {
    let Some(host) = Host::new() else { return };
    let lacking = "if [ \"$1\" = -c ]; then cat > /dev/null\n\
        echo '/dev/stdin:33:75-90: Error: Could not process rule: No such file or directory' >&2\n\
        echo '    meta mark & 0xffff0000 == 0xe1100000 meta l4proto 6 tproxy to :7003 accept' >&2\n\
        echo '                                                        ^^^^^^^^^^^^^^^' >&2; exit 1; fi\nexec $real \"$@\"";
    let failed = apply_with(&host, "nft", lacking);
    assert_eq!(failed.code, Some(1));
    let remedy = "this kernel lacks a feature: modprobe nft_tproxy, or use a kernel with CONFIG_NFT_TPROXY\n";
    assert!(failed.err.ends_with(remedy), "{}", failed.err);
    assert_eq!(ekiden_rules(&host), Vec::<String>::new());
}
