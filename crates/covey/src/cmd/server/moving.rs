//! Files on their way to other I/O servers, some at a time.

use super::{Place, reasons};
use crate::config::size;
use covey_stripe::client::{Fs, Moved};
use covey_stripe::ops::{Id, Striping};
use futures_util::stream::{self, StreamExt};
use indicatif::ProgressBar;
use std::time::{Duration, Instant};

/// Files that move at the same time.
const FILES: usize = 8;
/// How often what was in use is tried again, and the pause before it.
pub const PASSES: usize = 3;
pub const PAUSE: Duration = Duration::from_secs(2);

/// How fast files may move.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Pace {
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
    begun: Instant,
    pace: Pace,
}

impl Done {
    pub fn begin(pace: Pace) -> Done {
        Done { files: 0, bytes: 0, errors: Vec::new(), begun: Instant::now(), pace }
    }

    /// How long to wait until what was copied so far was copied at the rate.
    fn ahead(&self) -> Duration {
        let Some(rate) = self.pace.rate else { return Duration::ZERO };
        let due = Duration::from_secs_f64(self.bytes as f64 / rate.max(1) as f64);
        due.saturating_sub(self.begun.elapsed())
    }

    /// Moves files to the servers that `choose` finds for each.
    pub async fn move_all(
        &mut self,
        fs: &Fs,
        files: Vec<Leaving>,
        choose: impl Fn(Id, &Striping) -> Option<Vec<u16>>,
        bar: &ProgressBar,
    ) {
        let choose = &choose;
        let moves = files.into_iter().map(|one| async move {
            let moved = fs.move_file(one.id, |striping| choose(one.id, striping)).await;
            (one, moved)
        });
        let mut moves = stream::iter(moves).buffer_unordered(FILES);
        while let Some((one, moved)) = moves.next().await {
            match moved {
                Ok(Moved::Done(bytes)) => {
                    (self.files, self.bytes) = (self.files + 1, self.bytes + bytes);
                    bar.inc(bytes);
                    tokio::time::sleep(self.ahead()).await;
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
