//! In an allocation of Slurm where no cluster has been made: daemons on its nodes, for as long as the command runs.

use crate::cmd::job::pick;
use crate::cmd::keygen::write_new;
use crate::config::{Config, find, hostlist, load, random_hex};
use crate::error::{Cannot, Error, Result};
use covey_io::os::namespaces::die_with_parent;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The daemons, which end with this.
pub(super) struct Daemons {
    /// The cluster that they are.
    pub config: Config,
    srun: Child,
    /// Its file and its key, where all nodes see them.
    dir: PathBuf,
}

/// The nodes of the allocation, if this is one and nobody has made a cluster.
pub(super) fn allocated(config_file: Option<&Path>) -> Option<String> {
    if find(config_file).is_ok() {
        return None;
    }
    std::env::var("SLURM_JOB_NODELIST").ok().filter(|list| !list.is_empty())
}

impl Daemons {
    /// Starts one on each node of the list, by srun, and waits until all answer.
    pub async fn start(list: &str, is_detached: bool) -> Result<Daemons> {
        if is_detached {
            return Err(Error::user(
                "cannot detach: the daemons that srun starts end with this command",
            )
            .hint("covey.toml of a cluster that runs already makes srun unnecessary"));
        }
        let nodes = hostlist::expand(list)
            .map_err(|why| Error::work(format!("cannot read SLURM_JOB_NODELIST: {why}")))?;
        let dir = make_dir()?;
        let config = write(&dir, &nodes);
        let started = config.and_then(|config| Ok((srun(&config.file, nodes.len())?, config)));
        let mut daemons = match started {
            Ok((srun, config)) => Daemons { config, srun, dir },
            Err(error) => {
                let _ = fs::remove_dir_all(&dir);
                return Err(error);
            }
        };
        daemons.wait_for(&nodes).await?;
        Ok(daemons)
    }

    async fn wait_for(&mut self, nodes: &[String]) -> Result<()> {
        let begun = Instant::now();
        loop {
            let found = pick::reach_each(&self.config, nodes).await;
            let Some(error) = found.into_iter().find_map(Result::err) else { return Ok(()) };
            if let Ok(Some(status)) = self.srun.try_wait() {
                return Err(Error::work(format!("cannot start daemons: srun has ended, {status}"))
                    .hint("srun says above why; `srun hostname` should work"));
            }
            if begun.elapsed() > START_LIMIT {
                return Err(error
                    .hint("its daemon was started by srun; can the nodes connect to each other?"));
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Daemons {
    /// srun ends its step, and that the daemons and all that they run.
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.srun.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let begun = Instant::now();
        while begun.elapsed() < END_LIMIT && matches!(self.srun.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.srun.kill();
        let _ = self.srun.wait();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A directory of the user's own that is the same on all nodes.
fn make_dir() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let home = home.ok_or_else(|| {
        Error::user("cannot start daemons under Slurm: HOME is not set")
            .hint("the nodes find the cluster's file below it")
    })?;
    let above = home.join(".cache/covey");
    let dir = above.join(format!("slurm-{}", random_hex(8)?));
    let what = || format!("make {}", dir.display());
    DirBuilder::new().recursive(true).mode(0o700).create(&above).cannot(what)?;
    DirBuilder::new().mode(0o700).create(&dir).cannot(what)?;
    Ok(dir)
}

/// Writes the file and the key of a cluster that starts programs and stores nothing.
fn write(dir: &Path, nodes: &[String]) -> Result<Config> {
    let key = dir.join("key");
    write_new(&key)?;
    let port = PORT_FIRST + u16::from_str_radix(&random_hex(2)?, 16).unwrap_or(0) % PORTS;
    let mut text = format!(
        "version = 1\n[cluster]\nname = \"slurm\"\nid = \"{}\"\nnodes = {}\nkey_file = {:?}\n\
         # A cluster has these roles; nobody starts this node.\n\
         [[node]]\nname = \"{NO_STORAGE}\"\nroles = [\"meta\", \"data\"]\nlisten = [\"tcp!127.0.0.1!1\"]\nstore = {:?}\n",
        random_hex(16)?,
        nodes.len() + 1,
        key.display().to_string(),
        dir.join("none").display().to_string(),
    );
    for name in nodes {
        text += &format!(
            "[[node]]\nname = \"{name}\"\nroles = [\"launch\"]\nlisten = [\"tcp!{name}!{port}\"]\n"
        );
    }
    let file = dir.join("covey.toml");
    fs::write(&file, text).cannot(|| format!("write {}", file.display()))?;
    load(&file)
}

/// One daemon on each node. It hears nothing of ^C: that is for the ranks.
fn srun(file: &Path, nodes: usize) -> Result<Child> {
    let own = std::env::current_exe().cannot(|| "find this program")?;
    let mut command = Command::new("srun");
    command.args(["--overlap", "--quiet", "--ntasks-per-node=1", &format!("--nodes={nodes}")]);
    command.args(["--ntasks", &nodes.to_string(), "sh", "-c", SERVE]).arg(own).arg(file);
    command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
    die_with_parent(&mut command);
    command.spawn().map_err(|error| {
        Error::work(format!("cannot start daemons: cannot run srun: {error}"))
            .hint("covey.toml of a cluster that runs already makes srun unnecessary")
    })
}

/// Slurm calls a node as its list does; the machine may be called otherwise.
const SERVE: &str = "exec \"$0\" --config \"$1\" serve --node \"$SLURMD_NODENAME\"";
const NO_STORAGE: &str = "no-storage";
/// Above what servers are usually given, and most of it below what kernels give to clients.
const PORT_FIRST: u16 = 20_000;
const PORTS: u16 = 12_000;
const START_LIMIT: Duration = Duration::from_secs(30);
const END_LIMIT: Duration = Duration::from_secs(5);
