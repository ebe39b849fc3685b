//! The wire form of a view: how the file is striped and which bytes are meant, before the layout.

use super::refused;
use crate::distribution;
use crate::ops::Striping;
use covey_layout::Layout;
use covey_ninep::tree::{self, Errno};
use covey_wire::{Bytes, Field, List, Reader, record};

record! {
    /// What precedes the layout.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub(super) struct Head for () {
        pub kind: u8,
        pub strip_bytes: u32,
        pub params: List<u32>,
        pub slots: u16,
        pub slot: u16,
        pub origin: u64,
        /// Bytes of the file from here on are left out.
        pub limit: u64,
        pub from: u64,
        pub to: u64,
    }
}

impl Head {
    /// Of what lies on one slot of a file.
    pub fn of_file(striping: &Striping, slot: usize) -> Head {
        Head {
            kind: striping.kind,
            strip_bytes: striping.strip_bytes,
            params: striping.params.clone(),
            slots: striping.servers.0.len() as u16,
            slot: slot as u16,
            origin: 0,
            limit: u64::MAX,
            from: 0,
            to: 0,
        }
    }

    /// Of bytes of an object.
    pub fn of_object() -> Head {
        let params = List(Vec::new());
        Head {
            kind: distribution::BASIC,
            strip_bytes: 0,
            params,
            slots: 1,
            slot: 0,
            origin: 0,
            limit: u64::MAX,
            from: 0,
            to: 0,
        }
    }

    pub fn with(&self, layout: &Bytes) -> Bytes {
        let mut out = Vec::with_capacity(self.size(()) + layout.len());
        self.put((), &mut out);
        out.extend_from_slice(layout);
        out.into()
    }

    pub fn split(body: &Bytes) -> tree::Result<(Head, Layout)> {
        let mut from = Reader::new(body.clone());
        let bad = |error| Errno::because(Errno::EINVAL, format!("a view: {error}"));
        let head = Head::get((), &mut from).map_err(bad)?;
        let layout = body.slice(body.len() - from.remaining()..);
        Ok((head, Layout::decode(layout).map_err(refused)?))
    }
}
