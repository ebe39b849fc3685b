//! A bit rots on the metadata server's disk, in its log, while the server is down.
//!
//! The log's records have checksums, and marks in it say how far it was on the disk once. So either the
//! server refuses to start, with the file and the byte, or what it shows is what was there up to some
//! moment, no earlier than the last mark. Objects have no checksums, nor has the map: see the
//! semantics.

use crate::scenes::small;
use crate::sim;
use crate::sim::cluster::{Cluster, META_DIR};
use crate::sim::roles::{name, root};
use covey_io::disk::Disk;
use covey_io::sim::Rng;
use covey_io::task;
use covey_stripe::client::{Fs, Listing};
use covey_stripe::ops::ROOT;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// How it comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server has named the damage.
    Named,
    /// It was taken for the torn tail of what nobody had synced, or for nothing.
    Cut { made: usize, kept: usize },
}

/// Runs one seed; panics where something wrong is shown.
pub fn rot(seed: u64) -> Outcome {
    let (sim, cluster, rng) = small(seed);
    sim.run(Duration::from_secs(300), live(cluster, rng)).expect("it ends")
}

async fn live(cluster: Rc<Cluster>, mut rng: Rng) -> Outcome {
    let fs = sim::connect("before").await;
    let made = 5 + rng.index(60);
    let (mut synced, mut marked) = (0, 0);
    for number in 0..made {
        make(&fs, number).await;
        // The first record behind a sync says how far that has reached.
        marked = synced;
        if rng.chance(150) {
            fs.sync(ROOT).await.expect("nothing is broken yet");
            synced = number + 1;
        }
    }
    cluster.crash(cluster.meta.node, false);
    rot_log(&cluster);
    cluster.boot(cluster.meta.node);
    task::sleep(Duration::from_secs(1)).await;
    if let Some(why) = cluster.refusal.take() {
        assert!(why.contains(META_DIR) && why.contains("is damaged at byte"), "{why}");
        return Outcome::Named;
    }
    let kept = names(&sim::connect("after").await).await;
    let wanted: Vec<String> = (0..kept.len()).map(text).collect();
    assert_eq!(kept, wanted, "what is left is no beginning of what was made");
    assert!(kept.len() >= marked, "{} of {made} names left, {marked} were marked", kept.len());
    Outcome::Cut { made, kept: kept.len() }
}

fn rot_log(cluster: &Cluster) {
    let disk = &cluster.meta.disk;
    let mut logs = disk.list(Path::new(META_DIR)).expect("it was formatted");
    logs.retain(|name| name.as_encoded_bytes().starts_with(b"log."));
    cluster.is_rotten.set(true);
    for log in logs {
        disk.rot(&Path::new(META_DIR).join(log));
    }
}

/// Names that sort as they were made.
fn text(number: usize) -> String {
    format!("name{number:04}")
}

async fn make(fs: &Fs, number: usize) {
    let made = fs.make(&root(), ROOT, &name(text(number)), 0o040755, 0, name("")).await;
    made.expect("nothing is broken yet");
}

async fn names(fs: &Fs) -> Vec<String> {
    let page =
        fs.readdir(&root(), ROOT, 0, 0, 100_000, Listing::Names).await.expect("it has started");
    assert!(page.end, "all fits");
    let names = page.entries.iter().map(|entry| entry.name.lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("name")).collect();
    names.sort();
    names
}
