//! Reference values.

/// A table of reference values: a header and rows, separated by commas.
pub(crate) struct Table {
    columns: Vec<&'static str>,
    cells: Vec<Vec<&'static str>>,
}

impl Table {
    pub(crate) fn read(text: &'static str) -> Self {
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        Self {
            columns: lines.next().expect("the table has a header"),
            cells: lines.collect(),
        }
    }

    /// The rows in which these columns have these values.
    pub(crate) fn rows(&self, wanted: &[(&str, &str)]) -> Vec<usize> {
        let fits = |row: &usize| {
            wanted
                .iter()
                .all(|(name, value)| self.text(*row, name) == *value)
        };
        (0..self.cells.len()).filter(fits).collect()
    }

    pub(crate) fn text(&self, row: usize, column: &str) -> &'static str {
        let place = self.columns.iter().position(|name| *name == column);
        self.cells[row][place.expect("the table has this column")]
    }

    pub(crate) fn number(&self, row: usize, column: &str) -> f64 {
        self.text(row, column)
            .parse()
            .expect("the cell is a number")
    }
}
