//! Destinations of the captures of running emulators.

use std::sync::mpsc::Receiver;
use std::thread::{Builder, JoinHandle};
use std::time::SystemTime;

use anyhow::{Context as _, anyhow};
use ekiden_emulator::capture::CaptureChunk;

use super::EmulatedLink;
use super::kernel::KernelEmulator;
use crate::capture::{CaptureOptions, CaptureSummary, CaptureWriter, CapturedDirection};
use crate::pcapng::LinkType;

/// The files of a capture that are not created yet.
#[derive(Debug)]
pub struct CaptureFiles {
    wires: Vec<EmulatedLink>,
    options: CaptureOptions,
    epoch: SystemTime,
}

impl CaptureFiles {
    /// Describes the files of a capture of `wires`. Times of events count from `epoch`.
    pub(super) fn new(wires: &[EmulatedLink], options: &CaptureOptions, epoch: SystemTime) -> Self {
        Self { wires: wires.to_vec(), options: options.clone(), epoch }
    }

    fn create(&self) -> anyhow::Result<CaptureWriter> {
        let directions: Vec<CapturedDirection<'_>> = self
            .wires
            .iter()
            .flat_map(|wire| {
                let [a, b] = &wire.link.ends;
                [(a, b), (b, a)].map(|(from, to)| CapturedDirection { link: &wire.name, from, to })
            })
            .collect();
        let has_interfaces = self.wires.iter().all(|wire| wire.ports.iter().all(|port| port.interface().is_some()));
        let link_type = if has_interfaces { LinkType::Ethernet } else { LinkType::Raw };
        CaptureWriter::create(&self.options, &directions, link_type, self.epoch)
    }
}

/// A thread that writes a capture while the emulator runs.
#[derive(Debug)]
pub struct WriterThread(JoinHandle<anyhow::Result<CaptureSummary>>);

impl WriterThread {
    /// Creates the files, and starts a thread that writes `chunks` until their sender is dropped.
    pub(super) fn start(files: &CaptureFiles, chunks: Receiver<CaptureChunk>) -> anyhow::Result<Self> {
        let mut writer = files.create()?;
        let thread = Builder::new().name("capture".to_owned()).spawn(move || {
            chunks.iter().try_for_each(|chunk| writer.write_chunk(&chunk))?;
            writer.finish()
        });
        thread.map(Self).context("cannot start the writer of the capture")
    }
}

/// A capture whose emulator has stopped.
#[derive(Debug)]
pub enum StoppedCapture {
    /// A thread writes the last packets.
    Thread(WriterThread),
    /// The virtual kernel has the capture. It is written at the end of the run, because requests and file operations
    /// read the clock, and each reading takes virtual time: a run must be the same with and without a capture.
    Kernel(KernelEmulator, CaptureFiles),
}

impl StoppedCapture {
    /// Completes the files, and returns the counters.
    ///
    /// # Errors
    /// The capture cannot be read, or a file cannot be written.
    pub fn finish(self) -> anyhow::Result<CaptureSummary> {
        let result = match self {
            Self::Thread(WriterThread(thread)) => thread.join().map_err(|_| anyhow!("the writer panicked"))?,
            Self::Kernel(kernel, files) => write_all(&kernel, &files),
        };
        result.context("cannot write the capture")
    }
}

fn write_all(kernel: &KernelEmulator, files: &CaptureFiles) -> anyhow::Result<CaptureSummary> {
    let mut writer = files.create()?;
    while let Some(chunk) = kernel.take_capture_chunk()? {
        writer.write_chunk(&chunk)?;
    }
    writer.finish()
}
