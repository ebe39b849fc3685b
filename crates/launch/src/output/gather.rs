//! Equal output written once.

use super::{Lines, fold};

/// Keeps what the ranks write until they end, within a budget. When that is spent, folding is given up: what
/// was kept leaves with labels, and so does all that follows.
#[derive(Debug)]
pub struct Gather {
    names: Vec<String>,
    kept: Vec<Vec<u8>>,
    bytes: usize,
    bytes_max: usize,
    /// Once folding is given up.
    spilled: Option<Vec<Lines>>,
}

impl Gather {
    /// For ranks of these names, keeping at most so many bytes.
    pub fn new(names: Vec<String>, bytes_max: usize) -> Gather {
        Gather { kept: vec![Vec::new(); names.len()], names, bytes: 0, bytes_max, spilled: None }
    }

    /// Takes what a rank has written; appends what must leave now, which is nothing as long as all can be kept.
    pub fn push(&mut self, rank: usize, data: &[u8], out: &mut Vec<u8>) {
        if let Some(lines) = &mut self.spilled {
            return lines[rank].push(data, out);
        }
        self.kept[rank].extend_from_slice(data);
        self.bytes += data.len();
        if self.bytes > self.bytes_max {
            self.spill(out);
        }
    }

    /// Whether folding was given up.
    pub fn has_spilled(&self) -> bool {
        self.spilled.is_some()
    }

    fn spill(&mut self, out: &mut Vec<u8>) {
        let label = |name: &String| Lines::new(&format!("{name}: "));
        let mut lines: Vec<Lines> = self.names.iter().map(label).collect();
        for (lines, kept) in lines.iter_mut().zip(&mut self.kept) {
            lines.push(&std::mem::take(kept), out);
        }
        self.spilled = Some(lines);
    }

    /// All have ended: appends each different output once, under a heading of the names, those of the first
    /// rank first. Ranks that wrote nothing are not mentioned.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        if let Some(lines) = &mut self.spilled {
            return lines.iter_mut().for_each(|lines| lines.finish(out));
        }
        let mut ranks: Vec<usize> =
            (0..self.kept.len()).filter(|rank| !self.kept[*rank].is_empty()).collect();
        while let Some(first) = ranks.first().copied() {
            let (same, others) =
                ranks.iter().partition(|rank| self.kept[**rank] == self.kept[first]);
            ranks = others;
            self.write(first, same, out);
        }
    }

    fn write(&self, first: usize, same: Vec<usize>, out: &mut Vec<u8>) {
        let names: Vec<&str> = same.iter().map(|rank| self.names[*rank].as_str()).collect();
        let count = if names.len() > 1 { format!(" ({})", names.len()) } else { String::new() };
        out.extend(format!("{RULE}\n{}{count}\n{RULE}\n", fold(&names)).bytes());
        out.extend_from_slice(&self.kept[first]);
        if !self.kept[first].ends_with(b"\n") {
            out.push(b'\n');
        }
    }
}

/// Above and below a heading, as long as `clush -b` draws it.
const RULE: &str = "---------------";

#[cfg(test)]
mod tests {
    use super::*;

    fn gather(ranks: usize, bytes_max: usize) -> Gather {
        Gather::new((1..=ranks).map(|rank| format!("n{rank}")).collect(), bytes_max)
    }

    #[test]
    fn equal_output_is_written_once() {
        let (mut all, mut out) = (gather(4, 100), Vec::new());
        for (rank, text) in [(1, "6.1\n"), (0, "6."), (3, "5.10"), (0, "1\n")] {
            all.push(rank, text.as_bytes(), &mut out);
        }
        assert!(out.is_empty());
        all.finish(&mut out);
        let rule = RULE;
        let expected = format!("{rule}\nn[1-2] (2)\n{rule}\n6.1\n{rule}\nn4\n{rule}\n5.10\n");
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn beyond_the_budget_output_is_labelled_and_nothing_is_lost() {
        let (mut all, mut out) = (gather(2, 8), Vec::new());
        all.push(0, b"aaa\nb", &mut out);
        all.push(1, b"ccc", &mut out);
        assert!(out.is_empty() && !all.has_spilled());
        all.push(1, b"\n", &mut out);
        assert!(all.has_spilled());
        all.push(0, b"b\n", &mut out);
        all.push(1, b"d", &mut out);
        all.finish(&mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "n1: aaa\nn2: ccc\nn1: bb\nn2: d\n");
    }
}
