//! `covey-bootget`: fetches an image and passes it on to others who fetch it.
//!
//! ```text
//!   arguments ──► Options ──► launch::image::fetch ──► File (-o)
//!                                │        └──► serve: a listener, for as long as it runs
//!                                └──► progress on stderr
//! ```
//!
//! Made for an initramfs: one file without libraries, no configuration, exit codes as those of `covey`.

#![forbid(unsafe_code)]

mod file;
mod host;
mod options;
mod progress;

use covey_launch::image::{Failure, fetch};
use options::{Options, Parsed};
use std::process::ExitCode;
use std::rc::Rc;

fn main() -> ExitCode {
    let options = match options::parse(std::env::args().skip(1)) {
        Ok(Parsed::Run(options)) => *options,
        Ok(Parsed::Say(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(why) => {
            eprintln!("covey-bootget: {why}\nhint: covey-bootget --help lists the options");
            return ExitCode::from(2);
        }
    };
    match run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("covey-bootget: {why}");
            ExitCode::from(1)
        }
    }
}

fn run(options: Options) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // A chunk is written while others are read for those whom we serve.
        .max_blocking_threads(4)
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    tokio::task::LocalSet::new().block_on(&runtime, get(options))
}

async fn get(options: Options) -> Result<(), String> {
    let (image, output) = (options.image.clone(), options.output.clone());
    let host = Rc::new(host::BootHost::new(&options));
    let report = fetch(host, options.want()).await.map_err(|failure| {
        let hint = hint(&failure).map_or_else(String::new, |hint| format!("\nhint: {hint}"));
        format!("cannot fetch {image} to {}: {failure}{hint}", output.display())
    })?;
    if !options.quiet {
        let seconds = report.time.as_secs_f64();
        let bytes = report.sum.bytes;
        let rate = bytes as f64 / 1e6 / seconds.max(1e-3);
        eprintln!(
            "covey-bootget: {image}: {bytes} bytes in {seconds:.2} s, {rate:.0} MB/s, {} of them from the \
             first server",
            report.bytes_from_first
        );
    }
    Ok(())
}

fn hint(failure: &Failure) -> Option<&'static str> {
    use covey_ninep::tree::Errno;
    match failure {
        Failure::Refused(error) if error.code == Errno::EACCES => {
            Some("--token FILE: what `covey boot token` prints on a node that has the cluster key")
        }
        Failure::Refused(_) => Some("`covey boot ls` on the server lists its images"),
        Failure::Local(_) => Some("the whole image must fit there"),
        Failure::Lost(_) => {
            Some("is the server up, and the network? --patience SECONDS waits longer")
        }
        _ => None,
    }
}
