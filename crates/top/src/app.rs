//! The state of the program: sessions, list, page and outage. Answers change it here, keys in `keys.rs`.

use std::time::{Duration, Instant};

use crate::answer::SessionsResponse;
use crate::column::Column;
use crate::history::{Histories, History};
use crate::list::SessionList;
use crate::live::{LiveSession, LiveSessions};
use crate::theme::Theme;

/// The options of the command line.
#[derive(Debug, Clone)]
pub struct TopOptions {
    /// Interval between two requests to the relay.
    pub interval: Duration,
    /// The initial sort column.
    pub sort: Column,
    /// The initial filter: words that a listed session must contain, separated by white space. Empty lists all.
    pub filter: String,
    /// Colours and characters that the terminal can show.
    pub theme: Theme,
}

/// The state from which the screen is drawn.
pub struct App {
    /// The relay's admin address, for display.
    pub relay: String,
    pub theme: Theme,
    pub live: LiveSessions,
    pub list: SessionList,
    pub page: Page,
    pub paused: bool,
    /// Whether the help page covers the current page.
    pub shows_help: bool,
    /// Set while the relay does not answer.
    pub outage: Option<Outage>,
    /// Number of list rows that fit the screen, as of the last draw.
    pub visible_rows: usize,
    histories: Histories,
}

/// The page on the screen.
pub enum Page {
    /// The list of sessions.
    List,
    /// The list of sessions while the filter is edited; `before` is the filter that Esc restores.
    Filter { before: String },
    /// The details of one session.
    Session(Box<FollowedSession>),
}

/// The session on the detail page. It stays on the page after it has ended.
pub struct FollowedSession {
    pub running: LiveSession,
    pub history: History,
    pub is_over: bool,
}

/// A period in which the relay does not answer.
pub struct Outage {
    since: Instant,
    /// Duration in seconds, as of the last failed request.
    pub seconds: u64,
    pub why: String,
}

impl App {
    /// Creates the state before the first answer: an empty list.
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

    /// Processes an answer, or the reason why a request failed. After a failure the last known sessions stay on the
    /// screen.
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

    /// Opens the detail page of the selected session.
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
