//! A table before it is rendered as HTML, Markdown or text for a terminal.

/// Column titles, and rows of as many cells as there are columns.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ReportTable {
    /// The columns, from left to right.
    pub columns: Vec<Column>,
    /// The rows, each as long as `columns`.
    pub rows: Vec<Vec<TableCell>>,
    /// The number of leading columns that identify the group of a row.
    pub groups: usize,
}

/// Title and alignment of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Title, without the `#` of a numeric column.
    pub title: String,
    /// Whether the column holds numbers, which are aligned to the right.
    pub numeric: bool,
}

/// A cell of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableCell {
    /// Text of the cell, not escaped.
    pub text: String,
    /// Highlighting, where the format supports it. The text alone must be sufficient.
    pub kind: CellKind,
}

/// The highlighting of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CellKind {
    /// A cell without any highlighting.
    Plain,
    /// A result as wanted, for example a passed check.
    Good,
    /// A result not as wanted, for example a failed check.
    Bad,
    /// A result that cannot be determined.
    Unknown,
    /// Equal to the cell above, as a repeated level.
    Repeated,
    /// The name of a treatment, with its colour and mark.
    Treatment(usize),
}

impl TableCell {
    /// Creates a cell with highlighting.
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
    /// Creates a table without rows. A title that begins with `#` is the heading of a column of numbers.
    #[must_use]
    pub fn new<T: AsRef<str>>(titles: &[T]) -> Self {
        let column = |title: &str| match title.strip_prefix('#') {
            Some(title) => Column { title: title.to_owned(), numeric: true },
            None => Column { title: title.to_owned(), numeric: false },
        };
        Self { columns: titles.iter().map(|title| column(title.as_ref())).collect(), rows: Vec::new(), groups: 0 }
    }

    /// Appends a row, which must have one cell for each column.
    pub fn push(&mut self, row: Vec<TableCell>) {
        debug_assert_eq!(row.len(), self.columns.len(), "a row of another table");
        self.rows.push(row);
    }

    /// Groups rows by the leading `columns`, and marks the cells that equal the cell above.
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

    /// Removes the columns in which every cell is empty.
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
    fn empty_columns_are_removed_and_repeats_are_marked() {
        let mut table = ReportTable::new(&["size", "remark", "#n"]);
        for (size, n) in [("1 MB", "7"), ("1 MB", "6"), ("9 MB", "6")] {
            table.push(vec![size.into(), "".into(), n.into()]);
        }
        let table = table.grouped_by(1).without_empty_columns();
        assert_eq!(table.columns.iter().map(|column| column.title.as_str()).collect::<Vec<_>>(), ["size", "n"]);
        assert!(table.columns[1].numeric);
        let kinds: Vec<CellKind> = table.rows.iter().map(|row| row[0].kind).collect();
        assert_eq!(kinds, [CellKind::Plain, CellKind::Repeated, CellKind::Plain]);
    }
}
