//! In an allocation of Slurm: its daemons run on this machine, for one test.

use crate::support::packages::find;
use crate::support::{has_program, is_root, run, skip, until};
use std::fs;
use std::net::{TcpListener, ToSocketAddrs};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// munged, slurmctld and slurmd, which end with this.
struct Slurm {
    servers: Vec<Child>,
    dir: tempfile::TempDir,
}

impl Slurm {
    /// None where its node does not become idle within a minute.
    fn start(host: &str, more: impl Fn(&Path) -> String) -> Option<Slurm> {
        let dir = tempfile::tempdir().unwrap();
        let (at, mut servers) = (dir.path(), Vec::new());
        for name in ["state", "spool", "home"] {
            fs::create_dir(at.join(name)).unwrap();
        }
        let key: Vec<u8> = (0..1024u32).map(|byte| (byte * 7) as u8).collect();
        fs::write(at.join("munge.key"), key).unwrap();
        fs::set_permissions(at.join("munge.key"), fs::Permissions::from_mode(0o400)).unwrap();
        fs::set_permissions(at, fs::Permissions::from_mode(0o755)).unwrap();
        let mut munged = Command::new(find("munged").unwrap());
        munged.args(["--foreground", "--force"]);
        for (option, file) in [
            ("socket", "munge.sock"),
            ("key-file", "munge.key"),
            ("pid-file", "munge.pid"),
            ("log-file", "munge.log"),
            ("seed-file", "munge.seed"),
        ] {
            munged.arg(format!("--{option}={}", at.join(file).display()));
        }
        servers.push(quiet(munged));
        until("munged listens", || at.join("munge.sock").exists());
        fs::write(at.join("slurm.conf"), conf(at, host, free_ports()) + &more(at)).unwrap();
        let mut slurm = Slurm { servers, dir };
        for words in [&["slurmctld", "-D", "-c"][..], &["slurmd", "-D"]] {
            let mut command = slurm.command(find(words[0]).unwrap().to_str().unwrap());
            command.args(&words[1..]);
            slurm.servers.push(quiet(command));
        }
        // Whether it can run here is Slurm's affair.
        for _ in 0..300 {
            let mut info = slurm.command("sinfo");
            info.args(["--noheader", "--format=%T"]);
            if run(info).stdout.trim() == "idle" {
                return Some(slurm);
            }
            if slurm.servers.iter_mut().any(|server| server.try_wait().unwrap().is_some()) {
                // Without it sinfo takes its time, each time.
                break;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let log = |name| fs::read_to_string(slurm.dir.path().join(name)).unwrap_or_default();
        let (control, node) = (log("ctld.log"), log("slurmd.log"));
        println!("{control}{node}");
        None
    }

    /// With this Slurm, and a home where nobody has made a cluster.
    fn command(&self, name: &str) -> Command {
        let (mut command, at) = (Command::new(name), self.dir.path());
        command.env("SLURM_CONF", at.join("slurm.conf")).env("HOME", at.join("home"));
        command.env("COVEY_LAB_DIR", at.join("none")).env_remove("XDG_CONFIG_HOME");
        command.env_remove("COVEY_CONFIG").current_dir(at);
        command
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for server in self.servers.iter_mut().rev() {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

fn quiet(mut command: Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// A port that is free, and so is the next one. Connections of others have none of these: the kernel takes theirs from above.
/// Several may run at the same time.
fn free_ports() -> u32 {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    let is_free = |port: u32| TcpListener::bind(("0.0.0.0", port as u16)).is_ok();
    loop {
        let port = 20_000 + 2 * (std::process::id() + STARTED.fetch_add(1, Relaxed)) % 12_000;
        if is_free(port) && is_free(port + 1) {
            return port;
        }
    }
}

/// Prolog and epilog know a job by its number, and two tests are two clusters of Slurm on one machine: each has numbers of its own.
fn conf(at: &Path, host: &str, port: u32) -> String {
    let at = at.display();
    format!(
        "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmctldPort={port}\n\
         SlurmdPort={}\nAuthType=auth/munge\nAuthInfo=socket={at}/munge.sock,cred_expire=5\nCredType=cred/munge\n\
         StateSaveLocation={at}/state\nSlurmdSpoolDir={at}/spool\nSlurmctldPidFile={at}/ctld.pid\n\
         SlurmdPidFile={at}/slurmd.pid\nSlurmctldLogFile={at}/ctld.log\nSlurmdLogFile={at}/slurmd.log\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\n\
         MpiDefault=none\nReturnToService=2\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\nNodeName={host} NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN\n\
         PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\nFirstJobId={port}\n",
        port + 1
    )
}

/// Slurm on this machine, and the machine's name. None, with the reason told, where it cannot run.
fn slurm(more: impl Fn(&Path) -> String) -> Option<(Slurm, String)> {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().split('.').next().unwrap_or_default();
    let missing = ["munged", "slurmctld", "slurmd", "srun", "salloc", "sinfo"]
        .into_iter()
        .find(|name| !has_program(name));
    let unfit = match missing {
        Some(name) => Some(format!("needs {name}")),
        None if !is_root() => Some("needs root, to run Slurm's daemons".to_owned()),
        None if (host, 1).to_socket_addrs().is_err()
            || Path::new("/etc/covey/covey.toml").exists() =>
        {
            Some("needs a machine that finds itself by its name, and has no cluster".to_owned())
        }
        None => None,
    };
    if let Some(reason) = unfit {
        skip(reason);
        return None;
    }
    let slurm = Slurm::start(host, more);
    if slurm.is_none() {
        skip("Slurm's node does not become idle here; its logs stand above");
    }
    Some((slurm?, host.to_owned()))
}

#[test]
fn in_an_allocation_without_a_cluster_srun_starts_the_daemons() {
    let Some((slurm, host)) = slurm(|_| String::new()) else { return };
    let covey = env!("CARGO_BIN_EXE_covey");
    let mut salloc = slurm.command("salloc");
    salloc.args(["--quiet", "-N1", covey, "run", "--ppn", "2", "--label", "sh", "-c"]);
    salloc.arg("echo $COVEY_NODE $COVEY_RANK of $COVEY_SIZE; exit $COVEY_RANK");
    let done = run(salloc);
    let mut lines: Vec<&str> = done.stdout.lines().collect();
    lines.sort_unstable();
    let wanted = [format!("{host}/0: {host} 0 of 2"), format!("{host}/1: {host} 1 of 2")];
    assert_eq!(
        (done.code, lines),
        (Some(1), wanted.iter().map(String::as_str).collect()),
        "{done}"
    );
    // Nothing is left but the directory that it makes its own in.
    let left = fs::read_dir(slurm.dir.path().join("home/.cache/covey")).unwrap().count();
    assert_eq!(left, 0);
    let mut detached = slurm.command("salloc");
    detached.args(["--quiet", "-N1", covey, "run", "--detach", "--local", "true"]);
    run(detached).says(&["cannot detach", "srun"]);
}

/// A user who owns nothing here.
const NOBODY: u32 = 65_534;

/// Prolog, epilog and the check of scripts as a site would install them; their settings.
fn installed(at: &Path) -> String {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/slurm");
    fs::create_dir(at.join("site")).unwrap();
    for name in ["prolog", "epilog", "common"] {
        fs::copy(dist.join(name), at.join("site").join(name)).unwrap();
    }
    fs::copy(dist.join("burst_buffer.lua"), at.join("burst_buffer.lua")).unwrap();
    fs::write(at.join("burst_buffer.conf"), "").unwrap();
    let (covey, at) = (env!("CARGO_BIN_EXE_covey"), at.display());
    let mount = match crate::support::no_fuse() {
        None if has_program("fusermount3") => format!("{at}/mounts/%j"),
        _ => String::new(),
    };
    let settings = format!(
        "COVEY={covey}\nDIR={at}/disk\nMOUNT={mount}\nSECRET={at}/secret\nBURST_BUFFER=yes\n"
    );
    fs::write(format!("{at}/site/settings"), settings).unwrap();
    fs::write(format!("{at}/secret"), "5".repeat(64) + "\n").unwrap();
    fs::set_permissions(format!("{at}/secret"), fs::Permissions::from_mode(0o600)).unwrap();
    for (name, mode) in [("disk", 0o1777), ("results", 0o777), ("in", 0o755)] {
        fs::create_dir(format!("{at}/{name}")).unwrap();
        fs::set_permissions(format!("{at}/{name}"), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(format!("{at}/in/data"), [7; 100_000]).unwrap();
    format!(
        "Prolog={at}/site/prolog\nEpilog={at}/site/epilog\nPrologFlags=Alloc\n\
         BurstBufferType=burst_buffer/lua\nBatchStartTimeout=60\n\
         SchedulerParameters=bf_interval=1,sched_interval=1\n"
    )
}

impl Slurm {
    /// Runs a script as a user who owns nothing, to its end.
    fn batch(&self, lines: &str, words: &[&str]) -> crate::support::Finished {
        let script = self.dir.path().join("script");
        fs::write(&script, format!("#!/bin/bash\n{lines}")).unwrap();
        let mut sbatch = self.command("sbatch");
        sbatch.args([
            "--wait",
            "--parsable",
            &format!("--uid={NOBODY}"),
            "--output=results/log-%j",
        ]);
        run({
            sbatch.args(words).arg(script);
            sbatch
        })
    }
}

#[test]
fn prolog_and_epilog_make_a_file_system_of_a_jobs_nodes_and_remove_it() {
    let Some((slurm, host)) = slurm(installed) else { return };
    let at = slurm.dir.path();
    let shown = at.display();
    let covey = env!("CARGO_BIN_EXE_covey");
    let config = format!("{shown}/disk/covey-job-$SLURM_JOB_ID-{NOBODY}-{host}/covey.toml");
    let mount = format!("{shown}/mounts/$SLURM_JOB_ID");
    let work = format!(
        "set -e\n{covey} --config {config} cp -r :/in :/out\n\
         if [ -e {mount} ]; then cmp {mount}/in/data {mount}/out/data; fi\n"
    );
    let is_clean = || {
        let count = |dir: &str| fs::read_dir(at.join(dir)).map_or(0, Iterator::count);
        count("disk") == 0 && count("mounts") == 0
    };
    // By a comment, and by lines that the burst buffer checks.
    let wish = |to: &str| format!("stage_in={shown}/in:/in stage_out=/out:{shown}/results/{to}");
    let comment = format!("--comment=covey {}", wish("one"));
    let line = format!("#BB_LUA covey {}\n{work}", wish("two"));
    for (name, lines, words) in [("one", &work, vec![comment.as_str()]), ("two", &line, vec![])] {
        let done = slurm.batch(lines, &words);
        let log = || {
            let files = fs::read_dir(at.join("results")).unwrap().map(|file| file.unwrap().path());
            let texts = files.filter_map(|file| fs::read_to_string(file).ok());
            texts.collect::<String>()
                + &fs::read_to_string(at.join("slurmd.log")).unwrap_or_default()
        };
        assert!(done.ok, "{name}: {done}{}", log());
        until("the epilog has removed all", is_clean);
        let data = fs::read(at.join("results").join(name).join("data")).unwrap();
        assert!(data == [7; 100_000], "{name}");
    }
    let wrong = slurm.batch("#BB_LUA covey stagein=/a:/b\ntrue\n", &[]);
    assert!(!wrong.ok && wrong.stderr.contains("does not know"), "{wrong}");
    // What cannot be copied out stays.
    let wish = format!("--comment=covey stage_in={shown}/in:/in stage_out=/out:{shown}/secret/x");
    assert!(slurm.batch(&work, &[&wish]).ok);
    let unsaved = |entry: fs::DirEntry| entry.path().join("unsaved").exists();
    until("the epilog has tried", || {
        let mut entries = fs::read_dir(at.join("disk")).unwrap().map(Result::unwrap);
        entries.next().is_some_and(unsaved)
    });
    until("the epilog has stopped the server", || {
        let entries = fs::read_dir(at.join("disk")).unwrap().map(Result::unwrap);
        entries.map(|entry| entry.path().join("run")).all(|run| {
            fs::read_dir(run)
                .unwrap()
                .flatten()
                .all(|file| file.path().extension().is_none_or(|extension| extension != "pid"))
        })
    });
    // One by itself in its own allocation, as the manual says.
    let mut salloc = slurm.command("salloc");
    let script = format!(
        "set -e; srun --overlap {covey} up --job --dir disk --foreground >results/srun 2>&1 & \
         for try in $(seq 100); do ls disk/covey-job-$SLURM_JOB_ID-*/run/*.pid && break; sleep 0.2; done; \
         {covey} up --job --dir disk --stage-in in:/in; \
         {covey} down --job --dir disk --stage-out /in:results/three; wait"
    );
    let done = run({
        salloc.args(["--quiet", "-N1", "sh", "-c", &script]).env_remove("COVEY_LAB_DIR");
        salloc
    });
    let step = fs::read_to_string(at.join("results/srun")).unwrap_or_default();
    assert!(done.ok && at.join("results/three/data").exists(), "{done}{step}");
    assert!(step.contains("is up on"), "{step}");
}

/// Prolog or epilog as slurmd runs them, without Slurm: `stub` is the program that they call.
fn script(at: &Path, name: &str, stub: &str, job: &str) -> Command {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/slurm");
    for name in ["prolog", "epilog", "common"] {
        fs::copy(dist.join(name), at.join(name)).unwrap();
    }
    fs::write(at.join("stub"), format!("#!/bin/sh\n{stub}")).unwrap();
    fs::set_permissions(at.join("stub"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(at.join("secret"), "5".repeat(64) + "\n").unwrap();
    let shown = at.display();
    let settings = format!("COVEY={shown}/stub\nDIR={shown}\nMOUNT=\nSECRET={shown}/secret\n");
    fs::write(at.join("settings"), settings).unwrap();
    let mut command = Command::new(at.join(name));
    command.env("SLURM_JOB_ID", job).env("SLURM_JOB_UID", "0").env("SLURM_JOB_GID", "0");
    command.env("SLURM_JOB_COMMENT", "covey").env("SLURM_JOB_RESTART_COUNT", "0");
    command.env("SLURMD_NODENAME", "n1").env("SLURM_JOB_NODELIST", "n1");
    command.env("SLURM_SCRIPT_CONTEXT", format!("{name}_slurmd"));
    command
}

#[test]
fn the_epilog_removes_the_key_that_a_killed_prolog_has_left() {
    if !is_root() {
        return skip("needs root to write to /run");
    }
    let dir = tempfile::tempdir().unwrap();
    let job = (3_000_000_000 + u64::from(std::process::id())).to_string();
    // The words that `up` gets name the key.
    let stub = format!(
        "echo \"$@\" >{at}/words.new; mv {at}/words.new {at}/words; \
         until [ -e {at}/go ] || ! [ -d {at} ]; do sleep 0.05; done",
        at = dir.path().display()
    );
    let mut prolog = quiet(script(dir.path(), "prolog", &stub, &job));
    let words = || fs::read_to_string(dir.path().join("words")).unwrap_or_default();
    until("the prolog makes the file system", || words().contains("--key-file"));
    prolog.kill().unwrap();
    prolog.wait().unwrap();
    fs::write(dir.path().join("go"), "").unwrap();
    let made = words();
    let mut after_key = made.split_whitespace().skip_while(|word| *word != "--key-file").skip(1);
    let key = std::path::PathBuf::from(after_key.next().unwrap());
    let is_private = fs::metadata(&key).unwrap().permissions().mode() & 0o77 == 0;
    assert!(is_private && fs::read_to_string(&key).unwrap().trim().len() == 64);
    let done = run(script(dir.path(), "epilog", "true\n", &job));
    let is_left = key.exists();
    let _ = fs::remove_file(&key);
    assert!(done.ok && !is_left, "{} is left: {done}", key.display());
    let of_job = format!("covey-{job}-");
    let names = fs::read_dir("/run").unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().starts_with(&of_job)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_job_that_slurm_starts_again_begins_anew() {
    let Some((slurm, host)) = slurm(installed) else { return };
    let at = slurm.dir.path();
    let (shown, covey) = (at.display(), env!("CARGO_BIN_EXE_covey"));
    fs::create_dir(at.join("results/in")).unwrap();
    fs::write(at.join("results/in/data"), "old ").unwrap();
    for path in ["results/in", "results/in/data"] {
        fs::set_permissions(at.join(path), fs::Permissions::from_mode(0o777)).unwrap();
    }
    let run = "${SLURM_RESTART_COUNT:++$SLURM_RESTART_COUNT}";
    let config = format!("{shown}/disk/covey-job-$SLURM_JOB_ID{run}-{NOBODY}-{host}/covey.toml");
    let script = format!(
        "set -e\nexport COVEY_CONFIG={config}\n{covey} cat /in/data >>results/seen\n\
         {covey} ls / >>results/seen\n\
         if [ -z \"$SLURM_RESTART_COUNT\" ]; then\n{covey} touch /of-the-first-run\n\
         printf 'new ' >results/in/data\nscontrol requeue $SLURM_JOB_ID\nsleep 60\nfi\n\
         touch results/done\n"
    );
    // A stage-out that fails leaves the files of both runs there.
    let wish =
        format!("--comment=covey stage_in={shown}/results/in:/in stage_out=/in:{shown}/secret/x");
    slurm.batch(&script, &["--requeue", &wish]);
    let log = || fs::read_to_string(at.join("slurmd.log")).unwrap_or_default();
    until("the second run has come to its end", || at.join("results/done").exists());
    let seen = fs::read_to_string(at.join("results/seen")).unwrap();
    assert_eq!(seen.replace('\n', " ").trim(), "old in new in", "{}", log());
    let all_stopped = || {
        let runs = fs::read_dir(at.join("disk")).unwrap().map(|dir| dir.unwrap().path());
        let count = |run: &Path| fs::read_dir(run.join("run")).map_or(0, Iterator::count);
        let runs: Vec<_> = runs.collect();
        runs.len() == 2 && runs.iter().all(|run| run.join("unsaved").exists() && count(run) == 0)
    };
    until("the epilog has stopped the servers of both runs", all_stopped);
}
