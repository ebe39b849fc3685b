//! Tasks of moving files: what is asked for is in the log, and is carried out until it is done, also after a start. See
//! [`crate::moving`].

use super::Meta;
use crate::moving::Control;
use covey_io::task;
use covey_ninep::tree::{Errno, Outcome, Result};
use covey_stripe::ops::{Op, Place, Progress, Reply, Task, task as kind};
use covey_wire::{List, Name};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// Has a task carried out beside this server. It must say when it has ended, by [`Control::ended`].
pub type Begin = Rc<dyn Fn(Task, Arc<Control>)>;

/// How often it is looked what is to be done and how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How far it is goes into the log this often.
const KEEP_EVERY: Duration = Duration::from_secs(10);

/// The tasks that are being carried out.
#[derive(Default)]
pub(super) struct Tasks {
    running: RefCell<BTreeMap<u64, Running>>,
    /// Who changes what is asked for does it alone.
    turn: Mutex<()>,
}

struct Running {
    control: Arc<Control>,
    kept: Instant,
}

impl Meta {
    /// From now on what is asked for is carried out, by `begin`.
    pub fn carry_out_tasks(self: &Rc<Self>, begin: Begin) {
        let meta = self.clone();
        task::spawn(async move {
            loop {
                meta.look_after_tasks(&begin).await;
                task::sleep(LOOK_EVERY).await;
            }
        });
    }

    async fn look_after_tasks(self: &Rc<Self>, begin: &Begin) {
        let turn = self.tasks.turn.lock().await;
        let tasks = match self.known_tasks().await {
            Ok(tasks) => tasks,
            Err(error) => return tracing::warn!("what files are to move is not known: {error}"),
        };
        self.tasks.forget_ended(&tasks);
        for mut one in tasks {
            let control = self.tasks.control(one.number);
            match (control, one.state) {
                // Until clients have come back nobody knows which files are open, and none moves.
                (None, kind::ON) if !self.is_lock_grace() => {
                    let control = Arc::new(Control::of(&one));
                    self.tasks.add(one.number, control.clone());
                    begin(one, control);
                }
                (Some(control), _) => {
                    control.has_taken(LOOK_EVERY);
                    if one.state != kind::ON {
                        control.end();
                    }
                    let has_ended = control.has_ended();
                    if has_ended && control.is_done() && one.state == kind::ON {
                        one.state = kind::DONE;
                    }
                    if has_ended {
                        self.tasks.running.borrow_mut().remove(&one.number);
                    }
                    // A full store has no room for how far it is.
                    let is_kept = self.tasks.is_to_be_kept(one.number) && !self.is_full();
                    if has_ended || is_kept {
                        one.progress = control.progress();
                        self.keep_task(one).await;
                    }
                }
                (None, _) => {}
            }
        }
        drop(turn);
    }

    /// How far a task is; what is lost of it with this server is found out anew.
    async fn keep_task(self: &Rc<Self>, task: Task) {
        if let Err(error) = self.apply_claimed(Op::KeepTask { task }).await {
            tracing::warn!("how far files have moved is not kept: {error}");
        }
    }

    fn is_full(&self) -> bool {
        let store = self.store.borrow();
        store.as_ref().is_none_or(|store| self.journal.is_full(store.kv()))
    }

    async fn known_tasks(&self) -> Result<Vec<Task>> {
        self.store_is_here().await;
        let store = self.store_mut();
        let is_there = |task: &Task| task.kind != kind::DRAIN || !store.is_removed(task.server);
        let tasks = store.tasks()?;
        Ok(tasks.into_iter().filter(is_there).collect())
    }

    /// The tasks, and how far they are.
    pub(super) fn task_states(self: &Rc<Self>) -> Outcome<Reply> {
        let meta = self.clone();
        Outcome::later(async move {
            let tasks = meta.known_tasks().await?;
            Ok(Reply::Tasks { tasks: List(tasks.into_iter().map(|one| meta.shown(one)).collect()) })
        })
    }

    fn shown(&self, task: Task) -> Task {
        match self.tasks.control(task.number) {
            Some(control) => Task { progress: control.progress(), ..task },
            None => task,
        }
    }

    /// Begins a task, or changes it. The answer is the task.
    pub(super) fn ask_task(
        self: &Rc<Self>,
        (kind, server): (u8, u16),
        act: u8,
        rate: u64,
    ) -> Outcome<Reply> {
        let meta = self.clone();
        Outcome::later(async move {
            let _turn = meta.tasks.turn.lock().await;
            let all = meta.known_tasks().await?;
            let known = all.iter().find(|one| one.is_of(kind, server)).cloned();
            let task = match act {
                kind::BEGIN => meta.begun(&all, known, (kind, server), rate).await?,
                kind::PAUSE | kind::RESUME | kind::STOP => changed(known, act, rate)?,
                _ => return refuse(Errno::EINVAL, format!("a task cannot do {act}")),
            };
            let mut task = meta.shown(task);
            if task.state == kind::ON {
                // It is tried anew.
                task.progress.waits = Name::EMPTY;
            }
            meta.apply_claimed(Op::KeepTask { task: task.clone() }).await?;
            meta.journal.sync().await?;
            if let Some(control) = meta.tasks.control(task.number) {
                match act {
                    kind::BEGIN | kind::RESUME => meta.urge(&control, &task),
                    _ => control.end(),
                }
            }
            Ok(Reply::Tasks { tasks: List(vec![meta.shown(task)]) })
        })
    }

    fn urge(&self, control: &Control, task: &Task) {
        control.set_rate(task.rate);
        control.poke();
    }

    /// The task that begins, or goes on where it is under way.
    async fn begun(
        self: &Rc<Self>,
        all: &[Task],
        known: Option<Task>,
        (kind, server): (u8, u16),
        rate: u64,
    ) -> Result<Task> {
        if known.as_ref().is_some_and(|known| known.state == kind::PAUSED) {
            return refuse(Errno::EBUSY, "it is paused");
        }
        match kind {
            kind::DRAIN => self.may_be_drained(server).await?,
            kind::REBALANCE if server == 0 => self.may_be_rebalanced()?,
            _ => {
                return refuse(
                    Errno::EINVAL,
                    format!("there is no task {kind} of server {server}"),
                );
            }
        }
        if let Some(known) = known.filter(|known| known.state == kind::ON) {
            let rate = if rate > 0 { rate } else { known.rate };
            return Ok(Task { rate, ..known });
        }
        let number = all.iter().map(|one| one.number).max().unwrap_or(0) + 1;
        let (state, progress) = (kind::ON, Progress::default());
        Ok(Task { number, kind, server, rate, state, progress })
    }

    /// Closes a server to new files. It must serve, or nothing can be read from it.
    async fn may_be_drained(self: &Rc<Self>, server: u16) -> Result<()> {
        super::finish(self.close_place(server, true)).await?;
        if !self.is_serving(usize::from(server)) {
            return refuse(Errno::EIO, "it does not serve, so nothing can be read from it");
        }
        Ok(())
    }

    fn may_be_rebalanced(&self) -> Result<()> {
        let Reply::Places { places } = self.ask_own(Op::Places {}) else { return Ok(()) };
        let is_open = |(at, place): &(usize, &Place)| self.is_serving(*at) && place.state == 0;
        match places.0.iter().enumerate().filter(is_open).count() {
            0 | 1 => refuse(Errno::EBUSY, "fewer than two I/O servers take files"),
            _ => Ok(()),
        }
    }

    /// A server that gets new files again is drained no longer.
    pub(super) async fn stop_drain(self: &Rc<Self>, server: u16) -> Result<()> {
        let _turn = self.tasks.turn.lock().await;
        let mut known = self.known_tasks().await?.into_iter();
        let known = known.find(|one| one.is_of(kind::DRAIN, server));
        let Ok(task) = changed(known, kind::STOP, 0) else { return Ok(()) };
        let task = self.shown(task);
        if let Some(control) = self.tasks.control(task.number) {
            control.end();
        }
        self.apply_claimed(Op::KeepTask { task }).await
    }

    /// `moving NAME bytes N bytes_total N seconds N` for each task under way.
    pub fn tasks_text(&self) -> String {
        let mut out = String::new();
        if !self.is_store_here() {
            return out;
        }
        let store = self.store_mut();
        let on = store.tasks().unwrap_or_default().into_iter().filter(|one| one.state == kind::ON);
        for one in on {
            let server = store.servers().get(usize::from(one.server)).map(|name| name.lossy());
            let name = one.called(server.as_deref());
            let Progress { bytes, bytes_total, millis, .. } = self.shown(one).progress;
            let seconds = millis / 1000;
            writeln!(
                out,
                "moving {name:?} bytes {bytes} bytes_total {bytes_total} seconds {seconds}"
            )
            .expect("writing into a string cannot fail");
        }
        out
    }
}

impl Tasks {
    fn control(&self, number: u64) -> Option<Arc<Control>> {
        self.running.borrow().get(&number).map(|running| running.control.clone())
    }

    fn add(&self, number: u64, control: Arc<Control>) {
        self.running.borrow_mut().insert(number, Running { control, kept: task::now() });
    }

    /// Those that others have taken the place of are no longer asked how far they are.
    fn forget_ended(&self, tasks: &[Task]) {
        let is_known = |number: &u64| tasks.iter().any(|task| task.number == *number);
        let mut running = self.running.borrow_mut();
        running.retain(|number, one| is_known(number) || !one.control.has_ended());
    }

    /// Whether it is time to write down how far it is.
    fn is_to_be_kept(&self, number: u64) -> bool {
        let mut running = self.running.borrow_mut();
        let Some(one) = running.get_mut(&number) else { return false };
        let is_due = task::now().saturating_duration_since(one.kept) >= KEEP_EVERY;
        if is_due {
            one.kept = task::now();
        }
        is_due
    }
}

/// A task that is under way, after it was told to do something.
fn changed(known: Option<Task>, act: u8, rate: u64) -> Result<Task> {
    let Some(task) = known.filter(Task::is_under_way) else {
        return refuse(Errno::ENOENT, "none is under way");
    };
    let state = match act {
        kind::PAUSE => kind::PAUSED,
        kind::STOP => kind::STOPPED,
        _ => kind::ON,
    };
    let rate = if rate > 0 { rate } else { task.rate };
    Ok(Task { state, rate, ..task })
}

fn refuse<T>(code: u32, what: impl Into<String>) -> Result<T> {
    Err(Errno::because(code, what.into()))
}
