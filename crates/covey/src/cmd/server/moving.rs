//! Files on their way to other I/O servers, some at a time.

use super::{Place, reasons};
use crate::config::size;
use covey_stripe::client::{Fs, Moved, Pace};
use covey_stripe::ops::{Id, Striping};
use futures_util::stream::{self, StreamExt};
use indicatif::ProgressBar;
use std::time::Duration;

/// Files that move at the same time.
const FILES: usize = 8;
/// How often what was in use is tried again, and the pause before it.
pub const PASSES: usize = 3;
pub const PAUSE: Duration = Duration::from_secs(2);

/// How fast files may move.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Rate {
    /// Copy at most so many bytes per second
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    rate: Option<u64>,
}

/// A file that is to move.
pub struct Leaving {
    pub id: Id,
    /// How it is named where moving it fails.
    pub name: String,
}

/// What was done.
pub struct Done {
    pub files: u64,
    pub bytes: u64,
    pub errors: Vec<String>,
    pace: Pace,
}

impl Done {
    pub fn begin(rate: Rate) -> Done {
        Done { files: 0, bytes: 0, errors: Vec::new(), pace: Pace::of(rate.rate) }
    }

    /// Moves files to the servers that `choose` finds for each.
    pub async fn move_all(
        &mut self,
        fs: &Fs,
        files: Vec<Leaving>,
        choose: impl Fn(Id, &Striping) -> Option<Vec<u16>>,
        bar: &ProgressBar,
    ) {
        let (choose, pace) = (&choose, &self.pace);
        let moves = files.into_iter().map(|one| async move {
            let moved = fs.move_file(one.id, |striping| choose(one.id, striping), pace).await;
            (one, moved)
        });
        let mut moves = stream::iter(moves).buffer_unordered(FILES);
        while let Some((one, moved)) = moves.next().await {
            match moved {
                Ok(Moved::Done(bytes)) => {
                    (self.files, self.bytes) = (self.files + 1, self.bytes + bytes);
                    bar.inc(bytes);
                }
                Ok(Moved::Nothing | Moved::Busy) => {}
                Err(error) => self.errors.push(format!("{}: {error}", one.name)),
            }
        }
    }
}

/// The servers that files may move to, by index.
pub fn open_servers(places: &[Place]) -> Vec<u16> {
    let is_open = |place: &Place| place.is_serving && reasons(place).is_empty();
    let all = places.iter().enumerate().map(|(at, place)| (at as u16, place));
    all.filter(|(_, place)| is_open(place)).map(|(at, _)| at).collect()
}
