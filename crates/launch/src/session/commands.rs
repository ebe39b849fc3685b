//! The commands of a session's control file.

use super::host::{Host, Size, Which};
use super::state::{Session, State};
use super::{ID_BYTES_MAX, signals};
use crate::spawn::manifest::is_inside;
use covey_ninep::control::{Commands, quote, refuse};
use covey_ninep::tree::{Outcome, Result, User};
use std::rc::Rc;

/// What a session can be told to do.
pub(super) struct SessionCommands(pub Rc<Session>, pub Rc<dyn Host>);

impl Commands for SessionCommands {
    /// Its first line is the number, for scripts.
    fn text(&self) -> String {
        let session = &self.0;
        let mut text = format!("{}\n# state {}", session.number, session.state().word());
        if let State::Finished(_, status) = session.state() {
            text += &format!(" {status}");
        }
        let kind = if session.is_persistent.get() { "persistent" } else { "normal" };
        text += &format!("\n# type {kind}\n");
        let id = session.id();
        if !id.is_empty() {
            text += &format!("# id {}\n", quote(&id));
        }
        if let Some(transfer) = session.incoming.borrow().upgrade() {
            let (here, all) = transfer.progress();
            text += &format!("# here {here} of {all} chunks\n");
        }
        for failure in session.failures.borrow().iter() {
            let reason = failure.reason.replace('\n', " ");
            text += &format!("# failed {} {reason}\n", failure.destination);
        }
        text
    }

    fn run(&self, _: &User, words: &[&str]) -> Outcome<()> {
        let session = &self.0;
        match words {
            ["exec"] => session.start(Which::Copied),
            ["exec", path] => session.start(Which::OnNode((*path).to_owned())),
            ["exec", "in", path] if is_inside(path.as_bytes()) => {
                session.start(Which::Inside((*path).to_owned()))
            }
            ["exec", "in", path] => {
                refuse(format!("exec in {path:?}: names below fs/ are wanted, as in bin/work"))
                    .into()
            }
            ["clone", fan_out, list] => session.spread(self.1.clone(), fan_out, list),
            ["signal", signal] => match signals::number(signal) {
                Some(number) => match session.running() {
                    Ok(job) => job.signal(number),
                    Err(error) => Err(error).into(),
                },
                None => refuse(format!("there is no signal {signal:?}; hint: TERM, or 15")).into(),
            },
            words => run_now(session, words).into(),
        }
    }

    /// Who may not could not open the file.
    fn allows(&self, _: &User) -> bool {
        true
    }
}

/// The commands that do not wait.
fn run_now(session: &Rc<Session>, words: &[&str]) -> Result<()> {
    match words {
        ["type", kind @ ("normal" | "persistent")] => {
            session.is_persistent.set(*kind == "persistent");
            Ok(())
        }
        ["type", other] => refuse(format!("type {other:?}: normal or persistent is wanted")),
        ["id", id] => session.set_id(id),
        ["wipe"] => {
            session.wipe();
            Ok(())
        }
        ["close"] => {
            session.running()?.close_input();
            Ok(())
        }
        ["cwd", directory] => {
            session.check_new()?;
            *session.directory.borrow_mut() = Some((*directory).to_owned());
            Ok(())
        }
        ["tty", rows, columns] => {
            session.check_new()?;
            session.terminal.set(Some(size(rows, columns)?));
            Ok(())
        }
        ["winsize", rows, columns] => session.running()?.resize(size(rows, columns)?),
        [command, ..] if COMMANDS.iter().any(|usage| is_for(usage, command)) => {
            let usage = COMMANDS.iter().find(|usage| is_for(usage, command));
            let words = words.len() - 1;
            refuse(format!("{command} has {words} words after it; usage: {}", usage.unwrap_or(&"")))
        }
        [command, ..] => {
            refuse(format!("there is no command {command:?}; hint: {}", COMMANDS.join(", ")))
        }
        [] => Ok(()),
    }
}

fn is_for(usage: &str, command: &str) -> bool {
    usage.split(' ').next() == Some(command)
}

fn size(rows: &str, columns: &str) -> Result<Size> {
    match (rows.parse(), columns.parse()) {
        (Ok(rows), Ok(columns)) => Ok(Size { rows, columns }),
        _ => refuse(format!("{rows:?} {columns:?}: lines and columns are wanted, up to 65535")),
    }
}

impl Session {
    /// Sets the id of its job: one line of text.
    pub(super) fn set_id(&self, id: &str) -> Result<()> {
        if id.len() > ID_BYTES_MAX || id.chars().any(char::is_control) {
            return refuse(format!("an id has at most {ID_BYTES_MAX} bytes in one line"));
        }
        *self.id.borrow_mut() = id.to_owned();
        Ok(())
    }
}

const COMMANDS: &[&str] = &[
    "exec [PATH | in NAME]",
    "clone N DEST,DEST,...",
    "signal NAME|NUMBER",
    "type normal|persistent",
    "id JOB/PART",
    "cwd DIRECTORY",
    "tty ROWS COLUMNS",
    "winsize ROWS COLUMNS",
    "close",
    "wipe",
];
