//! Limits and identity of this process: descriptors, user and capabilities (getrlimit(2), geteuid(2), proc(5)).

use std::fs::{self, File};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::option::get;

/// Raises the soft limit of open files to the hard limit and returns it.
///
/// # Errors
/// The error of getrlimit(2) or setrlimit(2).
pub fn raise_open_file_limit() -> io::Result<u64> {
    let limit = open_file_limit()?;
    set_open_file_limit(limit.rlim_max)?;
    Ok(limit.rlim_max)
}

/// Sets the soft limit of open files. Open descriptors above the limit stay open.
///
/// # Errors
/// The error of getrlimit(2) or setrlimit(2): `EINVAL` above the hard limit.
pub fn set_open_file_limit(soft: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: soft, ..open_file_limit()? };
    // SAFETY: `limit` is a valid, initialised rlimit.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Sets the soft and the hard limit of open files.
///
/// # Errors
/// The error of setrlimit(2): `EPERM` above the hard limit without `CAP_SYS_RESOURCE`.
pub fn set_open_file_limits(most: u64) -> io::Result<()> {
    let limit = libc::rlimit { rlim_cur: most, rlim_max: most };
    // SAFETY: `limit` is a valid, initialised rlimit.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Calls `run` with the soft limit of open files raised to the hard limit, then restores the soft limit. During the
/// call the higher limit applies to all threads, and descriptors that they open above the soft limit stay open.
///
/// # Errors
/// The error of getrlimit(2) or setrlimit(2).
pub fn with_max_open_file_limit<T>(run: impl FnOnce() -> T) -> io::Result<T> {
    let limit = open_file_limit()?;
    set_open_file_limit(limit.rlim_max)?;
    let result = run();
    set_open_file_limit(limit.rlim_cur)?;
    Ok(result)
}

fn open_file_limit() -> io::Result<libc::rlimit> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit that the kernel fills.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(limit)
}

/// Returns the effective user id.
#[must_use]
pub fn effective_uid() -> u32 {
    // SAFETY: geteuid(2) takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// Returns the process that has called listen(2) at the other end of a connected unix socket (unix(7), `SO_PEERCRED`);
/// `None` for a process of another PID namespace.
#[must_use]
pub fn listening_process(socket: BorrowedFd<'_>) -> Option<u32> {
    // `struct ucred`: the process, the user and the group.
    let [process, ..] = get::<[u32; 3]>(socket, libc::SOL_SOCKET, libc::SO_PEERCRED).ok()?;
    (process > 0).then_some(process)
}

/// Returns the size of a memory page in bytes, the unit of the kernel's limits for pipes and sockets (sysconf(3)).
#[must_use]
pub fn page_size() -> u64 {
    // SAFETY: sysconf(3) takes a number and touches no memory of ours.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    // sysconf(3) fails only for an unknown name.
    u64::try_from(size).unwrap_or(4096)
}

/// Returns freed heap memory to the kernel (malloc_trim(3)). Otherwise the process would keep the memory after a peak
/// of sessions.
pub fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) touches only memory that the allocator itself holds free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns the start time of a process in clock ticks after boot (proc_pid_stat(5)). Pid and start time together
/// identify a process uniquely. `None` if there is no such process, or if it is a zombie.
#[must_use]
pub fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program, in parentheses, may contain spaces.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    fields.next().filter(|state| !["Z", "X"].contains(state))?;
    fields.nth(18)?.parse().ok()
}

/// Returns whether a process has a TCP socket that listens at `address`, or at its port on all addresses
/// (proc_net_tcp(5), proc_pid_fd(5)).
///
/// # Errors
/// The kernel's error: `EACCES` if this process may not read the descriptors of that process.
pub fn has_listener(pid: u32, address: SocketAddr) -> io::Result<bool> {
    let sockets = listening_sockets(address)?;
    for descriptor in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // A descriptor that was closed in the meantime no longer has a link.
        let Ok(link) = fs::read_link(descriptor?.path()) else { continue };
        if sockets.iter().any(|socket| link.as_os_str() == socket.as_str()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the link texts, as in `/proc/PID/fd`, of the sockets that listen at `address`.
fn listening_sockets(address: SocketAddr) -> io::Result<Vec<String>> {
    const LISTEN: &str = "0A";
    let ip = address.ip().to_canonical();
    let mapped = match ip {
        IpAddr::V4(v4) => IpAddr::V6(v4.to_ipv6_mapped()),
        IpAddr::V6(_) => ip,
    };
    let addresses = [ip, mapped, Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let local_addresses = addresses.map(|ip| kernel_address(ip, address.port()));
    let mut sockets = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        // Without IPv6 the table of IPv6 sockets is missing.
        let text = fs::read_to_string(table).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(String::new()),
            _ => Err(error),
        })?;
        for line in text.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let [_, local_address, _, state, _, _, _, _, _, inode, ..] = fields[..] else { continue };
            if state == LISTEN && local_addresses.iter().any(|candidate| candidate == local_address) {
                sockets.push(format!("socket:[{inode}]"));
            }
        }
    }
    Ok(sockets)
}

/// Formats an address as in these tables: words of 32 bits in the byte order of the host.
fn kernel_address(ip: IpAddr, port: u16) -> String {
    let octets = match ip {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let words = octets.as_chunks::<4>().0.iter();
    let words: String = words.map(|word| format!("{:08X}", u32::from_ne_bytes(*word))).collect();
    format!("{words}:{port:04X}")
}

/// Replaces standard input by /dev/null, and closes the previous one.
///
/// # Errors
/// The error of open(2) or dup2(2).
pub fn replace_stdin_with_null() -> io::Result<()> {
    let null = File::open("/dev/null")?;
    // SAFETY: dup2(2) takes two numbers. No value here owns standard input, so no owned descriptor changes.
    if unsafe { libc::dup2(null.as_raw_fd(), libc::STDIN_FILENO) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use socket2::{Domain, Socket, Type};

    use super::*;

    /// Returns a bound socket whose address and port other sockets of this function may use, too.
    fn shared_socket(address: SocketAddr) -> Socket {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        socket.set_reuse_port(true).unwrap();
        socket.bind(&address.into()).unwrap();
        socket
    }

    #[test]
    fn process_has_a_start_time_until_its_end() {
        let own = start_time(std::process::id()).unwrap();
        assert!(own > 0);
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let then = start_time(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(then.unwrap() >= own);
        assert_eq!(start_time(child.id()), None);
    }

    #[test]
    fn listener_is_found_by_process_and_address() {
        let own = std::process::id();
        let mut other = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        for (bind, asked) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.1"),
            ("[::1]:0", "::1"),
            ("[::]:0", "127.0.0.1"),
            ("[::ffff:127.0.0.1]:0", "127.0.0.1"),
        ] {
            // This socket does not listen. It keeps the port of the closed listener from others.
            let holder = shared_socket(bind.parse().unwrap());
            let address = holder.local_addr().unwrap().as_socket().unwrap();
            let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), address.port());
            assert!(!has_listener(own, at(asked)).unwrap(), "{bind}, bound");
            let listener = shared_socket(address);
            listener.listen(1).unwrap();
            assert!(has_listener(own, at(asked)).unwrap(), "{bind}");
            assert!(!has_listener(other.id(), at(asked)).unwrap(), "{bind}");
            assert_eq!(
                has_listener(own, at("192.0.2.1")).unwrap(),
                bind.starts_with("0.0.0.0") || bind.starts_with("[::]:")
            );
            drop(listener);
            assert!(!has_listener(own, at(asked)).unwrap(), "{bind}, closed");
        }
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
