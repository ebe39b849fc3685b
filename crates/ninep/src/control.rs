//! Control files: one command per line, with quoted words. What is written piecemeal is done when its line
//! ends. A command that fails fails the write, and since 9P2000.L carries only a number, the file shows the
//! reader the last of its errors in words.
//!
//! ```text
//!   write "slow 2"  ──► Lines: nothing yet
//!   write "5\njump\n" ──► run ["slow", "25"] ──► Ok
//!                         run ["jump"] ──► EINVAL, kept for the reader: "jump: there is no such command"
//! ```
//!
//! A tree that consists of one control file is a [`Control`]; a tree that has many uses it for each, or
//! [`Lines`] and [`words`] alone.

use crate::message::Qid;
use crate::text::{O_ACCMODE, QID, attr, claimed};
use crate::tree::{
    Attach, Attr, Data, Errno, Opened, Outcome, Read, Result, SetAttr, Tree, User, Write, Written,
};
use covey_wire::Bytes;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// What a control file controls.
pub trait Commands: 'static {
    /// The state, as commands that would make it, and comments (`#`) on the commands there are.
    fn text(&self) -> String;

    /// Runs the command that these words are; there is at least one.
    fn run(&self, user: &User, words: &[&str]) -> Outcome<()>;

    /// Whether this user may write commands.
    fn allows(&self, user: &User) -> bool;

    /// What of a line an error repeats to whoever reads the file next: a command with a secret leaves it out. The line may be
    /// half of a command, or none.
    fn repeated(&self, line: &str) -> String {
        line.to_owned()
    }

    /// Whether only those who may write may read.
    fn is_private(&self) -> bool {
        false
    }
}

/// A control file, and a tree whose root it is.
pub struct Control<C> {
    file: Rc<Shared<C>>,
}

/// What all who have the file open share.
struct Shared<C> {
    commands: C,
    /// The last error of each user, as long as the user's next command has not succeeded.
    errors: RefCell<BTreeMap<u32, String>>,
}

/// An open control file.
#[derive(Clone, Default)]
pub struct Node(Rc<Open>);

#[derive(Default)]
struct Open {
    lines: RefCell<Lines>,
    /// The snapshot that is being read; a write ends it.
    text: RefCell<Option<Bytes>>,
}

impl<C: Commands> Control<C> {
    /// The control file of `commands`.
    pub fn new(commands: C) -> Control<C> {
        Control { file: Rc::new(Shared { commands, errors: RefCell::default() }) }
    }

    /// What it controls.
    pub fn commands(&self) -> &C {
        &self.file.commands
    }
}

impl<C: Commands> Tree for Control<C> {
    type Node = Node;

    fn attach(&self, attach: Attach) -> Outcome<(User, Qid, Node)> {
        Ok((claimed(&attach), QID, Node::default())).into()
    }

    fn enter(&self, user: &User, _: Attach) -> Outcome<(User, Qid, Node)> {
        Ok((user.clone(), QID, Node::default())).into()
    }

    fn root_kind(&self) -> u8 {
        Qid::FILE
    }

    fn getattr(&self, user: &Rc<User>, _: &Node) -> Outcome<Attr> {
        let may = self.file.check_reader(user).is_ok();
        let size = if may { self.file.text(user).len() } else { 0 };
        let mode = if self.file.commands.is_private() { 0o600 } else { 0o644 };
        Ok(attr(mode, size)).into()
    }

    /// A shell that redirects to the file truncates it, which changes nothing.
    fn setattr(&self, user: &Rc<User>, _: &Node, _: SetAttr) -> Outcome<()> {
        self.file.check_writer(user).into()
    }

    fn open(&self, user: &Rc<User>, _: &Node, flags: u32) -> Outcome<Opened<Node>> {
        let may = match flags & O_ACCMODE {
            0 => self.file.check_reader(user),
            _ => self.file.check_writer(user),
        };
        may.map(|()| Opened { qid: QID, node: Node::default(), blocking: false }).into()
    }

    fn read(&self, user: &Rc<User>, node: &Node, read: Read<'_>) -> Data {
        let mut text = node.0.text.borrow_mut();
        read.of(text.get_or_insert_with(|| self.file.text(user).into()))
    }

    fn write(&self, user: &Rc<User>, node: &Node, write: Write) -> Written {
        write.received(|_, data| {
            node.0.text.take();
            self.file.clone().write(user, &mut node.0.lines.borrow_mut(), &data)
        })
    }

    /// A line that was never ended is not run: it may be half of another command.
    fn clunk(&self, user: &Rc<User>, node: Node) {
        let Ok(open) = Rc::try_unwrap(node.0) else { return };
        let rest = open.lines.into_inner().part;
        if !rest.is_empty() {
            let why = refuse("the line was not ended, so the command was not run");
            self.file.note(user, &String::from_utf8_lossy(&rest), &why);
        }
    }
}

impl<C: Commands> Shared<C> {
    fn check_writer(&self, user: &User) -> Result<()> {
        if self.commands.allows(user) {
            return Ok(());
        }
        let what = format!("user {} may not use this control file", user.uid);
        Err(Errno::because(Errno::EACCES, what))
    }

    fn check_reader(&self, user: &User) -> Result<()> {
        if self.commands.is_private() { self.check_writer(user) } else { Ok(()) }
    }

    fn text(&self, user: &User) -> String {
        let mut text = self.commands.text();
        if let Some(error) = self.errors.borrow().get(&user.uid) {
            text += &format!("# last error: {error}\n");
        }
        text
    }

    fn write(self: Rc<Self>, user: &Rc<User>, lines: &mut Lines, data: &[u8]) -> Outcome<u32> {
        let count = data.len() as u32;
        let lines = match lines.push(data) {
            Ok(lines) => lines,
            Err(error) => {
                self.note(user, "...", &Err(error.clone()));
                return Err(error).into();
            }
        };
        let mut lines = VecDeque::from(lines);
        while let Some(line) = lines.pop_front() {
            match self.run(user, &line) {
                Outcome::Now(result) => {
                    self.note(user, &line, &result);
                    if let Err(error) = result {
                        return Err(error).into();
                    }
                }
                Outcome::Later(later) => {
                    let user = user.clone();
                    return Outcome::later(async move {
                        let mut result = later.await;
                        let mut line = line;
                        loop {
                            self.note(&user, &line, &result);
                            result?;
                            let Some(next) = lines.pop_front() else { return Ok(count) };
                            result = self.run(&user, &next).wait().await;
                            line = next;
                        }
                    });
                }
            }
        }
        Ok(count).into()
    }

    fn run(&self, user: &User, line: &str) -> Outcome<()> {
        match words(line) {
            Ok(words) if words.first().is_none_or(|word| word.starts_with('#')) => Ok(()).into(),
            Ok(words) => {
                let words: Vec<&str> = words.iter().map(String::as_str).collect();
                self.commands.run(user, &words)
            }
            Err(error) => Err(error).into(),
        }
    }

    /// Keeps a user's error until its next command succeeds.
    fn note(&self, user: &User, line: &str, result: &Result<()>) {
        let mut errors = self.errors.borrow_mut();
        match result {
            Ok(()) => {
                errors.remove(&user.uid);
            }
            Err(error) => {
                let why = if error.reason.is_empty() { error.text() } else { &error.reason };
                let line = self.commands.repeated(line);
                let line: String = line.chars().take(SHOWN_CHARS_MAX).collect();
                errors.insert(user.uid, format!("{line}: {why}").replace('\n', " "));
                if errors.len() > ERRORS_MAX {
                    errors.pop_first();
                }
            }
        }
    }
}

/// Puts lines together from what is written piecemeal.
#[derive(Clone, Debug, Default)]
pub struct Lines {
    part: Vec<u8>,
}

impl Lines {
    /// Takes bytes; answers the lines that end in them. EINVAL for a line of more than
    /// [`LINE_BYTES_MAX`], with which all that was written is forgotten.
    pub fn push(&mut self, data: &[u8]) -> Result<Vec<String>> {
        self.part.extend_from_slice(data);
        let Some(end) = self.part.iter().rposition(|byte| *byte == b'\n') else {
            return self.check().map(|()| Vec::new());
        };
        let rest = self.part.split_off(end + 1);
        let whole = std::mem::replace(&mut self.part, rest);
        self.check()?;
        let lines = whole[..end].split(|byte| *byte == b'\n');
        let lines: Vec<String> =
            lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        if lines.iter().any(|line| line.len() > LINE_BYTES_MAX) {
            self.part.clear();
            return refuse_long();
        }
        Ok(lines)
    }

    fn check(&mut self) -> Result<()> {
        if self.part.len() <= LINE_BYTES_MAX {
            return Ok(());
        }
        self.part.clear();
        refuse_long()
    }
}

/// The words of a line or of several, which may be quoted as in the shells of Plan 9: in single quotes, of
/// which two mean one.
pub fn words(line: &str) -> Result<Vec<String>> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut rest = line.chars().peekable();
    let mut is_quoted = false;
    while let Some(next) = rest.next() {
        match (next, is_quoted) {
            ('\'', true) if rest.peek() == Some(&'\'') => {
                rest.next();
                word.get_or_insert_default().push('\'');
            }
            ('\'', _) => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            (' ' | '\t' | '\r' | '\n', false) => words.extend(word.take()),
            (other, _) => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    if is_quoted {
        // Without the line, which may have a secret.
        return refuse("a quote is not closed");
    }
    Ok(words)
}

/// A word as [`words`] reads it back.
pub fn quote(word: &str) -> String {
    let is_plain = |c: char| !c.is_whitespace() && c != '\'' && c != '#';
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "''"))
    }
}

/// EINVAL with its reason.
pub fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(Errno::because(Errno::EINVAL, why))
}

fn refuse_long<T>() -> Result<T> {
    refuse(format!("a command has more than {LINE_BYTES_MAX} bytes"))
}

/// The longest line.
pub const LINE_BYTES_MAX: usize = 64 << 10;
/// How much of a line an error repeats.
const SHOWN_CHARS_MAX: usize = 80;
/// How many users' errors are kept.
const ERRORS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_quoted() {
        assert_eq!(words("a  'b c' d''e '' 'it''s'").unwrap(), ["a", "b c", "de", "", "it's"]);
        assert_eq!(words("a\nb 'c\nd'\n").unwrap(), ["a", "b", "c\nd"]);
        assert!(words("'open").unwrap_err().to_string().contains("not closed"));
    }

    #[test]
    fn a_quoted_word_is_read_back() {
        for word in ["", "plain", "two words", "it's", "#", "tab\there", "''", "k=v"] {
            assert_eq!(words(&quote(word)).unwrap(), [word]);
        }
        assert_eq!(quote("plain"), "plain");
    }

    struct Safe;

    impl Commands for Safe {
        fn text(&self) -> String {
            String::new()
        }

        fn run(&self, _: &User, _: &[&str]) -> Outcome<()> {
            refuse("it is another one").into()
        }

        fn allows(&self, _: &User) -> bool {
            true
        }

        fn repeated(&self, line: &str) -> String {
            line.split(' ').next().unwrap_or_default().to_owned()
        }
    }

    #[test]
    fn an_error_does_not_repeat_a_secret() {
        let (control, user) = (Control::new(Safe), User { uid: 7, gid: 7, groups: vec![] });
        for (line, why) in [
            ("open sesame", "open: it is another one"),
            ("open 'sesame", "open: a quote is not closed"),
        ] {
            let Outcome::Now(result) = control.file.run(&user, line) else { panic!("it is over") };
            control.file.note(&user, line, &result);
            assert_eq!(control.file.text(&user), format!("# last error: {why}\n"));
        }
    }

    #[test]
    fn a_line_is_whole_when_it_ends() {
        let mut lines = Lines::default();
        assert!(lines.push(b"slo").unwrap().is_empty());
        assert_eq!(lines.push(b"w 2\nreset\n\nju").unwrap(), ["slow 2", "reset", ""]);
        assert_eq!(lines.push(b"mp\n").unwrap(), ["jump"]);
    }

    #[test]
    fn a_line_over_the_limit_is_refused_from_both_sides() {
        let longest = [vec![b'x'; LINE_BYTES_MAX], vec![b'\n']].concat();
        let mut lines = Lines::default();
        assert_eq!(lines.push(&longest).unwrap()[0].len(), LINE_BYTES_MAX);
        for long in [&[b'x'; LINE_BYTES_MAX + 1][..], &[b"x", &longest[..]].concat()] {
            assert_eq!(lines.push(long).unwrap_err().code, Errno::EINVAL);
            assert_eq!(lines.push(b"next\n").unwrap(), ["next"]);
        }
    }
}
