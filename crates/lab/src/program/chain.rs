//! The relays of a treatment, one at each host of the chain, and how the client reaches the first of them.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::experiment::treatment::{Relay, Treatment};
use crate::program::command::{self, Way};
use crate::program::curl::Via;
use crate::program::ekiden::Profile;
use crate::program::service::{Launch, Service};
use crate::program::transparent::{self, Side};
use crate::program::{About, dante, ekiden, haproxy, mesh, section, squid, ssh, tunnel};
use crate::topology::Lab;
use crate::topology::network::{HostHandle, Network};
use crate::topology::plan::Plan;

/// What relays have to know of where they are.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    /// The hosts and wires.
    pub network: &'a Network,
    /// What they were made of.
    pub lab: &'a Lab,
    /// The client's address.
    pub client: Ipv4Addr,
    /// The server's address and port.
    pub server: SocketAddrV4,
    /// Where files of the run go.
    pub folder: &'a Path,
    /// Where ekiden is; none if no treatment uses it.
    pub ekiden: Option<&'a Path>,
}

/// One place in the chain.
struct Post<'a> {
    host: &'a HostHandle,
    place: usize,
    next: Option<Ipv4Addr>,
    port: u16,
    sections: Option<&'a section::Chain>,
    sides: Option<[Side; 2]>,
}

/// Starts the relays of `treatment`, from the server's end, and says how the client reaches the first of them.
///
/// # Errors
/// A relay does not start, or a host is not there.
pub fn start(treatment: &Treatment, around: Surroundings<'_>) -> anyhow::Result<(Vec<Service>, Via)> {
    let find = |name: &String| around.network.host(name).with_context(|| format!("there is no host {name}"));
    let hosts = treatment.chain.iter().map(find).collect::<anyhow::Result<Vec<_>>>()?;
    let Some(first) = hosts.first().filter(|_| treatment.program != Relay::Direct) else {
        return Ok((Vec::new(), Via::Direct));
    };
    if treatment.program.is_tunnel() {
        return Ok((tunnel::start(treatment.program, &treatment.chain, around)?, Via::Direct));
    }
    let entrance = SocketAddrV4::new(first.address(), port(treatment)?);
    if treatment.program == Relay::Ssh {
        let ends = tunnel::Ends::of(&treatment.chain, around)?;
        return Ok((ssh::start(&ends, around.server)?, Via::Forwarder(entrance)));
    }
    if !treatment.relays.is_empty() {
        return mesh::start(treatment, around, via(treatment, entrance));
    }
    let ekiden = || around.ekiden.context("no ekiden was looked for");
    let known: Vec<(&str, Ipv4Addr)> = hosts.iter().map(|host| (host.name(), host.address())).collect();
    let sections = treatment.sections.then(|| section::Chain::create(&known, ekiden()?, around.folder)).transpose()?;
    let mut services = Vec::new();
    for (place, host) in hosts.iter().enumerate().rev() {
        let port = if place > 0 && treatment.sections { section::PORT } else { entrance.port() };
        let next = hosts.get(place + 1).map(|next| next.address());
        let sides = treatment.transparent.then(|| sides(treatment, place, around)).transpose()?;
        if let Some(sides) = sides.as_ref().filter(|_| treatment.program == Relay::Haproxy) {
            transparent::apply(host, sides, port)?;
        }
        let post = Post { host, place, next, port, sections: sections.as_ref(), sides };
        services.push(Service::start(host, launch(treatment, &post, around)?, around.folder)?);
    }
    Ok((services, via(treatment, entrance)))
}

/// The sides of the relay at `place`, from 0: toward the client and toward the server. Between relays the profile is that of
/// sections between relays.
fn sides(treatment: &Treatment, place: usize, around: Surroundings<'_>) -> anyhow::Result<[Side; 2]> {
    let (chain, plan) = (&treatment.chain, Plan::of(around.lab));
    let side = |neighbour: Option<&String>, host: Ipv4Addr| {
        let to = around.network.hosts().find(|other| other.address() == host).context("a host of the workload")?;
        let to = neighbour.map_or(to.name(), String::as_str);
        let interface = plan.interface_toward(&chain[place], to).with_context(|| format!("no way to {to}"))?;
        let far = treatment.profile.as_ref().map(|profile| profile.name().to_owned());
        let profile = if neighbour.is_some() { far } else { treatment.near_profile.clone() };
        anyhow::Ok(Side { interface: interface.to_owned(), host, profile })
    };
    let before = place.checked_sub(1).and_then(|before| chain.get(before));
    Ok([side(before, around.client)?, side(chain.get(place + 1), *around.server.ip())?])
}

fn via(treatment: &Treatment, entrance: SocketAddrV4) -> Via {
    match way(treatment) {
        Way::Socks => Via::Socks(entrance),
        Way::Http if treatment.tunnel => Via::Tunnel(entrance),
        Way::Http => Via::Http(entrance),
        Way::Forward => Via::Forwarder(entrance),
        Way::Transparent => Via::Direct,
    }
}

/// How clients use the relays of a treatment.
#[must_use]
pub fn way(treatment: &Treatment) -> Way {
    if treatment.transparent {
        return Way::Transparent;
    }
    match treatment.program {
        Relay::Dante => Way::Socks,
        Relay::Squid => Way::Http,
        Relay::Haproxy | Relay::Ssh | Relay::Direct => Way::Forward,
        Relay::Openvpn | Relay::Vtun | Relay::Softether => Way::Transparent,
        Relay::Ekiden => match treatment.mode {
            ekiden::Mode::Socks => Way::Socks,
            ekiden::Mode::Http => Way::Http,
            ekiden::Mode::Tcp => Way::Forward,
        },
        Relay::Command => treatment.client,
    }
}

fn port(treatment: &Treatment) -> anyhow::Result<u16> {
    Ok(match treatment.program {
        Relay::Direct | Relay::Openvpn | Relay::Vtun | Relay::Softether => 0,
        Relay::Ssh => ssh::PORT,
        Relay::Dante => dante::PORT,
        Relay::Squid => squid::PORT,
        Relay::Haproxy => haproxy::PORT,
        Relay::Ekiden if treatment.transparent => ekiden::TRANSPARENT,
        Relay::Ekiden => treatment.mode.port(),
        Relay::Command => command::ready(&treatment.ready).map_err(anyhow::Error::msg)?,
    })
}

fn launch(treatment: &Treatment, post: &Post<'_>, around: Surroundings<'_>) -> anyhow::Result<Launch> {
    let (host, next) = (post.host, post.next);
    let write = |about: &str, text: String| -> anyhow::Result<String> {
        let file = around.folder.join(format!("{about}-{}.conf", host.name()));
        std::fs::write(&file, text)?;
        Ok(file.display().to_string())
    };
    let named = |about: &About, before: &[&str], text: String| -> anyhow::Result<(String, PathBuf, Vec<String>)> {
        let mut arguments: Vec<String> = before.iter().map(|&argument| argument.to_owned()).collect();
        arguments.push(write(about.name, text)?);
        Ok((about.name.to_owned(), about.find()?, arguments))
    };
    let (name, executable, arguments) = match treatment.program {
        Relay::Direct | Relay::Ssh | Relay::Openvpn | Relay::Vtun | Relay::Softether => {
            anyhow::bail!("{:?} is no program of one host", treatment.program)
        }
        Relay::Dante => named(&dante::ABOUT, &["-f"], dante::configuration(host.address(), next))?,
        Relay::Squid => {
            let name = squid::service_name(host.name());
            let text = squid::configuration(around.folder, host.name(), next);
            named(&squid::ABOUT, &["-N", "-d", "1", "-n", &name, "-f"], text)?
        }
        Relay::Haproxy => {
            let text = match post.sides {
                Some(_) => haproxy::transparent(),
                None => haproxy::configuration(next, *around.server.ip(), around.server.port()),
            };
            named(&haproxy::ABOUT, &["-db", "-f"], text)?
        }
        Relay::Ekiden => {
            let text = match (post.sections, &post.sides) {
                (Some(chain), _) => chain.configuration(post.place, treatment, around.server),
                (None, Some(sides)) => ekiden::transparent(sides),
                (None, None) => {
                    let profile = treatment.profile.as_ref().map(Profile::name);
                    ekiden::configuration(treatment.mode, next, post.place == 0, profile)
                }
            };
            let own = treatment.profile.as_ref().map_or_else(String::new, Profile::definition);
            let text = format!("{text}{own}{}", treatment.config);
            let binary = around.ekiden.context("no ekiden was looked for")?;
            let (binary, arguments) = ekiden::command_line(&treatment.wrap, binary, &write("ekiden", text)?);
            ("ekiden".to_owned(), binary, arguments)
        }
        Relay::Command => command_line(treatment, post, around)?,
    };
    Ok(Launch { name, executable, arguments, port: Some(post.port) })
}

fn command_line(
    treatment: &Treatment,
    post: &Post<'_>,
    around: Surroundings<'_>,
) -> anyhow::Result<(String, PathBuf, Vec<String>)> {
    let server = around.server.to_string();
    let next = post.next.map_or_else(|| server.clone(), |next| format!("{next}:{}", post.port));
    let fill = |argument: &String| command::fill(argument, post.host.address(), &next, &server);
    let (program, rest) = treatment.command.split_first().context("the command is empty")?;
    let name = Path::new(program).file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok((name, program.into(), rest.iter().map(fill).collect()))
}
