//! What must be so when all is over: nothing leaked, nothing is left pending.

use super::cluster::STORE_DIR;
use super::lab::Lab;
use super::roles::root;
use covey_io::disk::{Disk, Open};
use covey_io::sim::SimDisk;
use covey_stripe::client::{Fs, Listing};
use covey_stripe::objects;
use covey_stripe::ops::{Id, Inode, ROOT};
use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};

/// Everything that has a name.
async fn all_inodes(lab: &Lab, fs: &Fs) -> BTreeMap<Id, Inode> {
    let mut found = BTreeMap::new();
    let mut names: BTreeMap<Id, u32> = BTreeMap::new();
    let mut queue = VecDeque::from([ROOT]);
    let who = root();
    while let Some(dir) = queue.pop_front() {
        let (mut cookie, mut limit) = (0, 0);
        loop {
            let listed = fs.readdir(&who, dir, cookie, limit, 2000, Listing::Inodes);
            let page = lab.attempt(format!("list {dir}"), listed).await.1.expect("all is well");
            limit = page.limit;
            for entry in page.entries {
                cookie = entry.cookie;
                if [&b"."[..], b".."].contains(&entry.name.as_bytes()) {
                    continue;
                }
                let inode = entry.inode.expect("it was asked for");
                *names.entry(inode.id).or_default() += 1;
                if inode.is_dir() {
                    queue.push_back(inode.id);
                }
                found.insert(inode.id, inode);
            }
            if page.end {
                break;
            }
        }
    }
    for (id, inode) in found.iter().filter(|(_, inode)| !inode.is_dir()) {
        assert_eq!(inode.nlink, names[id], "links of file {id}");
    }
    found
}

/// Looks at the names and at the disks.
pub async fn audit(lab: &Lab, fs: &Fs) {
    let inodes = all_inodes(lab, fs).await;
    let space = lab.attempt("statfs".into(), fs.space()).await.1.expect("all is well");
    assert_eq!(
        space.files,
        inodes.len() as u64 + 1,
        "files that the store counts, and with a name"
    );
    let chains = lab.attempt("chains".into(), fs.chains()).await.1.expect("all is well");
    let leads = |chain: usize, server: usize| {
        let head = chains.get(chain).and_then(|chain| chain.head());
        head.is_some_and(|head| usize::from(head.server) == server)
    };
    for (at, server) in lab.cluster.data.iter().enumerate() {
        for (chain, dir) in directories(&server.disk, at) {
            let all = server.disk.list(&dir).expect("it was formatted");
            if !leads(chain, at) {
                assert!(
                    all.is_empty(),
                    "{} keeps {} of another's chain",
                    server.name,
                    dir.display()
                );
            }
            for found in all {
                // What a mover that died had put there goes when the file moves, is cut or is removed.
                if lab.has_moves.get() && found.as_encoded_bytes().ends_with(b".part") {
                    continue;
                }
                let (id, epoch) =
                    objects::parse(found.as_encoded_bytes()).expect("objects have ids");
                if epoch.is_some_and(objects::is_left) && lab.has_moves.get() {
                    continue;
                }
                let Some(inode) = inodes.get(&id) else {
                    panic!("{} keeps object {id:x}, which belongs to no file", server.name);
                };
                let epoch = epoch.unwrap_or(0);
                assert_eq!(epoch, inode.epoch, "epoch of object {id:x} on {}", server.name);
            }
        }
    }
}

/// Where a server has objects, and of which chain: its own, and those that its identity names. There are no other directories.
fn directories(disk: &SimDisk, own: usize) -> Vec<(usize, PathBuf)> {
    let objects = Path::new(STORE_DIR).join("objects");
    let identity = disk.open(&objects.join("identity"), Open::Existing).expect("it has one");
    let identity = identity.read_blocking(0, 1 << 16).expect("nothing is broken any more");
    let text = String::from_utf8_lossy(&identity);
    let (mut dirs, mut stays) = (Vec::new(), Vec::new());
    let mut is_own = true;
    for line in text.lines().filter_map(|line| line.strip_prefix("chain ")) {
        let [chain, stay, _] = line.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{line:?} is no chain")
        };
        stays.push(format!("c{chain}.{stay}"));
        let dir = objects.join(&stays[stays.len() - 1]);
        let chain: usize = chain.parse().expect("it is a number");
        is_own &= chain != own;
        dirs.extend((0..16).map(|low| (chain, dir.join(format!("{low:02x}")))));
    }
    let has_left = text.lines().any(|line| line.starts_with(&format!("left {own} ")));
    for dir in (0..256).map(|low| objects.join(format!("{low:02x}"))) {
        let is_empty = disk.list(&dir).expect("it was formatted").is_empty();
        let may_hold = is_own && !has_left;
        assert!(is_empty || may_hold, "what has left is not removed from {}", dir.display());
        if is_own {
            dirs.push((own, dir));
        }
    }
    for found in disk.list(&objects).expect("it was formatted") {
        let found = found.to_string_lossy().into_owned();
        let is_stay = found.starts_with('c') && found.contains('.');
        let is_named = !is_stay || stays.contains(&found);
        assert!(is_named, "{found} is left in {}", objects.display());
    }
    dirs
}
