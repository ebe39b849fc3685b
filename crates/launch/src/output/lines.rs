//! One rank's stream, line by line.

/// Puts a stream's lines together.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    part: Vec<u8>,
    /// Stands before each line.
    label: Vec<u8>,
}

impl Lines {
    /// Of a stream whose lines get a label; it may be empty.
    pub fn new(label: &str) -> Lines {
        Lines { part: Vec::new(), label: label.as_bytes().to_vec() }
    }

    /// Takes bytes; appends the lines that end in them. A line of more than [`LINE_BYTES_MAX`] is cut there.
    pub fn push(&mut self, mut data: &[u8], out: &mut Vec<u8>) {
        while !data.is_empty() {
            let room = LINE_BYTES_MAX - self.part.len();
            let end = data.iter().take(room).position(|byte| *byte == b'\n');
            let taken = end.map_or(data.len().min(room), |end| end + 1);
            let (now, later) = data.split_at(taken);
            self.part.extend_from_slice(now);
            data = later;
            if end.is_some() {
                self.emit(out);
            } else if self.part.len() == LINE_BYTES_MAX {
                self.part.push(b'\n');
                self.emit(out);
            }
        }
    }

    /// The stream has ended: what is left is a line, too.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.part.is_empty() {
            self.part.push(b'\n');
            self.emit(out);
        }
    }

    fn emit(&mut self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.label);
        out.append(&mut self.part);
    }
}

/// The longest line that leaves in one piece.
pub const LINE_BYTES_MAX: usize = 256 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(label: &str, pieces: &[&[u8]]) -> Vec<u8> {
        let (mut lines, mut out) = (Lines::new(label), Vec::new());
        pieces.iter().for_each(|piece| lines.push(piece, &mut out));
        lines.finish(&mut out);
        out
    }

    #[test]
    fn a_line_waits_for_its_end() {
        let (mut lines, mut out) = (Lines::new("n1: "), Vec::new());
        lines.push(b"one\ntw", &mut out);
        assert_eq!(out, b"n1: one\n");
        lines.push(b"o\n\nlast", &mut out);
        assert_eq!(out, b"n1: one\nn1: two\nn1: \n");
        lines.finish(&mut out);
        lines.finish(&mut out);
        assert_eq!(out, b"n1: one\nn1: two\nn1: \nn1: last\n");
    }

    #[test]
    fn a_line_over_the_limit_is_cut_and_one_at_the_limit_is_not() {
        let longest = vec![b'x'; LINE_BYTES_MAX - 1];
        assert_eq!(all("", &[&longest, b"\nb\n"]), [&longest[..], b"\nb\n"].concat());
        let over = vec![b'x'; LINE_BYTES_MAX + 1];
        let cut = [&vec![b'x'; LINE_BYTES_MAX][..], b"\nx\n"].concat();
        assert_eq!(all("", &[&over, b"\n"]), cut);
    }

    proptest! {
        #[test]
        fn however_it_arrives_the_lines_are_the_same(
            text in "[ab\n]{0,200}", cuts in proptest::collection::vec(1usize..9, 0..60),
        ) {
            let mut rest = text.as_bytes();
            let mut pieces = Vec::new();
            for cut in cuts {
                let (now, later) = rest.split_at(cut.min(rest.len()));
                pieces.push(now);
                rest = later;
            }
            pieces.push(rest);
            let expected: String = text.lines().map(|line| format!("r: {line}\n")).collect();
            prop_assert_eq!(String::from_utf8(all("r: ", &pieces)).unwrap(), expected);
        }
    }
}
