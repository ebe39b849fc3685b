//! This command's terminal, lent to a rank: every key goes there, ^C included, and so does its size.

use covey_ninep::tree::Errno;
use rustix::termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetwinsize, tcsetattr};

/// The terminal with its keys passed on as they are; as it was when this is dropped.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// Whether input and output are a terminal.
    pub fn is_possible() -> bool {
        isatty(std::io::stdin()) && isatty(std::io::stdout())
    }

    /// Passes keys on from now.
    pub fn begin() -> std::io::Result<Raw> {
        let before = tcgetattr(std::io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(std::io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Raw { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.before);
    }
}

/// Lines and characters of the terminal, as words of a command.
pub fn size() -> Result<[String; 2], Errno> {
    let size = tcgetwinsize(std::io::stdout()).map_err(std::io::Error::from)?;
    Ok([size.ws_row.to_string(), size.ws_col.to_string()])
}
