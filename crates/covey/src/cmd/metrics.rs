//! `covey metrics`: what the servers count, for Prometheus.

mod clients;
mod names;
mod scrape;
mod volumes;

use super::Context;
use super::http::{self, Fresh, Page, Site};
use crate::config::Config;
use crate::error::Result;
use crate::output::write_out;
use scrape::Look;
use std::net::SocketAddr;
use std::rc::Rc;

/// Print what the servers count, or serve it to Prometheus
///
/// The same figures as `covey stats`, of all nodes, in the OpenMetrics text format; the manual's page
/// "Watching a cluster" has a table of the names. With --listen, GET /metrics asks every node anew,
/// at most once a second however many ask; a node that does not answer within 3 s has covey_up 0.
///
/// Whoever reaches the address sees what all clients do: listen on loopback, or where only
/// Prometheus gets through. On loopback it is asked by number or as localhost, not by another name,
/// so that no page in a browser of this machine reads it. Only root and the servers' owner may run it.
///
/// EXAMPLES
///
///     covey metrics | grep covey_up
///     covey metrics --listen 127.0.0.1:9564
///     covey metrics --listen '[::]:9564'           for a Prometheus on another machine
#[derive(clap::Args, Debug)]
#[command(verbatim_doc_comment)]
pub struct Args {
    /// Serve http://ADDRESS/metrics until interrupted
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
}

/// Runs the command.
pub async fn run(args: Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    let look = Look::at(&config).await;
    if let Some(refusal) = look.refusal() {
        return Err(refusal);
    }
    let Some(address) = args.listen else { return write_out(look.text().as_bytes()) };
    let (listener, address) = http::listen(address).await?;
    context.output.say(format!("metrics of {} at http://{address}/metrics", config.name));
    http::serve(listener, Metrics { config: Rc::new(config), last: Fresh::default() }).await;
    Ok(())
}

/// What Prometheus fetches.
struct Metrics {
    config: Rc<Config>,
    last: Fresh,
}

impl Site for Metrics {
    async fn page(&self, path: &str) -> Option<Page> {
        const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        match path {
            "/metrics" => {
                let config = self.config.clone();
                let look = async move { Look::at(&config).await.text().into() };
                Some(Page { kind: OPEN_METRICS, body: self.last.get(look).await })
            }
            "/" => {
                let body = "covey: the metrics are at /metrics\n".into();
                Some(Page { kind: "text/plain; charset=utf-8", body })
            }
            _ => None,
        }
    }
}
