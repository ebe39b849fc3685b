//! What small files hold, brought with listings to who reads it: never older than what was acknowledged before it is read.

use crate::kept::{create, list, mkdir, two_clients};
use crate::scenes::small_with;
use crate::sim::roles::root;
use covey_io::task;
use covey_stripe::client::{File, Fs, Listing, access};
use covey_stripe::ops::{Id, ROOT, StripingHint};
use futures_util::future::join;
use std::cell::Cell;
use std::time::Duration;

async fn write(file: &File, byte: u8) {
    file.write_at(0, vec![byte; 100].into()).await.expect("nothing is broken");
    file.flush().await.expect("nothing is broken");
}

/// A directory with files that hold this, and their numbers.
async fn filled(fs: &Fs, within: Id, text: &str, files: u8) -> (Id, Vec<(Id, File)>) {
    let dir = mkdir(fs, within, text).await;
    let mut made = Vec::new();
    for byte in 0..files {
        let (inode, file) = create(fs, dir, &format!("f{byte}")).await.expect("nothing is broken");
        write(&file, byte).await;
        made.push((inode.id, file));
    }
    (dir, made)
}

/// The byte of which a file is full.
async fn read(fs: &Fs, id: Id) -> u8 {
    let file = fs.open(&root(), id, access::READ).await.expect("it is there");
    let bytes = file.read_at(0, 1000).await.expect("it is open").into_bytes();
    assert!(bytes.len() == 100 && bytes.iter().all(|byte| *byte == bytes[0]), "{bytes:?}");
    bytes[0]
}

/// Who reads what was listed needs no question for what the next directory's files hold, and is told of what changed.
pub fn a_tree_is_read() {
    let (sim, ..) = small_with(1, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(1000), async {
        let (one, two) = two_clients(true).await;
        let mut dirs = Vec::new();
        for text in ["a", "b", "c"] {
            dirs.push(filled(&one, ROOT, text, 4).await);
        }
        // Nobody is alone with them any more.
        task::sleep(Duration::from_secs(2)).await;
        let asks = async |dir: &(Id, Vec<(Id, File)>)| {
            list(&two, dir.0, Listing::Inodes).await;
            let before = task::now();
            for (byte, (id, _)) in dir.1.iter().enumerate() {
                assert_eq!(usize::from(read(&two, *id).await), byte);
            }
            task::now() > before
        };
        assert!(asks(&dirs[0]).await, "nobody knew that it would be read");
        assert!(!asks(&dirs[1]).await);
        // Listed, changed, and read; one of them is not closed yet.
        let (dir, files) = &dirs[2];
        list(&two, *dir, Listing::Inodes).await;
        write(&files[1].1, 11).await;
        files[2].1.write_at(0, vec![12; 100].into()).await.expect("nothing is broken");
        let mut found = Vec::new();
        for (id, _) in files {
            found.push(read(&two, *id).await);
        }
        assert_eq!(found, [0, 11, 12, 3]);
        let (dir, made) = filled(&one, *dir, "below", 1).await;
        task::sleep(Duration::from_secs(2)).await;
        list(&two, dir, Listing::Inodes).await;
        let before = task::now();
        assert_eq!(read(&two, made[0].0).await, 0);
        assert_eq!(task::now(), before);
    })
    .expect("it ends");
}

/// One writes while the other lists and reads; how often that needed no question.
pub fn another_writes_meanwhile(seed: u64) -> u32 {
    let (sim, _, mut rng) = small_with(seed, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(1000), async move {
        let (one, two) = two_clients(true).await;
        let (dir, files) = filled(&one, ROOT, "d", 3).await;
        let pauses: Vec<Duration> =
            (0..200).map(|_| rng.time(Duration::ZERO..Duration::from_millis(8))).collect();
        let (written, is_over, at_once) = (Cell::new(2u8), Cell::new(false), Cell::new(0));
        let writes = async {
            for (byte, pause) in (3..103).zip(&pauses) {
                write(&files[2].1, byte).await;
                written.set(byte);
                task::sleep(*pause).await;
            }
            is_over.set(true);
        };
        let reads = async {
            let mut pauses = pauses[100..].iter().cycle();
            while !is_over.get() {
                list(&two, dir, Listing::Inodes).await;
                task::sleep(*pauses.next().expect("there are more")).await;
                for (id, _) in &files[..2] {
                    read(&two, *id).await;
                }
                let (least, before) = (written.get(), task::now());
                let found = read(&two, files[2].0).await;
                at_once.set(at_once.get() + u32::from(task::now() == before));
                assert!(found >= least, "seed {seed}: {found} after {least} was acknowledged");
            }
        };
        join(writes, reads).await;
        assert_eq!(read(&two, files[2].0).await, 102);
        at_once.get()
    })
    .expect("it ends")
}
