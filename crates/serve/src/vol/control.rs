//! The control files of volumes.

use super::Volumes;
use covey_ninep::control::Commands;
use covey_ninep::tree::{Outcome, User};
use std::rc::Rc;

/// `/vol/ctl`.
pub struct All(pub Rc<Volumes>);

/// `/vol/NAME/ctl`: the same commands without the name.
pub struct One(pub Rc<Volumes>, pub String);

impl Commands for All {
    fn text(&self) -> String {
        let volumes = self.0.volumes.borrow();
        let all: String = volumes.iter().map(|(name, one)| self.0.lines(name, one)).collect();
        let unread = self.0.unread.iter().map(|why| format!("# {why}\n"));
        all + &unread.collect::<String>() + HELP
    }

    fn run(&self, _: &User, words: &[&str]) -> Outcome<()> {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        Outcome::later(self.0.clone().run_command(words))
    }

    fn allows(&self, user: &User) -> bool {
        crate::tree::is_owner(user)
    }

    fn is_private(&self) -> bool {
        true
    }
}

impl Commands for One {
    fn text(&self) -> String {
        self.0.find(&self.1).map_or_else(|_| String::new(), |one| self.0.lines(&self.1, &one))
    }

    fn run(&self, _: &User, words: &[&str]) -> Outcome<()> {
        let mut words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        words.insert(1, self.1.clone());
        Outcome::later(self.0.clone().run_command(words))
    }

    fn allows(&self, user: &User) -> bool {
        crate::tree::is_owner(user)
    }

    fn is_private(&self) -> bool {
        true
    }
}

/// The commands there are.
const HELP: &str = "\
# create NAME file|device|striped PATH [size BYTES] [block 512|4096] [read-only] [removable] [write-through]
# join NAME PATH
# rm NAME [keep]
# clone NAME NEW PATH
# resize NAME BYTES [shrink]
# export NAME HOST:PORT
# unexport NAME [HOST:PORT]
# clear-reservations NAME
# acl NAME allow IQN|deny IQN|chap USER SECRET|no-chap|mutual USER SECRET|no-mutual|trust-names|no-trust-names
";
