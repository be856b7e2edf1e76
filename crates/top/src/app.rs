//! What the screen shows, and what changes it: answers here, keys in `keys.rs`.

use std::time::Instant;

use crate::answer::SessionsResponse;
use crate::history::{Histories, History};
use crate::list::SessionList;
use crate::live::{LiveSession, LiveSessions};
use crate::look::Theme;
use crate::run::TopOptions;

/// Everything between a key and the screen.
pub struct App {
    /// Where the relay answers.
    pub relay: String,
    pub theme: Theme,
    pub live: LiveSessions,
    pub list: SessionList,
    pub page: Page,
    pub paused: bool,
    /// Whether the page of keys is over it.
    pub shows_help: bool,
    /// Since when there is no answer.
    pub outage: Option<Outage>,
    /// Rows that one page of the list has, as it was drawn last.
    pub visible_rows: usize,
    histories: Histories,
}

/// What is on the screen.
pub enum Page {
    /// The list.
    List,
    /// The list, and a filter that is being written; `before` is what it was.
    Filter { before: String },
    /// One session.
    Session(Box<FollowedSession>),
}

/// A session that is looked at, also after it is over.
pub struct FollowedSession {
    pub running: LiveSession,
    pub history: History,
    pub is_over: bool,
}

/// The relay does not answer.
pub struct Outage {
    since: Instant,
    /// For how many seconds, when it was asked last.
    pub seconds: u64,
    pub why: String,
}

impl App {
    /// The list, before the first answer.
    pub fn new(relay: &str, options: &TopOptions) -> Self {
        Self {
            relay: relay.to_owned(),
            theme: options.theme,
            live: LiveSessions::default(),
            list: SessionList::new(options.sort, options.filter.clone()),
            page: Page::List,
            paused: false,
            shows_help: false,
            outage: None,
            visible_rows: 1,
            histories: Histories::default(),
        }
    }

    /// Takes an answer, or why there is none; what was known last stays on the screen then.
    pub fn on_response(&mut self, answer: Result<SessionsResponse, String>, now: Instant) {
        match answer {
            Ok(answer) => {
                self.outage = None;
                self.live.update(answer);
                self.list.filter_and_sort(&self.live.sessions);
                self.histories.record(self.list.listed(&self.live.sessions));
                self.update_followed();
            }
            Err(why) => {
                let since = self.outage.as_ref().map_or(now, |lost| lost.since);
                self.outage = Some(Outage { since, seconds: (now - since).as_secs(), why });
            }
        }
    }

    /// Shows the selected session alone.
    pub fn open_selected(&mut self) {
        if let Some(running) = self.list.selected(&self.live.sessions) {
            let history = self.histories.get(running.session.session);
            self.page = Page::Session(Box::new(FollowedSession { running: running.clone(), history, is_over: false }));
        }
    }

    fn update_followed(&mut self) {
        let Page::Session(followed) = &mut self.page else { return };
        let number = followed.running.session.session;
        let still = self.live.sessions.iter().find(|running| running.session.session == number);
        match still.filter(|running| !followed.is_over && followed.running.can_continue_as(&running.session)) {
            Some(running) => {
                followed.running = running.clone();
                followed.history.push(running);
            }
            None => followed.is_over = true,
        }
    }
}
