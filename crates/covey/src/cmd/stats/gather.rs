//! A text file of several nodes. All are asked at the same time, each for a bounded time: one that is dead or stopped hides
//! nothing of the others.

use super::{hint_at_owner, is_refusal};
use crate::cmd::ping;
use crate::config::Config;
use crate::error::{Cannot, Error, Result};
use covey_cluster::reach;
use covey_ninep::tree::Errno;
use futures_util::future::join_all;
use std::time::Duration;

/// What the nodes have answered, in the order in which they were named.
pub struct Answers<T> {
    /// By node.
    pub shown: Vec<(String, T)>,
    /// Those that gave no answer.
    pub missing: Vec<Missing>,
}

/// A node that gave no answer, and why.
pub struct Missing {
    pub node: String,
    pub error: Error,
}

impl<T> Answers<T> {
    /// What each answer says.
    pub fn map<U>(self, parse: impl Fn(T) -> U) -> Answers<U> {
        let shown = self.shown.into_iter().map(|(node, answer)| (node, parse(answer)));
        Answers { shown: shown.collect(), missing: self.missing }
    }

    /// Fails where no node at all has answered: there is nothing to show.
    pub fn any(self, what: impl Fn(&str) -> String) -> Result<Answers<T>> {
        if self.shown.is_empty() {
            failure(&self.missing, what)?;
        }
        Ok(self)
    }
}

/// The names of nodes that gave no answer.
pub fn names_of(missing: &[Missing]) -> Vec<&str> {
    missing.iter().map(|one| one.node.as_str()).collect()
}

/// Reads a file of each node.
pub async fn read(config: &Config, names: &[String], file: &str) -> Answers<String> {
    each(ping::LIMIT, names, async |name| reach::read_of(config, name, file).await).await
}

/// Asks each node, for at most this time.
pub async fn each<T>(
    limit: Duration,
    names: &[String],
    ask: impl AsyncFn(&str) -> Result<T>,
) -> Answers<T> {
    let ask = &ask;
    let asked = names.iter().map(|name| async move {
        let answer = tokio::time::timeout(limit, ask(name)).await;
        (name.clone(), answer.unwrap_or_else(|_| Err(too_late(limit))))
    });
    let mut answers = Answers { shown: Vec::new(), missing: Vec::new() };
    for (node, answer) in join_all(asked).await {
        match answer {
            Ok(answer) => answers.shown.push((node, answer)),
            Err(error) => answers.missing.push(Missing { node, error }),
        }
    }
    answers
}

fn too_late(limit: Duration) -> Error {
    let what = format!("no answer within {} s", limit.as_secs());
    Errno::because(Errno::ETIMEDOUT, what).into()
}

/// That some nodes gave no answer, and why: `what` is what was wanted of them, in words, by their names.
pub fn failure(missing: &[Missing], what: impl Fn(&str) -> String) -> Result<()> {
    let Some(first) = missing.first() else { return Ok(()) };
    let (code, kind) = (first.error.code(), first.error.kind);
    let is_same = |one: &Missing| one.error.message == first.error.message;
    let names = names_of(missing);
    let error = if missing.iter().all(is_same) {
        let told = Err::<(), _>(first.error.clone()).cannot(|| what(&names.join(", ")));
        told.expect_err("it was an error")
    } else {
        let why = |one: &Missing| format!("{}: {}", one.node, one.error.message);
        let all: Vec<String> = missing.iter().map(why).collect();
        Error::work(format!("cannot {}: {}", what(&names.join(", ")), all.join("; ")))
    };
    // What was wrong with the command or its configuration was wrong for each node.
    let hinted = match (is_refusal(code), error.kind == kind && code.is_none()) {
        (true, _) => hint_at_owner(error, code),
        (_, true) => error,
        // It has answered.
        _ if code == Some(Errno::EINVAL) => error,
        _ => error.hint("`covey status` shows which servers are up, and where their logs are"),
    };
    Err(hinted)
}

/// Who is missing, in words: `io2 does not answer and is not shown`. None when nobody is.
pub fn in_words(missing: &[Missing]) -> Option<String> {
    let names = names_of(missing);
    match names[..] {
        [] => None,
        [one] => Some(format!("{one} does not answer and is not shown")),
        _ => Some(format!("{} do not answer and are not shown", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(node: &str, code: u32) -> Missing {
        Missing { node: node.into(), error: Errno::from(code).into() }
    }

    #[test]
    fn who_gave_no_answer_is_named_with_the_reason_and_a_hint() {
        let what = |names: &str| format!("read /stats of {names}");
        let failed = |all: &[Missing]| failure(all, what).expect_err("somebody is missing");
        assert!(failure(&[], what).is_ok());
        let error = failed(&[missing("io1", Errno::ENOENT), missing("io2", Errno::EIO)]);
        let begin = "cannot read /stats of io1, io2: io1: ";
        assert!(error.message.starts_with(begin), "{}", error.message);
        assert!(error.message.contains("; io2: "), "{}", error.message);
        assert!(error.hints[0].contains("covey status"), "{:?}", error.hints);
        let error = failed(&[missing("io1", Errno::EACCES), missing("io2", Errno::EACCES)]);
        assert!(error.message.contains("of io1, io2: "), "{}", error.message);
        assert!(error.hints[0].contains("only root and the servers' owner"), "{:?}", error.hints);
        let keyless = Missing { node: "io1".into(), error: Error::config("cannot read the key") };
        assert_eq!(failed(&[keyless]).kind.exit_code(), 2);
    }

    #[test]
    fn the_missing_are_named_in_a_sentence() {
        assert_eq!(in_words(&[]), None);
        let one = [missing("io1", Errno::EIO)];
        assert_eq!(in_words(&one).unwrap(), "io1 does not answer and is not shown");
        let two = [missing("io1", Errno::EIO), missing("io2", Errno::EIO)];
        assert_eq!(in_words(&two).unwrap(), "io1, io2 do not answer and are not shown");
    }

    #[tokio::test]
    async fn one_that_never_answers_hides_nobody() {
        let names = ["io1", "io2", "io3"].map(String::from);
        let answers = each(Duration::ZERO, &names, async |name| match name {
            "io2" => std::future::pending().await,
            name => Ok(name.len()),
        });
        let answers = answers.await;
        assert_eq!(answers.shown, [("io1".into(), 3), ("io3".into(), 3)]);
        assert_eq!(names_of(&answers.missing), ["io2"]);
        assert!(answers.missing[0].error.message.contains("no answer within 0 s"));
    }
}
