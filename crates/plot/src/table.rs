//! Tables for a terminal.

/// Rows under a heading, columns padded to their widest cell; the last one is left ragged. Columns
/// whose heading begins with `>` are aligned to the right.
pub fn table(out: &mut Vec<u8>, heading: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([heading[column].trim_start_matches('>').len()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let mut line = |cells: Vec<&str>| {
        let mut text = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let width = widths[column];
            match (heading[column].starts_with('>'), column + 1 == cells.len()) {
                (true, _) => text.push_str(&format!("{cell:>width$}")),
                (false, true) => text.push_str(cell),
                (false, false) => text.push_str(&format!("{cell:<width$}")),
            }
            text.push_str("  ");
        }
        out.extend_from_slice(text.trim_end().as_bytes());
        out.push(b'\n');
    };
    line(heading.iter().map(|name| name.trim_start_matches('>')).collect());
    rows.iter().for_each(|row| line(row.iter().map(String::as_str).collect()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_pads_all_but_the_last_column() {
        let mut out = Vec::new();
        let rows = [
            vec!["a".into(), "1".into(), "x".into()],
            vec!["bcd".into(), "22".into(), "yy".into()],
        ];
        table(&mut out, &["NAME", ">N", "REST"], &rows);
        assert_eq!(String::from_utf8(out).unwrap(), "NAME   N  REST\na      1  x\nbcd   22  yy\n");
    }
}
