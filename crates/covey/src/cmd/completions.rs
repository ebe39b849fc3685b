//! `covey completions`: what a shell needs to complete our command line.

mod values;

use super::{Cli, Context};
use crate::error::{Error, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use std::ffi::OsString;

/// Print completions for a shell
///
/// Those for bash, zsh and fish complete values, too: nodes, volumes and paths of the file system, for which they ask
/// the cluster, for a second at most.
///
/// EXAMPLES
///
///     covey completions bash > /etc/bash_completion.d/covey
///     covey completions zsh > "${fpath[1]}/_covey"
///     covey completions fish > ~/.config/fish/completions/covey.fish
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Which shell
    shell: Shell,
    /// A command line without its first word: print what may stand for its last one
    #[arg(last = true, hide = true)]
    words: Vec<OsString>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let text = if args.words.is_empty() {
        script(args.shell)?
    } else {
        values::of(&args.words, context).await.into_iter().map(|one| one + "\n").collect()
    };
    crate::output::write_out(text.as_bytes())
}

/// What the shell reads: the words of the command line, and how the program is asked for values.
fn script(shell: Shell) -> Result<String> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "covey", &mut text);
    let text = String::from_utf8(text).map_err(|_| Error::work("cannot write completions"))?;
    Ok(match shell {
        Shell::Bash => text + include_str!("completions/values.bash"),
        Shell::Zsh => {
            // The shell calls a function of this name; it is ours, and calls the other.
            let words = text.replace("_covey() {", "_covey_words() {");
            words.replacen(
                ZSH_END,
                &format!("{}{ZSH_END}", include_str!("completions/values.zsh")),
                1,
            )
        }
        Shell::Fish => text + include_str!("completions/values.fish"),
        _ => text,
    })
}

/// Where the words for zsh end and are called.
const ZSH_END: &str = "\nif [ \"$funcstack[1]\" = \"_covey\" ]; then";
