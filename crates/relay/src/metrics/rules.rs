//! What the rules in the kernel have counted (nft(8), counters), asked for when somebody asks us, and not too often: it
//! takes a program.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter as Number;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::declare::Declare;
use crate::rules::{Counter, counters};

label_sets! {
    ByRule { listener: String, what: String }
}

/// How long an answer of the kernel's is good enough.
const FRESH: Duration = Duration::from_secs(10);

/// The numbers of rules.
#[derive(Debug, Default)]
pub struct Rules {
    packets: Family<ByRule, Number>,
    followed: Mutex<Followed>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Followed {
    /// None where there are no rules.
    instance: Option<u8>,
    asked: Option<Instant>,
}

impl Rules {
    pub(super) fn register(&self, r: &mut Registry) {
        let packets = "First packets by what the rules did with them; of all listeners where none is named";
        r.declare("rules_packets", packets, self.packets.clone());
    }

    /// Reads the counters of this daemon from now on; of none, where there are no rules.
    pub fn follow(&self, instance: Option<u8>) {
        *self.followed.lock().unwrap_or_else(PoisonError::into_inner) = Followed { instance, asked: None };
    }

    /// Which instance is to be asked now.
    fn due(&self) -> Option<u8> {
        let mut followed = self.followed.lock().unwrap_or_else(PoisonError::into_inner);
        let instance = followed.instance?;
        if followed.asked.is_some_and(|asked| asked.elapsed() < FRESH) {
            return None;
        }
        followed.asked = Some(Instant::now());
        Some(instance)
    }

    /// Asks the kernel, if it is time again. What it cannot say is left out.
    pub async fn refresh(&self) {
        let Some(instance) = self.due() else { return };
        let answer = tokio::task::spawn_blocking(move || counters(instance)).await;
        self.show(&answer.ok().and_then(Result::ok).unwrap_or_default());
    }

    pub(super) fn show(&self, counters: &[Counter]) {
        self.packets.clear();
        for Counter { what, listener, packets } in counters {
            let label = ByRule { listener: listener.clone().unwrap_or_default(), what: what.clone() };
            self.packets.get_or_create(&label).inc_by(*packets);
        }
    }
}
