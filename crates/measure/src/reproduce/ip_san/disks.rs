//! The paper's cluster as a lab: n1 to n4 compute, n5 to n8 store; each has a card in the network of the messages and one in
//! a network for storage alone. Which of both a disk is reached by is chosen for each disk.
//!
//! ```text
//!   local      n1 .. n4   ext4 in a file of the machine
//!   1:1        n1 ── n5, n2 ── n6, ...   ext4 on a volume of a node of its own
//!   N:1        n1 .. n4 ── n5            ext4 on a volume each, all of one node
//!   parallel   n1 .. n4 ── n5 .. n8      one file system, striped over four nodes
//! ```
//!
//! On every node a disk is mounted at the same path: each writes to what is there.

use crate::error::{Cannot, Error, Result};
use crate::hosts::Hosts;
use crate::reproduce::bench::Bench;
use covey_cluster::config::{Address, Config, Node, PORT_DEFAULT, Pacing, Role, new_id, render};
use covey_lab::enter::ourselves;
use covey_lab::plan::Plan;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// So many nodes compute, and as many store.
pub const NODES: usize = 4;
/// The paper's network.
pub const LINK: &str = "gigabit";
const PORT_ISCSI: u16 = 3260;

/// Where a node's files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Disk {
    /// In its own machine.
    Local,
    /// On a volume of a target of its own.
    OneToOne,
    /// On a volume of a target that all nodes have.
    ManyToOne,
    /// In the parallel file system.
    Striped,
}

/// Which network a disk is reached by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Net {
    /// That of the messages.
    Consolidated,
    /// One for storage alone.
    Separate,
}

/// A disk and the way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The disk.
    pub disk: Disk,
    /// Of the local disk there is one way only: it counts as separate.
    pub net: Net,
}

impl Place {
    /// The local disk.
    pub const LOCAL: Place = Place { disk: Disk::Local, net: Net::Separate };

    /// Every place, in the order of the tables.
    pub fn all() -> Vec<Place> {
        let remote = [Disk::OneToOne, Disk::ManyToOne, Disk::Striped].into_iter();
        let both = |disk| [Net::Consolidated, Net::Separate].map(|net| Place { disk, net });
        std::iter::once(Place::LOCAL).chain(remote.flat_map(both)).collect()
    }

    /// Every disk by the one network, as the paper has it.
    pub fn consolidated() -> Vec<Place> {
        Place::all()
            .into_iter()
            .filter(|one| *one == Place::LOCAL || one.net == Net::Consolidated)
            .collect()
    }

    /// A disk by the one network.
    pub const fn shared(disk: Disk) -> Place {
        Place { disk, net: Net::Consolidated }
    }

    /// In words.
    pub fn words(self) -> String {
        let disk = match self.disk {
            Disk::Local => return "local disk".to_owned(),
            Disk::OneToOne => "1:1 iSCSI",
            Disk::ManyToOne => "N:1 iSCSI",
            Disk::Striped => "parallel file system",
        };
        match self.net {
            Net::Consolidated => format!("{disk}, one network"),
            Net::Separate => format!("{disk}, two networks"),
        }
    }

    fn word(self) -> &'static str {
        match (self.disk, self.net) {
            (Disk::Local, _) => "local",
            (Disk::OneToOne, Net::Consolidated) => "one-front",
            (Disk::OneToOne, Net::Separate) => "one-back",
            (Disk::ManyToOne, Net::Consolidated) => "many-front",
            (Disk::ManyToOne, Net::Separate) => "many-back",
            (Disk::Striped, Net::Consolidated) => "striped-front",
            (Disk::Striped, Net::Separate) => "striped-back",
        }
    }

    /// The index of the lab's network.
    fn network(self) -> usize {
        match self.net {
            Net::Consolidated => 0,
            Net::Separate => 1,
        }
    }
}

/// What a lab is to have.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The disks.
    pub places: Vec<Place>,
    /// How many nodes have them.
    pub nodes: usize,
    /// How large each is.
    pub bytes: u64,
    /// Whether storage can be made to yield to messages.
    pub can_pace: bool,
}

/// The lab with its disks.
#[derive(Debug)]
pub struct Disks {
    dir: PathBuf,
    nodes: usize,
    /// The configuration that all nodes have.
    config: PathBuf,
    /// What was attached: the node, the place of its volume.
    attached: Vec<(String, PathBuf)>,
}

impl Disks {
    /// Makes the lab, its cluster, the volumes and the mounts. When anything of it fails, it goes.
    pub async fn up(bench: &mut Bench, wish: &Wish) -> Result<Disks> {
        if !rustix::process::geteuid().is_root() {
            return Err(Error::work("cannot mount file systems of volumes: only root may"));
        }
        let nodes = (2 * NODES).to_string();
        bench.lab(&[&nodes, "--link", LINK, "--storage-link", LINK]).await?;
        let dir = bench.now()?.dir.clone();
        let config = dir.join("cluster/covey.toml");
        let mut disks = Disks { dir, nodes: wish.nodes, config, attached: Vec::new() };
        match disks.furnish(bench, wish).await {
            Ok(()) => Ok(disks),
            Err(error) => {
                disks.down(bench).await?;
                Err(error)
            }
        }
    }

    /// Where a disk is, on every node.
    pub fn dir_of(&self, place: Place) -> PathBuf {
        self.dir.join("disk").join(place.word())
    }

    /// Nodes that compute.
    pub fn hosts(&self, bench: &Bench, count: usize) -> Result<Hosts> {
        Hosts::on_nodes(bench.now()?.clone(), (1..=count).map(name).collect())
    }

    /// Has storage yield to messages, or no more.
    pub async fn pace(&self, bench: &mut Bench, state: &str) -> Result<()> {
        let config = self.config.display().to_string();
        bench.covey_on::<Value>("n1", &["--config", &config, "net", "set", state]).await?;
        Ok(())
    }

    /// Takes all of it down, also after a signal. Volumes go before the lab does: an initiator that is killed while its file
    /// system is mounted waits, when its mount namespace ends, for an answer that only itself could give.
    pub async fn down(self, bench: &mut Bench) -> Result<()> {
        let covey = ourselves().display().to_string();
        for (node, place) in &self.attached {
            let (bound, config) = (self.bound(place), self.config_by(0).display().to_string());
            bench.tidy_on(node, &["umount", &bound.display().to_string()]).await;
            let place = place.display().to_string();
            bench.tidy_on(node, &[&covey, "--config", &config, "volume", "detach", &place]).await;
        }
        bench.down().await?;
        free_devices(&self.dir);
        Ok(())
    }

    async fn furnish(&mut self, bench: &mut Bench, wish: &Wish) -> Result<()> {
        self.serve(bench, wish).await?;
        for place in &wish.places {
            for node in 0..self.nodes {
                self.mount(bench, *place, node, wish.bytes).await?;
            }
        }
        Ok(())
    }

    /// Describes the cluster, and starts it.
    async fn serve(&self, bench: &mut Bench, wish: &Wish) -> Result<()> {
        let plan = bench.now()?.plan()?;
        let home = self.dir.join("cluster");
        for dir in [&home, &self.dir.join("at"), &self.dir.join("image")] {
            std::fs::create_dir_all(dir).cannot(|| format!("make {}", dir.display()))?;
        }
        let key = home.join("key");
        bench.covey::<Value>(&["keygen", &key.display().to_string()]).await?;
        let mut config = Config {
            file: self.config.clone(),
            is_named: true,
            name: bench.now()?.name.clone(),
            id: new_id()?,
            strip_bytes: None,
            pacing: Pacing { is_on: wish.can_pace, ..Pacing::default() },
            key_file: Some(key),
            user: None,
            nodes: nodes_of(&plan, &home, wish.can_pace),
            views: Vec::new(),
        };
        write(&self.config, &config)?;
        for network in [0, 1] {
            config.nodes.iter_mut().for_each(|node| {
                let at = plan.node(&node.name).unwrap_or_default();
                node.listen = vec![listen(&plan, at, network)];
            });
            write(&self.config_by(network), &config)?;
        }
        let file = self.config.display().to_string();
        for node in (NODES + 1..=2 * NODES).map(name) {
            let words = ["--config", &file, "init", "--node", &node];
            bench.covey_on::<Value>(&node, &words).await?;
        }
        bench.covey_on::<Value>("n5", &["up"]).await?;
        if wish.can_pace {
            self.pace(bench, "off").await?;
        }
        Ok(())
    }

    async fn mount(
        &mut self,
        bench: &mut Bench,
        place: Place,
        node: usize,
        bytes: u64,
    ) -> Result<()> {
        let host = name(node + 1);
        let at = self.dir.join("at").join(format!("{host}-{}", place.word()));
        let dir = self.dir_of(place);
        std::fs::create_dir_all(&at).cannot(|| format!("make {}", at.display()))?;
        std::fs::create_dir_all(&dir).cannot(|| format!("make {}", dir.display()))?;
        let (at, dir) = (at.display().to_string(), dir.display().to_string());
        match place.disk {
            Disk::Local => {
                let image = self.image(&host, place, bytes)?.display().to_string();
                let words = ["mount", "-t", "ext4", "-o", "loop,rw,nosuid,nodev", &image, &at];
                bench.on(&host, &words).await?;
            }
            Disk::Striped => {
                let config = self.config_by(place.network()).display().to_string();
                bench.covey_on::<Value>(&host, &["--config", &config, "mount", &at]).await?;
            }
            Disk::OneToOne | Disk::ManyToOne => {
                self.attach(bench, place, (node, &host), (&at, bytes)).await?;
            }
        }
        bench.on(&host, &["mount", "--bind", &at, &dir]).await?;
        Ok(())
    }

    /// A volume of the node's own, which nobody else may use.
    async fn attach(
        &mut self,
        bench: &mut Bench,
        place: Place,
        (node, host): (usize, &str),
        (at, bytes): (&str, u64),
    ) -> Result<()> {
        let target = name(NODES + 1 + if place.disk == Disk::OneToOne { node } else { 0 });
        let volume = format!("{}-{host}", place.word());
        let image = self.image(host, place, bytes)?.display().to_string();
        let (config, listen) = (self.config.display().to_string(), format!("0.0.0.0:{PORT_ISCSI}"));
        let initiator = format!("iqn.2026-01.io.covey:at.{host}");
        let commands: [&[&str]; 3] = [
            &["create", &volume, "--file", &image, "--node", &target],
            &["acl", &volume, "--allow", &initiator, "--trust-initiator-names"],
            &["export", &volume, "--listen", &listen],
        ];
        for words in commands {
            let all: Vec<&str> =
                ["--config", &config, "volume"].iter().chain(words).copied().collect();
            bench.covey_on::<Value>(&target, &all).await?;
        }
        let plan = bench.now()?.plan()?;
        let target = plan.node(&target).unwrap_or_default();
        let portal = format!("{}:{PORT_ISCSI}", address(&plan, target, place.network()));
        let config = self.config_by(place.network()).display().to_string();
        let words = [
            "--config", &config, "volume", "attach", &volume, at, "--fs", "ext4", "--portal",
            &portal,
        ];
        // Noted first: a signal may come when it is there, and nobody has heard of it yet.
        self.attached.push((host.to_owned(), PathBuf::from(at)));
        bench.covey_on::<Value>(host, &words).await?;
        Ok(())
    }

    /// A file with an empty file system, complete from the start: nothing of it is made later, beside what is measured.
    fn image(&self, host: &str, place: Place, bytes: u64) -> Result<PathBuf> {
        let image = self.dir.join("image").join(format!("{}-{host}", place.word()));
        let made = std::fs::File::create(&image).and_then(|file| file.set_len(bytes));
        made.cannot(|| format!("make {}", image.display()))?;
        let mut make = Command::new("mkfs.ext4");
        make.args(["-q", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"]);
        let done = make.arg(&image).stdin(Stdio::null()).output().cannot(|| "start mkfs.ext4")?;
        if done.status.success() {
            Ok(image)
        } else {
            let why = String::from_utf8_lossy(&done.stderr);
            Err(Error::work(format!("cannot make a file system: mkfs.ext4: {}", why.trim())))
        }
    }

    /// The configuration of who reaches the servers by this network alone.
    fn config_by(&self, network: usize) -> PathBuf {
        self.dir.join(format!("by-{network}.toml"))
    }

    /// Where a node sees what is attached at `place`.
    fn bound(&self, place: &Path) -> PathBuf {
        let name = place.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let word = name.split_once('-').map_or(name.as_str(), |(_, word)| word);
        self.dir.join("disk").join(word)
    }
}

/// A lab's node by its number, from 1 on.
fn name(number: usize) -> String {
    format!("n{number}")
}

/// The servers; and the nodes that compute, where they are to pace.
fn nodes_of(plan: &Plan, home: &Path, can_pace: bool) -> Vec<Node> {
    let server = |number: usize| Node {
        name: name(number),
        roles: if number == NODES + 1 { vec![Role::Meta, Role::Data] } else { vec![Role::Data] },
        listen: [0, 1].map(|network| listen(plan, number - 1, network)).into(),
        store: Some(home.join("store").join(name(number))),
        emulated: None,
    };
    let client = |number: usize| Node { roles: Vec::new(), store: None, ..server(number) };
    let clients = (1..=NODES).filter(|_| can_pace).map(client);
    (NODES + 1..=2 * NODES).map(server).chain(clients).collect()
}

fn address(plan: &Plan, node: usize, network: usize) -> String {
    let mut cards = plan.cards_of(node).map(|(_, card)| card);
    cards
        .find(|card| card.network == network)
        .map_or(String::new(), |card| card.address.to_string())
}

fn listen(plan: &Plan, node: usize, network: usize) -> Address {
    Address::tcp(address(plan, node, network), PORT_DEFAULT)
}

fn write(file: &Path, config: &Config) -> Result<()> {
    std::fs::write(file, render(config)).cannot(|| format!("write {}", file.display()))
}

/// Frees the loop devices whose files are below `dir`: those of a lab that went before its mounts did.
fn free_devices(dir: &Path) {
    let devices = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    for device in devices {
        let backing = std::fs::read_to_string(device.path().join("loop/backing_file"));
        if backing.is_ok_and(|file| Path::new(file.trim_end()).starts_with(dir)) {
            let mut free = Command::new("losetup");
            free.arg("--detach").arg(Path::new("/dev").join(device.file_name()));
            let _ = free.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_lab::profile::Profile;

    fn plan() -> Plan {
        let link = Profile::named(LINK).unwrap();
        let wish = covey_lab::plan::Wish {
            nodes: 2 * NODES as u16,
            topology: covey_lab::plan::Topology::Switch,
            deal: covey_lab::fabric::Deal::Flow,
            storage_link: Some(link.clone()),
            link,
            seed: 1,
        };
        Plan::new(&wish).unwrap()
    }

    #[test]
    fn places_have_names_of_their_own() {
        let all = Place::all();
        assert_eq!(all.len(), 7);
        let mut words: Vec<&str> = all.iter().map(|place| place.word()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), 7);
        assert_eq!(Place::consolidated().len(), 4);
        assert_eq!(Place::LOCAL.words(), "local disk");
    }

    #[test]
    fn servers_listen_in_both_networks_and_the_first_keeps_the_names() {
        let nodes = nodes_of(&plan(), Path::new("/lab"), false);
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["n5", "n6", "n7", "n8"]);
        assert_eq!(nodes[0].roles, [Role::Meta, Role::Data]);
        assert!(nodes.iter().all(|node| node.listen.len() == 2 && node.store.is_some()));
        assert_ne!(nodes[0].listen[0].host(), nodes[0].listen[1].host());
        let paced = nodes_of(&plan(), Path::new("/lab"), true);
        assert_eq!((paced.len(), &paced[4].store), (8, &None));
    }
}
