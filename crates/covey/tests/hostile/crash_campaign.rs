//! Servers and clients are killed with -9 at random under load. Afterwards no acknowledged byte, name
//! or record is lost, a check finds nothing, and nobody has waited for ever.
//!
//! `scripts/crash-campaign --seed N --kills 200` runs a long one; a failing round tells its seed. Each
//! round has a cluster of its own, writers through mounts and through the library, one who moves files between the servers
//! all the time, and ten kills.

use crate::campaign::log::{Certain, now_ms};
use crate::campaign::way::Way;
use crate::campaign::writer;
use crate::support::{Cluster, until};
use covey_wire::Rng;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const KILLS_PER_ROUND: u64 = 10;
const KILLS_DEFAULT: u64 = 6;
/// A writer that has done nothing for so long hangs. Soft clients give up after 3 s; what is slow here is
/// the machine.
const HANGS_AFTER: Duration = Duration::from_secs(60);
/// Sessions of dead clients end after 10 s; what they leave is reclaimed within seconds.
const GRACE: Duration = Duration::from_secs(14);

/// Not a test: the program of a writer, when there are orders for one.
#[test]
fn a_writer_obeys() {
    writer::obey();
}

#[test]
fn kills_lose_nothing_that_was_acknowledged() {
    let number = |name: &str, default| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
    };
    let seed = number("COVEY_CAMPAIGN_SEED", 1);
    let mut left = number("COVEY_CAMPAIGN_KILLS", KILLS_DEFAULT);
    let mut round = 0;
    while left > 0 {
        let kills = left.min(KILLS_PER_ROUND);
        Round::begin(seed + round).run(kills);
        left -= kills;
        round += 1;
    }
}

/// A writer under way.
struct Writer {
    child: Child,
    name: String,
    log: PathBuf,
    mount: Option<PathBuf>,
    /// It says at once what it does.
    at_once: bool,
}

struct Round {
    cluster: Cluster,
    seed: u64,
    rng: Rng,
    writers: Vec<Writer>,
    names: Vec<String>,
    /// Writers of which the mount was killed that says removals late, and when.
    cut_short: BTreeMap<String, u64>,
    told: Vec<String>,
    can_mount: bool,
    mover: Child,
}

/// One who has server after server emptied, and files moved about, with pauses, for ever.
fn start_mover(cluster: &Cluster) -> Child {
    let all = "while :; do for at in 1 2 3; do \
                   \"$0\" server drain io$at --detach; \"$0\" server drain io$at --pause; \
                   \"$0\" server drain io$at --resume; \"$0\" server open io$at; \
               done; \
               \"$0\" server rebalance --detach; \"$0\" server rebalance --pause; \
               \"$0\" server rebalance --resume; done";
    let mut command = Command::new("sh");
    command.args(["-c", all]).arg(crate::support::covey().get_program());
    command.env("COVEY_CONFIG", cluster.config()).stdout(Stdio::null()).stderr(Stdio::null());
    command.process_group(0).spawn().expect("a shell")
}

/// It and what it has started.
fn kill_mover(mover: &mut Child) {
    let group = rustix::process::Pid::from_child(mover);
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    let _ = mover.wait();
}

impl Round {
    fn begin(seed: u64) -> Round {
        let cluster = Cluster::up(3);
        let mut round = Round {
            mover: start_mover(&cluster),
            cluster,
            seed,
            rng: Rng::new(seed),
            writers: Vec::new(),
            names: Vec::new(),
            cut_short: BTreeMap::new(),
            told: Vec::new(),
            can_mount: true,
        };
        for is_mounted in [true, false, true, false] {
            round.add_writer(is_mounted);
        }
        round
    }

    fn add_writer(&mut self, is_mounted: bool) {
        // Some mounts say at once what others say late of files of their own making.
        let at_once = self.names.len().is_multiple_of(4);
        let options: &[&str] = if at_once { &["--no-delegations"] } else { &[] };
        let is_mounted_now = is_mounted && self.can_mount;
        let mount = if is_mounted_now { self.cluster.mount_with(options) } else { None };
        self.can_mount &= mount.is_some() || !is_mounted;
        let name = format!("w{}", self.names.len());
        let log = crate::campaign::log_path(&self.cluster.scratch(""), &name);
        let (way, target) = match &mount {
            Some(mount) => ("mount", mount.clone()),
            None => ("library", self.cluster.config()),
        };
        let seed = self.rng.below(1 << 40);
        let child =
            writer::start("crash_campaign::a_writer_obeys", way, &target, &name, &log, seed);
        self.names.push(name.clone());
        self.writers.push(Writer { child, name, log, mount, at_once });
    }

    fn run(mut self, kills: u64) {
        self.rest(1000);
        for _ in 0..kills {
            self.kill_something();
            self.nobody_hangs();
        }
        let faults = self.end();
        assert!(faults.is_empty(), "seed {}: {:#?}\n{:#?}", self.seed, faults, self.told);
    }

    fn rest(&mut self, least_ms: u64) {
        let more = self.rng.below(1500);
        std::thread::sleep(Duration::from_millis(least_ms + more));
    }

    fn kill_something(&mut self) {
        let nodes = ["meta", "io1", "io2", "io3"];
        match self.rng.below(8) {
            choice @ 0..4 => self.kill_nodes(&nodes[choice as usize..=choice as usize]),
            4 => {
                let other = nodes[1 + self.rng.below(3) as usize];
                self.kill_nodes(&["meta", other]);
            }
            5 => {
                // A client and the metadata server at once: nobody is left who knows what was open.
                self.kill_client();
                self.kill_nodes(&["meta"]);
            }
            6 => {
                self.told.push("kill the mover".into());
                kill_mover(&mut self.mover);
                self.mover = start_mover(&self.cluster);
            }
            _ => self.kill_client(),
        }
        self.rest(500);
    }

    fn kill_nodes(&mut self, nodes: &[&str]) {
        self.told.push(format!("kill {}", nodes.join(" and ")));
        nodes.iter().for_each(|node| self.cluster.kill(node));
        self.rest(0);
        self.cluster.restart();
    }

    /// The process of a writer, or the one that serves its mount.
    fn kill_client(&mut self) {
        let at = self.rng.below(self.writers.len() as u64) as usize;
        let mut victim = self.writers.swap_remove(at);
        let mount = victim.mount.take();
        self.told.push(format!(
            "kill {} {}",
            victim.name,
            if mount.is_some() { "and its mount" } else { "" }
        ));
        if let Some(mount) = &mount {
            if !victim.at_once {
                self.cut_short.insert(victim.name.clone(), now_ms());
            }
            self.cluster.kill_mount(mount);
        }
        victim.child.kill().expect("a writer can be killed");
        victim.child.wait().expect("a killed writer ends");
        if let Some(mount) = &mount {
            let _ = crate::support::covey().arg("umount").arg("--lazy").arg(mount).output();
        }
        self.add_writer(mount.is_some());
    }

    fn nobody_hangs(&self) {
        for writer in &self.writers {
            let Ok(meta) = std::fs::metadata(&writer.log) else { continue };
            let silent = meta.modified().expect("a time").elapsed().unwrap_or_default();
            assert!(
                silent < HANGS_AFTER,
                "seed {}: {} hangs: {:?}",
                self.seed,
                writer.name,
                self.told
            );
        }
    }

    /// Ends the writers and looks at everything.
    fn end(&mut self) -> Vec<String> {
        for mut writer in std::mem::take(&mut self.writers) {
            std::fs::write(writer::stop_file(&writer.log), "").expect("a file");
            let begun = Instant::now();
            while writer.child.try_wait().expect("a child").is_none() {
                assert!(begun.elapsed() < HANGS_AFTER, "seed {}: {} hangs", self.seed, writer.name);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        kill_mover(&mut self.mover);
        // What it has asked for goes on without it.
        for words in
            [&["open", "io1"][..], &["open", "io2"], &["open", "io3"], &["rebalance", "--stop"]]
        {
            let stopped = self.cluster.try_covey(&[&["server"], words].concat());
            assert!(stopped.ok || stopped.stderr.contains("none is under way"), "{stopped}");
        }
        std::thread::sleep(GRACE);
        let mut faults = Vec::new();
        let check = self.cluster.try_covey(&["fsck"]);
        if !check.ok {
            faults.push(format!("fsck: {check}"));
        }
        let config = self.cluster.config();
        let mut all = Vec::new();
        for name in &self.names {
            let log = crate::campaign::log_path(&self.cluster.scratch(""), name);
            let mut known = crate::campaign::read_log(&log, Certain::WhenAcknowledged);
            self.cut_short.get(name).into_iter().for_each(|at| known.is_cut_short(*at));
            let way = Way::library(&config, name).expect("the cluster is up");
            let wrong = crate::campaign::faults(&way, &known);
            faults.extend(wrong.into_iter().map(|what| format!("{name}: {what}")));
            all.push(known);
        }
        let root = Way::library(&config, ".").expect("the cluster is up");
        faults.extend(crate::campaign::shared_faults(&root, &all));
        let (done, open): (usize, usize) = (
            all.iter().map(|known| known.acknowledged).sum(),
            all.iter().map(|known| known.open).sum(),
        );
        println!(
            "seed {}: {} kills, {done} acts acknowledged, {open} failed or cut short, {} faults; {}",
            self.seed,
            self.told.len(),
            faults.len(),
            self.told.join(", ")
        );
        if faults.is_empty() {
            self.nothing_leaks();
        }
        faults
    }

    /// When every name is gone, every object goes.
    fn nothing_leaks(&self) {
        let listed = self.cluster.covey(&["ls", "/"]);
        let names: Vec<String> = listed.lines().map(|name| format!("/{name}")).collect();
        let mut rm = vec!["rm", "-rf"];
        rm.extend(names.iter().map(String::as_str));
        self.cluster.covey(&rm);
        until("the end of all objects", || self.cluster.objects() == 0);
    }
}

impl Drop for Round {
    fn drop(&mut self) {
        kill_mover(&mut self.mover);
        for writer in &mut self.writers {
            let pid = rustix::process::Pid::from_child(&writer.child);
            let _ = rustix::process::kill_process(pid, Signal::KILL);
            let _ = writer.child.wait();
        }
    }
}
