//! A move reports to the metadata server how far it is, so that `covey dash` shows it. Where that is not allowed, or the
//! server does not answer, the move goes on all the same.

use crate::config::Config;
use covey_cluster::reach::write_ctl;
use indicatif::ProgressBar;
use std::time::Duration;
use tokio::task::AbortHandle;

/// Between two reports.
const PAUSE: Duration = Duration::from_secs(1);

/// Reports until it is dropped.
pub struct Reporter(AbortHandle);

impl Reporter {
    /// Reports what a bar shows, under a name such as `drain io3`.
    pub fn begin(config: Config, name: String, bar: &ProgressBar) -> Reporter {
        let bar = bar.clone();
        let task = tokio::task::spawn_local(async move {
            loop {
                let (bytes, total) = (bar.position(), bar.length().unwrap_or(0));
                let seconds = bar.elapsed().as_secs();
                let report = format!("moving '{name}' {bytes} {total} {seconds}");
                let _ = write_ctl(&config, &config.meta().name, &report).await;
                tokio::time::sleep(PAUSE).await;
            }
        });
        Reporter(task.abort_handle())
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.0.abort();
    }
}
