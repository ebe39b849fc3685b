//! A file system of four I/O servers in a lab, and clients that mount it.

use crate::error::{Cannot, Result};
use crate::reproduce::bench::Bench;
use serde_json::Value;

/// So many I/O servers, as in the paper.
const IO_SERVERS: usize = 4;

/// A mounted file system.
#[derive(Debug)]
pub struct Mounted {
    /// The nodes that mount it; they serve nothing.
    pub clients: Vec<String>,
    /// Where it is mounted on each.
    pub dir: String,
}

/// Makes the lab with so many clients, starts the servers and mounts.
pub async fn up(bench: &mut Bench, link: &str, is_apart: bool, clients: usize) -> Result<Mounted> {
    let servers = IO_SERVERS + usize::from(is_apart);
    bench.lab(&[&(servers + clients).to_string(), "--link", link]).await?;
    if !is_apart {
        describe(bench).await?;
    }
    let count = IO_SERVERS.to_string();
    let words: &[&str] = if is_apart { &["up", "-n", &count] } else { &["up"] };
    bench.covey_on::<Value>("n1", words).await?;
    let dir = bench.now()?.file("mount").display().to_string();
    let clients: Vec<String> = (1..=clients).map(|one| format!("n{}", servers + one)).collect();
    for client in &clients {
        bench.covey_on::<Value>(client, &["mount", &dir]).await?;
    }
    Ok(Mounted { clients, dir })
}

/// Four I/O servers of which the first keeps the names too: `covey up` makes that only where each node of the
/// lab is a server, and a client should be none.
async fn describe(bench: &mut Bench) -> Result<()> {
    let home = bench.now()?.file("cluster");
    std::fs::create_dir_all(&home).cannot(|| format!("make {}", home.display()))?;
    let path = |name: &str| home.join(name).display().to_string();
    let (config, key, store) = (path("covey.toml"), path("key"), path("store"));
    let hosts = format!("n[1-{IO_SERVERS}]");
    bench.covey::<Value>(&["keygen", &key]).await?;
    let words = [
        "genconfig",
        "--io",
        &hosts,
        "--meta",
        "n1",
        "--store",
        &store,
        "--key-file",
        &key,
        "-o",
        &config,
    ];
    bench.covey::<Value>(&words).await?;
    let text = std::fs::read_to_string(&config).cannot(|| format!("read {config}"))?;
    std::fs::write(&config, without_sockets(&text)).cannot(|| format!("write {config}"))?;
    bench.covey_on::<Value>("n1", &["--config", &config, "init", "--all"]).await?;
    Ok(())
}

/// Nodes of a lab share the machine's files: a Unix socket would be a way past the network.
fn without_sockets(config: &str) -> String {
    let line = |line: &str| match (line.find("\"unix!"), line.find("\"tcp!")) {
        (Some(unix), Some(tcp)) if unix < tcp => format!("{}{}\n", &line[..unix], &line[tcp..]),
        _ => format!("{line}\n"),
    };
    config.lines().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_found_by_the_network_alone() {
        let text = "name = \"n1\"\nlisten = [\"unix!/run/n1.sock\", \"tcp!n1!5640\"]\n";
        assert_eq!(without_sockets(text), "name = \"n1\"\nlisten = [\"tcp!n1!5640\"]\n");
    }
}
