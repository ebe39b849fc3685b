//! What the arguments of `covey run` come to.

use super::Args;
use crate::cmd::job::mpi::Variables;
use crate::cmd::job::pick;
use crate::cmd::job::print::Form;
use crate::cmd::job::stdin::Whom;
use crate::cmd::job::terminal::Raw;
use crate::config::{Config, random_hex};
use crate::error::{Error, Result};
use covey_launch::job::{Placement, is_name};
use covey_ninep::control::quote;
use covey_wire::Bytes;
use std::collections::HashMap;

/// Which ranks there are, and what they are told.
pub(super) struct Plan {
    pub args: Args,
    pub placement: Placement,
    pub job: String,
}

impl Plan {
    pub fn new(args: Args, config: &Config) -> Result<Plan> {
        let names = pick::nodes(config, args.nodes.as_deref(), args.all)?;
        let placement = Placement::new(&names, args.ranks, args.ppn).map_err(|error| {
            Error::user(format!("cannot place the ranks: {error}"))
                .hint("-n says how many ranks, --ppn how many a node may have, -w which nodes")
        })?;
        let job = match &args.job {
            Some(job) if is_name(job) => job.clone(),
            Some(job) => {
                return Err(Error::user(format!("cannot call a job `{job}`"))
                    .hint("up to 64 letters, digits, `-`, `_` and `.`"));
            }
            None => random_hex(4)?,
        };
        if args.tty && (placement.ranks() != 1 || !Raw::is_possible()) {
            return Err(Error::user("cannot lend the terminal: there must be one, and one rank")
                .hint("-n 1 -w NODE runs one rank; --stdin sends a file or a pipe"));
        }
        if let Whom::Rank(rank) = args.stdin
            && rank >= placement.ranks()
        {
            let ranks = placement.ranks();
            return Err(Error::user(format!(
                "cannot send the input to rank {rank}: there are {ranks}"
            ))
            .hint("--stdin all, none, or a rank that there is"));
        }
        Ok(Plan { args, placement, job })
    }

    /// What a rank is called before its lines.
    pub fn label(&self, rank: u32) -> String {
        let node = &self.placement.nodes()[self.placement.node_of(rank)];
        if self.placement.shares_nodes() { format!("{node}/{rank}") } else { node.clone() }
    }

    pub fn form(&self) -> Form {
        match (self.args.gather, self.args.label, self.placement.ranks()) {
            (true, ..) => Form::Gathered,
            (_, true, _) => Form::Labelled,
            (.., 1) => Form::Raw,
            _ => Form::Lines,
        }
    }

    pub fn argv(&self) -> Bytes {
        let (program, args) = self.args.words.split_at(1);
        let name = self.args.exec.as_ref().unwrap_or(&program[0]);
        let words = std::iter::once(name).chain(args);
        let words: Vec<String> = words.map(|word| quote(word)).collect();
        words.join(" ").into()
    }

    /// The environment of a rank: some of ours, what names the rank, what MPI needs, what the user wants.
    pub fn env(&self, rank: u32, variables: Option<&Variables>) -> Bytes {
        let node = self.placement.node_of(rank);
        let local = self.placement.local_rank(rank);
        let mut all: Vec<String> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| is_passed_on(name))
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        all.push(format!("COVEY_JOB={}", self.job));
        all.push(format!("COVEY_NODE={}", self.placement.nodes()[node]));
        all.push(format!("COVEY_RANK={rank}"));
        all.push(format!("COVEY_SIZE={}", self.placement.ranks()));
        all.push(format!("COVEY_LOCAL_RANK={local}"));
        if self.args.libs {
            all.push("LD_LIBRARY_PATH=.".to_owned());
        }
        if let Some(variables) = variables {
            all.extend(variables.of(local).cloned());
        }
        for word in &self.args.env {
            match (word.contains('='), std::env::var(word)) {
                (true, _) => all.push(word.clone()),
                (false, Ok(value)) => all.push(format!("{word}={value}")),
                (false, Err(_)) => {}
            }
        }
        // The last of a name holds.
        let mut last: HashMap<&str, &str> = HashMap::new();
        let order: Vec<&str> = all
            .iter()
            .filter_map(|word| word.split_once('='))
            .map(|(name, value)| {
                last.insert(name, value);
                name
            })
            .collect();
        let lines = order
            .into_iter()
            .filter_map(|name| Some(quote(&format!("{name}={}", last.remove(name)?))));
        lines.collect::<Vec<_>>().join("\n").into()
    }

    /// Where the program starts, if not in its session's directory.
    pub fn directory(&self) -> Option<String> {
        let here = || Some(std::env::current_dir().ok()?.display().to_string());
        self.args.cwd.clone().or_else(|| if self.args.local { here() } else { None })
    }
}

/// Whether a variable of this command is one that programs expect to find: paths, language, terminal, and the settings of
/// threads, MPI libraries and networks.
fn is_passed_on(name: &str) -> bool {
    const NAMES: [&str; 9] =
        ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TERM", "TZ", "LD_LIBRARY_PATH"];
    const PREFIXES: [&str; 12] = [
        "LC_",
        "OMP_",
        "OMPI_",
        "OPAL_",
        "PMIX_MCA_",
        "PRTE_MCA_",
        "MPICH_",
        "MPIR_",
        "UCX_",
        "FI_",
        "I_MPI_",
        "COVEY_UZURA_",
    ];
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_programs_expect_is_passed_on() {
        for name in ["PATH", "OMP_NUM_THREADS", "OMPI_MCA_btl", "LC_ALL"] {
            assert!(is_passed_on(name), "{name}");
        }
        for name in ["SSH_AUTH_SOCK", "PWD", "PMI_RANK", "PMIX_RANK", "SECRET"] {
            assert!(!is_passed_on(name), "{name}");
        }
    }
}
