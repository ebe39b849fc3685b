//! Directories that a client has made: it is alone with them from the beginning.

use crate::kept::{code, create, list, mkdir, two_clients};
use crate::scenes::small_with;
use crate::sim::roles::{name, root};
use covey_io::task;
use covey_ninep::tree::{Errno, SetAttr};
use covey_stripe::client::{Fs, Listing};
use covey_stripe::ops::{Id, ROOT, StripingHint};
use std::time::Duration;

/// Whether the server was asked to make a file.
async fn asks_for_file(fs: &Fs, dir: Id, text: &str) -> bool {
    code(fs.lookup(&root(), dir, &name(text)).await);
    let before = task::now();
    let (_, file) = create(fs, dir, text).await.expect("nothing is broken");
    let asks = task::now() > before;
    file.flush().await.expect("nothing is broken");
    asks
}

/// Whether the server was asked to set a directory's mode.
async fn asks_for_mode(fs: &Fs, dir: Id, mode: u32) -> bool {
    let before = task::now();
    let new = SetAttr { mode: Some(mode), ..SetAttr::default() };
    let done = fs.setattr(&root(), dir, new).await.expect("it is there");
    assert_eq!(done.inode.mode & 0o7777, mode);
    task::now() > before
}

async fn mode_of(fs: &Fs, dir: Id) -> u32 {
    fs.inode(dir).await.expect("it is there").mode & 0o7777
}

/// A tree is made with one request for each directory, and others see it as it is.
pub fn nothing_is_asked_for_before() {
    let (sim, ..) = small_with(1, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(1000), async {
        let (one, two) = two_clients(true).await;
        let dir = mkdir(&one, ROOT, "d").await;
        assert!(!asks_for_file(&one, dir, "first").await);
        let below = mkdir(&one, dir, "below").await;
        assert!(!asks_for_mode(&one, below, 0o700).await, "nothing was done in it");
        assert!(!asks_for_file(&one, dir, "second").await);
        assert!(!asks_for_mode(&one, dir, 0o711).await, "there is a directory in it");
        let taken = two.make(&root(), ROOT, &name("d"), 0o040755, 0, name("")).await;
        assert_eq!(code(taken), Errno::EEXIST);
        assert_eq!([mode_of(&two, below).await, mode_of(&two, dir).await], [0o700, 0o711]);
        let mut listed = list(&two, dir, Listing::Inodes).await;
        listed.sort();
        let names: Vec<_> = listed.iter().map(|(text, _)| text.as_str()).collect();
        assert_eq!(names, [".", "..", "below", "first", "second"]);
        let again = one.make(&root(), ROOT, &name("d"), 0o040755, 0, name("")).await;
        assert_eq!(code(again), Errno::EEXIST);
    })
    .expect("it ends");
}

/// What others take back at once counts once, and what nobody holds any more does not count.
pub fn another_lists_them_all() {
    let (sim, ..) = small_with(1, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(1000), async {
        let (one, two) = two_clients(true).await;
        for at in 0..9 {
            mkdir(&one, ROOT, &format!("d{at}")).await;
        }
        list(&two, ROOT, Listing::Inodes).await;
        let next = mkdir(&one, ROOT, "next").await;
        assert!(asks_for_mode(&one, next, 0o700).await);
        task::sleep(Duration::from_secs(2)).await;
        let later = mkdir(&one, ROOT, "later").await;
        assert!(!asks_for_mode(&one, later, 0o700).await);
        // Long after it was this one's alone, and nothing was done in it.
        let old = mkdir(&one, ROOT, "old").await;
        task::sleep(Duration::from_secs(10)).await;
        assert_eq!(mode_of(&one, old).await, 0o777);
        asks_for_mode(&two, old, 0o711).await;
        let last = mkdir(&one, ROOT, "last").await;
        assert!(!asks_for_mode(&one, last, 0o700).await);
    })
    .expect("it ends");
}

/// Who comes before anything was done in a directory has that given back; the next ones are anybody's, for a while.
pub fn another_comes_first() {
    let (sim, ..) = small_with(1, StripingHint::progressive(65536, 1));
    sim.run(Duration::from_secs(1000), async {
        let (one, two) = two_clients(true).await;
        let mut pause = Duration::from_secs(2);
        for round in 0..3 {
            let dir = mkdir(&one, ROOT, &format!("d{round}")).await;
            assert_eq!(mode_of(&two, dir).await, 0o777);
            let next = mkdir(&one, ROOT, &format!("e{round}")).await;
            assert!(asks_for_mode(&one, next, 0o700).await, "round {round}");
            // It is not left to all.
            assert!(asks_for_file(&one, dir, "first").await);
            assert!(!asks_for_file(&one, dir, "second").await);
            task::sleep(pause).await;
            let later = mkdir(&one, ROOT, &format!("f{round}")).await;
            assert!(!asks_for_mode(&one, later, 0o700).await, "round {round}");
            task::sleep(Duration::from_secs(1)).await;
            pause *= 2;
        }
        // One in which something was done.
        let dir = mkdir(&one, ROOT, "used").await;
        assert!(!asks_for_file(&one, dir, "first").await);
        assert_eq!(mode_of(&two, dir).await, 0o777);
        let next = mkdir(&one, ROOT, "next").await;
        assert!(!asks_for_mode(&one, next, 0o700).await);
    })
    .expect("it ends");
}
