//! Columns of tables for people. A cell may be of any length: padding stops at [`WIDEST`]. Without that, one long name would make
//! every row of a table as long; the standard library pads to 65,535 characters at most.

/// No column is padded to more characters than this. Longer cells are written whole and push the rest of their row.
pub const WIDEST: usize = 200;

/// The width of a column: the characters of its longest cell, [`WIDEST`] at most.
pub fn column_width<'a>(cells: impl IntoIterator<Item = &'a str>) -> usize {
    cells.into_iter().map(|cell| cell.chars().count()).max().unwrap_or(0).min(WIDEST)
}

/// The cell at the left of a column.
pub fn pad_right(cell: &str, width: usize) -> String {
    format!("{cell}{}", padding(cell, width))
}

/// The cell at the right of a column.
pub fn pad_left(cell: &str, width: usize) -> String {
    format!("{}{cell}", padding(cell, width))
}

fn padding(cell: &str, width: usize) -> String {
    " ".repeat(width.min(WIDEST).saturating_sub(cell.chars().count()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_of_any_length_are_padded() {
        assert_eq!((pad_right("ä", 3), pad_left("ä", 3)), ("ä  ".to_string(), "  ä".to_string()));
        assert_eq!(column_width(["a", "äöü", ""]), 3);
        assert_eq!(column_width([]), 0);
        for length in [WIDEST, 65_535, 65_536, 1_000_000] {
            let long = "x".repeat(length);
            let width = column_width([long.as_str(), "short"]);
            assert_eq!(width, WIDEST);
            assert_eq!(pad_right(&long, length), long);
            assert_eq!(pad_left("short", length).len(), WIDEST);
        }
    }
}
