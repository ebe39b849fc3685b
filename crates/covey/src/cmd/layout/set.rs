//! `covey layout set`.

use super::super::path::{Failures, Follow, is_kind, kind, shown, text};
use super::super::{Context, Session};
use super::mounted::{Layout, Mounted};
use super::{Cluster, Place, hint_of};
use crate::config::{Config, parse_strip, size};
use crate::error::{Cannot, Error, Result};
use covey_stripe::distribution::wish::{Unfit, Wish};
use covey_stripe::distribution::{self, KINDS, STRIP_BYTES_DEFAULT, kind_name, kind_named};
use covey_stripe::ops::StripingHint;
use std::ffi::OsString;

/// What is not said stays as it is, or is what the kind has by default.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The distribution: progressive, simple_stripe, basic, varstrip or twod_stripe
    #[arg(long, value_name = "KIND", value_parser = parse_kind,
          required_unless_present_any =
              ["strip", "servers", "inline", "single", "strips", "groups", "factor"])]
    kind: Option<u8>,
    /// Bytes per server before the next one, such as `1 MiB`
    #[arg(long, value_name = "SIZE", value_parser = parse_strip)]
    strip: Option<u32>,
    /// How many servers each file uses; 0 for all
    #[arg(long, value_name = "N")]
    servers: Option<u16>,
    /// Of progressive: bytes that lie with the metadata, up to 64 KiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    inline: Option<u32>,
    /// Of progressive: up to which byte the file is on one server, up to 1 GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    single: Option<u32>,
    /// Of varstrip: the strips of one round, as `SERVER:SIZE,...`; a file's servers count from 0
    #[arg(long, value_name = "LIST", value_parser = parse_strips)]
    strips: Option<Strips>,
    /// Of twod_stripe: groups of servers
    #[arg(long, value_name = "N")]
    groups: Option<u32>,
    /// Of twod_stripe: stripes over one group before the next one's turn
    #[arg(long, value_name = "N")]
    factor: Option<u32>,
    /// Directories, or empty files
    #[arg(value_name = "PATH", required = true)]
    pub(super) paths: Vec<OsString>,
}

/// The parameters of varstrip.
#[derive(Clone, Debug)]
struct Strips(Vec<u32>);

/// Sets what each path is to have.
pub async fn all(
    args: &Args,
    places: &[Place],
    cluster: Option<&Cluster>,
    failures: &mut Failures,
    context: &Context,
) -> Result<()> {
    if let Some((_, config)) = cluster {
        check_count(args, config)?;
    }
    let mut done = Vec::new();
    for place in places {
        let (result, path) = match place {
            Place::Mounted(path, mounted) => {
                (on_mount(args, mounted), path.to_string_lossy().into())
            }
            Place::Inside(path) => {
                let (session, config) = cluster.expect("there is a path of the cluster's");
                (one(args, session, config, path).await, text(path))
            }
        };
        done.extend(failures.take(result, context).map(|()| path));
    }
    context.output.result(&done, |_| Ok(()))
}

fn check_count(args: &Args, config: &Config) -> Result<()> {
    let available = config.data().count();
    match args.servers.filter(|wish| usize::from(*wish) > available) {
        Some(wish) => Err(Error::user(format!(
            "cannot stripe over {wish} servers: the cluster has {available}"
        ))
        .hint("--servers 0 takes all there are")),
        None => Ok(()),
    }
}

fn on_mount(args: &Args, mounted: &Mounted) -> Result<()> {
    let now = match mounted.layout()? {
        Layout::File(striping) => StripingHint::of_file(&striping),
        Layout::Directory(hint) => hint,
    };
    mounted.set(&changed(args, now, || Ok(STRIP_BYTES_DEFAULT))?)
}

async fn one(args: &Args, session: &Session, config: &Config, path: &[u8]) -> Result<()> {
    let what = || format!("set the layout of {}", shown(path));
    let inode = session.resolve(path, Follow::Last).await.cannot(what)?;
    if is_kind(&inode, kind::FILE) && inode.size > 0 {
        return Err(Error::work(format!(
            "cannot {}: it holds {} bytes already",
            what(),
            inode.size
        ))
        .hint("set the layout of its directory, then copy the file: `covey cp :/old :/new`"));
    }
    let now = match &inode.striping {
        Some(striping) => StripingHint::of_file(striping),
        None => hint_of(session, &inode, config).await?,
    };
    let strip = || Ok(covey_cluster::tuned::strip(config)?.0);
    let hint = changed(args, now, strip)?;
    distribution::check(&hint, config.data().count()).map_err(|error| {
        Error::user(format!("cannot {}: {}", what(), error.reason))
            .hint("`covey layout set --help` tells what each kind takes")
    })?;
    session.fs.set_striping(&session.who, inode.id, hint).await.cannot(what)
}

/// The hint with what was said.
fn changed(
    args: &Args,
    now: StripingHint,
    strip_bytes: impl Fn() -> Result<u32>,
) -> Result<StripingHint> {
    let wish = Wish {
        kind: args.kind,
        strip: args.strip,
        servers: args.servers,
        inline: args.inline,
        single: args.single,
        strips: args.strips.as_ref().map(|Strips(strips)| strips.clone()),
        groups: args.groups,
        factor: args.factor,
    };
    wish.of(now, strip_bytes()?).map_err(|unfit| match unfit {
        Unfit::Foreign { kind, parameter, kinds } => {
            let names: Vec<&str> = kinds.iter().map(|&kind| kind_name(kind)).collect();
            let what = format!("{} has no --{parameter}", kind_name(kind));
            Error::user(what).hint(format!("it belongs to --kind {}", names.join(", ")))
        }
        Unfit::NoStrips => Error::user("cannot lay files out by varstrip without its strips")
            .hint("name them, as in --strips '0:64 KiB,1:128 KiB'"),
    })
}

fn parse_kind(text: &str) -> std::result::Result<u8, String> {
    kind_named(text).ok_or_else(|| {
        let names: Vec<&str> = KINDS.iter().map(|(_, name)| *name).collect();
        format!("there are {}", names.join(", "))
    })
}

fn parse_size(text: &str) -> std::result::Result<u32, String> {
    let bytes = size::parse(text)?;
    u32::try_from(bytes).map_err(|_| format!("`{text}` is more than 4 GiB"))
}

fn parse_strips(text: &str) -> std::result::Result<Strips, String> {
    let strip = |strip: &str| {
        let (slot, bytes) = strip
            .split_once(':')
            .ok_or_else(|| format!("`{strip}` is not SERVER:SIZE, such as `0:64 KiB`"))?;
        let number = slot.trim().parse().map_err(|_| format!("`{slot}` is not a number"))?;
        Ok([number, parse_size(bytes)?])
    };
    let strips: std::result::Result<Vec<[u32; 2]>, String> = text.split(',').map(strip).collect();
    Ok(Strips(strips?.concat()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use covey_stripe::distribution::TWOD_STRIPE;

    #[test]
    fn strips_are_read_as_pvfs2_writes_them() {
        assert_eq!(parse_strips("0:1K,1:64 KiB, 0:5").unwrap().0, [0, 1024, 1, 65536, 0, 5]);
        for bad in ["", "1", "x:1K", "1:", "0:1K;1:2K", "0:8G"] {
            assert!(parse_strips(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn kinds_are_known_by_their_names() {
        assert_eq!(parse_kind("twod_stripe"), Ok(TWOD_STRIPE));
        assert!(parse_kind("raid").unwrap_err().contains("varstrip"));
    }
}
