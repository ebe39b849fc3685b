//! `covey man`: the manual, from the same definitions as the help.

use super::{Cli, Context};
use crate::error::{Cannot, Result};
use clap::{Command, CommandFactory};
use std::path::{Path, PathBuf};

/// Write the manual pages, one per command
///
/// EXAMPLES
///
///     covey man | man -l -                  the overview
///     covey man /usr/local/share/man/man1   all pages: covey.1, covey-up.1 and so on
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Where to write all pages; without it, the overview goes to stdout
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let mut command = Cli::command();
    command.build();
    let Some(dir) = args.dir else {
        return crate::output::write_out(&page(command, "covey")?);
    };
    std::fs::create_dir_all(&dir).cannot(|| format!("make directory {}", dir.display()))?;
    let mut files = Vec::new();
    write(command, "covey", &dir, &mut files)?;
    context.output.result(&files, |out| {
        use std::io::Write;
        writeln!(out, "wrote {} manual pages to {}", files.len(), dir.display())
    })
}

fn write(command: Command, name: &str, dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        write(sub.clone(), &format!("{name}-{}", sub.get_name()), dir, files)?;
    }
    let file = dir.join(format!("{name}.1"));
    let text = page(command, name)?;
    std::fs::write(&file, text).cannot(|| format!("write {}", file.display()))?;
    files.push(file);
    Ok(())
}

fn page(command: Command, name: &str) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command).title(name.to_uppercase()).render(&mut text)?;
    Ok(text)
}
