//! An I/O server loses its disk and serves from an empty one, while servers are killed and lose their power: nobody reads
//! zeros where something was lost.

use crate::sim;
use crate::sim::cluster::{Cluster, STORE_DIR};
use crate::sim::roles::{name, root};
use covey_io::disk::Disk;
use covey_io::sim::{Rng, Sim};
use covey_io::task;
use covey_ninep::tree::{Errno, SetAttr};
use covey_stripe::check::{Access, forgive, lost_on};
use covey_stripe::client::{Error, Fs, Taken, access};
use covey_stripe::ops::{Id, Op, ROOT, Reply, StripingHint};
use covey_wire::Name;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const STRIP: u32 = 4096;
/// The index of the server whose disk is lost.
const LOST: u16 = 1;

struct File {
    id: Id,
    content: Vec<u8>,
    /// Its slots' servers.
    servers: Vec<u16>,
}

impl File {
    /// Whether a byte lay on the lost disk.
    fn was_lost(&self, at: usize) -> bool {
        self.servers[at / STRIP as usize % self.servers.len()] == LOST
    }

    fn has_lost(&self) -> bool {
        (0..self.content.len()).any(|at| self.was_lost(at))
    }
}

/// How many files have lost something.
pub fn replaced(seed: u64) -> usize {
    let (sim, mut rng) = (Sim::new(seed, false), Rng::new(seed));
    let striping = StripingHint::simple_stripe(STRIP, 2);
    let cluster = Cluster::format(sim.control(), &mut rng, 2, 1, striping);
    cluster.servers().for_each(|server| cluster.boot(server.node));
    sim.run(Duration::from_secs(3000), async move {
        let fs = sim::connect("one").await;
        let mut files = Vec::new();
        for index in 0..8 {
            files.push(write(&fs, &mut rng, index).await);
        }
        let before = store(&fs).await.expect("nothing is broken");
        let disk = &cluster.data[usize::from(LOST)];
        cluster.crash(disk.node, true);
        wipe(&disk.disk);
        cluster.boot(disk.node);
        let trouble = task::spawn(trouble(cluster.clone(), rng));
        until_done("replace", async || {
            let replaced = Access::ask(&fs, Op::ReplaceStore { server: LOST }).await;
            // Its answer may have been lost.
            if store(&fs).await? != before { Ok(()) } else { replaced.map(drop) }
        })
        .await;
        trouble.await.expect("it only makes trouble");
        check(&fs, &files, seed, |file| file.has_lost()).await;
        // What was synced then stays as it is.
        cluster.crash(disk.node, true);
        cluster.boot(disk.node);
        check(&fs, &files, seed, |file| file.has_lost()).await;
        let lost = lost_on(&fs, LOST).await.expect("nothing is broken any more");
        let ids: Vec<Id> = lost.iter().map(|one| one.inode.id).collect();
        let mut wanted: Vec<Id> =
            files.iter().filter(|file| file.has_lost()).map(|file| file.id).collect();
        wanted.sort_unstable();
        assert_eq!(ids, wanted, "seed {seed}");
        forgive(&fs, LOST, ids).await.expect("nothing is broken any more");
        check(&fs, &files, seed, |_| false).await;
        wanted.len()
    })
    .expect("it ends")
}

/// A file whose bytes are on stable storage; some are cut, so that their objects are at a later epoch.
async fn write(fs: &Fs, rng: &mut Rng, index: u8) -> File {
    let named = name(format!("f{index}"));
    let made = fs.create(&root(), ROOT, &named, 0o644, Taken::Refuse, access::BOTH).await;
    let (inode, file) = made.expect("nothing is broken");
    let mut content = vec![index + 1; 1 + rng.index(5 * STRIP as usize)];
    file.write_at(0, content.clone().into()).await.expect("nothing is broken");
    if rng.chance(500) {
        content.truncate(rng.index(content.len() + 1));
        let size = Some(content.len() as u64);
        let cut = fs.setattr(&root(), inode.id, SetAttr { size, ..SetAttr::default() }).await;
        cut.expect("nothing is broken");
    }
    file.fsync().await.expect("nothing is broken");
    fs.sync(ROOT).await.expect("nothing is broken");
    File { id: inode.id, content, servers: inode.striping.expect("it is striped").servers.0 }
}

/// The store that the server is known by.
async fn store(fs: &Fs) -> Result<Name, Error> {
    match Access::ask(fs, Op::Stores {}).await? {
        Reply::Stores { stores } => Ok(stores.0[usize::from(LOST)].known.clone()),
        other => panic!("{other:?}"),
    }
}

fn wipe(disk: &dyn Disk) {
    let objects = Path::new(STORE_DIR).join("objects");
    for low in 0..256 {
        let dir = objects.join(format!("{low:02x}"));
        for name in disk.list(&dir).expect("it was formatted") {
            disk.remove(&dir.join(name)).expect("it is there");
        }
    }
    disk.remove(&objects.join("identity")).expect("it is there");
}

/// Kills servers and takes their power a few times.
async fn trouble(cluster: Rc<Cluster>, mut rng: Rng) {
    for _ in 0..rng.index(4) {
        task::sleep(Duration::from_millis(rng.index(3000) as u64)).await;
        let node = match rng.index(3) {
            0 => cluster.meta.node,
            _ => cluster.data[usize::from(LOST)].node,
        };
        cluster.crash(node, rng.chance(700));
        cluster.boot(node);
    }
}

/// Asks again until it is done.
async fn until_done(what: &str, mut act: impl AsyncFnMut() -> Result<(), Error>) {
    for _ in 0..200 {
        if act().await.is_ok() {
            return;
        }
        task::sleep(Duration::from_millis(200)).await;
    }
    panic!("{what} is never done");
}

/// Each file has its content, apart from what was lost: that is an error where `is_error` says so, and else zeros.
async fn check(fs: &Fs, files: &[File], seed: u64, is_error: impl Fn(&File) -> bool) {
    for file in files {
        let size = file.content.len();
        let what = || format!("seed {seed}: file {} of {size} bytes", file.id);
        let read = async || {
            let open = fs.open(&root(), file.id, access::READ).await?;
            open.read_at(0, size + 1).await
        };
        if is_error(file) {
            // Servers may still be coming back.
            until_done("an answer about what is lost", async || match read().await {
                Ok(found) => panic!("{}: {} bytes are read", what(), found.len()),
                Err(error) if error.to_string().contains("was lost with its disk") => {
                    assert_eq!(error.code(), Errno::EIO);
                    Ok(())
                }
                Err(error) => Err(error),
            })
            .await;
            continue;
        }
        let mut wanted = file.content.clone();
        (0..size).filter(|&at| file.was_lost(at)).for_each(|at| wanted[at] = 0);
        until_done("a read", async || {
            let found = read().await?.into_bytes();
            assert!(found == wanted, "{}: other bytes", what());
            Ok(())
        })
        .await;
    }
}
