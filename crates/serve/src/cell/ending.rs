//! How a host ends before its workers do: by its user, through its control file or the process that it is.
//!
//! ```text
//!   echo end > /cell/ctl of the host ──► Ending ──► each worker is killed and waited for ──► the host returns
//! ```

use covey_ninep::control::{Commands, refuse};
use covey_ninep::tree::{Bell, Outcome, User};
use std::cell::Cell;
use std::rc::Rc;

/// Ends a host.
#[derive(Clone, Debug, Default)]
pub struct Ending(Rc<Told>);

#[derive(Debug, Default)]
struct Told {
    by: Cell<Option<&'static str>>,
    bell: Bell,
}

impl Ending {
    /// Has the host end its workers, for this reason. The first one counts.
    pub fn end(&self, why: &'static str) {
        self.0.by.set(self.0.by.get().or(Some(why)));
        self.0.bell.ring();
    }

    /// Why the host ends, if it was told to.
    pub fn why(&self) -> Option<&'static str> {
        self.0.by.get()
    }

    /// Waits until it is told to.
    pub async fn told(&self) -> &'static str {
        let told = self.0.clone();
        told.bell.wait(|| self.why()).await
    }
}

/// The host's control file.
pub(super) struct HostControl {
    pub ending: Ending,
    pub owner: u32,
}

impl Commands for HostControl {
    fn text(&self) -> String {
        "# end: ends all workers, and the run\n".into()
    }

    fn run(&self, _: &User, words: &[&str]) -> Outcome<()> {
        match words {
            ["end"] => {
                self.ending.end(BY_USER);
                Ok(()).into()
            }
            _ => refuse("the command is: end").into(),
        }
    }

    fn allows(&self, user: &User) -> bool {
        user.uid == self.owner || user.uid == 0
    }
}

/// Why a host ends that was told so through its files.
pub const BY_USER: &str = "ended by its user";
