//! Bytes whose number nobody knows beforehand: stdin, pipes, /proc; and stdout, which is in order.

use super::data::{Sink, Source};
use super::{BLOCK_BYTES, BLOCKS_IN_FLIGHT, local};
use crate::error::{Cannot, Error, Result};
use covey_wire::Payload;
use futures_util::stream::{self, FuturesUnordered, StreamExt, TryStreamExt};
use indicatif::ProgressBar;
use std::io::{Read, Write};
use tokio::sync::mpsc;

/// Reads stdin to its end into a file; answers how much it was.
pub async fn in_from_stdin(sink: &Sink, bar: &ProgressBar) -> Result<u64> {
    in_from(Box::new(std::io::stdin()), "stdin", sink, bar).await
}

/// Reads to the end, into a file; answers how much it was.
pub async fn in_from(
    reader: Box<dyn Read + Send>,
    name: &str,
    sink: &Sink,
    bar: &ProgressBar,
) -> Result<u64> {
    let (send, mut blocks) = mpsc::channel(2);
    let name = name.to_string();
    let reading = tokio::task::spawn_blocking(move || read_blocks(reader, &name, &send));
    let mut writing = FuturesUnordered::new();
    let mut offset = 0;
    while let Some(block) = blocks.recv().await {
        let count = block.len() as u64;
        writing.push(sink.write(offset, block));
        offset += count;
        bar.inc(count);
        while writing.len() >= BLOCKS_IN_FLIGHT {
            if let Some(written) = writing.next().await {
                written?;
            }
        }
    }
    while let Some(written) = writing.next().await {
        written?;
    }
    reading.await.map_err(|_| Error::work("cannot read: the reading thread has panicked"))??;
    Ok(offset)
}

/// Whole blocks, so that each write meets whole strips; the last one is shorter.
fn read_blocks(
    mut reader: Box<dyn Read + Send>,
    name: &str,
    send: &mpsc::Sender<Payload>,
) -> Result<()> {
    loop {
        let mut block = Vec::new();
        let mut limited = (&mut reader).take(BLOCK_BYTES);
        limited.read_to_end(&mut block).cannot(|| format!("read {name}"))?;
        // An error ends the receiver, and with it the reading.
        if block.is_empty() || send.blocking_send(Payload::from(block)).is_err() {
            return Ok(());
        }
    }
}

/// Writes a file to stdout in order, reading ahead; answers how much it was.
pub async fn out_to_stdout(source: &Source, size: u64, bar: &ProgressBar) -> Result<u64> {
    let starts = (0..size.div_ceil(BLOCK_BYTES)).map(|index| index * BLOCK_BYTES);
    let read = |start: u64| source.read(start, BLOCK_BYTES.min(size - start));
    let mut blocks = stream::iter(starts).map(read).buffered(BLOCKS_IN_FLIGHT);
    let mut count = 0;
    while let Some(block) = blocks.try_next().await? {
        count += block.len() as u64;
        bar.inc(block.len() as u64);
        local::blocking(move || write_stdout(&block)).await?;
    }
    Ok(count)
}

fn write_stdout(block: &Payload) -> Result<()> {
    let mut out = std::io::stdout().lock();
    block.pieces().iter().try_for_each(|piece| out.write_all(piece))?;
    out.flush()?;
    Ok(())
}
