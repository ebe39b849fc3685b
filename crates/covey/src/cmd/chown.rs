//! `covey chown`: owners and groups.

use super::names::{Kind, Names};
use super::path::{Failures, Follow, inside, shown};
use super::{Context, tree};
use crate::error::{Cannot, Error, Result};
use covey_ninep::tree::SetAttr;
use futures_util::FutureExt;
use std::ffi::OsString;

/// Change owner and group
///
/// Only root changes owners; an owner may give files to one of their own groups.
///
/// EXAMPLES
///
///     covey chown alice /doc/a
///     covey chown -R alice:staff /doc
///     covey chown :staff /doc/a
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment, disable_help_flag = true)]
pub struct Args {
    /// USER, USER:GROUP or :GROUP, by name or number
    #[arg(value_name = "OWNER")]
    owner: String,
    /// The files
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Everything below, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Symbolic links themselves, not their targets
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::HelpLong)]
    help: Option<bool>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let set = wanted(&args.owner)?;
    let session = context.session().await?;
    let mut failures = Failures::default();
    let follow = if args.no_dereference || args.recursive { Follow::NotLast } else { Follow::Last };
    let mut count = 0;
    for path in args.paths.iter().map(|path| inside(path)) {
        let inode = session.find("change the owner of", &path, follow).await;
        let Some(inode) = failures.take(inode, context) else { continue };
        let entries = if args.recursive {
            tree::list(&session, "list", (path, inode), &mut failures, context).await
        } else {
            vec![(path, inode)]
        };
        let (session, set) = (&session, &set);
        let results = tree::each(entries, |(path, inode)| {
            async move {
                let result = session.fs.setattr(&session.who, inode.id, set.clone()).await;
                result.cannot(|| format!("change the owner of {}", shown(&path)))
            }
            .boxed_local()
        });
        count +=
            results.await.into_iter().filter_map(|result| failures.take(result, context)).count();
    }
    let result = context.output.result(&serde_json::json!({ "changed": count }), |_| Ok(()));
    session.close(result).await?;
    failures.result()
}

fn wanted(owner: &str) -> Result<SetAttr> {
    let (user, group) =
        owner.split_once(':').map_or((owner, None), |(user, group)| (user, Some(group)));
    let group = group.filter(|group| !group.is_empty());
    if user.is_empty() && group.is_none() {
        return Err(Error::user(format!("cannot understand the owner `{owner}`: it names nobody"))
            .hint("write USER, USER:GROUP or :GROUP"));
    }
    let uid = (!user.is_empty()).then(|| Names::local(Kind::User).id(user)).transpose()?;
    let gid = group.map(|group| Names::local(Kind::Group).id(group)).transpose()?;
    Ok(SetAttr { uid, gid, ..SetAttr::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_users_groups_or_both() {
        let ids = |owner: &str| wanted(owner).map(|set| (set.uid, set.gid)).ok();
        assert_eq!(ids("root"), Some((Some(0), None)));
        assert_eq!(ids("root:root"), Some((Some(0), Some(0))));
        assert_eq!(ids(":7"), Some((None, Some(7))));
        assert_eq!(ids("5:"), Some((Some(5), None)));
        assert_eq!((ids(""), ids(":")), (None, None));
    }
}
