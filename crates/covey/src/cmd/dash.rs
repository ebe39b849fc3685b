//! `covey dash`: the cluster in a browser.

mod paths;
mod places;

use super::http::{self, Fresh, Page, Site};
use super::{Context, path, ping, stats, status};
use crate::config::{Config, new_id};
use crate::error::{Error, Result};
use covey_cluster::reach;
use covey_stripe::ops::Id;
use futures_util::future::{join, join_all};
use paths::Paths;
use places::Places;
use serde_json::{Value, json};
use stats::files::named;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

/// Show the cluster in a browser: servers, traffic, clients, files, slow requests
///
/// One page, and nothing of it comes from elsewhere. It shows what `covey status`, `stats`,
/// `stats --files`, `stats --slow` and `server ls` show to who runs this command, how far `covey
/// server drain` and `rebalance` are, and what the last `covey fsck` has found. Its address has a
/// secret in it: whoever has the whole address sees the page, nobody else does, and nobody can
/// change anything. From another machine reach it through ssh -L.
///
/// EXAMPLES
///
///     covey dash
///     covey dash --listen 127.0.0.1:8000
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Where to listen; port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    if !args.listen.ip().is_loopback() {
        return Err(Error::user(format!("cannot show the page at {}: not encrypted", args.listen))
            .hint("listen on 127.0.0.1, and reach it through ssh -L"));
    }
    let (listener, address) = http::listen(args.listen).await?;
    // 128 random bits.
    let prefix = format!("/{}/", new_id()?);
    let url = format!("http://{address}{prefix}");
    context.output.result(&json!({ "url": url }), |out| {
        use std::io::Write;
        writeln!(out, "{url}")
    })?;
    context.output.say(format!("{} is shown there until Ctrl-C", config.name));
    let asked = Rc::new(Asked {
        config,
        begun: Instant::now(),
        places: Places::default(),
        paths: Paths::default(),
    });
    let dash = Dash { asked, prefix, last: Fresh::default() };
    http::serve(listener, dash).await;
    Ok(())
}

/// The page, behind its secret.
struct Dash {
    asked: Rc<Asked>,
    prefix: String,
    last: Fresh,
}

/// The cluster that is asked, since when, the session in which, and the paths that are known.
struct Asked {
    config: Config,
    begun: Instant,
    places: Places,
    paths: Paths,
}

impl Site for Dash {
    async fn page(&self, path: &str) -> Option<Page> {
        let asset = |kind, text: &'static str| Some(Page { kind, body: text.into() });
        match path.strip_prefix(&self.prefix)? {
            "" => asset("text/html; charset=utf-8", include_str!("dash/page.html")),
            "page.css" => asset("text/css; charset=utf-8", include_str!("dash/page.css")),
            "page.js" => asset("text/javascript; charset=utf-8", include_str!("dash/page.js")),
            "state" => {
                let asked = self.asked.clone();
                let state = async move { asked.state().await.to_string().into() };
                Some(Page { kind: "application/json", body: self.last.get(state).await })
            }
            _ => None,
        }
    }
}

impl Asked {
    /// What the page shows: `at_ms`, when the nodes were asked, since the command's start; `nodes` as `covey --json status`
    /// has them, each with `stats`, the lines of its `/times`; `slow`, the last slow requests of all of them; `places` as
    /// `covey --json server ls` has them; `paths` those of the busiest files, by their numbers, in words. What may not be read or was not answered is null, and `kept_from_us` says where
    /// it may not.
    async fn state(&self) -> Value {
        let (config, at_ms) = (&self.config, self.begun.elapsed().as_millis() as u64);
        let rows = status::rows(config).await;
        let (nodes, places) =
            join(join_all(rows.iter().map(|row| node(config, row))), self.places.look(config))
                .await;
        let (nodes, slow): (Vec<Value>, Vec<Option<String>>) = nodes.into_iter().unzip();
        let paths = self.paths_of(&nodes).await;
        let names = rows.iter().map(|row| row.node.as_str());
        let slow = last_of_all(names.zip(slow.iter().map(Option::as_deref)));
        json!({
            "cluster": config.name, "at_ms": at_ms, "nodes": nodes, "places": places, "slow": slow,
            "paths": paths,
        })
    }

    /// The paths of the files that the nodes tell of.
    async fn paths_of(&self, nodes: &[Value]) -> Value {
        let lines = nodes.iter().filter_map(|node| node["stats"].as_object());
        let files = lines.flat_map(|lines| lines.keys().filter_map(|line| named(line)));
        let wanted = files.map(|file| file.id).collect();
        let Some(fs) = self.places.session() else { return json!({}) };
        let found = self.paths.find(&fs, &wanted).await;
        found.iter().map(|(id, found)| (number(*id), json!(path::shown(found)))).collect()
    }
}

/// A node, and its slow requests.
async fn node(config: &Config, row: &status::Row) -> (Value, Option<String>) {
    let mut node = serde_json::to_value(row).expect("a row is plain data");
    if !row.up {
        return (node, None);
    }
    let read = async |file| {
        let text = reach::read_of(config, &row.node, file);
        tokio::time::timeout(ping::LIMIT, text).await.ok()
    };
    let (times, slow) = join(read("times"), read("slow")).await;
    let is_refusal = |error: &Error| stats::is_refusal(error.code());
    node["kept_from_us"] = json!(matches!(&times, Some(Err(error)) if is_refusal(error)));
    let times = times.and_then(std::result::Result::ok);
    node["stats"] = times.map_or(Value::Null, |text| json!(with_accounts(stats::parse(&text))));
    (node, slow.and_then(std::result::Result::ok))
}

/// A file's number in words.
fn number(id: Id) -> String {
    format!("{id:016x}")
}

/// Lines of clients and of files say which user, host and job they belong to, and those of files which file.
fn with_accounts(mut lines: stats::Lines) -> stats::Lines {
    for (line, values) in &mut lines {
        let name = line.strip_prefix("client ").and_then(|rest| rest.split_once(' '));
        let account = |client: String, job: String| {
            [("client".into(), json!(client)), ("job".into(), json!(job))]
        };
        if let Some((_, name)) = name {
            let (client, job) = covey_serve::watch::account(name);
            values.extend(account(client, job));
        } else if let Some(file) = named(line) {
            values.extend(account(file.client, file.job));
            values.extend([
                ("file".into(), json!(number(file.id))),
                ("part".into(), json!(file.part)),
            ]);
        }
    }
    lines
}

/// The last slow requests of all nodes, the last one first. They are ordered before they are cut: no node hides the others.
/// Null where no node's are known.
fn last_of_all<'a>(nodes: impl Iterator<Item = (&'a str, Option<&'a str>)>) -> Value {
    let known: Vec<_> = nodes.filter_map(|(node, text)| Some((node, text?))).collect();
    if known.is_empty() {
        return Value::Null;
    }
    let lines =
        known.iter().flat_map(|(node, text)| text.lines().rev().map(move |line| (node, line)));
    let mut slow: Vec<_> = lines
        .map(|(node, line)| {
            let (at, what) = line
                .strip_prefix("at ")
                .and_then(|rest| rest.split_once(' '))
                .unwrap_or(("", line));
            (at.parse::<jiff::Timestamp>().ok(), at, node, what)
        })
        .collect();
    slow.sort_by_key(|(time, ..)| std::cmp::Reverse(*time));
    slow.truncate(SLOW_SHOWN);
    slow.into_iter()
        .map(|(_, at, node, what)| json!({ "at": at, "node": node, "what": what }))
        .collect()
}

/// Slow requests on the page.
const SLOW_SHOWN: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_nodes_slow_requests_hide_no_others() {
        let many: String = (0..256)
            .map(|n| format!("at 2026-11-28T01:{:02}:{:02}.000Z data.write a\n", n / 60, n % 60))
            .collect();
        let late = "at 2026-11-28T01:04:14.500Z meta.Create b\n";
        let nodes = [("io1", Some(many.as_str())), ("io2", None), ("meta", Some(late))];
        let slow = last_of_all(nodes.into_iter());
        let slow = slow.as_array().expect("a list");
        assert_eq!(slow.len(), SLOW_SHOWN);
        assert_eq!(
            (&slow[0]["node"], &slow[0]["at"]),
            (&json!("io1"), &json!("2026-11-28T01:04:15.000Z"))
        );
        assert_eq!(
            slow[1],
            json!({ "node": "meta", "at": "2026-11-28T01:04:14.500Z", "what": "meta.Create b" })
        );
        assert_eq!(last_of_all([("io1", None)].into_iter()), Value::Null);
    }

    #[test]
    fn a_client_has_its_user_host_and_job() {
        let lines = stats::parse("client data \"ann@n1 job 7 pid 3\" bytes 1 count 1\n");
        let line = &with_accounts(lines)["client data ann@n1 job 7 pid 3"];
        assert_eq!((&line["client"], &line["job"]), (&json!("ann@n1"), &json!("7")));
    }
}
