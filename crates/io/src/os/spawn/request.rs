//! What is to be started, and its form on the way to the keeper.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A program to be started.
#[derive(Debug)]
pub struct Command {
    /// The file, looked for in the PATH of `env` when its name has no slash.
    pub program: PathBuf,
    /// Arguments, of which the first is the name.
    pub argv: Vec<CString>,
    /// `NAME=VALUE` each.
    pub env: Vec<CString>,
    /// Where it starts. Entered as the user.
    pub directory: PathBuf,
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Most processes of the user; as usual where None.
    pub processes_max: Option<u64>,
    /// What it reads and writes.
    pub stdio: Stdio,
    /// `cgroup.procs` of the control group that it is to be in, open for writing.
    pub cgroup: Option<OwnedFd>,
}

/// What a program reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stdio {
    /// Three pipes.
    Pipes,
    /// A terminal of this size.
    Terminal(WindowSize),
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowSize {
    /// Lines.
    pub rows: u16,
    /// Characters in a line.
    pub columns: u16,
}

/// What the keeper knows of a [`Command`]: all but the descriptors, which come beside it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub program: PathBuf,
    pub argv: Vec<CString>,
    pub env: Vec<CString>,
    pub directory: PathBuf,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
    pub processes_max: Option<u64>,
    pub has_terminal: bool,
    pub has_cgroup: bool,
}

impl Request {
    pub fn of(command: &Command) -> Request {
        Request {
            program: command.program.clone(),
            argv: command.argv.clone(),
            env: command.env.clone(),
            directory: command.directory.clone(),
            uid: command.uid,
            gid: command.gid,
            groups: command.groups.clone(),
            processes_max: command.processes_max,
            has_terminal: matches!(command.stdio, Stdio::Terminal(_)),
            has_cgroup: command.cgroup.is_some(),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [
            u64::from(self.uid),
            u64::from(self.gid),
            self.processes_max.unwrap_or(u64::MAX),
            self.has_terminal.into(),
            self.has_cgroup.into(),
            self.groups.len() as u64,
        ] {
            out.extend(number.to_le_bytes());
        }
        self.groups.iter().for_each(|gid| out.extend(u64::from(*gid).to_le_bytes()));
        put(&mut out, self.program.as_os_str().as_bytes());
        put(&mut out, self.directory.as_os_str().as_bytes());
        for list in [&self.argv, &self.env] {
            out.extend((list.len() as u64).to_le_bytes());
            list.iter().for_each(|word| put(&mut out, word.as_bytes()));
        }
        out
    }

    /// What [`Request::encode`] wrote; the daemon and its keepers are one program.
    pub fn decode(mut text: &[u8]) -> io::Result<Request> {
        let text = &mut text;
        let (uid, gid) = (number(text)? as u32, number(text)? as u32);
        let processes_max = Some(number(text)?).filter(|count| *count != u64::MAX);
        let (has_terminal, has_cgroup) = (number(text)? != 0, number(text)? != 0);
        let groups = (0..number(text)?).map(|_| Ok(number(text)? as u32));
        let groups = groups.collect::<io::Result<Vec<u32>>>()?;
        let program = path(take(text)?);
        let directory = path(take(text)?);
        let (argv, env) = (words(text)?, words(text)?);
        Ok(Request {
            program,
            argv,
            env,
            directory,
            uid,
            gid,
            groups,
            processes_max,
            has_terminal,
            has_cgroup,
        })
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u64).to_le_bytes());
    out.extend(bytes);
}

fn number(text: &mut &[u8]) -> io::Result<u64> {
    let (number, rest) = text.split_first_chunk().ok_or_else(cut)?;
    *text = rest;
    Ok(u64::from_le_bytes(*number))
}

fn take<'a>(text: &mut &'a [u8]) -> io::Result<&'a [u8]> {
    let bytes = number(text)? as usize;
    let (word, rest) = text.split_at_checked(bytes).ok_or_else(cut)?;
    *text = rest;
    Ok(word)
}

fn words(text: &mut &[u8]) -> io::Result<Vec<CString>> {
    (0..number(text)?).map(|_| Ok(CString::new(take(text)?)?)).collect()
}

fn path(bytes: &[u8]) -> PathBuf {
    std::ffi::OsString::from_vec(bytes.to_vec()).into()
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "a request to start a program is cut off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_back_and_a_cut_one_is_refused() {
        let request = Request {
            program: "/bin/sh".into(),
            argv: vec![c"sh".into(), c"".into()],
            env: vec![c"A=b".into()],
            directory: "/tmp".into(),
            uid: 7,
            gid: 8,
            groups: vec![8, 9],
            processes_max: None,
            has_terminal: true,
            has_cgroup: false,
        };
        let text = request.encode();
        assert_eq!(Request::decode(&text).unwrap(), request);
        for end in 0..text.len() {
            assert!(Request::decode(&text[..end]).is_err(), "{end}");
        }
    }
}
