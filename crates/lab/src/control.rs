//! What the keeper can be asked: one line of JSON each way over its socket.

use super::fabric::{Counts, Settings};
use super::floor::Floor;
use super::keeper::Timing;
use super::state::Lab;
use crate::error::{Cannot, Error, Result};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long the keeper may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request to the keeper of a lab, by its socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// How everything is.
    Status,
    /// Change cables, all or none of them.
    Set {
        /// Cables by index.
        cables: Vec<usize>,
        /// The end that sends, for one way only.
        from: Option<usize>,
        /// Pairs of a key and its value.
        pairs: Vec<(String, String)>,
    },
    /// This machine alone has been measured: give the cables their delays.
    Floor(Floor),
}

/// A reply of the keeper.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is done.
    Done,
    /// It cannot be done, and nothing was changed.
    Refused(String),
    /// How everything is.
    Status(Status),
}

/// How everything is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// What two nodes reach without any rate or delay, when it was measured.
    pub floor: Option<Floor>,
    /// How well the keeper keeps time.
    pub timing: Timing,
    /// Every cable, in the plan's order.
    pub cables: Vec<CableStatus>,
}

/// How a cable is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CableStatus {
    /// From its first end to its second, and back.
    pub ways: [WayStatus; 2],
}

/// How one way of a cable is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WayStatus {
    /// The settings of this direction.
    pub settings: Settings,
    /// What it has carried and lost.
    pub counts: Counts,
}

/// Asks a lab's keeper.
pub fn ask(lab: &Lab, question: &Ask) -> Result<Answer> {
    lab.living_keeper()?;
    let what = || format!("ask the keeper of lab {}", lab.name);
    let stream = UnixStream::connect(lab.file("control.sock")).cannot(what)?;
    stream.set_read_timeout(Some(PATIENCE)).cannot(what)?;
    let mut line = serde_json::to_vec(question)?;
    line.push(b'\n');
    (&stream).write_all(&line).cannot(what)?;
    let mut answer = String::new();
    BufReader::new(&stream).read_line(&mut answer).cannot(what)?;
    match serde_json::from_str(&answer) {
        Ok(Answer::Refused(why)) => {
            Err(Error::user(format!("cannot change lab {}: {why}", lab.name)))
        }
        Ok(answer) => Ok(answer),
        Err(error) => Err(Error::work(format!("cannot understand the keeper: {error}"))
            .hint("it may be of another version of covey: `covey lab down`, then up again")),
    }
}

/// How a lab is.
pub fn status(lab: &Lab) -> Result<Status> {
    match ask(lab, &Ask::Status)? {
        Answer::Status(status) => Ok(status),
        _ => Err(Error::work(format!("cannot understand the keeper of lab {}", lab.name))),
    }
}
