//! The volumes of the nodes.

use super::names;
use super::scrape::{Look, begin, number, one};
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use serde_json::{Map, Value};
use std::fmt;

/// Requests as they are labelled, and their counts by name.
const REQUESTS: [(&str, &str); 4] =
    [("read", "reads"), ("write", "writes"), ("flush", "flushes"), ("other", "other_changes")];
/// Of these the bytes are counted.
const BYTES: [(&str, &str); 2] = [("read", "read_bytes"), ("write", "write_bytes")];

impl Look {
    /// What is told of volumes.
    pub(super) fn encode_volumes(&self, encoder: &mut DescriptorEncoder) -> fmt::Result {
        let gauges = [
            (&names::VOLUME_OPEN, "open"),
            (&names::VOLUME_SIZE, "bytes"),
            (&names::VOLUME_SESSIONS, "sessions"),
        ];
        for (metric, key) in gauges {
            let mut family = begin(encoder, metric)?;
            // A volume that is closed has no size.
            let is_told =
                |values: &Map<String, Value>| key != "bytes" || number(values, "open") > 0.0;
            for (node, volume, values) in self.volumes().filter(|(.., values)| is_told(values)) {
                let labels = [("node", node), ("volume", volume)];
                one(&mut family, &labels, &ConstGauge::new(number(values, key)))?;
            }
        }
        for (metric, counts) in
            [(&names::VOLUME_REQUESTS, &REQUESTS[..]), (&names::VOLUME_BYTES, &BYTES[..])]
        {
            let mut family = begin(encoder, metric)?;
            for (node, volume, values) in self.volumes() {
                for (operation, key) in counts {
                    let labels = [("node", node), ("volume", volume), ("operation", operation)];
                    one(&mut family, &labels, &ConstCounter::new(number(values, key)))?;
                }
            }
        }
        let mut family = begin(encoder, &names::VOLUME_FAILURES)?;
        for (node, volume, values) in self.volumes() {
            let labels = [("node", node), ("volume", volume)];
            one(&mut family, &labels, &ConstCounter::new(number(values, "failures")))?;
        }
        Ok(())
    }

    /// Node, volume, and what is told of it.
    fn volumes(&self) -> impl Iterator<Item = (&str, &str, &Map<String, Value>)> {
        self.lines().flat_map(|(node, lines)| {
            let volumes = lines
                .iter()
                .filter_map(|(line, values)| Some((line.strip_prefix("volume ")?, values)));
            volumes.map(move |(volume, values)| (node, volume, values))
        })
    }
}
