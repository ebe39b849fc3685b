//! Writes a configuration as the file that [`super::parse`] reads.

use super::{Config, Emulated, Node, Role, STRIP_BYTES_DEFAULT, VERSION, View, size};
use std::fmt::Write;

/// The text of `covey.toml`.
pub fn render(config: &Config) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_cluster(&mut text, config);
    config.nodes.iter().for_each(|node| {
        let _ = write_node(&mut text, node);
    });
    config.views.iter().for_each(|view| {
        let _ = write_view(&mut text, view);
    });
    text
}

fn write_cluster(text: &mut String, config: &Config) -> std::fmt::Result {
    writeln!(
        text,
        "# One file for the whole cluster: the same on every node. `covey config check` checks it."
    )?;
    writeln!(text, "version = {VERSION}\n\n[cluster]")?;
    writeln!(text, "name = {}", quoted(&config.name))?;
    writeln!(text, "# Which cluster a store belongs to. Never change it.")?;
    writeln!(text, "id = {}", quoted(&config.id))?;
    writeln!(text, "# How many [[node]] follow: a file that was cut short is noticed.")?;
    writeln!(text, "nodes = {}", config.nodes.len())?;
    writeln!(text, "# Bytes per I/O server before the next one, for new files.")?;
    match config.strip_bytes {
        Some(bytes) => writeln!(text, "strip = {}", quoted(&size::exact(bytes.into())))?,
        // Written down it would be somebody's wish, which goes before what was measured.
        None => writeln!(
            text,
            "# strip = {}   # the default, where no tune.toml says otherwise",
            quoted(&size::exact(STRIP_BYTES_DEFAULT.into()))
        )?,
    }
    if config.pacing.is_on {
        writeln!(text, "# Bulk yields to messages: `covey help net`.")?;
        writeln!(text, "pacing = true")?;
    }
    if let Some(bytes) = config.pacing.window_bytes {
        writeln!(text, "pacing_window = {}", quoted(&size::exact(bytes as u64)))?;
    }
    if let Some(mark) = config.pacing.dscp {
        writeln!(text, "pacing_dscp = {mark}")?;
    }
    if let Some(key_file) = &config.key_file {
        writeln!(text, "# Made by `covey keygen`; the same on every node, readable by root only.")?;
        writeln!(text, "key_file = {}", quoted(&key_file.to_string_lossy()))?;
    }
    if let Some(user) = &config.user {
        writeln!(text, "# Who runs the servers: on one machine, clients talk to no other user's.")?;
        writeln!(text, "user = {}", quoted(user))?;
    }
    writeln!(
        text,
        "\n# The order of the nodes with the role data is their index in layouts: add at the \
         end only."
    )
}

fn write_node(text: &mut String, node: &Node) -> std::fmt::Result {
    let list =
        |items: Vec<String>| items.iter().map(|item| quoted(item)).collect::<Vec<_>>().join(", ");
    let mut roles: Vec<String> =
        node.roles.iter().map(|role: &Role| role.word().to_string()).collect();
    if roles.is_empty() {
        roles.push("fs".to_string());
    }
    writeln!(text, "\n[[node]]\nname = {}", quoted(&node.name))?;
    writeln!(text, "roles = [{}]", list(roles))?;
    writeln!(text, "listen = [{}]", list(node.listen.iter().map(ToString::to_string).collect()))?;
    if let Some(store) = &node.store {
        writeln!(text, "store = {}", quoted(&store.to_string_lossy()))?;
    }
    match &node.emulated {
        Some(Emulated { arch, emulator }) => {
            writeln!(text, "# Its programs are emulated.\narch = {}", quoted(arch))?;
            writeln!(text, "emulator = {}", quoted(&emulator.to_string_lossy()))
        }
        None => Ok(()),
    }
}

fn write_view(text: &mut String, view: &View) -> std::fmt::Result {
    writeln!(text, "\n[[view]]\nname = {}", quoted(&view.name))?;
    if !view.nodes.is_empty() {
        writeln!(text, "nodes = {}", quoted(&view.nodes.join(",")))?;
    }
    match &view.cluster {
        Some(file) => writeln!(text, "cluster = {}", quoted(&file.to_string_lossy())),
        None => Ok(()),
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}
