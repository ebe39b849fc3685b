//! What `tune mpi` and `tune pvm` have in common: the hosts, the sizes, and TCP beside it.

use crate::cmd::Context;
use crate::error::{Error, Result};
use covey_lab::units::{rate_text, time_text};
use covey_measure::hosts::Hosts;
use covey_measure::levels::{self, Level, Levels, Missing};
use covey_measure::probe::{BYTES_MAX, Plan};
use covey_measure::report::Graph;
use covey_measure::stop::Stop;
use std::time::Duration;

/// Options of both.
#[derive(clap::Args, Clone, Debug)]
pub struct Through {
    /// Two nodes of a lab or of the cluster; without them, two programs on this machine
    #[arg(value_name = "NODE", num_args = 0..=2)]
    nodes: Vec<String>,
    /// Which lab, where there are several [default: lab; inside one, that one]
    #[arg(long, value_name = "LAB")]
    lab: Option<String>,
    /// How long each level may take, roughly, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=3600))]
    budget: u32,
    /// The longest block
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = parse_size)]
    up_to: u64,
    /// How far beside each size its neighbours lie; 0 leaves them out
    #[arg(long, value_name = "BYTES", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=8))]
    perturbation: u8,
    /// Do not measure TCP beside it
    #[arg(long)]
    alone: bool,
    /// Which graph to draw of each level
    #[arg(long, value_enum, default_value_t = Graph::None)]
    graph: Graph,
}

fn parse_size(text: &str) -> std::result::Result<u64, String> {
    let bytes = crate::config::size::parse(text)?;
    if (64..=BYTES_MAX).contains(&bytes) {
        Ok(bytes)
    } else {
        Err(format!("`{text}` is outside the limits: 64 B to 256 MiB"))
    }
}

impl Through {
    /// Where to measure.
    pub fn hosts(&self, context: &Context) -> Result<Hosts> {
        Hosts::find_any(self.lab.as_deref(), &self.nodes, || context.config())
    }

    /// What to measure.
    pub fn plan(&self) -> Plan {
        Plan {
            up_to_bytes: self.up_to,
            perturbation: self.perturbation.into(),
            budget: Duration::from_secs(self.budget.into()),
        }
    }

    /// TCP, unless it is not wanted.
    pub fn tcp(&self, hosts: &Hosts, stop: &Stop) -> Option<Result<Level>> {
        (!self.alone).then(|| levels::tcp(hosts, &self.plan(), stop))
    }

    /// Tells what was measured. One way through that fails does not keep the others from being told; when none
    /// worked, the first error is that of the command.
    pub fn tell(&self, measured: Vec<Result<Level>>, context: &Context) -> Result<()> {
        let (levels, errors) = parted(measured);
        if levels.iter().all(|level| level.report.protocol == "TCP") {
            if let Some(error) = errors.into_iter().next() {
                return Err(error);
            }
        } else {
            let missing = errors
                .iter()
                .map(|error| Missing { what: "a level".into(), why: error.message.clone() });
            let levels = Levels::new(levels, missing.collect());
            context.output.result(&levels, |out| levels.tell(out, self.graph))?;
            let failure = levels.failure();
            return match (failure, errors.into_iter().next()) {
                (Some(error), _) | (None, Some(error)) => Err(error),
                (None, None) => Ok(()),
            };
        }
        Ok(())
    }
}

fn parted(measured: Vec<Result<Level>>) -> (Vec<Level>, Vec<Error>) {
    let (mut levels, mut errors) = (Vec::new(), Vec::new());
    for one in measured {
        match one {
            Ok(level) => levels.push(level),
            Err(error) => errors.push(error),
        }
    }
    (levels, errors)
}

/// A line that shows what is being measured, on a terminal.
pub fn spinner(context: &Context) -> indicatif::ProgressBar {
    context.output.spinner()
}

/// Shows each size as it is measured.
pub fn show(bar: &indicatif::ProgressBar, what: &str) -> impl FnMut(u64, f64) + Send + use<> {
    let (bar, what) = (bar.clone(), what.to_string());
    move |bytes, time_s| {
        bar.set_message(format!(
            "{what}: {bytes} bytes in {}, {}",
            time_text((time_s * 1e9) as u64),
            rate_text(Some((bytes as f64 * 8.0 / time_s) as u64))
        ));
        bar.tick();
    }
}
