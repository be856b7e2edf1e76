//! Programs that fail: everything is as before, and what they said is told. Scripts play them.

use crate::harness::{Folder, ekiden};
use crate::network::{Host, Said, apply, said};
use crate::state::ours;

const OLD: &str = "tproxy://[::]:7001?interfaces=lan0";
const NEW: &str = "tproxy://[::]:7003?interfaces=lan0";

/// Applies rules with `script` in the place of `program`, which it finds as `$real`.
fn apply_with(host: &Host, program: &str, script: &str) -> Said {
    let folder = Folder::new();
    let text = format!("#!/bin/sh\nreal=$(PATH=/usr/sbin:/sbin:/usr/bin:/bin command -v {program})\n{script}\n");
    folder.program(program, &text);
    let path = format!("{}:{}", folder.0.display(), std::env::var("PATH").unwrap());
    let mut command = host.start(ekiden());
    said(&mut command.env("PATH", path).args(["rules", "apply", "-L", NEW]).output().expect("ekiden runs"))
}

const IP_FAILS: &str = "case \"$*\" in *-6*-batch*) echo 'RTNETLINK answers: No buffer space' >&2; exit 2;; esac\n\
    exec $real \"$@\"";
const NFT_FAILS: &str = "if [ \"$1\" = -f ]; then echo 'Error: no luck today' >&2; exit 1; fi\nexec $real \"$@\"";

#[test]
fn what_was_done_before_a_failure_is_undone() {
    let Some(host) = Host::new() else { return };
    for (program, script, says) in [
        ("ip", IP_FAILS, "ekiden: ip: RTNETLINK answers: No buffer space\n"),
        ("nft", NFT_FAILS, "ekiden: nft: Error: no luck today\n"),
    ] {
        let failed = apply_with(&host, program, script);
        assert_eq!((failed.code, failed.err.as_str()), (Some(1), says));
        assert_eq!(ours(&host), Vec::<String>::new(), "{program}");
    }
}

#[test]
fn rules_that_were_there_stay_when_new_ones_fail() {
    let Some(host) = Host::new() else { return };
    apply(&host, &[OLD]);
    let before = ours(&host);
    for (program, script) in [("ip", IP_FAILS), ("nft", NFT_FAILS)] {
        assert_eq!(apply_with(&host, program, script).code, Some(1));
        assert_eq!(ours(&host), before, "{program}");
    }
}

#[test]
fn without_any_queue_the_rules_work_and_that_is_told() {
    let Some(host) = Host::new() else { return };
    // Neither has the kernel a queue for nftables, nor is there one of iptables.
    let no_queue = "for name in iptables-save ip6tables-save; do printf '#!/bin/sh\\necho no such table >&2; exit 3\\n' \
        > ${0%/*}/$name; chmod 755 ${0%/*}/$name; done\n\
        if [ \"$1\" = -c ]; then input=$(cat); case $input in *ekiden-probe*) exit 1;; esac\n\
        printf '%s' \"$input\" | $real \"$@\"; exit; fi\nexec $real \"$@\"";
    let applied = apply_with(&host, "nft", no_queue);
    assert_eq!(applied.code, Some(0), "{}", applied.err);
    let expected = "; without a queue, so that \"hold\" is \"strict\": iptables-save: no such table\n";
    assert!(applied.out.ends_with(expected), "{}", applied.out);
    assert!(host.run("nft", "list table inet ekiden").contains("tproxy to :7003"));
}

/// In the form in which nft says it of `queue` on a kernel without.
#[test]
fn what_a_kernel_lacks_is_named() {
    let Some(host) = Host::new() else { return };
    let lacking = "if [ \"$1\" = -c ]; then cat > /dev/null\n\
        echo '/dev/stdin:33:75-90: Error: Could not process rule: No such file or directory' >&2\n\
        echo '    meta mark & 0xffff0000 == 0xe1100000 meta l4proto tcp tproxy to :7003 accept' >&2\n\
        echo '                                                          ^^^^^^^^^^^^^^^' >&2; exit 1; fi\nexec $real \"$@\"";
    let failed = apply_with(&host, "nft", lacking);
    assert_eq!(failed.code, Some(1));
    let remedy = "this kernel lacks it: modprobe nft_tproxy, or a kernel with CONFIG_NFT_TPROXY\n";
    assert!(failed.err.ends_with(remedy), "{}", failed.err);
    assert_eq!(ours(&host), Vec::<String>::new());
}
