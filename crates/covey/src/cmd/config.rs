//! `covey config`: what the configuration says, and whether it is right.

use super::Context;
use crate::config::{Config, Problem, find, parse, render};
use crate::error::{Error, Result, reason};
use crate::output::counted;
use std::path::{Path, PathBuf};

/// Check or show the cluster's configuration, covey.toml
///
/// EXAMPLES
///
///     covey config check
///     covey config check ./covey.toml
///     covey config show
///
/// THE FILE
///
///     version = 1
///
///     [cluster]
///     name = "lab"
///     id = "8f1c0d5e3b7a49c2a6d4e1f09b3c7a58"  made by `covey genconfig`
///     nodes = 2                    how many [[node]] follow
///     strip = "64 KiB"             of new files: 4 KiB to 64 MiB
///     pacing = true                bulk yields to messages, see `covey help net` [default: false]
///     key_file = "/etc/covey/key"  needed when a node listens beyond its machine
///     user = "covey"               who runs the servers, where that is neither root nor you
///
///     [[node]]
///     name = "node1"
///     roles = ["meta", "data", "launch"]  metadata server (exactly one node), I/O server, starts programs
///     listen = ["unix!/run/covey/node1.sock", "tcp!node1!5640"]
///     store = "/var/lib/covey/node1"
///     arch = "s390x"               a node whose programs are emulated: of this architecture,
///     emulator = "/usr/bin/qemu-s390x-static"  by this program
///
///     [[view]]                     nodes that every node shows as /view/NAME
///     name = "lab"
///     nodes = "z[1-4]"             [default: all]
///     cluster = "/etc/covey/lab.toml"  of another cluster [default: this one]
///
/// It is the same on every node. The order of the I/O servers is their index in the layout of
/// files: add new ones at the end.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand, Debug)]
enum What {
    /// Check a configuration and list all its errors
    Check {
        /// The file [default: the one that every command would use]
        file: Option<PathBuf>,
    },
    /// Show the configuration that every command would use, and where it is
    Show,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    match args.what {
        What::Check { file } => {
            check(find(file.as_deref().or(context.config_file.as_deref()))?.file(), context)
        }
        What::Show => show(&context.config()?, context),
    }
}

fn check(file: &Path, context: &Context) -> Result<()> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        Error::config(format!("cannot read {}: {}", file.display(), reason(&error)))
    })?;
    match parse(&text, file) {
        Ok(config) => right(&config, context),
        Err(problems) => wrong(file, &problems, context),
    }
}

fn right(config: &Config, context: &Context) -> Result<()> {
    let (nodes, data) = (config.nodes.len(), config.data().count());
    let key = config.key_file.as_ref().filter(|_| config.needs_key());
    let missing_key = key.filter(|file| !file.exists());
    let value = serde_json::json!({
        "file": config.file, "ok": true, "nodes": nodes, "io_servers": data,
        "needs_key": config.needs_key(), "key_present": missing_key.is_none(),
    });
    context.output.result(&value, |out| {
        use std::io::Write;
        let (file, name) = (config.file.display(), &config.name);
        let nodes = counted(nodes as u64, "node");
        let servers = match data {
            1 => "1 of them an I/O server".to_owned(),
            data => format!("{data} of them I/O servers"),
        };
        writeln!(out, "{file} is right: cluster {name}, {nodes}, {servers}")?;
        match missing_key {
            Some(key) => writeln!(
                out,
                "the key {} is not on this machine: `covey keygen` makes it",
                key.display()
            ),
            None => Ok(()),
        }
    })
}

fn wrong(file: &Path, problems: &[Problem], context: &Context) -> Result<()> {
    context.output.result(
        &serde_json::json!({ "file": file, "ok": false, "problems": problems }),
        |out| {
            use std::io::Write;
            for problem in problems {
                let line = problem.line.map_or(String::new(), |line| format!(":{line}"));
                writeln!(
                    out,
                    "{}{line}: {}\n  hint: {}",
                    file.display(),
                    problem.message,
                    problem.hint
                )?;
            }
            Ok(())
        },
    )?;
    let count = match problems.len() {
        1 => "1 problem".to_string(),
        count => format!("{count} problems"),
    };
    Err(Error::config(format!("cannot use {}: {count}", file.display()))
        .hint("`covey help config` shows the form of the file"))
}

fn show(config: &Config, context: &Context) -> Result<()> {
    let node = |node: &crate::config::Node| {
        serde_json::json!({
            "node": node.name, "roles": node.roles, "store": node.store,
            "listen": node.listen.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    };
    let value = serde_json::json!({
        "file": config.file, "name": config.name, "id": config.id,
        "strip_bytes": config.strip_bytes,
        "key_file": config.key_file, "nodes": config.nodes.iter().map(node).collect::<Vec<_>>(),
    });
    context.output.result(&value, |out| {
        use std::io::Write;
        write!(out, "# {}\n{}", config.file.display(), render(config))
    })
}
