//! Requests to the emulator of the virtual kernel. A process writes one to [`DEVICE`], and reads the answer to its end.
//! Both are JSON. A process that reads before it writes gets the version of the emulator.

use serde::{Deserialize, Serialize};

use crate::conditions::Conditions;
use crate::emulation::EmulationOptions;
use crate::links::Link;

/// The device of the emulator. Each open file is an emulator of its own, and closing it stops the emulator.
pub const DEVICE: &str = "/dev/ekiden-emulator";

/// A request to the emulator.
#[derive(Debug, Serialize, Deserialize)]
pub enum KernelRequest {
    /// Starts the emulator; once for each open file. The answer is empty.
    Start(StartRequest),
    /// Asks for the counters: a list of [`DirectionReport`](crate::ledger::DirectionReport).
    Report,
    /// Removes the next chunk of the capture: a [`CaptureChunk`](crate::capture::CaptureChunk), or null at the end.
    Capture,
    /// Asks for the records of packets that entered `link` at host `from`: a list of
    /// [`PacketRecord`](crate::records::PacketRecord).
    Records {
        /// The name of the link.
        link: String,
        /// The name of the sending host.
        from: String,
    },
}

/// The links of an emulator.
#[derive(Debug, Serialize, Deserialize)]
pub struct StartRequest {
    links: Vec<(String, Link)>,
    options: EmulationOptions,
    ports: Vec<String>,
    /// The addresses of the senders that queues name, for all conditions in order: a lab file has only names.
    senders: Vec<Vec<u32>>,
}

impl StartRequest {
    /// Creates a request for `links`, by name. `ports` are interfaces of the network namespace of the process, two for
    /// each link.
    #[must_use]
    pub fn new(mut links: Vec<(String, Link)>, mut options: EmulationOptions, ports: Vec<String>) -> Self {
        let all = all_conditions(&mut links, &mut options);
        let senders = all.map(|conditions| senders_mut(conditions).cloned().unwrap_or_default()).collect();
        Self { links, options, ports, senders }
    }

    /// Returns links, options and ports, with the addresses of senders in the queues.
    #[must_use]
    pub fn into_parts(mut self) -> (Vec<(String, Link)>, EmulationOptions, Vec<String>) {
        for (conditions, senders) in all_conditions(&mut self.links, &mut self.options).zip(self.senders) {
            if let Some(place) = senders_mut(conditions) {
                *place = senders;
            }
        }
        (self.links, self.options, self.ports)
    }
}

/// Returns the conditions of all links and events, in the order of [`StartRequest::senders`].
fn all_conditions<'a>(
    links: &'a mut [(String, Link)],
    options: &'a mut EmulationOptions,
) -> impl Iterator<Item = &'a mut Conditions> {
    let of_links = links.iter_mut().flat_map(|(_, link)| [&mut link.forward, &mut link.reverse]);
    of_links.chain(options.events.iter_mut().flat_map(|event| [&mut event.forward, &mut event.reverse]))
}

fn senders_mut(conditions: &mut Conditions) -> Option<&mut Vec<u32>> {
    conditions.queue.as_mut()?.sender_hosts_mut().map(|senders| &mut senders.sources)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::conditions;

    /// The request transfers every key of the conditions, and the addresses of senders, which lab files do not contain.
    #[test]
    fn start_requests_round_trip_with_all_conditions() {
        let mut forward = conditions(
            "access_rate = '1Gbit/s'\nrate = '10Mbit/s'\ndelay = '5ms'\ncount = 'wire'\n\
             jitter = { distribution = 'normal', scale = '1ms' }\nreorder = { p = 0.1, by = '3ms' }\n\
             duplicate = { p = 0.01 }\nloss = { model = 'gilbert-elliott', to_bad = 0.1, to_good = 0.3 }\n\
             queue = { kind = 'static-priority', limit = '60pkt', min = '5pkt', max = '40pkt', p = 0.1, n = 4, heavy = ['a'] }",
        );
        *senders_mut(&mut forward).unwrap() = vec![7, 8];
        let reverse = conditions("queue = { kind = 'fq-codel', limit = '1000pkt' }\nrate = '1Mbit/s'");
        let link = Link { ends: ["a".into(), "b".into()], mtu: 1500, forward: forward.clone(), reverse };
        let event = crate::links::LinkEvent {
            at: "2s".parse().unwrap(),
            link: "wire".into(),
            forward: Conditions { down: true, ..forward },
            reverse: conditions("loss = { model = 'bernoulli', p = 0.25 }"),
        };
        let links = vec![("wire".to_owned(), link)];
        let options = EmulationOptions { seed: u64::MAX, events: vec![event], ..EmulationOptions::default() };
        let request = KernelRequest::Start(StartRequest::new(links.clone(), options.clone(), vec!["w0a".into()]));
        let text = serde_json::to_string(&request).unwrap();
        let KernelRequest::Start(received) = serde_json::from_str(&text).unwrap() else { panic!("{text}") };
        let (received_links, received_options, ports) = received.into_parts();
        assert_eq!((received_links, ports), (links, vec!["w0a".to_owned()]));
        assert_eq!((received_options.events, received_options.seed), (options.events, u64::MAX));
    }
}
