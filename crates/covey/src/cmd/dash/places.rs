//! Where new files go, as `covey server ls` has it: asked in one session, which lasts as long as it is answered.

use crate::cmd::{ping, server};
use crate::config::Config;
use crate::error::Result;
use covey_stripe::client::{Caching, Fs, Options};
use covey_stripe::ops::Place;
use serde_json::{Value, json};
use std::cell::RefCell;

/// The session, once there is one.
#[derive(Default)]
pub struct Places(RefCell<Option<Fs>>);

impl Places {
    /// All I/O servers; null where we may not ask, or nobody answers in time.
    pub async fn look(&self, config: &Config) -> Value {
        match tokio::time::timeout(ping::LIMIT, self.ask(config)).await {
            Ok(Ok(places)) => places.iter().map(server::json_of).collect(),
            _ => json!(null),
        }
    }

    /// The session, as long as it is answered.
    pub fn session(&self) -> Option<Fs> {
        self.0.borrow().clone()
    }

    /// A session that did not answer is left: the next look begins another one.
    async fn ask(&self, config: &Config) -> Result<Vec<Place>> {
        let known = self.0.take();
        let fs = match known {
            Some(fs) => fs,
            None => {
                let options = Options { caching: Caching::Nothing, ..Options::default() };
                covey_cluster::connect_fs(config, options).await?
            }
        };
        let places = server::places(&fs).await?;
        *self.0.borrow_mut() = Some(fs);
        Ok(places)
    }
}
