//! Copies into a job's file system, and out of it.
//!
//! What goes out is written under another name, made durable, compared in size and renamed: under its own name a file
//! is whole, whenever the copy is cut off. Doing it again does all of it again.

use super::notes;
use crate::cmd::copy::{Beside, Copier, Job, Options, Place};
use crate::cmd::path::{Failures, Follow, below, inside, last_name, shown};
use crate::cmd::{Context, Session, mkdir};
use crate::config::size;
use crate::error::{Cannot, Error, Result};
use crate::output::counted;
use covey_ninep::tree::Errno;
use covey_stripe::ops::{Inode, ROOT};
use covey_wire::Name;
use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Files at the same time.
const JOBS: usize = 16;

/// `SRC:DST` of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    from: OsString,
    to: OsString,
}

impl Spec {
    /// Of `--stage-in`: the last colon separates, for names of this machine may have others.
    pub fn inward(text: &str) -> std::result::Result<Spec, String> {
        // `in::/in` writes the place in the job's file system as `covey cp` does.
        let cut = text.rfind("::").or_else(|| text.rfind(':'));
        Spec::cut(text, cut)
    }

    /// Of `--stage-out`: the first colon separates, but for the one that `covey cp` writes in front.
    pub fn outward(text: &str) -> std::result::Result<Spec, String> {
        let skipped =
            if text.starts_with("covey:") { 6 } else { usize::from(text.starts_with(':')) };
        Spec::cut(text, text[skipped..].find(':').map(|at| at + skipped))
    }

    fn cut(text: &str, at: Option<usize>) -> std::result::Result<Spec, String> {
        let parts = at.map(|at| (&text[..at], &text[at + 1..]));
        match parts.filter(|(from, to)| !from.is_empty() && !to.is_empty()) {
            Some((from, to)) => Ok(Spec { from: from.into(), to: to.into() }),
            None => Err("write SRC:DST, a path here and one in the job's file system".to_string()),
        }
    }

    /// With the path on this machine absolute, by which a second try knows it.
    pub fn settled_out(&self) -> Result<Spec> {
        let to = std::path::absolute(&self.to)
            .cannot(|| format!("find {}", Path::new(&self.to).display()))?;
        let from = OsString::from_vec(inside(&self.from));
        Ok(Spec { from, to: to.into_os_string() })
    }

    /// The same of a path that is copied in: `in` of another directory is another one.
    pub fn settled_in(&self) -> Result<Spec> {
        let from = std::path::absolute(&self.from)
            .cannot(|| format!("find {}", Path::new(&self.from).display()))?;
        let to = OsString::from_vec(inside(&self.to));
        Ok(Spec { from: from.into_os_string(), to })
    }

    /// As one line of a record.
    pub fn line(&self) -> Vec<u8> {
        let text = format!("{:?} {:?}\n", self.from, self.to);
        text.into_bytes()
    }
}

/// Copies in. Directories of the destination are made; what is there is overwritten.
pub async fn copy_in(session: &Session, spec: &Spec, context: &Context) -> Result<()> {
    let path = inside(&spec.to);
    let to = match last_name(&path) {
        None => {
            let inode = session.find("write", &path, Follow::Last).await?;
            Place::Covey { path: path.clone(), dir: inode.parent, name: ".".into() }
        }
        Some(name) => {
            let above = path.len()
                - name.len()
                - path.iter().rev().take_while(|byte| **byte == b'/').count();
            mkdir::make_all(session, &path[..above], 0o755, 0o755).await?;
            let (dir, name) = session.find_parent("write", &path).await?;
            Place::Covey { path: path.clone(), dir, name }
        }
    };
    let job = Job { from: Place::Local(PathBuf::from(&spec.from)), inode: None, follow: true, to };
    copy(session, vec![job], None, &Watch::default(), context).await
}

/// How a stage-out is done.
#[derive(Debug)]
pub struct Out {
    /// How its files are written.
    pub beside: Beside,
    /// A source that is not there is no failure.
    pub skip_missing: bool,
    /// How far it is.
    pub watch: Watch,
}

/// Counts what was copied: a copy that hangs does not count on.
#[derive(Default)]
pub struct Watch {
    copies: RefCell<Vec<Box<dyn Fn() -> u64>>>,
}

impl Watch {
    /// Bytes, files and directories.
    pub fn count(&self) -> u64 {
        self.copies.borrow().iter().map(|copy| copy()).sum()
    }

    fn follow(&self, copier: &Copier<'_>) {
        let (files, directories) = (copier.files.clone(), copier.directories.clone());
        let bar = copier.bar.clone();
        let count = move || files.get() + directories.get() + bar.position();
        self.copies.borrow_mut().push(Box::new(count));
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Watch({})", self.count())
    }
}

/// Copies out.
pub async fn copy_out(session: &Session, spec: &Spec, how: &Out, context: &Context) -> Result<()> {
    let path = inside(&spec.from);
    let what = || format!("stage out {}", shown(&path));
    let inode = match session.resolve(&path, Follow::Last).await {
        Err(error) if how.skip_missing && error.code() == Errno::ENOENT => {
            context.output.say(format!("nothing to stage out: there is no :{}", shown(&path)));
            return Ok(());
        }
        found => found.cannot(what)?,
    };
    let to = PathBuf::from(&spec.to);
    let above = to.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(above).cannot(|| format!("make directory {}", above.display()))?;
    let from = Place::Covey { path: path.clone(), dir: ROOT, name: "".into() };
    let job = Job { from, inode: Some(inode), follow: false, to: Place::Local(to) };
    let jobs = if last_name(&path).is_none() { within(session, job).await? } else { vec![job] };
    copy(session, jobs, Some(how.beside.clone()), &how.watch, context).await
}

/// The root as jobs for what is in it, without the file that is not the job's.
async fn within(session: &Session, root: Job) -> Result<Vec<Job>> {
    let (Place::Covey { path, .. }, Some(inode), Place::Local(to)) =
        (&root.from, &root.inode, &root.to)
    else {
        return Ok(vec![root]);
    };
    std::fs::create_dir_all(to).cannot(|| format!("make directory {}", to.display()))?;
    let entries = session.entries(inode.id).await.cannot(|| format!("list {}", root.from))?;
    let entries = entries.into_iter().filter(|(name, _)| name.as_bytes() != notes::DIR.as_bytes());
    let job = |(name, inode): (Name, Inode)| Job {
        to: Place::Local(to.join(OsStr::from_bytes(name.as_bytes()))),
        from: Place::Covey { path: below(path, name.as_bytes()), dir: ROOT, name },
        inode: Some(inode),
        follow: false,
    };
    Ok(entries.map(job).collect())
}

async fn copy(
    session: &Session,
    jobs: Vec<Job>,
    beside: Option<Beside>,
    watch: &Watch,
    context: &Context,
) -> Result<()> {
    let done = if beside.is_some() { "staged out" } else { "staged in" };
    let options = Options { recursive: true, preserve: true, jobs: JOBS, umask: 0, beside };
    let copier = Copier::new(session, context, options, context.output.progress(None));
    watch.follow(&copier);
    let mut failures = Failures::default();
    copier.run(jobs, &mut failures).await;
    copier.bar.finish_and_clear();
    failures.result()?;
    context.output.say(format!(
        "{done} {} and {}, {}",
        counted(copier.files.get(), "file"),
        counted(copier.directories.get(), "directory"),
        size::rounded(copier.bytes.get())
    ));
    Ok(())
}

/// Refuses to copy results to where they go with the job: its directory, and mounts of its file system.
pub fn outlives(spec: &Spec, gone: &[PathBuf]) -> Result<()> {
    let to = Path::new(&spec.to);
    let real = to.ancestors().find_map(|above| {
        let rest = to.strip_prefix(above).ok()?;
        Some((above.canonicalize().ok()?, rest))
    });
    let (real, rest) = real.unwrap_or((PathBuf::from("/"), to));
    if rest.components().any(|part| part == Component::ParentDir) {
        return Err(Error::user(format!(
            "cannot stage out to {}: `..` follows a directory that does not exist yet",
            to.display()
        ))
        .hint("name the directory without `..`"));
    }
    let real = real.join(rest);
    match gone.iter().find(|place| real.starts_with(place)) {
        None => Ok(()),
        Some(place) => Err(Error::user(format!(
            "cannot stage out to {}: {} goes away with the job",
            to.display(),
            place.display()
        ))
        .hint("name a directory that stays, such as one in your home")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(spec: std::result::Result<Spec, String>) -> (String, String) {
        let spec = spec.unwrap();
        (spec.from.into_string().unwrap(), spec.to.into_string().unwrap())
    }

    #[test]
    fn a_colon_separates_and_names_of_this_machine_may_have_more() {
        let is = |spec, from: &str, to: &str| assert_eq!(pair(spec), (from.into(), to.into()));
        is(Spec::inward("in:/in"), "in", "/in");
        is(Spec::inward("a:b:/in"), "a:b", "/in");
        is(Spec::inward("my data::/in"), "my data", ":/in");
        is(Spec::outward("/out:res"), "/out", "res");
        is(Spec::outward(":/out:res:1"), ":/out", "res:1");
        is(Spec::outward("covey:/out:my results"), "covey:/out", "my results");
        for wrong in ["", ":", "a", "a:", ":a", "::"] {
            assert!(Spec::inward(wrong).is_err() && Spec::outward(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn results_do_not_go_where_they_would_be_removed() {
        let dir = tempfile::tempdir().unwrap();
        let job = dir.path().canonicalize().unwrap().join("job");
        std::fs::create_dir(&job).unwrap();
        std::os::unix::fs::symlink(&job, dir.path().join("link")).unwrap();
        let spec = |to: &str| Spec::outward(&format!("/a:{}/{to}", dir.path().display())).unwrap();
        let gone = [job];
        assert!(outlives(&spec("job/new/x"), &gone).is_err());
        assert!(outlives(&spec("link/x"), &gone).is_err());
        assert!(outlives(&spec("job2/x"), &gone).is_ok());
        assert!(outlives(&spec("new/../job/x"), &gone).is_err());
        assert!(outlives(&spec("job/../x"), &gone).is_ok());
    }
}
