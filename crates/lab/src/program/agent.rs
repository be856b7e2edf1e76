//! What fetches files: curl or wget.

use serde::{Deserialize, Serialize};

use crate::program::{ProgramInfo, curl, wget};

/// A program that fetches a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agent {
    /// curl: it knows every kind of proxy, and measures for itself.
    #[default]
    Curl,
    /// wget: it knows HTTP proxies; the laboratory's own clock measures.
    Wget,
}

impl Agent {
    /// What to install for it.
    #[must_use]
    pub const fn program_info(self) -> &'static ProgramInfo {
        match self {
            Self::Curl => &curl::PROGRAM,
            Self::Wget => &wget::PROGRAM,
        }
    }
}
