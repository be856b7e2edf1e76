//! The loop that moves packets: take what has arrived, send what is due, wait for either.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender};
use std::time::SystemTime;

use ekiden_sys::packet::Received;
use ekiden_sys::poll::Poll;

use crate::Nanos;
use crate::conditions::Conditions;
use crate::emulator::clock::Clock;
use crate::emulator::direction::Direction;
use crate::emulator::port::OpenPort;
use crate::emulator::store::Store;
use crate::emulator::{DirectionReport, Record};

/// How many frames are taken from a port before anything else gets its turn.
const BATCH: usize = 16;

/// What may be asked of a running emulator.
pub(super) enum Command {
    Report(Sender<Vec<DirectionReport>>),
    Records(String, String, Sender<Vec<Record>>),
    Stop,
}

/// A change that is still to come: when, which direction, to what.
pub(super) type Change = (Nanos, usize, Conditions);

/// All links of a lab. What comes in at port `i` goes through direction `i` and out at port `i ^ 1`.
pub(super) struct Driver {
    pub(super) ports: Vec<OpenPort>,
    pub(super) directions: Vec<Direction>,
    pub(super) store: Store,
    pub(super) clock: Clock,
    /// In reverse order of time.
    pub(super) changes: Vec<Change>,
    pub(super) commands: Receiver<Command>,
    /// Becomes readable when a command is there.
    pub(super) bell: UnixStream,
    pub(super) buffers: Vec<Box<[u8]>>,
    pub(super) received: Vec<Received>,
}

impl Driver {
    pub(super) fn buffers(store: &mut Store) -> Vec<Box<[u8]>> {
        (0..BATCH).map(|_| store.buffer()).collect()
    }

    /// Runs until it is told to stop.
    pub(super) fn run(mut self) -> io::Result<Vec<DirectionReport>> {
        // The set of descriptors stays the same, and so do the numbers of those that are duplicated here.
        let watched =
            self.ports.iter().map(|port| port.as_fd().try_clone_to_owned()).collect::<io::Result<Vec<_>>>()?;
        let bell = self.bell.try_clone()?;
        let descriptors = watched.iter().map(AsFd::as_fd).chain([bell.as_fd()]).collect();
        let mut poll = Poll::new(descriptors);
        loop {
            let (deadline, punctual) = self.deadline();
            self.clock.wait(&mut poll, deadline, punctual)?;
            self.apply_changes();
            if poll.is_ready(self.ports.len()) && self.obey()? {
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

    /// When something is to be done next, and whether it matters to the microsecond.
    fn deadline(&self) -> (Option<Nanos>, bool) {
        let changes = self.changes.last().map(|change| (change.0, false));
        let directions = self.directions.iter().filter_map(|d| d.wake().map(|at| (at, d.is_punctual())));
        directions.chain(changes).min().map_or((None, false), |(at, punctual)| (Some(at), punctual))
    }

    fn apply_changes(&mut self) {
        let now = self.clock.now();
        while let Some((at, index, conditions)) = self.changes.pop_if(|change| change.0 <= now) {
            self.directions[index].pipeline.change(&conditions, at);
            self.directions[index].settle(&mut self.store);
        }
    }

    fn receive(&mut self, index: usize) -> io::Result<()> {
        self.ports[index].receive(&mut self.buffers, &mut self.received)?;
        let (now, wall) = (self.clock.now(), SystemTime::now());
        for (buffer, got) in self.buffers.iter_mut().zip(&self.received) {
            let at = got.stamp.map_or(now, |stamp| Clock::of_stamp(now, wall, stamp));
            self.directions[index].take(buffer, *got, at, &self.ports[index], &mut self.store);
        }
        Ok(())
    }

    /// Does what it is told. Returns whether that is to stop.
    fn obey(&mut self) -> io::Result<bool> {
        let mut rung = [0; 64];
        io::Read::read(&mut self.bell, &mut rung)?;
        while let Ok(command) = self.commands.try_recv() {
            // Who asks and then goes away needs no answer.
            match command {
                Command::Stop => return Ok(true),
                Command::Report(reply) => drop(reply.send(self.reports())),
                Command::Records(link, from, reply) => drop(reply.send(self.records(&link, &from))),
            }
        }
        Ok(false)
    }

    fn records(&self, link: &str, from: &str) -> Vec<Record> {
        let wanted = |d: &&Direction| d.report.link == link && d.report.from == from;
        self.directions.iter().find(wanted).map(Direction::records).unwrap_or_default()
    }

    fn reports(&mut self) -> Vec<DirectionReport> {
        for (port, direction) in self.ports.iter().zip(&mut self.directions) {
            direction.report.hidden += port.drops();
            direction.report.waits.clone_from(&direction.pipeline.ledger.waits);
        }
        self.directions.iter().map(|direction| direction.report.clone()).collect()
    }
}
