//! Where a measurement comes from: the machine, the program, the command.

use serde::{Deserialize, Serialize};
use std::time::{SystemTime, UNIX_EPOCH};

/// What a reader needs who wants to repeat it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provenance {
    /// The command line.
    pub command: String,
    /// When it began, in seconds since 1970.
    pub began_s: u64,
    /// The host.
    pub host: String,
    /// The kernel's release.
    pub kernel: String,
    /// The processor's own name.
    pub processor: String,
    /// How many CPUs there are.
    pub cpus: usize,
    /// Covey's version.
    pub version: String,
}

impl Provenance {
    /// Of this process, now.
    pub fn here() -> Provenance {
        let read =
            |file: &str| std::fs::read_to_string(file).unwrap_or_default().trim().to_string();
        let cpus = std::thread::available_parallelism().map_or(0, |count| count.get());
        Provenance {
            command: command_line(std::env::args()),
            began_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            host: read("/proc/sys/kernel/hostname"),
            kernel: read("/proc/sys/kernel/osrelease"),
            processor: processor(&read("/proc/cpuinfo")),
            cpus,
            version: env!("CARGO_PKG_VERSION").to_string(),
        }
    }
}

/// As one would type it: the program by its name alone.
fn command_line(mut words: impl Iterator<Item = String>) -> String {
    let program = words.next().unwrap_or_default();
    let program = program.rsplit('/').next().unwrap_or_default().to_string();
    let quoted = words.map(|word| {
        if word.contains([' ', '"', '\'', '$']) || word.is_empty() {
            format!("'{}'", word.replace('\'', "'\\''"))
        } else {
            word
        }
    });
    std::iter::once(program).chain(quoted).collect::<Vec<_>>().join(" ")
}

fn processor(cpuinfo: &str) -> String {
    let name = cpuinfo.lines().find(|line| line.starts_with("model name"));
    name.and_then(|line| line.split_once(": ")).map_or("unknown", |(_, name)| name).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted_again() {
        let words = ["/usr/bin/covey", "tune", "net", "a b", "it's", "n2"].map(String::from);
        assert_eq!(command_line(words.into_iter()), "covey tune net 'a b' 'it'\\''s' n2");
    }

    #[test]
    fn the_processors_name_is_found_or_unknown() {
        assert_eq!(processor("processor\t: 0\nmodel name\t: AMD EPYC\n"), "AMD EPYC");
        assert_eq!(processor(""), "unknown");
    }
}
