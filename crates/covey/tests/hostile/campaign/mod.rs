//! Writers that can be killed, and what must be found of their files afterwards.
#![allow(dead_code)]

pub mod log;
pub mod way;
pub mod writer;

use log::{Certain, Expected};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use way::{SHARED, Way};

/// Everything that is wrong with a writer's files, read through `way`.
pub fn faults(way: &Way, known: &Expected) -> Vec<String> {
    let mut faults = Vec::new();
    for file in &known.files {
        let mut found = Vec::new();
        for name in &file.names {
            match way.read(name) {
                Ok(Some(bytes)) => found.push((name, bytes)),
                Ok(None) => {}
                Err(error) => faults.push(format!("{name}: {error}")),
            }
        }
        match &found[..] {
            [] if file.may_be_gone => {}
            [] => faults.push(format!("{:?} is gone", file.names)),
            [(name, bytes)] => {
                faults.extend(file.mismatch(bytes).map(|what| format!("{name}: {what}")));
            }
            _ => faults.push(format!("{:?}: it has several names", file.names)),
        }
    }
    for name in known.gone.keys() {
        if !matches!(way.read(name), Ok(None)) {
            faults.push(format!("{name} was removed and is there"));
        }
    }
    faults
}

/// What is wrong with the log that all writers share.
pub fn shared_faults(root: &Way, known: &[Expected]) -> Vec<String> {
    let bytes = match root.read(SHARED) {
        Ok(bytes) => bytes.unwrap_or_default(),
        Err(error) => return vec![format!("{SHARED}: {error}")],
    };
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut faults = Vec::new();
    for record in bytes.chunks(64) {
        match std::str::from_utf8(record) {
            // The place of an append that nobody finished.
            _ if record.contains(&0) => {}
            Ok(text) if text.len() == 64 && text.ends_with('\n') => {
                *counts.entry(text.trim_end().to_owned()).or_default() += 1;
            }
            _ => faults.push(format!("{SHARED} holds a torn record: {record:?}")),
        }
    }
    for (record, was_done) in known.iter().flat_map(|known| &known.records) {
        match counts.get(record).copied().unwrap_or(0) {
            0 if *was_done => faults.push(format!("record {record} is lost")),
            0 | 1 => {}
            count => faults.push(format!("record {record} is there {count} times")),
        }
    }
    faults
}

/// A writer's log, read.
pub fn read_log(log: &Path, certain: Certain) -> Expected {
    log::expected(&std::fs::read_to_string(log).unwrap_or_default(), certain)
}

/// A log's path.
pub fn log_path(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.log"))
}
