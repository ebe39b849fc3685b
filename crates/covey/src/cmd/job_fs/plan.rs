//! Which job, which nodes, and which of them this is.

use super::place::JobDir;
use super::which::OwnNames;
use crate::config::{Address, Config, Node, Pacing, Role, hostlist};
use crate::error::{Cannot, Error, Result};
use covey_lab::state::Lab;
use std::path::{Path, PathBuf};

/// Ports of jobs: above those of servers, and below those that kernels give to clients.
const PORT_FIRST: u16 = 20_000;
const PORTS: u64 = 12_000;

/// Where the names of nodes come from.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// `--nodes`.
    pub list: Option<String>,
    /// `--nodefile`.
    pub file: Option<PathBuf>,
}

/// The job's file system, the same on every node but for `me`.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The job.
    pub job: String,
    /// Which run of it.
    pub run: u32,
    /// Its nodes; the first one has the metadata.
    pub nodes: Vec<String>,
    /// This one.
    pub me: String,
    /// The port of every server; None: they follow from the key.
    pub port: Option<u16>,
}

/// The job that is meant: the one named, else the batch system's.
pub fn job_id(named: &str) -> Result<String> {
    let from_env = || {
        let mut all =
            ["SLURM_JOB_ID", "PBS_JOBID"].iter().filter_map(|name| std::env::var(name).ok());
        all.find(|id| !id.is_empty())
    };
    let job = Some(named.to_string()).filter(|name| !name.is_empty()).or_else(from_env);
    let job = job.ok_or_else(|| {
        Error::user("cannot tell which job: neither SLURM_JOB_ID nor PBS_JOBID is set")
            .hint("--job ID names it, with the same ID on every node")
    })?;
    // PBS calls a member of an array `12[3].server`.
    let job = job.replace(['[', ']'], "_");
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if job.len() > 64 || job.starts_with(['-', '.']) || !job.chars().all(fits) {
        return Err(Error::user(format!("cannot call a job `{job}`"))
            .hint("up to 64 letters, digits, `-`, `_` and `.`"));
    }
    Ok(job)
}

impl Source {
    /// The names, each once, in order.
    pub fn nodes(&self) -> Result<Vec<String>> {
        let names = match (&self.list, &self.file) {
            (Some(list), _) => expand("--nodes", list)?,
            (None, Some(file)) => from_file(file)?,
            (None, None) => of_the_batch_system()?,
        };
        let mut nodes: Vec<String> = Vec::new();
        for name in names {
            if !nodes.contains(&name) {
                nodes.push(name);
            }
        }
        Ok(nodes)
    }
}

fn of_the_batch_system() -> Result<Vec<String>> {
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(list) = set("SLURM_JOB_NODELIST").or_else(|| set("SLURM_NODELIST")) {
        return expand("SLURM_JOB_NODELIST", &list);
    }
    if let Some(file) = set("PBS_NODEFILE") {
        return from_file(Path::new(&file));
    }
    match Lab::around() {
        Some(lab) => Ok(lab.plan()?.nodes),
        None => {
            Err(Error::user("cannot tell which nodes the job has: SLURM_JOB_NODELIST is not set")
                .hint("--nodes 'node[1-4]' or --nodefile FILE names them, the same on every node"))
        }
    }
}

fn expand(what: &str, list: &str) -> Result<Vec<String>> {
    hostlist::expand(list).map_err(|why| {
        Error::user(format!("cannot read {what}: {why}"))
            .hint("write a list such as `node[1-4,7]` or `node[01-16],big`")
    })
}

/// A name on each line; batch systems repeat it for each processor. What follows the name is theirs.
fn from_file(file: &Path) -> Result<Vec<String>> {
    let text = std::fs::read_to_string(file).cannot(|| format!("read {}", file.display()))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    let names: Vec<&str> = lines.filter_map(|line| line.split_whitespace().next()).collect();
    expand(&file.display().to_string(), &names.join(","))
}

impl Plan {
    /// From what the command and the batch system say.
    pub fn new(
        (job, run): (String, u32),
        nodes: Vec<String>,
        port: Option<u16>,
        own: &OwnNames,
    ) -> Result<Plan> {
        let me = own.among(&nodes)?;
        Ok(Plan { job, run, nodes, me, port })
    }

    /// The job as messages name it.
    pub fn shown(&self) -> String {
        super::which::shown(&self.job, self.run)
    }

    /// Whether this is the node with the metadata.
    pub fn is_first(&self) -> bool {
        self.nodes.first() == Some(&self.me)
    }

    /// The configuration that this node keeps. Other nodes have their stores elsewhere, which is their affair. The key
    /// must be there.
    pub fn config(&self, dir: &JobDir, strip_bytes: Option<u32>) -> Result<Config> {
        let key_file = dir.path().join("key");
        let key = std::fs::read_to_string(&key_file);
        let key = key.cannot(|| format!("read the key {}", key_file.display()))?;
        let lab = Lab::around().map(|lab| lab.plan()).transpose()?;
        let host = |name: &str| match lab.as_ref().and_then(|lab| Some((lab, lab.node(name)?))) {
            Some((lab, index)) => lab.storage_address(index).to_string(),
            None => name.to_string(),
        };
        let node = |(index, name): (usize, &String)| Node {
            name: name.clone(),
            roles: if index == 0 { vec![Role::Meta, Role::Data] } else { vec![Role::Data] },
            listen: vec![Address::tcp(host(name), self.port_of(index, &key))],
            store: Some(dir.cluster.store(name)),
            emulated: None,
        };
        Ok(Config {
            file: dir.cluster.config_file(),
            name: "job".to_string(),
            id: self.cluster_id(),
            strip_bytes,
            pacing: Pacing::default(),
            key_file: Some(key_file),
            user: None,
            is_named: true,
            nodes: self.nodes.iter().enumerate().map(node).collect(),
            views: Vec::new(),
        })
    }

    /// Where nobody has chosen one, nobody can foresee it, and so take it before: it follows from the key, of which it
    /// tells 14 bits. Each node has another, for several may be on one machine.
    fn port_of(&self, index: usize, key: &str) -> u16 {
        let first = covey_wire::fnv1a(format!("{} {}", key.trim(), self.cluster_id()).as_bytes());
        let place = (first % PORTS + index as u64) % PORTS;
        self.port.unwrap_or(PORT_FIRST + place as u16)
    }

    /// The same on all nodes. It tells clusters, and runs of a job, apart and is no secret.
    pub fn cluster_id(&self) -> String {
        let uid = rustix::process::geteuid().as_raw();
        let (port, nodes) = (self.port.unwrap_or(0), self.nodes.join(","));
        let text = format!("{} {uid} {port} {nodes} {}", self.job, self.run);
        let half = |salt: &str| covey_wire::fnv1a(format!("{salt} {text}").as_bytes());
        format!("{:016x}{:016x}", half("job"), half("id"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_job_is_a_name_that_is_safe_in_a_path() {
        assert_eq!(job_id("4711").unwrap(), "4711");
        assert_eq!(job_id("12.head-2_a").unwrap(), "12.head-2_a");
        assert_eq!(job_id("12[3].srv").unwrap(), "12_3_.srv");
        for wrong in ["a/b", "..", "-x", "a b", "*", &"x".repeat(65)] {
            assert!(job_id(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_nodes_of_a_list_and_of_a_file_come_once_and_in_order() {
        let source = |list: &str| Source { list: Some(list.into()), file: None };
        let names = source("p[2-3,07-09],q,p2").nodes().unwrap();
        assert_eq!(names, owned(&["p2", "p3", "p07", "p08", "p09", "q"]));
        assert!(source("p[3-").nodes().is_err());
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("nodes");
        std::fs::write(&file, "n2\nn1 slots=4\n# none\n\nn2\n").unwrap();
        let names = Source { list: None, file: Some(file) }.nodes().unwrap();
        assert_eq!(names, owned(&["n2", "n1"]));
    }

    #[test]
    fn each_run_is_another_cluster_and_each_node_has_another_port() {
        let own = OwnNames::new(Some("b"));
        let plan =
            |run, port| Plan::new(("7".to_string(), run), owned(&["a", "b"]), port, &own).unwrap();
        assert_ne!(plan(0, None).cluster_id(), plan(1, None).cluster_id());
        let port = |plan: &Plan, index, key| plan.port_of(index, key);
        let first = plan(0, None);
        assert_ne!(port(&first, 0, "key"), port(&first, 1, "key"));
        // Nodes whose files of one key end in another way agree.
        assert_eq!(port(&first, 0, "key\n"), port(&first, 0, "key"));
        assert_ne!(port(&first, 0, "key"), port(&first, 0, "another"));
        assert_eq!([0, 1].map(|index| port(&plan(0, Some(5640)), index, "key")), [5640; 2]);
    }
}
