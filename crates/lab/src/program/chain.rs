//! Relays of a treatment, one on each host of the chain, and the route of the client to the first relay.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::experiment::spec::treatment::{RelayProgram, Treatment};
use crate::program::command::{self, ProxyKind};
use crate::program::curl::ClientRoute;
use crate::program::ekiden::ProfileChoice;
use crate::program::service::{LaunchSpec, Service};
use crate::program::transparent::{self, RelaySide};
use crate::program::{ProgramInfo, dante, ekiden, haproxy, mesh, section, squid, ssh, tunnel};
use crate::topology::Lab;
use crate::topology::network::{HostHandle, Network};
use crate::topology::plan::NetworkPlan;

/// Environment of the relays of a run.
#[derive(Clone, Copy)]
pub struct RelayContext<'a> {
    /// Hosts and links of the running lab.
    pub network: &'a Network,
    /// The lab from which the network was built.
    pub lab: &'a Lab,
    /// Address of the client.
    pub client: IpAddr,
    /// Address and port of the server.
    pub server: SocketAddr,
    /// Folder for files of the run.
    pub folder: &'a Path,
    /// Path of the ekiden binary; `None` if no treatment uses it.
    pub ekiden: Option<&'a Path>,
}

/// A relay's position in the chain.
struct ChainPosition<'a> {
    host: &'a HostHandle,
    index: usize,
    next: Option<IpAddr>,
    port: u16,
    sections: Option<&'a section::SectionChain>,
    sides: Option<[RelaySide; 2]>,
}

/// Starts the relays of `treatment`, the last one first, and returns the route of the client to the first relay.
///
/// # Errors
/// A relay does not start, or a host does not exist.
pub fn start_relays(treatment: &Treatment, context: RelayContext<'_>) -> anyhow::Result<(Vec<Service>, ClientRoute)> {
    let find = |name: &String| context.network.host(name).with_context(|| format!("there is no host {name}"));
    let hosts = treatment.chain.iter().map(find).collect::<anyhow::Result<Vec<_>>>()?;
    let Some(first) = hosts.first().filter(|_| treatment.program != RelayProgram::Direct) else {
        return Ok((Vec::new(), ClientRoute::Direct));
    };
    if treatment.program.is_tunnel() {
        return Ok((tunnel::start_tunnel(treatment.program, &treatment.chain, context)?, ClientRoute::Direct));
    }
    let proxy_address = SocketAddr::new(first.address(), client_port(treatment)?);
    if treatment.program == RelayProgram::Ssh {
        let ends = tunnel::TunnelEnds::for_chain(&treatment.chain, context)?;
        return Ok((ssh::start(&ends, context.server)?, ClientRoute::Forwarder(proxy_address)));
    }
    if !treatment.relays.is_empty() {
        return mesh::start_relays(treatment, context, client_route(treatment, proxy_address));
    }
    let ekiden = || context.ekiden.context("the path of the ekiden binary is missing");
    let known: Vec<(&str, IpAddr)> = hosts.iter().map(|host| (host.name(), host.address())).collect();
    let sections =
        treatment.sections.then(|| section::SectionChain::create(&known, ekiden()?, context.folder)).transpose()?;
    let mut services = Vec::new();
    for (index, host) in hosts.iter().enumerate().rev() {
        let port = if index > 0 && treatment.sections { section::PORT } else { proxy_address.port() };
        let next = hosts.get(index + 1).map(|next| next.address());
        let sides = treatment.transparent.then(|| relay_sides(treatment, index, context)).transpose()?;
        if let Some(sides) = sides.as_ref().filter(|_| treatment.program == RelayProgram::Haproxy) {
            transparent::apply_rules(host, sides, port)?;
        }
        let position = ChainPosition { host, index, next, port, sections: sections.as_ref(), sides };
        services.push(Service::start(host, launch_for(treatment, &position, context)?, context.folder)?);
    }
    Ok((services, client_route(treatment, proxy_address)))
}

/// Returns the sides of the relay at `index`, from 0: toward the client and toward the server. Sides toward other
/// relays use the profile of sections between relays.
fn relay_sides(treatment: &Treatment, index: usize, context: RelayContext<'_>) -> anyhow::Result<[RelaySide; 2]> {
    let (chain, plan) = (&treatment.chain, NetworkPlan::new(context.lab));
    let side = |neighbour: Option<&String>, host: IpAddr| {
        let to = context
            .network
            .hosts()
            .find(|other| other.address() == host)
            .context("no host has the address of the client or server")?;
        let to = neighbour.map_or(to.name(), String::as_str);
        let interface = plan.interface_toward(&chain[index], to).with_context(|| format!("no route to {to}"))?;
        let section_profile = treatment.profile.as_ref().map(|profile| profile.name().to_owned());
        let profile = if neighbour.is_some() { section_profile } else { treatment.near_profile.clone() };
        anyhow::Ok(RelaySide { interface: interface.to_owned(), host, profile })
    };
    let before = index.checked_sub(1).and_then(|before| chain.get(before));
    Ok([side(before, context.client)?, side(chain.get(index + 1), context.server.ip())?])
}

fn client_route(treatment: &Treatment, proxy_address: SocketAddr) -> ClientRoute {
    match proxy_kind(treatment) {
        ProxyKind::Socks => ClientRoute::Socks(proxy_address),
        ProxyKind::Http if treatment.tunnel => ClientRoute::Tunnel(proxy_address),
        ProxyKind::Http => ClientRoute::Http(proxy_address),
        ProxyKind::Forward => ClientRoute::Forwarder(proxy_address),
        ProxyKind::Transparent => ClientRoute::Direct,
    }
}

/// Returns the way in which clients use the relays of a treatment.
#[must_use]
pub fn proxy_kind(treatment: &Treatment) -> ProxyKind {
    if treatment.transparent {
        return ProxyKind::Transparent;
    }
    match treatment.program {
        RelayProgram::Dante => ProxyKind::Socks,
        RelayProgram::Squid => ProxyKind::Http,
        RelayProgram::Haproxy | RelayProgram::Ssh | RelayProgram::Direct => ProxyKind::Forward,
        RelayProgram::Openvpn | RelayProgram::Vtun | RelayProgram::Softether => ProxyKind::Transparent,
        RelayProgram::Ekiden => match treatment.mode {
            ekiden::ListenerKind::Socks => ProxyKind::Socks,
            ekiden::ListenerKind::Http => ProxyKind::Http,
            ekiden::ListenerKind::Tcp => ProxyKind::Forward,
        },
        RelayProgram::Command => treatment.client,
    }
}

fn client_port(treatment: &Treatment) -> anyhow::Result<u16> {
    Ok(match treatment.program {
        RelayProgram::Direct | RelayProgram::Openvpn | RelayProgram::Vtun | RelayProgram::Softether => 0,
        RelayProgram::Ssh => ssh::PORT,
        RelayProgram::Dante => dante::PORT,
        RelayProgram::Squid => squid::PORT,
        RelayProgram::Haproxy => haproxy::PORT,
        RelayProgram::Ekiden if treatment.transparent => ekiden::TRANSPARENT_PORT,
        RelayProgram::Ekiden => treatment.mode.port(),
        RelayProgram::Command => command::parse_ready_port(&treatment.ready).map_err(anyhow::Error::msg)?,
    })
}

fn launch_for(
    treatment: &Treatment,
    position: &ChainPosition<'_>,
    context: RelayContext<'_>,
) -> anyhow::Result<LaunchSpec> {
    let (host, next) = (position.host, position.next);
    let write = |stem: &str, text: String| -> anyhow::Result<String> {
        let file = context.folder.join(format!("{stem}-{}.conf", host.name()));
        std::fs::write(&file, text)?;
        Ok(file.display().to_string())
    };
    let named =
        |program: &ProgramInfo, before: &[&str], text: String| -> anyhow::Result<(String, PathBuf, Vec<String>)> {
            let mut arguments: Vec<String> = before.iter().map(|&argument| argument.to_owned()).collect();
            arguments.push(write(program.name, text)?);
            Ok((program.name.to_owned(), program.find()?, arguments))
        };
    let (name, executable, arguments) = match treatment.program {
        RelayProgram::Direct
        | RelayProgram::Ssh
        | RelayProgram::Openvpn
        | RelayProgram::Vtun
        | RelayProgram::Softether => {
            anyhow::bail!("{:?} does not run on a single host", treatment.program)
        }
        RelayProgram::Dante => named(&dante::PROGRAM, &["-f"], dante::configuration(host.address(), next))?,
        RelayProgram::Squid => {
            let name = squid::service_name(host.name());
            let text = squid::configuration(context.folder, host.name(), next, treatment.reuse);
            named(&squid::PROGRAM, &["-N", "-d", "1", "-n", &name, "-f"], text)?
        }
        RelayProgram::Haproxy => {
            let text = match position.sides {
                Some(_) => haproxy::transparent_configuration(),
                None if treatment.reuse => {
                    haproxy::reusing_configuration(next, context.server.ip(), context.server.port())
                }
                None => haproxy::configuration(next, context.server.ip(), context.server.port()),
            };
            named(&haproxy::PROGRAM, &["-db", "-f"], text)?
        }
        RelayProgram::Ekiden => {
            let text = match (position.sections, &position.sides) {
                (Some(chain), _) => chain.configuration(position.index, treatment, context.server),
                (None, Some(sides)) => ekiden::transparent_configuration(sides),
                (None, None) => {
                    let profile = treatment.profile.as_ref().map(ProfileChoice::name);
                    ekiden::configuration(treatment.mode, host.address(), next, position.index == 0, profile)
                }
            };
            let definition = treatment.profile.as_ref().map_or_else(String::new, ProfileChoice::definition);
            let text = format!("{text}{definition}{}", treatment.config);
            let binary = context.ekiden.context("the path of the ekiden binary is missing")?;
            let (binary, arguments) = ekiden::command_line(&treatment.wrap, binary, &write("ekiden", text)?);
            ("ekiden".to_owned(), binary, arguments)
        }
        RelayProgram::Command => command_line(treatment, position, context)?,
    };
    Ok(LaunchSpec { name, executable, arguments, port: Some(position.port) })
}

fn command_line(
    treatment: &Treatment,
    position: &ChainPosition<'_>,
    context: RelayContext<'_>,
) -> anyhow::Result<(String, PathBuf, Vec<String>)> {
    let server = context.server.to_string();
    let next = position.next.map_or_else(|| server.clone(), |next| SocketAddr::new(next, position.port).to_string());
    let expand = |argument: &String| command::expand_placeholders(argument, position.host.address(), &next, &server);
    let (program, rest) = treatment.command.split_first().context("the command is empty")?;
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name, program.into(), rest.iter().map(expand).collect()))
}
