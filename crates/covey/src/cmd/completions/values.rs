//! What may stand for a word of a command line, where that is something of the cluster: the shells' scripts ask for it.
//! Whoever presses a key waits for the answer, so it is a second at most, and an error is no answer.

use crate::cmd::path::{Follow, inside, is_kind, kind};
use crate::cmd::{Cli, Context, volume};
use clap::{Arg, Command, CommandFactory};
use std::ffi::OsString;
use std::time::Duration;

/// How long the cluster may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Most values that are shown.
const VALUES_MAX: usize = 1000;

/// What a value is the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Node,
    /// Nodes, with commas between them.
    Nodes,
    Volume,
    Path,
    /// A path of the file system if it has a colon in front, else one of this machine.
    MarkedPath,
}

/// All that may stand for the last of these words, which follow `covey`.
pub async fn of(words: &[OsString], context: &Context) -> Vec<String> {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let mut root = Cli::command();
    root.build();
    let Some(place) = Place::of(&root, &words) else { return Vec::new() };
    let Some(kind) = place.kind() else { return Vec::new() };
    let config_file = place.config.map(Into::into).or_else(|| context.config_file.clone());
    let context = Context { config_file, ..context.clone() };
    let found = tokio::time::timeout(PATIENCE, kind.values(place.word, &context)).await;
    let is_plain = |value: &String| !value.chars().any(char::is_control);
    let mut found: Vec<String> = found.ok().flatten().unwrap_or_default();
    found.retain(|value| value.starts_with(place.word) && is_plain(value));
    found.sort_unstable();
    found.truncate(VALUES_MAX);
    found.into_iter().map(|value| format!("{}{value}", place.before)).collect()
}

/// Where a command line ends.
#[derive(Debug)]
struct Place<'c> {
    /// The names of the command and its subcommand.
    commands: Vec<&'c str>,
    /// Whose value the last word is.
    argument: &'c Arg,
    /// What the last word has before the value: `--node=`.
    before: &'c str,
    word: &'c str,
    /// The value of --config.
    config: Option<&'c str>,
}

impl<'c> Place<'c> {
    fn of(root: &'c Command, words: &'c [String]) -> Option<Place<'c>> {
        let (last, earlier) = words.split_last()?;
        let (mut command, mut commands) = (root, Vec::new());
        let (mut pending, mut config) = (None::<&Arg>, None);
        let (mut positional, mut is_behind) = (0, false);
        for word in earlier {
            if let Some(argument) = pending.take() {
                config = if argument.get_id() == "config" { Some(word.as_str()) } else { config };
            } else if !is_behind && word == "--" {
                is_behind = true;
            } else if !is_behind && word.starts_with('-') && word.len() > 1 {
                config = word.strip_prefix("--config=").or(config);
                pending = flag(command, word).filter(|argument| takes_value(argument));
            } else if positional == 0
                && let Some(next) = command.find_subcommand(word)
            {
                command = next;
                commands.push(next.get_name());
            } else {
                positional += 1;
            }
        }
        let (argument, before, word) = match (pending, last.split_once('=')) {
            (Some(argument), _) => (argument, "", last.as_str()),
            (None, Some((name, value))) if !is_behind && name.starts_with("--") => {
                (flag(command, name)?, &last[..=name.len()], value)
            }
            (None, _) if !is_behind && last.starts_with('-') => return None,
            (None, _) => {
                let many = command
                    .get_positionals()
                    .last()
                    .filter(|last| last.get_num_args().is_some_and(|count| count.max_values() > 1));
                (command.get_positionals().nth(positional).or(many)?, "", last.as_str())
            }
        };
        Some(Place { commands, argument, before, word, config })
    }

    fn kind(&self) -> Option<Kind> {
        const FILES: [&str; 13] = [
            "ls",
            "cat",
            "mv",
            "rm",
            "mkdir",
            "stat",
            "touch",
            "chmod",
            "chown",
            "truncate",
            "du",
            "layout",
            "consistency",
        ];
        let value = self.argument.get_value_names()?.first()?.as_str();
        match (self.commands.first().copied()?, value) {
            // Their nodes are a lab's, or hosts.
            ("lab" | "tune", _) => None,
            (_, "NODE") => Some(Kind::Node),
            (_, "NODES") => Some(Kind::Nodes),
            ("volume", "NAME") if self.commands.last() != Some(&"create") => Some(Kind::Volume),
            ("cp", "PATH") => Some(Kind::MarkedPath),
            (command, "PATH") if FILES.contains(&command) => Some(Kind::Path),
            _ => None,
        }
    }
}

/// The flag that a word is, long or short.
fn flag<'c>(command: &'c Command, word: &str) -> Option<&'c Arg> {
    let is_meant = |argument: &&Arg| match word.strip_prefix("--") {
        Some(long) => argument.get_long() == Some(long),
        None => argument.get_short().is_some_and(|short| word[1..].chars().eq([short])),
    };
    command.get_arguments().find(is_meant)
}

fn takes_value(argument: &Arg) -> bool {
    argument.get_action().takes_values()
}

impl Kind {
    async fn values(self, word: &str, context: &Context) -> Option<Vec<String>> {
        match self {
            Kind::Node => Some(nodes(context)?),
            Kind::Nodes => {
                let before = word.rfind(',').map_or("", |at| &word[..=at]);
                Some(nodes(context)?.into_iter().map(|node| format!("{before}{node}")).collect())
            }
            Kind::Volume => Some(volume::names(&context.config().ok()?, context).await),
            Kind::MarkedPath if !word.starts_with(':') && !word.starts_with("covey:") => None,
            Kind::Path | Kind::MarkedPath => paths(word, context).await,
        }
    }
}

fn nodes(context: &Context) -> Option<Vec<String>> {
    let config = context.config().ok()?;
    Some(config.nodes.iter().map(|node| node.name.clone()).collect())
}

/// What lies in the directory of a path, with the path as it is written so far in front.
async fn paths(word: &str, context: &Context) -> Option<Vec<String>> {
    let end = word.rfind(['/', ':']).map_or(0, |at| at + 1);
    let (before, begin) = word.split_at(end);
    let session = context.session().await.ok()?;
    let dir = session.resolve(&inside(before.as_ref()), Follow::Last).await.ok()?;
    let entries = session.entries(dir.id).await.ok()?;
    let named = entries.into_iter().filter_map(|(name, inode)| {
        let name = std::str::from_utf8(name.as_bytes()).ok()?;
        // As for files of the machine: hidden ones if they are asked for.
        let is_shown =
            name.starts_with(begin) && (!name.starts_with('.') || begin.starts_with('.'));
        let end = if is_kind(&inode, kind::DIR) { "/" } else { "" };
        is_shown.then(|| format!("{before}{name}{end}"))
    });
    Some(named.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(line: &str) -> Option<(Option<Kind>, String, String)> {
        let mut root = Cli::command();
        root.build();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let place = Place::of(&root, &words)?;
        Some((place.kind(), place.before.to_owned(), place.word.to_owned()))
    }

    #[test]
    fn a_word_is_completed_as_what_it_stands_for() {
        for (line, kind, before, word) in [
            ("ping io", Some(Kind::Node), "", "io"),
            ("ping io1 ", Some(Kind::Node), "", ""),
            ("--config c stats --watch io", Some(Kind::Node), "", "io"),
            ("serve --node ", Some(Kind::Node), "", ""),
            ("serve --node=i", Some(Kind::Node), "--node=", "i"),
            ("run -w n1,n", Some(Kind::Nodes), "", "n1,n"),
            ("volume rm d", Some(Kind::Volume), "", "d"),
            ("volume create d", None, "", "d"),
            ("ls -l /doc", Some(Kind::Path), "", "/doc"),
            ("layout set :/d", Some(Kind::Path), "", ":/d"),
            ("chmod 644 a", Some(Kind::Path), "", "a"),
            ("cp -r a :/b", Some(Kind::MarkedPath), "", ":/b"),
            ("rm -- -x", Some(Kind::Path), "", "-x"),
            ("lab exec n", None, "", "n"),
            ("chmod 6", None, "", "6"),
        ] {
            let expected = Some((kind, before.to_owned(), word.to_owned()));
            assert_eq!(place(line), expected, "{line}");
        }
        for line in ["pi", "", "ping --js", "status x", "nonsense x y"] {
            assert_eq!(place(line), None, "{line}");
        }
    }
}
