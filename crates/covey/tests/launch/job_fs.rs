//! The file system of a job in nodes of a lab: made, filled, emptied, and killed at any moment of that.

use crate::support::lab::Lab;
use crate::support::{Finished, covey, is_root, run, skip};
use std::fs;
use std::net::ToSocketAddrs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const COVEY: &str = env!("CARGO_BIN_EXE_covey");
const NODES: [&str; 4] = ["n1", "n2", "n3", "n4"];

/// A lab, with a home and a disk that its nodes share.
struct Site {
    lab: Lab,
    scratch: tempfile::TempDir,
}

impl Site {
    fn new(name: &str) -> Option<Site> {
        if !is_root() {
            skip("needs root, to look into the stores of a lab");
            return None;
        }
        let lab = Lab::up(name, &["4", "--link", "loopback"])?;
        let site = Site { lab, scratch: tempfile::tempdir().unwrap() };
        for name in ["home", "disk", "results"] {
            fs::create_dir(site.path(name)).unwrap();
        }
        make_tree(&site.path("in put"));
        Some(site)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// A command on a node, which ends when it is killed.
    fn command(&self, node: &str, words: &[&str]) -> Command {
        let mut command = covey();
        command.args(["lab", "exec", "--name", self.lab.name(), node, "--", COVEY]).args(words);
        command.env("HOME", self.path("home")).env("TMPDIR", self.path("disk"));
        command.env_remove("SLURM_JOB_ID").env_remove("SLURM_JOB_NODELIST");
        command.current_dir(self.scratch.path());
        command
    }

    fn on(&self, node: &str, words: &[&str]) -> Finished {
        run(self.command(node, words))
    }

    /// A command on all nodes at once, as srun would start it.
    fn on_all(&self, words: &[&str]) -> Vec<Finished> {
        let commands = NODES.map(|node| self.command(node, words));
        std::thread::scope(|scope| {
            let threads = commands.map(|command| scope.spawn(|| run(command)));
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    /// The same, with one of them killed after some time.
    fn on_all_but_one_is_killed(&self, words: &[&str], victim: usize, after: Duration) {
        let start = |node: &&str| -> Child {
            let mut command = self.command(node, words);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.spawn().unwrap()
        };
        let mut children: Vec<Child> = NODES.iter().map(start).collect();
        std::thread::sleep(after);
        let _ = children[victim].kill();
        // The others would wait for it for as long as they may.
        std::thread::sleep(Duration::from_millis(100));
        for child in &mut children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn dir(&self, job: &str, node: &str) -> PathBuf {
        self.path("disk").join(format!("covey-job-{job}-0-{node}"))
    }

    /// A command on the job's file system.
    fn covey(&self, job: &str, node: &str, words: &[&str]) -> Finished {
        let config = self.dir(job, node).join("covey.toml");
        self.on(node, &[&["--config", config.to_str().unwrap()], words].concat())
    }

    /// No process, directory, key or half a file.
    fn nothing_is_left(&self) {
        let names = |dir: &Path| -> Vec<String> {
            let entries = fs::read_dir(dir).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
        };
        assert_eq!(names(&self.path("disk")), [""; 0]);
        assert_eq!(names(&self.path("home/.cache/covey")), [""; 0]);
        assert_eq!(processes(&self.path("disk")), [""; 0]);
    }
}

/// Command lines that name something below a directory.
fn processes(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&format!("{}/", dir.display()))).collect()
}

/// Files of all sizes that matter: none, with the metadata, on one server, striped; names with blanks; a link.
fn make_tree(dir: &Path) {
    fs::create_dir_all(dir.join("sub dir/deep")).unwrap();
    for (name, bytes) in [
        ("empty", 0),
        ("a b", 100),
        ("sub dir/in line", 12_000),
        ("sub dir/deep/one", 300_000),
        ("striped", 5 << 20),
    ] {
        let mut word = covey_wire::fnv1a(name.as_bytes());
        let content: Vec<u8> = (0..bytes)
            .map(|_| {
                word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (word >> 56) as u8
            })
            .collect();
        fs::write(dir.join(name), content).unwrap();
    }
    symlink("sub dir/deep/one", dir.join("link")).unwrap();
}

/// Whether each file that has its name is whole; with `all`, that none is missing.
fn check(found: &Path, wanted: &Path, all: bool) {
    for entry in fs::read_dir(wanted).unwrap().map(Result::unwrap) {
        let (wanted, found) = (entry.path(), found.join(entry.file_name()));
        if found.symlink_metadata().is_err() {
            assert!(!all, "{} is missing", found.display());
        } else if entry.file_type().unwrap().is_dir() {
            check(&found, &wanted, all);
        } else if entry.file_type().unwrap().is_symlink() {
            assert_eq!(fs::read_link(&found).unwrap(), fs::read_link(&wanted).unwrap());
        } else {
            assert!(fs::read(&found).unwrap() == fs::read(&wanted).unwrap(), "{}", found.display());
        }
    }
    if all {
        let count = |dir: &Path| fs::read_dir(dir).unwrap().count();
        assert_eq!(count(found), count(wanted), "{} has more", found.display());
    }
}

/// Numbers that look like chance (splitmix64).
fn mixed(seed: u64) -> u64 {
    let mut word = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[track_caller]
fn all_ok(done: &[Finished]) {
    done.iter().for_each(|done| assert!(done.ok, "{done}"));
}

/// What a cycle does to the job.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Good,
    /// `up` is killed, then done again, or not.
    UpKilled {
        again: bool,
    },
    /// `down` is killed, then done again.
    DownKilled,
    /// A server is killed before the stage-out.
    ServerKilled,
}

fn fate(random: u64) -> Fate {
    match random % 10 {
        0..4 => Fate::Good,
        4 | 5 => Fate::UpKilled { again: random & 1024 == 0 },
        6..9 => Fate::DownKilled,
        _ => Fate::ServerKilled,
    }
}

/// COVEY_JOB_CYCLES=200 runs it at full length, COVEY_JOB_SEED chooses another course.
#[test]
fn jobs_come_and_go_and_what_was_staged_out_is_whole() {
    let Some(site) = Site::new("jobs") else { return };
    let number =
        |name: &str, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (cycles, seed) = (number("COVEY_JOB_CYCLES", 10), number("COVEY_JOB_SEED", 21));
    for cycle in 0..cycles {
        let random = mixed(seed * 1_000_000 + cycle);
        // The first ones have each fate once.
        let random = if cycle < 10 { random / 10 * 10 + (cycle * 7 + 3) % 10 } else { random };
        println!("cycle {cycle} of seed {seed}: {:?}", fate(random));
        one_cycle(&site, &cycle.to_string(), random);
        site.nothing_is_left();
    }
}

fn one_cycle(site: &Site, job: &str, random: u64) {
    let (fate, victim) = (fate(random), (random >> 20) as usize % NODES.len());
    let after = Duration::from_millis((random >> 32) % 400);
    let mut up = vec!["up", "--job", job, "--stage-in", "in put:/in"];
    if random & 2048 == 0 && crate::support::no_fuse().is_none() {
        up.extend(["--mount", "/mnt"]);
    }
    let out = site.path("results").join(format!("of {job}"));
    let spec = format!("/out:{}", out.display());
    let down = ["down", "--job", job, "--stage-out", &spec];
    if let Fate::UpKilled { again } = fate {
        site.on_all_but_one_is_killed(&up, victim, after);
        if !again {
            return all_ok(&site.on_all(&["down", "--job", job]));
        }
    }
    all_ok(&site.on_all(&up));
    let copied = site.covey(job, NODES[victim], &["cp", "-rp", ":/in", ":/out"]);
    assert!(copied.ok, "{copied}");
    match fate {
        Fate::ServerKilled => {
            let mount =
                || fs::read_to_string(site.dir(job, NODES[victim]).join("run/mount-%mnt.pid"));
            let mounted = mount().ok();
            kill_server(site, job, NODES[victim]);
            for done in site.on_all(&down) {
                assert_eq!(done.code, Some(1), "{done}");
                done.says(&["nothing was removed"]);
            }
            check(&out, &site.path("in put"), false);
            // Neither does a clean-up that knows nothing of it.
            site.on(NODES[victim], &["down", "--job", job]).says(&["stage-out of job"]);
            all_ok(&site.on_all(&up));
            // Programs have files open in it.
            assert_eq!(mount().ok(), mounted);
            all_ok(&site.on_all(&down));
        }
        Fate::DownKilled => {
            site.on_all_but_one_is_killed(&down, victim, after * 3);
            check(&out, &site.path("in put"), false);
            finish(site, job, &up, &down);
        }
        _ => all_ok(&site.on_all(&down)),
    }
    check(&out, &site.path("in put"), true);
}

/// After a `down` that was killed: as somebody who reads what it says would.
fn finish(site: &Site, job: &str, up: &[&str], down: &[&str]) {
    if site.dir(job, "n1").join("unsaved").exists() {
        // Servers that were stopped meanwhile are needed again.
        all_ok(&site.on_all(up));
        all_ok(&site.on_all(down));
    } else if site.dir(job, "n1").join("staged-out").exists() {
        let done = site.on_all(down);
        assert!(done[0].ok, "{}", done[0]);
        all_ok(&site.on_all(&["down", "--job", job, "--discard"]));
    } else if site.dir(job, "n1").join("covey.toml").exists() {
        // It was killed before it began.
        all_ok(&site.on_all(down));
    } else {
        all_ok(&site.on_all(&["down", "--job", job, "--discard"]));
    }
}

fn kill_server(site: &Site, job: &str, node: &str) {
    let file = site.dir(job, node).join("run").join(format!("{node}.pid"));
    let text = fs::read_to_string(file).unwrap();
    let pid = text.split(' ').next().unwrap();
    let inside = site.lab.exec(node, &["kill", "-9", pid]);
    assert_eq!(inside, "");
}

#[test]
fn a_down_that_was_killed_while_it_removed_is_done_again() {
    let Some(site) = Site::new("again") else { return };
    let (out, place) = (site.path("results/out"), site.dir("7", "n1"));
    all_ok(&[site.on("n1", &["up", "--job", "7", "--nodes", "n1"])]);
    all_ok(&[site.on("n1", &["down", "--job", "7", "--keep"])]);
    // As far as it had come after a good end.
    fs::write(place.join("staged-out"), format!("\"/out\" {out:?}\n")).unwrap();
    fs::remove_file(place.join("covey.toml")).unwrap();
    let down = |spec: &str| site.on("n1", &["down", "--job", "7", "--stage-out", spec]);
    down("/other:results/other").says(&["never was up here"]);
    let again = down(&format!("/out:{}", out.display()));
    assert!(again.ok && again.stderr.contains("staged out before"), "{again}");
    site.nothing_is_left();
}

#[test]
fn a_directory_of_somebody_else_is_neither_used_nor_removed() {
    let Some(site) = Site::new("squat") else { return };
    let up = ["up", "--job", "7", "--nodes", "n1"];
    let (place, away) = (site.dir("7", "n1"), site.path("away"));
    fs::create_dir(&away).unwrap();
    fs::write(away.join("thesis"), "x").unwrap();
    symlink(&away, &place).unwrap();
    site.on("n1", &up).says(&["symbolic link"]);
    assert!(site.on("n1", &["down", "--job", "7"]).stdout.contains("nothing of job 7"));
    fs::remove_file(&place).unwrap();
    fs::create_dir(&place).unwrap();
    std::os::unix::fs::chown(&place, Some(65_534), None).unwrap();
    // A name that is taken keeps nobody from his job, who goes elsewhere and says so.
    let taken = site.on("n1", &up);
    assert!(taken.ok && taken.stderr.contains("is taken by"), "{taken}");
    assert!(taken.stderr.contains("uid 65534"), "{taken}");
    assert!(site.on("n1", &up).stdout.contains("was up already"));
    assert!(site.on("n1", &["down", "--job", "7"]).stdout.contains("removed"));
    assert!(fs::read_dir(&place).unwrap().next().is_none() && away.join("thesis").exists());
    // A place for a mount that is not ours would show others what programs write there.
    let mount = [&up[..], &["--mount", place.to_str().unwrap()]].concat();
    site.on("n1", &mount).says(&["cannot mount at", "belongs to", "uid 65534"]);
    fs::remove_dir(&place).unwrap();
    // Where anybody may rename, anybody may squat later.
    fs::set_permissions(site.path("disk"), fs::Permissions::from_mode(0o777)).unwrap();
    site.on("n1", &up).says(&["other users may rename"]);
    // A key that others read is no key.
    fs::set_permissions(site.path("disk"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(site.path("key"), "0".repeat(64)).unwrap();
    fs::set_permissions(site.path("key"), fs::Permissions::from_mode(0o644)).unwrap();
    site.on("n1", &[&up[..], &["--key-file", "key"]].concat()).says(&["cannot use the key"]);
    assert!(site.on("n1", &["down", "--job", "7"]).ok);
    site.nothing_is_left();
}

#[test]
fn a_port_that_another_user_has_taken_is_named_with_him() {
    if !crate::support::has_program("python3") {
        return skip("needs python3, for somebody else who listens");
    }
    let Some(site) = Site::new("port") else { return };
    let listen = "import os, socket, sys; os.setuid(65534); s = socket.socket(); s.bind(('', 5640)); s.listen(); \
                  print('ready', flush=True); sys.stdin.read()";
    let mut other = covey();
    other.args(["lab", "exec", "--name", site.lab.name(), "n1", "--", "python3"]);
    other.args(["-c", listen]);
    let mut other = other.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = [0; 6];
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut ready).unwrap();
    let up = ["up", "--job", "7", "--nodes", "n1", "--port", "5640"];
    site.on("n1", &up).says(&["listens at its port 5640", "uid 65534", "--port N"]);
    drop(other.stdin.take());
    other.wait().unwrap();
    assert!(site.on("n1", &up).ok);
    assert!(site.on("n1", &["down", "--job", "7"]).ok);
    site.nothing_is_left();
}

#[test]
fn a_job_that_was_started_again_takes_nothing_of_its_earlier_run() {
    let Some(site) = Site::new("again") else { return };
    let up = ["up", "--job", "7", "--nodes", "n[1-2]", "--stage-in", "in put:/in"];
    // As Slurm says it to a job that it has started again so often.
    let both_in = |again: u32, words: &[&str]| {
        let command = |node| {
            let mut command = site.command(node, words);
            command.env("SLURM_JOB_ID", "7");
            if again > 0 {
                command.env("SLURM_RESTART_COUNT", again.to_string());
            }
            command
        };
        let (one, two) = (command("n1"), command("n2"));
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| run(two));
            [run(one), thread.join().unwrap()]
        })
    };
    all_ok(&both_in(0, &up));
    assert!(site.covey("7", "n2", &["touch", "/of run 0"]).ok);
    kill_server(&site, "7", "n2");
    fs::write(site.path("in put/new"), "input of run 1").unwrap();
    all_ok(&both_in(1, &up));
    let new = site.covey("7+1", "n2", &["cat", "/in/new"]);
    assert_eq!(new.stdout, "input of run 1", "the input is copied in again: {new}");
    assert!(!site.covey("7+1", "n1", &["stat", "/of run 0"]).ok, "files of run 0 are there");
    assert!(!site.dir("7", "n1").exists() && !site.dir("7", "n2").exists());
    let late = ["up", "--job", "7", "--nodes", "n[1-2]", "--run", "0", "--wait", "0"];
    site.on("n1", &late).says(&["cannot start run 0 of job 7: run 1 is here"]);
    // What was to be saved is not removed for the sake of a new run.
    for done in both_in(1, &["down", "--job", "7", "--stage-out", "/in:/proc/x"]) {
        done.says(&["nothing was removed", "job 7 (run 1)"]);
    }
    let third = both_in(2, &up);
    all_ok(&third);
    assert!(third[0].stderr.contains("results of run 1 of job 7 stay in"), "{}", third[0]);
    // The latest is meant where no run is named.
    let down = both_in(0, &["down", "--job", "7"]);
    all_ok(&down);
    assert!(down[0].stdout.contains("job 7 (run 2) is down here"), "{}", down[0]);
    all_ok(&both_in(2, &["up", "--job", "7", "--nodes", "n[1-2]", "--run", "1"]));
    assert!(site.covey("7+1", "n1", &["stat", "/in/new"]).ok, "results of run 1 are there");
    all_ok(&both_in(0, &["down", "--job", "7", "--run", "1", "--discard"]));
    site.nothing_is_left();
}

#[test]
fn several_nodes_of_one_host_have_their_own_parts() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    for name in ["home", "disk", "in"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(at("in/data"), "data").unwrap();
    // Two names of this host, which is what several slurmd on it are.
    let nodes = ["localhost", "Localhost"];
    if ("Localhost", 1).to_socket_addrs().is_err() {
        return skip("needs a machine to which `Localhost` is a name, too");
    }
    let on = |node: Option<&str>, words: &[&str]| {
        let mut command = covey();
        command.args(words).current_dir(scratch.path());
        command.env("HOME", at("home")).env("TMPDIR", at("disk"));
        command.env_remove("COVEY_LAB_DIR").env_remove("COVEY_CONFIG");
        command.env_remove("SLURM_JOB_ID").env_remove("SLURMD_NODENAME");
        command.envs(node.map(|node| ("SLURMD_NODENAME", node)));
        run(command)
    };
    let both = |words: &[&str]| {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| on(Some(nodes[1]), words));
            [on(Some(nodes[0]), words), thread.join().unwrap()]
        })
    };
    let up = ["up", "--job", "7", "--nodes", "localhost,Localhost", "--stage-in", "in:/in"];
    all_ok(&both(&up));
    assert_eq!(fs::read_dir(at("disk")).unwrap().count(), 2);
    on(None, &["down", "--job", "7"]).says(&["--node NODE"]);
    on(None, &["up", "--job", "7", "--nodes", "localhost,Localhost"]).says(&["--node NODE"]);
    // Each stops its own.
    let keep = on(Some("Localhost"), &["down", "--job", "7", "--keep"]);
    assert!(keep.ok && keep.stdout.contains("-Localhost"), "{keep}");
    let first = fs::read_dir(at("disk")).unwrap().map(|entry| entry.unwrap().path());
    let pid = |dir: &PathBuf, node: &str| dir.join(format!("run/{node}.pid")).exists();
    let first: Vec<PathBuf> = first.collect();
    assert!(first.iter().any(|dir| pid(dir, "localhost")), "the other one runs");
    assert!(!first.iter().any(|dir| pid(dir, "Localhost")));
    all_ok(&both(&up));
    all_ok(&both(&["down", "--job", "7", "--stage-out", "/in:out"]));
    assert_eq!(fs::read_to_string(at("out/data")).unwrap(), "data");
    assert_eq!(fs::read_dir(at("disk")).unwrap().count(), 0);
    assert_eq!(processes(&at("disk")), [""; 0]);
}

#[test]
fn one_name_is_one_job_and_results_go_where_they_stay() {
    let Some(site) = Site::new("names") else { return };
    let up = ["up", "--job", "a-1", "--nodes", "n[1-2]"];
    let both = |words: &[&str]| {
        let one = site.command("n1", words);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| run(one));
            [site.on("n2", words), thread.join().unwrap()]
        })
    };
    all_ok(&both(&up));
    assert!(site.on("n1", &up).stdout.contains("was up already"));
    let other = ["up", "--job", "a-1", "--nodes", "n1", "--wait", "0"];
    site.on("n1", &other).says(&["it was made for the nodes n1,n2"]);
    site.on("n3", &up).says(&["n3 is not among its nodes"]);
    assert!(site.covey("a-1", "n2", &["cp", "-r", "in put", ":/out"]).ok);
    // Of another job there is nothing, and a result that would go with the job is none.
    site.on("n1", &["down", "--job", "a", "--stage-out", "/out:x"]).says(&["nothing of job a "]);
    let within = format!("/out:{}/x", site.dir("a-1", "n1").display());
    site.on("n1", &["down", "--job", "a-1", "--stage-out", &within])
        .says(&["goes away with the job"]);
    // A destination that cannot be written, and one that is missing at the source.
    let failed = site.on("n1", &["down", "--job", "a-1", "--stage-out", "/out:/proc/x"]);
    failed.says(&["nothing was removed"]);
    site.on("n1", &["down", "--job", "a-1", "--stage-out", "/none:x"])
        .says(&["nothing was removed"]);
    fs::create_dir(site.path("linked")).unwrap();
    symlink(site.dir("a-1", "n1"), site.path("linked/sub dir")).unwrap();
    site.on("n1", &["down", "--job", "a-1", "--stage-out", "/out:linked"])
        .says(&["goes away with the job", "nothing was removed"]);
    site.on("n1", &["down", "--job", "a-1"]).says(&["--discard"]);
    // The other node has its share of the files, though no stage-out has failed there.
    site.on("n2", &["down", "--job", "a-1"]).says(&["stage-out of job"]);
    // Stopped, started, and the files are there.
    all_ok(&both(&["down", "--job", "a-1", "--keep"]));
    site.on("n2", &["down", "--job", "a-1"]).says(&["the first node, n1, does not say"]);
    all_ok(&both(&up));
    all_ok(&both(&["down", "--job", "a-1", "--stage-out", ":/:all of it"]));
    check(&site.path("all of it/out"), &site.path("in put"), true);
    assert_eq!(fs::read_dir(site.path("all of it")).unwrap().count(), 1);
    site.nothing_is_left();
}

#[test]
fn a_full_disk_loses_nothing() {
    let Some(site) = Site::new("full") else { return };
    let up = ["up", "--job", "9", "--nodes", "n1", "--stage-in", "in put:/in"];
    assert!(site.on("n1", &up).ok);
    let small = site.path("small");
    fs::create_dir(&small).unwrap();
    let place = small.to_str().unwrap();
    site.lab.exec("n1", &["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place]);
    let down = ["down", "--job", "9", "--stage-out", "/in:small/res"];
    site.on("n1", &down).says(&["no space", "nothing was removed"]);
    site.lab.exec("n1", &["mount", "-o", "remount,size=50m", place]);
    // A good end that is on record says little while the server runs: programs may have written since.
    let record = format!(
        "{:?} {:?}\n{:?} {:?}\n",
        Path::new("/in"),
        site.path("small/res"),
        Path::new("/none"),
        site.path("x")
    );
    fs::write(site.dir("9", "n1").join("staged-out"), record).unwrap();
    // What the job has not made is no failure, where that is asked for.
    let done = site.on("n1", &[&down[..], &["--skip-missing", "--stage-out", "/none:x"]].concat());
    assert!(done.ok && done.stderr.contains("nothing to stage out"), "{done}");
    let copy = site.path("results/copy");
    site.lab.exec("n1", &["cp", "-a", &format!("{place}/res"), copy.to_str().unwrap()]);
    check(&copy, &site.path("in put"), true);
    site.lab.exec("n1", &["umount", place]);
    site.nothing_is_left();
}
