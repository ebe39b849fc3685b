//! A running cluster as a check sees it.

use super::{Fs, Result, data_call};
use crate::check::Access;
use crate::objects::{DataOp, DataReply};
use crate::ops::{Caller, Op, Reply};
use std::time::Duration;

impl Access for Fs {
    async fn ask(&self, op: Op) -> Result<Reply> {
        Fs::ask(self, &Caller::default(), op).await
    }

    async fn change(&self, op: Op) -> Result<Reply> {
        Fs::change(self, &Caller::default(), op).await
    }

    async fn data(&self, server: u16, op: DataOp) -> Result<DataReply> {
        data_call(&self.shared.data.get(server)?, op).await
    }

    fn servers(&self) -> Vec<String> {
        Fs::servers(self)
    }

    async fn sleep(&self, time: Duration) {
        self.shared.net.sleep(time).await;
    }
}
