//! Silence, heartbeats and dead peers, in virtual time.

use crate::pair::gate::Gate;
use crate::pair::*;
use covey_ninep::client::{CallError, Config};
use covey_ninep::message::Message;
use covey_wire::Machine;
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

fn waiting() -> (Gate, Pair<Gate>, covey_ninep::client::Call) {
    let gate = Gate::default();
    let mut pair = Pair::attached(gate.clone());
    // Long after the last receipt: the request counts from now.
    pair.pass(60_000 * MS);
    gate.close("getattr");
    let call = pair.conn.call(Message::Tgetattr { fid: 0, request_mask: 1 });
    pair.settle();
    (gate, pair, call)
}

#[test]
fn a_silent_peer_is_dead_after_three_seconds_and_not_before() {
    let (_, mut pair, mut call) = waiting();
    pair.server_is_mute = true;
    pair.pass(2999 * MS);
    assert!(!pair.conn.is_lost());
    assert!(poll_once(std::pin::Pin::new(&mut call)).is_none());
    pair.pass(MS);
    assert!(pair.conn.is_lost());
    let reason = "i/o: server has been silent for 3 s";
    assert_eq!(pair.run(call), Err(CallError::Lost(reason.into())));
}

#[test]
fn a_peer_that_answers_heartbeats_may_take_its_time() {
    let (gate, mut pair, call) = waiting();
    pair.pass(3600 * 1000 * MS);
    assert!(!pair.conn.is_lost());
    gate.open("getattr");
    assert!(pair.run(call).is_ok());
}

#[test]
fn a_heartbeat_leaves_after_a_second_of_silence_and_not_before() {
    let (_, mut pair, _call) = waiting();
    let writes = pair.client_writes.len();
    pair.pass(999 * MS);
    assert_eq!(pair.client_writes.len(), writes);
    pair.pass(MS);
    assert_eq!(pair.client_writes[writes..], [9], "one Tflush");
}

#[test]
fn an_idle_connection_is_left_in_peace() {
    let mut pair = Pair::attached(Gate::default());
    pair.pass(1000 * MS);
    assert_eq!(pair.client.as_ref().and_then(|client| client.poll_deadline()), None);
    pair.server_is_mute = true;
    pair.pass(60_000 * MS);
    assert!(!pair.conn.is_lost());
}

#[test]
fn an_idle_connection_is_watched_where_that_is_wanted() {
    let config = Config { heartbeat_idle: true, ..Config::default() };
    let gate = Rc::new(Gate::default());
    let mut pair = Pair::raw(gate, config, Default::default());
    let conn = pair.conn.clone();
    pair.run(conn.version()).unwrap();
    pair.pass(60_000 * MS);
    assert!(!pair.conn.is_lost());
    let since = pair.now;
    pair.server_is_mute = true;
    pair.pass(4000 * MS);
    assert!(pair.conn.is_lost());
    assert!(since + 4000 * MS >= pair.now);
}

#[test]
fn a_server_that_never_answers_tversion_is_dead_too() {
    let mut pair = Pair::raw(Rc::new(Gate::default()), Default::default(), Default::default());
    pair.server_is_mute = true;
    let conn = pair.conn.clone();
    let call = conn.call(Message::Tversion { msize: 8192, version: "9P2000.L".into() });
    pair.pass(2999 * MS);
    assert!(!conn.is_lost());
    pair.pass(MS);
    assert!(matches!(pair.run(call), Err(CallError::Lost(_))));
}

#[test]
fn a_request_after_an_idle_hour_has_three_seconds_too() {
    let (gate, mut pair, call) = waiting();
    pair.pass(3600 * 1000 * MS);
    gate.open("getattr");
    pair.run(call).unwrap();
    pair.pass(3600 * 1000 * MS);
    gate.close("getattr");
    pair.server_is_mute = true;
    let _call = pair.conn.call(Message::Tgetattr { fid: 0, request_mask: 1 });
    pair.pass(2999 * MS);
    assert!(!pair.conn.is_lost());
    pair.pass(MS);
    assert!(pair.conn.is_lost());
}

#[test]
fn a_client_that_slept_itself_asks_again_before_it_gives_up() {
    let (_, mut pair, _call) = waiting();
    pair.pass(1500 * MS);
    // Nothing runs for ten seconds, deadlines included.
    pair.now += 10_000 * MS;
    let now = pair.now;
    let client = pair.client.as_mut().expect("connected");
    assert_eq!(client.handle_timeout(now), Ok(()));
    assert!(!pair.conn.is_lost());
    pair.server_is_mute = true;
    pair.pass(2999 * MS);
    assert!(!pair.conn.is_lost());
    pair.pass(1000 * MS);
    assert!(pair.conn.is_lost());
}
