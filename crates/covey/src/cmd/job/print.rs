//! What ranks write, as this command's output: whole lines, labelled or folded. A reader of ours that is slow makes
//! the ranks wait, and nobody else: this is a task of its own.

use crate::error::{Error, Kind, Result};
use covey_launch::output::{Gather, Lines};
use covey_wire::Bytes;
use std::io::Write;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// Which of a rank's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Its standard output.
    Out,
    /// Its standard error.
    Err,
}

/// A piece of output.
pub struct Piece {
    /// The place of the rank among those who write.
    pub writer: usize,
    /// Which output.
    pub stream: Stream,
    /// What it wrote; nothing is the end.
    pub data: Bytes,
}

/// How output is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As it comes: there is one rank.
    Raw,
    /// Line by line.
    Lines,
    /// Line by line, each with its rank's label.
    Labelled,
    /// When all have ended, equal output once.
    Gathered,
}

/// The task that prints.
pub struct Printer {
    /// Where pieces go; dropped, the printer finishes.
    pub pieces: Sender<Piece>,
    task: JoinHandle<Result<()>>,
}

impl Printer {
    /// For writers of these names.
    pub fn start(form: Form, names: Vec<String>) -> Printer {
        // What is on its way is bounded: who reads a rank's output waits here.
        let (pieces, incoming) = channel(64);
        let task = tokio::task::spawn_local(print(Format::new(form, names), incoming));
        Printer { pieces, task }
    }

    /// Waits until all is printed.
    pub async fn finish(self) -> Result<()> {
        drop(self.pieces);
        self.task
            .await
            .unwrap_or_else(|_| Err(Error::work("cannot print: the printer has panicked")))
    }
}

async fn print(mut format: Format, mut incoming: Receiver<Piece>) -> Result<()> {
    let mut pieces = Vec::new();
    while incoming.recv_many(&mut pieces, 64).await > 0 {
        let mut text = Text::default();
        pieces.drain(..).for_each(|piece| format.take(piece, &mut text));
        text.write().await?;
    }
    let mut text = Text::default();
    format.finish(&mut text);
    text.write().await
}

/// What is to be written.
#[derive(Default)]
struct Text {
    out: Vec<u8>,
    err: Vec<u8>,
}

impl Text {
    /// A terminal that is stopped must not keep the connections from being served.
    async fn write(self) -> Result<()> {
        if self.out.is_empty() && self.err.is_empty() {
            return Ok(());
        }
        let written = tokio::task::spawn_blocking(move || {
            let _ = std::io::stderr().write_all(&self.err);
            if self.out.is_empty() { Ok(()) } else { crate::output::write_out(&self.out) }
        });
        written.await.map_err(|_| Error::work("cannot write: the writing thread has panicked"))?
    }
}

/// The state of each rank's lines.
struct Format {
    out: Out,
    err: Vec<Lines>,
    is_raw: bool,
}

enum Out {
    Lines(Vec<Lines>),
    Gather(Gather),
}

impl Format {
    fn new(form: Form, names: Vec<String>) -> Format {
        let label = |name: &String| match form {
            Form::Raw | Form::Lines => Lines::new(""),
            Form::Labelled | Form::Gathered => Lines::new(&format!("{name}: ")),
        };
        let err = names.iter().map(label).collect();
        let out = match form {
            Form::Gathered => Out::Gather(Gather::new(names, GATHER_BYTES_MAX)),
            _ => Out::Lines(names.iter().map(label).collect()),
        };
        Format { out, err, is_raw: form == Form::Raw }
    }

    fn take(&mut self, Piece { writer, stream, data }: Piece, text: &mut Text) {
        match (stream, &mut self.out) {
            (Stream::Out, _) if self.is_raw => text.out.extend_from_slice(&data),
            (Stream::Err, _) if self.is_raw => text.err.extend_from_slice(&data),
            (Stream::Out, Out::Gather(gather)) => gather.push(writer, &data, &mut text.out),
            (Stream::Out, Out::Lines(lines)) => push(&mut lines[writer], &data, &mut text.out),
            (Stream::Err, _) => push(&mut self.err[writer], &data, &mut text.err),
        }
    }

    fn finish(mut self, text: &mut Text) {
        self.err.iter_mut().for_each(|lines| lines.finish(&mut text.err));
        match self.out {
            Out::Gather(gather) => gather.finish(&mut text.out),
            Out::Lines(mut lines) => lines.iter_mut().for_each(|lines| lines.finish(&mut text.out)),
        }
    }
}

fn push(lines: &mut Lines, data: &[u8], out: &mut Vec<u8>) {
    if data.is_empty() { lines.finish(out) } else { lines.push(data, out) }
}

/// Whether the reader of our output has gone.
pub fn is_unread(result: &Result<()>) -> bool {
    result.as_ref().is_err_and(|error| error.kind == Kind::BrokenPipe)
}

/// How much output is kept to be folded.
const GATHER_BYTES_MAX: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn all(form: Form, pieces: &[(usize, Stream, &str)]) -> (String, String) {
        let mut format = Format::new(form, vec!["n1".into(), "n2".into()]);
        let mut text = Text::default();
        for (writer, stream, data) in pieces {
            let data = Bytes::copy_from_slice(data.as_bytes());
            format.take(Piece { writer: *writer, stream: *stream, data }, &mut text);
        }
        format.finish(&mut text);
        (String::from_utf8(text.out).unwrap(), String::from_utf8(text.err).unwrap())
    }

    #[test]
    fn each_form_shows_the_same_output_in_its_way() {
        use Stream::{Err, Out};
        let pieces = [
            (0, Out, "a"),
            (1, Out, "ab\n"),
            (0, Err, "e\n"),
            (0, Out, "b\n"),
            (1, Out, ""),
            (1, Err, "x"),
        ];
        let lines = all(Form::Lines, &pieces);
        assert_eq!(lines, ("ab\nab\n".into(), "e\nx\n".into()));
        let labelled = all(Form::Labelled, &pieces);
        assert_eq!(labelled, ("n2: ab\nn1: ab\n".into(), "n1: e\nn2: x\n".into()));
        let gathered = all(Form::Gathered, &pieces);
        let rule = "---------------";
        assert_eq!(gathered.0, format!("{rule}\nn[1-2] (2)\n{rule}\nab\n"));
        assert_eq!(gathered.1, labelled.1);
        assert_eq!(all(Form::Raw, &pieces[..1]).0, "a");
    }
}
