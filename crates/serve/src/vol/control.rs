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

    fn repeated(&self, line: &str) -> String {
        without_secrets(line, ACL_WORDS)
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

    fn repeated(&self, line: &str) -> String {
        without_secrets(line, ACL_WORDS - 1)
    }
}

/// A line of `/vol/ctl` or `/vol/NAME/ctl` as it may be repeated: what follows `chap USER` and `mutual USER` is a secret, also
/// where the command is misspelt. A user's name that is quoted is left out, too.
fn without_secrets(line: &str, words_max: usize) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is = |word: &str, command: &str| word.replace('\'', "") == command;
    let secret = words.iter().position(|word| is(word, "chap") || is(word, "mutual"));
    let shown = match words.first() {
        Some(first) if is(first, "acl") => words_max,
        _ => secret.map_or(words.len(), |at| at + 2),
    };
    if shown >= words.len() && secret.is_none() {
        return line.to_owned();
    }
    // Where the user's name is missing the last word is the secret.
    let shown = shown.min(words.len() - 1);
    let plain = words.iter().take(shown).take_while(|word| !word.contains('\''));
    let plain: Vec<&str> = plain.copied().collect();
    format!("{} ...", plain.join(" "))
}

/// `acl NAME chap USER`.
const ACL_WORDS: usize = 4;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_is_refused_is_repeated_without_its_secret() {
        for (line, repeated) in [
            ("acl disk chap alice short", "acl disk chap alice ..."),
            ("acl disk mutual alice: 'it''s: secret'", "acl disk mutual alice: ..."),
            ("acl disk chap 'two words' secret", "acl disk chap ..."),
            ("acl disk 'chap' alice secret", "acl disk ..."),
            ("acl  disk chpa alice secret", "acl disk chpa alice ..."),
            ("alc disk chap alice secret", "alc disk chap alice ..."),
            ("'acl' disk chap alice secret", " ..."),
            ("acl disk chap secret", "acl disk chap ..."),
            ("chap secret", "chap ..."),
            ("acl disk allow iqn.2026-01.a:b", "acl disk allow iqn.2026-01.a:b"),
            ("export disk 0.0.0.0:3260", "export disk 0.0.0.0:3260"),
            ("create disk file '/a b' size 4096", "create disk file '/a b' size 4096"),
            ("", ""),
        ] {
            assert_eq!(without_secrets(line, ACL_WORDS), repeated, "{line}");
        }
        let own = without_secrets("acl chap alice secret", ACL_WORDS - 1);
        assert_eq!(own, "acl chap alice ...");
    }
}
