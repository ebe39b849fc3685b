//! List I/O on an object: many pieces with one request, and one turn in its order.

use super::{DataTree, Line, Object, Writing};
use covey_io::disk::{self, DiskFile, Piece};
use covey_io::task;
use covey_ninep::runs::{self, Run};
use covey_ninep::tree::Outcome;
use covey_wire::Bytes;
use std::rc::Rc;
use std::sync::Arc;

impl DataTree {
    pub(super) fn read_list(
        &self,
        object: &Object,
        epoch: Option<u32>,
        runs: &[Run],
    ) -> Outcome<Bytes> {
        let file = match self.to_read(object, epoch) {
            Ok(Some(file)) => file,
            Ok(None) => return Outcome::Now(Ok(Bytes::new())),
            Err(error) => return Outcome::Now(Err(error)),
        };
        self.count_read(runs::total(runs));
        let pieces: Vec<Piece> = runs::pieces(runs).collect();
        match file.read_list_now(&pieces) {
            Ok(Some(bytes)) => Outcome::Now(Ok(bytes)),
            Ok(None) => Outcome::later(async move { Ok(disk::read_list(file, pieces).await?) }),
            Err(error) => Outcome::Now(Err(error.into())),
        }
    }

    pub(super) fn write_list(
        self: &Rc<Self>,
        object: &Rc<Object>,
        epoch: Option<u32>,
        line: &Rc<Line>,
        runs: Vec<Run>,
        data: Bytes,
    ) -> Outcome<u32> {
        let (start, end) = runs::span(&runs);
        if object.is_writing(start, end) {
            let (tree, object, line) = (self.clone(), object.clone(), line.clone());
            return Outcome::later(async move {
                while object.is_writing(start, end) {
                    object.ended.notified().await;
                }
                tree.write_list(&object, epoch, &line, runs, data).wait().await
            });
        }
        let file = match self.file_to_write(object, epoch, line, data.len() as u64) {
            Ok(file) => file,
            Err(error) => return Outcome::Now(Err(error)),
        };
        let pieces: Vec<Piece> = runs::pieces(&runs).collect();
        match file.write_list_now(&pieces, &data) {
            Ok(Some(count)) => Outcome::Now(Ok(count as u32)),
            Ok(None) => in_pool(Writing::begin(object, start, end), file, pieces, data),
            Err(error) => Outcome::Now(Err(error.into())),
        }
    }
}

/// The task goes on, and keeps its range, when the wait is dropped.
fn in_pool(
    writing: Writing,
    file: Arc<dyn DiskFile>,
    pieces: Vec<Piece>,
    data: Bytes,
) -> Outcome<u32> {
    let task = task::spawn(async move {
        let written = disk::write_list(file, pieces, data).await;
        drop(writing);
        written
    });
    Outcome::later(async move { Ok(task.await?? as u32) })
}
