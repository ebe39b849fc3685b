//! A page in pieces: its blocks, and what comments that readers do not see say about each.
//!
//! `<!-- run -->` before a block: it is typed as pasted. Behind a colon is what that needs (`fuse`, `lab`, a program, a
//! library of ours), and `unlike` where its output is of other machines and is not compared. Lines of the comment below the
//! first are typed before the block.
//!
//! `<!-- type` and lines: these are typed, in this place. `<!-- file: NAME -->`: the block is the content of a file.
//! `<!-- not run: REASON -->`: the block is not typed.

/// A block, with the comment in front of it.
#[derive(Debug, PartialEq)]
pub struct Block<'a> {
    /// Its first line in the page, from 1 on.
    pub line: usize,
    pub lines: Vec<&'a str>,
    pub mark: Option<Mark<'a>>,
}

/// What a comment says of the block behind it.
#[derive(Debug, PartialEq)]
pub enum Mark<'a> {
    Run {
        needs: Vec<&'a str>,
        before: Vec<&'a str>,
    },
    File(&'a str),
    NotRun(&'a str),
    /// Of no block.
    Type(Vec<&'a str>),
}

/// The blocks of a page in their order. A mark `Type` stands alone, as a block without lines.
pub fn blocks(text: &str) -> Vec<Block<'_>> {
    let lines: Vec<&str> = text.lines().collect();
    let (mut all, mut mark, mut at) = (Vec::new(), None, 0);
    while at < lines.len() {
        let (line, begun) = (lines[at], at);
        if let Some((found, next)) = comment(&lines, at) {
            at = next;
            if matches!(found, Mark::Type(_)) {
                all.push(Block { line: begun + 1, lines: Vec::new(), mark: Some(found) });
            } else {
                let before = mark.replace(found);
                assert_eq!(before, None, "line {}: a mark behind a mark", begun + 1);
            }
        } else if line.starts_with("```") {
            let end = lines[at + 1..].iter().position(|line| *line == "```");
            let end = at + 1 + end.unwrap_or_else(|| panic!("line {}: no end", begun + 1));
            let lines = lines[at + 1..end].to_vec();
            all.push(Block { line: begun + 2, lines, mark: mark.take() });
            at = end + 1;
        } else if line.starts_with("    ") && (at == 0 || lines[at - 1].is_empty()) {
            let of_block = |line: &&str| line.starts_with("    ") || line.is_empty();
            let count = lines[at..].iter().take_while(|line| of_block(line)).count();
            let block = lines[at..at + count].iter();
            let mut block: Vec<&str> =
                block.map(|line| line.strip_prefix("    ").unwrap_or(line)).collect();
            while block.pop_if(|line| line.is_empty()).is_some() {}
            all.push(Block { line: begun + 1, lines: block, mark: mark.take() });
            at += count;
        } else {
            assert!(line.is_empty() || mark.is_none(), "line {}: a mark of no block", begun + 1);
            at += 1;
        }
    }
    assert_eq!(mark, None, "a mark of no block at the end");
    all
}

/// A comment of ours that begins at a line, and the line behind it.
fn comment<'a>(lines: &[&'a str], at: usize) -> Option<(Mark<'a>, usize)> {
    let first = lines[at].strip_prefix("<!-- ")?;
    let (first, hidden, next) = match first.strip_suffix("-->") {
        Some(first) => (first.trim_end(), Vec::new(), at + 1),
        None => {
            let end = lines[at..].iter().position(|line| *line == "-->");
            let end = at + end.unwrap_or_else(|| panic!("line {}: no end", at + 1));
            (first, lines[at + 1..end].to_vec(), end + 1)
        }
    };
    let (word, rest) = first.split_once(": ").unwrap_or((first, ""));
    let mark = match word {
        "run" => Mark::Run { needs: rest.split_whitespace().collect(), before: hidden },
        "type" => Mark::Type(hidden),
        "file" => Mark::File(rest),
        "not run" if !rest.is_empty() => Mark::NotRun(rest),
        _ => panic!("line {}: no such mark: {first}", at + 1),
    };
    Some((mark, next))
}

#[test]
fn a_page_falls_into_its_blocks() {
    let page = "text\n\n    none\n\n<!-- run: fuse\nmkdir x\n-->\n\n    a b\n\n    c\n\n<!-- type\nd\n-->\n\
        - item\n    of a list\n\n<!-- not run: a table -->\n```text\ne\n```\n<!-- file: f.c -->\n```c\nint f;\n```\n";
    let found = blocks(page);
    let run = Mark::Run { needs: vec!["fuse"], before: vec!["mkdir x"] };
    let expected = [
        Block { line: 3, lines: vec!["none"], mark: None },
        Block { line: 9, lines: vec!["a b", "", "c"], mark: Some(run) },
        Block { line: 13, lines: vec![], mark: Some(Mark::Type(vec!["d"])) },
        Block { line: 21, lines: vec!["e"], mark: Some(Mark::NotRun("a table")) },
        Block { line: 25, lines: vec!["int f;"], mark: Some(Mark::File("f.c")) },
    ];
    assert_eq!(found, expected);
}
