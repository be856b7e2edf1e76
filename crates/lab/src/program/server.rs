//! The server of an experiment: which program, by which protocol, and under which URL its file is found.

use std::net::Ipv4Addr;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::program::content::Content;
use crate::program::service::{Launch, Service};
use crate::program::{About, apache, nginx, vsftpd};
use crate::topology::network::HostHandle;

/// What client and server speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// HTTP/1.1, in the clear.
    Http,
    /// FTP, anonymous and passive.
    Ftp,
}

impl Protocol {
    /// Its name, as in URLs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Ftp => "ftp",
        }
    }

    /// The port servers listen on.
    #[must_use]
    pub const fn port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Ftp => 21,
        }
    }
}

/// A server program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Server {
    /// Apache httpd.
    Apache,
    /// nginx.
    Nginx,
    /// vsftpd.
    Vsftpd,
}

impl Server {
    /// The one to take for a protocol if a file does not say.
    #[must_use]
    pub const fn of(protocol: Protocol) -> Self {
        match protocol {
            Protocol::Http => Self::Nginx,
            Protocol::Ftp => Self::Vsftpd,
        }
    }

    /// What it speaks.
    #[must_use]
    pub const fn protocol(self) -> Protocol {
        match self {
            Self::Apache | Self::Nginx => Protocol::Http,
            Self::Vsftpd => Protocol::Ftp,
        }
    }

    /// What to install for it.
    #[must_use]
    pub const fn about(self) -> &'static About {
        match self {
            Self::Apache => &apache::ABOUT,
            Self::Nginx => &nginx::ABOUT,
            Self::Vsftpd => &vsftpd::ABOUT,
        }
    }

    /// Starts it on `host`, serving `content`, its own files in `folder`.
    ///
    /// # Errors
    /// It is not installed, or does not start.
    pub fn start(self, host: &HostHandle, content: &Content, folder: &Path) -> anyhow::Result<Service> {
        let about = self.about();
        let text = match self {
            Self::Apache => apache::configuration(folder, &content.folder),
            Self::Nginx => nginx::configuration(folder, &content.folder),
            Self::Vsftpd => vsftpd::configuration(&content.folder),
        };
        let file = folder.join(format!("{}.conf", about.executable));
        std::fs::write(&file, text)?;
        let file = file.display().to_string();
        let arguments = match self {
            Self::Apache => vec!["-D".into(), "FOREGROUND".into(), "-f".into(), file],
            // -e: what goes wrong before it has read its configuration
            Self::Nginx => vec!["-e".into(), "stderr".into(), "-c".into(), file],
            Self::Vsftpd => vec![file],
        };
        let launch = Launch {
            name: about.name.into(),
            executable: about.find()?,
            arguments,
            port: Some(self.protocol().port()),
        };
        Service::start(host, launch, folder)
    }
}

/// The URL of `content` on a server at `address`.
#[must_use]
pub fn url(protocol: Protocol, address: Ipv4Addr, content: &Content) -> String {
    format!("{}://{address}/{}", protocol.name(), content.name)
}
