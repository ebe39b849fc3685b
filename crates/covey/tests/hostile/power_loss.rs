//! Power is lost under load: the servers and their clients run in a User-Mode Linux guest with a disk of
//! its own, and the guest is killed, so that nothing survives but what has reached that disk. Afterwards
//! every byte and name that fsync had acknowledged is there, and the rest is consistent.
//!
//! `scripts/power-loss --seed N --losses 50` runs a long one, all losses on one disk, some of
//! them while the cluster still recovers from the one before. Needs the Debian package
//! `user-mode-linux` and root; says so and passes where they are not there.

use crate::campaign::log::Certain;
use crate::campaign::way::Way;
use crate::campaign::writer;
use covey_wire::Rng;
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a guest may take to boot and recover.
const PATIENCE: Duration = Duration::from_secs(240);
/// A guest that has not come to its first program by then never will; it has not seen its disk either.
const BOOTS_WITHIN: Duration = Duration::from_secs(40);
const WRITERS: u64 = 3;
/// The disk.
const BYTES: u64 = 4 << 30;

/// Not a test: the program of a writer, when there are orders for one.
#[test]
fn a_writer_obeys() {
    writer::obey();
}

/// Not a test: looks at what the writers of a round have left, inside the guest.
#[test]
fn a_guest_looks() {
    let order = |name: &str| std::env::var(format!("COVEY_LOOK_{name}"));
    let (Ok(config), Ok(logs), Ok(round)) = (order("CONFIG"), order("LOGS"), order("ROUND")) else {
        return;
    };
    let mut acts = (0, 0);
    for writer in 0..WRITERS {
        let name = format!("r{round}w{writer}");
        let log = crate::campaign::log_path(Path::new(&logs), &name);
        let known = crate::campaign::read_log(&log, Certain::WhenSynced);
        acts = (acts.0 + known.acknowledged, acts.1 + known.open);
        if known.files.is_empty() {
            continue;
        }
        let way = Way::library(Path::new(&config), &name).expect("the cluster is up");
        for fault in crate::campaign::faults(&way, &known) {
            println!("FAULT {name}: {fault}");
        }
    }
    println!("LOOKED {} acknowledged, {} not", acts.0, acts.1);
}

#[test]
fn what_fsync_acknowledged_survives_the_loss_of_power() {
    if !crate::support::uml::is_there() {
        return crate::support::skip("needs root and the package user-mode-linux");
    }
    let number = |name: &str, default| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect("a number"))
    };
    let seed = number("COVEY_POWER_SEED", 1);
    let losses = number("COVEY_POWER_LOSSES", 1);
    let mut lab = Lab::new(seed);
    for _ in 0..losses {
        lab.lose_power();
    }
    lab.last_look();
}

/// The disk, and what lies beside it on a machine that goes on.
struct Lab {
    work: tempfile::TempDir,
    seed: u64,
    rng: Rng,
    round: u64,
    /// A round whose files nobody has looked at yet.
    before: Option<u64>,
}

impl Lab {
    fn new(seed: u64) -> Lab {
        let work = tempfile::Builder::new().prefix("covey-power-").tempdir().unwrap();
        let disk = work.path().join("disk");
        fs::File::create(&disk).unwrap().set_len(BYTES).unwrap();
        let made =
            Command::new("mkfs.ext4").arg("-q").arg(&disk).env("PATH", "/usr/sbin:/sbin").status();
        assert!(made.unwrap().success(), "mkfs.ext4");
        let here = |name: &str| work.path().join(name);
        fs::copy(env!("CARGO_BIN_EXE_covey"), here("covey")).unwrap();
        fs::copy(std::env::current_exe().unwrap(), here("program")).unwrap();
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/power");
        fs::copy(scripts.join("guest.sh"), here("init")).unwrap();
        Lab { work, seed, rng: Rng::new(seed), round: 0, before: None }
    }

    fn here(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.here(&format!("{name}.{}", self.round))).unwrap_or_default()
    }

    /// One more guest, from its boot to its end.
    fn lose_power(&mut self) {
        let guest = self.boot();
        if self.round > 1 && self.rng.below(6) == 0 {
            // While it recovers.
            let wait = self.rng.below(7000);
            std::thread::sleep(Duration::from_millis(wait));
            drop(guest);
            println!("seed {}: loss {} while it recovered", self.seed, self.round);
            return;
        }
        self.look();
        let begun = Instant::now();
        let log = crate::campaign::log_path(self.work.path(), &format!("r{}w0", self.round));
        while fs::metadata(&log).map_or(0, |meta| meta.len()) < 200 {
            assert!(begun.elapsed() < PATIENCE, "nobody writes: {}", self.story());
            std::thread::sleep(Duration::from_millis(50));
        }
        let wait = 300 + self.rng.below(6000);
        std::thread::sleep(Duration::from_millis(wait));
        drop(guest);
        self.before = Some(self.round);
    }

    fn last_look(&mut self) {
        let guest = self.boot();
        self.look();
        drop(guest);
    }

    fn boot(&mut self) -> Guest {
        self.round += 1;
        fs::write(self.here("round"), self.round.to_string()).unwrap();
        fs::write(self.here("seed"), (self.seed * 1000 + self.round).to_string()).unwrap();
        if let Some(before) = self.before {
            fs::write(self.here("before"), before.to_string()).unwrap();
        }
        let alive = self.here(&format!("alive.{}", self.round));
        for _ in 0..4 {
            let guest = Guest::boot(self.work.path(), self.round);
            let begun = Instant::now();
            while begun.elapsed() < BOOTS_WITHIN {
                if alive.exists() {
                    return guest;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            println!("seed {}: the guest of round {} did not boot", self.seed, self.round);
        }
        panic!("no guest boots: {}", self.story());
    }

    /// Waits until the guest has recovered, and judges what it found.
    fn look(&mut self) {
        let ready = self.here(&format!("ready.{}", self.round));
        let begun = Instant::now();
        while !ready.exists() {
            assert!(begun.elapsed() < PATIENCE, "the guest does not recover: {}", self.story());
            std::thread::sleep(Duration::from_millis(100));
        }
        if self.before.is_none() {
            return;
        }
        let (look, found, left) = (self.text("look"), self.text("found"), self.text("left"));
        let looked = look.lines().find(|line| line.contains("LOOKED"));
        assert!(looked.is_some() && !look.contains("FAULT"), "{}", self.story());
        let classes = |text: &str| -> Vec<String> {
            let value: serde_json::Value = serde_json::from_str(text).unwrap_or_default();
            let classes = value["classes"].as_array().cloned().unwrap_or_default();
            classes
                .iter()
                .map(|one| format!("{} {}", one["found"], one["class"].as_str().unwrap_or("?")))
                .collect()
        };
        // Bytes that nobody had synced may be missing; nothing else may be wrong.
        let allowed =
            |class: &String| class.ends_with("short-object") || class.ends_with("long-object");
        assert!(
            found.contains("\"left\": 0") && classes(&found).iter().all(allowed),
            "{}",
            self.story()
        );
        assert!(left.contains("\"clean\": true"), "{}", self.story());
        println!(
            "seed {}: loss {}: {}; check: {:?}",
            self.seed,
            self.round - 1,
            looked.unwrap_or_default(),
            classes(&found)
        );
    }

    fn story(&self) -> String {
        let said = ["console", "up", "look", "found", "left", "moves"];
        let parts = said.map(|name| format!("--- {name}\n{}", self.text(name)));
        format!("seed {}, round {}:\n{}", self.seed, self.round, parts.join("\n"))
    }
}

/// A running guest; dropping it takes its power.
struct Guest(Child);

impl Guest {
    fn boot(work: &Path, round: u64) -> Guest {
        let console = fs::File::create(work.join(format!("console.{round}"))).unwrap();
        let mut guest = Command::new("linux.uml");
        crate::support::uml::prepare(&mut guest, work);
        let child = guest
            .args(["mem=512M", &format!("umid=power{round}")])
            .arg(format!("uml_dir={}/", work.display()))
            .arg(format!("ubd0={}", work.join("disk").display()))
            .args(["rootfstype=hostfs", "rootflags=/", "rw"])
            .arg(format!("init={}", work.join("init").display()))
            .args(["con=null", "con0=null,fd:1", "quiet", "loglevel=1"])
            .stdin(Stdio::null())
            .stdout(console)
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("a guest starts");
        Guest(child)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.0), Signal::KILL);
        let _ = self.0.wait();
    }
}
