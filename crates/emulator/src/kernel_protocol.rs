//! Requests to the emulator of the virtual kernel. A process writes one to [`DEVICE`], and reads the answer to its end.
//! Both are JSON. A process that reads before it writes gets the version of the emulator.

use serde::{Deserialize, Serialize};

use crate::emulation::EmulationOptions;
use crate::links::Link;

/// The device of the emulator. Each open file is an emulator of its own, and closing it stops the emulator.
pub const DEVICE: &str = "/dev/ekiden-emulator";

/// A request to the emulator.
#[derive(Debug, Serialize, Deserialize)]
pub enum KernelRequest {
    /// Starts the emulator; once for each open file. The answer is empty.
    Start {
        /// The links, by name.
        links: Vec<(String, Link)>,
        /// The options of the emulator.
        options: EmulationOptions,
        /// The interfaces of the process's network namespace, two for each link.
        ports: Vec<String>,
    },
    /// Asks for the counters: a list of [`DirectionReport`](crate::report::DirectionReport).
    Report,
    /// Asks for the records of packets that entered `link` at host `from`: a list of
    /// [`PacketRecord`](crate::records::PacketRecord).
    Records {
        /// The name of the link.
        link: String,
        /// The name of the sending host.
        from: String,
    },
}
