//! Logins that succeed and that fail: names, stages, keys, CHAP, sessions that replace others.

mod line;

use covey_iscsi::chap::{Algorithm, decode, encode};
use covey_iscsi::message::{Header, Lengths, NO_TAG, flags, login as status};
use covey_iscsi::negotiate::{Digest, Parameters};
use covey_iscsi::target::{Access, Connection, Elsewhere, Portal, Ticket};
use covey_iscsi::text::Text;
use covey_wire::{Machine, Payload};
use line::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const SECURITY_TO_OPERATIONAL: u8 = 0x80 | 1;
const SECURITY: u8 = 0;
const OPERATIONAL_TO_FULL: u8 = 0x80 | 1 << 2 | 3;
const SECURITY_TO_FULL: u8 = 0x80 | 3;

fn names() -> Text {
    text(&[("InitiatorName", INITIATOR), ("TargetName", TARGET)])
}

fn with(pairs: &[(&str, &str)]) -> Text {
    let mut text = names();
    pairs.iter().for_each(|(key, value)| text.push(key, *value));
    text
}

#[test]
fn a_login_goes_through_its_stages() {
    let toy = Toy::new(8);
    let mut line = Line::new(&portal(&toy));
    let (result, answer) =
        line.login(SECURITY_TO_OPERATIONAL, &with(&[("AuthMethod", "CHAP,None")]));
    assert_eq!((result, line.tsih), (0, 0));
    assert_eq!(answer.value("AuthMethod"), Some("None"));
    assert_eq!(answer.value("TargetPortalGroupTag"), Some("1"));
    assert_eq!(answer.value("TargetAlias"), Some("toy"));
    let keys = text(&[("HeaderDigest", "None"), ("X-unknown", "1")]);
    let (result, answer) = line.login(OPERATIONAL_TO_FULL, &keys);
    assert_eq!(result, 0);
    assert_eq!(answer.value("X-unknown"), Some("NotUnderstood"));
    assert_eq!(answer.value("MaxRecvDataSegmentLength"), Some("1048576"));
    assert_ne!(line.tsih, 0);
    let itt = line.read(0, 1);
    assert_eq!(line.data(itt).1, 0);
}

#[test]
fn what_is_wrong_with_a_login_is_what_its_status_says() {
    let toy = Toy::new(8);
    let access = Access { initiators: Some(vec![INITIATOR.into()]), ..Access::default() };
    let strict = Parameters { header_digest: Digest::Required, ..Parameters::TARGET };
    let portal = portal_with(&toy, access, strict);
    let other = text(&[("InitiatorName", "iqn.other"), ("TargetName", TARGET)]);
    let forged = text(&[("InitiatorName", "iqn.a\nholder 0 3"), ("TargetName", TARGET)]);
    let nowhere = text(&[("InitiatorName", INITIATOR), ("TargetName", "iqn.none")]);
    let cases = [
        ("no name", OPERATIONAL_TO_FULL, text(&[("TargetName", TARGET)]), status::MISSING),
        ("no target", OPERATIONAL_TO_FULL, text(&[("InitiatorName", INITIATOR)]), status::MISSING),
        ("a name of two lines", OPERATIONAL_TO_FULL, forged, status::INITIATOR_ERROR),
        ("another initiator", OPERATIONAL_TO_FULL, other, status::AUTHORIZATION),
        ("another target", OPERATIONAL_TO_FULL, nowhere, status::NOT_FOUND),
        (
            "session type",
            OPERATIONAL_TO_FULL,
            with(&[("SessionType", "Odd")]),
            status::SESSION_TYPE,
        ),
        ("CHAP only", SECURITY_TO_FULL, with(&[("AuthMethod", "CHAP")]), status::AUTHENTICATION),
        ("a stage back", 0x80 | 1 << 2 | 1, names(), status::INVALID),
        ("a stage that is none", 0x80 | 2 << 2 | 3, names(), status::INVALID),
        ("to stage 2", 0x80 | 2, names(), status::INVALID),
        ("T and C", 0xc0 | 1 << 2 | 3, names(), status::INVALID),
        (
            "a key twice",
            OPERATIONAL_TO_FULL,
            with(&[("TargetName", TARGET)]),
            status::INITIATOR_ERROR,
        ),
    ];
    for (what, bits, text, expected) in cases {
        let mut line = Line::new(&portal);
        assert_eq!(line.login(bits, &text).0, expected, "{what}");
        assert!(line.end.is_some(), "{what}: the connection ends");
    }
    assert!(target(&portal).sessions().is_empty());
}

#[test]
fn a_login_that_changes_its_mind_or_its_stage_fails() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    let mut line = Line::new(&portal);
    assert_eq!(line.login(1 << 2, &names()).0, 0);
    line.cid = 2;
    assert_eq!(line.login(OPERATIONAL_TO_FULL, &Text::default()).0, status::INVALID);
    let mut line = Line::new(&portal);
    assert_eq!(line.login(1 << 2, &names()).0, 0);
    assert_eq!(line.login(SECURITY, &Text::default()).0, status::INVALID);
    let mut line = Line::new(&portal);
    assert_eq!(line.login(1 << 2, &with(&[("InitialR2T", "No")])).0, 0);
    let again = text(&[("InitialR2T", "No")]);
    assert_eq!(line.login(1 << 2, &again).0, status::INITIATOR_ERROR);
}

#[test]
fn a_text_in_several_requests_is_one_text() {
    let toy = Toy::new(8);
    let mut line = Line::new(&portal(&toy));
    let bytes = with(&[("InitialR2T", "No")]).to_bytes();
    let (first, second) = bytes.split_at(20);
    let data = Payload::from(first.to_vec());
    let header = line.login_header(flags::CONTINUE | 1 << 2, &data);
    line.send(&header, true, data);
    let (header, data) = line.answer();
    assert!(matches!(header, Header::LoginResponse { flags: 4, status: 0, .. }) && data.is_empty());
    let data = Payload::from(second.to_vec());
    let header = line.login_header(OPERATIONAL_TO_FULL, &data);
    line.send(&header, true, data);
    let (_, data) = line.answer();
    assert_eq!(Text::parse(&data).unwrap().value("InitialR2T"), Some("No"));
}

#[test]
fn a_version_that_this_side_does_not_have_is_refused() {
    let toy = Toy::new(8);
    let mut line = Line::new(&portal(&toy));
    let data = Payload::from(names().to_bytes());
    let Header::LoginRequest {
        flags,
        lengths,
        isid,
        tsih,
        itt,
        cid,
        reserved,
        cmd_sn,
        exp_stat_sn,
        reserved_2,
        ..
    } = line.login_header(OPERATIONAL_TO_FULL, &data)
    else {
        unreachable!()
    };
    let (version_max, version_min) = (1, 1);
    let header = Header::LoginRequest {
        flags,
        version_max,
        version_min,
        lengths,
        isid,
        tsih,
        itt,
        cid,
        reserved,
        cmd_sn,
        exp_stat_sn,
        reserved_2,
    };
    line.send(&header, true, data);
    assert!(matches!(line.answer().0, Header::LoginResponse { status: status::VERSION, .. }));
}

fn chap() -> Access {
    Access {
        initiators: None,
        chap: vec![credentials("bob", "0123456789abcdef")],
        mutual: Some(credentials("disk", "fedcba9876543210")),
        ..Access::default()
    }
}

/// Logs in with CHAP: the last response and its text.
fn prove(
    line: &mut Line,
    algorithms: &str,
    name: &str,
    secret: &str,
    mutual: Option<&[u8]>,
) -> (u16, Text) {
    let (result, answer) = line.login(SECURITY, &with(&[("AuthMethod", "CHAP,None")]));
    assert_eq!((result, answer.value("AuthMethod")), (0, Some("CHAP")));
    let (result, answer) = line.login(SECURITY, &text(&[("CHAP_A", algorithms)]));
    if result != 0 {
        return (result, answer);
    }
    let algorithm = Algorithm::choose(answer.value("CHAP_A").unwrap()).unwrap();
    let id: u8 = answer.value("CHAP_I").unwrap().parse().unwrap();
    let challenge = decode(answer.value("CHAP_C").unwrap()).unwrap();
    let response = encode(&algorithm.response(id, secret.as_bytes(), &challenge));
    let mut proof = text(&[("CHAP_N", name), ("CHAP_R", &response)]);
    if let Some(theirs) = mutual {
        let theirs = if theirs.is_empty() { &challenge } else { theirs };
        proof.push("CHAP_I", "77");
        proof.push("CHAP_C", encode(theirs));
    }
    line.login(SECURITY_TO_OPERATIONAL, &proof)
}

#[test]
fn chap_proves_both_sides() {
    let toy = Toy::new(8);
    let portal = portal_with(&toy, chap(), Parameters::TARGET);
    for algorithm in ["5", "6", "7", "8", "99,8,5"] {
        let mut line = Line::new(&portal);
        let (result, answer) =
            prove(&mut line, algorithm, "bob", "0123456789abcdef", Some(b"hello"));
        assert_eq!((result, answer.value("CHAP_N")), (0, Some("disk")));
        let algorithm = Algorithm::choose(algorithm).unwrap();
        let expected = algorithm.response(77, b"fedcba9876543210", b"hello");
        assert_eq!(decode(answer.value("CHAP_R").unwrap()), Some(expected));
        assert_eq!(line.login(OPERATIONAL_TO_FULL, &Text::default()).0, 0);
    }
    let mut line = Line::new(&portal);
    assert_eq!(prove(&mut line, "5", "bob", "0123456789abcdef", None).0, 0);
}

#[test]
fn who_does_not_prove_it_does_not_get_in() {
    let toy = Toy::new(8);
    let portal = portal_with(&toy, chap(), Parameters::TARGET);
    let secret = "0123456789abcdef";
    let cases: [(&str, &str, &str, Option<&[u8]>); 5] = [
        ("5", "bob", "0123456789abcdeX", None),
        ("5", "eve", secret, None),
        ("5", "eve", "", None),
        ("4", "bob", secret, None),
        // Our own challenge sent back.
        ("5", "bob", secret, Some(b"")),
    ];
    for (algorithms, name, given, mutual) in cases {
        let mut line = Line::new(&portal);
        assert_eq!(
            prove(&mut line, algorithms, name, given, mutual).0,
            status::AUTHENTICATION,
            "{name} {given}"
        );
        assert!(line.end.is_some());
    }
    // Without the security stage, or out of it before its end.
    let mut line = Line::new(&portal);
    assert_eq!(line.login(OPERATIONAL_TO_FULL, &names()).0, status::AUTHENTICATION);
    let mut line = Line::new(&portal);
    assert_eq!(
        line.login(SECURITY_TO_OPERATIONAL, &with(&[("AuthMethod", "None")])).0,
        status::AUTHENTICATION
    );
    let mut line = Line::new(&portal);
    let (result, _) = line.login(SECURITY_TO_FULL, &with(&[("AuthMethod", "CHAP")]));
    assert_eq!((result, line.tsih), (0, 0));
    assert_eq!(line.login(OPERATIONAL_TO_FULL, &Text::default()).0, status::INVALID);
    // A target that must prove itself with the initiator's own secret would prove nothing.
    let same = Access { mutual: Some(credentials("disk", secret)), ..chap() };
    let portal = portal_with(&toy, same, Parameters::TARGET);
    let mut line = Line::new(&portal);
    assert_eq!(prove(&mut line, "5", "bob", secret, Some(b"hello")).0, status::AUTHENTICATION);
    assert!(target(&portal).sessions().is_empty());
}

#[test]
fn a_stranger_is_bounded_in_time_and_in_memory() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    let mut line = Line::new(&portal);
    line.wait(Duration::from_secs(14));
    assert!(line.end.is_none());
    line.wait(Duration::from_secs(1));
    assert!(line.end.is_some(), "a login takes at most 15 s");
    // A PDU of more than 8192 bytes is not waited for.
    let mut line = Line::new(&portal);
    let mut header = [0; 48];
    (header[0], header[6], header[7]) = (0x43, 0x20, 0x01);
    line.send_bytes(&header);
    assert!(line.end.is_some());
    // A text that never ends.
    let mut line = Line::new(&portal);
    for number in 0..3 {
        let data = Payload::from(vec![b'x'; 8000]);
        let header = line.login_header(flags::CONTINUE | 1 << 2, &data);
        line.send(&header, true, data);
        let (header, _) = line.answer();
        let Header::LoginResponse { status: found, .. } = header else { panic!("{header:?}") };
        assert_eq!(found, if number < 2 { 0 } else { status::INITIATOR_ERROR });
    }
    // A login that never ends.
    let mut line = Line::new(&portal);
    line.login(1 << 2, &names());
    let mut requests = 1;
    while line.end.is_none() {
        let header = line.login_header(1 << 2, &Payload::default());
        line.send(&header, true, Payload::default());
        requests += 1;
    }
    assert_eq!(requests, 33);
    // Something else.
    let mut line = Line::new(&portal);
    line.send_bytes(b"GET / HTTP/1.1\r\nHost: example.org\r\nAccept: */*\r\n\r\n");
    assert!(line.end.is_some() && line.next().is_none());
}

/// Each key may be answered, so their number is what bounds an answer: it never needs the C bit.
#[test]
fn a_text_has_at_most_64_keys_and_its_answer_fits_into_one_pdu() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    let keys = |count: usize| {
        let mut text = names();
        (0..count - 2).for_each(|number| text.push(&format!("X{number:062}"), "1"));
        text
    };
    for (count, expected) in
        [(64, 0), (65, status::INITIATOR_ERROR), (120, status::INITIATOR_ERROR)]
    {
        let mut line = Line::new(&portal);
        // Not the last text of its login: the number is what fails it.
        let (found, answer) = line.login(1 << 2, &keys(count));
        assert_eq!(found, expected, "{count} keys");
        assert!(answer.to_bytes().len() <= 8192, "{} bytes", answer.to_bytes().len());
        if expected == 0 {
            let said = answer.pairs().filter(|(_, value)| *value == "NotUnderstood").count();
            assert_eq!(said, count - 2);
        }
    }
}

#[test]
fn a_target_that_is_elsewhere_says_where() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    for (for_good, expected) in [(false, status::MOVED_TEMPORARILY), (true, status::MOVED)] {
        let address = "10.0.0.2:3260".to_owned();
        target(&portal).set_elsewhere(Some(Elsewhere { address, for_good }));
        let mut line = Line::new(&portal);
        let (result, answer) = line.login(OPERATIONAL_TO_FULL, &names());
        assert_eq!((result, answer.value("TargetAddress")), (expected, Some("10.0.0.2:3260")));
    }
    target(&portal).set_elsewhere(None);
    Line::logged_in(&portal, &[]);
}

#[test]
fn the_same_initiator_port_replaces_its_session() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    toy.state.lock().unwrap().is_slow = true;
    let mut old = Line::logged_in(&portal, &[]);
    old.read(0, 1);
    let mut other = Line::new(&portal);
    other.isid[5] = 9;
    other.enter(&[]);
    let mut new = Line::new(&portal);
    let data = Payload::from(names().to_bytes());
    let header = new.login_header(OPERATIONAL_TO_FULL, &data);
    new.send(&header, true, data);
    assert!(new.next().is_none(), "the old one is still there");
    assert_eq!(target(&portal).sessions().len(), 2);
    // What comes late on the old one is not executed.
    old.write(0, &[9; BLOCK], BLOCK);
    assert_eq!(toy.waiting(), 1);
    toy.release();
    old.poll();
    assert!(old.end.is_some() && old.next().is_none(), "what the old one asked for has no answer");
    let lost = || toy.state.lock().unwrap().lost.clone();
    let began = lost();
    assert_eq!(began.len(), 1);
    drop(old);
    // What its last commands may have reserved goes with it, once more.
    assert_eq!(lost(), [began[0]; 2]);
    new.poll();
    assert!(matches!(new.answer().0, Header::LoginResponse { status: 0, .. }));
    assert_eq!(target(&portal).sessions().len(), 2);
    new.read(0, 1);
    toy.release();
    new.poll();
    assert!(new.next().is_some());
    other.poll();
    assert!(other.end.is_none());
}

#[test]
fn a_session_has_several_connections_and_one_order() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    let ready = cdb(0, 0, 0);
    let mut first = Line::logged_in(&portal, &[("MaxConnections", "2")]);
    let mut second = Line::beside(&portal, &first, 2);
    second.enter(&[]);
    assert_eq!(target(&portal).sessions()[0].connections(), 2);
    second.command_as(1, 11, flags::FINAL, ready, 0, &[]);
    assert!(second.next().is_none());
    first.command_as(2, 10, flags::FINAL, ready, 0, &[]);
    assert_eq!(first.status(2), 0);
    second.poll();
    assert_eq!(second.status(1), 0, "the one before it came on the other connection");
    let mut third = Line::beside(&portal, &first, 3);
    assert_eq!(third.login(OPERATIONAL_TO_FULL, &names()).0, status::TOO_MANY_CONNECTIONS);
    let mut stranger = Line::new(&portal);
    (stranger.tsih, stranger.isid[5]) = (first.tsih, 1);
    assert_eq!(stranger.login(OPERATIONAL_TO_FULL, &names()).0, status::NO_SESSION);
    // The same connection again takes the place of the old one.
    let mut again = Line::beside(&portal, &first, 2);
    again.enter(&[]);
    second.poll();
    assert!(second.end.is_some());
    drop((second, first));
    assert_eq!(target(&portal).sessions().len(), 1);
    drop(again);
    assert!(target(&portal).sessions().is_empty());
}

fn send_text(line: &mut Line, itt: u32, ttt: u32, which: &[(&str, &str)]) {
    let data = Payload::from(text(which).to_bytes());
    let header = Header::TextRequest {
        flags: flags::FINAL,
        reserved: Default::default(),
        lengths: Lengths::of_data(data.len()),
        lun: 0,
        itt,
        ttt,
        cmd_sn: 0,
        exp_stat_sn: 0,
        reserved_2: Default::default(),
    };
    line.send(&header, true, data);
}

fn ask(line: &mut Line, itt: u32, ttt: u32, which: &[(&str, &str)]) -> (u8, u32, Vec<u8>) {
    send_text(line, itt, ttt, which);
    let (header, data) = line.answer();
    let Header::TextResponse { flags, itt: of, ttt, .. } = header else { panic!("{header:?}") };
    assert_eq!(of, itt);
    (flags, ttt, data.to_vec())
}

#[test]
fn discovery_names_the_targets_that_one_may_use() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    target(&portal).set_addresses(vec!["10.0.0.1:3260".into(), "[fe80::1]:3260".into()]);
    let mut line = Line::new(&portal);
    let keys = text(&[
        ("InitiatorName", INITIATOR),
        ("SessionType", "Discovery"),
        ("MaxBurstLength", "512"),
    ]);
    let (result, answer) = line.login(OPERATIONAL_TO_FULL, &keys);
    assert_eq!((result, answer.value("MaxBurstLength")), (0, Some("Irrelevant")));
    let (flags, ttt, data) = ask(&mut line, 1, NO_TAG, &[("SendTargets", "All")]);
    assert_eq!((flags, ttt), (0x80, NO_TAG));
    let expected = format!(
        "TargetName={TARGET}\0TargetAddress=10.0.0.1:3260,1\0TargetAddress=[fe80::1]:3260,1\0"
    );
    assert_eq!(String::from_utf8(data).unwrap(), expected);
    let (_, _, data) = ask(&mut line, 2, NO_TAG, &[("SendTargets", "iqn.none")]);
    assert!(data.is_empty());
    target(&portal)
        .set_access(Access { initiators: Some(vec!["iqn.other".into()]), ..Access::default() });
    assert!(ask(&mut line, 3, NO_TAG, &[("SendTargets", "All")]).2.is_empty());
    // Commands are for sessions with a target.
    line.read(0, 1);
    assert!(matches!(line.answer().0, Header::Reject { .. }));
}

fn discovery() -> Text {
    text(&[("InitiatorName", INITIATOR), ("SessionType", "Discovery")])
}

/// Nobody has proved anything who asks which targets there are: what they can make the target do is small and short.
#[test]
fn a_discovery_session_is_short_and_asks_one_thing_at_a_time() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    let mut line = Line::new(&portal);
    line.login(OPERATIONAL_TO_FULL, &discovery());
    send_text(&mut line, 5, NO_TAG, &[("SendTargets", "All"), ("SendTargets", "All")]);
    assert!(matches!(line.answer().0, Header::Reject { .. }));
    let (.., data) = ask(&mut line, 7, NO_TAG, &[("SendTargets", "All")]);
    assert!(!data.is_empty());
    let end = line.now + Duration::from_secs(15);
    assert_eq!(line.connection.poll_deadline(), Some(end));
    assert!(line.connection.handle_timeout(end).is_err());
}

#[test]
fn where_no_secret_is_asked_for_somebody_must_vouch() {
    let toy = Toy::new(8);
    let access = Access { vouched_only: true, ..Access::default() };
    let portal = portal_with(&toy, access, Parameters::TARGET);
    let vouched = || {
        let mut line = Line::new(&portal);
        let local = "127.0.0.1:3260".into();
        line.connection = Connection::new(portal.clone(), local, [7; 33], line.now).vouched_for();
        line
    };
    assert_eq!(Line::new(&portal).login(OPERATIONAL_TO_FULL, &names()).0, status::AUTHORIZATION);
    assert_eq!(vouched().login(OPERATIONAL_TO_FULL, &names()).0, 0);
    for (mut line, is_named) in [(Line::new(&portal), false), (vouched(), true)] {
        line.login(OPERATIONAL_TO_FULL, &discovery());
        let (.., data) = ask(&mut line, 1, NO_TAG, &[("SendTargets", "All")]);
        assert_eq!(!data.is_empty(), is_named);
    }
}

#[test]
fn a_session_that_would_not_be_let_in_any_more_can_be_ended() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    let target = target(&portal);
    let only = |name: &str| Access { initiators: Some(vec![name.into()]), ..Access::default() };
    for (access, stays) in [
        (only(INITIATOR), true),
        (only("iqn.other"), false),
        (Access { vouched_only: true, ..Access::default() }, false),
        (chap(), false),
    ] {
        let mut line = Line::logged_in(&portal, &[]);
        target.set_access(access.clone());
        line.poll();
        assert!(line.end.is_none());
        target.evict("no more");
        line.poll();
        assert_eq!(line.end.is_none(), stays, "{access:?}");
        target.set_access(Access::default());
    }
}

/// What a login was checked against when it began may have changed when it is done.
#[test]
fn a_login_that_is_half_done_is_checked_again_at_its_end() {
    let toy = Toy::new(8);
    let only = |name: &str| Access { initiators: Some(vec![name.into()]), ..Access::default() };
    let away = Elsewhere { address: "10.0.0.2:3260".into(), for_good: false };
    type Change = (Box<dyn Fn(&Arc<Portal<Toy>>)>, u16);
    let changes: [Change; 6] = [
        (Box::new(|_| {}), status::SUCCESS),
        (Box::new(move |it| target(it).set_access(only("iqn.other"))), status::AUTHORIZATION),
        (Box::new(|it| target(it).set_access(chap())), status::AUTHENTICATION),
        (Box::new(|it| target(it).set_away(true)), status::UNAVAILABLE),
        (Box::new(move |it| target(it).set_elsewhere(Some(away.clone()))), status::UNAVAILABLE),
        (Box::new(|it| drop(it.remove(TARGET, 3))), status::NOT_FOUND),
    ];
    for (number, (change, expected)) in changes.iter().enumerate() {
        let portal = portal(&toy);
        let mut line = Line::new(&portal);
        assert_eq!(line.login(SECURITY_TO_OPERATIONAL, &names()).0, status::SUCCESS);
        change(&portal);
        let (found, _) = line.login(OPERATIONAL_TO_FULL, &Text::default());
        assert_eq!(found, *expected, "change {number}");
    }
}

/// Who asks which targets there are stays a stranger; who logs in to one needs a place among those who have.
#[test]
fn a_place_is_asked_for_when_a_target_is_entered() {
    struct Counted(Arc<AtomicUsize>);
    impl Ticket for Counted {
        fn admit(&mut self) -> bool {
            self.0.fetch_add(1, Ordering::SeqCst) == 0
        }
    }
    let toy = Toy::new(8);
    let portal = portal(&toy);
    let asked = Arc::new(AtomicUsize::new(0));
    let line = || {
        let mut line = Line::new(&portal);
        let connection = Connection::new(portal.clone(), "a:1".into(), [7; 33], line.now);
        line.connection = connection.with_ticket(Box::new(Counted(asked.clone())));
        line
    };
    assert_eq!(line().login(OPERATIONAL_TO_FULL, &discovery()).0, 0);
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    let mut first = line();
    assert_eq!(first.login(OPERATIONAL_TO_FULL, &names()).0, 0);
    assert_eq!(line().login(OPERATIONAL_TO_FULL, &names()).0, status::OUT_OF_RESOURCES);
    assert_eq!(target(&portal).sessions().len(), 1, "who got no place ends nobody's session");
}

/// Commands whose number is missing wait; their data is not gathered without limit.
#[test]
fn nothing_is_read_while_much_waits_for_its_turn() {
    let toy = Toy::new(8);
    let mut line = Line::logged_in(&portal(&toy), &[]);
    line.cmd_sn += 1;
    let mut count = 0;
    while !line.connection.is_full() {
        let write = cdb(0x2a, 0, 32);
        line.command(flags::FINAL | flags::WRITE, write, 32 * BLOCK, &[0; 32 * BLOCK]);
        count += 1;
        assert!(count < 100, "the window alone is no limit");
    }
    assert!(count * 32 * BLOCK > 1 << 20 && line.end.is_none());
    // It is no longer read, so nobody would notice that its peer has gone.
    let ms = std::time::Duration::from_millis;
    line.wait(ms(15_000));
    line.wait(ms(14_999));
    assert!(line.end.is_none() && line.connection.is_full());
    line.wait(ms(1));
    let end = line.end.as_ref().unwrap().to_string();
    assert!(end.contains("CmdSN 10 has not come for 30 s"), "{end}");
}

/// What is missing may be late on another connection: whoever has been waiting for it goes on.
#[test]
fn what_waited_for_its_turn_is_done_when_that_has_come() {
    let toy = Toy::new(64);
    let portal = portal(&toy);
    let mut first = Line::logged_in(&portal, &[("MaxConnections", "2")]);
    let mut second = Line::beside(&portal, &first, 2);
    second.enter(&[]);
    let (write, bits) = (cdb(0x2a, 0, 32), flags::FINAL | flags::WRITE);
    let mut last = 0;
    while !second.connection.is_full() {
        last += 1;
        let data = [7; 32 * BLOCK];
        second.command_as(100 + last, 10 + last, bits, write, data.len(), &data);
    }
    second.wait(std::time::Duration::from_secs(29));
    first.command_as(1, 10, flags::FINAL, cdb(0, 0, 0), 0, &[]);
    assert_eq!(first.status(1), 0);
    second.poll();
    (1..=last).for_each(|at| assert_eq!(second.status(100 + at), 0));
    second.wait(std::time::Duration::from_secs(10));
    assert!(second.end.is_none() && !second.connection.is_full());
}

#[test]
fn a_long_list_of_targets_comes_in_several_answers() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    target(&portal).set_addresses((0..100).map(|n| format!("10.0.0.{n}:3260")).collect());
    let mut line = Line::new(&portal);
    let keys = text(&[
        ("InitiatorName", INITIATOR),
        ("SessionType", "Discovery"),
        ("MaxRecvDataSegmentLength", "512"),
    ]);
    line.login(OPERATIONAL_TO_FULL, &keys);
    let (mut bits, mut ttt, mut all) = ask(&mut line, 1, NO_TAG, &[("SendTargets", "All")]);
    while bits & flags::FINAL == 0 {
        assert_eq!(bits, flags::CONTINUE);
        let data;
        (bits, ttt, data) = ask(&mut line, 1, ttt, &[]);
        assert!(data.len() <= 512);
        all.extend(data);
    }
    assert_eq!(Text::parse(&all).unwrap().pairs().count(), 101);
}

#[test]
fn in_a_normal_session_only_its_own_target_is_named() {
    let toy = Toy::new(8);
    let mut line = Line::logged_in(&portal(&toy), &[]);
    let expected = format!("TargetName={TARGET}\0TargetAddress=127.0.0.1:3260,1\0");
    for (which, answer) in [
        ("", &expected[..]),
        (TARGET, &expected),
        ("All", "SendTargets=Reject\0"),
        ("iqn.none", ""),
    ] {
        let (_, _, data) = ask(&mut line, 1, NO_TAG, &[("SendTargets", which)]);
        assert_eq!(String::from_utf8(data).unwrap(), answer);
    }
    // The one key that may change.
    ask(&mut line, 2, NO_TAG, &[("MaxRecvDataSegmentLength", "512")]);
    line.read(0, 2);
    assert_eq!(line.answer().1.len(), 512);
}

#[test]
fn an_initiator_that_is_asked_to_log_out_may_not_stay() {
    let toy = Toy::new(8);
    let portal = portal(&toy);
    let mut line = Line::logged_in(&portal, &[]);
    portal.remove(TARGET, 3).unwrap();
    line.poll();
    assert!(matches!(line.answer().0, Header::Async { event: 1, parameter_3: 3, .. }));
    // However busy it is.
    line.wait(Duration::ZERO);
    for _ in 0..2 {
        line.wait(Duration::from_secs(1));
        line.read(0, 1);
        line.answer();
    }
    assert!(line.end.is_none());
    line.wait(Duration::from_secs(1));
    assert!(line.end.is_some());
    let mut line = Line::new(&portal);
    assert_eq!(line.login(OPERATIONAL_TO_FULL, &names()).0, status::NOT_FOUND);
}
