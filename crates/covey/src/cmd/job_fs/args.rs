//! The options of `covey up` and `covey down` that are about jobs.

use super::plan::Source;
use super::stage::Spec;
use super::{down, up};
use covey_stripe::ops::Consistency;
use std::path::PathBuf;
use std::time::Duration;

/// Of `covey up`.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "The file system of a job")]
pub struct Up {
    /// Make this node's part of a job's file system [default ID: SLURM_JOB_ID or PBS_JOBID]
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "",
          conflicts_with_all = ["io_servers", "tcp"])]
    job: Option<String>,
    /// The job's nodes, such as `node[1-4,7]`; the first keeps the metadata [default:
    /// SLURM_JOB_NODELIST or PBS_NODEFILE, in a lab all its nodes]
    #[arg(long, value_name = "HOSTS", requires = "job", conflicts_with = "nodefile")]
    nodes: Option<String>,
    /// Which of the nodes this is [default: SLURMD_NODENAME, else the one that the host's name fits]
    #[arg(long, value_name = "NODE", requires = "job")]
    node: Option<String>,
    /// Which run of the job this is, where it was started again under the same ID [default:
    /// SLURM_RESTART_COUNT, else the latest that is here]
    #[arg(long, value_name = "NUMBER", requires = "job")]
    run: Option<u32>,
    /// A file with one node on each line
    #[arg(long, value_name = "FILE", requires = "job")]
    nodefile: Option<PathBuf>,
    /// Copy SRC to DST of the file system when all nodes are up; may be repeated. The first node
    /// does it
    #[arg(long, value_name = "SRC:DST", requires = "job", value_parser = Spec::inward)]
    stage_in: Vec<Spec>,
    /// A key that every node of the job can read and nobody else [default: one is made in
    /// ~/.cache/covey, which all nodes must share]
    #[arg(long, value_name = "FILE", requires = "job")]
    key_file: Option<PathBuf>,
    /// TCP port of the servers, the same on every node [default: follows from the key, another for
    /// each node]
    #[arg(long, value_name = "PORT", requires = "job", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// How long to wait for other nodes; 0 waits for none
    #[arg(long, value_name = "SECONDS", requires = "job", default_value_t = 60)]
    wait: u64,
}

/// Options that jobs share with clusters of one machine.
pub struct Shared {
    /// `--dir`.
    pub dir: Option<PathBuf>,
    /// `--mount`.
    pub mount: Option<PathBuf>,
    /// `--consistency`.
    pub consistency: Consistency,
    /// `--strip`.
    pub strip_bytes: Option<u32>,
    /// `--foreground`.
    pub foreground: bool,
}

impl Up {
    /// What was asked for, where it is about a job.
    pub fn wish(self, shared: Shared) -> Option<up::Wish> {
        Some(up::Wish {
            job: self.job?,
            run: self.run,
            node: self.node,
            source: Source { list: self.nodes, file: self.nodefile },
            parent: shared.dir,
            port: self.port,
            strip_bytes: shared.strip_bytes,
            key_file: self.key_file,
            mount: shared.mount,
            consistency: shared.consistency,
            stage_in: self.stage_in,
            wait: Duration::from_secs(self.wait),
            foreground: shared.foreground,
        })
    }

    /// Whether it is about a job.
    pub fn is_meant(&self) -> bool {
        self.job.is_some()
    }
}

/// Of `covey down`.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "The file system of a job")]
pub struct Down {
    /// Stop this node's part of a job's file system and remove it [default ID: SLURM_JOB_ID or
    /// PBS_JOBID]
    #[arg(long, value_name = "ID", num_args = 0..=1, default_missing_value = "",
          conflicts_with = "nodes")]
    job: Option<String>,
    /// Which of the job's nodes this is, where several are on this machine [default:
    /// SLURMD_NODENAME]
    #[arg(long, value_name = "NODE", requires = "job")]
    node: Option<String>,
    /// Which run of the job, where it was started again under the same ID [default:
    /// SLURM_RESTART_COUNT, else the latest that is here]
    #[arg(long, value_name = "NUMBER", requires = "job")]
    run: Option<u32>,
    /// Before that, copy SRC of the file system to DST; may be repeated. The first node does it,
    /// and the others wait for it
    #[arg(long, value_name = "SRC:DST", requires = "job", value_parser = Spec::outward)]
    stage_out: Vec<Spec>,
    /// Pass over each SRC that is not there, instead of failing
    #[arg(long, requires = "stage_out")]
    skip_missing: bool,
    /// Only stop it: `covey up --job` starts it again with its files
    #[arg(long, requires = "job", conflicts_with = "stage_out")]
    keep: bool,
    /// Remove it also where a stage-out has failed, or the first node cannot be asked how it went
    #[arg(long, requires = "job", conflicts_with_all = ["keep", "stage_out"])]
    discard: bool,
}

impl Down {
    /// What was asked for, where it is about a job.
    pub fn wish(self, dir: Option<PathBuf>) -> Option<down::Wish> {
        Some(down::Wish {
            job: self.job?,
            run: self.run,
            node: self.node,
            parent: dir,
            stage_out: self.stage_out,
            skip_missing: self.skip_missing,
            keep: self.keep,
            discard: self.discard,
        })
    }

    /// Whether it is about a job.
    pub fn is_meant(&self) -> bool {
        self.job.is_some()
    }
}
