//! The tasks of moving files: one row that says what is under way, so that it goes on after a start. What carries them out is
//! around the store.

use super::fault::{Fault, refuse};
use super::{Applied, Store, done, keys};
use crate::kv::Kv;
use crate::ops::Task;
use covey_ninep::tree::Errno;
use covey_wire::List;

impl<K: Kv> Store<K> {
    /// The tasks of moving files: of each kind, and for each server, the last one.
    pub fn tasks(&self) -> Result<Vec<Task>, Errno> {
        let List(tasks) = keys::row(&self.kv, keys::TASKS)?.unwrap_or_default();
        Ok(tasks)
    }

    /// A task is as given from now on.
    pub(super) fn keep_task(&mut self, task: &Task) -> Result<Applied, Fault> {
        if usize::from(task.server) >= self.servers().len() {
            let text = format!("no I/O server has the index {}", task.server);
            return refuse(Errno::EINVAL, text);
        }
        let mut tasks = self.tasks().map_err(Fault::Broken)?;
        match tasks.iter_mut().find(|one| one.is_of(task.kind, task.server)) {
            Some(one) => *one = task.clone(),
            None => tasks.push(task.clone()),
        }
        self.put_row(keys::TASKS, &List(tasks))?;
        Ok(done())
    }
}
