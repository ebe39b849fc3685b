//! A model mounted through the real kernel, for the length of a test.

use crate::model::Model;
use covey_io::os::mount::umount;
use covey_mount::{MountOptions, attach, local_runtime, serve};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub struct Mounted {
    pub model: Model,
    dir: tempfile::TempDir,
    server: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Mounted {
    /// Mounts a new model, or says on stderr why the test is skipped.
    pub fn new() -> Option<Self> {
        Self::with(MountOptions { fsname: "covey-test".into(), ..MountOptions::default() })
    }

    pub fn with(options: MountOptions) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let model = Model::default();
        let fd = match attach(dir.path(), &options) {
            Ok(fd) => fd,
            Err(error) => {
                covey_harness::skip(format!("needs root and /dev/fuse: {error}"));
                return None;
            }
        };
        abort_when_stuck(dir.path());
        let files = Arc::new(model.clone());
        let server =
            std::thread::spawn(move || local_runtime()?.block_on(serve(fd, files, options)));
        Some(Mounted { model, dir, server: Some(server) })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn root(&self) -> &Path {
        self.dir.path()
    }

    /// Waits until the model sees `count` requests waiting.
    pub fn await_waiting(&self, count: usize) {
        until(|| self.model.state().waiting == count, "requests that wait");
    }

    /// Unmounts lazily and waits for the server's end: all files must be closed.
    pub fn unmount(&mut self) {
        umount(self.dir.path()).expect("unmount");
        self.join();
    }

    /// Waits for the server's end after an unmount.
    pub fn join(&mut self) {
        let server = self.server.take().expect("unmounted once");
        server.join().expect("the server does not panic").expect("the server ends well");
    }
}

/// Server and client are one process here: killed while it waits for itself, it could never go. So
/// a mount that is still there after a while is aborted, which fails every request.
fn abort_when_stuck(target: &Path) {
    let target = target.to_owned();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(90));
        let _ = rustix::mount::unmount(&target, rustix::mount::UnmountFlags::FORCE);
    });
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.is_some() {
            // A test that failed may have left files open: then nobody may wait for the server.
            let _ = umount(self.dir.path());
        }
    }
}

/// Waits for something that another thread or process does.
pub fn until(mut condition: impl FnMut() -> bool, what: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "waited a minute for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
