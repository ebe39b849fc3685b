//! `covey stat`: everything about a file.

use super::ls::{major, minor};
use super::mounted::{Place, Sight};
use super::names::{Kind, Names};
use super::path::{Failures, Follow, is_kind, kind};
use super::{Context, show};
use crate::error::Result;
use covey_stripe::client::Stat;
use std::ffi::OsString;
use std::io::Write;

/// Show everything about files
///
/// Times are UTC. A symbolic link is shown itself unless -L. A path on a mount of this machine is
/// looked at there, which needs no key; with a `:` before it, it is the cluster's own.
///
/// EXAMPLES
///
///     covey stat /doc/README
///     covey --json stat /doc | jq '.[0].size'
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The files
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Follow symbolic links
    #[arg(short = 'L', long)]
    dereference: bool,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let places = Place::all(&args.paths)?;
    let sight = Sight::of(&places, context).await?;
    let mut failures = Failures::default();
    let follow = if args.dereference { Follow::Last } else { Follow::NotLast };
    let mut found: Vec<(Vec<u8>, Stat)> = Vec::new();
    for place in &places {
        let stat = failures.take(sight.stat("look at", place, follow).await, context);
        found.extend(stat.map(|stat| (place.path().to_vec(), stat)));
    }
    let json: Vec<_> =
        found.iter().map(|(path, stat)| show::json(path, &stat.inode, Some(stat.blocks))).collect();
    let result = context.output.result(&json, |out| {
        let (users, groups) = (Names::local(Kind::User), Names::local(Kind::Group));
        found.iter().try_for_each(|(path, stat)| write(out, path, stat, &users, &groups))
    });
    sight.close(result).await?;
    failures.result()
}

fn write(
    out: &mut Vec<u8>,
    path: &[u8],
    stat: &Stat,
    users: &Names,
    groups: &Names,
) -> std::io::Result<()> {
    let inode = &stat.inode;
    out.extend(b"  File: ");
    out.extend(show::name_and_target(path, inode));
    writeln!(
        out,
        "\n  Size: {:<15} Blocks: {:<10} {}",
        inode.size,
        stat.blocks,
        show::kind_word(inode)
    )?;
    write!(out, "    Id: {:<15} Links: {:<11}", inode.id, inode.nlink)?;
    if is_kind(inode, kind::CHAR) || is_kind(inode, kind::BLOCK) {
        write!(out, " Device: {},{}", major(inode.rdev), minor(inode.rdev))?;
    }
    let (mode, bits) = (show::mode(inode.mode), inode.mode & 0o7777);
    let (user, group) = (users.name(inode.uid), groups.name(inode.gid));
    writeln!(
        out,
        "\nAccess: ({bits:04o}/{mode})  Uid: ({}/{user})  Gid: ({}/{group})",
        inode.uid, inode.gid
    )?;
    for (name, time) in [
        ("Access", inode.atime),
        ("Modify", inode.mtime),
        ("Change", inode.ctime),
        (" Birth", inode.btime),
    ] {
        writeln!(out, "{name}: {}", show::exact_time(time))?;
    }
    Ok(())
}
