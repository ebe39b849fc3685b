//! `covey systemd`: the units that run a node and mount the files.

use super::Context;
use crate::error::Result;

/// Print the systemd unit that runs a node, or that mounts the files
///
/// One instance per node, named like the node in /etc/covey/covey.toml; one instance per directory,
/// named as `systemd-escape --path` writes it. A node runs the programs of `covey run` as its children,
/// so its unit takes nothing away from them; for a node without the role launch `sandbox` is a drop-in
/// that leaves its servers little of what root may do.
///
/// EXAMPLES
///
///     covey systemd > /etc/systemd/system/covey@.service
///     systemctl enable --now covey@node1
///     covey systemd mount > /etc/systemd/system/covey-mount@.service
///     systemctl enable --now covey-mount@mnt-covey
///     covey systemd sandbox > /etc/systemd/system/covey@node1.service.d/sandbox.conf
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Which unit
    #[arg(value_enum, value_name = "UNIT", default_value_t = Unit::Serve)]
    unit: Unit,
}

/// What is run.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum Unit {
    /// covey@NODE, a node
    Serve,
    /// covey-mount@DIR, the files at a directory
    Mount,
    /// A drop-in for covey@NODE where the node has no role launch
    Sandbox,
}

impl Unit {
    /// Its file's name, and the file as it is packaged.
    fn packaged(self) -> (&'static str, &'static str) {
        match self {
            Unit::Serve => ("covey@.service", include_str!("../../../../dist/covey@.service")),
            Unit::Mount => {
                let text = include_str!("../../../../dist/covey-mount@.service");
                ("covey-mount@.service", text)
            }
            Unit::Sandbox => ("sandbox.conf", include_str!("../../../../dist/covey@.sandbox.conf")),
        }
    }
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let (unit, text) = args.unit.packaged();
    context.output.result(&serde_json::json!({ "unit": unit, "text": text }), |out| {
        out.extend_from_slice(text.as_bytes());
        Ok(())
    })
}
