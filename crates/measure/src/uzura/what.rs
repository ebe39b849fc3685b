//! The things that are measured, and their names: the same in results and in the programs that measure.

use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// What bytes go through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// Memory.
    Memory,
    /// TCP on loopback.
    Tcp,
}

/// Who moves a matrix, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Send and receive.
    Send,
    /// Get.
    Get,
    /// Send from, and receive to, memory that the library allocated.
    OwnedSend,
    /// Get, from and to such memory.
    OwnedGet,
}

/// Which side of a move has the matrix by columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// The one that it comes from.
    Gather,
    /// The one that it goes to.
    Scatter,
    /// Neither.
    Plain,
}

/// A thing that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A cache line, one way.
    Line,
    /// A block copied within one process.
    Copy(u64),
    /// A block read from the other process by the kernel.
    Read(u64),
    /// A matrix of f32 with this side, transposed from where the other wrote it, in mapped memory.
    TransposeMapped(u64),
    /// The same, read by the kernel at once.
    TransposeRead(u64),
    /// The same, in strips of rows.
    TransposeStrips(u64),
    /// Half a round trip of a message.
    PingPong(u64),
    /// The same, both ends sleeping while they wait.
    PingPongBlocking(u64),
    /// One of many messages under way.
    Stream(u64),
    /// The same, where the sender says which messages may leave together.
    Together(u64),
    /// A 9P read of 1 MiB of a file in memory, which has this many bytes, into the reader's buffer.
    Served(u64),
    /// A matrix of f32 with this side, between processes.
    Matrix(Move, Shape, u64),
}

const MOVES: [(&str, Move); 4] = [
    ("send", Move::Send),
    ("get", Move::Get),
    ("owned-send", Move::OwnedSend),
    ("owned-get", Move::OwnedGet),
];

const SHAPES: [(&str, Shape); 3] =
    [("gather", Shape::Gather), ("scatter", Shape::Scatter), ("plain", Shape::Plain)];

impl What {
    /// Payload of one operation.
    pub fn bytes(self) -> u64 {
        match self {
            What::Line => 0,
            What::Copy(bytes) | What::Read(bytes) | What::Stream(bytes) => bytes,
            What::Together(bytes) => bytes,
            What::PingPong(bytes) | What::PingPongBlocking(bytes) => bytes,
            What::Served(_) => READ_BYTES,
            What::TransposeMapped(side) | What::TransposeRead(side) => matrix_bytes(side),
            What::TransposeStrips(side) | What::Matrix(_, _, side) => matrix_bytes(side),
        }
    }

    /// Whether it is memory that is got.
    pub fn is_got(self) -> bool {
        matches!(self, What::Matrix(Move::Get | Move::OwnedGet, ..))
    }

    /// In a person's words.
    pub fn words(self) -> String {
        let matrix = |side: u64| format!("{side} x {side} f32");
        match self {
            What::Line => "a cache line, one way".into(),
            What::Copy(bytes) => format!("{} copied in one process", size(bytes)),
            What::Read(bytes) => format!("{} read by the kernel", size(bytes)),
            What::TransposeMapped(side) => format!("{}, mapped", matrix(side)),
            What::TransposeRead(side) => format!("{}, read by the kernel", matrix(side)),
            What::TransposeStrips(side) => format!("{}, read in strips", matrix(side)),
            What::PingPong(bytes) => format!("{} one way", size(bytes)),
            What::PingPongBlocking(bytes) => format!("{} one way, sleeping", size(bytes)),
            What::Stream(bytes) => format!("{} streamed", size(bytes)),
            What::Together(bytes) => format!("{} streamed, sent together", size(bytes)),
            What::Served(file_bytes) => {
                format!("9P read of {}, file of {}", size(READ_BYTES), size(file_bytes))
            }
            What::Matrix(by, shape, side) => {
                let by = match by {
                    Move::Send => "sent",
                    Move::Get => "got",
                    Move::OwnedSend => "sent, library's memory",
                    Move::OwnedGet => "got, library's memory",
                };
                let shape = match shape {
                    Shape::Gather => "columns to rows",
                    Shape::Scatter => "rows to columns",
                    Shape::Plain => "as it is",
                };
                format!("{} {shape}, {by}", matrix(side))
            }
        }
    }
}

/// Bytes of a 9P read.
pub const READ_BYTES: u64 = 1 << 20;

/// A square matrix of f32.
pub const fn matrix_bytes(side: u64) -> u64 {
    side * side * 4
}

/// A size as a person writes it.
pub fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 if bytes.is_multiple_of(1024) => format!("{} KiB", bytes >> 10),
        _ if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        _ => format!("{bytes} B"),
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Line => write!(f, "line"),
            What::Copy(bytes) => write!(f, "copy-{bytes}"),
            What::Read(bytes) => write!(f, "read-{bytes}"),
            What::TransposeMapped(side) => write!(f, "transpose-mapped-{side}"),
            What::TransposeRead(side) => write!(f, "transpose-read-{side}"),
            What::TransposeStrips(side) => write!(f, "transpose-strips-{side}"),
            What::PingPong(bytes) => write!(f, "pingpong-{bytes}"),
            What::PingPongBlocking(bytes) => write!(f, "pingpong-blocking-{bytes}"),
            What::Stream(bytes) => write!(f, "stream-{bytes}"),
            What::Together(bytes) => write!(f, "together-{bytes}"),
            What::Served(file_bytes) => write!(f, "9p-read-{file_bytes}"),
            What::Matrix(by, shape, side) => {
                let by = MOVES.iter().find(|(_, one)| one == by).map_or("", |(name, _)| name);
                let shape =
                    SHAPES.iter().find(|(_, one)| one == shape).map_or("", |(name, _)| name);
                write!(f, "{by}-{shape}-{side}")
            }
        }
    }
}

impl FromStr for What {
    type Err = String;

    fn from_str(text: &str) -> Result<What, String> {
        let wrong = || format!("`{text}` is nothing that is measured");
        if text == "line" {
            return Ok(What::Line);
        }
        let (kind, number) = text.rsplit_once('-').ok_or_else(wrong)?;
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let whole = match kind {
            "copy" => Some(What::Copy(number)),
            "read" => Some(What::Read(number)),
            "transpose-mapped" => Some(What::TransposeMapped(number)),
            "transpose-read" => Some(What::TransposeRead(number)),
            "transpose-strips" => Some(What::TransposeStrips(number)),
            "pingpong" => Some(What::PingPong(number)),
            "pingpong-blocking" => Some(What::PingPongBlocking(number)),
            "stream" => Some(What::Stream(number)),
            "together" => Some(What::Together(number)),
            "9p-read" => Some(What::Served(number)),
            _ => None,
        };
        let matrix = || {
            let (by, shape) = kind.rsplit_once('-')?;
            let (_, by) = MOVES.iter().find(|(name, _)| *name == by)?;
            let (_, shape) = SHAPES.iter().find(|(name, _)| *name == shape)?;
            Some(What::Matrix(*by, *shape, number))
        };
        whole.or_else(matrix).ok_or_else(wrong)
    }
}

impl Serialize for What {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        use {Move::*, Shape::*, What::*};
        let all = [
            Line,
            Copy(65536),
            Read(4096),
            TransposeMapped(100),
            TransposeRead(1000),
            TransposeStrips(1000),
            PingPong(8),
            PingPongBlocking(64),
            Stream(64),
            Together(64),
            Served(1 << 26),
            Matrix(Send, Gather, 100),
            Matrix(OwnedGet, Scatter, 1000),
            Matrix(OwnedSend, Plain, 7),
        ];
        for what in all {
            assert_eq!(what.to_string().parse(), Ok(what));
        }
        for text in ["", "pingpong", "pingpong-x", "send-100", "sent-gather-1", "-1"] {
            assert!(text.parse::<What>().is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_told_in_the_unit_that_divides_them() {
        assert_eq!([8, 4096, 1 << 20, 1500].map(size), ["8 B", "4 KiB", "1 MiB", "1500 B"]);
    }
}
