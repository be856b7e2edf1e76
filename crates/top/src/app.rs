//! What the screen shows, and what changes it: answers here, keys in `keys.rs`.

use std::time::Instant;

use crate::answer::Answer;
use crate::history::{Histories, History};
use crate::list::List;
use crate::live::{Live, Running};
use crate::look::Look;
use crate::run::Options;

/// Everything between a key and the screen.
pub struct App {
    /// Where the relay answers.
    pub relay: String,
    pub look: Look,
    pub live: Live,
    pub list: List,
    pub page: Page,
    pub paused: bool,
    /// Whether the page of keys is over it.
    pub helping: bool,
    /// Since when there is no answer.
    pub lost: Option<Lost>,
    /// Rows that one page of the list has, as it was drawn last.
    pub rows: usize,
    histories: Histories,
}

/// What is on the screen.
pub enum Page {
    /// The list.
    List,
    /// The list, and a filter that is being written; `before` is what it was.
    Filter { before: String },
    /// One session.
    Session(Box<Followed>),
}

/// A session that is looked at, also after it is over.
pub struct Followed {
    pub running: Running,
    pub history: History,
    pub over: bool,
}

/// The relay does not answer.
pub struct Lost {
    since: Instant,
    /// For how many seconds, when it was asked last.
    pub seconds: u64,
    pub why: String,
}

impl App {
    /// The list, before the first answer.
    pub fn new(relay: &str, options: &Options) -> Self {
        Self {
            relay: relay.to_owned(),
            look: options.look,
            live: Live::default(),
            list: List::new(options.sort, options.filter.clone()),
            page: Page::List,
            paused: false,
            helping: false,
            lost: None,
            rows: 1,
            histories: Histories::default(),
        }
    }

    /// Takes an answer, or why there is none; what was known last stays on the screen then.
    pub fn hear(&mut self, answer: Result<Answer, String>, now: Instant) {
        match answer {
            Ok(answer) => {
                self.lost = None;
                self.live.advance(answer);
                self.list.arrange(&self.live.sessions);
                self.histories.record(self.list.listed(&self.live.sessions));
                self.follow();
            }
            Err(why) => {
                let since = self.lost.as_ref().map_or(now, |lost| lost.since);
                self.lost = Some(Lost { since, seconds: (now - since).as_secs(), why });
            }
        }
    }

    /// Shows the selected session alone.
    pub fn open(&mut self) {
        if let Some(running) = self.list.selected(&self.live.sessions) {
            let history = self.histories.of(running.session.session);
            self.page = Page::Session(Box::new(Followed { running: running.clone(), history, over: false }));
        }
    }

    fn follow(&mut self) {
        let Page::Session(followed) = &mut self.page else { return };
        let number = followed.running.session.session;
        let still = self.live.sessions.iter().find(|running| running.session.session == number);
        match still.filter(|running| !followed.over && followed.running.can_become(&running.session)) {
            Some(running) => {
                followed.running = running.clone();
                followed.history.push(running);
            }
            None => followed.over = true,
        }
    }
}
