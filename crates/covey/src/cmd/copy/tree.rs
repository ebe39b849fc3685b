//! Trees: each job is one file, link or directory, and a directory makes the jobs of what it holds.

use super::super::path::{Follow, is_kind, kind, shown};
use super::super::{Context, Session, path::Failures, show};
use super::attributes::{self, Attributes};
use super::beside::Beside;
use super::data::{Sink, Source, copy};
use super::entries::Made;
use super::links::Links;
use super::meta::Meta;
use super::{local, stream};
use crate::error::{Cannot, Error, Result};
use crate::output::knows_total;
use covey_io::os::file::DataFile;
use covey_ninep::tree::{Errno, SetAttr};
use covey_stripe::client::{Taken, access};
use covey_stripe::ops::{Id, Inode};
use covey_wire::Name;
use covey_wire::Payload;
use futures_util::stream::{FuturesUnordered, StreamExt};
use indicatif::ProgressBar;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

/// How to copy.
#[derive(Clone, Debug)]
pub struct Options {
    /// Directories too.
    pub recursive: bool,
    /// Modes, times, extended attributes, hard links below a directory, and (as root) owners.
    pub preserve: bool,
    /// Files at the same time.
    pub jobs: usize,
    /// Bits that new files do not get.
    pub umask: u32,
    /// Files of this machine get other names until they are whole and durable.
    pub beside: Option<Beside>,
}

/// A file on either side.
#[derive(Clone, Debug)]
pub enum Place {
    /// On this machine.
    Local(PathBuf),
    /// In the file system: the path for messages, the directory and the name in it.
    Covey { path: Vec<u8>, dir: Id, name: Name },
}

/// One thing to copy.
#[derive(Clone, Debug)]
pub struct Job {
    /// From where.
    pub from: Place,
    /// Its inode, when it is in the file system.
    pub inode: Option<Inode>,
    /// Follow it if it is a symbolic link.
    pub follow: bool,
    /// To where.
    pub to: Place,
}

/// A copy under way.
pub struct Copier<'a> {
    pub(super) session: &'a Session,
    pub(super) context: &'a Context,
    pub(super) options: Options,
    /// Progress in bytes.
    pub bar: ProgressBar,
    /// Regular files and links done.
    pub files: Rc<Cell<u64>>,
    /// Directories done.
    pub directories: Rc<Cell<u64>>,
    /// Bytes done.
    pub bytes: Cell<u64>,
    /// Jobs of which it is not known yet how much they are: while there are any, nobody knows a total.
    unseen: Cell<usize>,
    /// Directories that get their attributes when everything is in them.
    pub(super) unfinished: RefCell<Vec<(Made, Meta, Attributes)>>,
    /// Files with several names.
    pub(super) links: RefCell<Links>,
    /// Jobs that had to wait for another, and come again.
    again: RefCell<Vec<Job>>,
    /// Directories of this machine whose names are to be made durable.
    renamed_in: RefCell<BTreeSet<PathBuf>>,
}

/// How the copy of a file went.
enum Copied {
    /// All of it, with its bytes.
    Whole(u64),
    /// The file changed meanwhile, to this; nothing has its name.
    Changed(Box<Inode>),
}

impl<'a> Copier<'a> {
    /// Nothing copied yet.
    pub fn new(
        session: &'a Session,
        context: &'a Context,
        options: Options,
        bar: ProgressBar,
    ) -> Self {
        let (files, directories) = Default::default();
        let (bytes, unseen) = Default::default();
        Copier {
            session,
            context,
            options,
            bar,
            files,
            directories,
            bytes,
            unseen,
            unfinished: RefCell::default(),
            links: RefCell::default(),
            again: RefCell::default(),
            renamed_in: RefCell::default(),
        }
    }

    /// Does all jobs and what comes of them. Failures are told, and the rest goes on.
    pub async fn run(&self, jobs: Vec<Job>, failures: &mut Failures) {
        self.unseen.set(jobs.len());
        let mut ahead = jobs;
        ahead.reverse();
        let mut working = FuturesUnordered::new();
        loop {
            while working.len() < self.options.jobs {
                let Some(job) = ahead.pop() else { break };
                working.push(self.work(job));
            }
            let Some(done) = working.next().await else { break };
            match done {
                Ok(more) => ahead.extend(more),
                Err(error) => self.bar.suspend(|| failures.tell(&error, self.context)),
            }
            ahead.append(&mut self.again.borrow_mut());
        }
        // A directory that gets a mode without `r` could not be opened for that afterwards.
        if let Err(error) = self.sync_names().await {
            self.bar.suspend(|| failures.tell(&error, self.context));
        }
        // What lies deeper was made later: finish it first.
        let unfinished = self.unfinished.take();
        for (made, meta, attributes) in unfinished.into_iter().rev() {
            if let Err(error) = self.finish_dir(&made, &meta, attributes).await {
                self.bar.suspend(|| failures.tell(&error, self.context));
            }
        }
    }

    /// Makes the names of what was written beside durable.
    async fn sync_names(&self) -> Result<()> {
        for dir in self.renamed_in.take() {
            let opened = dir.clone();
            let synced = local::blocking(move || std::fs::File::open(opened)?.sync_all()).await;
            synced.cannot(|| format!("make the names in {} durable", dir.display()))?;
        }
        Ok(())
    }

    pub(super) fn has_changed(&self, to: &Place) {
        if let (Place::Local(path), Some(_)) = (to, &self.options.beside) {
            let dir = path.parent().unwrap_or(std::path::Path::new("/"));
            self.renamed_in.borrow_mut().insert(dir.to_path_buf());
        }
    }

    async fn work(&self, job: Job) -> Result<Vec<Job>> {
        let meta = self.look(&job).await;
        let is_tree = |meta: &Meta| self.options.recursive && meta.kind() == kind::DIR;
        if !meta.as_ref().is_ok_and(is_tree) {
            self.saw_one_and_found(0);
        }
        let meta = meta?;
        match meta.kind() {
            kind::DIR if self.options.recursive => {
                let more = self.directory(job, meta).await;
                self.saw_one_and_found(more.as_ref().map_or(0, Vec::len));
                return more;
            }
            kind::DIR => {
                return Err(Error::user(format!("cannot copy {}: it is a directory", job.from))
                    .hint("-r copies it with everything in it"));
            }
            kind::SYMLINK => self.symlink(&job, &meta).await?,
            kind::FILE => {
                if !self.file_or_link(&job, &meta).await? {
                    return Ok(Vec::new());
                }
            }
            other => {
                let what = show::kind_of_bits(other);
                return Err(Error::work(format!("cannot copy {}: it is a {what}", job.from))
                    .hint("only files, directories and symbolic links are copied"));
            }
        }
        self.files.set(self.files.get() + 1);
        self.bar.set_message(format!("{} files", self.files.get()));
        Ok(Vec::new())
    }

    async fn look(&self, job: &Job) -> Result<Meta> {
        match (&job.from, &job.inode) {
            (Place::Local(path), _) => {
                let (meta, target) = local::look(path, job.follow).await?;
                Ok(Meta::local(&meta, target))
            }
            (Place::Covey { .. }, Some(inode)) => Ok(Meta::covey(inode)),
            (Place::Covey { path, .. }, None) => {
                let inode = self.session.find("read", path, Follow::NotLast).await?;
                Ok(Meta::covey(&inode))
            }
        }
    }

    /// It is known now how much one of the jobs is; it may have brought more of them.
    fn saw_one_and_found(&self, more: usize) {
        self.unseen.set(self.unseen.get() + more - 1);
        if self.unseen.get() == 0 {
            knows_total(&self.bar);
        }
    }

    /// These are looked at once more.
    pub(super) fn come_again(&self, jobs: Vec<Job>) {
        self.unseen.set(self.unseen.get() + jobs.len());
        self.again.borrow_mut().extend(jobs);
    }

    pub(super) async fn file(&self, job: &Job, meta: &Meta) -> Result<()> {
        self.bar.inc_length(meta.size);
        let bytes = match self.copied(job, meta).await? {
            Copied::Whole(bytes) => bytes,
            // A program wrote to it meanwhile: it may have been at its end by now.
            Copied::Changed(now) => {
                let again = Job { inode: Some((*now).clone()), ..job.clone() };
                match self.copied(&again, &Meta::covey(&now)).await? {
                    Copied::Whole(bytes) => bytes,
                    Copied::Changed(_) => {
                        return Err(Error::work(format!(
                            "cannot copy {}: it changed while it was read, twice",
                            job.from
                        ))
                        .hint("end the program that writes to it, then try again"));
                    }
                }
            }
        };
        self.bytes.set(self.bytes.get() + bytes);
        self.context.output.detail(format!("{} -> {}", job.from, job.to));
        Ok(())
    }

    async fn copied(&self, job: &Job, meta: &Meta) -> Result<Copied> {
        let source = self.source(job).await?;
        let mode = meta.permissions() & !self.options.umask & 0o777;
        let small = source.small(meta.size, meta.is_sparse).await?;
        let part = self.part(job);
        let copied = self.content(job, part.as_ref(), &source, mode, meta, small).await;
        let is_whole = matches!(copied, Ok(Copied::Whole(_)));
        if let (false, Some(Job { to: Place::Local(part), .. })) = (is_whole, &part) {
            // On a full disk it would be in the way of the next try elsewhere.
            let _ = std::fs::remove_file(part);
        }
        copied
    }

    /// Its inode as it is now, where that is another than it was when the copy began.
    async fn changed(&self, job: &Job) -> Result<Option<Box<Inode>>> {
        let Some(then) = &job.inode else { return Ok(None) };
        let now = self.session.fs.inode_now(then.id).await;
        let now = now.cannot(|| format!("look at {}", job.from))?;
        let is_same = (now.size, now.mtime) == (then.size, then.mtime);
        Ok((!is_same).then(|| Box::new(now)))
    }

    /// The bytes and attributes of a file, under another name first if there is one.
    async fn content(
        &self,
        job: &Job,
        part: Option<&Job>,
        source: &Source,
        mode: u32,
        meta: &Meta,
        small: Payload,
    ) -> Result<Copied> {
        let attributes = if self.options.preserve {
            attributes::of_file(self.session, source, meta).await?
        } else {
            Attributes::new()
        };
        // Whoever may not write to a file may not give it attributes either; its own mode comes last.
        let mode = if attributes.is_empty() { mode } else { mode | 0o600 };
        let sink = self.sink(part.unwrap_or(job), mode, meta, small.clone()).await?;
        let bytes = match source {
            _ if !small.is_empty() => {
                self.bar.inc(small.len() as u64);
                small.len() as u64
            }
            // A size of 0 is what /proc says of files that have content all the same.
            Source::Local { file, name } if meta.size == 0 => {
                let reader = file.file().try_clone().cannot(|| format!("read {name}"))?;
                stream::in_from(Box::new(reader), name, &sink, &self.bar).await?
            }
            _ => copy(source, &sink, meta.size, meta.is_sparse, &self.bar).await?,
        };
        sink.finish().await?;
        if self.options.preserve {
            attributes::set(&sink, attributes).await?;
            self.preserve(&sink, meta).await?;
        }
        if let (Some(part), Sink::Local { file, .. }) = (part, &sink) {
            if let Some(now) = self.changed(job).await? {
                return Ok(Copied::Changed(now));
            }
            local::settle(file.clone(), &part.to, &job.to, meta.size).await?;
            self.has_changed(&job.to);
        }
        Ok(Copied::Whole(bytes))
    }

    /// The same job with another name at its end, where files are written beside.
    fn part(&self, job: &Job) -> Option<Job> {
        let (Place::Local(path), Some(beside)) = (&job.to, &self.options.beside) else {
            return None;
        };
        Some(Job { to: Place::Local(local::beside(path, &beside.tag)), ..job.clone() })
    }

    async fn source(&self, job: &Job) -> Result<Source> {
        let name = job.from.to_string();
        match (&job.from, &job.inode) {
            (Place::Local(path), _) => {
                let file = local::open(path).await?;
                let file = DataFile::new(file).cannot(|| format!("read {name}"))?;
                Ok(Source::Local { file, name })
            }
            (Place::Covey { path, .. }, inode) => {
                let found;
                let inode = match inode {
                    Some(inode) => inode,
                    None => {
                        found = self.session.find("read", path, Follow::Last).await?;
                        &found
                    }
                };
                Source::open(self.session, inode, name).await
            }
        }
    }

    /// Creates the file that is written to, with all of a small one's bytes.
    async fn sink(&self, job: &Job, mode: u32, meta: &Meta, small: Payload) -> Result<Sink> {
        let name = job.to.to_string();
        let sink = match &job.to {
            Place::Local(path) => {
                let file = match self.options.beside {
                    Some(_) => local::create_anew(path, mode).await?,
                    None => local::create(path, mode, meta.identity).await?,
                };
                Sink::Local { file: Arc::new(file), name }
            }
            Place::Covey { path, dir, name: entry } => {
                let (fs, who) = (&self.session.fs, &self.session.who);
                let session = self.session.clone();
                match fs
                    .create_write(
                        who,
                        *dir,
                        entry,
                        mode,
                        Taken::Refuse,
                        access::WRITE,
                        small.clone(),
                    )
                    .await
                {
                    Ok(made) => return Ok(Sink::Covey { session, file: made.file, name }),
                    Err(error) if error.code() == Errno::EEXIST => {}
                    Err(error) => return Err(error).cannot(|| format!("write {name}")),
                }
                // Bytes that are written anyway need not be freed before.
                let kept = if meta.is_sparse || !small.is_empty() { 0 } else { meta.size };
                Sink::Covey { session, file: self.reopen(job, path, kept).await?, name }
            }
        };
        if !small.is_empty() {
            sink.write(0, small).await?;
        }
        Ok(sink)
    }

    /// Opens a file that is there and cuts what lies behind its first `kept` bytes.
    async fn reopen(
        &self,
        job: &Job,
        path: &[u8],
        kept: u64,
    ) -> Result<covey_stripe::client::File> {
        let what = || format!("write {}", job.to);
        let inode = self.session.resolve(path, Follow::Last).await.cannot(what)?;
        if !is_kind(&inode, kind::FILE) {
            return Err(Error::work(format!(
                "cannot {}: a {} is there",
                what(),
                show::kind_word(&inode)
            ))
            .hint("`covey rm` removes it"));
        }
        if job.inode.as_ref().is_some_and(|from| from.id == inode.id) {
            return Err(Error::user(format!("cannot {}: it is the file that is read", what()))
                .hint("choose another name"));
        }
        let (fs, who) = (&self.session.fs, &self.session.who);
        let file = fs.open(who, inode.id, 2).await.cannot(what)?;
        if fs.inode(inode.id).await.cannot(what)?.size > kept {
            let cut = SetAttr { size: Some(kept), ..SetAttr::default() };
            fs.setattr(who, inode.id, cut).await.cannot(what)?;
        }
        Ok(file)
    }

    async fn preserve(&self, sink: &Sink, meta: &Meta) -> Result<()> {
        let is_root = is_root();
        match sink {
            Sink::Local { file, name } => {
                let (file, meta) = (file.clone(), meta.clone());
                let set = local::blocking(move || meta.set_local(&file, is_root)).await;
                set.cannot(|| format!("set the attributes of {name}"))
            }
            Sink::Covey { session, file, name } => {
                let set = session.fs.setattr(&session.who, file.id(), meta.set_attr(is_root)).await;
                set.map(|_| ()).cannot(|| format!("set the attributes of {name}"))
            }
        }
    }
}

pub(super) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Local(path) => write!(f, "{}", path.display()),
            Place::Covey { path, .. } => write!(f, ":{}", shown(path)),
        }
    }
}
