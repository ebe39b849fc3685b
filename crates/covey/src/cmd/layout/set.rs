//! `covey layout set`.

use super::super::path::{Failures, Follow, inside, is_kind, kind, shown, text};
use super::super::{Context, Session};
use super::hint_of;
use crate::config::{Config, parse_strip, size};
use crate::error::{Cannot, Error, Result};
use covey_stripe::distribution::{
    self, BASIC, INLINE_BYTES_DEFAULT, KINDS, PROGRESSIVE, SIMPLE_STRIPE, SINGLE_BYTES_DEFAULT,
    TWOD_STRIPE, VARSTRIP, kind_name,
};
use covey_stripe::ops::{Inode, StripingHint};
use covey_wire::List;
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
    paths: Vec<OsString>,
}

/// The parameters of varstrip.
#[derive(Clone, Debug)]
struct Strips(Vec<u32>);

/// Sets what each path is to have.
pub async fn all(
    args: &Args,
    session: &Session,
    config: &Config,
    failures: &mut Failures,
    context: &Context,
) -> Result<()> {
    let available = config.data().count();
    if let Some(wish) = args.servers.filter(|wish| usize::from(*wish) > available) {
        return Err(Error::user(format!(
            "cannot stripe over {wish} servers: the cluster has {available}"
        ))
        .hint("--servers 0 takes all there are"));
    }
    let mut done = Vec::new();
    for path in args.paths.iter().map(|path| inside(path)) {
        let result = one(args, session, config, &path).await;
        done.extend(failures.take(result, context).map(|()| text(&path)));
    }
    context.output.result(&done, |_| Ok(()))
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
    let now = match hint_of_file(&inode) {
        Some(hint) => hint,
        None => hint_of(session, &inode, config).await?,
    };
    let hint = changed(args, now, config)?;
    distribution::check(&hint, config.data().count()).map_err(|error| {
        Error::user(format!("cannot {}: {}", what(), error.reason))
            .hint("`covey layout set --help` tells what each kind takes")
    })?;
    session.fs.set_striping(&session.who, inode.id, hint).await.cannot(what)
}

/// What an empty file has, so that what is not said stays.
fn hint_of_file(inode: &Inode) -> Option<StripingHint> {
    let striping = inode.striping.as_ref()?;
    Some(StripingHint {
        kind: striping.kind,
        strip_bytes: striping.strip_bytes,
        server_count: u16::try_from(striping.servers.0.len()).unwrap_or(0),
        params: striping.params.clone(),
    })
}

/// The hint with what was said.
fn changed(args: &Args, now: StripingHint, config: &Config) -> Result<StripingHint> {
    let kind = args.kind.unwrap_or(now.kind);
    let same = kind == now.kind;
    refuse_foreign(args, kind)?;
    // Numbers of another kind mean nothing; neither does the one server of basic.
    let before =
        |at: usize, default: u32| now.params.0.get(at).copied().filter(|_| same).unwrap_or(default);
    let params = match kind {
        PROGRESSIVE => {
            let inline = args.inline.unwrap_or_else(|| before(0, INLINE_BYTES_DEFAULT));
            let single = args.single.unwrap_or_else(|| before(1, SINGLE_BYTES_DEFAULT));
            vec![inline, single.max(if args.single.is_none() { inline } else { 0 })]
        }
        TWOD_STRIPE => {
            let factor = args.factor.unwrap_or_else(|| before(1, FACTOR_DEFAULT));
            vec![args.groups.unwrap_or_else(|| before(0, GROUPS_DEFAULT)), factor]
        }
        VARSTRIP => match &args.strips {
            Some(Strips(strips)) => strips.clone(),
            None if same => now.params.0,
            None => {
                return Err(Error::user("cannot lay files out by varstrip without its strips")
                    .hint("name them, as in --strips '0:64 KiB,1:128 KiB'"));
            }
        },
        _ => Vec::new(),
    };
    let strip =
        if now.strip_bytes == 0 { covey_cluster::tuned::strip(config)?.0 } else { now.strip_bytes };
    let fixed = now.kind == BASIC || (kind == VARSTRIP && args.strips.is_some());
    Ok(StripingHint {
        kind,
        strip_bytes: args.strip.unwrap_or(strip),
        server_count: args.servers.unwrap_or(if fixed { 0 } else { now.server_count }),
        params: List(params),
    })
}

/// Refuses options that the kind has no use for: they would be lost without a word.
fn refuse_foreign(args: &Args, kind: u8) -> Result<()> {
    let striped = [SIMPLE_STRIPE, TWOD_STRIPE, PROGRESSIVE];
    let rules: [(&str, bool, &[u8]); 7] = [
        ("--strip", args.strip.is_some(), &striped),
        ("--servers", args.servers.is_some(), &[SIMPLE_STRIPE, TWOD_STRIPE, PROGRESSIVE, VARSTRIP]),
        ("--inline", args.inline.is_some(), &[PROGRESSIVE]),
        ("--single", args.single.is_some(), &[PROGRESSIVE]),
        ("--strips", args.strips.is_some(), &[VARSTRIP]),
        ("--groups", args.groups.is_some(), &[TWOD_STRIPE]),
        ("--factor", args.factor.is_some(), &[TWOD_STRIPE]),
    ];
    for (option, is_given, kinds) in rules {
        if is_given && !kinds.contains(&kind) {
            let names: Vec<&str> = kinds.iter().map(|&kind| kind_name(kind)).collect();
            let what = format!("{} has no {option}", kind_name(kind));
            return Err(
                Error::user(what).hint(format!("it belongs to --kind {}", names.join(", ")))
            );
        }
    }
    Ok(())
}

fn parse_kind(text: &str) -> std::result::Result<u8, String> {
    let found = KINDS.iter().find(|(_, name)| *name == text);
    found.map(|(kind, _)| *kind).ok_or_else(|| {
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

const GROUPS_DEFAULT: u32 = 2;
/// PVFS2's.
const FACTOR_DEFAULT: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

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
