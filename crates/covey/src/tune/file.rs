//! `tune.toml`: what was chosen from measurements, beside the cluster's configuration.

use crate::config::{Config, STRIP_BYTES_DEFAULT, checked_strip};
use crate::error::{Error, Result, reason};
use covey_tune::choose::Choices;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// The file's name.
pub const FILE: &str = "tune.toml";
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
            "# Made by `covey tune choose`. Of these, strip is in use today: a store that is made by\n\
             # `covey init` or the first `covey up` has it. The others are for you, and for parts to come.\n{body}"
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
        if let Some(strip) = &found.choose.strip {
            checked_strip(strip.value).map_err(|why| wrong(format!("choose.strip: {why}")))?;
        }
        Ok(Some(found))
    }
}

/// The strip that a store has when it is made, and where that number comes from.
pub fn strip(config: &Config) -> Result<(u32, PathBuf)> {
    let file = place(config);
    let strip = TuneFile::load(&file)?.and_then(|found| found.choose.strip);
    match strip {
        // Somebody has asked for that one, in the file or by a flag that wrote it.
        _ if config.strip_bytes != STRIP_BYTES_DEFAULT => {
            Ok((config.strip_bytes, config.file.clone()))
        }
        // Checked when it was loaded.
        Some(strip) => Ok((strip.value as u32, file)),
        None => Ok((config.strip_bytes, config.file.clone())),
    }
}
