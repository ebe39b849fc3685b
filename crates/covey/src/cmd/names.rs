//! Users and groups by name: /etc/passwd and /etc/group, and `getent` for what a directory service
//! knows.

use crate::error::{Error, Result};
use std::collections::HashMap;
use std::process::{Command, Stdio};

/// The names of one kind, read once.
#[derive(Debug)]
pub struct Names {
    kind: Kind,
    by_id: HashMap<u32, String>,
    by_name: HashMap<String, u32>,
}

/// What is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Users.
    User,
    /// Groups.
    Group,
}

impl Names {
    /// What the local file says.
    pub fn local(kind: Kind) -> Names {
        let file = if kind == Kind::User { "/etc/passwd" } else { "/etc/group" };
        let mut names = Names { kind, by_id: HashMap::new(), by_name: HashMap::new() };
        for line in std::fs::read_to_string(file).unwrap_or_default().lines() {
            if let Some((name, id)) = entry(line) {
                // The first line of an id is the one that counts, as in getpwuid(3).
                names.by_id.entry(id).or_insert(name.to_string());
                names.by_name.entry(name.to_string()).or_insert(id);
            }
        }
        names
    }

    /// The name of an id, or the number itself.
    pub fn name(&self, id: u32) -> String {
        self.by_id.get(&id).cloned().unwrap_or_else(|| id.to_string())
    }

    /// The id of a name or number.
    pub fn id(&self, name: &str) -> Result<u32> {
        if let Some(id) = self.by_name.get(name).copied().or(name.parse().ok()) {
            return Ok(id);
        }
        let (database, what) = match self.kind {
            Kind::User => ("passwd", "user"),
            Kind::Group => ("group", "group"),
        };
        ask(database, name).ok_or_else(|| {
            Error::user(format!("cannot find {what} {name}: this machine does not know it"))
                .hint(format!("`getent {database}` lists those it knows; a number works always"))
        })
    }
}

fn entry(line: &str) -> Option<(&str, u32)> {
    let mut fields = line.split(':');
    let name = fields.next().filter(|name| !name.is_empty())?;
    Some((name, fields.nth(1)?.parse().ok()?))
}

fn ask(database: &str, name: &str) -> Option<u32> {
    let mut command = Command::new("getent");
    let output = command.args([database, "--", name]).stdin(Stdio::null()).output().ok()?;
    entry(std::str::from_utf8(&output.stdout).ok()?.lines().next()?).map(|(_, id)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_numbers_stand_for_themselves() {
        let users = Names::local(Kind::User);
        assert_eq!((users.name(0).as_str(), users.id("root").unwrap()), ("root", 0));
        assert_eq!(
            (users.name(4_000_000_000).as_str(), users.id("4000000000").unwrap()),
            ("4000000000", 4_000_000_000)
        );
        assert!(users.id("no-such-user").unwrap_err().message.contains("no-such-user"));
    }
}
