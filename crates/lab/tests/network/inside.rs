//! Tests of networks inside the sandbox: addresses, routes, and the settings of hosts and interfaces.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ekiden_lab::emulator::Port;
use ekiden_lab::experiment::run::flows::{self, ParallelFlowsRequest};
use ekiden_lab::experiment::spec::group::ShortFlowSettings;
use ekiden_lab::program::receiver::FlowReceiver;
use ekiden_lab::topology::network::{HostHandle, Network};
use ekiden_lab::topology::{Backend, Family, Lab, LossRecovery, Offload};
use ekiden_proto::units::{Bytes, Span};
use ekiden_sys::congestion;

use crate::labs::{cable, chain, emulated, lab, with_host};
use crate::{Skipped, Test};

pub const TESTS: &[Test] = &[
    ("hosts_on_a_bare_link_exchange_data", hosts_on_a_bare_link_exchange_data),
    ("a_chain_forwards_and_counts_no_drop", a_chain_forwards_and_counts_no_drop),
    ("non_forwarding_router_is_reachable_but_routes_nothing", non_forwarding_router_is_reachable_but_routes_nothing),
    ("congestion_control_is_pinned_for_both_sides", congestion_control_is_pinned_for_both_sides),
    ("an_unknown_congestion_control_is_an_error", an_unknown_congestion_control_is_an_error),
    ("sysctls_are_set_and_unknown_sysctls_are_named", sysctls_are_set_and_unknown_sysctls_are_named),
    ("rto_min_and_recovery_of_a_host_are_applied", rto_min_and_recovery_of_a_host_are_applied),
    ("active_and_refused_flows_are_counted", active_and_refused_flows_are_counted),
    ("names_resolve_on_every_host", names_resolve_on_every_host),
    ("hosts_have_both_families", hosts_have_both_families),
    ("emulated_link_ends_in_the_namespace_of_the_emulator", emulated_link_ends_in_the_namespace_of_the_emulator),
    ("offloads_are_switched_off", offloads_are_switched_off),
    ("tun_devices_carry_packets_with_a_header", tun_devices_carry_packets_with_a_header),
    ("netem_works_or_its_absence_is_reported", netem_works_or_its_absence_is_reported),
    ("labs_can_be_built_in_succession", labs_can_be_built_in_succession),
];

fn host<'a>(network: &'a Network, name: &str) -> &'a HostHandle {
    network.host(name).unwrap()
}

/// Sends a byte by TCP, and returns the connecting and the accepting socket.
fn connect(from: &HostHandle, to: &HostHandle) -> [TcpStream; 2] {
    let listener = to.enter(|| TcpListener::bind((to.address(), 0))).unwrap().unwrap();
    let there = listener.local_addr().unwrap();
    let connecting = from.enter(|| TcpStream::connect(there)).unwrap().unwrap();
    let (accepted, _) = listener.accept().unwrap();
    (&connecting).write_all(b"x").unwrap();
    (&accepted).read_exact(&mut [0]).unwrap();
    [connecting, accepted]
}

/// Sends a byte by TCP, and returns the congestion control of the connecting and of the accepting socket.
fn exchange_byte(from: &HostHandle, to: &HostHandle) -> [String; 2] {
    connect(from, to).map(|socket| congestion::of_socket(&socket).unwrap())
}

fn pair() -> Lab {
    lab(&[("cable", cable("a", "b"))])
}

fn hosts_on_a_bare_link_exchange_data() -> Result<(), Skipped> {
    let network = Network::build(&pair()).unwrap();
    assert!(network.emulated_links().is_empty(), "no emulator in a bare link");
    exchange_byte(host(&network, "a"), host(&network, "b"));
    let ping = host(&network, "b").command("ping").args(["-c1", "-W5", "10.100.0.1"]).output();
    match ping {
        Ok(ping) => assert!(ping.status.success(), "{}", String::from_utf8_lossy(&ping.stderr)),
        Err(error) => return Err(Skipped(format!("ping: {error}"))),
    }
    Ok(())
}

fn a_chain_forwards_and_counts_no_drop() -> Result<(), Skipped> {
    let network = Network::build(&chain()).unwrap();
    exchange_byte(host(&network, "client"), host(&network, "server"));
    exchange_byte(host(&network, "server"), host(&network, "client"));
    assert_eq!(network.hidden_drops().unwrap(), []);
    Ok(())
}

fn non_forwarding_router_is_reachable_but_routes_nothing() -> Result<(), Skipped> {
    let network = Network::build(&with_host(chain(), "router", |router| router.forward = false)).unwrap();
    // The router's address is that of its first link; the server is on the second.
    exchange_byte(host(&network, "server"), host(&network, "router"));
    let server = host(&network, "server").address();
    let refused = host(&network, "client").enter(|| TcpStream::connect((server, 9))).unwrap().unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ENETUNREACH));
    Ok(())
}

fn congestion_control_is_pinned_for_both_sides() -> Result<(), Skipped> {
    for [client, server] in [["cubic", "reno"], ["reno", "cubic"]] {
        let lab = with_host(chain(), "client", |host| host.congestion = Some(client.to_owned()));
        let lab = with_host(lab, "server", |host| host.congestion = Some(server.to_owned()));
        let network = Network::build(&lab).unwrap();
        assert_eq!(exchange_byte(host(&network, "client"), host(&network, "server")), [client, server]);
        assert_eq!(exchange_byte(host(&network, "client"), host(&network, "router"))[0], client);
        assert_eq!(exchange_byte(host(&network, "server"), host(&network, "client")), [server, client]);
    }
    Ok(())
}

fn an_unknown_congestion_control_is_an_error() -> Result<(), Skipped> {
    let lab = with_host(pair(), "a", |host| host.congestion = Some("frob".to_owned()));
    let error = format!("{:#}", Network::build(&lab).err().unwrap());
    assert!(error.starts_with(r#"host "a": congestion = "frob", but this kernel has: "#), "{error}");
    Ok(())
}

fn rto_min_and_recovery_of_a_host_are_applied() -> Result<(), Skipped> {
    let configured = with_host(pair(), "a", |host| {
        (host.rto_min, host.recovery) = (Some(Span(Duration::from_secs(3))), LossRecovery::Old);
    });
    let network = Network::build(&configured).unwrap();
    let (a, b) = (host(&network, "a"), host(&network, "b"));
    for key in LossRecovery::Old.sysctls() {
        let file = format!("/proc/sys/{}", key.replace('.', "/"));
        let read = |host: &HostHandle| host.enter(|| fs::read_to_string(&file)).unwrap().unwrap().trim().to_owned();
        assert_eq!(read(a), "0", "{key}");
    }
    let _connection = connect(a, b);
    // The retransmission timeout of the connection in ms. It includes the round trip.
    let rto = |host: &HostHandle| {
        let output = host.command("ss").args(["-tinH", "state", "established"]).output().unwrap();
        let sockets = String::from_utf8(output.stdout).unwrap();
        let word = sockets.split_whitespace().find_map(|word| word.strip_prefix("rto:")).expect(&sockets);
        word.parse::<f64>().unwrap()
    };
    assert!((3000.0..4000.0).contains(&rto(a)), "{}", rto(a));
    assert!(rto(b) < 1000.0, "{}", rto(b));
    Ok(())
}

fn active_and_refused_flows_are_counted() -> Result<(), Skipped> {
    let network = Network::build(&pair()).unwrap();
    let (client, server) = (host(&network, "a"), host(&network, "b"));
    let receiver = FlowReceiver::start(server, 5101).unwrap();
    let short = Some(ShortFlowSettings { bytes: Bytes(2048), every: Span(Duration::from_millis(50)) });
    let time = Duration::from_secs(3);
    let request = |port| ParallelFlowsRequest {
        client,
        server: SocketAddr::new(server.address(), port),
        connections: 3,
        short,
        time,
        warm_up: Duration::ZERO,
    };
    flows::attempt_flow(client, request(5101).server, 1024, time).unwrap();
    let seen = flows::run_flows(&receiver, request(5101)).unwrap();
    let all = seen.flow_stats.unwrap();
    assert!(all.bytes.len() == 3 && all.bytes.iter().all(|bytes| *bytes > 100_000), "{:?}", all.bytes);
    assert_eq!(seen.bytes, all.bytes.iter().sum::<u64>(), "short flows and trials do not count");
    let mut completions = all.completions;
    completions.sort_by(f64::total_cmp);
    // A flow that does not complete counts with the whole time.
    assert!(completions.len() > 5 && completions[completions.len() / 2] < time.as_secs_f64(), "{completions:?}");
    // No process listens on that port.
    let refused = flows::run_flows(&receiver, request(5102)).unwrap().flow_stats.unwrap();
    assert_eq!(refused.bytes, [0; 3], "bytes of earlier flows do not count");
    assert!(matches!(refused.completions[..], [took] if took > 2.9), "{:?}", refused.completions);
    Ok(())
}

fn sysctls_are_set_and_unknown_sysctls_are_named() -> Result<(), Skipped> {
    let set = |key: &str, value: &str| {
        with_host(pair(), "a", |host| drop(host.sysctl.insert(key.to_owned(), value.to_owned())))
    };
    let network = Network::build(&set("net.ipv4.tcp_rmem", "4096 20000 40000")).unwrap();
    let read = |host: &HostHandle, file: &str| {
        host.enter(|| fs::read_to_string(format!("/proc/sys/net/{file}"))).unwrap().unwrap().trim().to_owned()
    };
    assert_eq!(read(host(&network, "a"), "ipv4/tcp_rmem"), "4096\t20000\t40000");
    assert_ne!(read(host(&network, "b"), "ipv4/tcp_rmem"), "4096\t20000\t40000");
    for name in ["a", "b"] {
        assert_eq!(read(host(&network, name), "ipv4/tcp_no_metrics_save"), "1");
        assert_eq!(read(host(&network, name), "ipv4/ip_forward"), "0");
    }
    let error = format!("{:#}", Network::build(&set("net.ipv4.frob", "1")).err().unwrap());
    assert_eq!(error, r#"host "a": sysctl net.ipv4.frob = "1": this kernel has no such sysctl in a network namespace"#);
    Ok(())
}

fn hosts_have_both_families() -> Result<(), Skipped> {
    let lab = with_host(chain(), "client", |host| host.congestion = Some("reno".to_owned()));
    let lab = with_host(lab, "server", |host| host.congestion = Some("cubic".to_owned()));
    let network = Network::build(&Lab { family: Family::Ipv6, ..lab }).unwrap();
    let [client, router, server] = ["client", "router", "server"].map(|name| host(&network, name));
    assert_eq!(
        [client.address(), server.address()],
        ["fd00::1", "fd00:0:0:1::2"].map(|text| text.parse::<IpAddr>().unwrap())
    );
    assert_eq!(exchange_byte(client, server), ["reno", "cubic"]);
    assert_eq!(exchange_byte(server, router)[0], "cubic");
    for (database, address) in [("ahostsv6", server.address()), ("ahostsv4", server.ipv4().into())] {
        let found = client.command("getent").args([database, "server"]).output().unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        assert_eq!(found.split_whitespace().next(), Some(address.to_string().as_str()), "{database}");
    }
    let listener = server.enter(|| TcpListener::bind((server.ipv4(), 0))).unwrap().unwrap();
    assert!(client.enter(|| TcpStream::connect(listener.local_addr().unwrap())).unwrap().is_ok());
    assert_eq!(network.hidden_drops().unwrap(), []);
    let other = Network::build(&chain()).unwrap();
    let text = host(&other, "client").enter(|| fs::read_to_string("/proc/thread-self/net/if_inet6")).unwrap();
    assert_eq!(text.unwrap_or_default(), "", "no IPv6 in other labs");
    Ok(())
}

fn names_resolve_on_every_host() -> Result<(), Skipped> {
    let network = Network::build(&chain()).unwrap();
    for on in network.hosts() {
        for name in network.hosts() {
            let found = on.command("getent").args(["ahostsv4", name.name()]).output().unwrap();
            let found = String::from_utf8(found.stdout).unwrap();
            let address = name.address().to_string();
            assert_eq!(found.split_whitespace().next(), Some(address.as_str()), "{} on {}", name.name(), on.name());
        }
    }
    Ok(())
}

fn emulated_link_ends_in_the_namespace_of_the_emulator() -> Result<(), Skipped> {
    let network = Network::build(&lab(&[("a-name-that-is-too-long-for-linux", emulated("a", "b"))])).unwrap();
    let wires = network.emulated_links();
    let [Port::Interface(left), Port::Interface(right)] = &wires[0].ports else { panic!("{wires:?}") };
    // A bridge of the kernel between both ports replaces the emulator.
    let script = format!(
        "ip link add name bridge type bridge && ip link set dev {left} master bridge && ip link set dev {right} master bridge \
         && ip link set dev bridge up"
    );
    let bridged = Command::new("sh").args(["-c", &script]).output().unwrap();
    if !bridged.status.success() {
        return Err(Skipped(format!("no bridge: {}", String::from_utf8_lossy(&bridged.stderr))));
    }
    exchange_byte(host(&network, "a"), host(&network, "b"));
    assert!(Command::new("ip").args(["link", "del", "dev", "bridge"]).status().unwrap().success());
    Ok(())
}

fn offloads_are_switched_off() -> Result<(), Skipped> {
    const BYTES: usize = 1 << 20;
    for (offload, least, most) in [(Offload::Off, BYTES / 1448, usize::MAX), (Offload::Gso, 1, BYTES / 1448 / 2)] {
        let network = Network::build(&with_host(pair(), "a", |host| host.offload = offload)).unwrap();
        let (from, to) = (host(&network, "a"), host(&network, "b"));
        let listener = to.enter(|| TcpListener::bind((to.address(), 0))).unwrap().unwrap();
        let mut sending = from.enter(|| TcpStream::connect(listener.local_addr().unwrap())).unwrap().unwrap();
        let sender = thread::spawn(move || sending.write_all(&vec![0; BYTES]).unwrap());
        let mut received = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut received).unwrap();
        sender.join().unwrap();
        assert_eq!(received.len(), BYTES);
        let frames = frames_received(to, "cable");
        assert!((least..=most).contains(&frames), "{offload:?}: {frames} frames, not {least} to {most}");
    }
    Ok(())
}

fn frames_received(host: &HostHandle, interface: &str) -> usize {
    let text = host.enter(|| fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
    let row = text.lines().find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':')).unwrap();
    row.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn tun_devices_carry_packets_with_a_header() -> Result<(), Skipped> {
    let network = match Network::build(&Lab { backend: Backend::Tun, ..lab(&[("wan", emulated("a", "b"))]) }) {
        Ok(network) => network,
        Err(error) if format!("{error:#}").contains("/dev/net/tun must exist") => {
            return Err(Skipped(format!("{error:#}")));
        }
        Err(error) => panic!("{error:#}"),
    };
    let wires = network.emulated_links();
    let [Port::Tun(left), Port::Tun(right)] = &wires[0].ports else { panic!("{wires:?}") };
    let (from, to) = (host(&network, "a"), host(&network, "b"));
    let receiver = to.enter(|| UdpSocket::bind((to.address(), 0))).unwrap().unwrap();
    let sender = from.enter(|| UdpSocket::bind((from.address(), 0))).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // Sent before the read, because the descriptor of the TUN device is nonblocking.
    sender.send_to(b"over", receiver.local_addr().unwrap()).unwrap();
    let wire = thread::spawn({
        let (left, right) = (fs::File::from(left.try_clone().unwrap()), fs::File::from(right.try_clone().unwrap()));
        move || {
            let mut packet = vec![0; 65_600];
            let length = (&left).read(&mut packet).unwrap();
            (&right).write_all(&packet[..length]).unwrap();
            packet[10]
        }
    });
    let mut text = [0; 8];
    assert_eq!(receiver.recv(&mut text).unwrap(), 4);
    assert_eq!(
        (&text[..4], wire.join().unwrap()),
        (&b"over"[..], 0x45),
        "behind the header of 10 bytes is an IPv4 packet"
    );
    Ok(())
}

fn netem_works_or_its_absence_is_reported() -> Result<(), Skipped> {
    match Network::build(&Lab { backend: Backend::Netem, ..lab(&[("wan", emulated("a", "b"))]) }) {
        Ok(network) => {
            let began = Instant::now();
            exchange_byte(host(&network, "a"), host(&network, "b"));
            assert!(began.elapsed() >= Duration::from_millis(30), "a handshake and a byte over 10 ms each way");
            assert!(network.emulated_links().is_empty(), "netem needs no emulator");
        }
        Err(error) => {
            let error = format!("{error:#}");
            assert!(error.starts_with("link \"wan\": this kernel refuses netem (module sch_netem;"), "{error}");
        }
    }
    Ok(())
}

fn labs_can_be_built_in_succession() -> Result<(), Skipped> {
    let lab = lab(&[("wan", emulated("a", "b")), ("cable", cable("a", "b"))]);
    for round in 0..5 {
        let network = Network::build(&lab).unwrap_or_else(|error| panic!("lab {round}: {error:#}"));
        exchange_byte(host(&network, "a"), host(&network, "b"));
    }
    Ok(())
}
