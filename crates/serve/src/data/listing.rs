//! Which objects there are, and how large they are.

use super::{DataTree, Found};
use covey_ninep::tree::Result;
use covey_stripe::objects::{DataReply, Kept, LOST, Object};
use covey_stripe::ops::Id;
use covey_wire::List;

impl DataTree {
    /// Objects in the order of (low byte, id), so that a page costs one or a few directories.
    pub(super) fn list(&self, after: Id, count: u32) -> Result<DataReply> {
        let mut found = Vec::new();
        let fanout = self.fanout;
        for low in after % fanout..fanout {
            for Found { id, epoch, kept, path } in self.scan(low)? {
                if (low == after % fanout && id <= after) || kept == Kept::Staged {
                    continue;
                }
                // A mark that has no meaning any more is none.
                if kept == Kept::Lost && !self.is_lost(id) {
                    continue;
                }
                let bytes = match kept {
                    Kept::Lost => LOST,
                    _ => self.disk.stat(&path).map_or(0, |stat| stat.bytes),
                };
                found.push(Object { id, epoch, bytes });
                if found.len() >= count as usize {
                    return Ok(DataReply::Objects { objects: List(found) });
                }
            }
        }
        Ok(DataReply::Objects { objects: List(found) })
    }

    /// Those of the objects that are there.
    pub(super) fn look(&self, ids: &[Id]) -> Result<DataReply> {
        let mut objects = Vec::new();
        for &id in ids {
            let epoch = self.epoch_of(id);
            if self.is_lost(id) {
                objects.push(Object { id, epoch, bytes: LOST });
                continue;
            }
            match self.disk.stat(&self.path(id, epoch)) {
                Ok(stat) => objects.push(Object { id, epoch, bytes: stat.bytes }),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    self.must_be_here()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(DataReply::Objects { objects: List(objects) })
    }

    pub(super) fn allocated(&self, id: Id) -> Result<DataReply> {
        let bytes = match self.disk.stat(&self.path(id, self.epoch_of(id))) {
            Ok(stat) => stat.blocks * 512,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                self.must_be_here()?;
                0
            }
            Err(error) => return Err(error.into()),
        };
        Ok(DataReply::Allocated { bytes })
    }
}
