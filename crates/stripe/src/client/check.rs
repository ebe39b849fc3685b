//! A running cluster as a check sees it.

use super::{Fs, Result, data_call};
use crate::check::Access;
use crate::objects::{DataOp, DataReply};
use crate::ops::{Caller, Op, Reply};
use covey_ninep::tree::Errno;
use std::time::Duration;

impl Access for Fs {
    async fn ask(&self, op: Op) -> Result<Reply> {
        Fs::ask(self, &Caller::default(), op).await
    }

    async fn change(&self, op: Op) -> Result<Reply> {
        Fs::change(self, &Caller::default(), op).await
    }

    async fn data(&self, server: u16, op: DataOp) -> Result<DataReply> {
        match self.shared.data.get(usize::from(server)) {
            Some(link) => data_call(link, op).await,
            None => Err(Errno::because(Errno::EIO, format!("no I/O server has index {server}"))),
        }
    }

    fn servers(&self) -> Vec<String> {
        Fs::servers(self)
    }

    async fn sleep(&self, time: Duration) {
        self.shared.net.sleep(time).await;
    }
}
