//! Tasks are carried out on threads of their own: what they copy does not hold up the metadata server's.

use super::{Control, carry_out, connected};
use crate::meta::Begin;
use covey_stripe::client::{Fs, Net, Options};
use covey_stripe::ops::Task;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

/// Carries out tasks as a client of the metadata server `meta`, called `name`, each on a thread of its own.
pub fn beside(net: Arc<dyn Net>, meta: String, name: String) -> Begin {
    let options = Options { name, ..Options::default() };
    Rc::new(move |task, control| {
        let (net, meta, options) = (net.clone(), meta.clone(), options.clone());
        let ended = Ended(control);
        let thread = std::thread::Builder::new().name("mover".into());
        let work = move || work(net, &meta, &options, &task, &ended.0);
        if let Err(error) = thread.spawn(move || work().unwrap_or_else(|error| told(&error))) {
            told(&error);
        }
    })
}

fn work(
    net: Arc<dyn Net>,
    meta: &str,
    options: &Options,
    task: &Task,
    control: &Control,
) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let connect = || Fs::connect(net.clone(), meta, options.clone());
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let Some(fs) = connected(connect, control).await else { return };
        carry_out(&fs, task, control).await;
        fs.bye().await;
    });
    Ok(())
}

fn told(error: &io::Error) {
    tracing::warn!("files cannot be moved: {error}");
}

/// Says that nobody works on a task any more, however it has ended.
struct Ended(Arc<Control>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended();
    }
}
