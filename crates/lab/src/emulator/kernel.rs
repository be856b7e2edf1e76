//! The emulator in the virtual kernel: no process runs and no system call is made for a packet.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};

use anyhow::Context as _;
use ekiden_emulator::capture::CaptureChunk;
use ekiden_emulator::emulation::EmulationOptions;
use ekiden_emulator::kernel_protocol::{DEVICE, KernelRequest, StartRequest};
use ekiden_emulator::ledger::DirectionReport;
use ekiden_emulator::links::Link;
use ekiden_emulator::records::PacketRecord;
use serde::de::DeserializeOwned;

use crate::emulator::VERSION;

/// The open device of the kernel's emulator. The kernel stops the emulator when the device is closed.
#[derive(Debug)]
pub struct KernelEmulator {
    device: File,
}

impl KernelEmulator {
    /// Returns whether this kernel contains an emulator of the same version as this program.
    pub(super) fn is_available() -> bool {
        fs::read_to_string(DEVICE).is_ok_and(|version| version == VERSION)
    }

    /// Starts the emulator between `ports`, interfaces of this network namespace.
    pub(super) fn start(
        links: Vec<(String, Link)>,
        options: &EmulationOptions,
        ports: Vec<String>,
    ) -> anyhow::Result<Self> {
        let device = File::options().read(true).write(true).open(DEVICE).context(DEVICE)?;
        let emulator = Self { device };
        emulator.send(&KernelRequest::Start(StartRequest::new(links, options.clone(), ports)))?;
        Ok(emulator)
    }

    pub(super) fn reports(&self) -> anyhow::Result<Vec<DirectionReport>> {
        self.request(&KernelRequest::Report)
    }

    pub(super) fn records(&self, link: &str, from: &str) -> anyhow::Result<Vec<PacketRecord>> {
        self.request(&KernelRequest::Records { link: link.to_owned(), from: from.to_owned() })
    }

    /// Returns the next chunk of the capture; `None` at the end.
    pub(super) fn take_capture_chunk(&self) -> anyhow::Result<Option<CaptureChunk>> {
        self.request(&KernelRequest::Capture)
    }

    fn request<A: DeserializeOwned>(&self, request: &KernelRequest) -> anyhow::Result<A> {
        self.send(request)?;
        let mut answer = Vec::new();
        (&self.device).read_to_end(&mut answer).context(DEVICE)?;
        serde_json::from_slice(&answer).context("cannot parse the answer of the emulator")
    }

    /// Sends a request by a single write(2), because the kernel executes each write as one request.
    fn send(&self, request: &KernelRequest) -> anyhow::Result<()> {
        let text = serde_json::to_vec(request)?;
        let written = (&self.device).write(&text).context(DEVICE)?;
        anyhow::ensure!(
            written == text.len(),
            "the emulator accepted only {written} of {} bytes of the request",
            text.len()
        );
        Ok(())
    }
}
