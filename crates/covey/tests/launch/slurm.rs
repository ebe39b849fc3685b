//! In an allocation of Slurm: its daemons run on this machine, for one test.

use crate::support::packages::find;
use crate::support::{has_program, is_root, run, skip, until};
use std::fs;
use std::net::ToSocketAddrs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// munged, slurmctld and slurmd, which end with this.
struct Slurm {
    servers: Vec<Child>,
    dir: tempfile::TempDir,
}

impl Slurm {
    /// None where its node does not become idle within a minute.
    fn start(host: &str) -> Option<Slurm> {
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
        let port = 30_000 + std::process::id() % 20_000;
        fs::write(at.join("slurm.conf"), conf(at, host, port)).unwrap();
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

fn conf(at: &Path, host: &str, port: u32) -> String {
    let at = at.display();
    format!(
        "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmctldPort={port}\n\
         SlurmdPort={}\nAuthType=auth/munge\nAuthInfo=socket={at}/munge.sock\nCredType=cred/munge\n\
         StateSaveLocation={at}/state\nSlurmdSpoolDir={at}/spool\nSlurmctldPidFile={at}/ctld.pid\n\
         SlurmdPidFile={at}/slurmd.pid\nSlurmctldLogFile={at}/ctld.log\nSlurmdLogFile={at}/slurmd.log\n\
         ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\n\
         MpiDefault=none\nReturnToService=2\nSelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\nNodeName={host} NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN\n\
         PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
        port + 1
    )
}

#[test]
fn in_an_allocation_without_a_cluster_srun_starts_the_daemons() {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = host.trim().split('.').next().unwrap_or_default();
    let missing = ["munged", "slurmctld", "slurmd", "srun", "salloc", "sinfo"]
        .into_iter()
        .find(|name| !has_program(name));
    if let Some(name) = missing {
        return skip(format!("needs {name}"));
    }
    if !is_root() {
        return skip("needs root, to run Slurm's daemons");
    }
    if (host, 1).to_socket_addrs().is_err() || Path::new("/etc/covey/covey.toml").exists() {
        return skip("needs a machine that finds itself by its name, and has no cluster");
    }
    let Some(slurm) = Slurm::start(host) else {
        return skip("Slurm's node does not become idle here; its logs stand above");
    };
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
