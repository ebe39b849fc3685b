//! The passes, one after another, again and again.

use super::files::{self, FILE_BYTES, Made};
use super::pass::{self, Dropped, Laid, Lane, Limit, Timed, timed};
use super::pattern::{Aligned, Pattern};
use super::place::{Place, files_max, open_device};
use super::rates::{Caches, Rate, Tally, Test, Which};
use super::{Plan, Progress, bytes, fit};
use crate::error::{Cannot, Result};
use crate::scratch::Scratch;
use crate::stop::Stop;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A measurement that is going on.
pub struct Run<'a> {
    plan: &'a Plan,
    place: Place,
    stop: &'a Stop,
    lanes: Vec<Lane>,
    /// Where the files are; none for a device.
    scratch: Option<Scratch>,
    size_bytes: u64,
    slice: Duration,
    direct_refused: Option<String>,
    tally: Tally,
    repetitions: u32,
    passes_done: usize,
}

/// What it brought.
pub struct Done {
    pub size_bytes: u64,
    pub repetitions: u32,
    pub direct_refused: Option<String>,
    pub rates: Vec<Rate>,
}

type Tell<'a> = &'a mut dyn FnMut(&Progress);
type Work<'a> = &'a (dyn Fn(&mut Lane, &Limit) -> Result<u64> + Sync);

/// How much a first write may take, which tells how fast it is here.
const FIRST_BYTES: u64 = 64 << 20;
const FIRST: Duration = Duration::from_millis(250);
/// A pass that is slower than the first write made believe ends after so many slices.
const PATIENCE: u32 = 2;

impl<'a> Run<'a> {
    /// Makes and opens what is needed, and decides how much is written.
    pub fn begin(plan: &'a Plan, place: Place, stop: &'a Stop) -> Result<Run<'a>> {
        let record = plan.records.iter().copied().max().unwrap_or(super::RECORD_BYTES_MIN);
        let wanted = plan.size_bytes.map(|bytes| fit::whole(bytes, plan.threads, record));
        place.must_hold(wanted.unwrap_or(record * u64::from(plan.threads)))?;
        let scratch = if place.is_device() { None } else { Some(Scratch::within(&place.path)?) };
        let number = run_number();
        let lane = |index: usize| Lane {
            index,
            path: match &scratch {
                Some(scratch) => scratch.file(&format!("file{index}")),
                None => place.path.clone(),
            },
            base: 0,
            file: None,
            direct: None,
            laid: Laid::default(),
            pattern: Pattern::new(number, index, record as usize),
            buffer: Aligned::new(record as usize),
        };
        let lanes = (0..plan.threads as usize).map(lane).collect();
        let mut run = Run {
            plan,
            place,
            stop,
            lanes,
            scratch,
            size_bytes: wanted.unwrap_or(0),
            slice: Duration::ZERO,
            direct_refused: None,
            tally: Tally::default(),
            repetitions: 0,
            passes_done: 0,
        };
        run.open_devices()?;
        run.direct_refused = run.try_direct()?;
        run.slice = fit::slice(plan.budget, plan.repetitions, run.passes());
        if wanted.is_none() {
            run.size_bytes = run.fitting_size(record)?;
        }
        run.divide_device();
        Ok(run)
    }

    /// What was measured; all files are removed.
    pub fn finish(self) -> (Place, Done) {
        let Run { size_bytes, repetitions, direct_refused, .. } = self;
        let rates = self.tally.rates();
        (self.place, Done { size_bytes, repetitions, direct_refused, rates })
    }

    fn is_written(&self) -> bool {
        !self.place.is_device() || self.plan.destroy
    }

    /// How many passes a repetition has.
    fn passes(&self) -> usize {
        let through = 1 + usize::from(self.direct_refused.is_none());
        let with_writes = 1 + usize::from(self.is_written());
        let rewrite = usize::from(!self.place.is_device());
        let sequential = self.plan.records.len() * (2 * with_writes - 1 + rewrite.max(1));
        let files = if self.place.is_device() { 0 } else { 5 };
        sequential + with_writes + through * with_writes + files
    }

    fn open_devices(&mut self) -> Result<()> {
        if !self.place.is_device() {
            return Ok(());
        }
        // Opening it once for all is what refuses others.
        let device = open_device(&self.place.path, self.plan.destroy)?;
        for lane in &mut self.lanes {
            lane.file = Some(device.try_clone().cannot(|| reading(&lane.path))?);
        }
        Ok(())
    }

    /// Whether transfers past the caches work here; if not, why.
    fn try_direct(&mut self) -> Result<Option<String>> {
        let path = match &self.scratch {
            Some(scratch) => scratch.file("direct"),
            None => self.place.path.clone(),
        };
        if self.scratch.is_some() {
            let first = self.lanes[0].pattern.record(0, super::TRANSFER_ALIGN, 0);
            std::fs::write(&path, first).cannot(|| writing(&path))?;
        }
        let tried = self.open_direct(&path).and_then(|file| {
            use std::os::unix::fs::FileExt;
            let buffer = &mut self.lanes[0].buffer.bytes()[..super::TRANSFER_ALIGN];
            file.read_exact_at(buffer, 0)?;
            if self.scratch.is_some() { file.write_all_at(buffer, 0) } else { Ok(()) }
        });
        if self.scratch.is_some() {
            std::fs::remove_file(&path).cannot(|| format!("remove {}", path.display()))?;
        }
        Ok(tried.err().map(|error| crate::error::reason(&error)))
    }

    fn open_direct(&self, path: &Path) -> std::io::Result<File> {
        let mut options = File::options();
        options.read(true).write(self.is_written()).custom_flags(libc::O_DIRECT).open(path)
    }

    /// A first short transfer tells how much can be moved in a slice of the time.
    fn fitting_size(&mut self, record: u64) -> Result<u64> {
        let limit = Limit::within(Some(FIRST.min(self.slice)), self.stop);
        let room = self.place.room_bytes / 4 / u64::from(self.plan.threads);
        let most = FIRST_BYTES.min(room).max(record);
        let is_written = self.is_written();
        if is_written {
            self.fresh()?;
        } else {
            self.lanes.iter_mut().for_each(|lane| lane.laid.bytes = most);
            pass::drop_caches(&self.lanes, self.plan.drop_caches)?;
        }
        let done = timed(&mut self.lanes, &|lane| {
            if is_written {
                bytes::write(lane, record as usize, most, &limit)
            } else {
                bytes::read(lane, record as usize, &limit)
            }
        })?;
        self.fresh()?;
        Ok(fit::size(&fit::Known {
            bytes_per_s: done.amount as f64 / done.seconds.max(1e-6),
            slice: self.slice,
            room_bytes: self.place.room_bytes,
            threads: self.plan.threads,
            record_bytes: record,
        }))
    }

    /// Every thread has a part of a device.
    fn divide_device(&mut self) {
        if !self.place.is_device() {
            return;
        }
        let part = self.part();
        let is_written = self.is_written();
        for lane in &mut self.lanes {
            lane.base = part * lane.index as u64;
            lane.laid.bytes = if is_written { 0 } else { part };
        }
    }

    /// Bytes of each thread.
    fn part(&self) -> u64 {
        self.size_bytes / u64::from(self.plan.threads)
    }

    /// New, empty files; on a device, what was there counts no more.
    fn fresh(&mut self) -> Result<()> {
        let (direct, is_device) = (self.direct_refused.is_none(), self.place.is_device());
        for index in 0..self.lanes.len() {
            let path = self.lanes[index].path.clone();
            if !is_device {
                let lane = &mut self.lanes[index];
                (lane.file, lane.direct) = (None, None);
                match std::fs::remove_file(&path) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                    other => other.cannot(|| format!("remove {}", path.display())),
                }?;
                let made = File::options().read(true).write(true).create_new(true).open(&path);
                lane.file = Some(made.cannot(|| writing(&path))?);
            }
            if direct && self.lanes[index].direct.is_none() {
                let opened = self.open_direct(&path).cannot(|| writing(&path))?;
                self.lanes[index].direct = Some(opened);
            }
            if !is_device || self.plan.destroy {
                self.lanes[index].laid.bytes = 0;
            }
        }
        Ok(())
    }

    /// All repetitions that the budget permits.
    pub fn all(&mut self, tell: Tell) -> Result<()> {
        let begun = Instant::now();
        while self.repetitions < self.plan.repetitions && !self.stop.is_asked() {
            let one = Instant::now();
            self.passes_done = 0;
            self.one(tell)?;
            if self.stop.is_asked() {
                break;
            }
            self.repetitions += 1;
            if begun.elapsed() + one.elapsed() > self.plan.budget {
                break;
            }
        }
        Ok(())
    }

    fn one(&mut self, tell: Tell) -> Result<()> {
        for record in self.plan.records.clone() {
            self.sequential(record, tell)?;
        }
        self.anywhere(tell)?;
        self.letters(tell)?;
        match self.scratch {
            Some(_) => self.small_files(tell),
            None => Ok(()),
        }
    }

    fn sequential(&mut self, record: u64, tell: Tell) -> Result<()> {
        let (length, part) = (record as usize, self.part());
        let which = |test| Which { test, record_bytes: record, direct: false };
        if self.is_written() {
            self.fresh()?;
            let write: Work = &move |lane, limit| bytes::write(lane, length, part, limit);
            self.pass(which(Test::Write), Caches::Written, tell, write)?;
            if !self.place.is_device() {
                let again: Work =
                    &move |lane, limit| bytes::write(lane, length, lane.laid.bytes, limit);
                self.pass(which(Test::Rewrite), Caches::Written, tell, again)?;
            }
        } else {
            self.fresh()?;
        }
        let read: Work = &move |lane, limit| bytes::read(lane, length, limit);
        let caches = self.forget()?;
        self.pass(which(Test::Read), caches, tell, read)?;
        self.pass(which(Test::Reread), Caches::Warm, tell, read)
    }

    /// Blocks anywhere in what the last records left there.
    fn anywhere(&mut self, tell: Tell) -> Result<()> {
        let through: &[bool] =
            if self.direct_refused.is_none() { &[false, true] } else { &[false] };
        let which = |test, direct| Which { test, record_bytes: bytes::RANDOM_BYTES as u64, direct };
        for &direct in through {
            let seed = u64::from(self.repetitions) * 4 + u64::from(direct);
            let dropped = self.forget()?;
            let caches = if direct { Caches::Passed } else { dropped };
            self.pass(which(Test::RandomRead, direct), caches, tell, &|lane, limit| {
                bytes::read_anywhere(lane, direct, seed, limit)
            })?;
        }
        if !self.is_written() {
            return Ok(());
        }
        for &direct in through {
            let seed = u64::from(self.repetitions) * 4 + 2 + u64::from(direct);
            self.lanes.iter_mut().for_each(|lane| lane.laid.age += 1);
            let caches = if direct { Caches::Passed } else { Caches::Written };
            let counts: Vec<_> =
                self.lanes.iter().map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
            self.pass(which(Test::RandomWrite, direct), caches, tell, &|lane, limit| {
                let count = bytes::write_anywhere(lane, direct, (seed, lane.laid.age), limit)?;
                counts[lane.index].store(count, std::sync::atomic::Ordering::Relaxed);
                Ok(count)
            })?;
            self.forget()?;
            for lane in &mut self.lanes {
                let count = counts[lane.index].load(std::sync::atomic::Ordering::Relaxed);
                bytes::look_anywhere(lane, (seed, lane.laid.age), count)?;
            }
        }
        Ok(())
    }

    fn letters(&mut self, tell: Tell) -> Result<()> {
        let part = self.part();
        let which = |test| Which { test, record_bytes: 1, direct: false };
        if self.is_written() {
            self.fresh()?;
            let put: Work = &move |lane, limit| bytes::put_letters(lane, part, limit);
            self.pass(which(Test::PutLetters), Caches::Written, tell, put)?;
        }
        let caches = self.forget()?;
        let take: Work = &move |lane, limit| bytes::take_letters(lane, part, limit);
        self.pass(which(Test::GetLetters), caches, tell, take)?;
        if self.is_written() { self.fresh() } else { Ok(()) }
    }

    fn small_files(&mut self, tell: Tell) -> Result<()> {
        let Some(scratch) = &self.scratch else { return Ok(()) };
        let dirs: Vec<_> =
            self.lanes.iter().map(|lane| scratch.file(&format!("files{}", lane.index))).collect();
        for dir in &dirs {
            std::fs::create_dir(dir).cannot(|| format!("make directory {}", dir.display()))?;
        }
        let most = files_max(&self.place, self.plan.threads);
        let made: Vec<_> = dirs
            .iter()
            .map(|dir| std::sync::Mutex::new(Made { dir: dir.clone(), most, ..Made::default() }))
            .collect();
        let of = |lane: &Lane| {
            made[lane.index].lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        };
        let which = |test| Which { test, record_bytes: FILE_BYTES as u64, direct: false };
        self.pass(which(Test::Create), Caches::Written, tell, &|lane, limit| {
            let mut made = of(lane);
            made.plain = files::create(lane, &made, false, limit)?;
            Ok(made.plain)
        })?;
        self.pass(which(Test::CreateSynced), Caches::Written, tell, &|lane, limit| {
            let mut made = of(lane);
            made.synced = files::create(lane, &made, true, limit)?;
            Ok(made.synced)
        })?;
        let caches = self.forget_names(&dirs[0])?;
        self.pass(which(Test::Stat), caches, tell, &|lane, limit| files::stat(&of(lane), limit))?;
        let caches = self.forget_names(&dirs[0])?;
        self.pass(which(Test::OpenRead), caches, tell, &|lane, limit| {
            files::read(lane, &of(lane), limit)
        })?;
        self.pass(which(Test::Unlink), Caches::Warm, tell, &|lane, _| files::unlink(&of(lane)))?;
        dirs.iter().try_for_each(|dir| {
            std::fs::remove_dir(dir).cannot(|| format!("remove directory {}", dir.display()))
        })
    }

    fn forget(&self) -> Result<Caches> {
        Ok(match pass::drop_caches(&self.lanes, self.plan.drop_caches)? {
            Dropped::OfMachine => Caches::Dropped,
            Dropped::OfFiles => Caches::Advised,
        })
    }

    /// Of names and attributes one cannot ask to be forgotten. What is not on the disk yet cannot be forgotten
    /// either, so all of it is written first.
    fn forget_names(&self, dir: &Path) -> Result<Caches> {
        if !self.plan.drop_caches {
            return Ok(Caches::Warm);
        }
        let synced = File::open(dir).and_then(|dir| Ok(rustix::fs::syncfs(&dir)?));
        synced.cannot(|| format!("sync {}", dir.display()))?;
        Ok(match pass::drop_caches(&[], true)? {
            Dropped::OfMachine => Caches::Dropped,
            Dropped::OfFiles => Caches::Warm,
        })
    }

    /// One pass of all threads. One that was interrupted does not count.
    fn pass(&mut self, which: Which, caches: Caches, tell: Tell, work: Work) -> Result<()> {
        if self.stop.is_asked() {
            return Ok(());
        }
        let is_sequential =
            matches!(which.test, Test::Write | Test::Rewrite | Test::Read | Test::Reread);
        let time = match (self.plan.size_bytes, is_sequential) {
            // Who names a size wants all of it.
            (Some(_), true) => None,
            (None, true) => Some(self.slice * PATIENCE),
            (_, false) => Some(self.slice),
        };
        let limit = Limit::within(time, self.stop);
        let done: Timed = timed(&mut self.lanes, &|lane| work(lane, &limit))?;
        if self.stop.is_asked() {
            return Ok(());
        }
        self.passes_done += 1;
        let all = self.passes() * self.plan.repetitions as usize;
        let before = self.passes() * self.repetitions as usize + self.passes_done;
        if let Some(latest) = self.tally.add(which, caches, done) {
            tell(&Progress { latest, share: (before as f64 / all as f64).min(1.0) });
        }
        Ok(())
    }
}

/// No other run has it, so that what another one wrote is not taken for ours.
fn run_number() -> u64 {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = time.map_or(1, |time| time.as_nanos() as u64);
    nanos.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(std::process::id())
}

fn writing(path: &Path) -> String {
    format!("write {}", path.display())
}

fn reading(path: &Path) -> String {
    format!("read {}", path.display())
}
