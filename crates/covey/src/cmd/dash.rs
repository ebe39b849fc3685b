//! `covey dash`: the cluster in a browser.

use super::http::{self, Fresh, Page, Site};
use super::{Context, ping, stats, status};
use crate::config::{Config, new_id};
use crate::error::{Error, Result};
use covey_cluster::reach;
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Instant;

/// Show the cluster in a browser: servers, traffic, clients, slow requests
///
/// One page, and nothing of it comes from elsewhere. It shows what `covey status`, `stats` and `stats --slow` show to
/// who runs this command. Its address has a secret in it: whoever has the whole address sees the page, nobody else
/// does, and nobody can change anything. From another machine reach it through ssh -L.
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
    let (config, begun, last) = (Rc::new(config), Instant::now(), Fresh::default());
    let dash = Dash { config, prefix, begun, last };
    http::serve(listener, dash).await;
    Ok(())
}

/// The page, behind its secret.
struct Dash {
    config: Rc<Config>,
    prefix: String,
    begun: Instant,
    last: Fresh,
}

impl Site for Dash {
    async fn page(&self, path: &str) -> Option<Page> {
        let asset = |kind, text: &'static str| Some(Page { kind, body: text.into() });
        match path.strip_prefix(&self.prefix)? {
            "" => asset("text/html; charset=utf-8", include_str!("dash/page.html")),
            "page.css" => asset("text/css; charset=utf-8", include_str!("dash/page.css")),
            "page.js" => asset("text/javascript; charset=utf-8", include_str!("dash/page.js")),
            "state" => {
                let (config, begun) = (self.config.clone(), self.begun);
                let state = async move { state(&config, begun).await.to_string().into() };
                Some(Page { kind: "application/json", body: self.last.get(state).await })
            }
            _ => None,
        }
    }
}

/// What the page shows: `at_ms`, when the nodes were asked, since the command's start; `nodes` as `covey --json status`
/// has them, each with `stats`, the lines of its `/times`, and `slow`, the lines of its `/slow`. Where these may not be
/// read, they are null and `kept_from_us` says so.
async fn state(config: &Config, begun: Instant) -> Value {
    let at_ms = begun.elapsed().as_millis() as u64;
    let rows = status::rows(config).await;
    let nodes = join_all(rows.iter().map(|row| node(config, row))).await;
    json!({ "cluster": config.name, "at_ms": at_ms, "nodes": nodes })
}

async fn node(config: &Config, row: &status::Row) -> Value {
    let mut node = serde_json::to_value(row).expect("a row is plain data");
    if row.up {
        let read = async |file| {
            let text = reach::read_of(config, &row.node, file);
            tokio::time::timeout(ping::LIMIT, text).await.ok()
        };
        let times = read("times").await;
        let is_refusal = |error: &Error| stats::is_refusal(error.code());
        node["kept_from_us"] = json!(matches!(&times, Some(Err(error)) if is_refusal(error)));
        let times = times.and_then(std::result::Result::ok);
        node["stats"] = times.map_or(Value::Null, |text| json!(stats::parse(&text)));
        // The last one first.
        let lines = |text: String| text.lines().rev().map(str::to_owned).collect::<Vec<_>>();
        let slow = read("slow").await.and_then(std::result::Result::ok);
        node["slow"] = json!(slow.map(lines));
    }
    node
}
