//! Which run of a job is meant, and which of its nodes this is.
//!
//! A batch system may start a job again under the same ID, such as after a node has failed; Slurm counts that in
//! SLURM_RESTART_COUNT. Each run has directories, a key and a cluster ID of its own, so that nothing of an earlier one is
//! taken for this one's.
//!
//! Several nodes may be one machine (several slurmd), and two machines may call themselves by the same short name. A
//! node is the one that the batch system or `--node` names, else the only one of the list that the host's name fits.

use super::trust::own_uid;
use crate::error::{Error, Result};
use std::fs;

/// Which directories of a job are meant.
#[derive(Clone, Debug)]
pub struct Which {
    /// The job.
    pub job: String,
    /// Its run; None: the latest that is here.
    pub run: Option<u32>,
    /// Whose they are.
    pub own: OwnNames,
}

impl Which {
    /// From the options and what Slurm says of the job that this is in.
    pub fn new(job: String, run: Option<u32>, node: Option<&str>) -> Which {
        let run = run.or_else(|| run_in_slurm(&job));
        Which { job, run, own: OwnNames::new(node) }
    }
}

/// How often Slurm has started this job again; it says nothing the first time.
fn run_in_slurm(job: &str) -> Option<u32> {
    let set = |name: &str| std::env::var(name).ok();
    set("SLURM_JOB_ID").filter(|id| id == job)?;
    set("SLURM_RESTART_COUNT")?.parse().ok()
}

/// The names by which a list of nodes may mean this one, the surest first.
#[derive(Clone, Debug)]
pub struct OwnNames {
    names: Vec<String>,
    /// Whether the first one is surely that of the node, and not only of the host.
    is_sure: bool,
}

impl OwnNames {
    /// The one that somebody has named, else those of the batch system and the host.
    pub fn new(named: Option<&str>) -> OwnNames {
        if let Some(named) = named {
            return OwnNames { names: vec![named.to_string()], is_sure: true };
        }
        let host = host();
        let short = short(&host).to_string();
        let slurm = std::env::var("SLURMD_NODENAME").ok().filter(|name| !name.is_empty());
        let is_sure = slurm.is_some();
        OwnNames { names: slurm.into_iter().chain([host, short]).collect(), is_sure }
    }

    /// Those of a host, of which nobody has said which node it is.
    #[cfg(test)]
    pub fn of_host(host: &str) -> OwnNames {
        OwnNames { names: vec![host.to_string()], is_sure: false }
    }

    /// The node of the list that one of these names means: in full, or up to the first dot where that leaves one.
    pub fn among(&self, nodes: &[String]) -> Result<String> {
        let whole = self.names.iter().find_map(|own| nodes.iter().find(|node| *node == own));
        if let Some(node) = whole {
            return Ok(node.clone());
        }
        let fit = |own: &String| nodes.iter().filter(|node| short(node) == own).collect::<Vec<_>>();
        let own = self.names.first().map(String::as_str).unwrap_or_default();
        match self.names.iter().map(fit).find(|fit| !fit.is_empty()).as_deref() {
            Some([node]) => Ok((*node).clone()),
            Some(several) => Err(several_fit(own, several.iter().map(|node| node.as_str()))),
            None => Err(Error::user(format!(
                "cannot start the job's server here: {own} is not among its nodes"
            ))
            .hint(format!("the nodes are {}", nodes.join(", ")))
            .hint("run it once on each of them: srun --ntasks-per-node=1 covey up --job")
            .hint("--node NODE says which of them this is")),
        }
    }

    /// Whether somebody has said which node this is.
    pub fn is_sure(&self) -> bool {
        self.is_sure
    }

    /// Whether one of them is this, where there is no list of nodes to look it up in.
    pub fn contain(&self, node: &str) -> bool {
        let is_named = |own: &String| own == node || (self.is_sure && own == short(node));
        self.names.iter().take(if self.is_sure { 1 } else { usize::MAX }).any(is_named)
    }
}

/// Several nodes are on this machine, or have its name.
pub fn several_fit<'a>(own: &str, nodes: impl Iterator<Item = &'a str>) -> Error {
    let nodes: Vec<&str> = nodes.collect();
    Error::user(format!(
        "cannot tell which of the job's nodes this is: {own} may be {}",
        nodes.join(" or ")
    ))
    .hint("--node NODE says which")
}

/// A name up to its first dot.
fn short(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

/// What this machine is called.
pub fn host() -> String {
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    host.trim().to_string()
}

/// The name of a directory: `covey-job-ID-UID-NODE`, of a later run `covey-job-ID+RUN-UID-NODE`. No job has a `+` in its
/// ID.
pub fn name(job: &str, run: u32, node: &str) -> String {
    let run = if run == 0 { String::new() } else { format!("+{run}") };
    format!("covey-job-{job}{run}-{}-{node}", own_uid())
}

/// The run and the node of a directory of this job and user. Where its name was taken, letters stand behind a `~`.
pub fn read_name(name: &str, job: &str) -> Option<(u32, String)> {
    let rest = name.strip_prefix("covey-job-")?.strip_prefix(job)?;
    let (run, rest) = match rest.strip_prefix('+') {
        Some(rest) => {
            let (run, rest) = rest.split_once('-')?;
            (run.parse().ok().filter(|run| *run > 0)?, rest)
        }
        None => (0, rest.strip_prefix('-')?),
    };
    let node = rest.strip_prefix(&format!("{}-", own_uid()))?;
    Some((run, node.split('~').next()?.to_string()))
}

/// A job as messages name it.
pub fn shown(job: &str, run: u32) -> String {
    if run == 0 { format!("job {job}") } else { format!("job {job} (run {run})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn among(nodes: &[&str], own: &[&str]) -> Result<String> {
        OwnNames { names: owned(own), is_sure: false }.among(&owned(nodes))
    }

    #[test]
    fn this_node_is_found_by_its_name_with_or_without_a_domain() {
        let nodes = ["a.x.org", "b"];
        assert_eq!(among(&nodes, &["b.x.org", "b"]).unwrap(), "b");
        assert_eq!(among(&nodes, &["a"]).unwrap(), "a.x.org");
        let error = among(&nodes, &["c"]).unwrap_err();
        assert!(error.message.contains("c is not among its nodes"), "{error}");
    }

    #[test]
    fn a_short_name_of_two_nodes_is_not_guessed_at() {
        let nodes = ["a.x.org", "a.y.org"];
        assert_eq!(among(&nodes, &["a.y.org", "a"]).unwrap(), "a.y.org");
        let error = among(&nodes, &["a"]).unwrap_err();
        assert!(error.message.contains("a may be a.x.org or a.y.org"), "{error}");
        // Several slurmd of one host: the name of the node counts, and not that of the host.
        assert_eq!(among(&["n1", "n2"], &["n2", "n1"]).unwrap(), "n2");
    }

    #[test]
    fn names_of_directories_say_which_run_and_node_they_are() {
        for (run, node) in [(0, "n1"), (3, "n1.x.org"), (12, "a-b")] {
            let name = name("7", run, node);
            assert_eq!(read_name(&name, "7"), Some((run, node.to_string())), "{name}");
            let beside = format!("{name}~0f3a");
            assert_eq!(read_name(&beside, "7"), Some((run, node.to_string())));
            assert_eq!(read_name(&name, "70"), None);
        }
        let uid = own_uid();
        for odd in ["x".into(), format!("covey-job-7+0-{uid}-n"), format!("covey-job-7+x-{uid}-n")]
        {
            assert_eq!(read_name(&odd, "7"), None, "{odd}");
        }
    }
}
