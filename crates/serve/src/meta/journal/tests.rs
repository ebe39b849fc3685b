//! Scenes of the journal: what is there after a start, and when an answer may go.

use super::*;
use covey_io::disk::Open;
use covey_io::sim::{DiskProfile, Rng, SimDisk};
use covey_stripe::meta::Applied;
use covey_stripe::ops::{Caller, ROOT, Reply, StripingHint};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const DIR: &str = "/meta";

/// A store whose process may end at any time. Its map is real; the log lies on a disk that can fail.
struct Lab {
    map: tempfile::TempDir,
    disk: SimDisk,
}

impl Lab {
    fn new() -> Lab {
        let map = tempfile::tempdir().unwrap();
        let disk = SimDisk::new(DiskProfile::default(), Rng::new(1));
        disk.make_dir(Path::new(DIR)).unwrap();
        let mut rows = Media::open(map.path()).unwrap().map;
        let hint = StripingHint::simple_stripe(4096, 1);
        Store::format(&mut rows, "flock", &servers(), hint, 1, (0, 0)).unwrap();
        rows.checkpoint().unwrap();
        Lab { map, disk }
    }

    fn open(&self) -> (Store<Rows>, Journal) {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let map = Media::open(self.map.path()).unwrap().map;
        Journal::open(Media { dir: DIR.into(), disk, map }, &servers(), Rc::default()).unwrap()
    }
}

fn servers() -> [String; 1] {
    ["io0".to_owned()]
}

fn request(op: Op) -> Request {
    Request { session: 0, seq: 0, seq_done: 0, now: 1, caller: Caller::default(), op }
}

/// Makes a file and puts that into the batch.
fn make(store: &mut Store<Rows>, journal: &Journal, name: &str) {
    let request = request(Op::Create {
        parent: ROOT,
        name: Name::from(name),
        mode: 0o100_644,
        gid: 0,
        rdev: 0,
        target: Name::EMPTY,
        exclusive: true,
        open: false,
        access: 0,
    });
    match store.apply(&request) {
        Applied::Reply(Reply::Created { .. }) => journal.keep(&request),
        other => panic!("{other:?}"),
    }
}

fn has(store: &mut Store<Rows>, name: &str) -> bool {
    let op = Op::Walk { from: ROOT, names: List(vec![Name::from(name)]) };
    match store.apply(&request(op)) {
        Applied::Reply(Reply::Nodes { inodes }) => inodes.0.len() == 1,
        Applied::Reply(Reply::Error { code: Errno::ENOENT, .. }) => false,
        other => panic!("{other:?}"),
    }
}

/// The generation of the log, and how many bytes of records it has.
fn log_of(journal: &Journal) -> (u64, u64) {
    let log = journal.log.borrow();
    let log = log.as_ref().expect("no checkpoint has it");
    (log.generation(), log.bytes())
}

fn run<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(future)
}

#[test]
fn what_the_log_has_taken_outlives_the_process_and_what_it_has_not_does_not() {
    let lab = Lab::new();
    let (mut store, journal) = lab.open();
    make(&mut store, &journal, "kept");
    journal.flush().unwrap();
    make(&mut store, &journal, "lost");
    drop((store, journal));
    let (mut store, _journal) = lab.open();
    assert!(has(&mut store, "kept"));
    assert!(!has(&mut store, "lost"), "it was never acknowledged");
}

#[test]
fn an_answer_waits_for_its_batch() {
    let lab = Lab::new();
    let (mut store, journal) = lab.open();
    let mut context = Context::from_waker(Waker::noop());
    let nothing = pin!(journal.caught_up());
    assert_eq!(nothing.poll(&mut context), Poll::Ready(Ok(())), "nothing was applied");
    make(&mut store, &journal, "f");
    let mut answer = pin!(journal.caught_up());
    assert!(journal.is_behind() && answer.as_mut().poll(&mut context).is_pending());
    journal.flush().unwrap();
    assert_eq!(answer.poll(&mut context), Poll::Ready(Ok(())));
    assert!(!journal.is_behind());
}

#[test]
fn an_answer_whose_batch_is_never_written_is_an_error() {
    let lab = Lab::new();
    let (mut store, journal) = lab.open();
    make(&mut store, &journal, "f");
    let answer = pin!(journal.caught_up());
    drop(journal);
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Err(error)) = answer.poll(&mut context) else { panic!("it goes on") };
    assert_eq!(error.code, Errno::EIO);
}

#[test]
fn a_batch_that_was_cut_in_half_is_dropped_alone() {
    let lab = Lab::new();
    let (mut store, journal) = lab.open();
    for name in ["one", "two"] {
        make(&mut store, &journal, name);
        journal.flush().unwrap();
    }
    let (generation, bytes) = log_of(&journal);
    drop((store, journal));
    let file = Path::new(DIR).join(format!("log.{generation:08}"));
    lab.disk.open(&file, Open::Existing).unwrap().set_length(bytes - 1).unwrap();
    let (mut store, _journal) = lab.open();
    assert!(has(&mut store, "one") && !has(&mut store, "two"));
}

#[test]
fn a_checkpoint_begins_the_log_anew_and_loses_nothing() {
    let lab = Lab::new();
    let (mut store, journal) = lab.open();
    make(&mut store, &journal, "before");
    let (generation, _) = log_of(&journal);
    // What is still in the batch goes with it.
    let mut store = run(journal.checkpoint(store)).unwrap();
    assert_eq!(log_of(&journal), (generation + 1, 0));
    make(&mut store, &journal, "after");
    journal.flush().unwrap();
    assert!(log_of(&journal).1 > 0);
    drop((store, journal));
    let (mut store, _journal) = lab.open();
    assert!(has(&mut store, "before") && has(&mut store, "after"));
}

/// Names of the files that are logs, or are to be.
fn logs(lab: &Lab) -> Vec<String> {
    let names = lab.disk.list(Path::new(DIR)).unwrap();
    let mut names: Vec<String> =
        names.iter().map(|name| name.to_string_lossy().into_owned()).collect();
    names.retain(|name| name.starts_with("log."));
    names.sort();
    names
}

#[test]
fn a_log_that_is_half_full_is_followed_by_one_that_was_made_meanwhile() {
    let lab = Lab::new();
    lab.disk.set_capacity(2 << 30);
    let (mut store, journal) = lab.open();
    let (generation, _) = log_of(&journal);
    let name = |generation: u64| format!("log.{generation:08}");
    // The checkpoint comes before anybody reads this.
    let padding = |journal: &Journal, bytes: u64| {
        let filler = vec![1; bytes as usize];
        let mut log = journal.log.borrow_mut();
        let log = log.as_mut().unwrap();
        log.append(&[&filler]).unwrap();
        journal.taking.log_has(log.bytes());
    };
    journal.take_room_now();
    padding(&journal, LOG_BYTES_MAX / 2 - 64);
    journal.take_room_now();
    assert_eq!(logs(&lab), [name(generation)], "it is not half full");
    padding(&journal, 64);
    journal.take_room_now();
    assert_eq!(logs(&lab), [name(generation), "log.next".to_owned()]);
    make(&mut store, &journal, "before");
    let mut store = run(journal.checkpoint(store)).unwrap();
    assert_eq!(log_of(&journal), (generation + 1, 0));
    assert_eq!(logs(&lab), [name(generation), name(generation + 1)]);
    journal.take_room_now();
    assert_eq!(logs(&lab), [name(generation + 1)], "the older one is removed beside the service");
    make(&mut store, &journal, "after");
    journal.flush().unwrap();
    drop((store, journal));
    let (mut store, _journal) = lab.open();
    assert!(has(&mut store, "before") && has(&mut store, "after"));
}

#[test]
fn after_a_failed_sync_no_answer_goes_before_the_checkpoint() {
    let lab = Lab::new();
    let (mut store, journal) = lab.open();
    make(&mut store, &journal, "f");
    journal.flush().unwrap();
    run(async {
        lab.disk.fail_syncs(1);
        let mut sync = pin!(journal.sync());
        tokio::select! {
            _ = &mut sync => panic!("the disk has not kept it"),
            () = journal.checkpoint_is_wanted() => {}
        }
        assert!(journal.is_behind());
        let mut answer = pin!(journal.caught_up());
        let mut context = Context::from_waker(Waker::noop());
        assert!(answer.as_mut().poll(&mut context).is_pending());
        let _store = journal.checkpoint(store).await.unwrap();
        sync.await.unwrap();
        answer.await.unwrap();
    });
    assert!(!journal.is_behind());
}

#[test]
fn a_log_without_room_says_so_before_anything_is_applied() {
    let lab = Lab::new();
    let (_store, journal) = lab.open();
    lab.disk.set_capacity(lab.disk.used());
    assert!(journal.has_room(), "a step is taken ahead");
    journal.batch.borrow_mut().records.push(vec![0; 16 << 20]);
    assert!(!journal.has_room());
    lab.disk.set_capacity(1 << 30);
    assert!(journal.has_room());
}

/// A map of a thousand parts of which so many are used.
struct Used(u64);

impl Map for Used {
    fn get(&self, _: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }
    fn put(&mut self, _: &[u8], _: &[u8]) -> Result<()> {
        Ok(())
    }
    fn delete(&mut self, _: &[u8]) -> Result<bool> {
        Ok(false)
    }
    fn scan(&self, _: &[u8], _: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<()> {
        Ok(())
    }
}

impl DurableMap for Used {
    fn checkpoint(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn space(&self) -> io::Result<MapSpace> {
        let limit = 100 << 20;
        let used = limit / 1000 * self.0 + 1;
        Ok(MapSpace { used, dirty: 0, pending: 0, held: limit, limit })
    }
}

#[test]
fn room_becomes_scarce_before_there_is_none_and_ample_when_some_was_freed() {
    let (_store, journal) = Lab::new().open();
    let seen: Vec<Room> = [800, 899, 900, 899, 880, 879, 890, 949, 950, 949, 10]
        .into_iter()
        .map(|used| journal.room(&Rows::new(Used(used))))
        .collect();
    use Room::{Ample, None, Scarce};
    assert_eq!(
        seen,
        [Ample, Ample, Scarce, Scarce, Scarce, Ample, Ample, Scarce, None, Scarce, Ample]
    );
}

#[test]
fn a_full_store_takes_a_bounded_part_of_what_was_done_before() {
    let (_store, journal) = Lab::new().open();
    let full = Rows::new(Used(960));
    assert_eq!(journal.room(&full), Room::None);
    // A twentieth of it is kept for what removes things, a quarter of that is for this.
    let most = (100 << 20) / 20 / 4;
    assert!(journal.spares(&full, most - 10));
    assert!(!journal.spares(&full, 11));
    assert!(journal.spares(&full, 10), "what was refused does not count");
    assert!(!journal.spares(&full, 1));
    assert_eq!(journal.room(&Rows::new(Used(949))), Room::Scarce);
    assert!(journal.spares(&full, most), "there was room meanwhile");
}
