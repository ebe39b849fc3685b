//! Names and layouts of a lost metadata store: from a dump, or from the copy on an I/O server.

use anyhow::{Context, Result, bail};
use covey_serve::data::copy;
use covey_serve::meta::copies::MAGIC;
use covey_stripe::chain::State;
use covey_stripe::meta::{Record, records};
use covey_stripe::ops::check::Row;
use covey_stripe::ops::{Id, ROOT, Striping, StripingHint};
use covey_wire::{Bytes, Field, List, Reader};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file.
#[derive(Clone, Debug)]
pub struct File {
    /// Type and permissions.
    pub mode: u32,
    /// When its content changed, in nanoseconds since 1970.
    pub mtime: u64,
    /// Bytes.
    pub size: u64,
    /// It may have holes.
    pub sparse: bool,
    /// The epoch of its objects.
    pub epoch: u32,
    /// Where its bytes are.
    pub striping: Option<Striping>,
    /// A symbolic link's target.
    pub target: Vec<u8>,
}

/// What is known of the metadata. All of it is in memory: some hundred bytes for each file.
#[derive(Default)]
pub struct Rows {
    /// Names of the I/O servers by index.
    pub servers: Vec<String>,
    /// Where it comes from, for people.
    pub source: String,
    files: HashMap<Id, File>,
    names: HashMap<Id, Vec<(Vec<u8>, Id)>>,
    contents: HashMap<Id, Vec<u8>>,
    hint: Option<StripingHint>,
    /// The servers that chains lead to, where the metadata is of a version that has them.
    chains: BTreeMap<u16, u16>,
}

impl Rows {
    /// From the output of `covey fs-dump`.
    pub fn of_dump(file: &Path) -> Result<Rows> {
        let mut rows = Rows { source: file.display().to_string(), ..Rows::default() };
        for (number, line) in BufReader::new(std::fs::File::open(file)?).lines().enumerate() {
            let value =
                serde_json::from_str(&line?).with_context(|| format!("line {}", number + 1))?;
            rows.take_json(&value).with_context(|| format!("line {} is no row", number + 1))?;
        }
        rows.checked()
    }

    /// From the newest copy in these storage directories.
    pub fn of_copies(stores: &[PathBuf]) -> Result<Rows> {
        let copies = stores.iter().map(|store| store.join(copy::FILE));
        let dated = copies.filter_map(|file| Some((file.metadata().ok()?.modified().ok()?, file)));
        let Some((made, file)) = dated.max_by_key(|(made, _)| *made) else {
            return Err(crate::error::Error::work(
                "cannot find names and layouts: none of the stores has a copy of the metadata",
            )
            .hint("--dump FILE takes them from the output of `covey fs-dump`")
            .hint("a store is a directory with a covey.store in it: are these the right ones?")
            .into());
        };
        let age = SystemTime::now().duration_since(made).unwrap_or_default().as_secs() / 60;
        let source = format!("{}, {age} minutes old", file.display());
        let mut rows = Rows { source, ..Rows::default() };
        let bytes = Bytes::from(std::fs::read(&file)?);
        if !bytes.starts_with(MAGIC) {
            bail!("{} is no copy of the metadata", file.display());
        }
        let mut from = Reader::new(bytes.slice(MAGIC.len()..));
        while from.remaining() > 0 {
            let row = Row::get((), &mut from).map_err(|blame| anyhow::anyhow!("{blame}"))?;
            for record in records(row.key.as_bytes(), &row.value.into_bytes()) {
                rows.take(record);
            }
        }
        rows.checked()
    }

    fn checked(self) -> Result<Rows> {
        if self.servers.is_empty() {
            bail!("{} names no I/O servers", self.source)
        }
        Ok(self)
    }

    fn take(&mut self, record: Record) {
        match record {
            Record::Superblock { servers, .. } => {
                self.servers = servers.iter().map(|name| name.lossy().into_owned()).collect();
            }
            Record::Inode { inode, .. } => {
                if inode.id == ROOT {
                    self.hint = inode.hint.clone();
                }
                let (mode, mtime, size, sparse, epoch) =
                    (inode.mode, inode.mtime, inode.size, inode.sparse, inode.epoch);
                let (striping, target) = (inode.striping, inode.target.as_bytes().to_vec());
                self.files
                    .insert(inode.id, File { mode, mtime, size, sparse, epoch, striping, target });
            }
            Record::Name { parent, name, id, .. } => {
                self.names.entry(parent).or_default().push((name.as_bytes().to_vec(), id));
            }
            Record::Content { id, bytes } => drop(self.contents.insert(id, bytes)),
            Record::Chain { index, chain } => {
                self.chains.extend(chain.head().map(|head| (index, head.server)));
            }
            _ => {}
        }
    }

    fn take_json(&mut self, value: &Value) -> Option<()> {
        let number = |field: &str| value[field].as_u64();
        match value["type"].as_str()? {
            "superblock" => {
                let servers = value["servers"].as_array()?.iter();
                self.servers =
                    servers.map(|name| Some(name.as_str()?.to_owned())).collect::<Option<_>>()?;
            }
            "inode" => {
                let id = number("id")?;
                if let (ROOT, Some(hint)) = (id, value.get("hint")) {
                    let at = |field: &str| hint[field].as_u64();
                    self.hint = Some(StripingHint {
                        kind: at("kind")? as u8,
                        strip_bytes: at("strip_bytes")? as u32,
                        server_count: at("server_count")? as u16,
                        params: numbers(&hint["params"]),
                    });
                }
                let striping = value.get("layout").map(|striping| Striping {
                    kind: striping["kind"].as_u64().unwrap_or(0) as u8,
                    strip_bytes: striping["strip_bytes"].as_u64().unwrap_or(0) as u32,
                    params: numbers(&striping["params"]),
                    servers: List(
                        numbers(&striping["servers"]).0.into_iter().map(|n| n as u16).collect(),
                    ),
                });
                let file = File {
                    mode: number("mode")? as u32,
                    mtime: number("mtime")?,
                    size: number("size")?,
                    sparse: value["sparse"].as_bool()?,
                    epoch: value["epoch"].as_u64()? as u32,
                    striping,
                    target: text(value, "target").unwrap_or_default(),
                };
                self.files.insert(id, file);
            }
            "name" => {
                let entry = (text(value, "name")?, number("id")?);
                self.names.entry(number("parent")?).or_default().push(entry);
            }
            "content" => {
                drop(self.contents.insert(number("id")?, unhex(value["bytes_hex"].as_str()?)?))
            }
            "chain" => {
                let members = value["members"].as_array()?;
                let is_whole = |member: &&Value| {
                    let state = member["state"].as_str();
                    [State::Serving, State::Last].iter().any(|whole| state == Some(whole.word()))
                };
                if let Some(head) = members.iter().find(is_whole) {
                    self.chains.insert(number("chain")? as u16, head["server"].as_u64()? as u16);
                }
            }
            _ => {}
        }
        Some(())
    }

    /// Whether the file is known; then it has a name, or is to be forgotten.
    pub fn is_known(&self, id: Id) -> bool {
        self.files.contains_key(&id)
    }

    /// A file.
    pub fn file(&self, id: Id) -> Option<&File> {
        self.files.get(&id)
    }

    /// A directory's entries.
    pub fn entries(&self, dir: Id) -> &[(Vec<u8>, Id)] {
        self.names.get(&dir).map_or(&[], Vec::as_slice)
    }

    /// The first bytes of a file that lay with its metadata.
    pub fn content(&self, id: Id) -> &[u8] {
        self.contents.get(&id).map_or(&[], Vec::as_slice)
    }

    /// The layout that a file of the root directory gets.
    pub fn striping_guessed(&self, id: Id) -> Option<Striping> {
        let hint = self.hint.as_ref()?;
        let open: Vec<Vec<u16>> = self.leads().into_iter().filter(|own| !own.is_empty()).collect();
        let all = open.len() as u64;
        let count =
            if hint.server_count == 0 { all } else { all.min(u64::from(hint.server_count)) };
        let chain = |index: u64| {
            let own = &open[((id % all + index) % all) as usize];
            own[(id / all) as usize % own.len()]
        };
        let servers = (0..count).map(chain).collect();
        let (kind, strip_bytes, params) = (hint.kind, hint.strip_bytes, hint.params.clone());
        Some(Striping { kind, strip_bytes, params, servers: List(servers) })
    }

    /// The chains that lead to each server.
    fn leads(&self) -> Vec<Vec<u16>> {
        let all = self.chains.keys().last().map_or(0, |last| usize::from(*last) + 1);
        let all = all.max(self.servers.len()) as u16;
        let on = |server| (0..all).filter(|chain| self.server_of(*chain) == server).collect();
        (0..self.servers.len() as u16).map(on).collect()
    }

    /// The server that a chain leads to; one without a row is the server of its own index.
    pub fn server_of(&self, chain: u16) -> u16 {
        self.chains.get(&chain).copied().unwrap_or(chain)
    }
}

fn numbers(value: &Value) -> List<u32> {
    List(
        value
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_u64)
            .map(|n| n as u32)
            .collect(),
    )
}

fn text(value: &Value, field: &str) -> Option<Vec<u8>> {
    match value[field].as_str() {
        Some(text) => Some(text.as_bytes().to_vec()),
        None => unhex(value[format!("{field}_hex")].as_str()?),
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |at: usize| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
    (0..text.len()).step_by(2).map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dump_leads_from_chains_to_servers_whatever_the_order_of_its_rows() {
        let scratch = tempfile::NamedTempFile::new().unwrap();
        let lines = [
            r#"{"type":"inode","id":7,"mode":33188,"mtime":1,"size":9,"sparse":false,"epoch":0,
                "layout":{"kind":1,"strip_bytes":4096,"params":[],"servers":[1,0,2]}}"#,
            r#"{"type":"inode","id":1,"mode":16877,"mtime":1,"size":0,"sparse":false,"epoch":0,
                "hint":{"kind":1,"strip_bytes":4096,"server_count":0,"params":[]}}"#,
            r#"{"type":"chain","chain":0,"generation":1,
                "members":[{"server":1,"store":"a","state":"stale"},
                           {"server":2,"store":"b","state":"last"}]}"#,
            r#"{"type":"chain","chain":1,"generation":3,
                "members":[{"server":0,"store":"c","state":"serving"}]}"#,
            r#"{"type":"superblock","servers":["io1","io2","io3"]}"#,
        ];
        let lines: Vec<String> = lines.iter().map(|line| line.replace('\n', "")).collect();
        std::fs::write(scratch.path(), lines.join("\n")).unwrap();
        let rows = Rows::of_dump(scratch.path()).unwrap();
        let servers = rows.file(7).unwrap().striping.clone().unwrap().servers;
        assert_eq!(servers.0, [1, 0, 2]);
        let servers = servers.0.iter().map(|&chain| rows.server_of(chain)).collect::<Vec<_>>();
        assert_eq!(servers, [0, 2, 2], "a chain without a row is its server");
        let guessed = rows.striping_guessed(7).unwrap().servers.0;
        assert_eq!(guessed, [2, 1], "one chain of each server that has any");
    }
}
