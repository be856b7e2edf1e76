//! Decides which packets may cross a lane. The header fields of a packet are verified.

use std::time::Instant;

use ekiden_proto::addr::Host;
use ekiden_proto::wire::ip::{self, IpHeader};
use ekiden_proto::wire::section::record::MAX_PLAINTEXT;

use super::flows::FlowTable;
use crate::config::access::AccessPolicy;
use crate::events::metrics::tunnels::DropReason;

/// Checks the form of a packet and its destination. If `rules` is not empty, one of its policies must permit the
/// destination, unless the packet answers one of `flows`.
///
/// # Errors
/// The packet is dropped, with the reason.
pub fn judge(packet: &[u8], rules: &[AccessPolicy<'_>], flows: Option<&FlowTable>) -> Result<IpHeader, DropReason> {
    let head = IpHeader::parse(packet).ok().filter(|_| packet.len() <= MAX_PLAINTEXT).ok_or(DropReason::Malformed)?;
    if !ip::is_routable(head.source) {
        return Err(DropReason::Spoofed);
    }
    if head.protocol == ip::TCP || !ip::is_routable(head.destination) {
        return Err(DropReason::Denied);
    }
    // No pattern with a port matches port 0, so such patterns apply only to packets with a port.
    let permits = |rules: &AccessPolicy<'_>| rules.permits(&Host::from(head.destination), None, head.port.unwrap_or(0));
    let is_answer = |flows: &FlowTable| flows.is_answer(packet, Instant::now());
    let may_pass = rules.is_empty() || rules.iter().any(permits) || flows.is_some_and(is_answer);
    may_pass.then_some(head).ok_or(DropReason::Denied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AccessRules;

    /// A packet of `protocol` from 192.168.1.7 to `destination`, with the destination port 53 if the protocol is UDP.
    fn packet(protocol: u8, destination: [u8; 4]) -> Vec<u8> {
        let head = [0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol, 0, 0, 192, 168, 1, 7];
        [head.as_slice(), &destination, &[0x0f, 0xa0, 0, 53, 0, 8, 0, 0]].concat()
    }

    fn access(allow: &[&str], deny: &[&str]) -> AccessRules {
        let list = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
        AccessRules { allow: list(allow), deny: list(deny), ..AccessRules::default() }
    }

    #[test]
    fn packet_destinations_follow_the_access_rules_of_sessions() {
        const UDP: u8 = 17;
        const ICMP: u8 = 1;
        let (site, host) = ([10, 0, 2, 9], [203, 0, 113, 9]);
        for (case, access, protocol, destination, verdict) in [
            ("open", access(&[], &[]), UDP, host, Ok(())),
            ("private", access(&[], &[]), UDP, site, Err(DropReason::Denied)),
            ("its network", access(&["10.0.2.0/24"], &[]), ICMP, site, Ok(())),
            ("another one", access(&["10.0.3.0/24"], &[]), ICMP, site, Err(DropReason::Denied)),
            ("its port", access(&["10.0.2.0/24:53"], &[]), UDP, site, Ok(())),
            ("another port", access(&["10.0.2.0/24:54"], &[]), UDP, site, Err(DropReason::Denied)),
            ("no port", access(&["10.0.2.0/24:53"], &[]), ICMP, site, Err(DropReason::Denied)),
            ("a denied port", access(&["10.0.2.0/24"], &["*:53"]), UDP, site, Err(DropReason::Denied)),
            ("not that port", access(&["10.0.2.0/24"], &["*:53"]), ICMP, site, Ok(())),
            ("TCP", access(&[], &[]), ip::TCP, host, Err(DropReason::Denied)),
            ("multicast", access(&["224.0.0.0/4"], &[]), UDP, [224, 0, 0, 251], Err(DropReason::Denied)),
            ("loopback", access(&["127.0.0.0/8"], &[]), UDP, [127, 0, 0, 1], Err(DropReason::Denied)),
        ] {
            let rules = AccessPolicy { listener: &access, peer: None };
            let judged = judge(&packet(protocol, destination), &[rules], None);
            assert_eq!(judged.map(drop), verdict, "{case}");
        }
        assert!(judge(&packet(UDP, site), &[], None).is_ok(), "no rules");
    }

    #[test]
    fn one_policy_or_a_request_permits_a_packet() {
        let (open, closed) = (access(&["10.0.2.0/24"], &[]), access(&[], &["*"]));
        let [open, closed] = [&open, &closed].map(|listener| AccessPolicy { listener, peer: None });
        let (answer, flows) = (packet(17, [10, 0, 2, 9]), FlowTable::default());
        let judged = |rules: &[AccessPolicy<'_>]| judge(&answer, rules, Some(&flows)).map(drop);
        assert_eq!(judged(&[closed, open]), Ok(()));
        assert_eq!(judged(&[closed]), Err(DropReason::Denied));
        let mut request = answer.clone();
        request[12..20].rotate_left(4);
        request[20..24].rotate_left(2);
        flows.record(&request, Instant::now());
        assert_eq!(judged(&[closed]), Ok(()));
    }

    #[test]
    fn spoofed_and_malformed_packets_are_dropped() {
        let good = packet(17, [203, 0, 113, 9]);
        let mut multicast = good.clone();
        multicast[12] = 224;
        assert_eq!(judge(&multicast, &[], None), Err(DropReason::Spoofed));
        assert_eq!(judge(&good[1..], &[], None), Err(DropReason::Malformed));
        let mut long = [&good[..], &[0; MAX_PLAINTEXT]].concat();
        long.truncate(MAX_PLAINTEXT + 1);
        long[2..4].copy_from_slice(&u16::try_from(MAX_PLAINTEXT + 1).unwrap().to_be_bytes());
        assert_eq!(judge(&long, &[], None), Err(DropReason::Malformed));
        long.truncate(MAX_PLAINTEXT);
        long[2..4].copy_from_slice(&u16::try_from(MAX_PLAINTEXT).unwrap().to_be_bytes());
        assert_eq!(judge(&long, &[], None).map(|head| head.port), Ok(Some(53)));
    }
}
