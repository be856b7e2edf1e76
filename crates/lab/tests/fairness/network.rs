//! A simulation of senders, one bottleneck, and receivers that acknowledge every packet, in virtual time. The queue is
//! that of the emulator, with the calls that a line of the emulator makes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ekiden_emulator::Nanos;
use ekiden_emulator::ledger::StageEvents;
use ekiden_emulator::packet::{Ecn, Packet};
use ekiden_emulator::queue::Queue;
use ekiden_emulator::rng::SeededRng;

use crate::control::Algorithm;
use crate::sender::{TcpSender, nanos};

pub const PACKET: u32 = 1500;
/// The transmission time of a packet on the senders' interfaces: 1 Gbit/s for each group.
const ACCESS_TIME: Nanos = 12_000;
/// The maximum random delay of an acknowledgement, which models hosts and interrupts.
const MAX_ACK_NOISE: Nanos = 100_000;

/// The parameters of one connection.
#[derive(Debug, Clone, Copy)]
pub struct FlowSpec {
    pub kind: Algorithm,
    /// Connections of a group share a host.
    pub group: usize,
    pub rtt: Nanos,
    pub start: Nanos,
    /// Packets to transfer; None without an end.
    pub size: Option<u64>,
    pub ecn: bool,
}

/// Counters of a connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct ConnectionStats {
    /// Packets delivered after the warm-up.
    pub packets: u64,
    pub dropped: u64,
    pub reductions: u64,
    /// Duration of a short transfer, in seconds.
    pub completion_s: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SimulationEvent {
    Start(usize),
    Arrive(usize, u64),
    Depart,
    Acknowledge(usize, u64, bool),
    Pace(usize),
    Timer(usize),
}

struct SimulatedConnection {
    flow: FlowSpec,
    sender: TcpSender,
    hash: u32,
    stats: ConnectionStats,
    next_send: Nanos,
    pacing: bool,
    timer: bool,
    last_ack: Nanos,
}

pub struct Simulation {
    queue: Box<dyn Queue>,
    /// Transmission time of a packet, in nanoseconds.
    transmission: Nanos,
    warm_up: Nanos,
    rng: SeededRng,
    connections: Vec<SimulatedConnection>,
    hosts: Vec<Nanos>,
    events: BinaryHeap<Reverse<(Nanos, u64, SimulationEvent)>>,
    sequence: u64,
    arrivals: u64,
    in_transmission: Option<Packet>,
    stage_events: StageEvents,
    /// A histogram of the time in the queue, in steps of a tenth of a millisecond.
    queue_delays: Vec<u64>,
}

/// Counters of a run.
pub struct SimulationResult {
    pub connections: Vec<ConnectionStats>,
    pub queue_delays: Vec<u64>,
    /// From the warm-up to the end, in seconds.
    pub seconds: f64,
}

impl Simulation {
    pub fn new(queue: Box<dyn Queue>, bits_per_second: u64, seed: u64, flows: &[FlowSpec]) -> Self {
        let rng = SeededRng::new(seed).derive("network");
        let connection = |(index, flow): (usize, &FlowSpec)| SimulatedConnection {
            flow: *flow,
            sender: TcpSender::new(flow.kind, flow.size, flow.start),
            hash: (rng.derive("hash").bits(index as u64) >> 32) as u32,
            stats: ConnectionStats::default(),
            next_send: 0,
            pacing: false,
            timer: false,
            last_ack: 0,
        };
        let mut network = Self {
            queue,
            transmission: u64::from(PACKET) * 8_000_000_000 / bits_per_second,
            warm_up: 0,
            rng,
            connections: flows.iter().enumerate().map(connection).collect(),
            hosts: vec![0; 1 + flows.iter().map(|flow| flow.group).max().unwrap_or(0)],
            events: BinaryHeap::new(),
            sequence: 0,
            arrivals: 0,
            in_transmission: None,
            stage_events: StageEvents::default(),
            queue_delays: vec![0; 50_000],
        };
        for (index, flow) in flows.iter().enumerate() {
            network.schedule(flow.start, SimulationEvent::Start(index));
        }
        network
    }

    /// Runs until `end`; the measurement begins at `warm_up`.
    pub fn run(mut self, warm_up: Nanos, end: Nanos) -> SimulationResult {
        self.warm_up = warm_up;
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if now > end {
                break;
            }
            self.handle_event(now, event);
        }
        let finish = |connection: SimulatedConnection| ConnectionStats {
            reductions: connection.sender.reductions,
            ..connection.stats
        };
        SimulationResult {
            connections: self.connections.into_iter().map(finish).collect(),
            queue_delays: self.queue_delays,
            seconds: crate::sender::seconds(end - warm_up),
        }
    }

    fn schedule(&mut self, time: Nanos, event: SimulationEvent) {
        self.sequence += 1;
        self.events.push(Reverse((time, self.sequence, event)));
    }

    fn handle_event(&mut self, now: Nanos, event: SimulationEvent) {
        match event {
            SimulationEvent::Start(index) => self.send(index, now),
            SimulationEvent::Arrive(index, number) => self.arrive(index, number, now),
            SimulationEvent::Depart => self.depart(now),
            SimulationEvent::Acknowledge(index, number, marked) => self.acknowledge(index, number, marked, now),
            SimulationEvent::Pace(index) => {
                self.connections[index].pacing = false;
                self.send(index, now);
            }
            SimulationEvent::Timer(index) => self.timer(index, now),
        }
    }

    fn send(&mut self, index: usize, now: Nanos) {
        loop {
            let connection = &mut self.connections[index];
            if !connection.sender.may_send() {
                break;
            }
            if let Some(rate) = connection.sender.pacing() {
                if connection.next_send > now {
                    let next = connection.next_send;
                    if !std::mem::replace(&mut connection.pacing, true) {
                        self.schedule(next, SimulationEvent::Pace(index));
                    }
                    break;
                }
                connection.next_send = now + nanos(1.0 / rate.max(1.0));
            }
            let number = connection.sender.send(now);
            self.put_on_access(index, number, now);
        }
        self.arm(index);
    }

    fn put_on_access(&mut self, index: usize, number: u64, now: Nanos) {
        let host = &mut self.hosts[self.connections[index].flow.group];
        *host = now.max(*host) + ACCESS_TIME;
        let at = *host;
        self.schedule(at, SimulationEvent::Arrive(index, number));
    }

    fn arm(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if let Some(deadline) = connection.sender.deadline()
            && !std::mem::replace(&mut connection.timer, true)
        {
            self.schedule(deadline, SimulationEvent::Timer(index));
        }
    }

    fn timer(&mut self, index: usize, now: Nanos) {
        let connection = &mut self.connections[index];
        connection.timer = false;
        if connection.sender.deadline().is_some_and(|deadline| deadline <= now)
            && let Some(number) = connection.sender.on_timer(now)
        {
            self.put_on_access(index, number, now);
        }
        self.send(index, now);
    }

    fn arrive(&mut self, index: usize, number: u64, now: Nanos) {
        let connection = &self.connections[index];
        let ecn = if connection.flow.ecn { Ecn::Capable } else { Ecn::NotCapable };
        let tag = (index as u64) << 40 | number;
        let packet =
            Packet { number: self.arrivals, at: now, bytes: PACKET, flow: connection.hash, source: 0, ecn, tag };
        self.arrivals += 1;
        self.queue.enqueue(packet, &mut self.stage_events);
        self.count_drops();
        if self.in_transmission.is_none() {
            self.start_transmission(now);
        }
    }

    fn count_drops(&mut self) {
        for drop in self.stage_events.dropped.drain(..) {
            self.connections[(drop.packet.tag >> 40) as usize].stats.dropped += 1;
        }
    }

    fn start_transmission(&mut self, now: Nanos) {
        self.in_transmission = self.queue.dequeue(now, &mut self.stage_events);
        self.count_drops();
        let Some(packet) = self.in_transmission else { return };
        if now >= self.warm_up {
            let step = usize::try_from((now - packet.at) / 100_000).unwrap();
            let last = self.queue_delays.len() - 1;
            self.queue_delays[step.min(last)] += 1;
        }
        self.schedule(now + self.transmission, SimulationEvent::Depart);
    }

    fn depart(&mut self, now: Nanos) {
        let packet = self.in_transmission.take().unwrap();
        let noise = self.rng.bits(packet.number) % MAX_ACK_NOISE;
        let connection = &mut self.connections[(packet.tag >> 40) as usize];
        if now >= self.warm_up {
            connection.stats.packets += 1;
        }
        connection.last_ack = connection.last_ack.max(now + connection.flow.rtt + noise);
        let (at, number) = (connection.last_ack, packet.tag & ((1 << 40) - 1));
        let event = SimulationEvent::Acknowledge((packet.tag >> 40) as usize, number, packet.ecn == Ecn::Marked);
        self.schedule(at, event);
        self.start_transmission(now);
    }

    fn acknowledge(&mut self, index: usize, number: u64, marked: bool, now: Nanos) {
        let connection = &mut self.connections[index];
        connection.sender.acknowledge(number, marked, now);
        if connection.sender.is_done() && connection.stats.completion_s.is_none() {
            connection.stats.completion_s = Some(crate::sender::seconds(now - connection.flow.start));
        }
        self.send(index, now);
    }
}
