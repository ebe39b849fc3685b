//! `covey init`: formats stores.

use super::{Context, serve};
use crate::error::{Cannot, Result};

/// Format the store of a node, once, before it serves for the first time
///
/// Makes the directory that covey.toml names and marks it as this node's of this cluster. A
/// directory that holds anything, or that belongs to another node or cluster, is refused and left
/// as it is.
///
/// EXAMPLES
///
///     covey init --node node1    on node1
///     covey init --all           every store, when all are on this machine
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Which node of covey.toml [default: the one named like this host]
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    node: Option<String>,
    /// Every node
    #[arg(long)]
    all: bool,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    let names: Vec<String> = match (args.all, args.node) {
        (true, _) => config.nodes.iter().map(|node| node.name.clone()).collect(),
        (false, Some(name)) => vec![name],
        (false, None) => vec![serve::this_host(&config)?],
    };
    for name in &names {
        config.node(name)?;
    }
    let mut formatted = Vec::new();
    for name in &names {
        let node = config.node(name)?;
        let Some(store) = &node.store else { continue };
        covey_serve::init(&config, name).await.cannot(|| format!("format the store of {name}"))?;
        formatted.push(serde_json::json!({ "node": name, "store": store }));
        context.output.detail(format!("formatted {}", store.display()));
    }
    context.output.result(&formatted, |out| {
        use std::io::Write;
        let stores = formatted.iter().map(|one| (one["node"].as_str(), one["store"].as_str()));
        for (node, store) in stores {
            writeln!(out, "formatted {} for {}", store.unwrap_or("-"), node.unwrap_or("-"))?;
        }
        Ok(())
    })
}
