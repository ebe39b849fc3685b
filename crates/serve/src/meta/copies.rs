//! Copies of the metadata on the I/O servers: what is lost with the metadata store can be read from there.
//!
//! A copy is all rows as the store has them, page by page, so it may mix moments of some seconds. It is
//! made a minute after the start and hourly, on two I/O servers.

use super::Meta;
use covey_io::task;
use covey_ninep::tree::{Errno, Result};
use covey_stripe::client::data_call;
use covey_stripe::objects::DataOp;
use covey_stripe::ops::check::Row;
use covey_stripe::ops::{Op, Reply};
use covey_wire::{Field, List, Name, Payload};
use std::rc::Rc;
use std::time::Duration;

/// How the copy begins: then come rows, each its key and its value with their lengths.
pub const MAGIC: &[u8] = b"covey metadata copy 1\n";

const FIRST_AFTER: Duration = Duration::from_secs(60);
const EVERY: Duration = Duration::from_secs(3600);
/// How many I/O servers get one.
const COPIES: usize = 2;
/// Bytes of rows in one piece.
const PIECE_BYTES: u32 = 256 << 10;
/// Between two pieces, so that nobody else has to wait.
const PAUSE: Duration = Duration::from_millis(5);

impl Meta {
    /// Makes copies for as long as the server lives.
    pub(super) async fn make_copies(self: Rc<Self>) {
        task::sleep(FIRST_AFTER).await;
        loop {
            if let Err(error) = self.copy_now().await {
                tracing::warn!("the metadata was not copied to the I/O servers: {error}");
            }
            task::sleep(EVERY).await;
        }
    }

    /// Makes the copies; fails when no I/O server took one.
    pub async fn copy_now(self: &Rc<Self>) -> Result<()> {
        let (mut made, mut failed) = (0, None);
        for server in 0..self.servers_known() {
            let link = self.link(server as u16)?;
            if link.is_dead() || self.has_left(server as u16).await {
                continue;
            }
            match self.copy_to(&link).await {
                Ok(()) => made += 1,
                Err(error) => failed = Some(error),
            }
            if made == COPIES {
                break;
            }
        }
        match (made, failed) {
            (0, Some(error)) => Err(error),
            (0, None) => Err(Errno::because(Errno::EIO, "no I/O server is alive")),
            _ => Ok(()),
        }
    }

    async fn copy_to(&self, link: &std::sync::Arc<covey_stripe::client::Link>) -> Result<()> {
        let (mut from, mut offset) = (Name::EMPTY, 0);
        loop {
            let (rows, end) = self.rows_from(from).await?;
            from =
                rows.last().map_or(Name::EMPTY, |row| [row.key.as_bytes(), &[0]].concat().into());
            let mut piece = if offset == 0 { MAGIC.to_vec() } else { Vec::new() };
            rows.iter().for_each(|row| row.put((), &mut piece));
            let length = piece.len() as u64;
            data_call(link, DataOp::Keep { offset, data: Payload::from(piece), end }).await?;
            if end {
                return Ok(());
            }
            offset += length;
            task::sleep(PAUSE).await;
        }
    }

    async fn rows_from(&self, from: Name) -> Result<(Vec<Row>, bool)> {
        loop {
            match self.ask_own(Op::Rows { from: from.clone(), bytes_max: PIECE_BYTES }) {
                Reply::Rows { rows: List(rows), end } => return Ok((rows, end)),
                Reply::Error { code: Errno::EAGAIN, .. } => task::sleep(PAUSE).await,
                Reply::Error { code, reason } => {
                    return Err(Errno::because(code, reason.lossy().into_owned()));
                }
                _ => return Err(Errno::EPROTO.into()),
            }
        }
    }
}
