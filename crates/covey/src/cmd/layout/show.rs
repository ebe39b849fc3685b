//! What `covey layout` shows.

use super::super::path::{Failures, Follow, inside, kind, shown, text as as_text};
use super::super::{Context, Session};
use super::{hint_of, server_count};
use crate::config::{Config, size};
use crate::error::{Cannot, Error, Result};
use crate::output::quote;
use covey_stripe::distribution::{
    self, BASIC, Distribution, INLINE, PROGRESSIVE, TWOD_STRIPE, VARSTRIP, kind_name,
};
use covey_stripe::ops::{Inode, Striping};
use serde_json::{Value, json};
use std::io::Write;

/// A run of bytes on one server.
#[derive(serde::Serialize)]
struct Range {
    offset: u64,
    length: u64,
    server: String,
    /// Where it is in the server's object.
    object_offset: u64,
}

/// One server's part of a file.
#[derive(serde::Serialize)]
struct Part {
    server: String,
    bytes: u64,
}

/// What is shown of a file.
#[derive(serde::Serialize)]
struct Shown {
    path: String,
    id: u64,
    size: u64,
    distribution: &'static str,
    strip_bytes: u32,
    parameters: Value,
    servers: Vec<Part>,
    ranges: Vec<Range>,
    /// Not all ranges are listed.
    ranges_cut: bool,
    #[serde(skip)]
    words: String,
}

/// Shows what each path has.
pub async fn all(
    args: &super::Args,
    session: &Session,
    config: &Config,
    failures: &mut Failures,
    context: &Context,
) -> Result<()> {
    let (mut json, mut text) = (Vec::new(), Vec::new());
    for path in args.paths.iter().map(|path| inside(path)) {
        let inode = session.find("look at", &path, Follow::Last).await;
        let Some(inode) = failures.take(inode, context) else { continue };
        match (&inode.striping, inode.mode & kind::MASK) {
            (Some(striping), _) => {
                let shown = describe(&path, &inode, striping, config, args.ranges);
                let Some(shown) = failures.take(shown, context) else { continue };
                write_file(&mut text, &shown)?;
                json.push(serde_json::to_value(shown)?);
            }
            (None, kind::DIR) => {
                let hint = hint_of(session, &inode, config).await?;
                let count = server_count(&hint, config);
                let words = words(hint.kind, hint.strip_bytes, &hint.params.0, count);
                writeln!(text, "{}: new files get {words}", quote::text(&as_text(&path)))?;
                json.push(json!({
                    "path": as_text(&path), "id": inode.id, "distribution": kind_name(hint.kind),
                    "strip_bytes": hint.strip_bytes, "server_count": count,
                    "parameters": parameters(hint.kind, &hint.params.0),
                    "own": inode.hint.is_some(),
                }));
            }
            _ => {
                let what = super::super::show::kind_word(&inode);
                let error = Error::work(format!(
                    "cannot show the layout of {}: it is a {what}",
                    shown(&path)
                ));
                failures.tell(&error.hint("regular files and directories have one"), context);
            }
        }
    }
    context.output.result(&json, |out| {
        out.extend(text);
        Ok(())
    })
}

/// A layout in one line.
fn words(kind: u8, strip_bytes: u32, params: &[u32], servers: usize) -> String {
    let (name, strip) = (kind_name(kind), size::exact(strip_bytes.into()));
    let over = match servers {
        1 => "1 server".to_string(),
        count => format!("{count} servers"),
    };
    match (kind, params) {
        (BASIC, _) => format!("{name}: all of it on 1 server"),
        (VARSTRIP, strips) => {
            let strips: Vec<String> = strips.chunks(2).map(strip_text).collect();
            format!("{name} of {} over {over}", strips.join(","))
        }
        (TWOD_STRIPE, &[groups, factor]) => {
            format!("{name} of {strip} over {over} in {groups} groups, factor {factor}")
        }
        (PROGRESSIVE, &[inline, single]) => {
            let (inline, single) = (size::exact(inline.into()), size::exact(single.into()));
            format!(
                "{name}: {inline} with the metadata, up to {single} on 1 server, then {strip} over \
                 {over}"
            )
        }
        _ => format!("{name} of {strip} over {over}"),
    }
}

/// A strip of varstrip, as `--strips` takes it.
fn strip_text(strip: &[u32]) -> String {
    match strip {
        [slot, bytes] => format!("{slot}:{}", size::exact((*bytes).into())),
        _ => String::new(),
    }
}

/// The parameters by their names.
fn parameters(kind: u8, params: &[u32]) -> Value {
    match (kind, params) {
        (VARSTRIP, strips) => {
            let strip = |strip: &[u32]| json!({ "server": strip[0], "bytes": strip[1] });
            let strips: Vec<Value> = strips.chunks_exact(2).map(strip).collect();
            json!({ "strips": strips })
        }
        (TWOD_STRIPE, &[groups, factor]) => json!({ "groups": groups, "factor": factor }),
        (PROGRESSIVE, &[inline, single]) => {
            json!({ "inline_bytes": inline, "single_bytes": single })
        }
        _ => json!({}),
    }
}

fn describe(
    path: &[u8],
    inode: &Inode,
    striping: &Striping,
    config: &Config,
    ranges_max: usize,
) -> Result<Shown> {
    let map =
        distribution::of(striping).cannot(|| format!("show the layout of {}", shown(path)))?;
    let names: Vec<&str> = config.data().map(|node| node.name.as_str()).collect();
    let server = |slot: usize| {
        if slot == INLINE {
            return METADATA.to_string();
        }
        let index = striping.servers.0.get(slot).copied().unwrap_or(u16::MAX);
        names.get(usize::from(index)).map_or(format!("server {index}"), |name| name.to_string())
    };
    let mut ranges = Vec::new();
    let mut offset = 0;
    while offset < inode.size && ranges.len() < ranges_max {
        let spot = map.locate(offset);
        let length = spot.run.min(inode.size - offset);
        ranges.push(Range {
            offset,
            length,
            server: server(spot.slot),
            object_offset: spot.physical,
        });
        offset += length;
    }
    let inline = map.inline_bytes();
    let head =
        (inline > 0).then(|| Part { server: METADATA.to_string(), bytes: inode.size.min(inline) });
    let part = |slot| Part { server: server(slot), bytes: map.physical_size(slot, inode.size) };
    let params = &striping.params.0;
    Ok(Shown {
        path: as_text(path),
        id: inode.id,
        size: inode.size,
        distribution: kind_name(striping.kind),
        strip_bytes: striping.strip_bytes,
        parameters: parameters(striping.kind, params),
        servers: head.into_iter().chain((0..map.slots()).map(part)).collect(),
        ranges,
        ranges_cut: offset < inode.size,
        words: words(striping.kind, striping.strip_bytes, params, map.slots()),
    })
}

fn write_file(out: &mut Vec<u8>, shown: &Shown) -> std::io::Result<()> {
    let bytes = shown.size;
    writeln!(out, "{}: {bytes} bytes, {}\n", quote::text(&shown.path), shown.words)?;
    let share = |part: &Part| match bytes {
        0 => "-".to_string(),
        _ => format!("{:.1}%", part.bytes as f64 / bytes as f64 * 100.0),
    };
    let rows: Vec<_> = shown
        .servers
        .iter()
        .map(|part| vec![part.server.clone(), part.bytes.to_string(), share(part)])
        .collect();
    crate::output::table(out, &["SERVER", ">BYTES", ">SHARE"], &rows);
    if shown.ranges.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let row = |range: &Range| {
        vec![
            range.offset.to_string(),
            (range.offset + range.length - 1).to_string(),
            range.server.clone(),
            range.object_offset.to_string(),
        ]
    };
    let rows: Vec<_> = shown.ranges.iter().map(row).collect();
    crate::output::table(out, &[">FROM", ">TO", "SERVER", ">AT"], &rows);
    if shown.ranges_cut {
        writeln!(out, "... and so on in turn; --ranges N lists more")
    } else {
        Ok(())
    }
}

/// Where inline bytes lie.
const METADATA: &str = "(metadata)";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Address, Node, Role};
    use covey_wire::{List, Name};

    fn of_strips(strip_bytes: u32, servers: List<u16>) -> Striping {
        Striping {
            kind: distribution::SIMPLE_STRIPE,
            strip_bytes,
            params: List(Vec::new()),
            servers,
        }
    }

    fn config(count: usize) -> Config {
        let node = |index: usize| Node {
            name: format!("io{index}"),
            roles: vec![Role::Data],
            listen: vec![Address::tcp("localhost", 1)],
            store: None,
            emulated: None,
        };
        Config {
            pacing: crate::config::Pacing::default(),
            file: "covey.toml".into(),
            name: "test".into(),
            id: String::new(),
            strip_bytes: None,
            key_file: None,
            user: None,
            is_named: true,
            nodes: (0..count).map(node).collect(),
            views: Vec::new(),
        }
    }

    fn file(size: u64) -> Inode {
        Inode {
            id: 7,
            mode: kind::FILE | 0o644,
            uid: 0,
            gid: 0,
            nlink: 1,
            rdev: 0,
            size,
            epoch: 0,
            version: 0,
            sparse: false,
            inline: 0,
            atime: 0,
            mtime: 0,
            ctime: 0,
            btime: 0,
            target: Name::from(""),
            striping: None,
            hint: None,
            parent: 0,
            has_xattrs: false,
            consistency: 0,
        }
    }

    #[test]
    fn ranges_name_servers_by_the_order_of_the_configuration() {
        let striping = of_strips(4096, List(vec![2, 0]));
        let shown = describe(b"/f", &file(10_000), &striping, &config(3), 10).unwrap();
        let ranges: Vec<_> = shown
            .ranges
            .iter()
            .map(|range| (range.offset, range.length, range.server.as_str(), range.object_offset))
            .collect();
        assert_eq!(
            ranges,
            [(0, 4096, "io2", 0), (4096, 4096, "io0", 0), (8192, 1808, "io2", 4096)]
        );
        let parts: Vec<_> = shown.servers.iter().map(|part| part.bytes).collect();
        assert_eq!((parts, shown.ranges_cut), (vec![5904, 4096], false));
    }

    #[test]
    fn a_long_list_is_cut_and_says_so() {
        let striping = of_strips(4096, List(vec![0, 1]));
        let shown = describe(b"/f", &file(1 << 30), &striping, &config(2), 3).unwrap();
        assert_eq!((shown.ranges.len(), shown.ranges_cut), (3, true));
    }
}
