//! Which volume a name means. Each node has a list of its own, so that several nodes may have one of a name: the same, which
//! one serves and others stand by for, or different ones.

use super::{Volume, parse};
use crate::cmd::Context;
use crate::config::Config;
use crate::error::{Error, Result};
use covey_cluster::reach::read_of;
use futures_util::future::join_all;

/// A node whose list could not be read, and why.
pub(super) struct Unread {
    node: String,
    why: String,
}

/// The volumes of all nodes that answer, in the order of the nodes, and the nodes whose list could not be read.
async fn look(config: &Config) -> (Vec<Volume>, Vec<Unread>) {
    let nodes: Vec<&str> = config
        .nodes
        .iter()
        .filter(|node| node.store.is_some())
        .map(|node| node.name.as_str())
        .collect();
    let asked = nodes.iter().map(|node| read_of(config, node, "vol/ctl"));
    let (mut volumes, mut unread) = (Vec::new(), Vec::new());
    for (node, answer) in nodes.iter().zip(join_all(asked).await) {
        let why = match answer {
            Ok(text) => {
                volumes.extend(parse(&text, node));
                let why = text.lines().find(|line| line.starts_with("# the list of volumes"));
                why.map(|why| why[2..].to_owned())
            }
            Err(error) => Some(format!("no answer: {error}")),
        };
        unread.extend(why.map(|why| Unread { node: (*node).to_owned(), why }));
    }
    (volumes, unread)
}

/// The volumes of all nodes that have some, by name; and the nodes whose list could not be read, each of which is told.
pub(super) async fn all(config: &Config, context: &Context) -> (Vec<Volume>, Vec<String>) {
    let (mut volumes, unread) = look(config).await;
    for Unread { node, why } in &unread {
        context.output.say(format!("{node}: {why}"));
    }
    volumes.sort_by(|left, right| (&left.name, &left.node).cmp(&(&right.name, &right.node)));
    (volumes, unread.into_iter().map(|unread| unread.node).collect())
}

/// The volume of this name, at the node that serves it; of different ones the one that `node` has.
pub(super) async fn find(config: &Config, name: &str, node: Option<&str>) -> Result<Volume> {
    let node = node.map(|node| config.node(node)).transpose()?.map(|node| node.name.as_str());
    let (volumes, unread) = look(config).await;
    choose(name, node, volumes, &unread).map(|mut found| found.swap_remove(0))
}

/// The volume that is to be served at `node`: one that the node has, or else the only one of this name.
pub(super) async fn find_for(config: &Config, name: &str, node: &str) -> Result<Volume> {
    let (volumes, unread) = look(config).await;
    let has_one = volumes.iter().any(|one| one.name == name && one.node == node);
    choose(name, has_one.then_some(node), volumes, &unread).map(|mut found| found.swap_remove(0))
}

/// What the nodes know of the volume that a name means, the node that serves it first.
pub(super) fn choose(
    name: &str,
    node: Option<&str>,
    mut volumes: Vec<Volume>,
    unread: &[Unread],
) -> Result<Vec<Volume>> {
    volumes.retain(|one| one.name == name);
    let of_node = |one: &&Volume| node.is_none_or(|node| one.node == node);
    let Some(first) = volumes.iter().find(of_node).cloned() else {
        return Err(not_found(name, node, unread));
    };
    if node.is_none() && volumes.iter().any(|one| !one.is_same_as(&first)) {
        return Err(ambiguous(name, &volumes));
    }
    volumes.retain(|one| one.is_same_as(&first));
    volumes.sort_by_key(|one| (one.closed.is_some(), one.stands_by));
    Ok(volumes)
}

fn not_found(name: &str, node: Option<&str>, unread: &[Unread]) -> Error {
    let who = node.map_or_else(|| "no node has it".to_owned(), |node| format!("{node} has none"));
    let error = Error::work(format!("cannot find volume {name}: {who}"));
    if unread.is_empty() {
        error.hint("`covey volume ls` lists the volumes")
    } else {
        error.hint(format!("not all nodes answered: {}", told(unread)))
    }
}

fn ambiguous(name: &str, volumes: &[Volume]) -> Error {
    let nodes: Vec<&str> = volumes.iter().map(|one| one.node.as_str()).collect();
    let what = "have different volumes of this name";
    Error::work(format!("cannot choose volume {name}: nodes {} {what}", nodes.join(" and ")))
        .hint("--node NODE says whose is meant; `covey volume ls` lists them")
}

fn told(unread: &[Unread]) -> String {
    let each = unread.iter().map(|Unread { node, why }| format!("{node}: {why}"));
    each.collect::<Vec<_>>().join(", ")
}

/// A new volume's name must be nobody's: commands name a volume of the cluster, and so do initiators. What a node has that does
/// not answer nobody knows; `force` goes on without it.
pub(super) async fn check_is_free(
    config: &Config,
    name: &str,
    what: &str,
    force: bool,
) -> Result<()> {
    let (volumes, unread) = look(config).await;
    check_free(name, what, force, &volumes, &unread)
}

fn check_free(
    name: &str,
    what: &str,
    force: bool,
    volumes: &[Volume],
    unread: &[Unread],
) -> Result<()> {
    if let Some(other) = volumes.iter().find(|one| one.name == name) {
        let what = format!("cannot {what} volume {name}: node {} has one of this name", other.node);
        return Err(Error::work(what).hint(format!("`covey volume show {name}` tells what it is")));
    }
    if force || unread.is_empty() {
        return Ok(());
    }
    let why = "what these nodes have is not known, and they may have one of this name";
    Err(Error::work(format!("cannot {what} volume {name}: {why}: {}", told(unread))).hint(
        "start them, or remove from the configuration what is gone for good; --force goes on without them",
    ))
}

impl Volume {
    /// Whether two nodes speak of one volume: a file of the cluster's that one serves and the other stands by for.
    pub(super) fn is_same_as(&self, other: &Volume) -> bool {
        let is_shared = self.backing == "striped" && other.backing == "striped";
        self.node == other.node || (is_shared && self.path == other.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(node: &str, backing: &str, path: &str) -> Volume {
        let [name, node, backing, path] = ["disk", node, backing, path].map(str::to_owned);
        Volume { name, node, backing, path, ..Volume::default() }
    }

    fn stands_by(volume: Volume) -> Volume {
        Volume { stands_by: true, closed: Some("another node serves it".into()), ..volume }
    }

    fn unread() -> Vec<Unread> {
        vec![Unread { node: "io3".into(), why: "no answer: connection refused".into() }]
    }

    fn nodes(found: Result<Vec<Volume>>) -> Vec<String> {
        found.unwrap().into_iter().map(|one| one.node).collect()
    }

    #[test]
    fn different_volumes_of_a_name_are_told_apart_by_their_nodes() {
        let both = || vec![volume("io1", "file", "/srv/disk"), volume("io2", "file", "/srv/disk")];
        let refused = choose("disk", None, both(), &[]).unwrap_err();
        assert!(
            refused.message.contains("nodes io1 and io2 have different"),
            "{}",
            refused.message
        );
        assert!(refused.hints[0].contains("--node NODE"), "{:?}", refused.hints);
        assert_eq!(nodes(choose("disk", Some("io2"), both(), &[])), ["io2"]);
        let refused = choose("disk", Some("io3"), both(), &unread()).unwrap_err();
        assert!(refused.message.contains("io3 has none"), "{}", refused.message);
        assert!(refused.hints[0].contains("io3: no answer"), "{:?}", refused.hints);
        // Nor are a striped one and its namesake.
        let mixed = vec![volume("io1", "striped", "/disk"), volume("io2", "file", "/disk")];
        choose("disk", None, mixed, &[]).unwrap_err();
    }

    #[test]
    fn a_volume_and_those_who_stand_by_for_it_are_one() {
        let both = || {
            let second = volume("io2", "striped", "/disk");
            vec![stands_by(volume("io1", "striped", "/disk")), second]
        };
        for node in [None, Some("io1"), Some("io2")] {
            assert_eq!(nodes(choose("disk", node, both(), &unread())), ["io2", "io1"], "{node:?}");
        }
        choose("other", None, both(), &[]).unwrap_err();
    }

    #[test]
    fn a_name_is_not_free_as_long_as_a_node_does_not_answer() {
        check_free("disk", "create", false, &[], &[]).unwrap();
        let refused = check_free("disk", "create", false, &[], &unread()).unwrap_err();
        assert!(refused.message.contains("io3: no answer"), "{}", refused.message);
        assert!(refused.hints[0].contains("--force"), "{:?}", refused.hints);
        check_free("disk", "create", true, &[], &unread()).unwrap();
        // What is known to be taken stays so.
        let known = [volume("io1", "file", "/srv/disk")];
        check_free("disk", "create", true, &known, &[]).unwrap_err();
    }
}
