//! The metrics: their names, units and meaning. The manual's table, the dashboard and the alert rules are tested
//! against this one.

use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Unit;

/// One metric, without the unit and the `_total` that the format appends.
pub struct Metric {
    pub name: &'static str,
    pub unit: Option<Unit>,
    pub kind: MetricType,
    pub help: &'static str,
}

macro_rules! metrics {
    ($($(#[doc = $help:literal])* $id:ident = $name:literal $kind:ident $($unit:ident)?;)*) => {
        $(
            $(#[doc = $help])*
            pub const $id: Metric = Metric {
                name: $name,
                unit: metrics!(@unit $($unit)?),
                kind: MetricType::$kind,
                help: concat!($($help),*).trim_ascii_start(),
            };
        )*
    };
    (@unit) => { None };
    (@unit $unit:ident) => { Some(Unit::$unit) };
}

metrics! {
    /// Whether the node answers and may serve its store
    UP = "covey_up" Gauge;
    /// The shortest of five round trips to the node
    LATENCY = "covey_latency" Gauge Seconds;
    /// The version that the node runs
    BUILD = "covey_build" Info;
    /// The size of the file system that holds the node's store
    STORE_SIZE = "covey_store_size" Gauge Bytes;
    /// What is free of it for the node
    STORE_FREE = "covey_store_free" Gauge Bytes;
    /// The size to which the metadata may grow
    METADATA_SIZE = "covey_metadata_size" Gauge Bytes;
    /// What the metadata takes of it
    METADATA_USED = "covey_metadata_used" Gauge Bytes;
    /// Times of requests, from their arrival to their answer
    OPERATIONS = "covey_operation_duration" Histogram Seconds;
    /// Requests that were answered with an error
    ERRORS = "covey_operation_errors" Counter;
    /// Bytes that requests have carried
    BYTES = "covey_operation" Counter Bytes;
    /// Requests of a client that is connected
    CLIENT_REQUESTS = "covey_client_requests" Counter;
    /// Bytes that its requests have carried
    CLIENT_BYTES = "covey_client" Counter Bytes;
    /// The time that its requests have taken
    CLIENT_TIME = "covey_client" Counter Seconds;
    /// Times of the metadata server's log and checkpoints
    STEPS = "covey_step_duration" Histogram Seconds;
    /// Whether the node has the volume open; 0 where it is closed or stands by
    VOLUME_OPEN = "covey_volume_open" Gauge;
    /// The size of a volume that is open
    VOLUME_SIZE = "covey_volume_size" Gauge Bytes;
    /// Initiators' sessions on the volume
    VOLUME_SESSIONS = "covey_volume_sessions" Gauge;
    /// Requests of initiators to the volume since it was opened
    VOLUME_REQUESTS = "covey_volume_requests" Counter;
    /// Bytes that they have read and written
    VOLUME_BYTES = "covey_volume" Counter Bytes;
    /// Those of them that failed
    VOLUME_FAILURES = "covey_volume_failures" Counter;
    /// What else a node counts: each plain number of its /stats
    EVENTS = "covey_events" Counter;
}
