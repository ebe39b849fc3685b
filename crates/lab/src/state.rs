//! Where a lab is found again: its directory, and whether it lives.
//!
//! ```text
//!   DIR/plan.json      what it consists of       DIR/control.sock  the keeper listens
//!   DIR/keeper.pid     who keeps it              DIR/keeper.log    what it said
//!   DIR/hosts          the nodes' /etc/hosts     DIR/cluster/      what `covey up` makes inside
//!   DIR/lock           held by up and down
//! ```

use super::plan::Plan;
use crate::error::{Cannot, Error, Result};
use covey_io::os::process::Process;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

pub use crate::config::LAB_DIR as INSIDE;

/// What a lab is called unless something else is said.
pub const NAME_DEFAULT: &str = "lab";

/// A lab's directory.
#[derive(Clone, Debug)]
pub struct Lab {
    /// What it is called.
    pub name: String,
    /// Absolute; one directory per lab.
    pub dir: PathBuf,
}

impl Lab {
    /// The lab of that name; without one, the lab that this process is inside of, else the default.
    pub fn named(name: Option<&str>) -> Result<Lab> {
        if let (None, Some(lab)) = (name, Lab::around()) {
            return Ok(lab);
        }
        let name = name.unwrap_or(NAME_DEFAULT);
        let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '-' || letter == '_';
        if name.is_empty() || name.len() > 32 || !name.chars().all(fits) {
            return Err(Error::user(format!("cannot call a lab `{name}`"))
                .hint("letters, digits, `-` and `_`, at most 32 of them"));
        }
        Ok(Lab { name: name.to_string(), dir: home().join(name) })
    }

    /// The lab that this process is inside of.
    pub fn around() -> Option<Lab> {
        let dir = PathBuf::from(std::env::var_os(INSIDE)?);
        dir.file_name()?;
        Some(Lab::at(dir))
    }

    /// The lab of that directory, which has its name.
    pub fn at(dir: PathBuf) -> Lab {
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Lab { name, dir }
    }

    /// All labs of this user, by name.
    pub fn all() -> Vec<Lab> {
        let entries = std::fs::read_dir(home()).into_iter().flatten().flatten();
        let mut all: Vec<Lab> = entries.map(|entry| Lab::at(entry.path())).collect();
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// A command on it, such as `covey lab down --lab other`.
    pub fn command(&self, words: &str) -> String {
        if self.name == NAME_DEFAULT {
            format!("covey lab {words}")
        } else {
            format!("covey lab {words} --lab {}", self.name)
        }
    }

    /// A file of it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Makes the directory; refuses one that somebody else may have prepared.
    pub fn make_dir(&self) -> Result<()> {
        // The last lab of a user that goes down takes the directory above with it, maybe just now.
        let make = || std::fs::DirBuilder::new().mode(0o700).recursive(true).create(&self.dir);
        let is_gone = |made: &std::io::Result<()>| matches!(made, Err(error) if error.kind() == std::io::ErrorKind::NotFound);
        let made = (0..10).map(|_| make()).find(|made| !is_gone(made)).unwrap_or_else(make);
        made.cannot(|| format!("make directory {}", self.dir.display()))?;
        for dir in [&home(), &self.dir] {
            let meta =
                std::fs::symlink_metadata(dir).cannot(|| format!("look at {}", dir.display()))?;
            if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
                return Err(Error::work(format!(
                    "cannot use {}: it belongs to uid {}",
                    dir.display(),
                    meta.uid()
                ))
                .hint("remove it, or let its owner do so"));
            }
        }
        Ok(())
    }

    /// Whether this process is inside of it: then the keeper is the first process that it sees.
    pub fn is_around(&self) -> bool {
        Lab::around().is_some_and(|around| around.dir == self.dir)
    }

    /// The process that keeps it, if it lives.
    pub fn keeper(&self) -> Option<Process> {
        if self.is_around() {
            Process::now(1)
        } else {
            Process::read(&self.file("keeper.pid")).filter(Process::is_alive)
        }
    }

    /// The keeper of a lab that must be there.
    pub fn living_keeper(&self) -> Result<Process> {
        self.keeper().ok_or_else(|| {
            if self.dir.exists() {
                Error::work(format!("cannot use lab {}: its keeper has died", self.name))
                    .hint(format!("`{}` clears what is left", self.command("down")))
            } else {
                let error = Error::user(format!("cannot use lab {}: it is not up", self.name));
                let others: Vec<String> = Lab::all().into_iter().map(|lab| lab.name).collect();
                if others.is_empty() {
                    let up = self.command("up 4");
                    error.hint(format!("`{up}` makes one of 4 nodes"))
                } else {
                    let others = others.join(", ");
                    error.hint(format!(
                        "there is {others}: --name NAME, for `covey tune` --lab NAME"
                    ))
                }
            }
        })
    }

    /// What it consists of.
    pub fn plan(&self) -> Result<Plan> {
        let file = self.file("plan.json");
        let text = std::fs::read(&file).cannot(|| format!("read {}", file.display()))?;
        serde_json::from_slice(&text)
            .map_err(|error| Error::work(format!("cannot read {}: {error}", file.display())))
    }

    /// The index of one of its nodes.
    pub fn node(&self, plan: &Plan, name: &str) -> Result<usize> {
        plan.node(name).ok_or_else(|| {
            Error::user(format!("cannot find node {name} in lab {}", self.name))
                .hint(format!("the nodes are {}", plan.nodes.join(", ")))
        })
    }
}

/// Where the labs of this user are.
fn home() -> PathBuf {
    let uid = rustix::process::geteuid().as_raw();
    Path::new("/var/tmp").join(format!("covey-lab-{uid}"))
}
