//! `covey tune pvm`: the curve of a wire seen through PVM 3.4.
//!
//! PVM needs a daemon on each host before anything runs. Ours are started for the time of the measurement, in a
//! directory of their own, so that they meet no others; the remote shell is that of the lab. Between nodes of a cluster
//! everything is a job of the first node, which starts the second daemon as a job of its own.

use super::blocks::{self, Progress, Through};
use super::hosts::{Hosts, Machines, Nodes, quoted, script};
use super::levels::Level;
use super::probe::Plan;
use super::programs::{self, BLOCKS_PVM};
use super::scratch::Scratch;
use super::stop::Stop;
use crate::error::{Cannot, Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long the daemons may take to find each other, or to end.
const PATIENCE: Duration = Duration::from_secs(15);

/// Refuses where it is not installed.
pub fn must_be_installed() -> Result<()> {
    match programs::find("pvmd").zip(programs::find("pvm")) {
        Some(_) => Ok(()),
        None => Err(Error::work("cannot measure through PVM: there is no pvmd")
            .hint("apt-get install pvm pvm-dev")),
    }
}

/// Measures through it.
pub fn measure(hosts: &Hosts, plan: &Plan, stop: &Stop, progress: Progress<'_>) -> Result<Level> {
    must_be_installed()?;
    let program = programs::build(BLOCKS_PVM, "cc", &["-lpvm3"])?;
    let scratch = Scratch::new()?;
    let through = Through {
        library: "PVM 3.4".to_string(),
        wait: "blocking".to_string(),
        hint: "`pvm` shows whether it runs at all".to_string(),
    };
    if let Hosts::Machines(machines) = hosts {
        let mut command = job(machines, &program, &scratch)?;
        command.args(blocks::arguments(plan, hosts, &scratch));
        return blocks::measure(command, through, hosts, plan, &scratch, stop, progress);
    }
    let machine = Machine::start(hosts, &scratch, stop)?;
    let to = match hosts {
        Hosts::Here | Hosts::Machines(_) => ".",
        Hosts::Nodes(nodes) => &nodes.names[1],
    };
    let mut command = machine.command(hosts, &program.display().to_string());
    command.arg(to);
    command.args(blocks::arguments(plan, hosts, &scratch));
    blocks::measure(command, through, hosts, plan, &scratch, stop, progress)
}

/// The job of the first node; the program's words are to follow.
fn job(machines: &Machines, program: &Path, scratch: &Scratch) -> Result<Command> {
    let [own, other] = &machines.hosts;
    if own == other {
        let names = machines.names.join(" and ");
        return Err(Error::user(format!(
            "cannot measure through PVM: {names} are both at {own}, and PVM has one daemon for each address"
        ))
        .hint("name nodes of different machines"));
    }
    let parcel = scratch.file("parcel");
    std::fs::create_dir(&parcel).cannot(|| format!("make {}", parcel.display()))?;
    for (name, text) in SCRIPTS {
        script(scratch, &format!("parcel/{name}"), text)?;
    }
    let copied = std::fs::copy(program, parcel.join("blocks"));
    copied.cannot(|| format!("copy {}", program.display()))?;
    let mut command = machines.run(&machines.names[..1]);
    command.args(["--exec", "master"]).arg(parcel).args([own, other, &machines.names[1]]);
    covey_io::os::namespaces::die_with_parent(&mut command);
    Ok(command)
}

/// What the two jobs consist of, beside the program.
const SCRIPTS: [(&str, &str); 4] = [
    ("environment", include_str!("programs/pvm/environment")),
    ("master", include_str!("programs/pvm/master")),
    ("slave", include_str!("programs/pvm/slave")),
    ("start", include_str!("programs/pvm/start")),
];

/// Daemons that are up.
struct Machine {
    daemon: Child,
    wrapper: PathBuf,
    hosts: Hosts,
}

impl Machine {
    fn start(hosts: &Hosts, scratch: &Scratch, stop: &Stop) -> Result<Machine> {
        let shell = match hosts {
            Hosts::Here | Hosts::Machines(_) => None,
            Hosts::Nodes(nodes) => Some(nodes.remote_shell(scratch)?),
        };
        let wrapper = script(scratch, "pvm", &wrapper(scratch.path(), shell.as_deref()))?;
        let mut command = hosts.command(&wrapper.display().to_string());
        command.arg("pvmd");
        if let Hosts::Nodes(nodes) = hosts {
            let file = scratch.file("hosts");
            let text = host_file(nodes, &wrapper);
            std::fs::write(&file, text).cannot(|| format!("write {}", file.display()))?;
            command.arg(format!("-n{}", nodes.names[0])).arg(file);
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let daemon = command.spawn().cannot(|| "start pvmd")?;
        let mut machine = Machine { daemon, wrapper, hosts: hosts.clone() };
        machine.wait_until_up(stop)?;
        Ok(machine)
    }

    fn wait_until_up(&mut self, stop: &Stop) -> Result<()> {
        let begin = Instant::now();
        let wanted = match &self.hosts {
            Hosts::Here | Hosts::Machines(_) => 1,
            Hosts::Nodes(nodes) => nodes.names.len(),
        };
        let why = loop {
            if stop.is_asked() {
                break super::stop::INTERRUPTED.to_string();
            }
            if let Ok(Some(status)) = self.daemon.try_wait() {
                break format!("pvmd ended with {status}");
            }
            // The console would start a daemon of its own where none is.
            if self.sockets() == wanted
                && self.console("conf\n").is_some_and(|said| hosts_in(&said) == wanted)
            {
                return Ok(());
            }
            if begin.elapsed() > PATIENCE {
                break format!("the daemons did not meet within {} s", PATIENCE.as_secs());
            }
            std::thread::sleep(Duration::from_millis(100));
        };
        Err(Error::work(format!("cannot measure through PVM: {why}")).hint(
            "every host must resolve the other's name to an address that is not its own 127.x",
        ))
    }

    /// How many daemons have said where they listen.
    fn sockets(&self) -> usize {
        let above = self.wrapper.parent().unwrap_or(Path::new("/"));
        let dirs = std::fs::read_dir(above).into_iter().flatten().flatten();
        let files = dirs.filter_map(|dir| std::fs::read_dir(dir.path()).ok()).flatten().flatten();
        files.filter(|file| file.file_name().to_string_lossy().starts_with("pvmd.")).count()
    }

    /// A program of PVM's on the first host, in our daemons' world.
    fn command(&self, hosts: &Hosts, program: &str) -> Command {
        let mut command = hosts.command(&self.wrapper.display().to_string());
        command.arg(program);
        command
    }

    /// What PVM's console says to some lines.
    fn console(&self, lines: &str) -> Option<String> {
        let mut command = self.command(&self.hosts, "pvm");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().ok()?;
        let mut input = child.stdin.take()?;
        std::io::Write::write_all(&mut input, lines.as_bytes()).ok()?;
        drop(input);
        let output = child.wait_with_output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Machine {
    /// The daemons end, and so do the tasks they have started.
    fn drop(&mut self) {
        self.console("halt\n");
        let begin = Instant::now();
        while matches!(self.daemon.try_wait(), Ok(None)) && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// A script that runs a program as PVM wants its environment. Hosts of a lab share /tmp, so each has a directory by its
/// name. `PVM_ALLOW_ROOT`: in a lab everybody is root.
fn wrapper(dir: &Path, shell: Option<&Path>) -> String {
    let dir = quoted(&dir.display().to_string());
    let root = ["/usr/lib/pvm3", "/usr/share/pvm3", "/usr/local/share/pvm3"];
    let root = root.into_iter().find(|dir| Path::new(dir).is_dir()).unwrap_or(root[0]);
    let shell = shell.map_or(String::new(), |shell| {
        format!("export PVM_RSH={}\n", quoted(&shell.display().to_string()))
    });
    format!(
        "#!/bin/sh\n\
         export PVM_ALLOW_ROOT=1 PVM_ROOT=\"${{PVM_ROOT:-{root}}}\" PVM_VMID=covey\n\
         {shell}\
         export PVM_TMP={dir}/at-$(cat /proc/sys/kernel/hostname)\n\
         mkdir -p \"$PVM_TMP\"\n\
         # A daemon that another starts is called with options only.\n\
         case $1 in -*) set -- pvmd \"$@\" ;; esac\n\
         exec \"$@\"\n"
    )
}

fn host_file(nodes: &Nodes, wrapper: &Path) -> String {
    let wrapper = wrapper.display();
    let line = |name: &String| format!("{name} dx={wrapper} wd=/tmp\n");
    nodes.names.iter().map(line).collect()
}

/// How many hosts the console's `conf` counts.
fn hosts_in(said: &str) -> usize {
    let count = said.lines().find_map(|line| {
        let (before, _) = line.split_once(" host")?;
        before.rsplit(' ').next()?.parse().ok()
    });
    count.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_consoles_count_of_hosts_is_read() {
        let said = "pvm> conf\nconf\n2 hosts, 1 data format\n                    HOST     DTID\n";
        assert_eq!(hosts_in(said), 2);
        assert_eq!(hosts_in("pvm> 1 host, 1 data format\n"), 1);
        assert_eq!(hosts_in("libpvm [pid5]: Can't contact local daemon\n"), 0);
    }
}
