//! The server of an experiment: which program, by which protocol, and under which URL its file is found.

use std::net::Ipv4Addr;
use std::path::Path;

use ekiden_proto::units::Rate;
use serde::{Deserialize, Serialize};

use crate::program::content::Content;
use crate::program::service::{LaunchSpec, Service};
use crate::program::{ProgramInfo, apache, iperf3, nginx, sink, vsftpd};
use crate::topology::network::HostHandle;

/// What client and server speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1, in the clear.
    Http,
    /// FTP, anonymous and passive.
    Ftp,
    /// Nothing but bytes, from the client to the server, for a time.
    Stream,
    /// The same from several senders at once, who share a bottleneck.
    Share,
    /// Nothing but bytes, a fixed amount of them, in blocks of one size.
    Blocks,
    /// Nothing but bytes, from many connections at once, for a time.
    Flows,
}

impl Protocol {
    /// Its name, as in URLs.
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

    /// The port servers listen on.
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

/// A server program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerProgram {
    /// Apache httpd.
    Apache,
    /// nginx.
    Nginx,
    /// vsftpd.
    Vsftpd,
    /// iperf3, which takes a stream.
    Iperf3,
    /// The laboratory's own, which takes blocks.
    Sink,
}

impl ServerProgram {
    /// The one to take for a protocol if a file does not say.
    #[must_use]
    pub const fn for_protocol(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http => Self::Nginx,
            Protocol::Ftp => Self::Vsftpd,
            Protocol::Stream | Protocol::Share => Self::Iperf3,
            Protocol::Blocks | Protocol::Flows => Self::Sink,
        }
    }

    /// What it speaks.
    #[must_use]
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Apache | Self::Nginx => Protocol::Http,
            Self::Vsftpd => Protocol::Ftp,
            Self::Iperf3 => Protocol::Stream,
            Self::Sink => Protocol::Blocks,
        }
    }

    /// What people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.program_info().map_or("sink", |about| about.name)
    }

    /// What to install for it; nothing for what comes with the laboratory.
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

    /// Starts it on `host`, its own files in `folder`.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(self, host: &HostHandle, serving: ServerOptions<'_>, folder: &Path) -> anyhow::Result<Service> {
        let Some(about) = self.program_info() else { return sink::start(host, serving.stamped_block_size, folder) };
        let root = serving.root;
        let write = |text: String| -> anyhow::Result<String> {
            let file = folder.join(format!("{}.conf", about.executable));
            std::fs::write(&file, text)?;
            Ok(file.display().to_string())
        };
        let arguments = match self {
            Self::Apache => {
                vec!["-D".into(), "FOREGROUND".into(), "-f".into(), write(apache::configuration(folder, root))?]
            }
            // -e: what goes wrong before it has read its configuration
            Self::Nginx => {
                let text = nginx::configuration(folder, root, serving.rate);
                vec!["-e".into(), "stderr".into(), "-c".into(), write(text)?]
            }
            Self::Vsftpd => vec![write(vsftpd::configuration(root))?],
            Self::Iperf3 | Self::Sink => iperf3::server_arguments(iperf3::PORT),
        };
        let launch = LaunchSpec {
            name: about.name.into(),
            executable: about.find()?,
            arguments,
            port: Some(self.protocol().port()),
        };
        Service::start(host, launch, folder)
    }
}

/// What a server is to serve.
#[derive(Debug, Clone, Copy)]
pub struct ServerOptions<'a> {
    /// The folder of its files.
    pub root: &'a Path,
    /// The size of blocks that carry the time at which they were written; none if there are no such blocks.
    pub stamped_block_size: Option<u64>,
    /// How fast nginx writes to each connection; none: as fast as it can.
    pub rate: Option<Rate>,
}

/// The URL of `content` on a server at `address`.
#[must_use]
pub fn url(protocol: Protocol, address: Ipv4Addr, content: &Content) -> String {
    format!("{}://{address}/{}", protocol.name(), content.name)
}
