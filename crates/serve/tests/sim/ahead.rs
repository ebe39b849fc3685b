//! What is read ahead: used only as long as nobody else has changed it.

use crate::kept::two_clients;
use crate::scenes::small_with;
use crate::sim::cluster::Cluster;
use crate::sim::roles::{name, root};
use covey_io::sim::Sim;
use covey_io::task;
use covey_ninep::tree::SetAttr;
use covey_stripe::client::fallocate::{KEEP_SIZE, PUNCH_HOLE};
use covey_stripe::client::{File, Fs, Taken, access};
use covey_stripe::objects::HOLD;
use covey_stripe::ops::{Id, ROOT, StripingHint};
use covey_stripe::view::View;
use std::rc::Rc;
use std::time::Duration;

const PIECE: usize = 4096;
/// More than a question and its answer take.
const A_WHILE: Duration = Duration::from_millis(5);

fn cluster() -> (Sim, Rc<Cluster>) {
    let (sim, cluster, _) = small_with(1, StripingHint::simple_stripe(65536, 1));
    (sim, cluster)
}

/// Two clients; the second reads a file of the first from the beginning to the end.
struct Pair {
    one: Fs,
    writer: File,
    reader: File,
    id: Id,
    at: usize,
}

impl Pair {
    async fn new() -> Pair {
        let (one, two) = two_clients(false).await;
        let made = one.create(&root(), ROOT, &name("f"), 0o644, Taken::Refuse, access::BOTH).await;
        let (inode, writer) = made.expect("nothing is broken");
        writer.write_at(0, vec![b'a'; 60_000].into()).await.expect("nothing is broken");
        let reader = two.open(&root(), inode.id, access::BOTH).await.expect("nothing is broken");
        let mut pair = Pair { one, writer, reader, id: inode.id, at: 0 };
        assert_eq!(pair.next().await, [b'a'; PIECE]);
        pair
    }

    async fn next(&mut self) -> Vec<u8> {
        let read = self.reader.read_at(self.at as u64, PIECE).await.expect("nothing is broken");
        self.at += PIECE;
        read.into_bytes().to_vec()
    }

    /// The same once so much was read ahead that it needs no answer.
    async fn next_at_once(&mut self) -> Vec<u8> {
        let before = task::now();
        let read = self.next().await;
        assert_eq!(task::now(), before, "a server was asked");
        read
    }

    /// The file is written anew, and read from the beginning, up to where more is known than was asked for.
    async fn read_ahead(&mut self) {
        // Where it was in the way it is not read ahead for a while.
        task::sleep(Duration::from_secs(1000)).await;
        self.writer.write_at(0, vec![b'a'; 60_000].into()).await.expect("nothing is broken");
        // And nothing more is to be told of it.
        self.writer.flush().await.expect("nothing is broken");
        // Whom it has to dial it has dialled.
        self.reader.read_at(50_000, 1).await.expect("nothing is broken");
        self.at = 0;
        self.next().await;
        self.next().await;
        assert_eq!(self.next_at_once().await, [b'a'; PIECE]);
    }
}

/// What another client changes without a word to the metadata server is seen once that is done; until then it waits.
pub fn another_changes_it() {
    let (sim, _) = cluster();
    sim.run(Duration::from_secs(10_000), async {
        let mut pair = Pair::new().await;
        for change in 0..4 {
            pair.read_ahead().await;
            let writer = pair.writer.clone();
            let begun = task::now();
            let changing = task::spawn(async move {
                let (offset, piece) = ((4 * PIECE) as u64, vec![b'b'; PIECE]);
                let length = piece.len() as u64;
                let done = match change {
                    0 => writer.write_at(offset, piece.into()).await,
                    1 => {
                        let view = View::of_ranges([(offset, length)]).expect("small");
                        writer.write_view(&view, piece.into()).await
                    }
                    2 => {
                        let half = length / 2;
                        let ranges = [(offset, half), (offset + half, half)];
                        let view = View::of_ranges(ranges).expect("it is small");
                        writer.write_view(&view, piece.into()).await
                    }
                    _ => writer.fallocate(&root(), PUNCH_HOLE | KEEP_SIZE, offset, length).await,
                };
                done.expect("nothing is broken");
                task::now()
            });
            assert_eq!(pair.next_at_once().await, [b'a'; PIECE]);
            let done = changing.await.expect("it ends");
            assert!(done - begun > HOLD - A_WHILE, "{change}: it has not waited");
            assert!(done - begun < HOLD * 2, "{change}: it has waited for {:?}", done - begun);
            let wanted = if change == 3 { 0 } else { b'b' };
            assert_eq!(pair.next().await, [wanted; PIECE], "{change}");
        }
    })
    .expect("it ends");
}

/// A file whose readers were in the way of a write is not read ahead for a while, and no write waits.
pub fn it_was_in_the_way() {
    let (sim, _) = cluster();
    sim.run(Duration::from_secs(10_000), async {
        let mut pair = Pair::new().await;
        pair.read_ahead().await;
        let mut waited = 0;
        for byte in 0..40 {
            let before = task::now();
            pair.writer.write_at(0, vec![byte; PIECE].into()).await.expect("nothing is broken");
            waited += u32::from(task::now() - before > A_WHILE);
            task::sleep(Duration::from_millis(500)).await;
            pair.at = 0;
            assert_eq!(pair.next().await, [byte; PIECE]);
            assert_eq!(pair.next().await, [b'a'; PIECE]);
        }
        assert_eq!(waited, 2, "with a pause of 8 s and one of 16 s");
    })
    .expect("it ends");
}

/// A truncation takes what was read ahead.
pub fn another_truncates_it() {
    let (sim, _) = cluster();
    sim.run(Duration::from_secs(10_000), async {
        let mut pair = Pair::new().await;
        for (pieces, length) in [(0, 0), (3, 0), (4, PIECE)] {
            pair.read_ahead().await;
            let cut = SetAttr { size: Some(pieces * PIECE as u64), ..SetAttr::default() };
            pair.one.setattr(&root(), pair.id, cut).await.expect("nothing is broken");
            assert_eq!(pair.next().await.len(), length, "cut to {pieces} pieces");
        }
    })
    .expect("it ends");
}

/// Who reads ahead and writes waits for nobody, and finds what it has written.
pub fn its_reader_changes_it() {
    let (sim, _) = cluster();
    sim.run(Duration::from_secs(10_000), async {
        let mut pair = Pair::new().await;
        pair.read_ahead().await;
        let before = task::now();
        let written = pair.reader.write_at(3 * PIECE as u64, vec![b'b'; PIECE].into());
        written.await.expect("nothing is broken");
        assert!(task::now() - before < A_WHILE);
        assert_eq!(pair.next().await, [b'b'; PIECE]);
        // From now on it is asked for piece by piece: the next change may come at any moment.
        for _ in 0..3 {
            let before = task::now();
            assert_eq!(pair.next().await, [b'a'; PIECE]);
            assert!(task::now() > before);
        }
    })
    .expect("it ends");
}

/// An I/O server that has started anew knows nothing of who reads ahead, and lets nobody write sooner.
pub fn its_server_starts_anew() {
    let (sim, cluster) = cluster();
    sim.run(Duration::from_secs(100_000), async move {
        let mut pair = Pair::new().await;
        for _ in 0..20 {
            pair.read_ahead().await;
            let server = cluster.data[0].node;
            cluster.crash(server, false);
            cluster.boot(server);
            let writer = pair.writer.clone();
            let writing = task::spawn(async move {
                let offset = 3 * PIECE as u64;
                writer.write_at(offset, vec![b'b'; 9 * PIECE].into()).await
            });
            let is_done = |writing: &mut task::Task<_>| {
                use futures_util::FutureExt;
                writing.now_or_never()
            };
            let mut writing = writing;
            let mut done = None;
            while pair.at < 12 * PIECE {
                done = done.or_else(|| is_done(&mut writing));
                let is_written = done.is_some();
                let read = pair.next().await;
                assert!(!is_written || read == [b'b'; PIECE], "an old piece was read");
                task::sleep(Duration::from_millis(2)).await;
            }
            if done.is_none() {
                writing.await.expect("it ends").expect("nothing is broken");
            }
        }
    })
    .expect("it ends");
}
