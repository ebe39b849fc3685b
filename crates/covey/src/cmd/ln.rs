//! `covey ln`: hard and symbolic links.

use super::path::{Follow, below, inside, kind, last_name, shown, text};
use super::{Context, Session, mv};
use crate::error::{Cannot, Error, Result};
use covey_ninep::tree::{Errno, Removal};
use covey_wire::Name;
use std::ffi::OsString;

/// Make a hard link, or with -s a symbolic link
///
/// A symbolic link stores TARGET as it is written, relative to the link's own directory. When LINK
/// is a directory, the link goes into it under the target's name.
///
/// EXAMPLES
///
///     covey ln /doc/a /doc/b
///     covey ln -s ../shared/model.bin /job/model.bin
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The target of the link
    target: OsString,
    /// The new name
    link: OsString,
    /// A symbolic link
    #[arg(short, long)]
    symbolic: bool,
    /// Replace an existing file of the new name
    #[arg(short, long)]
    force: bool,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let result = link(&args, &session).await;
    let link = session.close(result).await?;
    context.output.result(&serde_json::json!({ "link": text(&link) }), |_| Ok(()))
}

async fn link(args: &Args, session: &Session) -> Result<Vec<u8>> {
    let mut link = inside(&args.link);
    let target = args.target.as_encoded_bytes();
    if mv::is_dir(session, &link).await? {
        let name = last_name(target).ok_or_else(|| {
            Error::user(format!("cannot link into {}: {} has no name", shown(&link), shown(target)))
                .hint("write the new name out")
        })?;
        link = below(&link, name);
    }
    let what = || format!("make link {}", shown(&link));
    let (parent, name) = session.resolve_parent(&link).await.cannot(what)?;
    if args.force {
        match session.fs.unlink(&session.who, parent, &name, Removal::File).await {
            Err(error) if error.code() != Errno::ENOENT => return Err(error).cannot(what),
            _ => {}
        }
    }
    let (fs, who) = (&session.fs, &session.who);
    if args.symbolic {
        fs.make(who, parent, &name, kind::SYMLINK | 0o777, 0, Name::from(target))
            .await
            .cannot(what)?
    } else {
        let inode = session.find("link to", &inside(&args.target), Follow::NotLast).await?;
        fs.link(who, inode.id, parent, &name).await.cannot(what)?
    };
    Ok(link)
}
