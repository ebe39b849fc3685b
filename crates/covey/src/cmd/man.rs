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
///     covey man --covey-toml | man -l -     the configuration, covey.toml(5)
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Where to write all pages; without it, the overview goes to stdout
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Write the page of the configuration's file to stdout: covey.toml(5)
    #[arg(long, conflicts_with = "dir")]
    covey_toml: bool,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let mut command = Cli::command();
    command.build();
    if args.covey_toml {
        return crate::output::write_out(&file_page(&command)?);
    }
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
    Ok(as_typed(&String::from_utf8_lossy(&text)).into_bytes())
}

/// Of the configuration's file: what the help of `covey config` says of it.
fn file_page(command: &Command) -> Result<Vec<u8>> {
    let config = command.find_subcommand("config").expect("there is such a command");
    let help = config.get_long_about().expect("it has a help text").to_string();
    let (_, file) = help.split_once("THE FILE\n").expect("its help has the file");
    let command = Command::new("covey.toml").about("the configuration of a cluster");
    let manual = clap_mangen::Man::new(command.long_about(file.trim().to_owned()))
        .title("COVEY.TOML")
        .section("5")
        .manual("File formats");
    let mut text = Vec::new();
    manual.render_title(&mut text)?;
    manual.render_name_section(&mut text)?;
    text.extend(b".SH SYNOPSIS\n/etc/covey/covey.toml, ~/.config/covey/covey.toml, ./covey.toml\n");
    manual.render_description_section(&mut text)?;
    text.extend(b".SH \"SEE ALSO\"\n\\fBcovey\\-config\\fR(1), \\fBcovey\\-genconfig\\fR(1), \\fBcovey\\-serve\\fR(1)\n");
    Ok(as_typed(&String::from_utf8_lossy(&text)).into_bytes())
}

/// A page whose indented lines, examples, are shown as they stand: neither filled nor justified.
fn as_typed(page: &str) -> String {
    let mut text = String::new();
    let mut is_example = false;
    for line in page.lines() {
        // An empty line inside an example, or a paragraph's macro, does not end it.
        let is_blank = line.is_empty() || line == ".PP";
        if line.starts_with("    ") != is_example && !is_blank {
            text += if is_example { ".fi\n" } else { ".nf\n" };
            is_example = !is_example;
        }
        text += line;
        text.push('\n');
    }
    if is_example {
        text += ".fi\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::as_typed;

    #[test]
    fn examples_are_neither_filled_nor_justified() {
        let page = ".SH EXAMPLES\n    covey up     all\n\n    covey down\nProse\n    last\n";
        let shown = ".SH EXAMPLES\n.nf\n    covey up     all\n\n    covey down\n.fi\nProse\n.nf\n    last\n.fi\n";
        assert_eq!(as_typed(page), shown);
    }
}
