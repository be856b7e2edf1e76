//! Recent events for the dashboard: the newest events as log lines, and the outcome of each profile. Sessions and
//! requests are excluded: they are too many, and the log contains them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ekiden_proto::event::Event;
use ekiden_proto::profile::AppliedSetting;
use serde::Serialize;

use super::log;

/// Maximum number of stored events.
const MAX_EVENTS: usize = 200;

/// Maximum number of listeners and hops whose profiles are stored.
const MAX_PROFILES: usize = 256;

/// Recent events, shared by all threads behind a short lock.
#[derive(Debug, Default)]
pub struct RecentEvents(Mutex<RecentState>);

#[derive(Debug, Default)]
struct RecentState {
    /// Number of events recorded since the start, including events that are no longer stored.
    count: u64,
    events: VecDeque<EventView>,
    profiles: BTreeMap<String, ProfileView>,
}

/// An event in the admin interface.
#[derive(Debug, Clone, Serialize)]
pub struct EventView {
    /// The sequence number of the event, from 1.
    pub number: u64,
    /// The log line of the event: the time, a space, and the text.
    pub line: String,
    /// Whether the event needs attention.
    pub trouble: bool,
}

/// The result of applying a profile.
#[derive(Debug, Clone, Serialize)]
pub struct ProfileView {
    /// The name of the listener or hop.
    pub place: String,
    /// The name of the profile.
    pub profile: String,
    /// Each setting with its result.
    pub settings: Vec<AppliedSetting>,
}

impl RecentEvents {
    /// Stores an event; when the maximum number is reached, the event replaces the oldest.
    pub fn record(&self, event: &Event) {
        match event {
            Event::Closed(_) | Event::Request(_) => {}
            Event::ProfileApplied { place, profile, settings } => self.record_profile(place, profile, settings),
            event => self.record_event(event),
        }
    }

    fn record_profile(&self, place: &str, profile: &str, settings: &[AppliedSetting]) {
        let granted = ProfileView { place: place.to_owned(), profile: profile.to_owned(), settings: settings.to_vec() };
        let mut recent = self.lock();
        if recent.profiles.len() == MAX_PROFILES && !recent.profiles.contains_key(place) {
            recent.profiles.pop_first();
        }
        recent.profiles.insert(place.to_owned(), granted);
    }

    fn record_event(&self, event: &Event) {
        let mut line = String::new();
        log::text_line(&mut line, event);
        let mut recent = self.lock();
        recent.count += 1;
        let number = recent.count;
        recent.events.truncate(MAX_EVENTS - 1);
        recent.events.push_front(EventView { number, line, trouble: is_trouble(event) });
    }

    /// Returns the most recent events, newest first, at most `limit`.
    #[must_use]
    pub fn events(&self, limit: usize) -> Vec<EventView> {
        self.lock().events.iter().take(limit).cloned().collect()
    }

    /// Returns the result of each profile, by listener and hop.
    #[must_use]
    pub fn profiles(&self) -> Vec<ProfileView> {
        self.lock().profiles.values().cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, RecentState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_trouble(event: &Event) -> bool {
    match event {
        Event::Warning { .. }
        | Event::QuotaUsed { .. }
        | Event::RelayUnreachable { .. }
        | Event::EtcdUnreachable { .. }
        | Event::AcceptPaused { .. }
        | Event::BypassBegan { .. }
        | Event::ReloadRejected { .. } => true,
        Event::Congestion(congestion) => congestion.name != congestion.in_use,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(number: usize) -> Event {
        Event::Warning { message: format!("number {number}") }
    }

    #[test]
    fn only_the_newest_events_are_kept() {
        let recent = RecentEvents::default();
        for number in 1..=MAX_EVENTS + 5 {
            recent.record(&warning(number));
        }
        let events = recent.events(usize::MAX);
        assert_eq!(events.len(), MAX_EVENTS);
        assert_eq!((events[0].number, events[MAX_EVENTS - 1].number), (MAX_EVENTS as u64 + 5, 6));
        assert!(events[0].line.ends_with(" warning number 205") && events[0].trouble, "{:?}", events[0]);
        assert_eq!(recent.events(3).len(), 3);
    }

    #[test]
    fn profiles_are_indexed_by_place_and_are_not_events() {
        let recent = RecentEvents::default();
        let applied = |place: &str, profile: &str| Event::ProfileApplied {
            place: place.to_owned(),
            profile: profile.to_owned(),
            settings: Vec::new(),
        };
        for place in 0..MAX_PROFILES {
            recent.record(&applied(&format!("{place:03}"), "lan"));
        }
        recent.record(&applied("001", "longhaul"));
        recent.record(&applied("zzz", "lan"));
        let profiles = recent.profiles();
        assert_eq!(profiles.len(), MAX_PROFILES);
        assert_eq!((profiles[0].place.as_str(), profiles[0].profile.as_str()), ("001", "longhaul"));
        assert!(recent.events(9).is_empty());
    }

    #[test]
    fn rejected_reload_is_trouble_and_accepted_reload_is_not() {
        assert!(!is_trouble(&Event::Reloaded { listeners: 1 }));
        assert!(is_trouble(&Event::ReloadRejected { mistakes: Vec::new() }));
    }
}
