//! The two CPUs that everything is measured on: what two processes do depends on how far apart they are.

use crate::error::{Cannot, Error, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::Serialize;
use std::str::FromStr;

/// One for each process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Cpus {
    /// Of the process that asks.
    pub first: usize,
    /// Of the one that answers.
    pub second: usize,
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Cpus, String> {
        let number = |word: &str| word.parse().map_err(|_| format!("`{word}` is no CPU's number"));
        let (first, second) = text.split_once(',').ok_or("two CPUs are wanted, as in 0,1")?;
        let cpus = Cpus { first: number(first)?, second: number(second)? };
        if cpus.first == cpus.second {
            Err("the two processes need a CPU each".into())
        } else {
            Ok(cpus)
        }
    }
}

/// The first two that this process may use, or those that were asked for.
pub fn choose(wanted: Option<Cpus>) -> Result<Cpus> {
    let set = sched_getaffinity(None)
        .map_err(std::io::Error::from)
        .cannot(|| "ask which CPUs there are")?;
    let allowed: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect();
    let pair = match wanted {
        Some(Cpus { first, second }) => vec![first, second],
        None => allowed.iter().copied().take(2).collect(),
    };
    if let Some(absent) = pair.iter().find(|cpu| !allowed.contains(cpu)) {
        return Err(Error::user(format!(
            "cannot use CPU {absent}: this process has {}",
            list(&allowed)
        ))
        .hint("name two of these with --cpus, as in --cpus 0,1"));
    }
    match pair[..] {
        [first, second] => Ok(Cpus { first, second }),
        _ => Err(Error::work(format!(
            "cannot measure two processes at once: this one has {} CPU only",
            pair.len()
        ))
        .hint("two that wait awake need a CPU each; `taskset` and the container's limits take CPUs away")),
    }
}

fn list(cpus: &[usize]) -> String {
    let mut words: Vec<String> = cpus.iter().take(16).map(usize::to_string).collect();
    if cpus.len() > words.len() {
        words.push("...".into());
    }
    words.join(", ")
}

/// Keeps the calling thread on one CPU until this is dropped.
#[derive(Debug)]
pub struct Pinned(CpuSet);

/// Keeps the calling thread on a CPU.
pub fn pin(cpu: usize) -> Result<Pinned> {
    let io = std::io::Error::from;
    let what = || format!("stay on CPU {cpu}");
    let before = sched_getaffinity(None).map_err(io).cannot(what)?;
    let mut one = CpuSet::new();
    one.set(cpu);
    sched_setaffinity(None, &one).map_err(io).cannot(what)?;
    Ok(Pinned(before))
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let _ = sched_setaffinity(None, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_different_cpus_are_named() {
        assert_eq!("0,3".parse(), Ok(Cpus { first: 0, second: 3 }));
        for text in ["", "1", "1,", "1,1", "a,b", "1,2,3"] {
            assert!(text.parse::<Cpus>().is_err(), "{text}");
        }
        let far = Cpus { first: CpuSet::MAX_CPU + 1, second: 0 };
        assert!(choose(Some(far)).unwrap_err().message.contains("cannot use CPU"));
    }
}
