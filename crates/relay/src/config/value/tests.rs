//! What each type of option takes.

use super::*;
use crate::config::capture::{ConnectMode, InstanceNumber, InterfaceName, RuleManagement};
use crate::config::{AdminBind, LogFormat, LogLevel};

fn takes<T: ConfigValue>(good: &[&str], bad: &[&str]) {
    for text in good {
        assert!(T::read(text).is_ok(), "{text:?} was refused");
    }
    for text in bad {
        assert!(T::read(text).is_err(), "{text:?} was taken");
    }
}

#[test]
fn each_type_takes_what_it_should() {
    takes::<bool>(&["true", "false"], &["yes", "1", ""]);
    takes::<usize>(&["0", "7"], &["-1", "1.5", "x"]);
    takes::<PositiveCount>(&["1"], &["0", "-1"]);
    takes::<Threads>(&["1", "1024"], &["0", "1025"]);
    takes::<PositiveDuration>(&["1us", "1h", "1.5s"], &["0s", "0ms", "30", "-1s", ""]);
    takes::<HeadSize>(&["4KiB", "1MiB", "65536B"], &["4095B", "2MiB", "64"]);
    takes::<NameServer>(&["192.0.2.1", "192.0.2.1:5353", "::1", "[::1]:53"], &["dns.example", "192.0.2.1:0"]);
    takes::<Name>(&["a", "auto-1080"], &["", "a b", "a\"b", "ä", &"a".repeat(65)]);
    takes::<LogFormat>(&["text", "json"], &["xml", "JSON"]);
    takes::<LogLevel>(&["sessions", "problems", "off"], &["on", "debug", ""]);
    takes::<AdminBind>(
        &["off", "127.0.0.1:9090", "[::1]:9090", ":9090", "unix:/run/x", "0.0.0.0:9090", "[::]:1", "192.0.2.1:1"],
        &["unix:x", "unix:", "on", "127.0.0.1", "relay.example:1"],
    );
    takes::<ListenerKind>(&["auto", "socks", "http", "tcp", "tproxy", "redirect", "section"], &["sock", "SOCKS", ""]);
    takes::<PathBuf>(&["x"], &[""]);
    takes::<KeyFile>(&["x"], &[""]);
    takes::<ConnectMode>(&["hold", "strict", "early"], &["Early", "true", ""]);
    takes::<RuleManagement>(&["managed", "manual"], &["Managed", "true", ""]);
    takes::<InstanceNumber>(&["1", "15"], &["0", "16", "-1", "1.5", ""]);
    takes::<InterfaceName>(
        &["lo", "eth0", "br-lan", "eth0.100", "eth0:1", "veth0@if2", &"a".repeat(15)],
        &["", "a b", "a\"", "eth*", "a/b", "ä", &"a".repeat(16)],
    );
    takes::<Network>(
        &["10.1.0.0/16", "192.0.2.1", "2001:db8::/32", "::1", "0.0.0.0/0"],
        &["10.1.0.1/16", "10.1.0.0/33", "client.example", "*", ""],
    );
    takes::<PublicKey>(
        &["hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="],
        &["", "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo"],
    );
}

#[test]
fn a_listener_without_a_host_is_local() {
    for (text, address) in [
        (":1080", "127.0.0.1:1080"),
        ("localhost:1080", "127.0.0.1:1080"),
        ("0.0.0.0:1", "0.0.0.0:1"),
        ("[::]:0", "[::]:0"),
    ] {
        assert_eq!(BindAddress::read(text).ok().map(|b| b.0.to_string()).as_deref(), Some(address), "{text}");
    }
    takes::<BindAddress>(&[], &["", "1080", "localhost", "example.com:1080", "127.0.0.1", ":", ":65536", "::1:80"]);
}
