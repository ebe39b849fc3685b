//! `covey layout`: which server has which bytes.

use super::path::{Failures, Follow, inside, is_kind, kind, shown};
use super::{Context, Session};
use crate::config::{Config, parse_strip, size};
use crate::error::{Cannot, Error, Result};
use covey_stripe::distribution::{self, Distribution};
use covey_stripe::ops::{Inode, Layout, LayoutHint, ROOT};
use std::ffi::OsString;
use std::io::Write;

/// Show or set how files are striped over the I/O servers
///
/// For a file: its strip size, how much each server has, and which byte range lies where. For a
/// directory: what files made in it will get. A file's layout is fixed when its first byte is
/// written.
///
/// EXAMPLES
///
///     covey layout /data/big
///     covey layout --ranges 1000 /data/big
///     covey layout set --strip '1 MiB' /data           files made in /data from now on
///     covey layout set --strip '1 MiB' --servers 2 /data/new
#[derive(clap::Args, Debug)]
#[command(
    verbatim_doc_comment,
    args_conflicts_with_subcommands = true,
    arg_required_else_help = true
)]
pub struct Args {
    #[command(subcommand)]
    change: Option<Change>,
    /// The files and directories
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// How many byte ranges of a file to list
    #[arg(long, value_name = "N", default_value_t = 16)]
    ranges: usize,
}

#[derive(clap::Subcommand, Debug)]
enum Change {
    /// Set what files made in a directory get, or the layout of an empty file
    Set(Set),
}

#[derive(clap::Args, Debug)]
struct Set {
    /// Bytes per server before the next one, such as `1 MiB`
    #[arg(long, value_name = "SIZE", value_parser = parse_strip,
          required_unless_present = "servers")]
    strip: Option<u32>,
    /// How many servers each file uses; 0 for all
    #[arg(long, value_name = "N")]
    servers: Option<u16>,
    /// Directories, or files that hold nothing yet
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    let session = context.session().await?;
    let mut failures = Failures::default();
    let result = match &args.change {
        Some(Change::Set(set)) => set_all(set, &session, &config, &mut failures, context).await,
        None => show_all(&args, &session, &config, &mut failures, context).await,
    };
    session.close(result).await?;
    failures.result()
}

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
    servers: Vec<Part>,
    ranges: Vec<Range>,
    /// Not all ranges are listed.
    ranges_cut: bool,
}

async fn show_all(
    args: &Args,
    session: &Session,
    config: &Config,
    failures: &mut Failures,
    context: &Context,
) -> Result<()> {
    let (mut json, mut text) = (Vec::new(), Vec::new());
    for path in args.paths.iter().map(|path| inside(path)) {
        let inode = session.find("look at", &path, Follow::Last).await;
        let Some(inode) = failures.take(inode, context) else { continue };
        match (&inode.layout, inode.mode & kind::MASK) {
            (Some(layout), _) => {
                let shown = describe(&path, &inode, layout, config, args.ranges);
                let Some(shown) = failures.take(shown, context) else { continue };
                write_file(&mut text, &shown)?;
                json.push(serde_json::to_value(shown)?);
            }
            (None, kind::DIR) => {
                let hint = hint_of(session, &inode, config).await?;
                write_dir(&mut text, &path, &hint, config)?;
                json.push(serde_json::json!({
                    "path": shown(&path), "id": inode.id, "distribution": distribution::kind_name(hint.kind),
                    "strip_bytes": hint.strip_bytes, "server_count": server_count(&hint, config),
                    "own": inode.hint.is_some(),
                }));
            }
            _ => {
                let what = super::show::kind_word(&inode);
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

fn describe(
    path: &[u8],
    inode: &Inode,
    layout: &Layout,
    config: &Config,
    ranges_max: usize,
) -> Result<Shown> {
    let map = distribution::of(layout).cannot(|| format!("show the layout of {}", shown(path)))?;
    let names: Vec<&str> = config.data().map(|node| node.name.as_str()).collect();
    let server = |slot: usize| {
        let index = layout.servers.0.get(slot).copied().unwrap_or(u16::MAX);
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
    let part = |slot| Part { server: server(slot), bytes: map.physical_size(slot, inode.size) };
    Ok(Shown {
        path: shown(path),
        id: inode.id,
        size: inode.size,
        distribution: distribution::kind_name(layout.kind),
        strip_bytes: layout.strip_bytes,
        servers: (0..map.slots()).map(part).collect(),
        ranges,
        ranges_cut: offset < inode.size,
    })
}

fn server_count(hint: &LayoutHint, config: &Config) -> usize {
    let all = config.data().count();
    if hint.server_count == 0 { all } else { usize::from(hint.server_count).min(all) }
}

/// A directory's own hint, or that of the nearest directory above that has one.
async fn hint_of(session: &Session, dir: &Inode, config: &Config) -> Result<LayoutHint> {
    let mut at = dir.clone();
    loop {
        if let Some(hint) = at.hint {
            return Ok(hint);
        }
        if at.id == ROOT || at.parent == at.id {
            return Ok(LayoutHint::simple_stripe(config.strip_bytes, 0));
        }
        at = session.fs.stat(at.parent).await.cannot(|| "look at the directory above")?.inode;
    }
}

fn write_file(out: &mut Vec<u8>, shown: &Shown) -> std::io::Result<()> {
    let strip = size::exact(shown.strip_bytes.into());
    let (bytes, count) = (shown.size, shown.servers.len());
    writeln!(
        out,
        "{}: {bytes} bytes, {} of {strip} over {count} servers\n",
        shown.path, shown.distribution
    )?;
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
    match shown.ranges_cut {
        true => writeln!(out, "... and so on in turn; --ranges N lists more"),
        false => Ok(()),
    }
}

fn write_dir(
    out: &mut Vec<u8>,
    path: &[u8],
    hint: &LayoutHint,
    config: &Config,
) -> std::io::Result<()> {
    let (strip, count) = (size::exact(hint.strip_bytes.into()), server_count(hint, config));
    writeln!(
        out,
        "{}: new files get {} of {strip} over {count} servers",
        shown(path),
        distribution::kind_name(hint.kind)
    )
}

async fn set_all(
    set: &Set,
    session: &Session,
    config: &Config,
    failures: &mut Failures,
    context: &Context,
) -> Result<()> {
    let available = config.data().count();
    if let Some(wish) = set.servers.filter(|wish| usize::from(*wish) > available) {
        return Err(Error::user(format!(
            "cannot stripe over {wish} servers: the cluster has {available}"
        ))
        .hint("--servers 0 takes all there are"));
    }
    let mut done = Vec::new();
    for path in set.paths.iter().map(|path| inside(path)) {
        let result = set_one(set, session, config, &path).await;
        done.extend(failures.take(result, context).map(|()| shown(&path)));
    }
    context.output.result(&done, |_| Ok(()))
}

async fn set_one(set: &Set, session: &Session, config: &Config, path: &[u8]) -> Result<()> {
    let what = || format!("set the layout of {}", shown(path));
    let inode = session.resolve(path, Follow::Last).await.cannot(what)?;
    let now = match &inode.layout {
        Some(layout) => {
            // As many as it has: what is not said stays.
            let count = u16::try_from(layout.servers.0.len()).unwrap_or(0);
            LayoutHint::simple_stripe(layout.strip_bytes, count)
        }
        None => hint_of(session, &inode, config).await?,
    };
    if is_kind(&inode, kind::FILE) && inode.size > 0 {
        return Err(Error::work(format!(
            "cannot {}: it holds {} bytes already",
            what(),
            inode.size
        ))
        .hint("set the layout of its directory, then copy the file: `covey cp :/old :/new`"));
    }
    let strip = set.strip.unwrap_or(now.strip_bytes);
    let hint = LayoutHint::simple_stripe(strip, set.servers.unwrap_or(now.server_count));
    session.fs.set_layout(&session.who, inode.id, hint).await.cannot(what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Address, Node, Role};
    use covey_wire::{List, Name};

    fn of_strips(strip_bytes: u32, servers: List<u16>) -> Layout {
        Layout { kind: distribution::SIMPLE_STRIPE, strip_bytes, params: List(Vec::new()), servers }
    }

    fn config(count: usize) -> Config {
        let node = |index: usize| Node {
            name: format!("io{index}"),
            roles: vec![Role::Data],
            listen: vec![Address::tcp("localhost", 1)],
            store: None,
        };
        Config {
            file: "covey.toml".into(),
            name: "test".into(),
            id: String::new(),
            strip_bytes: 65536,
            key_file: None,
            nodes: (0..count).map(node).collect(),
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
            layout: None,
            hint: None,
            parent: 0,
            has_xattrs: false,
        }
    }

    #[test]
    fn ranges_name_servers_by_the_order_of_the_configuration() {
        let layout = of_strips(4096, List(vec![2, 0]));
        let shown = describe(b"/f", &file(10_000), &layout, &config(3), 10).unwrap();
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
        let layout = of_strips(4096, List(vec![0, 1]));
        let shown = describe(b"/f", &file(1 << 30), &layout, &config(2), 3).unwrap();
        assert_eq!((shown.ranges.len(), shown.ranges_cut), (3, true));
    }
}
