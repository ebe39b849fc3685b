//! A node's control file: one command a line, quoted words, and an error with its reason when a command
//! makes no sense. What is written piecemeal is done when its line ends.

use super::watch::Watch;
use covey_ninep::tree::{Errno, Result};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// A line of commands is no longer than this.
const LINE_BYTES_MAX: usize = 4096;

/// What was written through one fid and is no whole line yet.
pub type Pending = Rc<RefCell<Vec<u8>>>;

/// What the metadata server does beside the watches.
pub struct Meta<'a> {
    /// Begins a copy of the metadata, and says whether this node has any.
    pub copy: &'a dyn Fn() -> bool,
    /// Begins the times of its log anew.
    pub reset: &'a dyn Fn(),
}

/// Takes bytes, and does every command whose line they end.
pub fn write(
    pending: &Pending,
    data: &[u8],
    watches: &[Rc<Watch>],
    meta: &Meta<'_>,
) -> Result<u32> {
    let mut line = pending.borrow_mut();
    for &byte in data {
        if byte != b'\n' {
            if line.len() == LINE_BYTES_MAX {
                line.clear();
                return refuse(format!("a command has more than {LINE_BYTES_MAX} bytes"));
            }
            line.push(byte);
            continue;
        }
        let command = std::mem::take(&mut *line);
        let words = words(&String::from_utf8_lossy(&command))?;
        run(&words.iter().map(String::as_str).collect::<Vec<_>>(), watches, meta)?;
    }
    Ok(data.len() as u32)
}

/// The state, as commands that would make it, and the commands there are.
pub fn text(watches: &[Rc<Watch>]) -> String {
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
        [comment, ..] if comment.starts_with('#') => Ok(()),
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
        ["copy"] => match (meta.copy)() {
            true => Ok(()),
            false => refuse("copy: this node is not the metadata server".into()),
        },
        [command @ ("slow" | "reset" | "copy"), ..] => {
            refuse(format!("{command} has {} words after it; hint: read the file", words.len() - 1))
        }
        [command, ..] => {
            refuse(format!("there is no command {command:?}; hint: slow, reset, copy"))
        }
    }
}

/// Words as the shells of Plan 9 quote them: in single quotes, two of which mean one.
fn words(line: &str) -> Result<Vec<String>> {
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
            (' ' | '\t' | '\r', false) => words.extend(word.take()),
            (other, _) => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    if is_quoted {
        return refuse(format!("{line:?}: a quote is not closed"));
    }
    Ok(words)
}

fn refuse<T>(why: String) -> Result<T> {
    Err(Errno::because(Errno::EINVAL, why))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_may_be_quoted() {
        assert_eq!(words("a  'b c' d''e '' 'it''s'").unwrap(), ["a", "b c", "de", "", "it's"]);
        assert!(words("'open").unwrap_err().to_string().contains("not closed"));
    }

    const NONE: Meta<'static> = Meta { copy: &|| false, reset: &|| {} };

    #[test]
    fn a_command_is_done_when_its_line_ends() {
        let (watch, pending) = (Watch::new("data"), Pending::default());
        let watches = [watch.clone()];
        for piece in ["slo", "w 2", "5"] {
            assert_eq!(
                write(&pending, piece.as_bytes(), &watches, &NONE).unwrap(),
                piece.len() as u32
            );
        }
        assert_eq!(watch.slow(), Some(Duration::from_secs(1)));
        write(&pending, b"\nreset\n# nothing\n\n", &watches, &NONE).unwrap();
        assert_eq!(watch.slow(), Some(Duration::from_millis(25)));
        assert!(text(&watches).starts_with("slow 25\n"));
        write(&pending, b"slow off\n", &watches, &NONE).unwrap();
        assert_eq!(watch.slow(), None);
    }

    #[test]
    fn a_wrong_command_says_what_is_wrong() {
        let pending = Pending::default();
        for (line, why) in
            [("jump\n", "jump"), ("slow x\n", "milliseconds"), ("reset 1\n", "words")]
        {
            let error = write(&pending, line.as_bytes(), &[], &NONE).unwrap_err();
            assert!(error.to_string().contains(why), "{error}");
        }
        assert!(write(&pending, &[b'x'; 5000], &[], &NONE).is_err());
    }
}
