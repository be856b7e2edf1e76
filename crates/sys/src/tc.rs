//! BPF programs at the clsact qdisc of an interface (tc(8), tc-bpf(8), rtnetlink(7)), in the calling thread's network
//! namespace.
//!
//! The attached programs are read from the kernel each time; no state is kept in files.

use std::ffi::{CStr, CString};
use std::io;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::ethtool::interface_request;
use crate::netlink::{Message, Netlink, NetlinkRequest, attribute, attributes};

/// linux/pkt_sched.h: clsact, a qdisc without a queue, and its hooks for filters.
const CLSACT: u32 = 0xffff_0000;
const CLSACT_PARENT: u32 = 0xffff_fff1;
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;
const ROOT: u32 = 0xffff_ffff;

/// linux/pkt_cls.h; not in libc.
const TCA_BPF_FD: i32 = 6;
const TCA_BPF_NAME: i32 = 7;
const TCA_BPF_FLAGS: i32 = 8;
const TCA_BPF_ID: i32 = 11;
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;

/// linux/if_ether.h, in network byte order.
const ETH_P_ALL: u16 = 3_u16.to_be();

/// Length of `struct tcmsg`, in bytes.
const TCMSG: usize = 20;

/// A filter, or the head of a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    /// Filters with a lower preference run first.
    pub preference: u16,
    /// The identifier among the filters of the same preference; 0 for the head of a list.
    pub handle: u32,
    /// The name and the id of the BPF program.
    pub program: Option<(String, u32)>,
}

/// Returns the index of an interface.
///
/// # Errors
/// The kernel's error: `ENODEV` if there is none of this name.
pub fn index(name: &str) -> io::Result<u32> {
    let name = CString::new(name)?;
    // SAFETY: `name` ends with a zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 { Err(io::Error::last_os_error()) } else { Ok(index) }
}

/// Returns whether an interface's frames begin with an Ethernet header (netdevice(7), `SIOCGIFHWADDR`).
///
/// # Errors
/// The kernel's error: `ENODEV` if there is none of this name.
pub fn has_ethernet(name: &str) -> io::Result<bool> {
    let socket = UdpSocket::bind(("127.0.0.1", 0)).or_else(|_| UdpSocket::bind(("::1", 0)))?;
    let mut request = interface_request(name)?;
    // SAFETY: `request` names an interface, and the kernel writes no more than it is long.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR as _, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has written this member of the union.
    let kind = unsafe { request.ifr_ifru.ifru_hwaddr.sa_family };
    Ok(matches!(kind, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK))
}

/// Returns the index and name of all interfaces.
///
/// # Errors
/// The kernel's error.
pub fn interfaces() -> io::Result<Vec<(u32, String)>> {
    // SAFETY: takes no argument; the returned list is freed below.
    let list = unsafe { libc::if_nameindex() };
    if list.is_null() {
        return Err(io::Error::last_os_error());
    }
    let mut found = Vec::new();
    for at in 0.. {
        // SAFETY: the list goes on until an entry with index 0, which is the last that is read.
        let entry = unsafe { &*list.add(at) };
        if entry.if_index == 0 {
            break;
        }
        // SAFETY: every other entry has a name that ends with a zero.
        let name = unsafe { CStr::from_ptr(entry.if_name) };
        found.push((entry.if_index, name.to_string_lossy().into_owned()));
    }
    // SAFETY: the list is from if_nameindex, and is not used any more.
    unsafe { libc::if_freenameindex(list) };
    Ok(found)
}

/// Creates a clsact. Returns false if there was one already.
///
/// # Errors
/// The kernel's error: `EPERM` without `CAP_NET_ADMIN`, `ENOENT` if the kernel lacks clsact (`CONFIG_NET_SCH_INGRESS`).
pub fn create_clsact(interface: u32) -> io::Result<bool> {
    let request = NetlinkRequest::new(libc::RTM_NEWQDISC, &tcmsg(interface, CLSACT, CLSACT_PARENT, 0))
        .with_attribute(i32::from(libc::TCA_KIND), b"clsact\0")
        .with_flags(libc::NLM_F_CREATE | libc::NLM_F_EXCL);
    match open_route_socket()?.request(request) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes the clsact and all filters attached to it.
///
/// # Errors
/// The kernel's error.
pub fn remove_clsact(interface: u32) -> io::Result<()> {
    open_route_socket()?.request(NetlinkRequest::new(libc::RTM_DELQDISC, &tcmsg(interface, CLSACT, CLSACT_PARENT, 0)))
}

/// Attaches a program at the egress; `replace` permits it to replace the program with this preference and handle.
///
/// # Errors
/// The kernel's error: `EEXIST` if there is one already and `replace` is false.
pub fn attach_egress(
    interface: u32,
    preference: u16,
    handle: u32,
    program: BorrowedFd<'_>,
    name: &str,
    replace: bool,
) -> io::Result<()> {
    let name = CString::new(name)?;
    let options = [
        attribute(TCA_BPF_FD, &program.as_raw_fd().to_ne_bytes()),
        attribute(TCA_BPF_NAME, name.as_bytes_with_nul()),
        attribute(TCA_BPF_FLAGS, &TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes()),
    ];
    let request = NetlinkRequest::new(libc::RTM_NEWTFILTER, &tcmsg(interface, handle, EGRESS, filter_info(preference)))
        .with_attribute(i32::from(libc::TCA_KIND), b"bpf\0")
        .with_attribute(i32::from(libc::TCA_OPTIONS), &options.concat())
        .with_flags(libc::NLM_F_CREATE | if replace { libc::NLM_F_REPLACE } else { libc::NLM_F_EXCL });
    open_route_socket()?.request(request)
}

/// Detaches a program from the egress.
///
/// # Errors
/// The kernel's error: `ENOENT` if there is none.
pub fn detach_egress(interface: u32, preference: u16, handle: u32) -> io::Result<()> {
    let request = NetlinkRequest::new(libc::RTM_DELTFILTER, &tcmsg(interface, handle, EGRESS, filter_info(preference)));
    open_route_socket()?.request(request.with_attribute(i32::from(libc::TCA_KIND), b"bpf\0"))
}

/// Returns the filters at the egress of the interface.
///
/// # Errors
/// The kernel's error.
pub fn egress_filters(interface: u32) -> io::Result<Vec<Filter>> {
    filters(interface, EGRESS)
}

/// Returns the filters at the ingress of the interface.
///
/// # Errors
/// The kernel's error.
pub fn ingress_filters(interface: u32) -> io::Result<Vec<Filter>> {
    filters(interface, INGRESS)
}

/// Returns the name of the root queueing discipline of an interface, in which packets wait.
///
/// # Errors
/// The kernel's error.
pub fn root_qdisc(interface: u32) -> io::Result<Option<String>> {
    let mut kind = None;
    dump(libc::RTM_GETQDISC, &tcmsg(interface, 0, 0, 0), |message, options| {
        if number(message, 4) == Some(interface) && number(message, 12) == Some(ROOT) {
            kind = attributes(options).find(|(of, _)| *of == i32::from(libc::TCA_KIND)).map(|(_, name)| c_string(name));
        }
    })?;
    Ok(kind)
}

fn filters(interface: u32, place: u32) -> io::Result<Vec<Filter>> {
    let mut filters = Vec::new();
    dump(libc::RTM_GETTFILTER, &tcmsg(interface, 0, place, 0), |message, options| {
        if let (Some(handle), Some(info)) = (number(message, 8), number(message, 16)) {
            filters.push(Filter { preference: (info >> 16) as u16, handle, program: filter_program(options) });
        }
    })?;
    Ok(filters)
}

fn filter_program(options: &[u8]) -> Option<(String, u32)> {
    let (_, options) = attributes(options).find(|(kind, _)| *kind == i32::from(libc::TCA_OPTIONS))?;
    let value_of = |kind| attributes(options).find(|(found, _)| *found == kind).map(|(_, value)| value);
    Some((c_string(value_of(TCA_BPF_NAME)?), number(value_of(TCA_BPF_ID)?, 0)?))
}

/// Requests a list, and passes the `struct tcmsg` and the attributes of each entry to `each`.
fn dump(kind: u16, message: &[u8], mut each: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
    let netlink = open_route_socket()?;
    netlink.send(NetlinkRequest::new(kind, message).with_flags(libc::NLM_F_DUMP))?;
    let mut buffer = vec![0; 1 << 16];
    let mut result = None;
    while result.is_none() {
        netlink.receive(&mut buffer, |message| match message {
            Message::Done(done) => result = Some(done),
            // The end of a list (`NLMSG_DONE`) has no such header.
            Message::Other(body) if body.len() < TCMSG => result = Some(Ok(())),
            Message::Other(body) => each(&body[..TCMSG], &body[TCMSG..]),
        })?;
    }
    result.unwrap_or(Ok(()))
}

fn open_route_socket() -> io::Result<Netlink> {
    Netlink::open(libc::NETLINK_ROUTE)
}

/// Encodes a `struct tcmsg` (linux/rtnetlink.h).
fn tcmsg(interface: u32, handle: u32, parent: u32, info: u32) -> Vec<u8> {
    [0, interface, handle, parent, info].iter().flat_map(|number| number.to_ne_bytes()).collect()
}

fn filter_info(preference: u16) -> u32 {
    u32::from(preference) << 16 | u32::from(ETH_P_ALL)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn c_string(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]
    use super::*;
    use crate::namespace::run_in_namespace;

    #[test]
    fn clsact_is_created_once_and_its_filters_are_listed() {
        run_in_namespace(
            &[
                "ip link add one type veth peer name other",
                "tc qdisc add dev one root tbf rate 1mbit burst 10kb limit 1mb",
            ],
            || {
                let one = index("one").unwrap();
                assert!(interfaces().unwrap().contains(&(one, "one".to_owned())));
                assert!(has_ethernet("one").unwrap());
                assert_eq!(root_qdisc(one).unwrap().as_deref(), Some("tbf"));
                assert!(egress_filters(one).unwrap().is_empty());
                assert!(create_clsact(one).unwrap());
                assert!(!create_clsact(one).unwrap(), "clsact exists");
                let tc = "tc filter add dev one ingress prio 7 handle 0x800::5 protocol ip u32 match u32 0 0";
                assert!(std::process::Command::new("sh").args(["-c", tc]).status().unwrap().success());
                assert!(egress_filters(one).unwrap().is_empty());
                let filters = ingress_filters(one).unwrap();
                assert!(filters.iter().all(|filter| filter.preference == 7 && filter.program.is_none()), "{filters:?}");
                assert!(filters.iter().any(|filter| filter.handle == 0x8000_0005), "{filters:?}");
                assert_eq!(detach_egress(one, 1, 1).unwrap_err().raw_os_error(), Some(libc::ENOENT));
                remove_clsact(one).unwrap();
                assert!(ingress_filters(one).unwrap().is_empty());
            },
        );
    }

    #[test]
    fn missing_interfaces_are_enodev() {
        assert_eq!(index("nothing0").unwrap_err().raw_os_error(), Some(libc::ENODEV));
        assert_eq!(create_clsact(u32::MAX >> 1).unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
