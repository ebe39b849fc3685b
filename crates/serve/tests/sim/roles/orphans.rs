//! Files that are unlinked while they are open: they live until they are closed, and no longer.

use super::{Role, Run, name, repeat, root};
use crate::sim::lab::Lab;
use covey_ninep::tree::Removal;
use covey_stripe::client::{Fs, Taken, access};
use covey_stripe::ops::Id;
use covey_wire::Payload;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// One who leaves files behind.
pub struct Orphans {
    pub client: usize,
    pub dir: Id,
    pub left: Cell<u64>,
    pub doubts: Cell<u64>,
    pub numbers: Cell<u64>,
}

impl Orphans {
    async fn step(&self, lab: &Lab, fs: &Fs) {
        let number = self.numbers.get();
        self.numbers.set(number + 1);
        let text = name(format!("orphan{}.{number}", self.client));
        let doubts = self.doubts.get();
        let who = root();
        let create = fs.create(&who, self.dir, &text, 0o644, Taken::Refuse, access::BOTH);
        let Some((_, file)) = lab.attempt(format!("create {}", text.lossy()), create).await.1
        else {
            return;
        };
        let bytes: Vec<u8> = (0..1 + lab.below(20_000)).map(|at| (at % 250) as u8 + 1).collect();
        let length = bytes.len();
        let write = file.write_at(0, Payload::from(bytes.clone()));
        let is_written = lab.attempt("write it".into(), write).await.1.is_some();
        let unlink = fs.unlink(&who, self.dir, &text, Removal::File);
        let Ok((_, Some(()))) = lab.expect("unlink it".into(), &[2], unlink).await else { return };
        lab.pause(Duration::from_millis(3000)).await;
        // After a long silence or a loss of power the file may be gone, which reading then says.
        const GONE: [u32; 2] = [2, 116];
        let answers: &[u32] = if doubts == self.doubts.get() { &[] } else { &GONE };
        let read = lab.expect("read it".into(), answers, file.read_at(0, length)).await;
        if let (Ok((_, Some(read))), true) = (read, is_written && doubts == self.doubts.get()) {
            assert!(read.into_bytes()[..] == bytes[..], "an unlinked open file lost its bytes");
        }
    }
}

impl Role for Orphans {
    fn run(self: Rc<Self>, lab: Rc<Lab>, fs: Fs) -> Run {
        Box::pin(async move {
            let most = Duration::from_millis(2000);
            repeat(&lab, &self.left, most, async || self.step(&lab, &fs).await).await;
        })
    }

    fn is_done(&self) -> bool {
        self.left.get() == 0
    }

    fn power_lost(&self, _: bool) {
        self.session_in_doubt();
    }

    fn session_in_doubt(&self) {
        self.doubts.set(self.doubts.get() + 1);
    }
}
