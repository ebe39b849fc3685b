//! Tables for a terminal.

use unicode_width::UnicodeWidthStr;

/// Rows under a heading, columns padded to their widest cell; the last one is left ragged. Columns
/// whose heading begins with `>` are aligned to the right.
pub fn table(out: &mut Vec<u8>, heading: &[&str], rows: &[Vec<String>]) {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].width());
        cells.chain([heading[column].trim_start_matches('>').width()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let mut line = |cells: Vec<&str>| {
        let mut text = String::new();
        for (column, cell) in cells.iter().enumerate() {
            let padding = " ".repeat(widths[column] - cell.width());
            let (before, after) = if heading[column].starts_with('>') {
                (padding.as_str(), "")
            } else {
                ("", padding.as_str())
            };
            text.extend([before, cell, after, "  "]);
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

    #[test]
    fn columns_stand_below_each_other_whatever_the_width_of_their_letters() {
        let mut out = Vec::new();
        let rows = [vec!["東京".into(), "1".into()], vec!["cafe\u{301}".into(), "2".into()]];
        table(&mut out, &["NAME", "N"], &rows);
        assert_eq!(String::from_utf8(out).unwrap(), "NAME  N\n東京  1\ncafe\u{301}  2\n");
    }
}
