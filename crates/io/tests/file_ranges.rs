//! Ranges of files on their way to a peer: right whatever the stream, cut short, slowly taken.

use covey_io::os::file::{DataFile, FileKind, range_blocking};
use covey_io::os::net::{Address, Listener, Stream, connect};
use covey_io::run;
use covey_wire::{Blame, BytesMut, FileRange, Machine, Segments};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Answers each byte with `<`, a range, and `>`.
struct Giver {
    range: FileRange,
    asked: usize,
}

impl Machine for Giver {
    fn handle_input(&mut self, _: Instant, input: &mut BytesMut) -> Result<(), Blame> {
        self.asked += input.len();
        input.clear();
        Ok(())
    }

    fn handle_timeout(&mut self, _: Instant) -> Result<(), Blame> {
        Ok(())
    }

    fn poll_output(&mut self, out: &mut Segments, _: usize) -> bool {
        if self.asked == 0 {
            return false;
        }
        self.asked -= 1;
        out.small(|out| out.push(b'<'));
        out.file_range(self.range.clone());
        out.small(|out| out.push(b'>'));
        true
    }

    fn poll_deadline(&self) -> Option<Instant> {
        None
    }

    fn bytes_wanted(&self, _: &[u8]) -> usize {
        1
    }

    fn is_full(&self) -> bool {
        self.asked > 0
    }
}

const FILE_BYTES: usize = 3_000_000;

fn content() -> Vec<u8> {
    (0..FILE_BYTES as u32).map(|at| (at / 7) as u8).collect()
}

/// A file in memory, to be cut, and to be read.
fn in_memory() -> (File, DataFile) {
    let file = tempfile::tempfile_in("/dev/shm").unwrap();
    file.write_all_at(&content(), 0).unwrap();
    (file.try_clone().unwrap(), DataFile::new(file).unwrap())
}

fn range(file: &DataFile, offset: usize, length: usize) -> FileRange {
    file.range(offset as u64, length).unwrap().expect("it is in memory and long enough")
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(60), future).await.unwrap() })
}

async fn pair(address: &str) -> (Stream, Stream) {
    let address: Address = address.parse().unwrap();
    let listener = Listener::bind(&address, 0o600).await.unwrap();
    let client = connect(listener.address(), Duration::from_secs(5)).await.unwrap();
    (listener.accept().await.unwrap().0, client)
}

/// Asks `times` times, and takes the answers of `each` bytes with a rest before every piece.
async fn ask(
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    times: usize,
    each: usize,
) -> Vec<u8> {
    client.write_all(&vec![b'?'; times]).await.unwrap();
    let (mut got, mut piece) = (Vec::new(), vec![0; 700_000]);
    while got.len() < times * each {
        tokio::time::sleep(Duration::from_millis(1)).await;
        let count = client.read(&mut piece).await.unwrap();
        assert!(count > 0, "it ended after {} bytes", got.len());
        got.extend_from_slice(&piece[..count]);
    }
    client.shutdown().await.unwrap();
    got
}

fn answer(bytes: &[u8]) -> Vec<u8> {
    [b"<", bytes, b">"].concat()
}

#[test]
fn a_range_comes_between_what_is_in_memory_over_every_stream() {
    let (_, file) = in_memory();
    let (from, length) = (4097, 2_000_001);
    let giver = || Giver { range: range(&file, from, length), asked: 0 };
    let wanted = answer(&content()[from..from + length]).repeat(5);
    let dir = tempfile::tempdir().unwrap();
    let socket = format!("unix!{}", dir.path().join("s").display());
    block_on(async {
        for address in ["tcp!127.0.0.1!0", &socket] {
            let (server, client) = pair(address).await;
            let (end, got) = tokio::join!(run(giver(), server), ask(client, 5, length + 2));
            end.unwrap();
            assert!(got == wanted, "over {address}");
        }
        let (server, client) = tokio::io::duplex(100_000);
        let (end, got) = tokio::join!(run(giver(), server), ask(client, 5, length + 2));
        end.unwrap();
        assert!(got == wanted, "over a stream that is no socket");
    });
}

#[test]
fn zeros_stand_for_what_a_file_has_lost_since_its_length_was_told() {
    let (cut, file) = in_memory();
    let range = range(&file, 1000, 1_000_000);
    cut.set_len(501_000).unwrap();
    let mut wanted = content()[1000..501_000].to_vec();
    wanted.resize(1_000_000, 0);
    block_on(async {
        let (server, client) = pair("tcp!127.0.0.1!0").await;
        let giver = Giver { range: range.clone(), asked: 0 };
        let (end, got) = tokio::join!(run(giver, server), ask(client, 2, 1_000_002));
        end.unwrap();
        assert!(got == answer(&wanted).repeat(2));
        let (server, client) = tokio::io::duplex(100_000);
        let giver = Giver { range, asked: 0 };
        let (end, got) = tokio::join!(run(giver, server), ask(client, 1, 1_000_002));
        end.unwrap();
        assert!(got == answer(&wanted));
    });
}

#[test]
fn a_peer_that_takes_nothing_is_not_read_from_any_more() {
    let (_, file) = in_memory();
    block_on(async {
        let (server, client) = pair("tcp!127.0.0.1!0").await;
        let serving = run(Giver { range: range(&file, 0, FILE_BYTES), asked: 0 }, server);
        let asking = async {
            let Stream::Tcp(client) = client else { panic!("it is TCP") };
            // Requests pile up on this side once answers are held up on the other.
            let (mut asked, mut refused) = (0, 0);
            while refused < 20 {
                match client.try_write(&[b'?'; 65536]) {
                    Ok(count) => (asked, refused) = (asked + count, 0),
                    Err(_) => refused += 1,
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
                assert!(asked < 64 << 20, "every request is taken in");
            }
        };
        // The peer goes with answers unread, which the loop is told.
        let (end, ()) = tokio::join!(serving, asking);
        end.unwrap_err();
    });
}

#[test]
fn a_file_on_a_disk_is_lent_once_it_is_in_memory() {
    let file = tempfile::tempfile_in(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap();
    file.write_all_at(&content(), 0).unwrap();
    file.sync_all().unwrap();
    let file = DataFile::new(file).unwrap();
    let at_end = range_blocking(&file, 2_500_000, 1 << 20).unwrap().expect("it can be lent");
    assert_eq!(at_end.length, 500_000);
    assert!(range_blocking(&file, 3_000_000, 1 << 20).unwrap().is_none(), "the file has ended");
    block_on(async {
        let (server, client) = pair("tcp!127.0.0.1!0").await;
        let giver = Giver { range: at_end, asked: 0 };
        let (end, got) = tokio::join!(run(giver, server), ask(client, 3, 500_002));
        end.unwrap();
        assert!(got == answer(&content()[2_500_000..]).repeat(3));
    });
}

#[test]
fn only_what_pays_and_cannot_block_is_sent_from_its_file() {
    let (cut, file) = in_memory();
    assert!(file.range(0, 4096).unwrap().is_none(), "too short");
    let at_end = (FILE_BYTES - 100) as u64;
    assert!(file.range(at_end, 1 << 20).unwrap().is_none(), "too little is left");
    assert!(file.range(u64::MAX, 1 << 20).unwrap().is_none(), "beyond the end");
    assert_eq!(range(&file, 2_000_000, 2_000_000).length, 1_000_000);
    cut.set_len(0).unwrap();
    assert!(file.range(0, 1 << 20).unwrap().is_none(), "nothing is left");
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let elsewhere = DataFile::new(tempfile::tempfile_in(target).unwrap()).unwrap();
    elsewhere.file().set_len(1 << 20).unwrap();
    let is_sent = elsewhere.range(0, 1 << 20).unwrap().is_some();
    assert_eq!(is_sent, elsewhere.kind() == FileKind::Memory);
}
