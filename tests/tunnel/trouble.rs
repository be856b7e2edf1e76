//! Obstacles of a tunnel, and their messages with the remedy.

use std::process::{Command, Output};

use crate::boxes::site;
use crate::harness::*;
use crate::network::*;
use crate::programs::*;
use crate::sites::*;

/// The message of a relay that cannot start. One that does is ended.
fn fails(host: &Host, command: &mut Command) -> String {
    let mut bounded = Command::new("timeout");
    bounded.arg(PATIENCE.as_secs().to_string()).arg(command.get_program()).args(command.get_args());
    let Output { status, stderr, .. } = host.inside(|| bounded.output()).expect("it runs");
    let said = String::from_utf8(stderr).expect("text");
    assert_eq!(status.code(), Some(1), "{said}");
    said
}

/// The relay of the left box.
fn starting(row: &Row) -> (crate::boxes::Site, Texts) {
    let texts = Texts::new(row, "");
    (site(&texts.left), texts)
}

#[test]
fn what_is_in_the_way_is_named_and_left_alone() {
    for (prepare, says) in [
        ("tuntap add ekiden0 mode tun\n", "tunnel ekiden0: no such device can be made"),
        (
            "link add ekiden0 type veth peer name other\n",
            "an interface has that name: ip link del it, or take another name",
        ),
        ("route add 10.0.2.0/24 via 10.0.1.2\n", "tunnel ekiden0: 10.0.2.0/24 has a route already, by right"),
        ("route add 10.0.2.0/24 via 10.0.1.2 metric 9\n", "10.0.2.0/24 has a route already, by right: ip route del"),
        ("-6 route add fd00:0:0:2::/64 via fd00:0:0:1::2\n", "fd00:0:0:2::/64 has a route already, by right"),
        ("address add 10.0.2.99/24 dev left\n", "10.0.2.0/24 is a part of 10.0.2.0/24, where left is"),
        ("address add 10.0.2.99/16 dev left\n", "10.0.2.0/24 is a part of 10.0.0.0/16, where left is"),
    ] {
        let Some(row) = hosts(&BOTH) else { return };
        let (family, command) = prepare.split_once(' ').filter(|(flag, _)| *flag == "-6").unwrap_or(("-4", prepare));
        let words: Vec<&str> = command.trim().split(' ').collect();
        row["left"].run("ip", &[&[family][..], &words].concat(), "");
        let before = row["left"].run("ip", &["-d", "address"], "") + &row["left"].run("ip", &["route"], "");
        let (site, _texts) = starting(&row);
        let said = fails(&row["left"], &mut site.command());
        assert!(said.contains(says) && said.lines().count() == 1, "{prepare}: {said}");
        let after = row["left"].run("ip", &["-d", "address"], "") + &row["left"].run("ip", &["route"], "");
        assert_eq!(before, after, "{prepare}");
        assert_eq!(row["left"].run("nft", &["list", "tables"], ""), "");
    }
}

#[test]
fn a_source_that_is_not_ours_is_told() {
    let Some(row) = hosts(&BOTH) else { return };
    let texts = Texts::new(&row, "source = \"10.0.9.9\"");
    let said = fails(&row["left"], &mut site(&texts.left).command());
    assert!(said.contains("no route to 10.0.2.0/24") && said.contains("is source an address of this host?"), "{said}");
    assert_eq!(traces(&row["left"]), Vec::<String>::new());
}

#[test]
fn a_host_without_devices_or_privilege_is_told_what_to_do() {
    if missing(&["unshare", "setpriv"]) {
        return;
    }
    let Some(row) = hosts(&BOTH) else { return };
    let (site, _texts) = starting(&row);
    let as_file = site.file();
    let mut hidden = Command::new("unshare");
    let script = "mount -t tmpfs none /dev/net && exec \"$0\" run -c \"$1\"";
    hidden.args(["-m", "sh", "-c", script]).arg(ekiden().get_program()).arg(&as_file);
    let said = fails(&row["left"], &mut hidden);
    assert!(said.contains("there is no /dev/net/tun: modprobe tun, or a kernel with CONFIG_TUN"), "{said}");
    let mut powerless = Command::new("setpriv");
    powerless.args(["--bounding-set", "-net_admin"]).arg(ekiden().get_program()).arg("run").arg("-c").arg(&as_file);
    let said = fails(&row["left"], &mut powerless);
    assert!(said.contains("needs CAP_NET_ADMIN: run as root"), "{said}");
    assert_eq!(traces(&row["left"]), Vec::<String>::new());
}

#[test]
fn doctor_says_whether_there_can_be_tunnels() {
    if missing(&["unshare"]) {
        return;
    }
    let Some(sites) = Sites::new("") else { return };
    let report = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(ekiden().get_program());
        String::from_utf8(sites.row["left"].inside(|| command.output()).expect("it runs").stdout).expect("text")
    };
    let healthy = report("exec \"$0\" doctor");
    for line in
        ["ok    tunnels                      /dev/net/tun makes devices", "ok    forwarding                   on"]
    {
        assert!(healthy.contains(line), "{healthy}");
    }
    let without = report("mount -t tmpfs none /dev/net && exec \"$0\" doctor");
    assert!(without.contains("hint  tunnels                      /dev/net/tun: No such file"), "{without}");
    sites.row["left"].set("ipv4/ip_forward", "0");
    let off = report("exec \"$0\" doctor");
    assert!(off.contains("hint  forwarding                   off: net.ipv4.ip_forward"), "{off}");
}

/// A target whose name resolves to an address behind the tunnel: dialling it from here would go through the tunnel, and
/// if it were the next relay, for ever.
#[test]
fn no_section_goes_into_its_own_tunnel() {
    let Some(row) = hosts(&BOTH) else { return };
    let (listener, address) = row.server(Family::V4);
    let mut texts = Texts::new(&row, "");
    texts.left += "[[listener]]\nname = \"door\"\nkind = \"socks\"\nbind = \"10.0.0.2:1080\"\nallow_open = true\nallow_private = true\n";
    let sites = Sites::start(row, texts);
    let mut by_route =
        sites.row["left"].inside(|| socks5("10.0.0.2:1080".parse().unwrap(), address)).expect("by its route");
    talk(&mut by_route, &mut accept(&listener));
    // As our own sockets are marked.
    let socket =
        sites.row["left"].inside(|| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)).unwrap();
    socket.set_mark(0xe102_0000).unwrap();
    let error = socket.connect(&address.into()).expect_err("into the tunnel");
    assert_eq!(error.kind(), std::io::ErrorKind::HostUnreachable);
    assert_eq!(sites.left.relay.sessions().len(), 1);
}

/// A tunnel's sessions have no use for a way that leads back into it.
#[test]
fn a_path_that_is_direct_is_left_out() {
    let Some(row) = hosts(&BOTH) else { return };
    let mut texts = Texts::new(&row, "");
    texts.left = texts.left.replace("path = [\"long\"]", "path = [\"direct\", \"long\"]");
    let mut sites = Sites::start(row, texts);
    for from in ["client", "left"] {
        let (mut client, mut server) = sites.connect(from, "server", Family::V4);
        talk(&mut client, &mut server);
        drop((client, server));
        assert_eq!(sites.closed()[0]["path"], "long");
    }
}

/// A closed port of the other site is one; a host that this site closes to itself is unreachable.
#[test]
fn what_deny_takes_out_is_unreachable() {
    let Some(sites) = Sites::new("deny = [\"10.0.2.2:9\", \"[fd00:0:0:2::2]:9\"]") else { return };
    for family in BOTH {
        let address = std::net::SocketAddr::new(sites.row.left("server", family), 9);
        for from in ["client", "left"] {
            let error = sites.row[from].try_connect(address).expect_err("denied");
            assert_eq!(error.kind(), std::io::ErrorKind::HostUnreachable, "{from}");
        }
    }
    // A first packet that is sent again is counted again.
    let unserved = sites.row["left"].counter("ekiden", "unserved");
    assert!(unserved >= 4, "at once, not when they have gone round for long: {unserved}");
}
