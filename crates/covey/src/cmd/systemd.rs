//! `covey systemd`: the unit that runs a node.

use super::Context;
use crate::error::Result;

/// The unit as it is packaged.
const UNIT: &str = include_str!("../../../../dist/covey@.service");

/// Print the systemd unit that runs a node
///
/// One instance per node, named like the node in /etc/covey/covey.toml.
///
/// EXAMPLES
///
///     covey systemd > /etc/systemd/system/covey@.service
///     systemctl enable --now covey@node1
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {}

/// Runs the command.
pub async fn run(_args: Args, context: &Context) -> Result<()> {
    context.output.result(&serde_json::json!({ "unit": "covey@.service", "text": UNIT }), |out| {
        out.extend_from_slice(UNIT.as_bytes());
        Ok(())
    })
}
