//! A writer: a process of its own, so that it can be killed. It works until it is told to stop, and
//! writes down what it does.

use super::log::Act;
use super::way::Way;
use covey_wire::Rng;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// How a writer is told what to do: the environment of its process.
const ORDERS: [&str; 5] = ["WAY", "TARGET", "NAME", "LOG", "SEED"];

/// What it holds of a file, so that it knows what it can do to it.
struct Held {
    size: usize,
}

/// Starts a writer: this same program, with orders. `test` is the test that calls [`obey`].
pub fn start(test: &str, way: &str, target: &Path, name: &str, log: &Path, seed: u64) -> Child {
    let values = [way, path(target), name, path(log), &seed.to_string()].map(str::to_owned);
    let mut command = Command::new(std::env::current_exe().expect("a test has a program"));
    command.args(["--exact", test, "--nocapture"]).stdin(Stdio::null()).stdout(Stdio::null());
    for (order, value) in ORDERS.iter().zip(values) {
        command.env(format!("COVEY_WRITER_{order}"), value);
    }
    command.spawn().expect("a writer starts")
}

fn path(path: &Path) -> &str {
    path.to_str().expect("scratch directories have plain names")
}

/// The file that tells the writer of a log to stop.
pub fn stop_file(log: &Path) -> PathBuf {
    log.with_extension("stop")
}

/// Does what the orders say, if there are any; whether there were.
pub fn obey() -> bool {
    let orders = ORDERS.map(|order| std::env::var(format!("COVEY_WRITER_{order}")));
    let [Ok(way), Ok(target), Ok(name), Ok(log), Ok(seed)] = orders else { return false };
    let log = PathBuf::from(log);
    let is_synced = way.ends_with("-synced");
    let mut writer = Writer {
        log: File::options().create(true).append(true).open(&log).expect("a log"),
        name: name.clone(),
        is_synced,
        rng: Rng::new(seed.parse().expect("a seed")),
        number: 0,
        files: BTreeMap::new(),
    };
    let opened = || match way.trim_end_matches("-synced") {
        "mount" => Way::mount(Path::new(&target), &name),
        _ => Way::library(Path::new(&target), &name),
    };
    let stop = stop_file(&log);
    let mut found = opened();
    while found.is_err() && !stop.exists() {
        std::thread::sleep(std::time::Duration::from_millis(200));
        found = opened();
    }
    let Ok(way) = found else { return true };
    while !stop.exists() {
        writer.turn(&way);
    }
    true
}

struct Writer {
    log: File,
    name: String,
    /// Each line of the log reaches the disk before the writer goes on.
    is_synced: bool,
    rng: Rng,
    number: u64,
    /// Files of which everything is known.
    files: BTreeMap<String, Held>,
}

impl Writer {
    fn turn(&mut self, way: &Way) {
        let act = self.choose();
        self.number += 1;
        let number = self.number;
        self.say(format!("I {number} {}\n", act.line()));
        let begun = std::time::Instant::now();
        match way.act(&act) {
            Ok(()) => {
                let at = super::log::now_ms();
                self.say(format!("A {number} {} {at}\n", begun.elapsed().as_millis()));
                self.note(&act);
            }
            Err(error) => {
                let code = error.raw_os_error().unwrap_or(0);
                self.say(format!("F {number} {code} {}\n", begun.elapsed().as_millis()));
                // Nobody knows what became of it: it is left as it is.
                if !matches!(act, Act::Fsync { .. }) {
                    self.files.remove(act.name());
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    }

    fn say(&mut self, line: String) {
        self.log.write_all(line.as_bytes()).expect("the log takes it");
        if self.is_synced {
            self.log.sync_data().expect("the log takes it");
        }
    }

    fn choose(&mut self) -> Act {
        let seed = self.number * 1000 + self.rng.below(1000);
        if self.files.len() < 4 || (self.files.len() < 16 && self.rng.below(4) == 0) {
            let name = format!("f{}", self.number);
            return Act::Create { name, seed, length: self.length() };
        }
        let at = self.rng.below(self.files.len() as u64) as usize;
        let (name, held) = self.files.iter().nth(at).expect("there are so many");
        let (name, size) = (name.clone(), held.size);
        match self.rng.below(16) {
            0..4 => {
                let (offset, length) = (self.rng.below(size as u64 + 1) as usize, self.length());
                Act::Write { name, seed, offset, length }
            }
            4..7 => Act::Append { name, seed, length: self.length() },
            7 => Act::Truncate { name, size: self.rng.below(size as u64 + 1) as usize },
            8 | 9 => Act::Rename { name, to: format!("r{}", self.number) },
            10 => Act::Unlink { name },
            11..14 => Act::Fsync { name },
            _ => Act::Shared { record: format!("{}-{}", self.name, self.number) },
        }
    }

    /// Small ones, and some that lie on several servers.
    fn length(&mut self) -> usize {
        let most = [100, 5000, 20_000, 200_000][self.rng.below(4) as usize];
        1 + self.rng.below(most) as usize
    }

    fn note(&mut self, act: &Act) {
        match act {
            Act::Create { name, length, .. } => {
                self.files.insert(name.clone(), Held { size: *length });
            }
            Act::Write { name, offset, length, .. } => {
                let held = self.files.get_mut(name).expect("it was chosen");
                held.size = held.size.max(offset + length);
            }
            Act::Append { name, length, .. } => {
                self.files.get_mut(name).expect("it was chosen").size += length;
            }
            Act::Truncate { name, size } => {
                self.files.get_mut(name).expect("it was chosen").size = *size;
            }
            Act::Rename { name, to } => {
                let held = self.files.remove(name).expect("it was chosen");
                self.files.insert(to.clone(), held);
            }
            Act::Unlink { name } => drop(self.files.remove(name)),
            Act::Fsync { .. } | Act::Shared { .. } => {}
        }
    }
}
