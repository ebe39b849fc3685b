//! `covey tune mpi`: the curve of a wire seen through an MPI library.

use super::blocks::{self, Progress, Through};
use super::fabric;
use super::hosts::{Hosts, Machines};
use super::levels::Level;
use super::probe::Plan;
use super::programs::{self, BLOCKS_MPI, Program, YIELDING};
use super::scratch::Scratch;
use super::stop::Stop;
use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Library {
    /// Open MPI.
    Openmpi,
    /// MPICH.
    Mpich,
}

/// How the ends wait for one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Wait {
    /// In the kernel, as programs over TCP and PVM do.
    Block,
    /// Awake, as MPI itself does.
    Poll,
}

impl Wait {
    /// What is usual: between machines as TCP waits, on one as MPI does.
    pub fn usual(hosts: &Hosts) -> Wait {
        match hosts {
            Hosts::Here => Wait::Poll,
            Hosts::Nodes(_) | Hosts::Machines(_) => Wait::Block,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Wait::Block => "block",
            Wait::Poll => "poll",
        }
    }

    fn words(self) -> String {
        match self {
            Wait::Block => "blocking",
            Wait::Poll => "polling",
        }
        .to_string()
    }
}

/// A library that is installed.
#[derive(Clone, Debug)]
pub struct Mpi {
    /// Which.
    pub library: Library,
    /// Its name and version.
    pub name: String,
    /// Its compiler.
    pub compiler: &'static str,
    launcher: &'static str,
}

impl Mpi {
    /// Whether it was built to send over libfabric, and so over a provider of it.
    pub fn speaks_libfabric(&self) -> bool {
        let (program, mark) = match self.library {
            Library::Openmpi => ("ompi_info", "MCA mtl: ofi"),
            Library::Mpich => ("mpichversion", "ch4:ofi"),
        };
        let told = Command::new(program).output();
        told.is_ok_and(|told| String::from_utf8_lossy(&told.stdout).contains(mark))
    }
}

/// Those that are installed.
pub fn installed() -> Vec<Mpi> {
    [Library::Openmpi, Library::Mpich].into_iter().filter_map(find).collect()
}

/// One of them, or all that there are.
pub fn choose(wanted: Option<Library>) -> Result<Vec<Mpi>> {
    let found: Vec<Mpi> = match wanted {
        None => installed(),
        Some(library) => find(library).into_iter().collect(),
    };
    let name = wanted.map_or("no MPI", |library| match library {
        Library::Openmpi => "no Open MPI",
        Library::Mpich => "no MPICH",
    });
    if !found.is_empty() {
        Ok(found)
    } else {
        Err(Error::work(format!("cannot measure through MPI: {name} is installed"))
            .hint("apt-get install openmpi-bin libopenmpi-dev, or mpich libmpich-dev"))
    }
}

fn find(library: Library) -> Option<Mpi> {
    let names = match library {
        Library::Openmpi => [("mpicc.openmpi", "mpiexec.openmpi"), ("mpicc", "mpiexec")],
        Library::Mpich => [("mpicc.mpich", "mpiexec.mpich"), ("mpicc", "mpiexec")],
    };
    names.into_iter().find_map(|(compiler, launcher)| {
        programs::find(launcher)?;
        let said = Command::new(launcher).arg("--version").output().ok()?;
        let name = version(library, &String::from_utf8_lossy(&said.stdout))?;
        Some(Mpi { library, name, compiler, launcher })
    })
}

/// Name and version from what the launcher says, if it is of that library.
fn version(library: Library, said: &str) -> Option<String> {
    // Open MPI's calls itself as it was called: mpiexec, or mpiexec.openmpi.
    let (marks, name) = match library {
        Library::Openmpi => (["(OpenRTE)", "(Open MPI)"], "Open MPI"),
        Library::Mpich => (["Version:"; 2], "MPICH"),
    };
    if library == Library::Mpich && !said.contains("HYDRA") {
        return None;
    }
    let line = said.lines().find(|line| marks.iter().any(|mark| line.contains(mark)))?;
    Some(format!("{name} {}", line.split_whitespace().last()?))
}

impl Mpi {
    /// Measures through it.
    pub fn measure(
        &self,
        hosts: &Hosts,
        wait: Wait,
        plan: &Plan,
        stop: &Stop,
        progress: Progress<'_>,
    ) -> Result<Level> {
        let program = programs::build(BLOCKS_MPI, self.compiler, &[])?;
        let scratch = Scratch::new()?;
        let mut command = self.launch(hosts, 2, wait, &scratch)?;
        command.arg(program).arg(wait.word());
        command.args(blocks::arguments(plan, hosts, &scratch));
        let through = Through {
            library: self.name.clone(),
            wait: wait.words(),
            hint: format!("`{} --version` shows whether it runs at all", self.launcher),
        };
        blocks::measure(command, through, hosts, plan, &scratch, stop, progress)
    }

    /// A command that starts so many ranks; the program and its words are to follow. On nodes the ranks go round,
    /// and talk by TCP over the measured cards; on this machine by memory, or by TCP when they are to block.
    pub fn launch(
        &self,
        hosts: &Hosts,
        ranks: usize,
        wait: Wait,
        scratch: &Scratch,
    ) -> Result<Command> {
        if let Hosts::Machines(machines) = hosts {
            return Ok(self.run(machines, ranks));
        }
        let mut command = hosts.command(self.launcher);
        command.env("TMPDIR", scratch.path());
        let is_crowded = is_crowded(ranks);
        let ranks = ranks.to_string();
        match self.library {
            Library::Openmpi => {
                // In a container, or a lab, everybody is root.
                command.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
                command.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
                command.args(["--bind-to", "none", "--oversubscribe", "--mca", "pml", "ob1"]);
            }
            Library::Mpich => drop(command.env("UCX_WARN_UNUSED_ENV_VARS", "n")),
        }
        if is_crowded {
            self.yields(&mut command);
        }
        match (self.library, hosts) {
            (Library::Openmpi, Hosts::Nodes(nodes)) => {
                let shell = nodes.remote_shell(scratch)?;
                let network = nodes.network();
                command.args(["--mca", "plm_rsh_agent"]).arg(shell);
                command.args(["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", &network]);
                command.args(["--mca", "oob_tcp_if_include", &network]);
                command.args(["--map-by", "node", "-H", &nodes.names.join(",")]);
            }
            (Library::Openmpi, Hosts::Here) if wait == Wait::Block => {
                command.args(["--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"]);
            }
            (Library::Openmpi, Hosts::Here) => drop(command.args(["--mca", "btl", "vader,self"])),
            (Library::Mpich, Hosts::Nodes(nodes)) => {
                let shell = nodes.remote_shell(scratch)?;
                let card = &nodes.card.interface;
                command.args(["-launcher", "rsh", "-launcher-exec"]).arg(shell);
                command.args(["-iface", card, "-hosts", &nodes.names.join(",")]);
                command.args(["-genv", "UCX_TLS", "tcp,self", "-genv", "UCX_NET_DEVICES", card]);
                command.args(["-genv", "FI_PROVIDER", "tcp", "-genv", "FI_TCP_IFACE", card]);
            }
            (Library::Mpich, Hosts::Here) if wait == Wait::Block => {
                command.args(["-genv", "MPIR_CVAR_NOLOCAL", "1", "-genv", "UCX_TLS", "tcp,self"]);
                command.args(["-genv", "UCX_NET_DEVICES", "lo", "-genv", "FI_PROVIDER", "tcp"]);
            }
            (Library::Mpich, Hosts::Here) => {}
            (_, Hosts::Machines(_)) => unreachable!("`covey run` starts these"),
        }
        command.args(["-n", &ranks]);
        Ok(command)
    }

    /// The same on this machine, through Covey's provider in a directory: by memory, or by TCP.
    pub fn launch_over_covey(
        &self,
        provider: &Path,
        by_memory: bool,
        ranks: usize,
        scratch: &Scratch,
    ) -> Command {
        let mut command = Hosts::Here.command(self.launcher);
        command.env("TMPDIR", scratch.path()).env("FI_PROVIDER_PATH", provider);
        command.envs(fabric::variables(self.library).iter().copied());
        command.env("COVEY_FI_SHM", if by_memory { "1" } else { "0" });
        command.env("COVEY_FI_ADDRESS", "127.0.0.1");
        match self.library {
            Library::Openmpi => {
                command.env("OMPI_ALLOW_RUN_AS_ROOT", "1");
                command.env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
                command.args(["--bind-to", "none", "--oversubscribe"]);
            }
            // It has memory of its own between the ranks of a machine.
            Library::Mpich => drop(command.env("MPIR_CVAR_NOLOCAL", "1")),
        }
        if is_crowded(ranks) {
            self.yields(&mut command);
        }
        command.args(["-n", &ranks.to_string()]);
        command
    }

    /// The same by `covey run`: the ranks talk by TCP, even if both nodes are on one machine.
    fn run(&self, machines: &Machines, ranks: usize) -> Command {
        let mut command = machines.run(&machines.names);
        let variables: &[&str] = match self.library {
            Library::Openmpi => &[
                "OMPI_ALLOW_RUN_AS_ROOT=1",
                "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
                "OMPI_MCA_pml=ob1",
                "OMPI_MCA_btl=tcp,self",
                "OMPI_MCA_mpi_yield_when_idle=1",
            ],
            Library::Mpich => &[
                "MPIR_CVAR_NOLOCAL=1",
                "UCX_TLS=tcp,self",
                "UCX_WARN_UNUSED_ENV_VARS=n",
                "FI_PROVIDER=tcp",
            ],
        };
        for variable in variables {
            command.args(["-e", variable]);
        }
        let per_node = ranks.div_ceil(machines.names.len());
        command.args(["--mpi", "on", "-n", &ranks.to_string(), "--ppn", &per_node.to_string()]);
        covey_io::os::namespaces::die_with_parent(&mut command);
        command
    }

    /// Who waits awake for a process that has no CPU waits for the scheduler; so each gives its CPU away when
    /// nothing has come.
    fn yields(&self, command: &mut Command) {
        match self.library {
            Library::Openmpi => {
                command.args(["--mca", "mpi_yield_when_idle", "1"]);
            }
            // It has no setting for that. Without a compiler it is slower, and no worse.
            Library::Mpich => {
                if let Ok(library) = self.library_of(YIELDING) {
                    command.args(["-genv", "LD_PRELOAD"]).arg(library);
                }
            }
        }
    }

    /// A library to be loaded before this one.
    pub fn library_of(&self, program: Program) -> Result<PathBuf> {
        programs::build(program, self.compiler, &["-shared", "-fPIC", "-ldl"])
    }

    /// What [`launch`](Self::launch) preloads so that waiting processes yield: for a caller that sets LD_PRELOAD itself.
    pub fn yielding(&self, ranks: usize) -> Option<PathBuf> {
        let is_needed = self.library == Library::Mpich && is_crowded(ranks);
        is_needed.then(|| self.library_of(YIELDING).ok()).flatten()
    }
}

/// More processes than CPUs.
fn is_crowded(ranks: usize) -> bool {
    ranks > std::thread::available_parallelism().map_or(1, |count| count.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_told_apart_by_what_their_launchers_say() {
        let open = "mpiexec (OpenRTE) 4.1.4\n\nReport bugs to http://www.open-mpi.org\n";
        let hydra = "HYDRA build details:\n    Version:                4.0.2\n    CC: gcc\n";
        let version = |library, said| version(library, said);
        assert_eq!(version(Library::Openmpi, open).unwrap(), "Open MPI 4.1.4");
        let other = "mpiexec.openmpi (OpenRTE) 4.1.4\n";
        assert_eq!(version(Library::Openmpi, other).unwrap(), "Open MPI 4.1.4");
        assert_eq!(version(Library::Mpich, hydra).unwrap(), "MPICH 4.0.2");
        assert_eq!(version(Library::Openmpi, hydra), None);
        assert_eq!(version(Library::Mpich, open), None);
    }
}
