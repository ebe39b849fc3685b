//! `tune.toml`: what was chosen from measurements, beside the cluster's configuration.

use crate::config::{Config, STRIP_BYTES_DEFAULT, STRIP_BYTES_MAX, STRIP_BYTES_MIN, checked_strip};
use crate::error::{Error, Result, reason};
use covey_ninep::message::MSIZE_DEFAULT;
pub use covey_tune::choose::FAN_OUT_MAX;
use covey_tune::choose::{Choice, Choices, MSIZE_MAX};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file's name.
pub const FILE: &str = "tune.toml";
/// What a message has beside its payload.
const MESSAGE_EXTRA_BYTES: u32 = 4096;
/// The form that is understood.
const VERSION: u32 = 1;

/// What is in it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TuneFile {
    /// Its form.
    pub version: u32,
    /// The links and the command that it comes from.
    pub from: String,
    /// The parameters.
    pub choose: Choices,
}

/// Where a cluster's file is.
pub fn place(config: &Config) -> PathBuf {
    config.file.with_file_name(FILE)
}

impl TuneFile {
    /// Of these choices.
    pub fn new(from: String, choose: Choices) -> TuneFile {
        TuneFile { version: VERSION, from, choose }
    }

    /// Its text.
    pub fn text(&self) -> Result<String> {
        let body = toml::to_string(self)
            .map_err(|why| Error::work(format!("cannot write {FILE}: {why}")))?;
        Ok(format!(
            "# Made by `covey tune choose`. A store that is made by `covey init` or the first `covey up`\n\
             # has this strip; `covey serve` takes messages of this msize, and says when the kernel gives\n\
             # connections less than socket_buffer; `covey run` and `covey push` spread files with this\n\
             # fan_out. The others are for you, and for parts to come.\n{body}"
        ))
    }

    /// Reads and checks it; none where there is no such file.
    pub fn load(file: &Path) -> Result<Option<TuneFile>> {
        let wrong = |why: String| {
            Error::config(format!("cannot use {}: {why}", file.display()))
                .hint("`covey tune choose RESULTS -o FILE` makes it anew; without it defaults hold")
        };
        let text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(reason(&error))),
        };
        let found: TuneFile =
            toml::from_str(&text).map_err(|why| wrong(why.to_string().trim().to_string()))?;
        if found.version != VERSION {
            return Err(wrong(format!(
                "version is {}, this program knows {VERSION}",
                found.version
            )));
        }
        check(&found.choose).map_err(wrong)?;
        Ok(Some(found))
    }
}

/// Refuses what no parameter can be.
fn check(choices: &Choices) -> std::result::Result<(), String> {
    let all: [(&str, &Option<Choice>, std::ops::RangeInclusive<u64>); 7] = [
        ("strip", &choices.strip, STRIP_BYTES_MIN.into()..=STRIP_BYTES_MAX.into()),
        ("msize", &choices.msize, 64 << 10..=MSIZE_MAX),
        ("eager_limit", &choices.eager_limit, 1..=1 << 30),
        ("socket_buffer", &choices.socket_buffer, 1..=1 << 30),
        ("block_order", &choices.block_order, 1..=1 << 16),
        ("pacing", &choices.pacing, 1000..=1_000_000_000_000),
        ("fan_out", &choices.fan_out, 1..=FAN_OUT_MAX),
    ];
    for (name, choice, limits) in all {
        let Some(Choice { value, low, high, .. }) = choice else { continue };
        if !limits.contains(value) {
            return Err(format!(
                "choose.{name}: value {value} is outside the limits: {} to {}",
                limits.start(),
                limits.end()
            ));
        }
        if low > high {
            return Err(format!("choose.{name}: low {low} is more than high {high}"));
        }
    }
    match &choices.strip {
        Some(strip) => {
            checked_strip(strip.value).map(drop).map_err(|why| format!("choose.strip: {why}"))
        }
        None => Ok(()),
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Nobody has said anything.
    Default,
    /// Somebody wrote it into this file, or a flag did.
    Asked(PathBuf),
    /// It was measured.
    Tuned(PathBuf),
}

impl Source {
    /// The file, or that it is the default.
    pub fn words(&self) -> String {
        match self {
            Source::Default => "the default".to_string(),
            Source::Asked(file) | Source::Tuned(file) => file.display().to_string(),
        }
    }
}

/// The strip that a store has when it is made.
pub fn strip(config: &Config) -> Result<(u32, Source)> {
    // What is asked for needs no file, and suffers from none that is wrong.
    if config.strip_bytes.is_some() {
        return Ok(strip_by(config, None));
    }
    Ok(strip_by(config, TuneFile::load(&place(config))?.as_ref()))
}

/// The same, where the file is at hand.
pub fn strip_by(config: &Config, tuned: Option<&TuneFile>) -> (u32, Source) {
    if let Some(bytes) = config.strip_bytes {
        return (bytes, Source::Asked(config.file.clone()));
    }
    match tuned.and_then(|found| found.choose.strip.as_ref()) {
        // Checked when it was loaded.
        Some(strip) => (strip.value as u32, Source::Tuned(place(config))),
        None => (STRIP_BYTES_DEFAULT, Source::Default),
    }
}

/// The longest message that a server takes, with its header, by `tuned`.
pub fn msize(tuned: Option<&TuneFile>) -> u32 {
    let chosen = tuned.and_then(|found| found.choose.msize.as_ref());
    // Within the limits: checked when it was loaded.
    chosen.map_or(MSIZE_DEFAULT, |msize| msize.value as u32 + MESSAGE_EXTRA_BYTES)
}

/// To how many others a node passes on what `covey run` and `covey push` spread, by `tuned`.
pub fn fan_out(tuned: Option<&TuneFile>) -> usize {
    let chosen = tuned.and_then(|found| found.choose.fan_out.as_ref());
    // Within the limits: checked when it was loaded.
    chosen.map_or(FAN_OUT_DEFAULT, |fan_out| fan_out.value as usize)
}

/// What most networks are best served by.
pub const FAN_OUT_DEFAULT: usize = 2;

/// What the kernel lets a TCP connection have, when that is less than was measured to be needed.
pub fn short_of_buffers(tuned: Option<&TuneFile>) -> Option<String> {
    let wanted = tuned?.choose.socket_buffer.as_ref()?.value;
    let most = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).ok()?;
        text.split_whitespace().last()?.parse::<u64>().ok()
    };
    let (name, found) = ["tcp_rmem", "tcp_wmem"]
        .into_iter()
        .filter_map(|name| Some((name, most(name)?)))
        .min_by_key(|(_, most)| *most)?;
    (found < wanted).then(|| {
        format!("a TCP connection may have {found} bytes by net.ipv4.{name}, and needs {wanted}")
    })
}
