//! Settings of interfaces (rtnetlink(7), `RTM_SETLINK` and `RTM_NEWADDR`), in the network namespace of the calling
//! thread. `/proc/sys` is not used, because services often may not write to it.

use std::io;
use std::net::Ipv4Addr;

use libc::c_int;

use crate::netlink::{Message, Netlink, NetlinkRequest, attribute, attributes};
use crate::tc;

// linux/ip.h; not in every libc.
const FORWARDING: c_int = 1;
const RP_FILTER: c_int = 8;
const ACCEPT_LOCAL: c_int = 23;

/// linux/if_link.h: the settings of IPv4, the generation of IPv6 addresses, and the mode without generation.
const IFLA_INET_CONF: c_int = 1;
const IFLA_INET6_ADDR_GEN_MODE: c_int = 8;
const IN6_ADDR_GEN_MODE_NONE: u8 = 1;

/// linux/if_link.h: the largest superpackets, in bytes.
const IFLA_GSO_MAX_SIZE: c_int = 41;
const IFLA_GRO_MAX_SIZE: c_int = 58;
const IFLA_TSO_MAX_SIZE: c_int = 59;
const IFLA_GSO_IPV4_MAX_SIZE: c_int = 63;
const IFLA_GRO_IPV4_MAX_SIZE: c_int = 64;

/// Length of `struct ifinfomsg`, in bytes.
const LINK_HEADER: usize = 16;

/// The largest superpackets of an interface, in bytes; 0 if the kernel does not report the value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SuperpacketLimits {
    /// Limit for IPv4, sent and received (Linux 6.3).
    pub ipv4: u32,
    /// Limit for IPv6, sent and received (Linux 5.19).
    pub ipv6: u32,
    /// Largest superpacket that the device can send.
    pub supported: u32,
}

/// A netlink socket for interfaces.
#[derive(Debug)]
pub struct Links(Netlink);

impl Links {
    /// Opens a netlink socket for links.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open() -> io::Result<Self> {
        Netlink::open(libc::NETLINK_ROUTE).map(Self)
    }

    /// Sets the MTU of the interface with index `index`, in bytes.
    ///
    /// # Errors
    /// The kernel's error: `EINVAL` for an unsupported value, `ENODEV`, `EPERM`.
    pub fn set_mtu(&self, index: u32, mtu: u32) -> io::Result<()> {
        self.0.request(set_link_request(index, 0).with_attribute(c_int::from(libc::IFLA_MTU), &mtu.to_ne_bytes()))
    }

    /// Lets the host accept packets from any source address on an interface, also from local addresses (`rp_filter` 2,
    /// `accept_local`), and forward them. Disables the generation of an IPv6 address for the interface.
    ///
    /// # Errors
    /// The kernel's error: `ENODEV`, `EPERM`.
    pub fn accept_any_source(&self, index: u32) -> io::Result<()> {
        let conf = [(FORWARDING, 1_u32), (RP_FILTER, 2), (ACCEPT_LOCAL, 1)];
        let conf = conf.map(|(key, value)| attribute(key, &value.to_ne_bytes())).concat();
        self.set_family(index, libc::AF_INET, &attribute(IFLA_INET_CONF, &conf))?;
        // The error is ignored: a kernel or an interface without IPv6 generates no address.
        let _ = self.set_family(index, libc::AF_INET6, &attribute(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]));
        Ok(())
    }

    fn set_family(&self, index: u32, family: c_int, settings: &[u8]) -> io::Result<()> {
        self.0.request(
            set_link_request(index, 0).with_attribute(c_int::from(libc::IFLA_AF_SPEC), &attribute(family, settings)),
        )
    }

    /// Adds an address to an interface that the kernel never selects as a source address, because its scope is
    /// `nowhere` (ip-address(8)).
    ///
    /// # Errors
    /// The kernel's error: `EEXIST` if the interface has the address, `ENODEV`, `EPERM`.
    pub fn add_scope_nowhere_address(&self, index: u32, address: Ipv4Addr) -> io::Result<()> {
        // `struct ifaddrmsg`: the family, the prefix, no flags, the scope, the interface.
        let mut header = vec![libc::AF_INET as u8, 32, 0, libc::RT_SCOPE_NOWHERE];
        header.extend(index.to_ne_bytes());
        let address = address.octets();
        let request = NetlinkRequest::new(libc::RTM_NEWADDR, &header)
            .with_flags(libc::NLM_F_CREATE | libc::NLM_F_EXCL)
            .with_attribute(c_int::from(libc::IFA_LOCAL), &address)
            .with_attribute(c_int::from(libc::IFA_ADDRESS), &address);
        self.0.request(request)
    }

    /// Returns the largest superpackets of an interface.
    ///
    /// # Errors
    /// The kernel's error: `ENODEV`.
    pub fn superpacket_limits(&self, index: u32) -> io::Result<SuperpacketLimits> {
        self.0.send(link_request(libc::RTM_GETLINK, index, 0))?;
        let mut buffer = [0; 16 << 10];
        let mut limits = Err(io::ErrorKind::InvalidData.into());
        self.0.receive(&mut buffer, |message| {
            limits = match message {
                Message::Done(result) => result.map(|()| SuperpacketLimits::default()),
                Message::Other(body) => Ok(read_limits(body.get(LINK_HEADER..).unwrap_or_default())),
            }
        })?;
        limits
    }

    /// Removes an interface, even if a process has its device open.
    ///
    /// # Errors
    /// The kernel's error: `ENODEV`, `EPERM`.
    pub fn delete(&self, index: u32) -> io::Result<()> {
        self.0.request(link_request(libc::RTM_DELLINK, index, 0))
    }

    /// Sets an interface up.
    ///
    /// # Errors
    /// The kernel's error: `ENODEV`, `EPERM`.
    pub fn set_up(&self, index: u32) -> io::Result<()> {
        self.0.request(set_link_request(index, libc::IFF_UP as u32))
    }
}

fn read_limits(message: &[u8]) -> SuperpacketLimits {
    let size = |kind| {
        let value = attributes(message).find_map(|(found, value)| (found == kind).then_some(value));
        value.and_then(|value| value.first_chunk()).map_or(0, |value| u32::from_ne_bytes(*value))
    };
    SuperpacketLimits {
        ipv4: size(IFLA_GSO_IPV4_MAX_SIZE).min(size(IFLA_GRO_IPV4_MAX_SIZE)),
        ipv6: size(IFLA_GSO_MAX_SIZE).min(size(IFLA_GRO_MAX_SIZE)),
        supported: size(IFLA_TSO_MAX_SIZE),
    }
}

/// Returns a request that changes an interface and sets these flags.
fn set_link_request(index: u32, flags: u32) -> NetlinkRequest {
    link_request(libc::RTM_SETLINK, index, flags)
}

/// Returns a request with a `struct ifinfomsg`.
fn link_request(kind: u16, index: u32, flags: u32) -> NetlinkRequest {
    let mut header = vec![0; 4];
    for field in [index, flags, flags] {
        header.extend(field.to_ne_bytes());
    }
    NetlinkRequest::new(kind, &header)
}

/// Returns the index of the interface of this name; `None` if there is none.
#[must_use]
pub fn index(name: &str) -> Option<u32> {
    tc::index(name).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]
    use std::fs;

    use super::*;
    use crate::namespace::run_in_namespace;
    use crate::tun;

    #[test]
    fn device_settings_take_effect() {
        run_in_namespace(&[], || {
            let _device = tun::create_plain("tun7").unwrap();
            assert_eq!(tun::create_plain("tun7").unwrap_err().raw_os_error(), Some(libc::EBUSY));
            assert_eq!(tun::create_plain("lo").unwrap_err().raw_os_error(), Some(libc::EBUSY));
            let (links, index) = (Links::open().unwrap(), index("tun7").unwrap());
            links.set_mtu(index, 1400).unwrap();
            links.accept_any_source(index).unwrap();
            links.add_scope_nowhere_address(index, Ipv4Addr::new(192, 0, 0, 8)).unwrap();
            links.set_up(index).unwrap();
            let read = |path: &str| fs::read_to_string(path).unwrap().trim().to_owned();
            assert_eq!(read("/proc/thread-self/net/if_inet6").lines().filter(|line| line.contains("tun7")).count(), 0);
            for (key, value) in [("forwarding", "1"), ("rp_filter", "2"), ("accept_local", "1")] {
                assert_eq!(read(&format!("/proc/sys/net/ipv4/conf/tun7/{key}")), value, "{key}");
            }
            let shown = std::process::Command::new("ip").args(["address", "show", "tun7"]).output().unwrap();
            let shown = String::from_utf8(shown.stdout).unwrap();
            assert!(shown.contains("mtu 1400") && shown.contains(",UP,"), "{shown}");
            assert!(shown.contains("192.0.0.8/32 scope nowhere"), "{shown}");
            let limits = links.superpacket_limits(index).unwrap();
            assert!(limits.ipv6 >= 1400 && limits.supported >= limits.ipv6, "{limits:?}");
            links.delete(index).unwrap();
            assert_eq!(super::index("tun7"), None);
            assert_eq!(links.superpacket_limits(index).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        });
    }

    #[test]
    fn missing_interfaces_have_no_index() {
        assert!(index("lo").is_some() && index("no such one").is_none() && index("a\0b").is_none());
        // Without CAP_NET_ADMIN the error would be EPERM.
        run_in_namespace(&[], || {
            let error = Links::open().unwrap().set_up(i32::MAX.cast_unsigned()).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        });
    }
}
