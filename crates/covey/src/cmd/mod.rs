//! The commands: one file each, holding an `Args` whose doc comments are the help, and one `run`.
//!
//! Files that are no command: `path` finds things in the file system, `cluster` keeps the processes
//! of the embedded cluster, `copy` moves bytes for `cp` and `cat`, `job_fs` makes the file system of a
//! job for `up` and `down`.

mod attach;
mod bench;
mod boot;
mod cat;
mod cell;
mod chmod;
mod chown;
mod cluster;
mod completions;
mod config;
mod consistency;
mod copy;
mod cp;
mod dash;
mod df;
mod down;
mod du;
mod export;
mod files;
mod fs_dump;
mod fsck;
mod genconfig;
mod http;
mod init;
mod job;
mod job_fs;
mod key;
mod keygen;
mod kill;
mod lab;
mod layout;
mod ln;
mod ls;
mod man;
mod metrics;
mod mkdir;
pub mod mount;
mod mounted;
mod mpi;
mod mpi_starter;
mod mv;
mod names;
mod net;
mod ninep;
mod nodes;
mod path;
mod ping;
mod ps;
mod push;
mod quota;
mod reproduce;
mod rm;
mod run;
mod salvage;
mod serve;
mod server;
mod show;
mod stat;
mod stats;
mod status;
mod systemd;
mod touch;
mod tree;
mod truncate;
mod tune;
mod umount;
mod up;
mod uzura;
mod volume;
mod wait;

use crate::config::{Config, find, load_found};
use crate::error::{Cannot, Error, Result};
use crate::output::Output;
use clap::{Args, Parser, Subcommand};
use covey_stripe::client::{Caching, Fs, Options};
use covey_stripe::ops::Caller;
use covey_wire::List;
use std::path::PathBuf;

/// A striped parallel file system over 9P, in one program
///
/// Covey joins the disks of a few Linux machines into one file system: files are striped over I/O
/// servers, names live on a metadata server, and every program reaches them through a mount,
/// through 9P, or through the commands below.
///
/// Start on one machine, without root:
///
///     covey up
///     covey cp -r /usr/share/doc :/doc
///     covey ls -l /doc
///     covey down
///
/// Several machines share one file, covey.toml, written by `covey genconfig`.
///
/// EXIT CODES
///
/// 0 done; 1 the work failed; 2 the command or the configuration was wrong and nothing was tried.
#[derive(Parser)]
#[command(name = "covey", version, propagate_version = true, verbatim_doc_comment)]
#[command(subcommand_required = true, arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// Options of every command.
    #[command(flatten)]
    pub global: Global,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Options of every command")]
pub struct Global {
    /// Read the cluster's configuration from FILE
    ///
    /// Without it, the first that exists: ./covey.toml, the file of the cluster that `covey up`
    /// started, ~/.config/covey/covey.toml, /etc/covey/covey.toml.
    #[arg(long, global = true, env = "COVEY_CONFIG", value_name = "FILE", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Write results to stdout, and errors to stderr, as JSON
    #[arg(long, global = true)]
    pub json: bool,
    /// Say more of what happens; twice for still more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

macro_rules! commands {
    ($($(#[$meta:meta])* $variant:ident = $module:ident,)*) => {
        /// The commands, in the order of the help.
        #[derive(Subcommand)]
        #[allow(missing_docs)]
        pub enum Command {
            $($(#[$meta])* $variant($module::Args),)*
        }

        impl Command {
            async fn run(self, context: &Context) -> Result<()> {
                match self {
                    $(Command::$variant(args) => $module::run(args, context).await,)*
                }
            }
        }
    };
}

commands! {
    Up = up,
    Down = down,
    Status = status,
    Stats = stats,
    Metrics = metrics,
    Dash = dash,
    Ping = ping,
    Mount = mount,
    Umount = umount,
    Ls = ls,
    Cat = cat,
    Cp = cp,
    Mv = mv,
    Rm = rm,
    Mkdir = mkdir,
    Ln = ln,
    Stat = stat,
    Touch = touch,
    Chmod = chmod,
    Chown = chown,
    Truncate = truncate,
    Df = df,
    Du = du,
    Layout = layout,
    Consistency = consistency,
    Server = server,
    Files = files,
    Quota = quota,
    Fsck = fsck,
    FsDump = fs_dump,
    Genconfig = genconfig,
    Config = config,
    Keygen = keygen,
    Key = key,
    Init = init,
    Salvage = salvage,
    Run = run,
    Attach = attach,
    Ps = ps,
    Kill = kill,
    Wait = wait,
    Nodes = nodes,
    Push = push,
    Mpi = mpi,
    #[command(name = "mpi-starter", hide = true)]
    MpiStarter = mpi_starter,
    Serve = serve,
    Export = export,
    Volume = volume,
    Net = net,
    Boot = boot,
    #[command(name = "9p")]
    Ninep = ninep,
    Lab = lab,
    Tune = tune,
    Reproduce = reproduce,
    Uzura = uzura,
    Cell = cell,
    Bench = bench,
    Systemd = systemd,
    Completions = completions,
    Man = man,
}

/// Runs one command.
pub async fn run(arguments: Cli) -> Result<()> {
    let Global { config, json, verbose } = arguments.global;
    let context = Context { config_file: config, output: Output { json, verbose } };
    arguments.command.run(&context).await
}

/// What every command is given.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// `--config`.
    pub config_file: Option<PathBuf>,
    /// How to talk.
    pub output: Output,
}

impl Context {
    /// The cluster's configuration, found and checked.
    pub fn config(&self) -> Result<Config> {
        load_found(&find(self.config_file.as_deref())?)
    }

    /// Connects to the file system as the user who runs the command.
    pub async fn session(&self) -> Result<Session> {
        let config = self.config()?;
        let options = Options { caching: Caching::Nothing, ..Options::default() };
        let fs = covey_cluster::connect_fs(&config, options).await;
        let fs = fs.map_err(|error| hint_at_mount(error, &config))?;
        Ok(Session { fs, who: caller()? })
    }
}

/// Who may not connect reaches the same files through a mount, where there is one.
fn hint_at_mount(error: Error, config: &Config) -> Error {
    let is_refusal = stats::is_refusal(error.code());
    match cluster::mounts::of_cluster(config).filter(|_| is_refusal) {
        Some(mount) => {
            let mount = mount.display();
            error.hint(format!("name them by the mount of this machine, as in `covey ls {mount}`"))
        }
        None => error,
    }
}

/// A connection to the file system, and on whose behalf it is used.
#[derive(Clone)]
pub struct Session {
    /// The client.
    pub fs: Fs,
    /// The user.
    pub who: Caller,
}

impl Session {
    /// Ends the session, so that opens and locks go at once, and passes a result on.
    pub async fn close<T>(self, result: Result<T>) -> Result<T> {
        // A dead metadata server must not hold up a command that has its answer.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(1), self.fs.bye()).await;
        result
    }
}

fn caller() -> Result<Caller> {
    use covey_io::os::users::GROUPS_MAX;
    use rustix::process::{getegid, geteuid, getgroups};
    let gid = getegid().as_raw();
    let mut groups: Vec<u32> = getgroups()
        .cannot(|| "read the groups of this process")?
        .iter()
        .map(|group| group.as_raw())
        .collect();
    if !groups.contains(&gid) {
        groups.insert(0, gid);
    }
    groups.truncate(GROUPS_MAX);
    Ok(Caller { uid: geteuid().as_raw(), gid, groups: List(groups) })
}
