//! `covey server chains`: the table of chains, as the metadata server keeps it.

use crate::cmd::Context;
use crate::error::{Cannot, Error, Result};
use covey_stripe::chain::{Chain, Member};
use covey_stripe::client::Fs;
use serde_json::{Value, json};

pub async fn chains(fs: &Fs, context: &Context) -> Result<()> {
    let cannot = || "ask for the chains";
    let chains = fs.chains().await.cannot(cannot)?;
    if chains.is_empty() {
        return Err(Error::user("cannot ask for the chains: the metadata server knows none")
            .hint("it is of an older version: see \"Upgrading\" in the manual"));
    }
    let servers = fs.servers();
    let rows: Vec<Value> =
        chains.iter().enumerate().map(|(at, chain)| json_of(at, chain, &servers)).collect();
    context.output.result(&rows, |out| {
        let heading = [">CHAIN", ">GENERATION", "SERVER", "STATE", "STORE"];
        let chains = chains.iter().enumerate();
        let cells: Vec<_> = chains.flat_map(|(at, chain)| cells(at, chain, &servers)).collect();
        crate::output::table(out, &heading, &cells);
        Ok(())
    })
}

fn json_of(index: usize, chain: &Chain, servers: &[String]) -> Value {
    let member = |member: &Member| {
        json!({ "server": name(member, servers), "store": member.store.lossy(),
                "state": state(member, servers) })
    };
    let members: Vec<Value> = chain.members.0.iter().map(member).collect();
    json!({ "chain": index, "generation": chain.generation, "members": members })
}

/// A line for each member; the chain stands before the first.
fn cells(index: usize, chain: &Chain, servers: &[String]) -> Vec<Vec<String>> {
    let line = |(at, member): (usize, &Member)| {
        let first = |text: String| if at == 0 { text } else { String::new() };
        let store = if member.store.is_empty() { "-".into() } else { member.store.lossy() };
        vec![
            first(index.to_string()),
            first(chain.generation.to_string()),
            name(member, servers).to_owned(),
            state(member, servers).to_owned(),
            store.into_owned(),
        ]
    };
    chain.members.0.iter().enumerate().map(line).collect()
}

fn name<'a>(member: &Member, servers: &'a [String]) -> &'a str {
    match servers.get(usize::from(member.server)) {
        Some(name) if !name.is_empty() => name,
        _ => "-",
    }
}

/// The server of a chain may have left the cluster: then no file is on it.
fn state(member: &Member, servers: &[String]) -> &'static str {
    let is_removed = servers.get(usize::from(member.server)).is_some_and(String::is_empty);
    if is_removed { "removed" } else { member.state().word() }
}
