//! Ranges of files on their way to a peer: right whatever the stream, cut short, slowly taken.

use covey_io::os::file::{DataFile, FileKind, range_blocking};
use covey_io::os::net::{Address, Listener, Stream, connect};
use covey_io::run;
use covey_wire::{Blame, BytesMut, Deposit, FileRange, Loan, Machine, Segments};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Answers each byte with `<`, some of a file, and `>`.
struct Giver {
    what: What,
    asked: usize,
}

#[derive(Clone)]
enum What {
    Range(FileRange),
    Loan(Loan),
}

fn giver(range: FileRange) -> Giver {
    Giver { what: What::Range(range), asked: 0 }
}

fn lender(loan: Loan) -> Giver {
    Giver { what: What::Loan(loan), asked: 0 }
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
        match self.what.clone() {
            What::Range(range) => {
                out.small(|out| out.push(b'<'));
                out.file_range(range);
            }
            What::Loan(loan) => out.loan_message(b"<", loan),
        }
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
    let giver = || giver(range(&file, from, length));
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
        let (end, got) = tokio::join!(run(giver(range.clone()), server), ask(client, 2, 1_000_002));
        end.unwrap();
        assert!(got == answer(&wanted).repeat(2));
        let (server, client) = tokio::io::duplex(100_000);
        let (end, got) = tokio::join!(run(giver(range), server), ask(client, 1, 1_000_002));
        end.unwrap();
        assert!(got == answer(&wanted));
    });
}

/// A range that is copied from the file's mapping is the same for the peer, whatever becomes of the file; one of a file with
/// holes is sent as others are, as the mapping would fill them.
#[test]
fn a_range_by_copy_arrives_like_another() {
    let (cut, file) = in_memory();
    let by_copy = |offset, length| file.range_by_copy(offset, length).unwrap().expect("in memory");
    // It is mapped when it has been read from often enough.
    let first = by_copy(0, 1 << 20);
    let mut last = by_copy(0, 1 << 20);
    for _ in 1..100 {
        last = by_copy(0, 1 << 20);
    }
    assert!(Arc::ptr_eq(&first.file, &range(&file, 0, 1 << 20).file), "not mapped yet");
    assert!(!Arc::ptr_eq(&last.file, &first.file), "mapped");
    let (from, length) = (4097, 2_000_001);
    let mut wanted = content();
    for left in [FILE_BYTES, 1_000_000] {
        let found = by_copy(from, length);
        cut.set_len(left as u64).unwrap();
        wanted[left..].fill(0);
        let wanted = answer(&wanted[from as usize..from as usize + length]).repeat(3);
        block_on(async {
            let (server, client) = pair("tcp!127.0.0.1!0").await;
            let serving = run(giver(found), server);
            let (end, got) = tokio::join!(serving, ask(client, 3, length + 2));
            end.unwrap();
            assert!(got == wanted, "{left} bytes of the file are left");
        });
    }
    cut.set_len(FILE_BYTES as u64).unwrap();
    let before = std::os::unix::fs::MetadataExt::blocks(&cut.metadata().unwrap());
    block_on(async {
        let (server, client) = pair("tcp!127.0.0.1!0").await;
        let serving = run(giver(by_copy(0, FILE_BYTES)), server);
        let (end, got) = tokio::join!(serving, ask(client, 1, FILE_BYTES + 2));
        end.unwrap();
        assert!(got == answer(&wanted));
    });
    let after = std::os::unix::fs::MetadataExt::blocks(&cut.metadata().unwrap());
    assert_eq!(after, before, "the hole is one still");
}

#[test]
fn a_peer_that_takes_nothing_is_not_read_from_any_more() {
    let (_, file) = in_memory();
    block_on(async {
        let (server, client) = pair("tcp!127.0.0.1!0").await;
        let serving = run(giver(range(&file, 0, FILE_BYTES)), server);
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

/// Lent by a file that has been read from often enough.
fn lent(file: &DataFile, offset: usize, length: usize) -> Loan {
    let mut loans = (0..100).map(|_| lend(file, offset as u64, length));
    loans.find_map(|loan| loan).expect("it is mapped after some reads")
}

/// At a moment of its own.
fn lend(file: &DataFile, offset: u64, length: usize) -> Option<Loan> {
    static MOMENT: AtomicU64 = AtomicU64::new(1);
    file.lend(offset, length, MOMENT.fetch_add(1, Ordering::Relaxed))
}

#[test]
fn what_is_lent_arrives_like_anything_else() {
    let (_, file) = in_memory();
    let giver = || lender(lent(&file, 4099, 8191));
    let wanted = answer(&content()[4099..4099 + 8191]).repeat(1000);
    let dir = tempfile::tempdir().unwrap();
    let socket = format!("unix!{}", dir.path().join("s").display());
    block_on(async {
        for address in ["tcp!127.0.0.1!0", &socket] {
            let (server, client) = pair(address).await;
            let (end, got) = tokio::join!(run(giver(), server), ask(client, 1000, 8193));
            end.unwrap();
            assert!(got == wanted, "over {address}");
        }
        let (server, client) = tokio::io::duplex(100_000);
        let (end, got) = tokio::join!(run(giver(), server), ask(client, 1000, 8193));
        end.unwrap();
        assert!(got == wanted, "over a stream that is no socket");
    });
}

#[test]
fn what_a_lending_file_has_lost_is_zeros_and_no_signal() {
    let (cut, file) = in_memory();
    for (left, offset) in [(0, 4000), (50_000, 45_000), (40_960, 40_000), (7, 0)] {
        cut.set_len(0).unwrap();
        cut.write_all_at(&content(), 0).unwrap();
        let loan = lent(&file, offset, 9000);
        cut.set_len(left).unwrap();
        let mut wanted = content()[..left as usize].to_vec();
        wanted.resize(FILE_BYTES, 0);
        let wanted = answer(&wanted[offset..offset + 9000]).repeat(100);
        let dir = tempfile::tempdir().unwrap();
        let socket = format!("unix!{}", dir.path().join("s").display());
        block_on(async {
            for address in ["tcp!127.0.0.1!0", &socket] {
                let (server, client) = pair(address).await;
                let giver = lender(loan.clone());
                let (end, got) = tokio::join!(run(giver, server), ask(client, 100, 9002));
                end.unwrap();
                assert!(got == wanted, "cut to {left}, over {address}");
            }
        });
    }
}

#[test]
fn what_a_slow_peer_does_not_take_is_settled_before_the_machine_is_called_again() {
    let (change, file) = in_memory();
    let loan = lent(&file, 0, 8192);
    block_on(async {
        let (server, mut client) = pair("tcp!127.0.0.1!0").await;
        let serving = run(lender(loan), server);
        let asking = async {
            client.write_all(&[b'?'; 1000]).await.unwrap();
            // Until the loop has filled the socket, and has had its turn to copy the rest.
            tokio::time::sleep(Duration::from_millis(200)).await;
            change.write_all_at(&[b'x'; 8192], 0).unwrap();
            ask_no_more(client, 1000 * 8194).await
        };
        let (end, got) = tokio::join!(serving, asking);
        end.unwrap();
        let old = answer(&content()[..8192]);
        // The loop holds 4 MiB of output, which is half of it: so much was answered before the change.
        let before = got.chunks(old.len()).take_while(|one| **one == old).count();
        assert!(before * old.len() > 4 << 20, "{before} answers are settled");
    });
}

/// Takes `total` bytes.
async fn ask_no_more(mut client: Stream, total: usize) -> Vec<u8> {
    let mut got = vec![0; total];
    client.read_exact(&mut got).await.unwrap();
    client.shutdown().await.unwrap();
    got
}

#[test]
fn a_file_lends_only_where_that_is_right() {
    let (cut, file) = in_memory();
    assert!(lend(&file, 0, 4096).is_none(), "nobody knows yet that many reads will come");
    lent(&file, 0, 4096);
    assert!(lend(&file, 0, 100).is_none(), "too short");
    let end = FILE_BYTES as u64;
    assert!(lend(&file, end - 4095, 4096).is_none(), "the read is cut by the end");
    assert!(lend(&file, end - 4096, 4096).is_some());
    assert!(lend(&file, u64::MAX - 10, 4096).is_none(), "beyond all ends");
    assert!(file.lend(end - 4096, 4096, 1).is_some());
    cut.set_len(end - 1).unwrap();
    assert!(file.lend(end - 4096, 4096, 1).is_some(), "at the same moment it is not asked again");
    assert!(file.lend(end - 4096, 4096, 2).is_none(), "it ends before");
    cut.write_all_at(&content(), end).unwrap();
    assert!(lend(&file, end, 4096).is_none(), "what it has grown by is not mapped");
    cut.set_len(4096 * 100).unwrap();
    cut.set_len(4096 * 200).unwrap();
    assert!(lend(&file, 0, 4096).is_none(), "to read a hole of a mapping takes memory");
    let blocks = |file: &File| std::os::unix::fs::MetadataExt::blocks(&file.metadata().unwrap());
    assert_eq!(blocks(&cut), 100 * 8);
}

#[test]
fn a_file_that_is_not_in_memory_lends_nothing() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let file = tempfile::tempfile_in(target).unwrap();
    file.write_all_at(&content(), 0).unwrap();
    let file = DataFile::new(file).unwrap();
    let lent = (0..1000).find_map(|_| lend(&file, 0, 4096));
    assert_eq!(lent.is_some(), file.kind() == FileKind::Memory);
}

#[test]
fn mappings_are_bounded_and_end_with_their_files() {
    let huge = tempfile::tempfile_in("/dev/shm").unwrap();
    huge.set_len(1 << 40).unwrap();
    let huge = DataFile::new(huge).unwrap();
    assert!((0..200).all(|_| lend(&huge, 0, 4096).is_none()), "it has holes and is large");
    let maps = || std::fs::read_to_string("/proc/self/maps").unwrap();
    let named = tempfile::Builder::new().prefix("covey-maps").tempfile_in("/dev/shm").unwrap();
    named.as_file().write_all_at(&content(), 0).unwrap();
    let name = named.path().to_str().unwrap().to_owned();
    let file = DataFile::new(named.reopen().unwrap()).unwrap();
    let loan = lent(&file, 0, 4096);
    assert!(maps().contains(&name));
    drop(file);
    assert!(maps().contains(&name), "a loan keeps it");
    drop(loan);
    assert!(!maps().contains(&name));
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
        let (end, got) = tokio::join!(run(giver(at_end), server), ask(client, 3, 500_002));
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

/// Puts all that comes into a file, in messages of `each` bytes behind a `>`.
struct Taker {
    file: DataFile,
    each: usize,
    at: u64,
    deposited: Arc<Mutex<Vec<Result<usize, i32>>>>,
}

impl Machine for Taker {
    fn handle_input(&mut self, _: Instant, input: &mut BytesMut) -> Result<(), Blame> {
        while input.len() > self.each {
            let message = input.split_to(self.each + 1);
            self.file.file().write_all_at(&message[1..], self.at).unwrap();
            self.at += self.each as u64;
        }
        Ok(())
    }

    fn handle_timeout(&mut self, _: Instant) -> Result<(), Blame> {
        Ok(())
    }

    fn poll_output(&mut self, _: &mut Segments, _: usize) -> bool {
        false
    }

    fn poll_deadline(&self) -> Option<Instant> {
        None
    }

    fn bytes_wanted(&self, input: &[u8]) -> usize {
        self.each + 1 - input.len()
    }

    fn deposit(&mut self, input: &[u8]) -> Deposit {
        match input.len() {
            0 => Deposit::UpTo(1),
            1 => self.file.place(self.at, self.each).map_or(Deposit::No, Deposit::Into),
            _ => Deposit::UpTo(self.each + 1 - input.len()),
        }
    }

    fn deposited(&mut self, input: &mut BytesMut, written: Result<usize, i32>) {
        assert_eq!(input[..], *b">");
        input.clear();
        self.at += self.each as u64;
        self.deposited.lock().unwrap().push(written);
    }
}

/// Sends `count` messages in pieces of `piece` bytes; what was deposited, and the file's content.
fn take(address: &str, file: DataFile, count: usize, piece: usize) -> Vec<Result<usize, i32>> {
    const EACH: usize = 100_000;
    let deposited = Arc::default();
    let taker = Taker { file, each: EACH, at: 0, deposited: Arc::clone(&deposited) };
    let payloads = content();
    let messages = payloads.chunks(EACH).take(count).map(|payload| [b">", payload].concat());
    let bytes = messages.collect::<Vec<_>>().concat();
    block_on(async {
        let (server, mut client) = pair(address).await;
        let sending = async {
            for piece in bytes.chunks(piece) {
                client.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
            client.shutdown().await.unwrap();
        };
        let (end, ()) = tokio::join!(run(taker, server), sending);
        end.unwrap();
    });
    Arc::into_inner(deposited).unwrap().into_inner().unwrap()
}

#[test]
fn a_payload_that_is_there_goes_into_its_file_and_another_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let socket = format!("unix!{}", dir.path().join("s").display());
    for address in ["tcp!127.0.0.1!0", &socket] {
        for piece in [100_001, 33_333, 3_000_000, 70_000] {
            let (copy, file) = in_memory();
            copy.set_len(0).unwrap();
            let deposited = take(address, file, 20, piece);
            assert!(deposited.iter().all(|written| *written == Ok(100_000)), "{deposited:?}");
            assert_eq!(copy.metadata().unwrap().len(), 2_000_000);
            let mut got = vec![0; 2_000_000];
            copy.read_exact_at(&mut got, 0).unwrap();
            assert!(got == content()[..2_000_000], "in pieces of {piece} over {address}");
        }
    }
}

#[test]
fn a_payload_that_cannot_be_written_is_taken_off_the_stream_all_the_same() {
    let path = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
    let only_read = DataFile::new(File::open(path.path()).unwrap()).unwrap();
    // The first message, if it has arrived whole, is refused by the system.
    let deposited = take("tcp!127.0.0.1!0", only_read, 1, 100_001);
    assert_eq!(deposited, [Err(9)], "it is not open for writing");
}
