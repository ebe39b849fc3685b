//! `covey quota`: how much users and groups may own.

use super::names::{Kind, Names};
use super::{Context, Session};
use crate::config::size;
use crate::error::{Cannot, Error, Result};
use covey_stripe::meta::quota;
use covey_stripe::ops::Quota;
use serde_json::{Value, json};

/// Limit how much users and groups may own
///
/// Bytes are sizes of files, so a hole counts like what it reads as; files are everything with a name of its own:
/// directories, symbolic links and files that lie in a directory more than once count once. Whoever would pass a limit
/// gets EDQUOT (`Disk quota exceeded`); root never does. A write that passes it fails as a whole or in part, as on a
/// full disk.
///
/// What is owned is counted from the first limit on. Files that are there already are counted meanwhile, some hundred
/// thousand a second, and limits hold when that is done.
///
/// EXAMPLES
///
///     covey quota set --user alice --bytes 100G --files 1000000
///     covey quota set --group students --bytes 2T
///     covey quota set --user alice --files none
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
    /// Set the limits of a user or a group; what is not named stays
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
    #[arg(long, value_name = "BYTES", value_parser = bytes, required_unless_present = "files")]
    bytes: Option<u64>,
    /// Files, directories and all else; `none` for no limit
    #[arg(long, value_name = "N", value_parser = files)]
    files: Option<u64>,
}

#[derive(clap::Args, Debug)]
struct Whose {
    /// Of this user, by name or number
    #[arg(long, value_name = "USER", conflicts_with = "group")]
    user: Option<String>,
    /// Of this group, by name or number
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
}

impl Whose {
    fn find(&self) -> Result<Option<(u8, u32)>> {
        Ok(match (&self.user, &self.group) {
            (Some(user), _) => Some((quota::USER, Names::local(Kind::User).id(user)?)),
            (None, Some(group)) => Some((quota::GROUP, Names::local(Kind::Group).id(group)?)),
            (None, None) => None,
        })
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
    let Some((kind, id)) = set.whose.find()? else {
        return Err(Error::user("cannot set a quota: whose?").hint("name --user or --group"));
    };
    let known = session.fs.quota(&session.who, (kind, id)).await.cannot(|| "ask for the quota")?;
    let (bytes_max, files_max) = (quota::NO_LIMIT, quota::NO_LIMIT);
    let known = known.unwrap_or(Quota { kind, id, bytes_max, files_max, ..Quota::default() });
    let wanted = Quota {
        bytes_max: set.bytes.unwrap_or(known.bytes_max),
        files_max: set.files.unwrap_or(known.files_max),
        ..known
    };
    session.fs.set_quota(&session.who, wanted).await.cannot(|| "set a quota")?;
    context.output.result(&json_of(&wanted), |_| Ok(()))
}

async fn show(session: &Session, whose: &Whose, context: &Context) -> Result<()> {
    let only = whose.find()?;
    let asked = session.fs.quotas(&session.who).await;
    let (mut quotas, is_whole) = asked.cannot(|| "ask for the quotas")?;
    quotas.retain(|quota| only.is_none_or(|only| only == (quota.kind, quota.id)));
    let value = json!({
        "counted": is_whole, "quotas": quotas.iter().map(json_of).collect::<Vec<_>>(),
    });
    let names = [Names::local(Kind::User), Names::local(Kind::Group)];
    context.output.result(&value, |out| {
        let heading = ["", "NAME", ">BYTES", ">LIMIT", ">USE", ">FILES", ">LIMIT", ">USE"];
        let cells: Vec<_> = quotas.iter().map(|quota| cells(quota, &names)).collect();
        crate::output::table(out, &heading, &cells);
        Ok(())
    })?;
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

fn word(kind: u8) -> &'static str {
    if kind == quota::USER { "user" } else { "group" }
}

fn json_of(quota: &Quota) -> Value {
    let limit = |limit: u64| (limit != quota::NO_LIMIT).then_some(limit);
    json!({
        "whose": word(quota.kind), "id": quota.id, "bytes": quota.bytes,
        "bytes_max": limit(quota.bytes_max), "files": quota.files,
        "files_max": limit(quota.files_max),
    })
}

fn cells(quota: &Quota, [users, groups]: &[Names; 2]) -> Vec<String> {
    let names = if quota.kind == quota::USER { users } else { groups };
    let limit = |limit: u64, show: fn(u64) -> String| match limit {
        quota::NO_LIMIT => "-".to_owned(),
        limit => show(limit),
    };
    let share = |used: u64, limit: u64| match limit {
        quota::NO_LIMIT => "-".to_owned(),
        limit => format!("{}%", super::df::share(used, limit)),
    };
    vec![
        word(quota.kind).to_owned(),
        names.name(quota.id),
        size::rounded(quota.bytes),
        limit(quota.bytes_max, size::rounded),
        share(quota.bytes, quota.bytes_max),
        quota.files.to_string(),
        limit(quota.files_max, |files| files.to_string()),
        share(quota.files, quota.files_max),
    ]
}
