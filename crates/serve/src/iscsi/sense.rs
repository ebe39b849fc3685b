//! What a SCSI status and its sense data mean to a program that reads and writes.

use std::io;

/// A command that was not done.
pub(super) struct Refused {
    /// Whether it may be done if it is sent again.
    pub passes: bool,
    /// Whether that takes a while.
    pub is_busy: bool,
    pub error: io::Error,
}

const GOOD: u8 = 0x00;
const CHECK_CONDITION: u8 = 0x02;
const BUSY: u8 = 0x08;
const RESERVATION_CONFLICT: u8 = 0x18;
const TASK_SET_FULL: u8 = 0x28;
const TASK_ABORTED: u8 = 0x40;

const NOT_READY: u8 = 0x2;
const MEDIUM_ERROR: u8 = 0x3;
const UNIT_ATTENTION: u8 = 0x6;
const DATA_PROTECT: u8 = 0x7;
const ABORTED_COMMAND: u8 = 0xb;

/// Why a command was not done; none where it was.
pub(super) fn refused(status: u8, sense: &[u8]) -> Option<Refused> {
    let told = |passes, is_busy, kind: io::ErrorKind, text: String| {
        Some(Refused { passes, is_busy, error: io::Error::new(kind, text) })
    };
    match status {
        GOOD => None,
        BUSY | TASK_SET_FULL => {
            told(true, true, io::ErrorKind::ResourceBusy, "the target is busy".into())
        }
        TASK_ABORTED => {
            told(true, false, io::ErrorKind::Interrupted, "the command was aborted".into())
        }
        RESERVATION_CONFLICT => {
            let text = "another initiator has reserved the unit".into();
            told(false, false, io::ErrorKind::PermissionDenied, text)
        }
        CHECK_CONDITION => {
            let (key, code) = key_of(sense);
            let text = format!("{} ({key:x}h/{:02x}h/{:02x}h)", key_text(key), code.0, code.1);
            let kind = match key {
                DATA_PROTECT if code == SPACE_FAILED => io::ErrorKind::StorageFull,
                DATA_PROTECT => io::ErrorKind::ReadOnlyFilesystem,
                _ => io::ErrorKind::Other,
            };
            told(matches!(key, UNIT_ATTENTION | ABORTED_COMMAND), false, kind, text)
        }
        status => told(false, false, io::ErrorKind::Other, format!("SCSI status {status:#04x}")),
    }
}

/// No space is left for what is written (SPC: space allocation failed write protect).
const SPACE_FAILED: (u8, u8) = (0x27, 0x07);

/// Sense key and additional code, of either format.
fn key_of(sense: &[u8]) -> (u8, (u8, u8)) {
    let byte = |at: usize| sense.get(at).copied().unwrap_or(0);
    match byte(0) & 0x7f {
        0x72 | 0x73 => (byte(1) & 0xf, (byte(2), byte(3))),
        _ => (byte(2) & 0xf, (byte(12), byte(13))),
    }
}

fn key_text(key: u8) -> &'static str {
    match key {
        NOT_READY => "the unit is not ready",
        MEDIUM_ERROR => "the medium failed",
        UNIT_ATTENTION => "the unit has changed",
        DATA_PROTECT => "the unit may not be written",
        ABORTED_COMMAND => "the command was aborted",
        0x4 => "the target's hardware failed",
        0x5 => "the target does not take this command",
        _ => "the command failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_told_from_what_does_not() {
        let fixed = |key, asc, ascq| {
            let mut sense = [0; 18];
            (sense[0], sense[2], sense[12], sense[13]) = (0x70, key, asc, ascq);
            refused(CHECK_CONDITION, &sense).unwrap()
        };
        assert!(refused(GOOD, &[]).is_none());
        assert!(fixed(UNIT_ATTENTION, 0x2a, 9).passes);
        assert!(!fixed(MEDIUM_ERROR, 0x11, 0).passes);
        assert_eq!(fixed(DATA_PROTECT, 0x27, 7).error.kind(), io::ErrorKind::StorageFull);
        let descriptor = refused(CHECK_CONDITION, &[0x72, 5, 0x20, 0]).unwrap();
        let text = "the target does not take this command (5h/20h/00h)";
        assert_eq!(descriptor.error.to_string(), text);
        assert!(refused(TASK_SET_FULL, &[]).unwrap().is_busy);
        assert!(!refused(RESERVATION_CONFLICT, &[]).unwrap().passes);
        assert!(!refused(CHECK_CONDITION, &[]).unwrap().passes);
    }
}
