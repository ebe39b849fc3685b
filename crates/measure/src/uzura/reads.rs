//! Large 9P reads over one connection, as `covey uzura bench` and `bench/reads` measure them.

use covey_cluster::net;
use covey_io::os::net::Address;
use covey_ninep::client::{Conn, Fid};
use covey_ninep::message::Message;
use covey_ninep::tree::{Errno, Result};
use covey_wire::{BytesMut, List, Name};
use futures_util::stream::{FuturesUnordered, StreamExt};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// What becomes of payloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// They are received into buffers of the caller's.
    Into,
    /// They are passed on as they came.
    AsCame,
    /// They are passed on, and copied once more to buffers of the caller's.
    Copied,
}

/// What is read.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// Of the file, which is read from its beginning to its end again and again.
    pub file_bytes: u64,
    /// Of each read.
    pub bytes: u32,
    /// How many are on their way at a time.
    pub depth: usize,
    /// What becomes of them.
    pub take: Take,
}

/// A file that is open over a connection of its own.
pub struct Reader {
    conn: Conn,
    fid: Fid,
    reads: Reads,
    asked: u64,
    /// The caller's buffers: the one that waited longest is used next, as those who work through them do.
    buffers: VecDeque<BytesMut>,
}

impl Reader {
    /// Opens the file with this name at the root of a server's tree.
    pub async fn open(address: &Address, name: &str, reads: Reads) -> Result<Reader> {
        let conn = net::dial(address, "/", None, &tokio::runtime::Handle::current()).await?;
        let fid = Fid::new(&conn);
        let names = List(vec![Name::from(name)]);
        let walk = Message::Twalk { fid: 0, newfid: fid.number(), names };
        let open = Message::Tlopen { fid: fid.number(), flags: 0 };
        for request in [walk, open] {
            conn.call(request).await?;
        }
        let buffer = || BytesMut::zeroed(reads.bytes as usize);
        let buffers = std::iter::repeat_with(buffer).take(reads.depth).collect();
        Ok(Reader { conn, fid, reads, asked: 0, buffers })
    }

    /// Reads for a while, once at least; how often, and how long it took.
    pub async fn batch(&mut self, time: Duration) -> Result<(u64, Duration)> {
        let begun = Instant::now();
        let steps = self.reads.file_bytes / u64::from(self.reads.bytes);
        let mut done = 0;
        let mut flying = FuturesUnordered::new();
        while (done == 0 || begun.elapsed() < time) || !flying.is_empty() {
            while (flying.is_empty() && done == 0 || begun.elapsed() < time)
                && let Some(buffer) = self.buffers.pop_front()
            {
                let offset = self.asked % steps * u64::from(self.reads.bytes);
                flying.push(read(self.conn.clone(), self.fid.number(), offset, buffer, self.reads));
                self.asked += 1;
            }
            if let Some(buffer) = flying.next().await {
                self.buffers.push_back(buffer?);
                done += 1;
            }
        }
        Ok((done, begun.elapsed()))
    }
}

/// CPU time that the threads of a process have used.
pub fn cpu_time_of(pid: &str) -> std::io::Result<Duration> {
    let mut sum = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may have ended meanwhile.
        let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
        sum += text.split(' ').next().and_then(|first| first.parse().ok()).unwrap_or(0);
    }
    Ok(Duration::from_nanos(sum))
}

async fn read(
    conn: Conn,
    fid: u32,
    offset: u64,
    mut buffer: BytesMut,
    reads: Reads,
) -> Result<BytesMut> {
    let bytes = if reads.take == Take::Into {
        buffer = conn.read_into(fid, offset, buffer).await?;
        buffer.len()
    } else {
        let request = Message::Tread { fid, offset, count: reads.bytes };
        let Message::Rread { data } = conn.call(request).await? else {
            unreachable!("a call is answered with its own reply or an error")
        };
        let data = data.into_bytes();
        if reads.take == Take::Copied {
            buffer[..data.len()].copy_from_slice(&data);
        }
        black_box(data).len()
    };
    black_box(&mut buffer);
    if bytes == reads.bytes as usize {
        Ok(buffer)
    } else {
        Err(Errno::because(Errno::EIO, format!("{bytes} of {} bytes came", reads.bytes)))
    }
}
