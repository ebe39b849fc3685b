//! `covey fs-dump`: all metadata as lines of JSON.

use super::Context;
use crate::error::{Cannot, Error, Result};
use crate::output::write_out;
use covey_ninep::tree::Errno;
use covey_serve::meta::offline::Offline;
use covey_stripe::chain::Member;
use covey_stripe::check::Access;
use covey_stripe::meta::{Record, installed, records};
use covey_stripe::objects::{LEFT, is_left};
use covey_stripe::ops::{Inode, Op, Project, Reply, Striping, Task};
use covey_wire::Name;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Write all metadata as lines of JSON
///
/// One object per row: the superblock, files, names, layouts, and pending work. It reads the
/// running server page by page: rows of different pages may be from different moments. With a dump
/// that is kept elsewhere, `covey salvage` can restore the names of files after the metadata store
/// was lost. The format is in docs/manual/checking.md.
///
/// EXAMPLES
///
///     covey fs-dump | zstd > /backup/covey-$(date +%F).jsonl.zst
///     covey fs-dump | jq -c 'select(.type == "inode" and .size > 1e9)'
///     covey fs-dump --store /srv/covey/meta
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Dump the metadata store in DIR, whose server is stopped
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
}

/// Bytes of rows asked for at once.
const PAGE_BYTES: u32 = 512 << 10;

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    if let Some(dir) = &args.store {
        let store = Offline::open(dir).cannot(|| format!("dump {}", dir.display()))?;
        return dump(&store).await;
    }
    let session = context.session().await?;
    let result = dump(&session.fs).await;
    session.close(result).await
}

async fn dump<A: Access>(access: &A) -> Result<()> {
    let mut from = Name::EMPTY;
    loop {
        let ask = Op::Rows { from, bytes_max: PAGE_BYTES };
        let (rows, end) = match access.ask(ask).await.cannot(|| "read the metadata")? {
            Reply::Rows { rows, end } => (rows.0, end),
            _ => return Err(Error::errno("read the metadata", Errno::EPROTO.into())),
        };
        let mut text = Vec::new();
        from = rows.last().map_or(Name::EMPTY, |row| [row.key.as_bytes(), &[0]].concat().into());
        for row in rows {
            for record in records(row.key.as_bytes(), &row.value.into_bytes()) {
                serde_json::to_writer(&mut text, &json_of(&record))?;
                text.push(b'\n');
            }
        }
        write_out(&text)?;
        if end {
            return Ok(());
        }
    }
}

fn json_of(record: &Record) -> Value {
    match record {
        Record::Superblock { format, cluster, servers } => {
            let servers: Vec<_> = servers.iter().map(Name::lossy).collect();
            json!({ "type": "superblock", "format": format, "cluster": cluster.lossy(),
                    "servers": servers })
        }
        Record::Counters { id_next, session_next, files, bytes } => json!({
            "type": "counters", "id_next": id_next, "session_next": session_next,
            "files": files, "bytes": bytes,
        }),
        Record::Boot { count } => json!({ "type": "boot", "count": count }),
        Record::Losses { count } => json!({ "type": "power-losses", "count": count }),
        Record::Stores { stores } => {
            let stores: Vec<_> = stores.iter().map(Name::lossy).collect();
            json!({ "type": "stores", "stores": stores })
        }
        Record::Counted { up_to } => json!({ "type": "quotas-counted", "up_to": up_to }),
        Record::Quota { quota } => {
            let whose = covey_stripe::meta::quota::word(quota.kind);
            json!({ "type": "quota", "whose": whose, "id": quota.id,
                    "bytes_max": quota.bytes_max, "files_max": quota.files_max,
                    "bytes": quota.bytes, "files": quota.files })
        }
        Record::Places { places } => json!({ "type": "places", "places": places }),
        Record::Projects { projects } => {
            let of = |one: &Project| json!({ "number": one.number, "directory": one.dir, "counted": one.is_whole });
            json!({ "type": "projects", "projects": projects.iter().map(of).collect::<Vec<_>>() })
        }
        Record::Tasks { tasks } => {
            let of = |one: &Task| {
                json!({ "number": one.number, "kind": one.kind, "server": one.server, "rate": one.rate,
                        "state": one.state, "files": one.progress.files, "bytes": one.progress.bytes })
            };
            json!({ "type": "tasks", "tasks": tasks.iter().map(of).collect::<Vec<_>>() })
        }
        Record::Chain { index, chain } => {
            let member = |member: &Member| {
                json!({ "server": member.server, "store": member.store.lossy(),
                        "state": member.state().word() })
            };
            let members: Vec<Value> = chain.members.0.iter().map(member).collect();
            json!({ "type": "chain", "chain": index, "generation": chain.generation,
                    "members": members })
        }
        Record::Inode { inode, cookie_next, tail, project } => {
            let mut value = inode_of(inode, *cookie_next, *tail);
            if *project != 0 {
                value["project"] = json!(project);
            }
            value
        }
        Record::Name { parent, name, id, kind, cookie } => {
            let mut value = json!({ "type": "name", "parent": parent, "id": id, "kind": kind,
                                    "cookie": cookie });
            put_text(&mut value, "name", name.as_bytes());
            value
        }
        Record::Orphan { id } => json!({ "type": "orphan", "id": id }),
        Record::Reclaim { id, epoch, striping } => {
            json!({ "type": "reclaim", "id": id, "epoch": epoch & !LEFT,
                    "leaves": is_left(*epoch), "layout": striping_of(striping) })
        }
        Record::Cut { id, epoch, size, striping } => json!({
            "type": "cut", "id": id, "epoch": epoch, "size": installed(*size).unwrap_or(*size),
            "installs": installed(*size).is_some(), "layout": striping_of(striping),
        }),
        Record::Append { id, offset, end, session, done } => json!({
            "type": "append", "id": id, "offset": offset, "end": end, "session": session,
            "done": done,
        }),
        Record::Session { session, name, answered, kept } => json!({
            "type": "session", "session": session, "name": name.lossy(), "answered": answered,
            "replies": kept,
        }),
        Record::Content { id, bytes } => {
            json!({ "type": "content", "id": id, "bytes_hex": hex(bytes) })
        }
        Record::Xattr { id, name, value } => {
            let mut text = json!({ "type": "xattr", "id": id, "value_hex": hex(value) });
            put_text(&mut text, "name", name.as_bytes());
            text
        }
        Record::Unknown { key, value } => {
            json!({ "type": "unknown", "key_hex": hex(key), "value_hex": hex(value) })
        }
    }
}

fn inode_of(inode: &Inode, cookie_next: u64, tail: u64) -> Value {
    let mut value = json!({
        "type": "inode", "id": inode.id, "mode": inode.mode, "uid": inode.uid, "gid": inode.gid,
        "nlink": inode.nlink, "size": inode.size, "epoch": inode.epoch, "version": inode.version,
        "sparse": inode.sparse, "atime": inode.atime, "mtime": inode.mtime, "ctime": inode.ctime,
        "btime": inode.btime,
    });
    let fields = value.as_object_mut().expect("it is an object");
    if inode.is_dir() {
        fields.insert("parent".into(), inode.parent.into());
        fields.insert("cookie_next".into(), cookie_next.into());
    }
    if tail != inode.size && inode.is_regular() {
        fields.insert("tail".into(), tail.into());
    }
    if inode.rdev != 0 {
        fields.insert("rdev".into(), inode.rdev.into());
    }
    if let Some(striping) = &inode.striping {
        fields.insert("layout".into(), striping_of(striping));
    }
    if let Some(mode) = inode.consistency() {
        fields.insert("consistency".into(), mode.name().into());
    }
    if let Some(hint) = &inode.hint {
        let hint = json!({ "kind": hint.kind, "strip_bytes": hint.strip_bytes,
                           "server_count": hint.server_count, "params": hint.params.0 });
        fields.insert("hint".into(), hint);
    }
    if !inode.target.is_empty() {
        put_text(&mut value, "target", inode.target.as_bytes());
    }
    value
}

fn striping_of(striping: &Striping) -> Value {
    json!({ "kind": striping.kind, "strip_bytes": striping.strip_bytes, "params": striping.params.0,
            "servers": striping.servers.0 })
}

/// Text as it is; what is no UTF-8 as hexadecimal digits under `FIELD_hex`.
fn put_text(value: &mut Value, field: &str, bytes: &[u8]) {
    let fields = value.as_object_mut().expect("it is an object");
    match std::str::from_utf8(bytes) {
        Ok(text) => fields.insert(field.into(), text.into()),
        Err(_) => fields.insert(format!("{field}_hex"), hex(bytes).into()),
    };
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
