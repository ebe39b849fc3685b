//! A session's directory, the program in it, and how it is started.

use super::World;
use super::entries::Files;
use super::job::RunningJob;
use super::scratch::PATIENCE;
use crate::export::ExportTree;
use covey_io::os::credentials::{self, Identity};
use covey_io::os::file::DataFile;
use covey_io::os::net::error_text;
use covey_io::os::remove::remove_tree;
use covey_io::os::spawn::{Command, Event, Stage, Stdio, WindowSize};
use covey_io::os::users;
use covey_io::task;
use covey_launch::session::{Ended, Job, Place, Program, Which};
use covey_launch::spawn::manifest::{Entry, EntryKind};
use covey_ninep::namespace::Part;
use covey_ninep::tree::{Errno, Outcome, Result, User};
use covey_wire::Bytes;
use std::cell::{Cell, RefCell};
use std::ffi::CString;
use std::fs::{DirBuilder, File};
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, lchown};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A session's directory.
pub(super) struct SessionPlace {
    world: Rc<World>,
    owner: Rc<User>,
    number: u64,
    dir: PathBuf,
    /// For shared memory, where the machine has a place for it.
    memory: Option<PathBuf>,
    files: Rc<ExportTree>,
    /// The program, while it may be written.
    program: Rc<RefCell<Option<DataFile>>>,
    is_removed: Cell<bool>,
}

impl SessionPlace {
    /// Makes the directory of session `number`.
    pub fn make(world: Rc<World>, owner: Rc<User>, number: u64) -> Result<SessionPlace> {
        let dir = world.scratch.path().map_err(|error| {
            let what = format!("cannot make a directory for sessions: {error}");
            Errno::because(Errno::from(error).code, what)
        })?;
        let dir = dir.join(number.to_string());
        let give = |path: &Path| {
            if credentials::can_switch() {
                return lchown(path, Some(owner.uid), Some(owner.gid));
            }
            Ok(())
        };
        match make_dirs(&dir, give) {
            Ok(files) => Ok(SessionPlace {
                memory: make_memory(&world, number, give),
                world,
                owner,
                number,
                dir,
                files: Rc::new(files),
                program: Rc::default(),
                is_removed: Cell::new(false),
            }),
            Err(error) => {
                let _ = remove_tree(&dir, PATIENCE);
                let what = format!("cannot make {}: {error}", dir.display());
                Err(Errno::because(Errno::from(error).code, what))
            }
        }
    }

    /// Does `work` with the rights of the session's user.
    fn act<T>(&self, work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let User { uid, gid, groups } = &*self.owner;
        if !credentials::can_switch() || *uid == 0 {
            return work();
        }
        credentials::act_as(&Identity { uid: *uid, gid: *gid, groups }, work)?
    }

    fn files_of_user(&self) -> Files {
        Files { dir: self.dir.clone(), user: (*self.owner).clone() }
    }

    /// Does work on the files beside the tasks.
    fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(Files) -> io::Result<T> + Send + 'static,
    ) -> Outcome<T> {
        let files = self.files_of_user();
        Outcome::later(async move { Ok(task::blocking(move || work(files)).await?) })
    }

    fn exec_file(&self) -> PathBuf {
        self.dir.join("exec")
    }

    fn file_of(&self, which: &Which) -> PathBuf {
        match which {
            Which::Copied => self.exec_file(),
            Which::Inside(path) => self.dir.join("fs").join(path),
            Which::OnNode(path) => PathBuf::from(path),
        }
    }

    fn command(
        &self,
        program: &Program,
        entrance: Option<std::os::fd::OwnedFd>,
    ) -> Result<Command> {
        let strings = |words: &[Vec<u8>]| {
            let strings = words.iter().map(|word| CString::new(word.clone()));
            strings
                .collect::<std::result::Result<Vec<_>, _>>()
                .map_err(|_| Errno::from(Errno::EINVAL))
        };
        let mut env = strings(&program.env)?;
        self.add_defaults(&mut env)?;
        let user = &program.user;
        let stdio = match program.terminal {
            Some(size) => Stdio::Terminal(WindowSize { rows: size.rows, columns: size.columns }),
            None => Stdio::Pipes,
        };
        Ok(Command {
            program: self.file_of(&program.which),
            argv: strings(&program.argv)?,
            env,
            directory: program
                .directory
                .as_ref()
                .map_or_else(|| self.dir.join("fs"), PathBuf::from),
            uid: user.uid,
            gid: user.gid,
            groups: user.groups.clone(),
            processes_max: Some(PROCESSES_MAX).filter(|_| user.uid != 0),
            stdio,
            cgroup: entrance,
        })
    }

    /// What every program finds in its environment unless somebody said otherwise.
    fn add_defaults(&self, env: &mut Vec<CString>) -> Result<()> {
        let account = users::by_uid(self.owner.uid)?;
        let name = account.map_or_else(|| self.owner.uid.to_string(), |found| found.name.clone());
        let path = self.dir.display();
        let memory = self.memory.as_ref().unwrap_or(&self.dir).display().to_string();
        for (name, value) in [
            ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned()),
            ("USER", name.clone()),
            ("LOGNAME", name),
            ("XCPUPATH", path.to_string()),
            ("COVEY", own_program()),
            ("XCPUMEMORY", memory),
        ] {
            let is_there = env.iter().any(|word| {
                word.as_bytes()
                    .strip_prefix(name.as_bytes())
                    .is_some_and(|rest| rest.starts_with(b"="))
            });
            if !is_there {
                env.push(CString::new(format!("{name}={value}")).map_err(|_| Errno::EINVAL)?);
            }
        }
        Ok(())
    }
}

/// This program, for those of its commands that programs start.
fn own_program() -> String {
    let path = std::env::current_exe().ok();
    path.map_or_else(|| "covey".to_owned(), |path| path.display().to_string())
}

impl Place for SessionPlace {
    fn files(&self) -> Rc<dyn Part> {
        self.files.clone()
    }

    fn begin_program(&self) -> Result<()> {
        let open = || {
            let mut options = File::options();
            options.read(true).write(true).create(true).truncate(true).mode(0o700);
            DataFile::new(options.custom_flags(libc::O_NOFOLLOW).open(self.exec_file())?)
        };
        *self.program.borrow_mut() = Some(self.act(open)?);
        Ok(())
    }

    fn write_program(&self, offset: u64, data: Bytes) -> Outcome<u32> {
        let Some(file) = self.program.borrow().clone() else { return Errno::EBADF.into() };
        match file.write_now(offset, &[IoSlice::new(&data)]) {
            Ok(Some(count)) => Ok(count as u32).into(),
            Ok(None) => {
                Outcome::later(async move { Ok(file.write(offset, vec![data]).await? as u32) })
            }
            Err(error) => Err(Errno::from(error)).into(),
        }
    }

    fn read_program(&self, offset: u64, count: u32) -> Outcome<Bytes> {
        let Some(file) = self.program.borrow().clone() else { return Ok(Bytes::new()).into() };
        match file.read_now(offset, count as usize) {
            Ok(Some(data)) => Ok(data).into(),
            Ok(None) => Outcome::later(async move { Ok(file.read(offset, count as usize).await?) }),
            Err(error) => Err(Errno::from(error)).into(),
        }
    }

    fn program_bytes(&self) -> Option<u64> {
        let file = self.program.borrow();
        file.as_ref()?.file().metadata().ok().map(|found| found.len())
    }

    fn entries(&self) -> Outcome<Vec<Entry>> {
        self.blocking(|files| files.list())
    }

    fn make_entries(&self, entries: &[Entry]) -> Outcome<()> {
        *self.program.borrow_mut() = None;
        let entries = entries.to_vec();
        self.blocking(move |files| files.make(&entries))
    }

    fn read_entry(&self, entry: &Entry, offset: u64, count: u32) -> Outcome<Bytes> {
        let entry = entry.clone();
        self.blocking(move |files| Ok(files.read(&entry, offset, count as usize)?.into()))
    }

    fn write_entry(&self, entry: &Entry, offset: u64, data: Bytes) -> Outcome<u32> {
        let entry = entry.clone();
        self.blocking(move |files| files.write(&entry, offset, &data).map(|()| data.len() as u32))
    }

    fn finish_entries(&self, entries: &[Entry]) -> Outcome<()> {
        let has_program = entries.iter().any(|entry| entry.kind == EntryKind::Program);
        let (entries, program) = (entries.to_vec(), self.program.clone());
        let done = self.blocking(move |files| {
            files.finish(&entries)?;
            Ok(files)
        });
        Outcome::later(async move {
            let files = done.wait().await?;
            if has_program {
                *program.borrow_mut() = Some(files.open_program()?);
            }
            Ok(())
        })
    }

    fn remove(&self) {
        if self.is_removed.replace(true) {
            return;
        }
        *self.program.borrow_mut() = None;
        let (dir, memory) = (self.dir.clone(), self.memory.clone());
        // Long where a program has left many files. As root: it is the daemon's directory that it is in.
        drop(task::spawn(async move {
            let remove = move || {
                for dir in memory.into_iter().chain([dir]) {
                    if let Err(error) = remove_tree(&dir, PATIENCE) {
                        tracing::warn!("cannot remove {} of a session: {error}", dir.display());
                    }
                }
                Ok(())
            };
            let _ = task::blocking(remove).await;
        }));
    }

    fn start(&self, program: Program, ended: Ended) -> Outcome<Rc<dyn Job>> {
        // A file that is open for writing cannot be executed.
        let keeps = program.which == Which::Copied;
        let taken = self.program.take();
        let reopened = match (&taken, keeps) {
            (Some(_), _) => {
                drop(taken);
                self.files_of_user().open_program().ok()
            }
            (None, _) => None,
        };
        *self.program.borrow_mut() = reopened;
        let group = match &self.world.cgroups {
            Ok(groups) => groups.group(&self.number.to_string()).ok(),
            Err(_) => None,
        };
        let entrance = group.as_ref().and_then(|group| group.entrance().ok());
        let what = program.which.name().to_owned();
        let command =
            self.command(&program, entrance).and_then(|command| match &self.world.emulated {
                Some(emulated) => Ok(self.act(|| super::emulated::wrap(emulated, command))?),
                None => Ok(command),
            });
        let command = match command {
            Ok(command) => command,
            Err(error) => return Err(error).into(),
        };
        let started = match self.world.starter.start(&command) {
            Ok(started) => started,
            Err(error) => {
                let why = format!("cannot start {what}: {error}");
                return Err(Errno::because(Errno::from(error).code, why)).into();
            }
        };
        let directory = command.directory;
        Outcome::later(async move {
            match started.keeper.next().await {
                Event::Started(_) => Ok(RunningJob::follow(started, group, ended) as Rc<dyn Job>),
                Event::Failed(errno, stage) => Err(refused(&what, &directory, errno, stage)),
                Event::Ended(_) | Event::Refused(_) | Event::Gone => {
                    let why = format!("cannot start {what}: its keeper was killed");
                    Err(Errno::because(Errno::EIO, why))
                }
            }
        })
    }
}

impl Drop for SessionPlace {
    fn drop(&mut self) {
        self.remove();
    }
}

/// Makes a session's directory with `fs` in it and gives both away. The outer one is given last: before, its user
/// cannot put something else in the place of what is given.
fn make_dirs(dir: &Path, give: impl Fn(&Path) -> io::Result<()>) -> io::Result<ExportTree> {
    let fs = dir.join("fs");
    for path in [dir, &fs] {
        DirBuilder::new().mode(0o700).create(path)?;
    }
    let files = ExportTree::open(&fs, false)?;
    give(&fs)?;
    give(dir)?;
    Ok(files)
}

/// A session goes without where it cannot be made.
fn make_memory(
    world: &World,
    number: u64,
    give: impl Fn(&Path) -> io::Result<()>,
) -> Option<PathBuf> {
    let dir = world.memory.as_ref()?.path().ok()?.join(number.to_string());
    DirBuilder::new().mode(0o700).create(&dir).ok()?;
    match give(&dir) {
        Ok(()) => Some(dir),
        Err(_) => {
            let _ = std::fs::remove_dir(&dir);
            None
        }
    }
}

fn refused(what: &str, directory: &Path, errno: i32, stage: Stage) -> Errno {
    let error = error_text(&io::Error::from_raw_os_error(errno));
    let why = match stage {
        Stage::Process => format!("cannot make a process for {what}: {error}"),
        Stage::User => format!("cannot run {what} as its user: {error}"),
        Stage::Directory => format!("cannot start {what} in {}: {error}", directory.display()),
        Stage::Program if errno == libc::ENOEXEC => {
            format!("cannot run {what}: it is no program of this machine; hint: see arch")
        }
        Stage::Program => format!("cannot run {what}: {error}"),
    };
    Errno::because(errno.cast_unsigned(), why)
}

/// Most processes of a user who is not root.
const PROCESSES_MAX: u64 = 16_384;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_given_away_below_a_directory_that_was() {
        let above = tempfile::tempdir().unwrap();
        let given = RefCell::new(Vec::new());
        let give = |path: &Path| {
            let is_users = |at: &PathBuf| path.starts_with(at);
            assert!(!given.borrow().iter().any(is_users), "{} can be replaced", path.display());
            given.borrow_mut().push(path.to_owned());
            Ok(())
        };
        let dir = above.path().join("7");
        drop(make_dirs(&dir, give).unwrap());
        assert_eq!(given.into_inner(), [dir.join("fs"), dir]);
    }
}
