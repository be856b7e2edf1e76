//! Senders, one bottleneck, receivers that acknowledge every packet, in virtual time. The queue is the laboratory's own,
//! driven as a line drives it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ekiden_lab::Nanos;
use ekiden_lab::dice::Dice;
use ekiden_lab::ledger::Ledger;
use ekiden_lab::packet::{Ecn, Packet};
use ekiden_lab::queue::Queue;

use crate::control::Kind;
use crate::sender::{Sender, nanos};

pub const PACKET: u32 = 1500;
/// The senders' own interfaces: 1 Gbit/s for each group.
const ACCESS: Nanos = 12_000;
/// Hosts and interrupts: what an acknowledgement takes longer, at most.
const NOISE: Nanos = 100_000;

/// One connection.
#[derive(Debug, Clone, Copy)]
pub struct Flow {
    pub kind: Kind,
    /// Connections of a group share a host.
    pub group: usize,
    pub rtt: Nanos,
    pub start: Nanos,
    /// In packets; none goes on for ever.
    pub size: Option<u64>,
    pub ecn: bool,
}

/// How a connection fared.
#[derive(Debug, Clone, Copy, Default)]
pub struct Fate {
    /// Packets delivered after the warm-up.
    pub packets: u64,
    pub dropped: u64,
    pub reductions: u64,
    /// How long a short transfer took, in seconds.
    pub took: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Start(usize),
    Arrive(usize, u64),
    Depart,
    Acknowledge(usize, u64, bool),
    Pace(usize),
    Timer(usize),
}

struct Connection {
    flow: Flow,
    sender: Sender,
    hash: u32,
    fate: Fate,
    next_send: Nanos,
    pacing: bool,
    timer: bool,
    last_ack: Nanos,
}

pub struct Network {
    queue: Box<dyn Queue>,
    /// Nanoseconds for a packet.
    transmission: Nanos,
    warm_up: Nanos,
    dice: Dice,
    connections: Vec<Connection>,
    hosts: Vec<Nanos>,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    pushed: u64,
    arrivals: u64,
    on_line: Option<Packet>,
    ledger: Ledger,
    /// How many packets have waited how long, in steps of a tenth of a millisecond.
    waits: Vec<u64>,
}

/// What a run has shown.
pub struct Run {
    pub fates: Vec<Fate>,
    pub waits: Vec<u64>,
    /// From the warm-up to the end, in seconds.
    pub seconds: f64,
}

impl Network {
    pub fn new(queue: Box<dyn Queue>, bits_per_second: u64, seed: u64, flows: &[Flow]) -> Self {
        let dice = Dice::new(seed).of("network");
        let connection = |(index, flow): (usize, &Flow)| Connection {
            flow: *flow,
            sender: Sender::new(flow.kind, flow.size, flow.start),
            hash: (dice.of("hash").bits(index as u64) >> 32) as u32,
            fate: Fate::default(),
            next_send: 0,
            pacing: false,
            timer: false,
            last_ack: 0,
        };
        let mut network = Self {
            queue,
            transmission: u64::from(PACKET) * 8_000_000_000 / bits_per_second,
            warm_up: 0,
            dice,
            connections: flows.iter().enumerate().map(connection).collect(),
            hosts: vec![0; 1 + flows.iter().map(|flow| flow.group).max().unwrap_or(0)],
            events: BinaryHeap::new(),
            pushed: 0,
            arrivals: 0,
            on_line: None,
            ledger: Ledger::default(),
            waits: vec![0; 50_000],
        };
        for (index, flow) in flows.iter().enumerate() {
            network.at(flow.start, Event::Start(index));
        }
        network
    }

    /// Runs until `end`; what is measured begins at `warm_up`.
    pub fn run(mut self, warm_up: Nanos, end: Nanos) -> Run {
        self.warm_up = warm_up;
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if now > end {
                break;
            }
            self.happen(now, event);
        }
        let finish = |connection: Connection| Fate { reductions: connection.sender.reductions, ..connection.fate };
        Run {
            fates: self.connections.into_iter().map(finish).collect(),
            waits: self.waits,
            seconds: crate::sender::seconds(end - warm_up),
        }
    }

    fn at(&mut self, time: Nanos, event: Event) {
        self.pushed += 1;
        self.events.push(Reverse((time, self.pushed, event)));
    }

    fn happen(&mut self, now: Nanos, event: Event) {
        match event {
            Event::Start(index) => self.send(index, now),
            Event::Arrive(index, number) => self.arrive(index, number, now),
            Event::Depart => self.depart(now),
            Event::Acknowledge(index, number, marked) => self.acknowledge(index, number, marked, now),
            Event::Pace(index) => {
                self.connections[index].pacing = false;
                self.send(index, now);
            }
            Event::Timer(index) => self.timer(index, now),
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
                        self.at(next, Event::Pace(index));
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
        *host = now.max(*host) + ACCESS;
        let at = *host;
        self.at(at, Event::Arrive(index, number));
    }

    fn arm(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        if let Some(deadline) = connection.sender.deadline()
            && !std::mem::replace(&mut connection.timer, true)
        {
            self.at(deadline, Event::Timer(index));
        }
    }

    fn timer(&mut self, index: usize, now: Nanos) {
        let connection = &mut self.connections[index];
        connection.timer = false;
        if connection.sender.deadline().is_some_and(|deadline| deadline <= now)
            && let Some(number) = connection.sender.expire(now)
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
        self.queue.enqueue(packet, &mut self.ledger);
        self.count_drops();
        if self.on_line.is_none() {
            self.take(now);
        }
    }

    fn count_drops(&mut self) {
        for drop in self.ledger.dropped.drain(..) {
            self.connections[(drop.packet.tag >> 40) as usize].fate.dropped += 1;
        }
    }

    fn take(&mut self, now: Nanos) {
        self.on_line = self.queue.dequeue(now, &mut self.ledger);
        self.count_drops();
        let Some(packet) = self.on_line else { return };
        if now >= self.warm_up {
            let step = usize::try_from((now - packet.at) / 100_000).unwrap();
            let last = self.waits.len() - 1;
            self.waits[step.min(last)] += 1;
        }
        self.at(now + self.transmission, Event::Depart);
    }

    fn depart(&mut self, now: Nanos) {
        let packet = self.on_line.take().unwrap();
        let noise = self.dice.bits(packet.number) % NOISE;
        let connection = &mut self.connections[(packet.tag >> 40) as usize];
        if now >= self.warm_up {
            connection.fate.packets += 1;
        }
        connection.last_ack = connection.last_ack.max(now + connection.flow.rtt + noise);
        let (at, number) = (connection.last_ack, packet.tag & ((1 << 40) - 1));
        let event = Event::Acknowledge((packet.tag >> 40) as usize, number, packet.ecn == Ecn::Marked);
        self.at(at, event);
        self.take(now);
    }

    fn acknowledge(&mut self, index: usize, number: u64, marked: bool, now: Nanos) {
        let connection = &mut self.connections[index];
        connection.sender.acknowledge(number, marked, now);
        if connection.sender.is_done() && connection.fate.took.is_none() {
            connection.fate.took = Some(crate::sender::seconds(now - connection.flow.start));
        }
        self.send(index, now);
    }
}
