//! Contiguous ranges: one request for each slot, whatever lies between.

use super::{Counted, Error, OpenFile};
use crate::client::{Result, Shared};
use crate::distribution::{self, Part};
use covey_ninep::message::Message;
use covey_ninep::tree::Errno;
use covey_wire::{Bytes, Payload};
use futures_util::future::try_join_all;

impl OpenFile {
    pub(super) async fn read_range(
        &self,
        fs: &Shared,
        offset: u64,
        end: u64,
        epoch: u32,
    ) -> Result<Payload> {
        if end <= offset {
            return Ok(Payload::default());
        }
        if let Some(data) = self.read_ahead(fs, offset, end, epoch).await? {
            return Ok(data);
        }
        let parts = distribution::parts(&self.map, offset, end - offset, self.part_bytes_max());
        let reads = parts.iter().map(|part| self.read_part(fs, part, epoch));
        Ok(assemble(&parts, &try_join_all(reads).await?))
    }

    async fn read_part(&self, fs: &Shared, part: &Part, epoch: u32) -> Result<Bytes> {
        let count = part.length as u32;
        let reply = self
            .io(fs, part.slot, epoch, |fid| Message::Tread { fid, offset: part.physical, count })
            .await?;
        match reply {
            Message::Rread { data } => Ok(data.into_bytes()),
            other => Err(Error::Odd(format!("Tread got {}", other.name()))),
        }
    }

    pub(super) async fn write_range(
        &self,
        fs: &Shared,
        offset: u64,
        data: &Payload,
        epoch: u32,
    ) -> Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        let parts =
            distribution::parts(&self.map, offset, data.len() as u64, self.part_bytes_max());
        let writes = parts.iter().map(|part| self.write_part(fs, part, epoch, data));
        try_join_all(writes).await.map(|_| ())
    }

    async fn write_part(&self, fs: &Shared, part: &Part, epoch: u32, data: &Payload) -> Result<()> {
        // Counted when it is over, dropped midway included: only an fsync after that is sure of it.
        let _counted = Counted::new(self, part.slot);
        let whole = data.select(&part.pieces);
        let mut done = 0;
        while done < part.length {
            let rest = match done {
                0 => whole.clone(),
                done => whole.select(&[(done, part.length - done)]),
            };
            let offset = part.physical + done;
            let write = |fid| Message::Twrite { fid, offset, data: rest.clone() };
            match self.io(fs, part.slot, epoch, write).await? {
                Message::Rwrite { count: 0 } => return Err(Errno::ENOSPC.into()),
                Message::Rwrite { count } => done += u64::from(count),
                other => {
                    let what = format!("Twrite got {}", other.name());
                    return Err(Error::Odd(what));
                }
            }
        }
        Ok(())
    }
}

/// Puts the parts of a read in the file's order, without copying; what an object does not have reads
/// as zeros.
fn assemble(parts: &[Part], data: &[Bytes]) -> Payload {
    let mut pieces: Vec<(u64, Bytes)> = Vec::new();
    for (part, data) in parts.iter().zip(data) {
        let mut at = 0;
        for &(offset, bytes) in &part.pieces {
            let have = (data.len().saturating_sub(at)).min(bytes as usize);
            if have > 0 {
                pieces.push((offset, data.slice(at..at + have)));
            }
            put_zeros(&mut pieces, offset + have as u64, bytes as usize - have);
            at += bytes as usize;
        }
    }
    pieces.sort_unstable_by_key(|&(offset, _)| offset);
    Payload::gather(pieces.into_iter().map(|(_, bytes)| bytes).collect())
}

fn put_zeros(pieces: &mut Vec<(u64, Bytes)>, mut offset: u64, mut count: usize) {
    static ZEROS: [u8; 65536] = [0; 65536];
    while count > 0 {
        let step = count.min(ZEROS.len());
        pieces.push((offset, Bytes::from_static(&ZEROS[..step])));
        offset += step as u64;
        count -= step;
    }
}
