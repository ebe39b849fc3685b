//! `covey quota`: how much users and groups may own, and directories may hold.

use super::names::{Kind, Names};
use super::path::{Follow, inside, shown, text};
use super::{Context, Session};
use crate::config::size;
use crate::error::{Cannot, Error, Result};
use crate::output::counted;
use covey_stripe::check::each_name;
use covey_stripe::meta::quota;
use covey_stripe::ops::{Id, Inode, Project, Quota, ROOT};
use serde_json::{Value, json};
use std::ffi::OsString;

/// Limit how much users and groups may own, and directories may hold
///
/// Bytes are sizes of files, so a hole counts like what it reads as; files are everything with a name of its own:
/// directories, symbolic links and files that lie in a directory more than once count once. Whoever would pass a limit
/// gets EDQUOT (`Disk quota exceeded`); root never does. A write that passes it fails as a whole or in part, as on a
/// full disk.
///
/// The quota of a directory counts everything below it and the directory itself, whoever owns it. Names do not cross the
/// border of such a directory (`Invalid cross-device link`), so mv copies; it lies in no other directory that has a quota.
///
/// What is owned is counted from the first limit on. Files that are there already are counted meanwhile, some hundred
/// thousand a second, and limits hold when that is done.
///
/// EXAMPLES
///
///     covey quota set --user alice --bytes 100G --files 1000000
///     covey quota set --group students --bytes 2T
///     covey quota set --user alice --files none
///     covey quota set --dir /projects/wind --bytes 10T
///     covey quota show
///     covey quota show --user alice
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand, Debug)]
enum Command {
    /// Set the limits of a user, a group or a directory; what is not named stays
    ///
    /// For the first quota of a directory the command goes through what is in it, while others work there; limits hold when it
    /// is done. One that was interrupted is given again.
    Set(Set),
    /// Show what is owned and the limits
    Show(Whose),
    /// Count anew what everybody owns, after damage was repaired
    Recount,
}

#[derive(clap::Args, Debug)]
struct Set {
    #[command(flatten)]
    whose: Whose,
    /// Bytes, such as 100G; `none` for no limit
    #[arg(long, value_name = "BYTES", value_parser = bytes, required_unless_present_any = ["files", "remove"])]
    bytes: Option<u64>,
    /// Files, directories and all else; `none` for no limit
    #[arg(long, value_name = "N", value_parser = files)]
    files: Option<u64>,
    /// The directory has no quota any more
    #[arg(long, requires = "dir", conflicts_with_all = ["bytes", "files"])]
    remove: bool,
}

#[derive(clap::Args, Debug)]
struct Whose {
    /// Of this user, by name or number
    #[arg(long, value_name = "USER", conflicts_with_all = ["group", "dir"])]
    user: Option<String>,
    /// Of this group, by name or number
    #[arg(long, value_name = "GROUP", conflicts_with = "dir")]
    group: Option<String>,
    /// Of this directory, by its path in the file system
    #[arg(long, value_name = "PATH")]
    dir: Option<OsString>,
}

impl Whose {
    /// A user or a group.
    fn find(&self) -> Result<Option<(u8, u32)>> {
        Ok(match (&self.user, &self.group) {
            (Some(user), _) => Some((quota::USER, Names::local(Kind::User).id(user)?)),
            (None, Some(group)) => Some((quota::GROUP, Names::local(Kind::Group).id(group)?)),
            (None, None) => None,
        })
    }

    async fn find_dir(&self, verb: &str, session: &Session) -> Result<Option<Inode>> {
        let Some(dir) = &self.dir else { return Ok(None) };
        session.find(verb, &inside(dir), Follow::Last).await.map(Some)
    }
}

fn bytes(text: &str) -> std::result::Result<u64, String> {
    if text == "none" { Ok(quota::NO_LIMIT) } else { size::parse(text) }
}

fn files(text: &str) -> std::result::Result<u64, String> {
    match text {
        "none" => Ok(quota::NO_LIMIT),
        _ => text
            .parse()
            .map_err(|_| format!("`{text}` is no number of files; hint: `none` for no limit")),
    }
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let result = match &args.command {
        Command::Set(set) => change(&session, set, context).await,
        Command::Show(whose) => show(&session, whose, context).await,
        Command::Recount => recount(&session, context).await,
    };
    session.close(result).await
}

async fn change(session: &Session, set: &Set, context: &Context) -> Result<()> {
    if let Some(dir) = set.whose.find_dir("set the quota of", session).await? {
        return change_dir(session, dir.id, set, context).await;
    }
    let Some(who) = set.whose.find()? else {
        return Err(Error::user("cannot set a quota: whose?").hint("name --user, --group or --dir"));
    };
    let wanted = limit(session, who, set).await?;
    context.output.result(&json_of(&wanted, &[]), |_| Ok(()))
}

/// A directory's first quota begins its project.
async fn change_dir(session: &Session, dir: Id, set: &Set, context: &Context) -> Result<()> {
    let Session { fs, who } = session;
    let cannot = || "set the quota of a directory";
    if set.remove {
        let known = fs.projects(who).await.cannot(cannot)?;
        let Some(project) = known.iter().find(|project| project.dir == dir) else {
            return Err(Error::user("cannot remove the quota: the directory has none")
                .hint("`covey quota show` lists those that have one"));
        };
        fs.gather(who, dir, 0).await.cannot(cannot)?;
        fs.end_project(who, project.number, false).await.cannot(cannot)?;
        return context.output.result(&json!({ "removed": true }), |_| Ok(()));
    }
    let project = fs.make_project(who, dir).await.cannot(cannot)?;
    let wanted = limit(session, (quota::PROJECT, project.number), set).await?;
    if !project.is_whole {
        let (bar, say) = context.output.told();
        say("counting what is in the directory".into());
        let gathered = fs.gather(who, dir, project.number).await;
        bar.finish_and_clear();
        let files = gathered.cannot(cannot)?;
        fs.end_project(who, project.number, true).await.cannot(cannot)?;
        context.output.say(format!("counted {}", counted(files, "file")));
    }
    context.output.result(&json_of(&wanted, &[]), |_| Ok(()))
}

/// Sets what is named of the limits.
async fn limit(session: &Session, (kind, id): (u8, u32), set: &Set) -> Result<Quota> {
    let known = session.fs.quota(&session.who, (kind, id)).await.cannot(|| "ask for the quota")?;
    let (bytes_max, files_max) = (quota::NO_LIMIT, quota::NO_LIMIT);
    let known = known.unwrap_or(Quota { kind, id, bytes_max, files_max, ..Quota::default() });
    let wanted = Quota {
        bytes_max: set.bytes.unwrap_or(known.bytes_max),
        files_max: set.files.unwrap_or(known.files_max),
        ..known
    };
    session.fs.set_quota(&session.who, wanted).await.cannot(|| "set a quota")?;
    Ok(wanted)
}

/// A directory that has a quota.
struct Dir {
    project: Project,
    path: Vec<u8>,
}

async fn dirs(session: &Session) -> Result<Vec<Dir>> {
    let mut dirs = Vec::new();
    for project in session.fs.projects(&session.who).await.cannot(|| "ask for the quotas")? {
        if let Some(path) = path_of(session, project.dir).await? {
            dirs.push(Dir { project, path });
        }
    }
    Ok(dirs)
}

/// Where a directory is; None where it is gone.
async fn path_of(session: &Session, dir: Id) -> Result<Option<Vec<u8>>> {
    let (mut names, mut here) = (Vec::new(), dir);
    while here != ROOT {
        let Ok(inode) = session.fs.inode(here).await else { return Ok(None) };
        let mut name = None;
        let found = each_name(&session.fs, inode.parent, |entry| {
            if entry.id == here {
                name = Some(entry.name.as_bytes().to_vec());
            }
        });
        found.await.cannot(|| "find a directory that has a quota")?;
        let Some(name) = name else { return Ok(None) };
        names.push(name);
        here = inode.parent;
    }
    names.reverse();
    Ok(Some([b"/", &names.join(&b'/')[..]].concat()))
}

async fn show(session: &Session, whose: &Whose, context: &Context) -> Result<()> {
    let dirs = dirs(session).await?;
    let only = match whose.find_dir("show the quota of", session).await? {
        Some(inode) => match dirs.iter().find(|dir| dir.project.dir == inode.id) {
            Some(dir) => Some((quota::PROJECT, dir.project.number)),
            None => {
                return Err(Error::user("cannot show the quota: the directory has none")
                    .hint("`covey quota show` lists those that have one"));
            }
        },
        None => whose.find()?,
    };
    let asked = session.fs.quotas(&session.who).await;
    let (mut quotas, is_whole) = asked.cannot(|| "ask for the quotas")?;
    quotas.retain(|quota| only.is_none_or(|only| only == (quota.kind, quota.id)));
    // Those that are over may have files still, by names elsewhere.
    quotas.retain(|quota| quota.kind != quota::PROJECT || dir_of(quota, &dirs).is_some());
    let value = json!({
        "counted": is_whole, "quotas": quotas.iter().map(|quota| json_of(quota, &dirs)).collect::<Vec<_>>(),
    });
    let names = [Names::local(Kind::User), Names::local(Kind::Group)];
    context.output.result(&value, |out| {
        let heading = ["", "NAME", ">BYTES", ">LIMIT", ">USE", ">FILES", ">LIMIT", ">USE"];
        let cells: Vec<_> = quotas.iter().map(|quota| cells(quota, &names, &dirs)).collect();
        crate::output::table(out, &heading, &cells);
        Ok(())
    })?;
    let is_shown =
        |dir: &&Dir| only.is_none_or(|only| only == (quota::PROJECT, dir.project.number));
    for dir in dirs.iter().filter(|dir| !dir.project.is_whole).filter(is_shown) {
        let path = shown(&dir.path);
        context.output.say(format!(
            "not all that is in {path} is counted, and its limits do not hold yet; hint: give its `covey quota set --dir` again"
        ));
    }
    if !is_whole {
        context.output.say("files that were there before the first limit are still being counted");
    }
    Ok(())
}

async fn recount(session: &Session, context: &Context) -> Result<()> {
    session.fs.recount(&session.who).await.cannot(|| "count anew")?;
    context.output.result(&json!({}), |_| Ok(()))?;
    context.output.say("the metadata server counts; `covey quota show` tells when it is done");
    Ok(())
}

fn dir_of<'a>(quota: &Quota, dirs: &'a [Dir]) -> Option<&'a Dir> {
    let is_it = |dir: &&Dir| quota.kind == quota::PROJECT && dir.project.number == quota.id;
    dirs.iter().find(is_it)
}

fn json_of(quota: &Quota, dirs: &[Dir]) -> Value {
    let limit = |limit: u64| (limit != quota::NO_LIMIT).then_some(limit);
    let mut value = json!({
        "whose": quota::word(quota.kind), "id": quota.id, "bytes": quota.bytes,
        "bytes_max": limit(quota.bytes_max), "files": quota.files,
        "files_max": limit(quota.files_max),
    });
    if let Some(dir) = dir_of(quota, dirs) {
        (value["path"], value["counted"]) = (json!(text(&dir.path)), json!(dir.project.is_whole));
    }
    value
}

fn cells(quota: &Quota, [users, groups]: &[Names; 2], dirs: &[Dir]) -> Vec<String> {
    let name = match quota.kind {
        quota::USER => users.name(quota.id),
        quota::GROUP => groups.name(quota.id),
        _ => dir_of(quota, dirs).map_or_else(|| "?".to_owned(), |dir| shown(&dir.path)),
    };
    let limit = |limit: u64, show: fn(u64) -> String| match limit {
        quota::NO_LIMIT => "-".to_owned(),
        limit => show(limit),
    };
    let share = |used: u64, limit: u64| match limit {
        quota::NO_LIMIT => "-".to_owned(),
        limit => format!("{}%", super::df::share(used, limit)),
    };
    vec![
        quota::word(quota.kind).to_owned(),
        name,
        size::rounded(quota.bytes),
        limit(quota.bytes_max, size::rounded),
        share(quota.bytes, quota.bytes_max),
        quota.files.to_string(),
        limit(quota.files_max, |files| files.to_string()),
        share(quota.files, quota.files_max),
    ]
}
