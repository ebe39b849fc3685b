use super::*;
use std::cell::Cell;

#[test]
fn a_line_is_read_as_it_was_written() {
    for port in [Port::Receiver, Port::Sender] {
        let ends = ("10.0.0.1:5640".parse().unwrap(), "[fd00::1]:7".parse().unwrap());
        for in_half in [false, true] {
            let limit = Limit { rate: 12_345, in_half };
            assert_eq!(parse(line(port, ends, limit).trim()), Some((ends, port, limit)));
        }
    }
    // Of a later version's words the first four count.
    let later = parse("receiver 10.0.0.1:1 10.0.0.2:2 5 third and more").map(|(.., limit)| limit);
    assert_eq!(later, Some(5.into()));
    for wrong in ["", "free", "receiver", "receiver 10.0.0.1:1 10.0.0.2 5", "later 1 2 3"] {
        assert_eq!(parse(wrong), None, "{wrong}");
    }
}

#[test]
fn a_node_that_says_a_lot_is_read_less_often() {
    assert_eq!(pause_after(0), READ_EVERY);
    assert_eq!(pause_after(16 << 10), READ_EVERY);
    let most = pause_after(READ_BYTES as usize);
    assert!(most >= 25 * READ_EVERY && most < SILENCE_MAX / 10, "{most:?}");
}

/// A node that is heard while there are connections, at these seconds of a time that passes while it is waited for.
struct Heard {
    now: Cell<Duration>,
    connections: Vec<std::ops::Range<u64>>,
    answers: bool,
    listened: Vec<Duration>,
    left: usize,
}

impl Speaker for Heard {
    fn is_wanted(&self) -> bool {
        self.connections.iter().any(|times| times.contains(&self.now.get().as_secs()))
    }

    async fn listen(&mut self) -> Result<()> {
        self.listened.push(self.now.get());
        while self.answers && self.is_wanted() {
            self.sleep(READ_EVERY).await;
        }
        if self.answers { Ok(()) } else { Err(Errno::ETIMEDOUT.into()) }
    }

    fn is_left(&mut self) {
        self.left += 1;
    }

    async fn sleep(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }
}

fn heard(connections: &[std::ops::Range<u64>], answers: bool) -> Heard {
    let (now, connections) = (Cell::default(), connections.to_vec());
    let mut heard = Heard { now, connections, answers, listened: Vec::new(), left: 0 };
    // Time passes by itself.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(attend(&mut heard));
    heard
}

/// An initiator that had logged in anew sent as it liked for two seconds: those who obeyed were all freed then, too.
#[test]
fn a_connection_that_comes_after_the_last_has_ended_is_listened_for_at_once() {
    let found = heard(&[1..3, 4..6, 20..30], true);
    assert_eq!(found.listened, [1, 4].map(Duration::from_secs));
    // For one that does not come nobody looks for long.
    assert_eq!((found.left, found.now.get()), (2, Duration::from_secs(11) + BETWEEN));
}

#[test]
fn a_node_that_says_nothing_is_asked_every_two_seconds() {
    let found = heard(&[1..5, 5..10], false);
    assert_eq!(found.listened, [1, 3, 5, 7, 9].map(Duration::from_secs));
    assert_eq!(found.left, 1);
}

#[test]
fn a_limit_that_is_not_repeated_is_lifted() {
    let mut limits = Limits::default();
    let ends = |port: u16| (([10, 9, 9, 1], port).into(), ([10, 9, 9, 2], 5640).into());
    let text: String = [1, 2].iter().map(|at| line(Port::Receiver, ends(*at), 9.into())).collect();
    let sayer = Sayer::at(&["10.9.9.2"], &[]);
    limits.obey(&text, &sayer);
    assert_eq!(limits.flows.len(), 2);
    limits.obey(&line(Port::Receiver, ends(2), 9.into()), &sayer);
    assert_eq!(limits.flows.iter().next(), Some(&(ends(2), false)));
    limits.lift_all();
    assert!(limits.flows.is_empty());
}

#[test]
fn what_new_connections_begin_with_is_for_the_node_itself_to_say() {
    let mut limits = Limits::default();
    let sayer = Sayer::at(&["10.9.8.2", "fd00::9"], &["10.9.8.4"]);
    let own: Vec<IpAddr> = ["10.9.8.2", "10.9.8.4", "fd00::9", "10.9.8.3"]
        .map(|address| address.parse().unwrap())
        .into();
    let text: String = own.iter().map(|address| begin_line(*address, 7)).collect();
    limits.obey(&text, &sayer);
    assert!(limits.begin.iter().eq([own[0], own[1], own[2]].iter()), "{:?}", limits.begin);
    limits.obey(&begin_line(own[1], 7), &sayer);
    assert!(limits.begin.iter().eq([own[1]].iter()), "it is not repeated");
    for wrong in ["begin", "begin 10.9.8.2", "begin 10.9.8.2 -1", "begin ten 10", "begin ::1 1 1"] {
        assert_eq!(parse_begin(wrong), None, "{wrong}");
    }
    limits.lift_all();
    assert!(limits.begin.is_empty());
}

/// A connection to an address of which nothing is heard is slow for half a second.
#[test]
fn the_first_word_of_a_node_is_heard_at_all_its_addresses() {
    let mut limits = Limits::default();
    let sayer = Sayer::at(&["10.9.6.2", "10.9.6.3"], &["10.9.6.4"]);
    limits.obey("", &sayer);
    assert!(limits.heard.iter().copied().eq(sayer.addresses()) && limits.heard.len() == 3);
    limits.lift_all();
    assert_eq!(limits.heard.len(), 3, "it was heard, and is silent");
}

#[test]
fn settings_that_are_none_are_not_taken() {
    for (line, taken) in [
        ("window 0", Some(Setting::Window(WINDOW_BYTES_MIN))),
        ("window 40000", Some(Setting::Window(40_000))),
        ("dscp 0", Some(Setting::Mark(0))),
        ("dscp 63", Some(Setting::Mark(63))),
        ("window -1", None),
        ("window NaN", None),
        ("window", None),
        ("dscp 64", None),
        ("dscp 1e9", None),
        ("receiver 1 2 3", None),
    ] {
        assert_eq!(setting(line), taken, "{line}");
    }
}

/// What one node says holds for connections to it, until it is silent, and not until any is.
#[test]
fn a_node_says_nothing_of_connections_to_others() {
    let text = r#"version = 1
        [cluster]
        name = "lab"
        id = "8f1c0d5e3b7a49c2a6d4e1f09b3c7a58"
        nodes = 1
        [[node]]
        name = "n1"
        roles = ["meta", "data"]
        listen = ["unix!/run/covey/n1.sock"]
        store = "/var/lib/covey/n1""#;
    let config = crate::config::parse(text, std::path::Path::new("c")).unwrap();
    let mut terms = Terms::new();
    let [one, other] = ["one", "other"].map(|server| terms.window(server));
    let bytes = || (one.bytes(), other.bytes());
    terms.obey("window 40000\ndscp 10\nreceiver 1 2 3", "one", || false);
    assert_eq!((bytes(), &terms.marker), ((40_000, WINDOW_BYTES), &None));
    assert_eq!(terms.window("one").bytes(), 40_000, "that of the next connection, too");
    terms.obey("window 99999999999", "other", || false);
    assert_eq!(bytes(), (40_000, WINDOW_BYTES));
    // What the cluster's file or this process's own node says is for those that say nothing.
    terms.forget("other", &config);
    terms.settle_windows(50_000);
    assert_eq!(bytes(), (40_000, 50_000));
    assert_eq!(terms.window("third").bytes(), 50_000);
    terms.forget("other", &config);
    assert_eq!(bytes(), (40_000, 50_000));
    terms.obey("dscp 8", "own", || true);
    assert_eq!(terms.marker.as_deref(), Some("own"));
    terms.forget("one", &config);
    assert_eq!((bytes(), terms.marker.as_deref()), ((50_000, 50_000), Some("own")));
    terms.forget("own", &config);
    assert_eq!(terms.marker, None);
}

#[test]
fn a_node_limits_no_connection_to_another_node() {
    let mut limits = Limits::default();
    let sayer = Sayer::at(&["10.9.9.2"], &["10.9.9.4"]);
    let ends = |peer: u8| (([10, 9, 9, 1], 1).into(), ([10, 9, 9, peer], 5640).into());
    let said = |peer: u8, port: Port| line(port, ends(peer), 0.into());
    let text = [
        said(2, Port::Receiver),
        said(3, Port::Receiver),
        // A portal of that node that this process uses, and an address of nobody's: that of a client, or another of a node.
        said(4, Port::Receiver),
        said(5, Port::Receiver),
        // What this machine's card can take is for its own node to say.
        said(2, Port::Sender),
    ];
    limits.obey(&text.concat(), &sayer);
    let found: Vec<_> = limits.flows.iter().copied().collect();
    assert_eq!(found, [(ends(2), false), (ends(4), false)]);
    let own = Sayer::at(&["10.9.9.1"], &[]);
    limits.obey(&text.concat(), &own);
    assert!(limits.flows.contains(&(ends(2), true)));
    assert!(own.is_here([ends(2)].into_iter()) && !sayer.is_here([ends(2)].into_iter()));
}
