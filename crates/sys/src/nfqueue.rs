//! Queues of packets that wait for a verdict (linux/netfilter/nfnetlink_queue.h): a rule sends packets to a numbered
//! queue, and the process that has bound this number decides on them.
//!
//! A packet waits in the kernel until its verdict. When a queue is closed, its packets are dropped; later packets pass
//! if the rule has the flag `bypass`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use libc::c_int;

use crate::netlink::{Message, Netlink, NetlinkRequest, attributes};
use crate::option::set;

/// Bytes of a packet that the kernel copies: enough for all headers of TCP over IPv4 (at most 120 bytes), and of IPv6
/// with extensions.
const COPY_RANGE: u32 = 256;

/// Size of the receive buffer for one netlink message, in bytes: the copied part of one packet, and a few attributes.
const DATAGRAM_SIZE: usize = 4096;

/// Space of a queued message in the socket's receive buffer, in bytes, as setsockopt(2) counts.
const BUFFER_PER_PACKET: u32 = 1024;

/// Length of `struct nfgenmsg`, in bytes.
const FAMILY_HEADER: usize = 4;

/// Netfilter's verdicts (linux/netfilter.h).
const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;

/// A queue of packets, bound by this process until the queue is closed.
#[derive(Debug)]
pub struct NfQueue {
    socket: Netlink,
    number: u16,
}

/// A packet that waits for its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The identifier of the packet for [`NfQueue::set_verdict`].
    pub id: u32,
    /// The firewall mark of the packet.
    pub mark: u32,
    /// Index of the incoming interface; 0 for a packet from this host.
    pub interface: u32,
    /// The first 256 bytes of the packet, from the IP header on.
    pub payload: &'a [u8],
}

/// The verdict on a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The packet continues after the rule that queued it, with this firewall mark.
    Accept {
        /// All 32 bits of the mark.
        mark: u32,
    },
    /// The packet is dropped without a reply to its sender.
    Drop,
}

impl NfQueue {
    /// Binds queue `number` of the calling thread's network namespace. At most `max_packets` packets wait in the queue;
    /// when it is full, packets pass without a verdict (`NFQA_CFG_F_FAIL_OPEN`).
    ///
    /// # Errors
    /// The kernel's error: `EBUSY` if another process has bound the number, else as in [`check_available`].
    pub fn bind(number: u16, max_packets: u32) -> io::Result<Self> {
        let queue = Self { socket: Netlink::open(libc::NETLINK_NETFILTER)?, number };
        set(queue.as_fd(), libc::SOL_NETLINK, libc::NETLINK_NO_ENOBUFS, &1)?;
        let buffer_size = c_int::try_from(max_packets.saturating_mul(BUFFER_PER_PACKET)).unwrap_or(c_int::MAX);
        if set(queue.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &buffer_size).is_err() {
            set(queue.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &buffer_size)?;
        }
        // Superpackets are not segmented, because only their headers are read.
        let flags = (libc::NFQA_CFG_F_FAIL_OPEN | libc::NFQA_CFG_F_GSO) as u32;
        let bind = queue
            .request(libc::NFQNL_MSG_CONFIG)
            .with_attribute(libc::NFQA_CFG_CMD, &command(libc::NFQNL_CFG_CMD_BIND))
            .with_attribute(libc::NFQA_CFG_QUEUE_MAXLEN, &max_packets.to_be_bytes())
            .with_attribute(libc::NFQA_CFG_MASK, &flags.to_be_bytes())
            .with_attribute(libc::NFQA_CFG_FLAGS, &flags.to_be_bytes());
        queue.socket.request(bind).map_err(|error| bind_error(&queue.socket, error))?;
        queue.start_copying()?;
        Ok(queue)
    }

    /// Returns queue `number` from the socket of another process that has bound it. The kernel identifies the owner of
    /// a queue by the socket, so this process receives the packets, and its verdicts are valid.
    #[must_use]
    pub const fn from_fd(socket: OwnedFd, number: u16) -> Self {
        Self { socket: Netlink::from_fd(socket), number }
    }

    /// Returns a second handle of the queue. Each packet is delivered to one reader only.
    ///
    /// # Errors
    /// No descriptor is free.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, number: self.number })
    }

    /// Returns whether `error`, from [`Self::bind`], means that the kernel does not support queues.
    #[must_use]
    pub fn is_unsupported(error: &io::Error) -> bool {
        matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPROTONOSUPPORT | libc::EOPNOTSUPP))
    }

    /// Starts the delivery of packets. The answer is not awaited, because a packet could precede it. If the kernel
    /// rejects the request, `receive` returns the error.
    fn start_copying(&self) -> io::Result<()> {
        let [a, b, c, d] = COPY_RANGE.to_be_bytes();
        let params = [a, b, c, d, libc::NFQNL_COPY_PACKET as u8];
        self.socket.send(self.request(libc::NFQNL_MSG_CONFIG).with_attribute(libc::NFQA_CFG_PARAMS, &params))
    }

    fn request(&self, kind: c_int) -> NetlinkRequest {
        request(kind, self.number)
    }

    /// Receives one datagram without waiting, and passes the packets in it, if any, to `each`.
    ///
    /// # Errors
    /// The kernel's error: `WouldBlock` if there is no message.
    pub fn receive(&self, mut each: impl FnMut(Packet<'_>)) -> io::Result<()> {
        let mut buffer = [0; DATAGRAM_SIZE];
        let mut failed = Ok(());
        self.socket.receive(&mut buffer, |message| match message {
            Message::Other(body) => Packet::parse(body).into_iter().for_each(&mut each),
            // The verdict was on a packet that the kernel has already dropped, together with its incoming interface.
            Message::Done(Err(error)) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Message::Done(result) => failed = result,
        })?;
        failed
    }

    /// Sends the verdict on a packet. A packet that no longer waits is no error.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_verdict(&self, id: u32, verdict: Verdict) -> io::Result<()> {
        let (code, mark) = match verdict {
            Verdict::Accept { mark } => (NF_ACCEPT, Some(mark)),
            Verdict::Drop => (NF_DROP, None),
        };
        let header = [code.to_be_bytes(), id.to_be_bytes()].concat();
        let request = self.request(libc::NFQNL_MSG_VERDICT).with_attribute(libc::NFQA_VERDICT_HDR, &header);
        self.socket.send(match mark {
            Some(mark) => request.with_attribute(libc::NFQA_MARK, &mark.to_be_bytes()),
            None => request,
        })
    }
}

impl AsFd for NfQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for NfQueue {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl<'a> Packet<'a> {
    fn parse(message: &'a [u8]) -> Option<Self> {
        let number = |value: &[u8]| value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
        let mut id = None;
        let (mut mark, mut interface, mut payload) = (0, 0, [].as_slice());
        for (kind, value) in attributes(message.get(FAMILY_HEADER..)?) {
            match kind {
                libc::NFQA_PACKET_HDR => id = number(value),
                libc::NFQA_MARK => mark = number(value)?,
                libc::NFQA_IFINDEX_INDEV => interface = number(value)?,
                libc::NFQA_PAYLOAD => payload = value,
                _ => {}
            }
        }
        Some(Self { id: id?, mark, interface, payload })
    }
}

/// Checks whether this process may bind a queue, with a request that has no effect.
///
/// # Errors
/// The kernel's error: `EPERM` without `CAP_NET_ADMIN`, `EPROTONOSUPPORT` without nfnetlink, `EINVAL` without
/// nfnetlink_queue.
pub fn check_available() -> io::Result<()> {
    check_permission(&Netlink::open(libc::NETLINK_NETFILTER)?)
}

/// Sends `NFQNL_CFG_CMD_PF_BIND`, which has had no effect since Linux 3.8 but requires the privilege.
fn check_permission(socket: &Netlink) -> io::Result<()> {
    socket.request(
        request(libc::NFQNL_MSG_CONFIG, 0).with_attribute(libc::NFQA_CFG_CMD, &command(libc::NFQNL_CFG_CMD_PF_BIND)),
    )
}

/// Distinguishes the causes of `EPERM`, which the kernel also returns for a number that another process has bound.
fn bind_error(socket: &Netlink, error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EPERM) if check_permission(socket).is_ok() => io::Error::from_raw_os_error(libc::EBUSY),
        _ => error,
    }
}

/// Returns a request about a queue, which begins with `struct nfgenmsg`.
fn request(kind: c_int, queue: u16) -> NetlinkRequest {
    let [high, low] = queue.to_be_bytes();
    let header: [u8; FAMILY_HEADER] = [libc::AF_UNSPEC as u8, libc::NFNETLINK_V0 as u8, high, low];
    NetlinkRequest::new((libc::NFNL_SUBSYS_QUEUE << 8 | kind) as u16, &header)
}

/// Encodes a `struct nfqnl_msg_config_cmd` for all protocol families.
const fn command(command: c_int) -> [u8; 4] {
    [command as u8, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    //! Real SYNs on the loopback interface of a network namespace, queued by iptables.

    use super::*;
    use crate::namespace::run_in_namespace;
    use crate::poll::Poll;
    use ekiden_proto::wire::syn::Syn;
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::thread::{Scope, ScopedJoinHandle};
    use std::time::Duration;

    const NUMBER: u16 = 7;

    const MARK_SYNS: &str = "iptables -t raw -A PREROUTING -p tcp --syn -j MARK --set-mark 5";
    const QUEUE_SYNS: &str = "iptables -t raw -A PREROUTING -p tcp --syn -j NFQUEUE --queue-num 7 --queue-bypass";
    const QUEUE_SYNS_OF_IPV6: &str = "ip6tables -t raw -A PREROUTING -p tcp --syn -j NFQUEUE --queue-num 7";
    /// After the queue, only packets with the mark of the verdict pass.
    const DROP_OTHER_MARKS: &str = "iptables -t mangle -A PREROUTING -p tcp --syn -m mark ! --mark 0xe1100001 -j DROP";

    /// Waits for the next packet. Returns its id, mark, interface and payload.
    fn next(queue: &NfQueue) -> (u32, u32, u32, Vec<u8>) {
        let mut got = None;
        while got.is_none() {
            let mut poll = Poll::new(vec![queue.as_fd()]);
            poll.wait(Some(Duration::from_secs(10))).unwrap();
            assert!(poll.any_ready(), "no packet arrived");
            queue
                .receive(|packet| got = Some((packet.id, packet.mark, packet.interface, packet.payload.to_vec())))
                .unwrap();
        }
        got.unwrap()
    }

    fn connect<'s>(scope: &'s Scope<'s, '_>, to: SocketAddr) -> ScopedJoinHandle<'s, io::Result<TcpStream>> {
        scope.spawn(move || TcpStream::connect_timeout(&to, Duration::from_secs(10)))
    }

    fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[test]
    fn packet_waits_for_its_verdict_and_gets_its_mark() {
        run_in_namespace(&[MARK_SYNS, QUEUE_SYNS, DROP_OTHER_MARKS], || {
            let queue = NfQueue::bind(NUMBER, 16).unwrap();
            let (_listener, address) = listener();
            std::thread::scope(|scope| {
                let client = connect(scope, address);
                let (id, mark, interface, payload) = next(&queue);
                assert_eq!((mark, interface), (5, 1));
                assert_eq!(Syn::parse(&payload).unwrap().server.0, address);
                assert!(!client.is_finished());
                queue.set_verdict(id, Verdict::Accept { mark: 0xe110_0001 }).unwrap();
                client.join().unwrap().unwrap();
            });
        });
    }

    #[test]
    fn dropped_syn_is_retransmitted() {
        run_in_namespace(&[QUEUE_SYNS], || {
            let queue = NfQueue::bind(NUMBER, 16).unwrap();
            let (_listener, address) = listener();
            std::thread::scope(|scope| {
                let client = connect(scope, address);
                let (first, _, _, payload) = next(&queue);
                queue.set_verdict(first, Verdict::Drop).unwrap();
                let (second, _, _, again) = next(&queue);
                assert!(!client.is_finished() && second != first);
                assert_eq!(Syn::parse(&payload), Syn::parse(&again));
                queue.set_verdict(second, Verdict::Accept { mark: 0 }).unwrap();
                client.join().unwrap().unwrap();
            });
        });
    }

    #[test]
    fn ipv6_packets_reach_the_same_queue() {
        run_in_namespace(&[QUEUE_SYNS_OF_IPV6], || {
            let queue = NfQueue::bind(NUMBER, 16).unwrap();
            let listener = TcpListener::bind("[::1]:0").unwrap();
            let address = listener.local_addr().unwrap();
            std::thread::scope(|scope| {
                let client = connect(scope, address);
                let (id, _, _, payload) = next(&queue);
                assert_eq!(Syn::parse(&payload).unwrap().server.0, address);
                queue.set_verdict(id, Verdict::Accept { mark: 0 }).unwrap();
                client.join().unwrap().unwrap();
            });
        });
    }

    #[test]
    fn a_full_queue_lets_packets_pass() {
        run_in_namespace(&[QUEUE_SYNS], || {
            let queue = NfQueue::bind(NUMBER, 1).unwrap();
            let (_listener, address) = listener();
            std::thread::scope(|scope| {
                let held = connect(scope, address);
                let (id, ..) = next(&queue);
                connect(scope, address).join().unwrap().unwrap();
                assert!(!held.is_finished());
                queue.set_verdict(id, Verdict::Accept { mark: 0 }).unwrap();
                held.join().unwrap().unwrap();
            });
        });
    }

    /// Clients retransmit the SYNs that were queued when the relay ended, and these pass because of `--queue-bypass`.
    #[test]
    fn closed_queue_is_bypassed_and_its_number_is_free() {
        run_in_namespace(&[QUEUE_SYNS], || {
            let queue = NfQueue::bind(NUMBER, 16).unwrap();
            let (_listener, address) = listener();
            std::thread::scope(|scope| {
                let client = connect(scope, address);
                next(&queue);
                drop(queue);
                client.join().unwrap().unwrap();
            });
            NfQueue::bind(NUMBER, 16).unwrap();
        });
    }

    #[test]
    fn queue_number_is_bound_once() {
        run_in_namespace(&[], || {
            check_available().unwrap();
            let _queue = NfQueue::bind(NUMBER, 16).unwrap();
            assert_eq!(NfQueue::bind(NUMBER, 16).unwrap_err().raw_os_error(), Some(libc::EBUSY));
            NfQueue::bind(NUMBER + 1, 16).unwrap();
        });
    }

    #[test]
    fn verdict_for_an_unknown_packet_is_no_error() {
        run_in_namespace(&[], || {
            let queue = NfQueue::bind(NUMBER, 16).unwrap();
            let empty = queue.receive(|packet| panic!("{packet:?}")).unwrap_err();
            assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
            queue.set_verdict(99, Verdict::Drop).unwrap();
            queue.receive(|packet| panic!("{packet:?}")).unwrap();
        });
    }

    #[test]
    fn binding_without_privilege_is_eperm() {
        run_in_namespace(&[], || {
            // SAFETY: setresuid(2) takes numbers; the bare system call changes only this thread, which ends with the
            // test.
            let done = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
            assert_eq!(done, 0);
            assert_eq!(check_available().unwrap_err().raw_os_error(), Some(libc::EPERM));
            assert_eq!(NfQueue::bind(NUMBER, 16).unwrap_err().raw_os_error(), Some(libc::EPERM));
        });
    }

    /// An upgrade passes the socket to another process; the waiting packet must stay in the queue.
    #[test]
    fn passed_queue_socket_keeps_waiting_packets() {
        run_in_namespace(&[QUEUE_SYNS], || {
            let queue = NfQueue::bind(NUMBER, 16).unwrap();
            let (_listener, address) = listener();
            std::thread::scope(|scope| {
                let client = connect(scope, address);
                let (id, ..) = next(&queue);
                let (here, there) = crate::fd_passing::seqpacket_pair().unwrap();
                crate::fd_passing::send(&here, b"queue", Some(&queue)).unwrap();
                drop(queue);
                let (_, fd) = crate::fd_passing::receive(&there, &mut [0; 8]).unwrap();
                let queue = NfQueue::from_fd(fd.unwrap(), NUMBER);
                queue.set_verdict(id, Verdict::Accept { mark: 0 }).unwrap();
                client.join().unwrap().unwrap();
                assert_eq!(NfQueue::bind(NUMBER, 16).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
            });
        });
    }
}
