//! Selects the columns that fit a terminal width, by importance.

use crate::answer::Direction::{Down, Up};
use crate::column::{COLUMNS, Column};

/// Groups of columns that are shown together, the most important first. A terminal 80 characters wide shows the groups
/// up to `Session`.
const BY_IMPORTANCE: [&[Column]; 14] = [
    &[Column::Target],
    &[Column::Rate(Down), Column::Rate(Up)],
    &[Column::Client],
    &[Column::Limited],
    &[Column::Rtt(Down), Column::Rtt(Up)],
    &[Column::Session],
    &[Column::Age],
    &[Column::Path],
    &[Column::Queued(Down), Column::Queued(Up)],
    &[Column::Retransmitted(Down), Column::Retransmitted(Up)],
    &[Column::Window(Down), Column::Window(Up)],
    &[Column::Bytes(Down), Column::Bytes(Up)],
    &[Column::User],
    &[Column::Start(Down), Column::Start(Up)],
];

/// Returns the minimum, typical and maximum width of a column in characters.
fn widths(column: Column) -> [u16; 3] {
    match column {
        Column::Session => [7; 3],
        // An IPv4 address, an IPv4 address with port, an IPv6 address with port.
        Column::Client => [15, 21, 47],
        Column::Target => [15, 28, 60],
        Column::Path => [10, 16, 30],
        Column::User => [10, 10, 20],
        // The length of `down:client_slow`.
        Column::Limited => [16, 16, 20],
        // The length of `resumed`.
        Column::Start(_) => [7; 3],
        _ => [5; 3],
    }
}

/// Returns the columns that fit `width` from left to right, with their widths. The column `sorted` is always among
/// them.
pub fn fit(width: u16, sorted: Column) -> Vec<(Column, u16)> {
    let mut chosen: Vec<Column> = Vec::new();
    let mut used_width = 0;
    let first = BY_IMPORTANCE.iter().find(|group| group.contains(&sorted));
    for group in first.into_iter().chain(&BY_IMPORTANCE) {
        let needed: u16 = group.iter().map(|column| widths(*column)[0] + 1).sum();
        // The last column needs no separator.
        if !chosen.contains(&group[0]) && (used_width + needed <= width + 1 || chosen.is_empty()) {
            chosen.extend(*group);
            used_width += needed;
        }
    }
    let visible = COLUMNS.into_iter().filter(|column| chosen.contains(column));
    let mut fitting: Vec<_> = visible.map(|column| (column, widths(column)[0])).collect();
    let remaining = grow(&mut fitting, (width + 1).saturating_sub(used_width), |column| widths(column)[1]);
    grow(&mut fitting, remaining, |column| widths(column)[2]);
    fitting
}

/// Distributes `remaining` characters over the columns in turn, up to `most` for each, and returns the rest.
fn grow(columns: &mut [(Column, u16)], mut remaining: u16, most: fn(Column) -> u16) -> u16 {
    loop {
        let before = remaining;
        for (column, width) in &mut *columns {
            if remaining > 0 && *width < most(*column) {
                *width += 1;
                remaining -= 1;
            }
        }
        if remaining == before {
            return remaining;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(width: u16, sorted: Column) -> String {
        let columns = fit(width, sorted);
        let total: u16 = columns.iter().map(|(_, width)| width + 1).sum();
        assert!(total <= width + 1 || columns.len() == 1, "{width}: {columns:?}");
        columns.iter().map(|(column, _)| column.name()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn narrow_screens_show_the_most_important_columns() {
        let by = Column::Rate(Down);
        assert_eq!(shown(80, by), "session client target down up rtt-down rtt-up limited");
        assert_eq!(shown(79, by), "client target age down up rtt-down rtt-up limited");
        assert_eq!(shown(44, by), "client target down up");
        assert_eq!(shown(12, by), "down up");
        assert_eq!(shown(3, Column::Target), "target");
        let all = COLUMNS.map(Column::name).join(" ");
        assert_eq!(shown(400, by), all);
    }

    #[test]
    fn sort_column_is_shown_and_the_width_is_used() {
        let columns = shown(80, Column::Window(Up));
        assert!(columns.contains("window-down window-up"), "{columns}");
        let wide: u16 = fit(100, Column::Age).iter().map(|(_, width)| width + 1).sum();
        assert_eq!(wide, 101);
    }
}
