//! A table before it is HTML, Markdown or text for a terminal.

/// A heading, and rows of as many cells as there are columns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReportTable {
    /// The heads of the columns.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Vec<TableCell>>,
    /// How many leading columns say what group a row is in.
    pub groups: usize,
}

/// The head of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// What it says.
    pub title: String,
    /// Whether the column holds numbers, which are aligned to the right.
    pub numeric: bool,
}

/// A cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableCell {
    /// What it says.
    pub text: String,
    /// How it says it, where that is possible. Never the only bearer of a meaning.
    pub kind: CellKind,
}

/// How a cell is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind {
    /// Like any other.
    Plain,
    /// As wanted.
    Good,
    /// Not as wanted.
    Bad,
    /// Nobody can tell.
    Unknown,
    /// The same as in the row above.
    Repeated,
    /// The name of a treatment: with its colour and mark.
    Treatment(usize),
}

impl TableCell {
    /// Text with a tone.
    pub fn new(text: impl Into<String>, kind: CellKind) -> Self {
        Self { text: text.into(), kind }
    }
}

impl<T: Into<String>> From<T> for TableCell {
    fn from(text: T) -> Self {
        Self::new(text, CellKind::Plain)
    }
}

impl ReportTable {
    /// A table without rows. A title that begins with `#` heads a column of numbers.
    #[must_use]
    pub fn new<T: AsRef<str>>(titles: &[T]) -> Self {
        let column = |title: &str| match title.strip_prefix('#') {
            Some(title) => Column { title: title.to_owned(), numeric: true },
            None => Column { title: title.to_owned(), numeric: false },
        };
        Self { columns: titles.iter().map(|title| column(title.as_ref())).collect(), rows: Vec::new(), groups: 0 }
    }

    /// Adds a row.
    pub fn push(&mut self, row: Vec<TableCell>) {
        debug_assert_eq!(row.len(), self.columns.len(), "a row of another table");
        self.rows.push(row);
    }

    /// Groups rows by the leading `columns`, and marks what a row repeats of the row above.
    #[must_use]
    pub fn grouped_by(mut self, columns: usize) -> Self {
        self.groups = columns;
        for row in (1..self.rows.len()).rev() {
            for column in 0..columns {
                if self.rows[row][column].text != self.rows[row - 1][column].text {
                    break;
                }
                self.rows[row][column].kind = CellKind::Repeated;
            }
        }
        self
    }

    /// Leaves out the columns in which no row says anything.
    #[must_use]
    pub fn without_empty_columns(mut self) -> Self {
        for column in (0..self.columns.len()).rev() {
            if self.rows.iter().all(|row| row[column].text.is_empty()) {
                self.columns.remove(column);
                for row in &mut self.rows {
                    row.remove(column);
                }
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_columns_go_and_repeats_are_marked() {
        let mut table = ReportTable::new(&["size", "remark", "#n"]);
        for (size, n) in [("1 MB", "7"), ("1 MB", "6"), ("9 MB", "6")] {
            table.push(vec![size.into(), "".into(), n.into()]);
        }
        let table = table.grouped_by(1).without_empty_columns();
        assert_eq!(table.columns.iter().map(|column| column.title.as_str()).collect::<Vec<_>>(), ["size", "n"]);
        assert!(table.columns[1].numeric);
        let tones: Vec<CellKind> = table.rows.iter().map(|row| row[0].kind).collect();
        assert_eq!(tones, [CellKind::Plain, CellKind::Repeated, CellKind::Plain]);
    }
}
