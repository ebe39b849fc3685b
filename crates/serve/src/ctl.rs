//! The commands of a node's control file.

use super::tree::{Node, is_owner};
use super::watch::Watch;
use super::works::{Check, Move, Works};
use covey_ninep::control::{Commands, refuse};
use covey_ninep::tree::{Outcome, Result, User};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What a node can be told to do.
pub struct NodeCommands(pub Rc<Node>);

impl Commands for NodeCommands {
    fn text(&self) -> String {
        text(&self.0.watches())
    }

    fn run(&self, _: &User, words: &[&str]) -> Outcome<()> {
        let node = &self.0;
        let reset = || node.meta.iter().for_each(|meta| meta.0.times().reset());
        let works = node.meta.as_ref().map(|_| &node.works);
        let meta = Meta { copy: &|| begin_copy(node), reset: &reset, works };
        run(words, &node.watches(), &meta).into()
    }

    fn allows(&self, user: &User) -> bool {
        is_owner(user)
    }

    /// It tells what all users do.
    fn is_private(&self) -> bool {
        true
    }
}

/// What the metadata server does beside the watches.
struct Meta<'a> {
    /// Begins a copy of the metadata, and says whether this node has any.
    copy: &'a dyn Fn() -> bool,
    /// Begins the times of its log anew.
    reset: &'a dyn Fn(),
    /// What commands report.
    works: Option<&'a Works>,
}

fn begin_copy(node: &Node) -> bool {
    let Some(meta) = node.meta.as_ref().map(|meta| meta.0.clone()) else { return false };
    covey_io::task::spawn(async move {
        if let Err(error) = meta.copy_now().await {
            tracing::warn!("the metadata was not copied to the I/O servers: {error}");
        }
    });
    true
}

/// The state, as commands that would make it, and the commands there are.
fn text(watches: &[Rc<Watch>]) -> String {
    let slow = match watches.first().and_then(|watch| watch.slow()) {
        Some(limit) => limit.as_millis().to_string(),
        None => "off".to_owned(),
    };
    format!(
        "slow {slow}\n\
         # slow MILLISECONDS|off: what /slow keeps\n\
         # reset: counts and latencies of operations, clients and the log begin anew\n\
         # copy: begins a copy of the metadata on the I/O servers\n"
    )
}

fn run(words: &[&str], watches: &[Rc<Watch>], meta: &Meta<'_>) -> Result<()> {
    match words {
        [] => Ok(()),
        ["slow", "off"] => {
            watches.iter().for_each(|watch| watch.set_slow(None));
            Ok(())
        }
        ["slow", limit] => match limit.parse() {
            Ok(limit) => {
                let limit = Some(Duration::from_millis(limit));
                watches.iter().for_each(|watch| watch.set_slow(limit));
                Ok(())
            }
            Err(_) => refuse(format!("slow {limit:?}: milliseconds or off are wanted")),
        },
        ["reset"] => {
            watches.iter().for_each(|watch| watch.reset());
            (meta.reset)();
            Ok(())
        }
        ["copy"] => {
            if (meta.copy)() {
                Ok(())
            } else {
                refuse("copy: this node is not the metadata server")
            }
        }
        [command @ ("moving" | "moved" | "checked"), rest @ ..] => {
            let Some(works) = meta.works else {
                return refuse(format!("{command}: this node is not the metadata server"));
            };
            if report(works, command, rest).is_some() {
                return Ok(());
            }
            refuse(format!("{command} {rest:?}: a name and numbers are wanted"))
        }
        [command @ ("slow" | "reset" | "copy"), ..] => {
            refuse(format!("{command} has {} words after it; hint: read the file", words.len() - 1))
        }
        [command, ..] => {
            refuse(format!("there is no command {command:?}; hint: slow, reset, copy"))
        }
    }
}

/// What a command of `covey` says of itself; None where that makes no sense.
fn report(works: &Works, command: &str, words: &[&str]) -> Option<()> {
    let number = |word: &str| word.parse::<u64>().ok();
    match (command, words) {
        ("moving", [name, bytes, bytes_total, seconds]) => {
            let (bytes, bytes_total) = (number(bytes)?, number(bytes_total)?);
            let report = Move { bytes, bytes_total, seconds: number(seconds)? };
            works.moves(Instant::now(), name, report);
        }
        ("moved", [name]) => works.moved(name),
        ("checked", [found, left, unasked]) => {
            let (found, left) = (number(found)?, number(left)?);
            let check = Check { found, left, unasked: number(unasked)? };
            works.checked(jiff::Timestamp::now(), check);
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Meta<'static> = Meta { copy: &|| false, reset: &|| {}, works: None };

    #[test]
    fn the_metadata_server_keeps_what_commands_report() {
        let works = Works::default();
        let meta = Meta { works: Some(&works), ..NONE };
        run(&["moving", "drain io3", "5", "10", "2"], &[], &meta).unwrap();
        run(&["checked", "3", "1", "0"], &[], &meta).unwrap();
        let text = works.text(Instant::now());
        assert!(text.contains("moving \"drain io3\" bytes 5 bytes_total 10 seconds 2\n"), "{text}");
        assert!(text.contains(" found 3 left 1 unasked 0\n"), "{text}");
        for words in [&["moving", "x"][..], &["moving", "x", "1", "2", "-3"], &["checked", "1"]] {
            let error = run(words, &[], &meta).unwrap_err();
            assert!(error.to_string().contains("numbers"), "{error}");
        }
        let error = run(&["moved", "drain io3"], &[], &NONE).unwrap_err();
        assert!(error.to_string().contains("not the metadata server"), "{error}");
    }

    #[test]
    fn a_command_sets_what_the_text_says() {
        let watch = Watch::new("data");
        let watches = [watch.clone()];
        run(&["slow", "25"], &watches, &NONE).unwrap();
        assert_eq!(watch.slow(), Some(Duration::from_millis(25)));
        assert!(text(&watches).starts_with("slow 25\n"));
        run(&["slow", "off"], &watches, &NONE).unwrap();
        run(&["reset"], &watches, &NONE).unwrap();
        assert_eq!(watch.slow(), None);
    }

    #[test]
    fn a_wrong_command_says_what_is_wrong() {
        for (words, why) in [
            (&["jump"][..], "jump"),
            (&["slow", "x"], "milliseconds"),
            (&["reset", "1"], "words"),
            (&["copy"], "not the metadata server"),
        ] {
            let error = run(words, &[], &NONE).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
    }
}
