//! Errors in the setup of a tunnel: each is reported with a remedy.

use std::process::{Command, Output};

use crate::harness::*;
use crate::network::*;
use crate::programs::*;
use crate::relays::site;
use crate::sites::*;

/// Runs a relay that cannot start, and returns its standard error. A relay that starts nevertheless is ended after
/// `TEST_TIMEOUT`.
fn run_failing(host: &Host, command: &mut Command) -> String {
    let mut bounded = Command::new("timeout");
    bounded.arg(TEST_TIMEOUT.as_secs().to_string()).arg(command.get_program()).args(command.get_args());
    let Output { status, stderr, .. } = host.inside(|| bounded.output()).expect("ekiden runs");
    let text = String::from_utf8(stderr).expect("text");
    assert_eq!(status.code(), Some(1), "{text}");
    text
}

/// The files of the left relay, which is not started.
fn left_site(row: &Row) -> (crate::relays::Site, BoxConfigs) {
    let configs = BoxConfigs::new(row, "");
    (site(&configs.left), configs)
}

#[test]
fn conflicting_devices_and_routes_are_reported_and_kept() {
    for (prepare, expected) in [
        ("tuntap add ekiden0 mode tun\n", "tunnel ekiden0: cannot create the device"),
        (
            "link add ekiden0 type veth peer name other\n",
            "an interface has that name: ip link del it, or choose another name",
        ),
        ("route add 10.0.2.0/24 via 10.0.1.2\n", "tunnel ekiden0: 10.0.2.0/24 already has a route, by right"),
        ("route add 10.0.2.0/24 via 10.0.1.2 metric 9\n", "10.0.2.0/24 already has a route, by right: ip route del"),
        ("-6 route add fd00:0:0:2::/64 via fd00:0:0:1::2\n", "fd00:0:0:2::/64 already has a route, by right"),
        ("address add 10.0.2.99/24 dev left\n", "10.0.2.0/24 is a part of 10.0.2.0/24, the network of left"),
        ("address add 10.0.2.99/16 dev left\n", "10.0.2.0/24 is a part of 10.0.0.0/16, the network of left"),
    ] {
        let Some(row) = hosts(&BOTH) else { return };
        let (family, command) = prepare.split_once(' ').filter(|(flag, _)| *flag == "-6").unwrap_or(("-4", prepare));
        let words: Vec<&str> = command.trim().split(' ').collect();
        row["left"].run("ip", &[&[family][..], &words].concat(), "");
        let before = row["left"].run("ip", &["-d", "address"], "") + &row["left"].run("ip", &["route"], "");
        let (site, _texts) = left_site(&row);
        let text = run_failing(&row["left"], &mut site.command());
        assert!(text.contains(expected) && text.lines().count() == 1, "{prepare}: {text}");
        let after = row["left"].run("ip", &["-d", "address"], "") + &row["left"].run("ip", &["route"], "");
        assert_eq!(before, after, "{prepare}");
        assert_eq!(row["left"].run("nft", &["list", "tables"], ""), "");
    }
}

#[test]
fn source_address_of_another_host_is_reported() {
    let Some(row) = hosts(&BOTH) else { return };
    let configs = BoxConfigs::new(&row, "source = \"10.0.9.9\"");
    let text = run_failing(&row["left"], &mut site(&configs.left).command());
    assert!(
        text.contains("cannot add a route to 10.0.2.0/24") && text.contains("is source an address of this host?"),
        "{text}"
    );
    assert_eq!(tunnel_devices(&row["left"]), Vec::<String>::new());
}

#[test]
fn missing_tun_or_privilege_is_reported_with_a_remedy() {
    if is_any_missing(&["unshare", "setpriv"]) {
        return;
    }
    let Some(row) = hosts(&BOTH) else { return };
    let (site, _texts) = left_site(&row);
    let as_file = site.file();
    let mut hidden = Command::new("unshare");
    let script = "mount -t tmpfs none /dev/net && exec \"$0\" run -c \"$1\"";
    hidden.args(["-m", "sh", "-c", script]).arg(ekiden().get_program()).arg(&as_file);
    let text = run_failing(&row["left"], &mut hidden);
    assert!(text.contains("/dev/net/tun is missing: modprobe tun, or use a kernel with CONFIG_TUN"), "{text}");
    let mut powerless = Command::new("setpriv");
    powerless.args(["--bounding-set", "-net_admin"]).arg(ekiden().get_program()).arg("run").arg("-c").arg(&as_file);
    let text = run_failing(&row["left"], &mut powerless);
    assert!(text.contains("needs CAP_NET_ADMIN: run as root"), "{text}");
    assert_eq!(tunnel_devices(&row["left"]), Vec::<String>::new());
}

#[test]
fn doctor_reports_support_for_tunnels() {
    if is_any_missing(&["unshare"]) {
        return;
    }
    let Some(sites) = Sites::new("") else { return };
    let report = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(ekiden().get_program());
        String::from_utf8(sites.row["left"].inside(|| command.output()).expect("ekiden runs").stdout).expect("text")
    };
    let healthy = report("exec \"$0\" doctor");
    for line in
        ["ok    tunnels                      /dev/net/tun creates devices", "ok    forwarding                   on"]
    {
        assert!(healthy.contains(line), "{healthy}");
    }
    let without = report("mount -t tmpfs none /dev/net && exec \"$0\" doctor");
    assert!(without.contains("hint  tunnels                      /dev/net/tun: No such file"), "{without}");
    sites.row["left"].set("ipv4/ip_forward", "0");
    let off = report("exec \"$0\" doctor");
    assert!(off.contains("hint  forwarding                   off: net.ipv4.ip_forward"), "{off}");
}

/// The target may be a name that resolves to an address behind the tunnel. A dial of the relay itself would then go
/// through the tunnel, and would never end if the target were the next relay. Therefore the marked sockets of the relay
/// are not routed into the tunnel.
#[test]
fn sockets_of_the_relay_are_not_routed_into_its_tunnel() {
    let Some(row) = hosts(&BOTH) else { return };
    let (listener, address) = row.server(Family::V4);
    let mut configs = BoxConfigs::new(&row, "");
    configs.left += "[[listener]]\nname = \"door\"\nkind = \"socks\"\nbind = \"10.0.0.2:1080\"\nallow_open = true\nallow_private = true\n";
    let sites = Sites::start(row, configs);
    let mut by_route = sites.row["left"]
        .inside(|| socks5("10.0.0.2:1080".parse().unwrap(), address))
        .expect("a session by the route of the tunnel");
    exchange(&mut by_route, &mut accept(&listener));
    // The mark that the relay sets on its sockets.
    let socket =
        sites.row["left"].inside(|| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)).unwrap();
    socket.set_mark(0xe102_0000).unwrap();
    let error = socket.connect(&address.into()).expect_err("into the tunnel");
    assert_eq!(error.kind(), std::io::ErrorKind::HostUnreachable);
    assert_eq!(sites.left.relay.sessions().len(), 1);
}

/// A direct connection for a session of the tunnel would be routed into the tunnel again.
#[test]
fn direct_path_is_skipped_for_tunnel_sessions() {
    let Some(row) = hosts(&BOTH) else { return };
    let mut configs = BoxConfigs::new(&row, "");
    configs.left = configs.left.replace("path = [\"long\"]", "path = [\"direct\", \"long\"]");
    let mut sites = Sites::start(row, configs);
    for from in ["client", "left"] {
        let (mut client, mut server) = sites.connect(from, "server", Family::V4);
        exchange(&mut client, &mut server);
        drop((client, server));
        assert_eq!(sites.closed()[0]["path"], "long");
    }
}

/// A destination that the configuration of the tunnel denies is reported as unreachable, not as refused.
#[test]
fn denied_destination_is_unreachable() {
    let Some(sites) = Sites::new("deny = [\"10.0.2.2:9\", \"[fd00:0:0:2::2]:9\"]") else { return };
    for family in BOTH {
        let address = std::net::SocketAddr::new(sites.row.left("server", family), 9);
        for from in ["client", "left"] {
            let error = sites.row[from].try_connect(address).expect_err("denied");
            assert_eq!(error.kind(), std::io::ErrorKind::HostUnreachable, "{from}");
        }
    }
    // The counter includes retransmitted SYNs.
    let unserved = sites.row["left"].counter("ekiden", "unserved");
    assert!(unserved >= 4, "not rejected at once: {unserved}");
}
