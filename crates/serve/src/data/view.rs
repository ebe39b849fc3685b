//! Scattered data of an object: the layout is walked here, and its pieces are read or written with one request
//! and one turn in its order.

use super::{DataTree, Line, Object, in_pool};
use covey_io::disk::{self, Piece};
use covey_ninep::tree::{Outcome, View};
use covey_stripe::objects::At;
use covey_stripe::view;
use covey_wire::Bytes;
use std::rc::Rc;

impl DataTree {
    pub(super) fn read_view(&self, object: &Object, at: At, view: &View) -> Outcome<Bytes> {
        let file = match self.to_read(object, at) {
            Ok(Some(file)) => file,
            Ok(None) => return Outcome::Now(Ok(Bytes::new())),
            Err(error) => return Outcome::Now(Err(error)),
        };
        let pieces = match view::walk(view) {
            Ok(pieces) => pieces,
            Err(error) => return Outcome::Now(Err(error)),
        };
        self.count_read(view.bytes.into());
        match file.read_list_now(&pieces) {
            Ok(Some(bytes)) => Outcome::Now(Ok(bytes)),
            Ok(None) => Outcome::later(async move { Ok(disk::read_list(file, pieces).await?) }),
            Err(error) => Outcome::Now(Err(error.into())),
        }
    }

    pub(super) fn write_view(
        self: &Rc<Self>,
        object: &Rc<Object>,
        at: At,
        line: &Rc<Line>,
        view: &View,
        data: Bytes,
    ) -> Outcome<u32> {
        match view::walk(view) {
            Ok(pieces) => self.write_pieces(object, at, line, pieces, data),
            Err(error) => Outcome::Now(Err(error)),
        }
    }

    fn write_pieces(
        self: &Rc<Self>,
        object: &Rc<Object>,
        at: At,
        line: &Rc<Line>,
        pieces: Vec<Piece>,
        data: Bytes,
    ) -> Outcome<u32> {
        let (start, end) = span(&pieces);
        if !self.is_free(object, line, start, end) {
            let (tree, object, line) = (self.clone(), object.clone(), line.clone());
            return Outcome::later(async move {
                tree.becomes_free(&object, &line, start, end).await;
                tree.write_pieces(&object, at, &line, pieces, data).wait().await
            });
        }
        let file = match self.file_to_write(object, at, line, start..end, data.len() as u64) {
            Ok(file) => file,
            Err(error) => return Outcome::Now(Err(error)),
        };
        match file.write_list_now(&pieces, &data) {
            Ok(Some(count)) => Outcome::Now(Ok(count as u32)),
            Ok(None) => {
                let writing = self.begin_writing(object, start, end);
                in_pool(writing, disk::write_list(file, pieces, data))
            }
            Err(error) => Outcome::Now(Err(error.into())),
        }
    }
}

/// The range that all pieces lie in: first byte and end.
fn span(pieces: &[Piece]) -> (u64, u64) {
    let start = pieces.iter().map(|(offset, _)| *offset).min().unwrap_or(0);
    let end = pieces.iter().map(|(offset, bytes)| offset + u64::from(*bytes)).max();
    (start, end.unwrap_or(0))
}
