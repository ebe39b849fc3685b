//! The successor: it takes over all that the process before has, and serves when that has let go.

use super::meeting;
use super::message::{About, FORMATS, MAGIC, Message};
use super::state::State;
use super::talk::Talk;
use crate::MountOptions;
use crate::handlers::Session;
use crate::kernel::Kernel;
use crate::transport::Left;
use anyhow::{Context, bail};
use covey_cluster::config::Config;
use covey_io::os::credentials;
use covey_io::os::process::Process;
use covey_stripe::client::{self, Fs, Handover};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixStream;

/// The mount in this process, which may serve it.
pub struct Taken {
    /// What it serves.
    pub session: Arc<Session<Fs>>,
    /// The client.
    pub fs: Fs,
    /// The devices, with the requests that each has left.
    pub devices: Vec<Left>,
    /// Held until this process stands in the place of the one before.
    pub talk: Talk,
    /// The number of that.
    pub before: u32,
}

/// The process that serves the mount on a directory; none where that does not listen.
pub async fn server_of(mountpoint: &Path) -> Option<u32> {
    let (_, process, _) = greet(mountpoint).await.ok()?;
    Some(process)
}

/// The ID of the cluster whose mount is on a directory; none where nobody who serves it listens.
pub async fn cluster_of(mountpoint: &Path) -> Option<String> {
    let (_, _, about) = greet(mountpoint).await.ok()?;
    Some(about.cluster_id.to_string())
}

/// Takes over the mount on a directory. `options` says how, given what must stay.
///
/// # Errors
///
/// The process before goes on as it did.
pub async fn take(
    config: &Config,
    mountpoint: &Path,
    options: impl FnOnce(&About) -> anyhow::Result<(client::Options, MountOptions)>,
) -> anyhow::Result<Taken> {
    let (mut talk, pid, about) = greet(mountpoint).await?;
    check_cluster(config, &about)?;
    if about.is_kept && std::env::var_os("NOTIFY_SOCKET").is_none() {
        bail!("systemd looks after its process {pid}: `systemctl reload` of its unit upgrades it");
    }
    let (client, how) = options(&about)?;
    let before = Process::now(pid);
    talk.say(&Message::Begin {}, PATIENCE).await.context("its process does not answer")?;
    let state = match hear(&mut talk, STATE_LIMIT).await? {
        Message::State { devices, state } if usize::from(devices) == talk.devices.len() => state,
        other => bail!("its process said {} where its state is due", other.name()),
    };
    let state = State::decode(state.0).context("its process hands over what cannot be read")?;
    let borrowing = borrow(config, client, how, &state, &talk);
    let (session, fs) = tokio::select! {
        borrowed = borrowing => borrowed?,
        // In the name of this session nobody may speak any more but the process before.
        () = talk.ends(BORROW_LIMIT) => bail!("its process has gone on: the servers do not answer"),
    };
    let session = Arc::new(session);
    talk.say(&Message::Ready {}, PATIENCE).await.context("its process has gone on")?;
    match talk.hear(GO_LIMIT).await {
        // Before anything is served: where it cannot be said, the process before has gone on.
        Ok(Message::Go {}) => {
            talk.say(&Message::Mine {}, PATIENCE).await.context("its process has gone on")?
        }
        Ok(Message::Refused { reason }) => bail!("{reason}"),
        Ok(other) => bail!("its process said {} where it is due to let go", other.name()),
        Err(error) => {
            if !has_died(before).await {
                bail!("its process: {error}");
            }
        }
    }
    fs.own();
    session.sweep_stored();
    let waits =
        state.left.0.into_iter().map(|left| left.0.into_iter().map(|blob| blob.0).collect());
    let devices = std::mem::take(&mut talk.devices).into_iter().zip(waits);
    let devices = devices.map(|(device, messages)| Left { device, messages }).collect();
    Ok(Taken { session, fs, devices, talk, before: pid })
}

/// Says who comes; the conversation, the process's number, and what it says of the mount.
async fn greet(mountpoint: &Path) -> anyhow::Result<(Talk, u32, About)> {
    let device = meeting::device_at(mountpoint).context("cannot find it")?;
    let stream = match meeting::connect(&device) {
        Ok(stream) => stream,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("no process of this user listens for a successor of it")
        }
        Err(error) => return Err(error).context("cannot reach its process"),
    };
    stream.set_nonblocking(true)?;
    let peer = credentials::peer(&stream)?;
    if peer.uid != rustix::process::geteuid().as_raw() {
        bail!("its process belongs to user {}", peer.uid);
    }
    let mut talk = Talk::new(UnixStream::from_std(stream)?);
    let (oldest, newest) = FORMATS.into_inner();
    let version = env!("CARGO_PKG_VERSION").into();
    let hello = Message::Hello { magic: MAGIC, oldest, newest, version };
    talk.say(&hello, PATIENCE).await.context("its process does not answer")?;
    match hear(&mut talk, PATIENCE).await? {
        Message::Welcome { format, pid, about, .. } if FORMATS.contains(&format) => {
            Ok((talk, pid, about))
        }
        other => bail!("its process said {} where a welcome is due", other.name()),
    }
}

fn check_cluster(config: &Config, about: &About) -> anyhow::Result<()> {
    let is_same = about.cluster_id.as_bytes() == config.id.as_bytes();
    if !is_same {
        bail!("it is of cluster {} ({}), not {}", about.cluster, about.cluster_id, config.name);
    }
    Ok(())
}

/// All that the process before has, in this one. Nothing is said to anybody that it could not go on after.
async fn borrow(
    config: &Config,
    client: client::Options,
    how: MountOptions,
    state: &State,
    talk: &Talk,
) -> anyhow::Result<(Session<Fs>, Fs)> {
    let device = talk.devices.first().context("its process hands over no device")?;
    if state.left.0.len() != talk.devices.len() {
        bail!("its process hands over {} devices of {}", talk.devices.len(), state.left.0.len());
    }
    let kernel = Kernel::new(device.try_clone()?).context("cannot start a thread")?;
    kernel.places_in(&state.places.0);
    let handover = Handover::decode(state.session.0.clone());
    let handover = handover.context("its process hands over what cannot be read")?;
    let (fs, opened) = covey_cluster::borrow(config, client, &handover, kernel.forget()).await?;
    let files = Arc::new(fs.clone());
    let session = Session::taken_over(files, how, kernel, state, opened).await;
    Ok((session.map_err(anyhow::Error::msg)?, fs))
}

async fn hear(talk: &mut Talk, limit: Duration) -> anyhow::Result<Message> {
    match talk.hear(limit).await.context("its process does not hand it over")? {
        Message::Refused { reason } => bail!("{reason}"),
        message => Ok(message),
    }
}

/// Whether the process before has died when it had handed over all: nobody else would go on.
async fn has_died(before: Option<Process>) -> bool {
    let Some(before) = before else { return false };
    for _ in 0..DEATH_LOOKS {
        if !before.is_alive() {
            return true;
        }
        tokio::time::sleep(DEATH_PAUSE).await;
    }
    false
}

/// A process that is there answers at once.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long it may take to finish what it does, to settle with the servers, and to write it down.
const STATE_LIMIT: Duration = Duration::from_secs(60);
/// How long it may take to let go.
const GO_LIMIT: Duration = Duration::from_secs(10);
/// How long it may take to connect to the servers and to open what was open: less than the process before waits.
const BORROW_LIMIT: Duration = Duration::from_secs(15);
const DEATH_LOOKS: usize = 50;
const DEATH_PAUSE: Duration = Duration::from_millis(20);
