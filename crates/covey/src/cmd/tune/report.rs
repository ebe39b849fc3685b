//! `covey tune report`: a page of what was measured.

use crate::cmd::Context;
use crate::error::{Cannot, Error, Result};
use covey_measure::html::{self, graphs};
use covey_measure::results::Results;
use covey_plot::chart::{Look, Size};
use std::path::{Path, PathBuf};

/// Make a report of measurements: one HTML file, or its graphs as SVG and PNG
///
/// RESULTS are what the commands of `covey --json tune` and `covey --json reproduce` printed. The
/// page is self-contained: no network, no script, no other file. The first five links are drawn
/// with marks, the others as thin lines.
///
/// EXAMPLES
///
///     covey --json tune net n1 n2 > n1-n2.json
///     covey tune report n1-n2.json -o n1-n2.html
///     covey --json tune net --all | covey tune report - -o pairs.html
///     covey tune report n1-n2.json --svg graphs --png graphs
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// What was measured; `-` is stdin
    #[arg(required = true, value_name = "RESULTS")]
    files: Vec<PathBuf>,
    /// Write the page to FILE
    #[arg(short, long, value_name = "FILE", required_unless_present_any = ["svg", "png"])]
    output: Option<PathBuf>,
    /// Write the three graphs as SVG files into DIR
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write the three graphs as PNG files into DIR
    #[arg(long, value_name = "DIR")]
    png: Option<PathBuf>,
}

const SIZE: Size = Size { width: 1000.0, height: 560.0 };

/// Runs the command.
pub fn run(args: &Args, context: &Context) -> Result<()> {
    let results = Results::read(args.files.iter().map(PathBuf::as_path))?;
    let mut written = Vec::new();
    if let Some(file) = &args.output {
        write(file, html::page(&results).as_bytes(), &mut written)?;
    }
    for (dir, look) in [(&args.svg, Look::File), (&args.png, Look::Light)] {
        let Some(dir) = dir else { continue };
        if results.links.is_empty() {
            return Err(Error::user("cannot draw graphs: there is no link among these results"));
        }
        std::fs::create_dir_all(dir).cannot(|| format!("make directory {}", dir.display()))?;
        for kind in graphs::Kind::ALL {
            let svg = graphs::chart(kind, &results.links).svg(SIZE, look);
            let file = dir.join(kind.word());
            match look {
                Look::File => write(&file.with_extension("svg"), svg.as_bytes(), &mut written)?,
                _ => {
                    write(&file.with_extension("png"), &dots_of(&svg)?, &mut written)?;
                }
            }
        }
    }
    context.output.result(&serde_json::json!({ "written": written }), |out| {
        use std::io::Write;
        written.iter().try_for_each(|file| writeln!(out, "{}", file.display()))
    })
}

#[cfg(feature = "png")]
fn dots_of(svg: &str) -> Result<Vec<u8>> {
    let dots = covey_plot::png::of_svg(svg);
    dots.map_err(|why| Error::work(format!("cannot draw a PNG: {why}")))
}

#[cfg(not(feature = "png"))]
fn dots_of(_: &str) -> Result<Vec<u8>> {
    Err(Error::user("cannot draw a PNG: this program was built without the feature `png`")
        .hint("--svg writes the same graphs"))
}

fn write(file: &Path, bytes: &[u8], written: &mut Vec<PathBuf>) -> Result<()> {
    std::fs::write(file, bytes).cannot(|| format!("write {}", file.display()))?;
    written.push(file.to_path_buf());
    Ok(())
}
