//! `covey chmod`: permission bits.

use super::path::{Failures, Follow, inside, is_kind, kind, shown};
use super::{Context, tree};
use crate::error::{Cannot, Result};
use covey_ninep::tree::SetAttr;
use covey_stripe::ops::Inode;
use futures_util::FutureExt;
use std::ffi::OsString;

/// Change permission bits
///
/// MODE is octal, or letters as in chmod(1): who of `ugoa`, then `+`, `-` or `=`, then what of
/// `rwxXst`.
///
/// EXAMPLES
///
///     covey chmod 640 /doc/a
///     covey chmod -R u=rwX,go=rX /doc
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// The change
    #[arg(allow_hyphen_values = true, value_parser = parse)]
    mode: Change,
    /// The files
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Everything below, too
    #[arg(short = 'R', long)]
    recursive: bool,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let session = context.session().await?;
    let mut failures = Failures::default();
    let umask = super::mkdir::umask();
    let mut count = 0;
    for path in args.paths.iter().map(|path| inside(path)) {
        let inode = session.find("change the mode of", &path, Follow::Last).await;
        let Some(inode) = failures.take(inode, context) else { continue };
        let entries = if args.recursive {
            tree::list(&session, "list", (path, inode), &mut failures, context).await
        } else {
            vec![(path, inode)]
        };
        // A link has no mode of its own.
        let entries =
            entries.into_iter().filter(|(_, inode)| !is_kind(inode, kind::SYMLINK)).collect();
        let (session, change) = (&session, &args.mode);
        let results = tree::each(entries, |(path, inode)| {
            let mode = change.apply(&inode, umask);
            async move {
                let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
                let result = session.fs.setattr(&session.who, inode.id, set).await;
                result.cannot(|| format!("change the mode of {}", shown(&path)))
            }
            .boxed_local()
        });
        count +=
            results.await.into_iter().filter_map(|result| failures.take(result, context)).count();
    }
    let result = context.output.result(&serde_json::json!({ "changed": count }), |_| Ok(()));
    session.close(result).await?;
    failures.result()
}

/// What a mode argument asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Exactly these bits.
    Octal(u32),
    /// Clauses, one after the other.
    Letters(Vec<Clause>),
}

/// One of `u+x`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clause {
    /// Bits of those who are meant, all twelve; `None` is everyone within the umask.
    who: Option<u32>,
    operator: char,
    bits: u32,
    /// `X`: x only for directories and for what someone may execute already.
    maybe_execute: bool,
}

/// Reads a mode argument.
fn parse(text: &str) -> std::result::Result<Change, String> {
    let wrong = || format!("`{text}` is not a mode such as 640 or u=rw,g+r");
    if text.starts_with(|letter: char| letter.is_ascii_digit()) {
        let bits = u32::from_str_radix(text, 8).ok().filter(|bits| *bits <= 0o7777);
        return bits.map(Change::Octal).ok_or_else(wrong);
    }
    let mut clauses = Vec::new();
    for clause in text.split(',') {
        let at = clause.find(['+', '-', '=']).ok_or_else(wrong)?;
        let who = who(&clause[..at]).ok_or_else(wrong)?;
        let mut rest = &clause[at..];
        while let Some(operator) = rest.chars().next() {
            let end = rest[1..].find(['+', '-', '=']).map_or(rest.len(), |end| end + 1);
            let (bits, maybe_execute) = bits(&rest[1..end]).ok_or_else(wrong)?;
            clauses.push(Clause { who, operator, bits, maybe_execute });
            rest = &rest[end..];
        }
    }
    Ok(Change::Letters(clauses))
}

fn who(letters: &str) -> Option<Option<u32>> {
    let of = |letter| match letter {
        'u' => Some(0o4700),
        'g' => Some(0o2070),
        'o' => Some(0o1007),
        'a' => Some(0o7777),
        _ => None,
    };
    let bits = letters.chars().try_fold(0, |bits, letter| Some(bits | of(letter)?))?;
    Some((!letters.is_empty()).then_some(bits))
}

fn bits(letters: &str) -> Option<(u32, bool)> {
    let mut maybe_execute = false;
    let mut all = 0;
    for letter in letters.chars() {
        all |= match letter {
            'r' => 0o444,
            'w' => 0o222,
            'x' => 0o111,
            's' => 0o6000,
            't' => 0o1000,
            'X' => {
                maybe_execute = true;
                0
            }
            _ => return None,
        };
    }
    Some((all, maybe_execute))
}

impl Change {
    /// The new permission bits of a file.
    fn apply(&self, inode: &Inode, umask: u32) -> u32 {
        let is_dir = is_kind(inode, kind::DIR);
        match self {
            Change::Octal(bits) => *bits,
            Change::Letters(clauses) => clauses
                .iter()
                .fold(inode.mode & 0o7777, |mode, clause| clause.apply(mode, is_dir, umask)),
        }
    }
}

impl Clause {
    fn apply(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        let execute = if self.maybe_execute && (is_dir || mode & 0o111 != 0) { 0o111 } else { 0 };
        let who = self.who.unwrap_or(0o7777 & !umask);
        let bits = (self.bits | execute) & who;
        match self.operator {
            '+' => mode | bits,
            '-' => mode & !bits,
            _ => mode & !(self.who.unwrap_or(0o7777)) | bits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(text: &str, mode: u32, is_dir: bool) -> u32 {
        match parse(text).unwrap() {
            Change::Octal(bits) => bits,
            Change::Letters(clauses) => {
                clauses.iter().fold(mode, |mode, clause| clause.apply(mode, is_dir, 0o022))
            }
        }
    }

    #[test]
    fn modes_change_as_in_chmod() {
        for (text, before, is_dir, after) in [
            ("640", 0o777, false, 0o640),
            ("4755", 0, false, 0o4755),
            ("u+x", 0o644, false, 0o744),
            ("go-w", 0o666, false, 0o644),
            ("u=rw,g=r,o=", 0o777, false, 0o640),
            ("a+X", 0o644, false, 0o644),
            ("a+X", 0o744, false, 0o755),
            ("a+X", 0o644, true, 0o755),
            ("+w", 0o444, false, 0o644),
            ("u+s,+t", 0o755, false, 0o5755),
            ("g-rwx+x", 0o770, false, 0o710),
        ] {
            assert_eq!(changed(text, before, is_dir), after, "{text} on {before:o}");
        }
    }

    #[test]
    fn what_is_no_mode_is_refused() {
        for text in ["", "8", "77777", "u", "u+q", "z+r", "u+r,", "+r,x"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
