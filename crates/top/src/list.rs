//! Which sessions are listed, in which order, which of them are on the screen, and which one is selected.
//!
//! Sorting happens when an answer comes or the order is changed; drawing and moving only look at what is visible.

use crate::answer::{DIRECTIONS, Session};
use crate::column::{COLUMNS, Column};
use crate::live::LiveSession;

/// The sessions as they are listed.
#[derive(Debug)]
pub struct SessionList {
    sort: Column,
    descending: bool,
    filter: String,
    /// Places in `LiveSessions::sessions`.
    order: Vec<usize>,
    /// The row that is selected, as a place in `order`.
    cursor: usize,
    /// The session that the selection stays with; none while it was not moved from the first row.
    selected: Option<u64>,
    /// The first row on the screen.
    first_row: usize,
}

impl SessionList {
    /// An empty one, that will be sorted so.
    pub fn new(sort: Column, filter: String) -> Self {
        let descending = !sort.is_text();
        Self { sort, descending, filter, order: Vec::new(), cursor: 0, selected: None, first_row: 0 }
    }

    pub fn sort(&self) -> Column {
        self.sort
    }

    pub fn is_descending(&self) -> bool {
        self.descending
    }

    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// How many are listed.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Filters and sorts anew.
    pub fn filter_and_sort(&mut self, sessions: &[LiveSession]) {
        let words: Vec<String> = self.filter.split_whitespace().map(str::to_lowercase).collect();
        self.order = (0..sessions.len()).filter(|at| has_all(&sessions[*at].session, &words)).collect();
        let (sort, descending) = (self.sort, self.descending);
        self.order.sort_by(|one, other| {
            let (one, other) = (&sessions[*one], &sessions[*other]);
            sort.compare(descending, one, other).then(one.session.session.cmp(&other.session.session))
        });
        let number = |at: &usize| sessions[*at].session.session;
        if let Some(selected) = self.selected {
            self.cursor = self.order.iter().position(|at| number(at) == selected).unwrap_or(self.cursor);
        }
        self.select(self.cursor, sessions);
    }

    /// Sorts by the column `by` places to the right.
    pub fn sort_by_next(&mut self, by: isize, sessions: &[LiveSession]) {
        let at = COLUMNS.iter().position(|column| *column == self.sort).unwrap_or(0);
        let beside = (at as isize + by).rem_euclid(COLUMNS.len() as isize);
        self.sort = COLUMNS[beside as usize];
        self.descending = !self.sort.is_text();
        self.filter_and_sort(sessions);
    }

    /// Turns the order around.
    pub fn reverse(&mut self, sessions: &[LiveSession]) {
        self.descending = !self.descending;
        self.filter_and_sort(sessions);
    }

    /// Lists only sessions that have all of these words somewhere.
    pub fn set_filter(&mut self, filter: String, sessions: &[LiveSession]) {
        self.filter = filter;
        self.filter_and_sort(sessions);
    }

    /// Moves the selection so many rows down.
    pub fn move_selection(&mut self, rows: isize, sessions: &[LiveSession]) {
        self.select(self.cursor.saturating_add_signed(rows), sessions);
    }

    /// The session that is selected.
    pub fn selected<'a>(&self, sessions: &'a [LiveSession]) -> Option<&'a LiveSession> {
        Some(&sessions[*self.order.get(self.cursor)?])
    }

    /// All that are listed, in order.
    pub fn listed<'a>(&'a self, sessions: &'a [LiveSession]) -> impl Iterator<Item = &'a LiveSession> {
        self.order.iter().map(move |at| &sessions[*at])
    }

    /// Those on a screen of so many rows, which is moved so that the selection is on it; and which row that is.
    pub fn visible<'a>(
        &'a mut self,
        rows: usize,
        sessions: &'a [LiveSession],
    ) -> (impl Iterator<Item = &'a LiveSession>, usize) {
        let last = self.order.len().saturating_sub(rows);
        self.first_row = self.first_row.min(self.cursor).max((self.cursor + 1).saturating_sub(rows)).min(last);
        let end = self.order.len().min(self.first_row + rows);
        (self.order[self.first_row..end].iter().map(move |at| &sessions[*at]), self.cursor - self.first_row)
    }

    fn select(&mut self, row: usize, sessions: &[LiveSession]) {
        self.cursor = row.min(self.order.len().saturating_sub(1));
        let session = self.selected(sessions).map(|running| running.session.session);
        self.selected = session.filter(|_| self.cursor > 0);
    }
}

/// Whether every word is somewhere in what a session is called.
fn has_all(session: &Session, words: &[String]) -> bool {
    let Session { session: number, client, listener, user, peer, trace, target, server, path, .. } = session;
    let places = [listener, user, peer, trace, target, server, path].map(Option::as_deref);
    words.iter().all(|word| {
        let has = |text: &str| text.to_lowercase().contains(word.as_str());
        has(client)
            || number.to_string() == *word
            || places.into_iter().flatten().any(has)
            || DIRECTIONS.into_iter().filter_map(|side| session.limit(side)).any(|limit| has(&limit.factor()))
    })
}
