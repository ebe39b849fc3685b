//! `covey completions`: what a shell needs to complete our command line.

use super::{Cli, Context};
use crate::error::Result;
use clap::CommandFactory;

/// Print completions for a shell
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
    shell: clap_complete::Shell,
}

/// Runs the command.
pub async fn run(args: Args, _context: &Context) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "covey", &mut text);
    crate::output::write_out(&text)
}
