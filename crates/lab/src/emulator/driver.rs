//! Event loop of the emulator: receives frames, sends due packets, and waits for either.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender};
use std::time::SystemTime;

use ekiden_sys::packet::ReceivedFrame;
use ekiden_sys::poll::Poll;

use crate::Nanos;
use crate::conditions::Conditions;
use crate::emulator::clock::Clock;
use crate::emulator::direction::EmulatedDirection;
use crate::emulator::port::OpenPort;
use crate::emulator::store::FrameStore;
use crate::emulator::{DirectionReport, PacketRecord};

/// Maximum number of frames received from a port before other work.
const RECEIVE_BATCH: usize = 16;

/// Requests to a running emulator.
pub(super) enum DriverCommand {
    Report(Sender<Vec<DirectionReport>>),
    Records(String, String, Sender<Vec<PacketRecord>>),
    Stop,
}

/// A scheduled change: time, index of the direction, and new conditions.
pub(super) type ScheduledChange = (Nanos, usize, Conditions);

/// All links of a lab. Frames received at port `i` pass direction `i` and leave at port `i ^ 1`.
pub(super) struct Driver {
    pub(super) ports: Vec<OpenPort>,
    pub(super) directions: Vec<EmulatedDirection>,
    pub(super) store: FrameStore,
    pub(super) clock: Clock,
    /// Scheduled changes, latest first.
    pub(super) changes: Vec<ScheduledChange>,
    pub(super) commands: Receiver<DriverCommand>,
    /// Readable when a command is pending.
    pub(super) wakeup: UnixStream,
    pub(super) buffers: Vec<Box<[u8]>>,
    pub(super) received: Vec<ReceivedFrame>,
}

impl Driver {
    pub(super) fn allocate_buffers(store: &mut FrameStore) -> Vec<Box<[u8]>> {
        (0..RECEIVE_BATCH).map(|_| store.take_buffer()).collect()
    }

    /// Runs until [`DriverCommand::Stop`], and returns the final counters.
    pub(super) fn run(mut self) -> io::Result<Vec<DirectionReport>> {
        // `poll` borrows duplicates, because `self` is borrowed mutably in the loop. The set of descriptors never
        // changes.
        let watched =
            self.ports.iter().map(|port| port.as_fd().try_clone_to_owned()).collect::<io::Result<Vec<_>>>()?;
        let wakeup = self.wakeup.try_clone()?;
        let descriptors = watched.iter().map(AsFd::as_fd).chain([wakeup.as_fd()]).collect();
        let mut poll = Poll::new(descriptors);
        loop {
            let (deadline, punctual) = self.next_deadline();
            self.clock.wait(&mut poll, deadline, punctual)?;
            self.apply_changes();
            if poll.is_ready(self.ports.len()) && self.handle_commands()? {
                return Ok(self.reports());
            }
            for index in 0..self.ports.len() {
                if poll.is_ready(index) {
                    self.receive(index)?;
                }
            }
            let now = self.clock.now();
            for index in 0..self.directions.len() {
                self.directions[index].send_due(now, &mut self.ports[index ^ 1], &mut self.store);
            }
        }
    }

    /// Returns the time of the next event, and whether it must be met to the microsecond.
    fn next_deadline(&self) -> (Option<Nanos>, bool) {
        let changes = self.changes.last().map(|change| (change.0, false));
        let directions = self.directions.iter().filter_map(|d| d.next_wakeup().map(|at| (at, d.is_exact())));
        directions.chain(changes).min().map_or((None, false), |(at, punctual)| (Some(at), punctual))
    }

    fn apply_changes(&mut self) {
        let now = self.clock.now();
        while let Some((at, index, conditions)) = self.changes.pop_if(|change| change.0 <= now) {
            self.directions[index].pipeline.set_conditions(&conditions, at);
            self.directions[index].apply_stage_events(&mut self.store);
        }
    }

    fn receive(&mut self, index: usize) -> io::Result<()> {
        self.ports[index].receive(&mut self.buffers, &mut self.received)?;
        let (now, wall) = (self.clock.now(), SystemTime::now());
        for (buffer, got) in self.buffers.iter_mut().zip(&self.received) {
            let at = got.timestamp.map_or(now, |stamp| Clock::from_kernel_timestamp(now, wall, stamp));
            self.directions[index].on_frame(buffer, *got, at, &self.ports[index], &mut self.store);
        }
        Ok(())
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
                DriverCommand::Records(link, from, reply) => drop(reply.send(self.records(&link, &from))),
            }
        }
        Ok(false)
    }

    fn records(&self, link: &str, from: &str) -> Vec<PacketRecord> {
        let wanted = |d: &&EmulatedDirection| d.report.link == link && d.report.from == from;
        self.directions.iter().find(wanted).map(EmulatedDirection::records).unwrap_or_default()
    }

    fn reports(&mut self) -> Vec<DirectionReport> {
        for (port, direction) in self.ports.iter().zip(&mut self.directions) {
            direction.report.hidden += port.take_drop_count();
            direction.report.waits.clone_from(&direction.pipeline.events.queue_delays);
        }
        self.directions.iter().map(|direction| direction.report.clone()).collect()
    }
}
