//! The busiest files: who reads and writes what, and where.

use super::gather::{self, Answers, names_of};
use super::{Lines, MISSING, paths};
use crate::cmd::Context;
use crate::cmd::path::shown;
use crate::error::Result;
use crate::output::{quote, table, write_out};
use covey_serve::watch::account;
use covey_stripe::ops::Id;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// What a line is about: a file at one part of a node, and the account that used it.
pub struct Named<'a> {
    pub part: &'a str,
    pub id: Id,
    pub client: String,
    pub job: String,
}

/// The file of a line; None where it is about something else.
pub fn named(line: &str) -> Option<Named<'_>> {
    let mut words = line.strip_prefix("file ")?.splitn(3, ' ');
    let (part, id, name) = (words.next()?, words.next()?, words.next()?);
    let (client, job) = account(name);
    Some(Named { part, id: Id::from_str_radix(id, 16).ok()?, client, job })
}

/// A file and what was done with it.
struct File<'a> {
    node: &'a str,
    named: Named<'a>,
    values: &'a Map<String, Value>,
}

impl File<'_> {
    fn number(&self, key: &str) -> u64 {
        self.values.get(key).and_then(Value::as_u64).unwrap_or(0)
    }

    fn bytes(&self) -> u64 {
        self.number("bytes_read") + self.number("bytes_written")
    }
}

/// Tells the busiest files of nodes, those with the most bytes first, with their paths as far as they are found.
pub async fn tell(read: &Answers<Lines>, context: &Context) -> Result<()> {
    let mut all = files(&read.shown);
    all.sort_by_key(|file| std::cmp::Reverse(file.bytes()));
    let ids: BTreeSet<Id> = all.iter().map(|file| file.named.id).collect();
    let found = paths::find(context, ids).await;
    if context.output.json {
        let of_file = |file: &File| {
            let Named { part, id, client, job } = &file.named;
            json!({
                "node": file.node, "part": part, "client": client, "job": job,
                "file": format!("{id:016x}"),
                "path": found.get(id).map(|path| String::from_utf8_lossy(path)),
                "bytes_read": file.number("bytes_read"),
                "bytes_written": file.number("bytes_written"), "count": file.number("count"),
            })
        };
        let files: Vec<Value> = all.iter().map(of_file).collect();
        let value = json!({ "files": files, MISSING: names_of(&read.missing) });
        return context.output.result(&value, |_| Ok(()));
    }
    let row = |file: &File| {
        let Named { part, id, client, job } = &file.named;
        let path = found.get(id).map_or_else(|| format!("file {id:016x}"), |path| shown(path));
        let client = match job.as_str() {
            "" => client.clone(),
            job => format!("{client} job {job}"),
        };
        let mut row = vec![format!("{} {part}", file.node), shown(client.as_bytes())];
        row.extend(
            ["count", "bytes_read", "bytes_written"].map(|key| file.number(key).to_string()),
        );
        row.push(path);
        row
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let mut out = Vec::new();
    table(&mut out, &["AT", "CLIENT", ">COUNT", ">READ", ">WRITTEN", "FILE"], &rows);
    if let Some(words) = gather::in_words(&read.missing) {
        out.extend(format!("\n{words}\n").bytes());
    }
    write_out(&quote::lines(&out))
}

fn files(shown: &[(String, Lines)]) -> Vec<File<'_>> {
    let mut all = Vec::new();
    for (node, lines) in shown {
        all.extend(
            lines
                .iter()
                .filter_map(|(line, values)| Some(File { node, named: named(line)?, values })),
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::stats::parse;

    #[test]
    fn a_line_has_a_file_its_reader_and_what_was_read() {
        let lines = parse(
            "file data 000000000000002a \"ann@n1 job 7\" bytes_read 5 bytes_written 6 count 2\n\
             file data x \"ann@n1\" bytes_read 5 bytes_written 6 count 2\n",
        );
        let shown = [("io1".to_owned(), lines)];
        let all = files(&shown);
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].node, all[0].bytes()), ("io1", 11));
        let Named { part, id, client, job } = &all[0].named;
        assert_eq!((*part, *id, client.as_str(), job.as_str()), ("data", 0x2a, "ann@n1", "7"));
    }
}
