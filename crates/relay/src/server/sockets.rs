//! The listening sockets: one for each listener and worker, so that the kernel spreads connections over the workers
//! (`SO_REUSEPORT`, socket(7)). A predecessor may have had more or fewer workers; every inherited socket is assigned to
//! a worker, and some workers may have several.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use ekiden_proto::event::Event;
use ekiden_proto::profile::Profile;
use ekiden_sys::sockopt::SocketRole;
use ekiden_sys::transparent::{set_mark, set_transparent};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::upgrade::{Inheritance, Inherited};
use crate::config::{Config, Listener, is_overlapping};
use crate::ingress::services::Services;

/// Maximum length of the accept queue; the kernel uses the smaller of this and `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// Hint for errors of sockets with marks or foreign addresses: the missing capability, and ways to get it.
pub const NEEDS_NET_ADMIN: &str =
    " (needs CAP_NET_ADMIN: run as root, or AmbientCapabilities=CAP_NET_ADMIN in the systemd unit)";

/// A listener that cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("listener {name} cannot listen on {address}: {cause}{}", hint(cause))]
pub struct BindError {
    name: String,
    address: SocketAddr,
    /// The cause, which the message already contains.
    cause: io::Error,
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        // EPERM concerns marks and foreign addresses, EACCES concerns ports (socket(7), ip(7)).
        io::ErrorKind::PermissionDenied if error.raw_os_error() == Some(1) => NEEDS_NET_ADMIN,
        io::ErrorKind::AddrInUse => " (another program, or another ekiden, uses the address)",
        io::ErrorKind::PermissionDenied => " (ports below 1024 need root or CAP_NET_BIND_SERVICE)",
        io::ErrorKind::AddrNotAvailable => " (this host has no such address)",
        _ => "",
    }
}

/// The listening sockets of one worker, with their listeners.
pub type AssignedSockets = Vec<(Arc<Listener>, TcpListener)>;

/// All sockets that are bound at present. The workers get duplicates, so that a listener that stays configured over a
/// reload never stops listening.
#[derive(Debug, Default)]
pub struct Sockets {
    listeners: Vec<BoundListener>,
}

#[derive(Debug)]
struct BoundListener {
    /// The configured address, possibly with port 0.
    address: SocketAddr,
    /// Name of the listener: distinguishes listeners with the same address and port 0.
    name: String,
    for_workers: Vec<TcpListener>,
    /// Whether the "listening" event was emitted.
    announced: bool,
}

impl Sockets {
    /// Adopts a listening socket of another process.
    pub fn adopt(&mut self, name: String, address: SocketAddr, descriptor: OwnedFd) {
        let socket = TcpListener::from(descriptor);
        match self
            .listeners
            .iter_mut()
            .find(|bound_listener| bound_listener.address == address && bound_listener.name == name)
        {
            Some(bound_listener) => bound_listener.for_workers.push(socket),
            None => self.listeners.push(BoundListener { address, name, for_workers: vec![socket], announced: false }),
        }
    }

    /// Returns duplicates of all sockets, for a successor process.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub fn inheritance(&self) -> io::Result<Inheritance> {
        let inherited = |bound_listener: &BoundListener| Inherited::Socket {
            listener: bound_listener.name.clone(),
            asked: bound_listener.address,
        };
        let sockets = self
            .listeners
            .iter()
            .flat_map(|bound_listener| bound_listener.for_workers.iter().map(move |socket| (bound_listener, socket)));
        sockets.map(|(bound_listener, socket)| Ok((inherited(bound_listener), socket.try_clone()?.into()))).collect()
    }

    /// Binds the sockets of `config` that are not bound yet, for `workers` workers. On failure no listener is added.
    ///
    /// # Errors
    /// The first listener that cannot be bound.
    pub fn bind(&mut self, config: &Config, workers: usize) -> Result<(), BindError> {
        let before = self.listeners.len();
        for listener in &config.listeners {
            // For example, a listener moves from 127.0.0.1 to 0.0.0.0, and its old socket is still open.
            let is_ours = self.listeners.iter().any(|bound| is_overlapping(bound.address, listener.bind));
            let result = match self.listeners.iter_mut().find(|bound_listener| bound_listener.is_for(listener)) {
                Some(bound_listener) => bound_listener.fill(listener, config, workers),
                None => BoundListener::new(listener, config, workers, is_ours).map(|new| self.listeners.push(new)),
            };
            if let Err(cause) = result {
                self.listeners.truncate(before);
                return Err(BindError { name: listener.name.clone(), address: listener.bind, cause });
            }
        }
        Ok(())
    }

    /// Returns duplicates of the sockets for each of `workers` workers.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub fn duplicate(&self, config: &Config, workers: usize) -> io::Result<Vec<AssignedSockets>> {
        let mut assigned: Vec<AssignedSockets> = (0..workers).map(|_| Vec::new()).collect();
        for listener in &config.listeners {
            let bound_listener = self.listeners.iter().find(|bound_listener| bound_listener.is_for(listener));
            let sockets = bound_listener.into_iter().flat_map(|bound_listener| &bound_listener.for_workers);
            for (index, socket) in sockets.enumerate() {
                assigned[index % workers].push((Arc::clone(listener), socket.try_clone()?));
            }
        }
        Ok(assigned)
    }

    /// Makes `config` effective: closes sockets that it does not contain, and applies the kinds and profiles of its
    /// listeners to the others.
    /// Called after every bind has succeeded, so that a rejected configuration changes nothing.
    pub fn commit(&mut self, config: &Config, services: &Services) {
        self.retain(config);
        for listener in &config.listeners {
            for bound_listener in self.listeners.iter_mut().filter(|bound_listener| bound_listener.is_for(listener)) {
                bound_listener.announce(listener, services);
                bound_listener.apply_kind(listener, config, services);
                bound_listener.apply_profile(listener, config, services);
            }
        }
        report_dial_profiles(config, services);
    }

    /// Closes sockets that `config` does not contain.
    pub fn retain(&mut self, config: &Config) {
        self.listeners.retain(|bound_listener| config.listeners.iter().any(|listener| bound_listener.is_for(listener)));
    }

    /// Closes all listening sockets.
    pub fn close(&mut self) {
        self.listeners.clear();
    }
}

impl BoundListener {
    /// Opens the sockets of a new listener. `is_ours` states whether this relay has a socket on an overlapping address.
    fn new(listener: &Listener, config: &Config, workers: usize, is_ours: bool) -> io::Result<Self> {
        if listener.bind.port() != 0 && !is_ours {
            // Without SO_REUSEPORT, bind(2) detects another process on this address, such as a second ekiden. It would
            // also refuse an address that overlaps with one of this relay.
            new_socket(listener, false)?.bind(&listener.bind.into())?;
        }
        let (address, name) = (listener.bind, listener.name.clone());
        let mut bound_listener = Self { address, name, for_workers: Vec::new(), announced: false };
        bound_listener.fill(listener, config, workers)?;
        Ok(bound_listener)
    }

    /// Adds sockets until there is one for each of `workers` workers. A new socket takes no connections from the accept
    /// queues of others.
    fn fill(&mut self, listener: &Listener, config: &Config, workers: usize) -> io::Result<()> {
        let mut address = self.for_workers.first().map_or(Ok(listener.bind), TcpListener::local_addr)?;
        while self.for_workers.len() < workers {
            let socket = listen(listener, config, address)?;
            address = socket.local_addr()?;
            self.for_workers.push(socket);
        }
        Ok(())
    }

    fn is_for(&self, listener: &Listener) -> bool {
        self.address == listener.bind && (self.address.port() != 0 || self.name == listener.name)
    }

    /// Emits "listening" once, after the workers have the sockets: clients may connect as soon as they see that event.
    fn announce(&mut self, listener: &Listener, services: &Services) {
        let address = self.for_workers.first().and_then(|socket| socket.local_addr().ok());
        if let Some(address) = address.filter(|_| !std::mem::replace(&mut self.announced, true)) {
            let (listener, kind) = (listener.name.clone(), listener.kind.as_str());
            services.events.emit(&Event::Listening { listener, kind, address });
        }
    }

    /// Applies the listener's kind, which a reload or an upgrade may have changed: a socket stays open while a listener
    /// has its address.
    fn apply_kind(&self, listener: &Listener, config: &Config, services: &Services) {
        let mut sockets = self.for_workers.iter();
        if let Err(error) = sockets.try_for_each(|socket| apply_interception(socket.as_fd(), listener, config)) {
            let (name, kind) = (&listener.name, listener.kind.as_str());
            let message = format!("listener {name} does not accept connections as {kind}: {error}{}", hint(&error));
            services.events.emit(&Event::Warning { message });
        }
    }

    /// Applies the listener's profile, which a reload or an upgrade may have changed, and reports the outcome.
    fn apply_profile(&self, listener: &Listener, config: &Config, services: &Services) {
        let mut settings = Vec::new();
        for socket in &self.for_workers {
            if let Err(error) = config.congestion.restore_defaults(socket.as_fd(), &listener.profile) {
                let message = format!("listener {} may keep settings of an earlier profile: {error}", listener.name);
                services.events.emit(&Event::Warning { message });
            }
            settings = config.congestion.apply_and_report(socket.as_fd(), &listener.profile, SocketRole::Listener);
        }
        let (place, profile) = (listener.name.clone(), listener.profile.name.clone());
        services.events.emit(&Event::ProfileApplied { place, profile, settings });
    }
}

/// Applies the profiles of dialled sections to sockets that are never connected, to report the settings that the kernel
/// accepts.
fn report_dial_profiles(config: &Config, services: &Services) {
    let report = |place: String, profile: &Profile| {
        let Ok(socket) = Socket::new(Domain::IPV4, Type::STREAM, None) else { return };
        let settings = config.congestion.apply_and_report(socket.as_fd(), profile, SocketRole::Dialer);
        services.events.emit(&Event::ProfileApplied { place, profile: profile.name.clone(), settings });
    };
    for (number, route) in config.routes.iter().enumerate() {
        let is_reported = config.routes[..number].iter().any(|earlier| earlier.profile.name == route.profile.name);
        if !is_reported {
            report("targets".to_owned(), &route.profile);
        }
    }
    config.relays.iter().for_each(|hop| report(format!("hop {hop}"), &hop.profile));
}

fn listen(listener: &Listener, config: &Config, address: SocketAddr) -> io::Result<TcpListener> {
    let socket = new_socket(listener, true)?;
    apply_interception(socket.as_fd(), listener, config)?;
    socket.bind(&address.into())?;
    config.congestion.apply(socket.as_fd(), &listener.profile, SocketRole::Listener);
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Sets the options by which packet rules deliver intercepted connections to a listening socket: the mark of its
/// packets, and whether the socket is transparent.
fn apply_interception(socket: BorrowedFd<'_>, listener: &Listener, config: &Config) -> io::Result<()> {
    // The local addresses of connections accepted by TPROXY are those of the servers.
    let foreign = listener.kind.uses_tproxy();
    let mark = config.needed_marks().map_or(0, |marks| if foreign { marks.kept() } else { marks.own() });
    // A mark of the operator, which the profile sets, takes precedence. Setting a mark requires CAP_NET_ADMIN, also if
    // the mark stays 0.
    if !listener.profile.has_setting("fwmark") && SockRef::from(&socket).mark()? != mark {
        set_mark(socket, mark)?;
    }
    if foreign {
        return set_transparent(socket, true);
    }
    // Clearing the option fails only on sockets that do not have it.
    let _ = set_transparent(socket, false);
    Ok(())
}

fn new_socket(listener: &Listener, shared: bool) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking().cloexec();
    let domain = Domain::for_address(listener.bind);
    let make = |protocol| Socket::new(domain, kind, Some(protocol));
    let socket = if listener.profile.mptcp() {
        make(Protocol::MPTCP).or_else(|_| make(Protocol::TCP))?
    } else {
        make(Protocol::TCP)?
    };
    if domain == Domain::IPV6 {
        socket.set_only_v6(false)?;
    }
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(shared)?;
    Ok(socket)
}
