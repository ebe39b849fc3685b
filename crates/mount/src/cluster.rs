//! Mounting a cluster: the striping client behind the FUSE mount.

use super::device::{begin, serve_all};
use super::handlers::Session;
use super::takeover::{self, About, Meeting, Offer, Taken, device_at};
use super::transport::{End, Left, Served};
use super::{MountOptions, Unmounter, attach, local_runtime};
use anyhow::Context;
use covey_cluster::config::Config;
use covey_cluster::connect_fs;
use covey_stripe::client::{self, Caching, Fs};
use covey_stripe::ops::Consistency;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use std::cell::RefCell;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

/// How a cluster is mounted.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Wait for dead servers instead of EIO after a while.
    pub hard: bool,
    /// Let other users in.
    pub allow_other: bool,
    /// Refuse every change.
    pub read_only: bool,
    /// Have the kernel refuse to execute programs of it.
    pub no_exec: bool,
    /// Threads that serve requests, at least 1.
    pub threads: usize,
    /// The mode of files and directories that have none of their own.
    pub consistency: Consistency,
    /// What is done to a new file that nobody else knows yet may be told to the servers late, and in one.
    pub delegations: bool,
    /// A service manager looks after the process, and takes its end for that of the mount.
    pub is_kept: bool,
}

/// What a process that takes a mount over may want otherwise than the one before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Successor {
    /// Wait for dead servers, though the one before did not.
    pub hard: bool,
    /// Threads that serve requests, if not as many as before.
    pub threads: Option<usize>,
}

/// Mounts the cluster's file system, and serves until it is unmounted or signalled.
///
/// The first thread runs the client's connections and serves the device too, so a request that it
/// takes goes from the kernel to the servers and back without changing threads. More threads help
/// where several programs keep one busy.
///
/// A successor may take the mount over, see [`take_over_cluster`]: then it is still there in the end.
pub fn mount_cluster(config: &Config, mountpoint: &Path, options: &Options) -> anyhow::Result<End> {
    let runtime = local_runtime()?;
    let fs = runtime.block_on(connect_fs(config, options.client()))?;
    let how = options.mount(config);
    let unmounter = Unmounter::start()?;
    let device = attach(mountpoint, &how)
        .with_context(|| format!("cannot mount on {}", mountpoint.display()))?;
    let target = mountpoint.to_owned();
    unmounter.mounted(move || covey_io::os::mount::umount(&target));
    if options.consistency != Consistency::Strict {
        read_further(mountpoint);
    }
    let meeting = meeting(mountpoint).and_then(|(mut meeting, listener)| {
        meeting.open()?;
        Ok((meeting, listener))
    });
    let about = options.about(config);
    runtime.block_on(async move {
        let served = Served::new(begin(&device, Arc::new(fs.clone()), how)?);
        run(vec![Left { device, messages: Vec::new() }], served, fs, about, meeting).await
    })
}

/// Takes over the mount on a directory from the process that serves it, which ends, and serves as [`mount_cluster`] does.
/// `is_taken` is called when the mount is this process's, with the number of that before.
///
/// # Errors
///
/// The mount cannot be taken over: the process before goes on as it did.
pub fn take_over_cluster(
    config: &Config,
    mountpoint: &Path,
    wish: Successor,
    is_taken: impl FnOnce(u32),
) -> anyhow::Result<End> {
    let runtime = local_runtime()?;
    let unmounter = Unmounter::start()?;
    let meeting = meeting(mountpoint);
    runtime.block_on(async move {
        let mut options = Options::default();
        let settle = |about: &About| {
            options = Options::taken(about, wish)?;
            Ok((options.client(), options.mount(config)))
        };
        let taken = takeover::take(config, mountpoint, settle).await?;
        let target = mountpoint.to_owned();
        unmounter.mounted(move || covey_io::os::mount::umount(&target));
        let meeting = meeting.and_then(|(mut meeting, listener)| {
            meeting.open()?;
            Ok((meeting, listener))
        });
        is_taken(taken.before);
        let Taken { session, fs, devices, talk, .. } = taken;
        // The process before ends.
        drop(talk);
        run(devices, Served::new(session), fs, options.about(config), meeting).await
    })
}

impl Options {
    /// Those of the process before, and what may be otherwise.
    fn taken(about: &About, wish: Successor) -> anyhow::Result<Options> {
        let consistency = Consistency::from_number(about.consistency);
        Ok(Options {
            hard: about.hard || wish.hard,
            allow_other: about.allow_other,
            read_only: about.read_only,
            // What the kernel was told when it was mounted stays.
            no_exec: false,
            threads: wish.threads.unwrap_or_else(|| about.threads.into()),
            consistency: consistency.context("its consistency mode is not known here")?,
            delegations: about.delegations,
            is_kept: about.is_kept,
        })
    }

    fn about(&self, config: &Config) -> About {
        About {
            cluster: config.name.as_str().into(),
            cluster_id: config.id.as_str().into(),
            allow_other: self.allow_other,
            read_only: self.read_only,
            consistency: self.consistency.number(),
            delegations: self.delegations,
            hard: self.hard,
            threads: u16::try_from(self.threads).unwrap_or(u16::MAX),
            is_kept: self.is_kept,
        }
    }

    fn client(&self) -> client::Options {
        let (hard, caching, delegations) = (self.hard, Caching::Leases, self.delegations);
        let late_removals = delegations;
        client::Options { hard, caching, delegations, late_removals, ..client::Options::default() }
    }

    fn mount(&self, config: &Config) -> MountOptions {
        MountOptions {
            fsname: format!("covey:{}", config.name),
            threads: self.threads.max(1),
            allow_other: self.allow_other,
            // The metadata server checks every operation, but the kernel walks through directories that
            // it knows without asking. Where nobody but root gets in there is nothing to check there, and
            // each change of a directory would cost a question for its mode.
            default_permissions: self.allow_other || !rustix::process::geteuid().is_root(),
            read_only: self.read_only,
            no_exec: self.no_exec,
            quiet_closes: self.delegations,
            consistency: self.consistency,
            groups: Arc::new(groups),
            ..MountOptions::default()
        }
    }
}

type Listening = anyhow::Result<(Meeting, UnixListener)>;

/// Where successors of this process are heard.
fn meeting(mountpoint: &Path) -> Listening {
    Meeting::prepare(&device_at(mountpoint)?)
}

/// Serves until the mount is unmounted, or a successor's.
async fn run(
    devices: Vec<Left>,
    served: Served<Session<Fs>>,
    fs: Fs,
    about: About,
    meeting: Listening,
) -> anyhow::Result<End> {
    let threads = usize::from(about.threads).max(1);
    let held = match meeting {
        Ok((meeting, listener)) => {
            let meeting = Rc::new(RefCell::new(meeting));
            let passed = meeting.clone();
            let passed_on = move || passed.borrow_mut().pass_on();
            let (session, gate) = (served.service.clone(), served.gate.clone());
            let offer = Offer::new(session, fs.clone(), gate, about, passed_on);
            listener.set_nonblocking(true)?;
            let listener = tokio::net::UnixListener::from_std(listener)?;
            tokio::task::spawn_local(offer.listen(listener));
            Some(meeting)
        }
        Err(error) => {
            tracing::warn!("this mount cannot be taken over: {error:#}");
            None
        }
    };
    let end = serve_all(devices, threads, served).await;
    if let Some(meeting) = held
        && !matches!(end, Ok(End::Given))
    {
        meeting.borrow_mut().close();
    }
    if !matches!(end, Ok(End::Given)) {
        fs.bye().await;
    }
    end
}

/// Has the kernel read further ahead into its pages than its 128 KiB, which make streams twice as
/// dear as going around them. Only root may say so; nobody else's reads are wrong for it.
fn read_further(mountpoint: &Path) {
    // Without asking the file system, which nobody serves yet.
    let how = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let Ok(stat) = statx(CWD, mountpoint, how, StatxFlags::empty()) else { return };
    let device = format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
    let told = std::fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), READ_AHEAD_KIB);
    if let Err(error) = told {
        tracing::debug!("the kernel reads 128 KiB ahead at most: {error}");
    }
}

/// More makes random faults of mapped files dearer than it makes streams cheaper.
const READ_AHEAD_KIB: &str = "512";

fn groups(uid: u32, gid: u32) -> Vec<u32> {
    match covey_io::os::users::by_uid(uid) {
        Ok(Some(account)) => account.groups.clone(),
        _ => vec![gid],
    }
}
