//! Filter, sort order, selection and scroll position of the list of sessions.
//!
//! The list is sorted when an answer arrives or the order changes. Drawing and moving only access visible rows.

use crate::answer::{DIRECTIONS, Session};
use crate::column::{COLUMNS, Column};
use crate::live::LiveSession;

/// The list of sessions. It stores indices, so most methods take the slice `LiveSessions::sessions`.
#[derive(Debug)]
pub struct SessionList {
    sort: Column,
    descending: bool,
    filter: String,
    /// Indices into `LiveSessions::sessions`, in list order.
    order: Vec<usize>,
    /// The selected row, an index into `order`.
    cursor: usize,
    /// The session that the selection follows; `None` while the selection is on the first row.
    selected: Option<u64>,
    /// The first visible row, an index into `order`.
    first_row: usize,
}

impl SessionList {
    /// Creates an empty list. Text sorts ascending at first, numbers descending.
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

    /// Returns the number of listed sessions.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Rebuilds the list from new sessions. The selection stays with its session.
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

    /// Sorts by the column `by` places to the right of the current one, cyclically.
    pub fn sort_by_next(&mut self, by: isize, sessions: &[LiveSession]) {
        let at = COLUMNS.iter().position(|column| *column == self.sort).unwrap_or(0);
        let next = (at as isize + by).rem_euclid(COLUMNS.len() as isize);
        self.sort = COLUMNS[next as usize];
        self.descending = !self.sort.is_text();
        self.filter_and_sort(sessions);
    }

    /// Reverses the sort order.
    pub fn reverse(&mut self, sessions: &[LiveSession]) {
        self.descending = !self.descending;
        self.filter_and_sort(sessions);
    }

    /// Lists only sessions that contain all of these words.
    pub fn set_filter(&mut self, filter: String, sessions: &[LiveSession]) {
        self.filter = filter;
        self.filter_and_sort(sessions);
    }

    /// Moves the selection down by `rows`, or up if negative.
    pub fn move_selection(&mut self, rows: isize, sessions: &[LiveSession]) {
        self.select(self.cursor.saturating_add_signed(rows), sessions);
    }

    /// Returns the selected session.
    pub fn selected<'a>(&self, sessions: &'a [LiveSession]) -> Option<&'a LiveSession> {
        Some(&sessions[*self.order.get(self.cursor)?])
    }

    /// Returns all listed sessions in order.
    pub fn listed<'a>(&'a self, sessions: &'a [LiveSession]) -> impl Iterator<Item = &'a LiveSession> {
        self.order.iter().map(move |at| &sessions[*at])
    }

    /// Returns the sessions on a screen of `rows` rows, and the row of the selection. Scrolls so that the selection is
    /// visible.
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

/// Returns whether each word occurs in a name, an address or a limit of the session, or is its number.
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
