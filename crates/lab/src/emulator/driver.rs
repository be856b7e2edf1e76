//! Event loop of the emulator: receives frames, sends due packets, and waits for either.

use std::io::{self, Write as _};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TrySendError, channel};
use std::thread::JoinHandle;
use std::time::SystemTime;

use anyhow::{Context as _, anyhow};
use ekiden_emulator::capture::CaptureChunk;
use ekiden_emulator::emulation::{Emulation, EmulationOptions};
use ekiden_emulator::ledger::DirectionReport;
use ekiden_emulator::links::Link;
use ekiden_emulator::records::PacketRecord;
use ekiden_sys::packet::ReceivedFrame;
use ekiden_sys::poll::Poll;

use crate::emulator::EmulatedLink;
use crate::emulator::arrivals::Arrivals;
use crate::emulator::clock::{self, Clock};
use crate::emulator::port::OpenPort;

/// Maximum number of frames received from a port before other work.
const RECEIVE_BATCH: usize = 16;

/// Requests to a running driver.
enum DriverCommand {
    Report(Sender<Vec<DirectionReport>>),
    Records(String, String, Sender<Vec<PacketRecord>>),
    Stop,
}

/// All links of a lab, and their ports.
struct Driver {
    emulation: Emulation,
    ports: Vec<OpenPort>,
    /// One for each port.
    arrivals: Vec<Arrivals>,
    clock: Clock,
    commands: Receiver<DriverCommand>,
    /// Channel to the writer of the capture; `None` without a capture.
    capture: Option<SyncSender<CaptureChunk>>,
    /// Readable when a command is pending.
    wakeup: UnixStream,
    buffers: Vec<Box<[u8]>>,
    received: Vec<ReceivedFrame>,
}

impl Driver {
    /// Runs until [`DriverCommand::Stop`], and returns the final counters.
    fn run(mut self) -> io::Result<Vec<DirectionReport>> {
        // `poll` borrows duplicates, because `self` is borrowed mutably in the loop. The set of descriptors never
        // changes.
        let port_descriptors =
            self.ports.iter().map(|port| port.as_fd().try_clone_to_owned()).collect::<io::Result<Vec<_>>>()?;
        let wakeup = self.wakeup.try_clone()?;
        let descriptors = port_descriptors.iter().map(AsFd::as_fd).chain([wakeup.as_fd()]).collect();
        let mut poll = Poll::new(descriptors);
        loop {
            let (deadline, punctual) = self.emulation.next_deadline().map_or((None, false), |(at, p)| (Some(at), p));
            self.clock.wait(&mut poll, deadline, punctual)?;
            let now = self.clock.now();
            if poll.is_ready(self.ports.len()) && self.handle_commands()? {
                self.finish_capture();
                return Ok(self.reports());
            }
            for index in 0..self.ports.len() {
                // A direction decides only when it has all earlier frames, also those that arrived after the poll.
                if poll.is_ready(index) || self.emulation.is_due(index, now) {
                    let may_have_more = self.receive(index)? == RECEIVE_BATCH;
                    self.arrivals[index].on_read(now, may_have_more);
                }
            }
            self.emulation.send_due(self.clock.now(), |port| self.arrivals[port].known_until(), &mut self.ports);
            self.pass_capture_on();
        }
    }

    /// Passes waiting frames of a port to the emulation. Returns the number of frames, at most [`RECEIVE_BATCH`].
    fn receive(&mut self, index: usize) -> io::Result<usize> {
        self.ports[index].receive(&mut self.buffers, &mut self.received)?;
        if self.received.is_empty() {
            return Ok(0);
        }
        let reading = self.clock.read_both();
        let link_header = self.ports[index].link_header_len();
        for (buffer, frame) in self.buffers.iter_mut().zip(&self.received) {
            let at = self.arrivals[index].next(reading, frame.timestamp);
            self.emulation.on_frame(index, buffer, *frame, at, link_header);
        }
        Ok(self.received.len())
    }

    /// Sends full chunks of the capture to the writer. If the writer is busy, they wait in the emulation, up to its
    /// limit.
    fn pass_capture_on(&mut self) {
        let Some(capture) = &self.capture else { return };
        while let Some(chunk) = self.emulation.take_full_capture_chunk() {
            // If the writer has ended, it has failed, and it reports the error itself.
            if let Err(TrySendError::Full(chunk)) = capture.try_send(chunk) {
                self.emulation.put_back_capture_chunk(chunk);
                return;
            }
        }
    }

    /// Sends the rest of the capture to the writer, and closes the channel.
    fn finish_capture(&mut self) {
        let Some(capture) = self.capture.take() else { return };
        while let Some(chunk) = self.emulation.take_capture_chunk() {
            let _ = capture.send(chunk);
        }
    }

    /// Executes pending commands. Returns whether to stop.
    fn handle_commands(&mut self) -> io::Result<bool> {
        let mut discarded = [0; 64];
        io::Read::read(&mut self.wakeup, &mut discarded)?;
        while let Ok(command) = self.commands.try_recv() {
            // A reply fails only if the caller is gone.
            match command {
                DriverCommand::Stop => return Ok(true),
                DriverCommand::Report(reply) => drop(reply.send(self.reports())),
                DriverCommand::Records(link, from, reply) => drop(reply.send(self.emulation.records(&link, &from))),
            }
        }
        Ok(false)
    }

    fn reports(&mut self) -> Vec<DirectionReport> {
        for (index, port) in self.ports.iter().enumerate() {
            self.emulation.record_hidden(index, port.take_drop_count());
        }
        self.emulation.reports()
    }
}

/// The thread of a driver; it is stopped on drop.
#[derive(Debug)]
pub(super) struct DriverThread {
    commands: Sender<DriverCommand>,
    wakeup: UnixStream,
    thread: Option<JoinHandle<io::Result<Vec<DirectionReport>>>>,
    /// Wall-clock time at which the emulator's clock was 0.
    pub(super) epoch: SystemTime,
}

impl DriverThread {
    pub(super) fn start(
        wires: &[EmulatedLink],
        links: &[(String, Link)],
        options: &EmulationOptions,
        capture: Option<SyncSender<CaptureChunk>>,
    ) -> anyhow::Result<Self> {
        let (commands, command_receiver) = channel();
        let (wakeup, wakeup_receiver) = UnixStream::pair().context("cannot create a socket pair")?;
        let mut ports = Vec::new();
        for wire in wires {
            for (port, end) in wire.ports.iter().zip(&wire.link.ends) {
                ports.push(
                    OpenPort::open(port)
                        .with_context(|| format!("link {:?}: cannot open the end at host {end:?}", wire.name))?,
                );
            }
        }
        let mut emulation = Emulation::new(links, options);
        let buffers = (0..RECEIVE_BATCH).map(|_| emulation.take_buffer()).collect();
        let (clock, epoch) = (Clock::new(), SystemTime::now());
        let driver = Driver {
            emulation,
            arrivals: ports.iter().map(|_| Arrivals::default()).collect(),
            ports,
            clock,
            commands: command_receiver,
            capture,
            wakeup: wakeup_receiver,
            buffers,
            received: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("emulator".to_owned()).spawn(move || {
            // These settings improve timing. All are optional, because lateness is measured.
            let _ = ekiden_sys::thread::set_min_timer_slack();
            let _ = ekiden_sys::thread::set_realtime();
            let _awake = clock::hold_cpu_dma_latency();
            driver.run()
        })?;
        Ok(Self { commands, wakeup, thread: Some(thread), epoch })
    }

    pub(super) fn reports(&self) -> anyhow::Result<Vec<DirectionReport>> {
        let (reply, answer) = channel();
        self.send_command(DriverCommand::Report(reply))?;
        answer.recv().context("the emulator has ended")
    }

    pub(super) fn records(&self, link: &str, from: &str) -> anyhow::Result<Vec<PacketRecord>> {
        let (reply, answer) = channel();
        self.send_command(DriverCommand::Records(link.to_owned(), from.to_owned(), reply))?;
        answer.recv().context("the emulator has ended")
    }

    pub(super) fn stop(mut self) -> anyhow::Result<Vec<DirectionReport>> {
        self.shut_down()
    }

    fn send_command(&self, command: DriverCommand) -> anyhow::Result<()> {
        self.commands.send(command).map_err(|_| anyhow!("the emulator has ended"))?;
        (&self.wakeup).write_all(&[1]).context("the emulator has ended")
    }

    fn shut_down(&mut self) -> anyhow::Result<Vec<DirectionReport>> {
        let thread = self.thread.take().context("the emulator has ended")?;
        // If the thread has already ended, its result has the reason.
        let _ = self.send_command(DriverCommand::Stop);
        thread.join().map_err(|_| anyhow!("the emulator panicked"))?.context("the emulator failed")
    }
}

impl Drop for DriverThread {
    fn drop(&mut self) {
        if self.thread.is_some() {
            let _ = self.shut_down();
        }
    }
}
