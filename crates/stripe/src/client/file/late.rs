//! Files that are closed before the metadata server is told all of them.
//!
//! [`Session::close_late`]: crate::client::session::Session::close_late

use super::OpenFile;
use crate::client::{Result, Shared};

impl OpenFile {
    /// [`OpenFile::flush`] where all of it may be told a moment later, if it may: see [`Session::close_late`].
    pub(in crate::client) async fn flush_late(&self, fs: &Shared) -> Result<()> {
        let is_due = {
            let state = self.lock();
            let is_dense = state.written.is_due(state.epoch, state.size);
            is_dense || state.touch_due || state.told.is_some() || state.owes_cut
        };
        if !is_due && fs.session.close_late(self.id) { Ok(()) } else { self.flush(fs).await }
    }
}
