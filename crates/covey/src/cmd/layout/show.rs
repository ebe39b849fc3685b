//! What `covey layout` shows.

use super::super::path::{Failures, Follow, kind, shown, text as as_text};
use super::super::{Context, Session};
use super::mounted::{Layout, Mounted};
use super::{Cluster, Place, hint_of, server_count};
use crate::config::{Config, size};
use crate::error::{Cannot, Error, Result};
use crate::output::quote;
use covey_stripe::distribution::{
    self, BASIC, Distribution, INLINE, PROGRESSIVE, TWOD_STRIPE, VARSTRIP, kind_name,
};
use covey_stripe::ops::{Striping, StripingHint};
use serde_json::{Value, json};
use std::ffi::OsStr;
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

/// What is printed, in both forms.
#[derive(Default)]
struct Page {
    json: Vec<Value>,
    text: Vec<u8>,
}

/// Shows what each path has.
pub async fn all(
    args: &super::Args,
    places: &[Place],
    cluster: Option<&Cluster>,
    failures: &mut Failures,
    context: &Context,
) -> Result<()> {
    let mut page = Page::default();
    for place in places {
        let result = match place {
            Place::Mounted(path, mounted) => on_mount(args, path, mounted, context, &mut page),
            Place::Inside(path) => {
                let (session, config) = cluster.expect("there is a path of the cluster's");
                one(args, session, config, path, &mut page).await
            }
        };
        failures.take(result, context);
    }
    context.output.result(&page.json, |out| {
        out.extend(page.text);
        Ok(())
    })
}

async fn one(
    args: &super::Args,
    session: &Session,
    config: &Config,
    path: &[u8],
    page: &mut Page,
) -> Result<()> {
    let inode = session.find("look at", path, Follow::Last).await?;
    let file = (inode.id, inode.size);
    match (&inode.striping, inode.mode & kind::MASK) {
        (Some(striping), _) => {
            let cannot = || format!("show the layout of {}", shown(path));
            let servers = session.fs.servers_of(striping).await.cannot(cannot)?;
            page.add_file(describe(path, file, striping, &servers, args.ranges)?)
        }
        (None, kind::DIR) => {
            let hint = hint_of(session, &inode, config).await?;
            let count = server_count(&hint, config);
            let own = inode.hint.is_some();
            page.add_directory(path, (inode.id, Some(own)), &hint, Some(count))
        }
        _ => {
            let what = super::super::show::kind_word(&inode);
            let what = format!("cannot show the layout of {}: it is a {what}", shown(path));
            Err(Error::work(what).hint("regular files and directories have one"))
        }
    }
}

fn on_mount(
    args: &super::Args,
    path: &OsStr,
    mounted: &Mounted,
    context: &Context,
    page: &mut Page,
) -> Result<()> {
    let (layout, file) = (mounted.layout()?, mounted.number_and_size()?);
    // Who may not read the configuration sees numbers.
    let config = context.config().ok();
    let names: Vec<&str> =
        config.iter().flat_map(|config| config.data()).map(|node| node.name.as_str()).collect();
    let path = path.as_encoded_bytes();
    match layout {
        Layout::File(striping) => {
            let name = |&at: &u16| {
                let known = names.get(usize::from(at)).map(|name| name.to_string());
                known.unwrap_or_else(|| format!("server {at}"))
            };
            let servers: Vec<String> = striping.servers.0.iter().map(name).collect();
            page.add_file(describe(path, file, &striping, &servers, args.ranges)?)
        }
        Layout::Directory(hint) => {
            let said = Some(usize::from(hint.server_count)).filter(|count| *count > 0);
            let count = config.map(|config| server_count(&hint, &config)).or(said);
            page.add_directory(path, (file.0, None), &hint, count)
        }
    }
}

impl Page {
    fn add_file(&mut self, shown: Shown) -> Result<()> {
        write_file(&mut self.text, &shown)?;
        self.json.push(serde_json::to_value(shown)?);
        Ok(())
    }

    /// `own`: whether the directory has the layout itself, where that is known.
    fn add_directory(
        &mut self,
        path: &[u8],
        (id, own): (u64, Option<bool>),
        hint: &StripingHint,
        count: Option<usize>,
    ) -> Result<()> {
        let (path, params) = (as_text(path), &hint.params.0);
        let words = words(hint.kind, hint.strip_bytes, params, count);
        writeln!(self.text, "{}: new files get {words}", quote::text(&path))?;
        self.json.push(json!({
            "path": path, "id": id, "distribution": kind_name(hint.kind),
            "strip_bytes": hint.strip_bytes, "server_count": count,
            "parameters": parameters(hint.kind, params), "own": own,
        }));
        Ok(())
    }
}

/// A layout in one line.
fn words(kind: u8, strip_bytes: u32, params: &[u32], servers: Option<usize>) -> String {
    let (name, strip) = (kind_name(kind), size::exact(strip_bytes.into()));
    let over = match servers {
        Some(1) => "1 server".to_string(),
        Some(count) => format!("{count} servers"),
        None => "all servers".to_string(),
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
    (id, size): (u64, u64),
    striping: &Striping,
    servers: &[String],
    ranges_max: usize,
) -> Result<Shown> {
    let map =
        distribution::of(striping).cannot(|| format!("show the layout of {}", shown(path)))?;
    let server = |slot: usize| {
        if slot == INLINE {
            return METADATA.to_string();
        }
        servers.get(slot).cloned().unwrap_or_else(|| "?".to_string())
    };
    let mut ranges = Vec::new();
    let mut offset = 0;
    while offset < size && ranges.len() < ranges_max {
        let spot = map.locate(offset);
        let length = spot.run.min(size - offset);
        ranges.push(Range {
            offset,
            length,
            server: server(spot.slot),
            object_offset: spot.physical,
        });
        offset += length;
    }
    let inline = map.inline_bytes();
    let head = (inline > 0).then(|| Part { server: METADATA.to_string(), bytes: size.min(inline) });
    let part = |slot| Part { server: server(slot), bytes: map.physical_size(slot, size) };
    let params = &striping.params.0;
    Ok(Shown {
        path: as_text(path),
        id,
        size,
        distribution: kind_name(striping.kind),
        strip_bytes: striping.strip_bytes,
        parameters: parameters(striping.kind, params),
        servers: head.into_iter().chain((0..map.slots()).map(part)).collect(),
        ranges,
        ranges_cut: offset < size,
        words: words(striping.kind, striping.strip_bytes, params, Some(map.slots())),
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
    use covey_wire::List;

    fn of_strips(strip_bytes: u32, servers: List<u16>) -> Striping {
        Striping {
            kind: distribution::SIMPLE_STRIPE,
            strip_bytes,
            params: List(Vec::new()),
            servers,
        }
    }

    #[test]
    fn ranges_name_the_servers_of_their_slots() {
        let striping = of_strips(4096, List(vec![2, 0]));
        let shown =
            describe(b"/f", (7, 10_000), &striping, &["io2", "io0"].map(String::from), 10).unwrap();
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
        let shown =
            describe(b"/f", (7, 1 << 30), &striping, &["io0", "io1"].map(String::from), 3).unwrap();
        assert_eq!((shown.ranges.len(), shown.ranges_cut), (3, true));
    }
}
