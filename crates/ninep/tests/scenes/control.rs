//! Control files: commands by line, errors in words, and who may write.

use crate::pair::paths::{Door, Driven};
use crate::pair::*;
use covey_ninep::control::{Commands, Control, LINE_BYTES_MAX, refuse};
use covey_ninep::message::Message;
use covey_ninep::namespace::Namespace;
use covey_ninep::tree::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// `set WORD...` is kept, `wait` waits for the bell, anything else is refused. User 5 is the owner.
#[derive(Clone, Default)]
struct Box {
    words: Rc<RefCell<Vec<String>>>,
    bell: Bell,
    is_rung: Rc<Cell<bool>>,
    is_private: Rc<Cell<bool>>,
}

impl Commands for Box {
    fn text(&self) -> String {
        self.words.borrow().iter().map(|word| format!("set {word}\n")).collect()
    }

    fn run(&self, _: &User, words: &[&str]) -> Outcome<()> {
        match words {
            ["set", rest @ ..] => {
                self.words.borrow_mut().extend(rest.iter().map(|word| word.to_string()));
                Ok(()).into()
            }
            ["wait"] => {
                let is_rung = self.is_rung.clone();
                Outcome::later(self.bell.wait(move || is_rung.get().then_some(Ok(()))))
            }
            ["plain"] => Errno::EBUSY.into(),
            [other, ..] => refuse(format!("there is no command {other:?}; hint: set, wait")).into(),
            [] => unreachable!("there is a word"),
        }
    }

    fn allows(&self, user: &User) -> bool {
        user.uid == 5 || user.uid == 6
    }

    fn is_private(&self) -> bool {
        self.is_private.get()
    }
}

/// Connections of these users to one control file at `ctl`.
fn connected<const N: usize>(uids: [u32; N]) -> (Box, [Pair<Namespace>; N]) {
    let (commands, names) = (Box::default(), Namespace::new(Door));
    names.bind("ctl", Rc::new(Control::new(commands.clone()))).unwrap();
    let tree = Rc::new(names);
    let pairs = uids.map(|uid| {
        let mut pair = Pair::raw(tree.clone(), Default::default(), Default::default());
        let conn = pair.conn.clone();
        pair.run(conn.version()).unwrap();
        pair.run(conn.auth_and_attach(0, "", Some(uid), "", None, [0; 32])).unwrap();
        pair
    });
    (commands, pairs)
}

fn words(commands: &Box) -> Vec<String> {
    commands.words.take()
}

#[test]
fn a_command_is_run_when_its_line_ends_however_it_is_written() {
    let (commands, [mut pair]) = connected([5]);
    let ctl = pair.open_at("ctl", 1).unwrap();
    for piece in ["se", "t 'two ", "words'"] {
        pair.call(write(ctl, 0, piece.as_bytes())).unwrap();
        assert!(words(&commands).is_empty());
    }
    pair.call(write(ctl, 77, b"\n\n# nothing\nset a\nset")).unwrap();
    assert_eq!(words(&commands), ["two words", "a"]);
    // Another who has it open begins lines of its own.
    let other = pair.open_at("ctl", 1).unwrap();
    pair.call(write(other, 0, b"set c\n")).unwrap();
    pair.call(write(ctl, 0, b" b\n")).unwrap();
    assert_eq!(words(&commands), ["c", "b"]);
}

#[test]
fn a_command_that_fails_fails_the_write_and_is_found_in_words() {
    let (commands, [mut pair]) = connected([5]);
    let ctl = pair.open_at("ctl", 2).unwrap();
    assert_eq!(code(pair.call(write(ctl, 0, b"set a\njump 'far'\nset never\n"))), Errno::EINVAL);
    let wanted = "set a\n# last error: jump 'far': there is no command \"jump\"; hint: set, wait\n";
    assert_eq!(pair.text_at("ctl").unwrap(), wanted);
    assert_eq!(data(pair.call(read(ctl, 0, 999))), wanted.as_bytes(), "by whoever wrote it, too");
    assert_eq!(code(pair.call(write(ctl, 0, b"plain\n"))), Errno::EBUSY);
    assert!(pair.text_at("ctl").unwrap().ends_with("# last error: plain: busy\n"));
    assert_eq!(code(pair.call(write(ctl, 0, b"set 'open\n"))), Errno::EINVAL);
    assert!(pair.text_at("ctl").unwrap().contains("a quote is not closed"));
    assert_eq!(code(pair.call(write(ctl, 0, &[b'x'; LINE_BYTES_MAX + 1]))), Errno::EINVAL);
    assert!(pair.text_at("ctl").unwrap().contains(&format!("more than {LINE_BYTES_MAX} bytes")));
    pair.call(write(ctl, 0, b"set b\n")).unwrap();
    assert_eq!(pair.text_at("ctl").unwrap(), "set a\nset b\n", "over with the next success");
    assert_eq!(words(&commands), ["a", "b"]);
}

#[test]
fn each_user_finds_its_own_last_error() {
    let (_, [mut five, mut six, mut seven]) = connected([5, 6, 7]);
    let ctl = five.open_at("ctl", 1).unwrap();
    assert_eq!(code(five.call(write(ctl, 0, b"jump\n"))), Errno::EINVAL);
    let ctl = six.open_at("ctl", 1).unwrap();
    six.call(write(ctl, 0, b"set a\n")).unwrap();
    assert!(five.text_at("ctl").unwrap().contains("jump"));
    assert_eq!(six.text_at("ctl").unwrap(), "set a\n");
    assert_eq!(seven.text_at("ctl").unwrap(), "set a\n");
}

#[test]
fn who_may_write_is_decided_by_the_attached_user() {
    let (commands, [mut owner, mut other]) = connected([5, 7]);
    for flags in [1, 2, 1 | O_TRUNC] {
        assert_eq!(other.open_at("ctl", flags), Err(Errno::EACCES));
    }
    let fid = other.walk_to(0, "ctl").unwrap();
    let cut = |fid| Message::Tsetattr {
        fid,
        valid: 8,
        mode: 0,
        uid: 0,
        gid: 0,
        size: 0,
        atime_sec: 0,
        atime_nsec: 0,
        mtime_sec: 0,
        mtime_nsec: 0,
    };
    assert_eq!(code(other.call(cut(fid))), Errno::EACCES);
    let fid = owner.walk_to(0, "ctl").unwrap();
    owner.call(cut(fid)).unwrap();
    owner.open_at("ctl", 1 | O_TRUNC).unwrap();
    assert!(words(&commands).is_empty());
}

#[test]
fn a_line_that_is_never_ended_is_not_run_and_said_so() {
    let (commands, [mut pair]) = connected([5]);
    let ctl = pair.open_at("ctl", 1).unwrap();
    pair.call(write(ctl, 0, b"set half")).unwrap();
    pair.call(Message::Tclunk { fid: ctl }).unwrap();
    assert!(words(&commands).is_empty());
    let text = pair.text_at("ctl").unwrap();
    assert!(text.contains("set half: the line was not ended"), "{text}");
}

#[test]
fn a_command_that_waits_holds_up_its_own_write_and_nothing_else() {
    let (commands, [mut pair]) = connected([5]);
    let (ctl, other) = (pair.open_at("ctl", 1).unwrap(), pair.open_at("ctl", 1).unwrap());
    let mut waits = std::pin::pin!(pair.conn.call(write(ctl, 0, b"wait\nset then\njump\nset x\n")));
    pair.settle();
    assert!(poll_once(waits.as_mut()).is_none());
    pair.call(write(other, 0, b"set now\n")).unwrap();
    assert_eq!(words(&commands), ["now"]);
    commands.is_rung.set(true);
    commands.bell.ring();
    assert_eq!(code(pair.run(waits)), Errno::EINVAL);
    assert_eq!(words(&commands), ["then"]);
    assert!(pair.text_at("ctl").unwrap().contains("last error: jump"));
    // A flushed write ends with the command that it waits for.
    commands.is_rung.set(false);
    drop(pair.conn.call(write(ctl, 0, b"wait\nset late\n")));
    pair.settle();
    commands.is_rung.set(true);
    commands.bell.ring();
    pair.settle();
    assert!(words(&commands).is_empty());
}

#[test]
fn a_control_file_can_be_served_alone_and_lets_nobody_claim_a_user() {
    use crate::pair::raw::{Raw, ecode};
    use covey_ninep::message::{NOFID, Number};
    let mut raw = Raw::new(Rc::new(Control::new(Box::default())), Default::default());
    raw.version("9P2000.L");
    let claim = Message::Tattach {
        fid: 0,
        afid: NOFID,
        uname: "".into(),
        aname: "".into(),
        n_uname: Number(5),
    };
    raw.ask(claim);
    assert_eq!(ecode(&raw.ask(open(0, 1))), Errno::EACCES);
}

#[test]
fn a_private_file_is_read_by_those_who_may_write_it_only() {
    let (commands, [mut owner, mut other]) = connected([5, 7]);
    assert_eq!(other.text_at("ctl").as_deref(), Ok(""));
    commands.is_private.set(true);
    assert_eq!(other.text_at("ctl"), Err(Errno::EACCES));
    assert_eq!(owner.text_at("ctl").as_deref(), Ok(""));
    let text = covey_ninep::text::Text::new(|| "secret").only_for(|user| user.uid == 5);
    let names = Namespace::new(Door);
    names.bind("text", Rc::new(text)).unwrap();
    let mut pair = Pair::attached(names);
    assert_eq!(pair.text_at("text"), Err(Errno::EACCES));
}
