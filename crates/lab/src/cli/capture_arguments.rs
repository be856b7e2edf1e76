//! The options of commands that capture packets.

use std::path::PathBuf;

use clap::Args;
use ekiden_lab::capture::{CaptureOptions, DEFAULT_SNAPLEN, MAX_SNAPLEN};

#[derive(Args)]
pub struct CaptureArguments {
    /// Capture the packets of all emulated links into pcapng files in this directory, with the reason of each drop
    #[arg(long = "pcap", value_name = "DIR", help_heading = "Capture")]
    directory: Option<PathBuf>,
    /// Number of bytes to capture of each packet, from the Ethernet header on: by default the headers
    #[arg(long = "pcap-snaplen", value_name = "BYTES", default_value_t = DEFAULT_SNAPLEN, requires = "directory", value_parser = clap::value_parser!(u32).range(14..=i64::from(MAX_SNAPLEN)), help_heading = "Capture")]
    snaplen: u32,
}

impl CaptureArguments {
    /// Returns the options of the capture; `None` without a directory.
    pub fn into_options(self) -> Option<CaptureOptions> {
        let snaplen = self.snaplen;
        self.directory.map(|directory| CaptureOptions { directory, snaplen })
    }
}
