//! Results that were kept: the JSON that the commands of `covey tune` print, read again.

use super::report::Report;
use crate::error::{Cannot, Error, Result};
use serde_json::Value;
use std::path::Path;

/// What files contained.
#[derive(Clone, Debug, Default)]
pub struct Results {
    /// Links.
    pub links: Vec<Report>,
    /// Everything else, by what it calls itself.
    pub others: Vec<(String, Value)>,
}

/// A file that is longer is none of ours.
const BYTES_MAX: u64 = 256 << 20;

impl Results {
    /// Reads files; `-` is stdin.
    pub fn read<'a>(files: impl IntoIterator<Item = &'a Path>) -> Result<Results> {
        let mut found = Results::default();
        files.into_iter().try_for_each(|file| found.add_file(file))?;
        if found.links.is_empty() && found.others.is_empty() {
            Err(Error::user("cannot use these results: there are none in them"))
        } else {
            Ok(found)
        }
    }

    fn add_file(&mut self, file: &Path) -> Result<()> {
        use std::io::Read;
        let name = file.display();
        let mut text = String::new();
        let read = if file == Path::new("-") {
            std::io::stdin().take(BYTES_MAX).read_to_string(&mut text)
        } else {
            std::fs::File::open(file)
                .and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text))
        };
        read.cannot(|| format!("read {name}"))?;
        let value: Value = serde_json::from_str(&text).map_err(|why| {
            Error::user(format!("cannot use {name}: it is no JSON: {why}"))
                .hint("`covey --json tune net ... > FILE` makes such a file")
        })?;
        self.add(value).map_err(|why| {
            Error::user(format!("cannot use {name}: {why}"))
                .hint("results are what the commands of `covey --json tune` print")
        })
    }

    /// Takes one result, or a list of them.
    pub fn add(&mut self, value: Value) -> std::result::Result<(), String> {
        match value {
            Value::Array(all) => all.into_iter().try_for_each(|one| self.add(one)),
            Value::Object(fields) if is_link(&fields) => {
                let report = serde_json::from_value(Value::Object(fields))
                    .map_err(|why| format!("its measurement of a link is damaged: {why}"))?;
                self.links.push(report);
                Ok(())
            }
            // `tune net --all`: pairs, and what is told of them together.
            Value::Object(mut fields) if fields.contains_key("pairs") => {
                for (key, kind) in TOGETHER {
                    let found = fields.remove(key).filter(is_told);
                    self.others.extend(found.map(|found| (kind.to_string(), found)));
                }
                self.add(fields.remove("pairs").unwrap_or_default())
            }
            // `tune net --crowd`.
            Value::Object(fields) if is_crowd(&fields) => {
                let crowd = Value::Array(vec![Value::Object(fields)]);
                self.others.push((CROWDS.1.to_string(), crowd));
                Ok(())
            }
            Value::Object(mut fields) => match fields.get("kind").and_then(Value::as_str) {
                // Several measurements of one run.
                Some("all" | "net" | "mpi" | "pvm") if fields.contains_key("links") => {
                    self.add(fields.remove("links").unwrap_or_default())
                }
                Some("all") if fields.contains_key("results") => {
                    self.add(fields.remove("results").unwrap_or_default())
                }
                Some(kind) => {
                    self.others.push((kind.to_string(), Value::Object(fields)));
                    Ok(())
                }
                None => Err("it holds something that is no measurement".to_string()),
            },
            _ => Err("it holds something that is no measurement".to_string()),
        }
    }
}

/// What stands beside the pairs, and its heading.
const TOGETHER: [(&str, &str); 2] = [("suspicions", SUSPICIONS), CROWDS];
/// What explains the bad ones of all pairs.
pub const SUSPICIONS: &str = "suspects among all pairs";
const CROWDS: (&str, &str) = ("crowds", "several nodes to one");

fn is_told(value: &Value) -> bool {
    value.as_array().is_some_and(|all| !all.is_empty())
}

fn is_crowd(fields: &serde_json::Map<String, Value>) -> bool {
    ["to", "alone", "together", "verdict"].iter().all(|name| fields.contains_key(*name))
}

fn is_link(fields: &serde_json::Map<String, Value>) -> bool {
    ["from", "to", "protocol", "points"].iter().all(|name| fields.contains_key(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_result_is_named() {
        let read = |text: &str| {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join("quail.json");
            std::fs::write(&file, text).unwrap();
            Results::read([file.as_path()]).unwrap_err().message
        };
        assert!(read("quail").contains("it is no JSON"), "{}", read("quail"));
        assert!(read("[]").contains("there are none"));
        assert!(read("{\"a\":1}").contains("no measurement"));
        assert!(read("[1]").contains("no measurement"));
        let damaged = "{\"from\":1,\"to\":2,\"protocol\":3,\"points\":4}";
        assert!(read(damaged).contains("damaged"), "{}", read(damaged));
    }

    #[test]
    fn all_pairs_are_links_with_their_suspects_beside() {
        let mut found = Results::default();
        let all = serde_json::json!({
            "pairs": [{"kind": "stands for a link"}], "rounds": [], "crowds": [],
            "suspicions": [{"cause": "loss", "suspects": ["n3"]}],
        });
        found.add(all).unwrap();
        let crowd =
            serde_json::json!({"to": "n1", "alone": [], "together": [], "verdict": "no-fault"});
        found.add(crowd).unwrap();
        let kinds: Vec<&str> = found.others.iter().map(|(kind, _)| kind.as_str()).collect();
        let wanted = ["suspects among all pairs", "stands for a link", "several nodes to one"];
        assert_eq!(kinds, wanted);
    }

    #[test]
    fn lists_in_lists_are_gone_through() {
        let mut found = Results::default();
        found.add(serde_json::json!([[{"kind": "disk", "x": 1}], {"kind": "app"}])).unwrap();
        let all = serde_json::json!({"kind": "all", "results": [{"kind": "disk"}], "spent": []});
        found.add(all).unwrap();
        assert_eq!(found.others.len(), 3);
    }
}
