//! Server of an experiment: program, protocol, and the URL of its file.

use std::net::IpAddr;
use std::path::Path;

use ekiden_proto::units::Rate;
use serde::{Deserialize, Serialize};

use crate::program::content::Content;
use crate::program::service::{LaunchSpec, Service};
use crate::program::{ProgramInfo, apache, iperf3, nginx, sink, vsftpd};
use crate::topology::network::HostHandle;

/// Protocol between client and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1, in the clear.
    Http,
    /// FTP, anonymous and passive.
    Ftp,
    /// A byte stream from the client to the server, for a fixed duration.
    Stream,
    /// Byte streams from several senders at once through one bottleneck.
    Share,
    /// A fixed number of bytes in blocks of one size.
    Blocks,
    /// Byte streams over many connections at once, for a fixed duration.
    Flows,
}

impl Protocol {
    /// Returns the name, as in URLs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Ftp => "ftp",
            Self::Stream => "stream",
            Self::Share => "share",
            Self::Blocks => "blocks",
            Self::Flows => "flows",
        }
    }

    /// Returns the server port of the protocol.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Ftp => 21,
            Self::Stream | Self::Share => iperf3::PORT,
            Self::Blocks | Self::Flows => sink::PORT,
        }
    }
}

/// Server program of an experiment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerProgram {
    /// Apache httpd, an HTTP server.
    Apache,
    /// nginx, an HTTP server.
    Nginx,
    /// vsftpd, an FTP server.
    Vsftpd,
    /// iperf3, which receives a stream.
    Iperf3,
    /// The laboratory's own receiver of blocks.
    Sink,
}

impl ServerProgram {
    /// Returns the default program of a protocol.
    #[must_use]
    pub const fn for_protocol(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http => Self::Nginx,
            Protocol::Ftp => Self::Vsftpd,
            Protocol::Stream | Protocol::Share => Self::Iperf3,
            Protocol::Blocks | Protocol::Flows => Self::Sink,
        }
    }

    /// Returns the protocol of the program.
    #[must_use]
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Apache | Self::Nginx => Protocol::Http,
            Self::Vsftpd => Protocol::Ftp,
            Self::Iperf3 => Protocol::Stream,
            Self::Sink => Protocol::Blocks,
        }
    }

    /// Returns the name in reports and error messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.program_info().map_or("sink", |about| about.name)
    }

    /// Returns the program and its package; `None` for the laboratory's own server.
    #[must_use]
    pub const fn program_info(self) -> Option<&'static ProgramInfo> {
        match self {
            Self::Apache => Some(&apache::PROGRAM),
            Self::Nginx => Some(&nginx::PROGRAM),
            Self::Vsftpd => Some(&vsftpd::PROGRAM),
            Self::Iperf3 => Some(&iperf3::PROGRAM),
            Self::Sink => None,
        }
    }

    /// Starts the server on `host`, with its own files in `folder`.
    ///
    /// # Errors
    /// The program is not installed, or does not start.
    pub fn start(self, host: &HostHandle, options: ServerOptions<'_>, folder: &Path) -> anyhow::Result<Service> {
        let Some(program) = self.program_info() else { return sink::start(host, options.stamped_block_size, folder) };
        let root = options.root;
        let write = |text: String| -> anyhow::Result<String> {
            let file = folder.join(format!("{}.conf", program.executable));
            std::fs::write(&file, text)?;
            Ok(file.display().to_string())
        };
        let arguments = match self {
            Self::Apache => {
                vec!["-D".into(), "FOREGROUND".into(), "-f".into(), write(apache::configuration(folder, root))?]
            }
            // -e: log of errors before the configuration is read
            Self::Nginx => {
                let text = nginx::configuration(host.address(), folder, root, options.rate);
                vec!["-e".into(), "stderr".into(), "-c".into(), write(text)?]
            }
            Self::Vsftpd => vec![write(vsftpd::configuration(root))?],
            Self::Iperf3 | Self::Sink => iperf3::server_arguments(iperf3::PORT),
        };
        let launch = LaunchSpec {
            name: program.name.into(),
            executable: program.find()?,
            arguments,
            port: Some(self.protocol().port()),
        };
        Service::start(host, launch, folder)
    }
}

/// Options of a server.
#[derive(Debug, Clone, Copy)]
pub struct ServerOptions<'a> {
    /// Folder of the served files.
    pub root: &'a Path,
    /// Size of blocks with timestamps; `None` without timestamps.
    pub stamped_block_size: Option<u64>,
    /// Rate of nginx per connection; `None` without a limit.
    pub rate: Option<Rate>,
}

/// Returns the URL of `content` on a server at `address`.
#[must_use]
pub fn url(protocol: Protocol, address: IpAddr, content: &Content) -> String {
    let host = match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    };
    format!("{}://{host}/{}", protocol.name(), content.name)
}
