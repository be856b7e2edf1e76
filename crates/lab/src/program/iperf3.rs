//! iperf3: cross traffic.

use std::path::Path;

use crate::program::About;
use crate::program::service::{Launch, Service};
use crate::topology::network::HostHandle;

/// What to install for it.
pub const ABOUT: About = About { name: "iperf3", package: "iperf3", executable: "iperf3", version: &["--version"] };

/// The first port its servers listen on.
const PORT: u16 = 5201;

/// A client sends for this long at most, in seconds: longer than any run.
const LONGEST: &str = "3600";

/// What one stream of cross traffic is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// This many TCP connections that always have something to send.
    Tcp(u32),
    /// UDP at this rate, in bits per second.
    Udp(u64),
}

/// Starts traffic number `number` of a run.
///
/// # Errors
/// It is not installed, or does not start.
pub fn start(
    [from, to]: [&HostHandle; 2],
    traffic: Traffic,
    number: u16,
    folder: &Path,
) -> anyhow::Result<[Service; 2]> {
    let executable = ABOUT.find()?;
    let port = PORT + number;
    let launch = |role: &str, arguments: Vec<String>, port| Launch {
        name: format!("iperf3-{role}-{number}"),
        executable: executable.clone(),
        arguments,
        port,
    };
    let listen = vec!["--server".into(), "--port".into(), port.to_string()];
    // A server takes a connection for a test and forgets it: trying whether it is ready does no harm.
    let server = Service::start(to, launch("server", listen, Some(port)), folder)?;
    let mut send = vec!["--client".to_owned(), to.address().to_string(), "--port".into(), port.to_string()];
    send.extend(["--time".into(), LONGEST.into()]);
    match traffic {
        Traffic::Tcp(flows) => send.extend(["--parallel".into(), flows.to_string()]),
        Traffic::Udp(rate) => send.extend(["--udp".into(), "--bitrate".into(), rate.to_string()]),
    }
    let client = Service::start(from, launch("client", send, None), folder)?;
    Ok([server, client])
}
