//! Packets that wait for a verdict (linux/netfilter/nfnetlink_queue.h): a rule sends them to a numbered queue, whoever
//! has bound the number says what becomes of them.
//!
//! A packet waits in the kernel until its verdict. A queue that is closed drops what waits in it; what comes after goes
//! the way of the rule, which is to pass if it says `bypass`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use libc::c_int;

use crate::netlink::{Message, Netlink, NetlinkRequest, attributes};
use crate::sockopt::set;

/// How much of a packet is copied, in bytes: all headers of TCP over IPv4 (120 at most), and of IPv6 with extensions.
const COPY_RANGE: u32 = 256;

/// A datagram of the kernel: what is copied of one packet, and a few attributes about it.
const DATAGRAM_SIZE: usize = 4096;

/// What a waiting datagram takes of the receive buffer, in bytes, as setsockopt(2) counts.
const BUFFER_PER_PACKET: u32 = 1024;

/// Length of `struct nfgenmsg`, in bytes.
const FAMILY_HEADER: usize = 4;

/// Netfilter's verdicts (linux/netfilter.h).
const NF_DROP: u32 = 0;
const NF_ACCEPT: u32 = 1;

/// A queue of packets, bound by this process as long as it is open.
#[derive(Debug)]
pub struct NfQueue {
    socket: Netlink,
    number: u16,
}

/// A packet that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// What the verdict has to name.
    pub id: u32,
    /// The firewall mark it came with.
    pub mark: u32,
    /// Index of the interface it came in by; 0 if it comes from this host.
    pub interface: u32,
    /// From the IP header on, the first 256 bytes.
    pub payload: &'a [u8],
}

/// What becomes of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on behind the rule that queued it, with this firewall mark.
    Accept {
        /// All 32 bits of it.
        mark: u32,
    },
    /// It is gone; its sender is not told.
    Drop,
}

impl NfQueue {
    /// Binds queue `number` of the calling thread's network namespace. At most `most` packets wait in it; when it is
    /// full, packets pass as if there were no queue (`NFQA_CFG_F_FAIL_OPEN`).
    ///
    /// # Errors
    /// The kernel's: `EBUSY` when somebody else has the number, else as in [`check_available`].
    pub fn bind(number: u16, most: u32) -> io::Result<Self> {
        let queue = Self { socket: Netlink::open(libc::NETLINK_NETFILTER)?, number };
        set(queue.as_fd(), libc::SOL_NETLINK, libc::NETLINK_NO_ENOBUFS, &1)?;
        let room = c_int::try_from(most.saturating_mul(BUFFER_PER_PACKET)).unwrap_or(c_int::MAX);
        if set(queue.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &room).is_err() {
            set(queue.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &room)?;
        }
        // Superpackets come whole: nobody here looks behind the headers.
        let flags = (libc::NFQA_CFG_F_FAIL_OPEN | libc::NFQA_CFG_F_GSO) as u32;
        let bind = queue
            .request(libc::NFQNL_MSG_CONFIG)
            .with_attribute(libc::NFQA_CFG_CMD, &command(libc::NFQNL_CFG_CMD_BIND))
            .with_attribute(libc::NFQA_CFG_QUEUE_MAXLEN, &most.to_be_bytes())
            .with_attribute(libc::NFQA_CFG_MASK, &flags.to_be_bytes())
            .with_attribute(libc::NFQA_CFG_FLAGS, &flags.to_be_bytes());
        queue.socket.request(bind).map_err(|error| bind_error(&queue.socket, error))?;
        queue.start_copying()?;
        Ok(queue)
    }

    /// Queue `number`, as another process has bound it and given its socket away. The kernel knows the owner of a queue by
    /// the socket, so that packets go on coming, and verdicts are taken.
    #[must_use]
    pub const fn from_fd(socket: OwnedFd, number: u16) -> Self {
        Self { socket: Netlink::from_fd(socket), number }
    }

    /// The same queue once more: a packet goes to whichever reads first.
    ///
    /// # Errors
    /// The kernel's, when it is out of descriptors.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { socket: self.socket.try_clone()?, number: self.number })
    }

    /// Whether `error`, from [`Self::bind`], says that the kernel has no queues at all.
    #[must_use]
    pub fn is_unsupported(error: &io::Error) -> bool {
        matches!(error.raw_os_error(), Some(libc::EINVAL | libc::EPROTONOSUPPORT | libc::EOPNOTSUPP))
    }

    /// From now on packets come. That is why nothing is awaited here: a packet could be before the answer. Should the
    /// kernel refuse, `receive` tells.
    fn start_copying(&self) -> io::Result<()> {
        let [a, b, c, d] = COPY_RANGE.to_be_bytes();
        let params = [a, b, c, d, libc::NFQNL_COPY_PACKET as u8];
        self.socket.send(self.request(libc::NFQNL_MSG_CONFIG).with_attribute(libc::NFQA_CFG_PARAMS, &params))
    }

    fn request(&self, kind: c_int) -> NetlinkRequest {
        request(kind, self.number)
    }

    /// Receives once, without waiting, and hands out the packets that came, perhaps none.
    ///
    /// # Errors
    /// The kernel's: `WouldBlock` when nothing is there.
    pub fn receive(&self, mut each: impl FnMut(Packet<'_>)) -> io::Result<()> {
        let mut buffer = [0; DATAGRAM_SIZE];
        let mut failed = Ok(());
        self.socket.receive(&mut buffer, |message| match message {
            Message::Other(body) => Packet::parse(body).into_iter().for_each(&mut each),
            // A verdict on a packet that the kernel has dropped before, with the interface it came from.
            Message::Done(Err(error)) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Message::Done(result) => failed = result,
        })?;
        failed
    }

    /// Says what becomes of a packet. One that waits no longer is none of our business, and no error.
    ///
    /// # Errors
    /// The kernel's.
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

/// Whether this process could bind a queue: asks the kernel for something that has no effect.
///
/// # Errors
/// The kernel's: `EPERM` without `CAP_NET_ADMIN`, `EPROTONOSUPPORT` without nfnetlink, `EINVAL` without
/// nfnetlink_queue.
pub fn check_available() -> io::Result<()> {
    check_permission(&Netlink::open(libc::NETLINK_NETFILTER)?)
}

/// `NFQNL_CFG_CMD_PF_BIND` does nothing since Linux 3.8, but only for those who may.
fn check_permission(socket: &Netlink) -> io::Result<()> {
    socket.request(
        request(libc::NFQNL_MSG_CONFIG, 0).with_attribute(libc::NFQA_CFG_CMD, &command(libc::NFQNL_CFG_CMD_PF_BIND)),
    )
}

/// The kernel says `EPERM` also of a number that another process has bound.
fn bind_error(socket: &Netlink, error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EPERM) if check_permission(socket).is_ok() => io::Error::from_raw_os_error(libc::EBUSY),
        _ => error,
    }
}

/// A request about a queue, beginning with `struct nfgenmsg`.
fn request(kind: c_int, queue: u16) -> NetlinkRequest {
    let [high, low] = queue.to_be_bytes();
    let header: [u8; FAMILY_HEADER] = [libc::AF_UNSPEC as u8, libc::NFNETLINK_V0 as u8, high, low];
    NetlinkRequest::new((libc::NFNL_SUBSYS_QUEUE << 8 | kind) as u16, &header)
}

/// `struct nfqnl_msg_config_cmd`, about all protocol families.
const fn command(command: c_int) -> [u8; 4] {
    [command as u8, 0, 0, 0]
}

#[cfg(test)]
mod tests;
