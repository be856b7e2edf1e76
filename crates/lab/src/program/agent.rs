//! Clients that fetch files: curl or wget.

use serde::{Deserialize, Serialize};

use crate::program::{ProgramInfo, curl, wget};

/// A program that fetches a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agent {
    /// curl, which supports every kind of proxy and measures transfer times.
    #[default]
    Curl,
    /// wget, which supports only HTTP proxies. The laboratory measures transfer times.
    Wget,
}

impl Agent {
    /// Returns the program and its package.
    #[must_use]
    pub const fn program_info(self) -> &'static ProgramInfo {
        match self {
            Self::Curl => &curl::PROGRAM,
            Self::Wget => &wget::PROGRAM,
        }
    }
}
