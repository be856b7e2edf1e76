//! The TUN devices of this process and the routes into them. Both end with the process: the kernel removes a device
//! when its last descriptor is closed, and routes with their device.

use std::fs::File;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use ekiden_proto::addr::Network;
use ekiden_proto::event::Event;
use ekiden_sys::link::{Links, index};
use ekiden_sys::route::{Route, Routes, interface_name};
use ekiden_sys::transparent::is_local;
use ekiden_sys::tun::create_plain;

use super::sockets::NEEDS_NET_ADMIN;
use super::upgrade::{Inheritance, Inherited};
use crate::config::{Config, Listener, TunConfig};
use crate::ingress::services::Services;
use crate::tunnel::Device;

/// The IPv4 dummy address (RFC 7600, 4.8). An interface without any address does not accept packets from other hosts.
const DUMMY_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 8);

/// A tunnel cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TunnelError {
    /// The device cannot be created.
    #[error("tunnel {device}: cannot create the device: {cause}{}", hint(cause))]
    Device {
        /// The name of the device.
        device: String,
        /// The cause, which the message already contains.
        cause: io::Error,
    },
    /// There is already a route to the network through another interface.
    #[error("tunnel {device}: {net} already has a route, by {by}: ip route del {net}, or remove {net} from net")]
    RouteExists {
        /// The name of the device.
        device: String,
        /// The network behind the tunnel.
        net: Network,
        /// The interface of the existing route.
        by: String,
    },
    /// The network is part of a network that this host is connected to.
    #[error(
        "tunnel {device}: {net} is a part of {own}, the network of {by}: renumber one site, because networks of sites \
         must not overlap"
    )]
    LocalNetwork {
        /// The name of the device.
        device: String,
        /// The network behind the tunnel.
        net: Network,
        /// The connected network of this host.
        own: Network,
        /// The interface of the connected network.
        by: String,
    },
    /// A route into the device cannot be added or removed.
    #[error("tunnel {device}: cannot add a route to {net}: {cause}{}", hint(cause))]
    Route {
        /// The name of the device.
        device: String,
        /// The network behind the tunnel.
        net: Network,
        /// The cause, which the message already contains.
        cause: io::Error,
    },
}

/// Checks that the source address of the routes is local. The kernel adds no route with another source address.
fn check_source(tun: &TunConfig) -> Result<(), TunnelError> {
    // If the query fails, the kernel decides.
    let Some(source) = tun.source.filter(|source| !is_local(*source).unwrap_or(true)) else { return Ok(()) };
    let Some(net) = tun.nets.iter().find(|net| net.address().is_ipv4() == source.is_ipv4()) else { return Ok(()) };
    let cause = io::ErrorKind::InvalidInput.into();
    Err(TunnelError::Route { device: tun.device.clone(), net: *net, cause })
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => NEEDS_NET_ADMIN,
        io::ErrorKind::NotFound => " (/dev/net/tun is missing: modprobe tun, or use a kernel with CONFIG_TUN)",
        io::ErrorKind::ResourceBusy => " (an interface has that name: ip link del it, or choose another name)",
        io::ErrorKind::AlreadyExists => " (an unreachable route may remain with another metric: ip route change)",
        io::ErrorKind::InvalidInput => " (is source an address of this host?)",
        io::ErrorKind::NetworkDown => " (ip link set it up)",
        _ => "",
    }
}

/// All TUN devices of this process.
#[derive(Debug, Default)]
pub struct Devices {
    devices: Vec<OwnedDevice>,
}

impl Devices {
    /// Adopts the device of another process. The device counts as shared until [`Devices::set_shared`] says otherwise.
    pub fn adopt(&mut self, name: String, mtu: u32, routed: Vec<(Network, Option<IpAddr>)>, descriptor: OwnedFd) {
        // A device that was deleted meanwhile is not adopted: `bind` creates it again.
        let Some(index) = index(&name) else { return };
        let file = Arc::new(File::from(descriptor));
        self.devices.push(OwnedDevice { name, index, file, mtu, routed, is_shared: true });
    }

    /// Returns duplicates of the descriptors, for a successor process.
    ///
    /// # Errors
    /// No file descriptors are left.
    pub fn inheritable(&self) -> io::Result<Inheritance> {
        let inherited = |owned_device: &OwnedDevice| {
            let routed = owned_device.routed.iter().map(|(net, source)| (net.to_string(), *source)).collect();
            let inherited = Inherited::Device { name: owned_device.name.clone(), mtu: owned_device.mtu, routed };
            Ok((inherited, owned_device.file.as_fd().try_clone_to_owned()?))
        };
        self.devices.iter().map(inherited).collect()
    }

    /// Sets whether another process also has the devices. Shared devices are not removed when this process drops them.
    pub fn set_shared(&mut self, shared: bool) {
        self.devices.iter_mut().for_each(|owned_device| owned_device.is_shared = shared);
    }

    /// Creates the devices of `config` that do not exist yet. If `config` is rejected, [`Devices::commit`] with the
    /// previous configuration removes them.
    ///
    /// # Errors
    /// The first tunnel that cannot be set up.
    pub fn bind(&mut self, config: &Config) -> Result<(), TunnelError> {
        // An administrator may have deleted a device.
        self.devices.retain(OwnedDevice::exists);
        config.tunnels().try_for_each(|(_, tun)| self.ensure(tun))
    }

    fn ensure(&mut self, tun: &TunConfig) -> Result<(), TunnelError> {
        let no_device = |cause| TunnelError::Device { device: tun.device.clone(), cause };
        let routes = Routes::open().and_then(|routes| routes.list()).map_err(no_device)?;
        tun.nets.iter().try_for_each(|net| self.check_routes(&tun.device, net, &routes))?;
        check_source(tun)?;
        // The kernel removes routes when a device is set down or their source address is removed; administrators may
        // remove routes as well.
        for OwnedDevice { index, routed, .. } in &mut self.devices {
            routed.retain(|(net, _)| routes.iter().any(|route| route.to == *net && route.interface == Some(*index)));
        }
        let position = self.devices.iter().position(|owned_device| owned_device.name == tun.device);
        if position.is_none() {
            self.devices.push(OwnedDevice::new(tun).map_err(no_device)?);
        }
        let position = position.unwrap_or(self.devices.len() - 1);
        for net in &tun.nets {
            // `commit` changes the existing routes.
            if !self.has_route(net) {
                self.devices[position].set_route(net, tun.source, false)?;
            }
        }
        Ok(())
    }

    /// Returns whether a device of this process has a route to `net`.
    fn has_route(&self, net: &Network) -> bool {
        self.devices.iter().flat_map(|owned_device| &owned_device.routed).any(|(routed, _)| routed == net)
    }

    /// Checks that `net` has no route through an interface of others, and is not part of a network that this host is
    /// connected to.
    fn check_routes(&self, device: &str, net: &Network, routes: &[Route]) -> Result<(), TunnelError> {
        let ours = |route: &&Route| self.devices.iter().any(|owned_device| route.interface == Some(owned_device.index));
        let by = |route: &Route| route.interface.and_then(|index| interface_name(index).ok()).unwrap_or_default();
        let (device, net) = (device.to_owned(), *net);
        for route in routes.iter().filter(|route| !ours(route)) {
            let (own, by) = (route.to, by(route));
            if route.is_connected && own.covers(&net) {
                return Err(TunnelError::LocalNetwork { device, net, own, by });
            }
            if own == net {
                return Err(TunnelError::RouteExists { device, net, by });
            }
        }
        Ok(())
    }

    /// Returns the devices of `config`, with their listeners.
    #[must_use]
    pub fn devices_for(&self, config: &Config) -> Vec<(Arc<Listener>, Arc<Device>)> {
        let lend = |(listener, tun): (&Arc<Listener>, &TunConfig)| {
            let owned_device = self.devices.iter().find(|owned_device| owned_device.name == tun.device)?;
            let device = Device::new(tun.device.clone(), tun.nets.clone(), Arc::clone(&owned_device.file));
            Some((Arc::clone(listener), Arc::new(device)))
        };
        config.tunnels().filter_map(lend).collect()
    }

    /// Removes devices that `config` does not contain, and updates the routes and MTUs of the others. A network that
    /// moves to another device, or gets another source address, has a route at every moment.
    pub fn commit(&mut self, config: &Config, services: &Services) {
        let tun_config = |owned_device: &OwnedDevice| {
            config.tunnels().map(|(_, tun)| tun).find(|tun| tun.device == owned_device.name)
        };
        let routed: Vec<Network> =
            self.devices.iter().flat_map(|owned_device| &owned_device.routed).map(|(net, _)| *net).collect();
        let mut results = Vec::new();
        for owned_device in &mut self.devices {
            results.push(tun_config(owned_device).map_or(Ok(()), |tun| owned_device.apply_config(tun, &routed)));
        }
        self.devices.retain(|owned_device| tun_config(owned_device).is_some());
        for owned_device in &mut self.devices {
            results.push(tun_config(owned_device).map_or(Ok(()), |tun| owned_device.remove_stale_routes(tun)));
        }
        for error in results.into_iter().filter_map(Result::err) {
            services.events.emit(&Event::Warning { message: error.to_string() });
        }
    }
}

/// A device that exists in the kernel.
#[derive(Debug)]
struct OwnedDevice {
    name: String,
    index: u32,
    file: Arc<File>,
    mtu: u32,
    /// The networks routed into the device, with the source address for connections of this host's own programs to
    /// them.
    routed: Vec<(Network, Option<IpAddr>)>,
    /// Whether another process also has the device.
    is_shared: bool,
}

impl OwnedDevice {
    fn new(tun: &TunConfig) -> io::Result<Self> {
        let file = Arc::new(create_plain(&tun.device)?);
        let index = index(&tun.device).ok_or(io::ErrorKind::NotFound)?;
        let owned_device =
            Self { name: tun.device.clone(), index, file, mtu: tun.mtu, routed: Vec::new(), is_shared: false };
        let links = Links::open()?;
        links.set_mtu(index, tun.mtu)?;
        links.accept_any_source(index)?;
        links.add_scope_nowhere_address(index, DUMMY_ADDRESS)?;
        links.set_up(index)?;
        Ok(owned_device)
    }

    fn exists(&self) -> bool {
        index(&self.name) == Some(self.index)
    }

    /// Adds a route. `replaces` means that a device of this process already has a route to the network.
    fn set_route(&mut self, net: &Network, source: Option<IpAddr>, replaces: bool) -> Result<(), TunnelError> {
        let set = if replaces { Routes::replace } else { Routes::add };
        let done = Routes::open().and_then(|routes| set(&routes, net, self.index, source));
        done.map_err(|cause| TunnelError::Route { device: self.name.clone(), net: *net, cause })?;
        self.routed.retain(|(routed, _)| routed != net);
        self.routed.push((*net, source));
        Ok(())
    }

    /// Removes routes to networks that `tun` does not contain. Another device may already have replaced a route.
    fn remove_stale_routes(&mut self, tun: &TunConfig) -> Result<(), TunnelError> {
        while let Some(stale) = self.routed.iter().position(|(net, _)| !tun.nets.contains(net)) {
            let (net, _) = self.routed[stale];
            let removed = Routes::open().and_then(|routes| routes.remove(&net, self.index));
            removed.map_err(|cause| TunnelError::Route { device: self.name.clone(), net, cause })?;
            self.routed.swap_remove(stale);
        }
        Ok(())
    }

    /// Adds missing routes, and replaces those with another source and those in `routed`, the networks that devices of
    /// this process have routes to. Sets the MTU if its configured value has changed: an MTU set by an administrator
    /// stays until then.
    fn apply_config(&mut self, tun: &TunConfig, routed: &[Network]) -> Result<(), TunnelError> {
        for net in &tun.nets {
            if !self.routed.contains(&(*net, tun.source)) {
                self.set_route(net, tun.source, routed.contains(net))?;
            }
        }
        if std::mem::replace(&mut self.mtu, tun.mtu) != tun.mtu {
            let set = Links::open().and_then(|links| links.set_mtu(self.index, tun.mtu));
            set.map_err(|cause| TunnelError::Device { device: self.name.clone(), cause })?;
        }
        Ok(())
    }
}

/// Removes the device at once, even if a stopped reader still holds a descriptor.
impl Drop for OwnedDevice {
    fn drop(&mut self) {
        if self.is_shared {
            return;
        }
        // Fails if the device no longer exists.
        let _ = Links::open().and_then(|links| links.delete(self.index));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "in a test a panic is the answer")]
    use std::os::fd::AsFd;

    use ekiden_sys::netns;
    use ekiden_testing::skipped;

    use super::*;

    /// Lanes and readers on other threads close their descriptors after the device was dropped.
    #[test]
    fn dropped_device_is_removed_despite_open_descriptors() {
        let namespace = match netns::new_network_namespace() {
            Ok(namespace) => namespace,
            Err(error) => return skipped(format_args!("no network namespace: {error}; this test needs root")),
        };
        let inside = || {
            netns::enter_network_namespace(namespace.as_fd()).unwrap();
            let nets = vec!["192.0.2.0/24".parse().unwrap()];
            let held = OwnedDevice::new(&TunConfig {
                device: "ekiden0".to_owned(),
                nets,
                mtu: 1400,
                source: None,
                answer_only: false,
            })
            .unwrap();
            let reading = held.file.try_clone().unwrap();
            assert!(held.exists());
            drop(held);
            assert_eq!(index("ekiden0"), None);
            drop(reading);
        };
        std::thread::scope(|scope| scope.spawn(inside).join()).unwrap();
    }
}
