//! What is told to senders, and who may say what to a node.

use super::*;
use covey_cluster::config::parse;
use covey_ninep::control::Commands;
use covey_ninep::tree::{Attach, Outcome, Peer, Read, Tree, User};
use covey_wire::Name;
use std::path::Path;

const FILE: &str = r#"
version = 1
[cluster]
name = "c"
id = "00000000000000000000000000000000"
pacing = true
key_file = "/etc/key"
[[node]]
name = "one"
roles = ["meta", "data"]
listen = ["tcp!10.0.0.1!5640"]
store = "/var/one"
[[node]]
name = "two"
listen = ["tcp!10.0.0.2!5641"]
"#;

/// Runs within a runtime, with the node one of a cluster.
fn with_net<T>(file: &str, test: impl AsyncFnOnce(Rc<Net>) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let config = Arc::new(parse(file, Path::new("covey.toml")).unwrap());
        let cluster = Arc::new(ClusterNet::new(config.clone(), None));
        test(Net::new(&config, "one", cluster, None, TargetPorts::default())).await
    })
}

fn ends(machine: u8, port: u16) -> Ends {
    (([10, 0, 0, machine], port).into(), ([10, 0, 0, 1], 5640).into())
}

fn said(outcome: Outcome<()>) -> String {
    match outcome {
        Outcome::Now(result) => result.map_or_else(|error| error.to_string(), |()| "done".into()),
        Outcome::Later(_) => panic!("a command waits"),
    }
}

#[test]
fn a_small_change_of_a_rate_is_no_news() {
    let news = News::default();
    let lines = |rate: u64| BTreeMap::from([((ends(2, 1), false), Limit::from(rate))]);
    let tell = |lines| news.tell(lines, BTreeMap::new());
    tell(lines(1000));
    let first = news.number.get();
    tell(lines(1010));
    assert_eq!(news.number.get(), first);
    tell(lines(1050));
    assert_eq!(news.number.get(), first + 1);
    tell(BTreeMap::from([((ends(2, 2), false), 1050.into())]));
    assert_eq!(news.number.get(), first + 2);
    tell(BTreeMap::new());
    assert_eq!(news.number.get(), first + 3);
    let begin = |rate| news.tell(BTreeMap::new(), BTreeMap::from([([10, 0, 0, 1].into(), rate)]));
    begin(100);
    begin(120);
    assert_eq!(news.number.get(), first + 4);
    // Of a connection that may send next to nothing beside another one's rate.
    let two = |little| [(ends(2, 1), 9000), (ends(2, 2), little)];
    let tell =
        |little| tell(two(little).map(|(ends, rate)| ((ends, false), Limit::from(rate))).into());
    tell(100);
    tell(180);
    assert_eq!(news.number.get(), first + 5);
    tell(200);
    assert_eq!(news.number.get(), first + 6);
}

#[test]
fn a_reader_waits_for_news_and_reads_those_of_its_own_machine() {
    with_net(FILE, async |net| {
        let pace = pace::Pace(net.clone());
        let user = Rc::new(User { uid: 0, gid: 0, groups: vec![] });
        let peer = Peer { name: "tcp!10.0.0.2!777".into(), uid: None, has_key: true };
        let attach = Attach { peer, uname: Name::EMPTY, n_uname: None, aname: Name::EMPTY };
        let (_, _, root) = pace.enter(&user, attach).wait().await.unwrap();
        let open = pace.open(&user, &root, 0).wait().await.unwrap();
        assert!(open.blocking);
        let read = || pace.read(&user, &open.node, Read::bytes(0, 4096)).into_outcome().wait();
        let lines = [(ends(2, 7), 11), (ends(3, 7), 22)]
            .map(|(ends, rate)| ((ends, false), Limit { rate, in_half: rate == 11 }));
        let soon = net.clone();
        let begin = BTreeMap::from([([10, 0, 0, 1].into(), 5)]);
        tokio::task::spawn_local(async move { soon.news.tell(BTreeMap::from(lines), begin) });
        let text = String::from_utf8(read().await.unwrap().to_vec()).unwrap();
        let all = "dscp 8\nwindow 33554432\n";
        let rates = "begin 10.0.0.1 5\nreceiver 10.0.0.2:7 10.0.0.1:5640 11 half\n";
        assert_eq!(text, format!("news 1\n{all}{rates}"));
        let again = tokio::time::timeout(Duration::from_millis(20), read()).await;
        assert!(again.is_err(), "there is no other news: {again:?}");
        net.news.tell(BTreeMap::new(), BTreeMap::new());
        assert_eq!(read().await.unwrap(), format!("news 2\n{all}"));
    });
}

#[test]
fn a_node_takes_settings_and_refuses_what_cannot_be() {
    with_net(FILE, async |net| {
        let commands = ctl::NetCommands(net.clone());
        let user = User { uid: 0, gid: 0, groups: vec![] };
        let run = |line: &str| said(commands.run(&user, &line.split(' ').collect::<Vec<_>>()));
        for line in [
            "off",
            "on",
            "margin 12.5",
            "least 20",
            "rate eth0 100000000",
            "bulk 13261",
            "window 65536",
            "dscp 10",
        ] {
            assert_eq!(run(line), "done", "{line}");
        }
        let text = commands.text();
        assert!(
            text.starts_with(
                "on\nmargin 12.5\nleast 20\nrate eth0 100000000\nbulk 3260 5640 5641 13261\n\
                 window 65536\ndscp 10\n"
            ),
            "{text}"
        );
        for (line, why) in [
            ("margin 0", "1 to 50"),
            ("least much", "percent"),
            ("rate eth0 10", "bits a second"),
            ("bulk 0", "65535"),
            ("window 5", "16384 to"),
            ("dscp 64", "0 to 63"),
            ("jump", "jump"),
        ] {
            assert!(run(line).contains(why), "{line}: {}", run(line));
        }
        assert!(commands.text().starts_with(&text[..30]));
        assert_eq!(run("window auto"), "done");
        assert_eq!(run("dscp 8"), "done");
    });
}

/// Wherever a target is served: a port that nobody has named would make all of its traffic messages.
#[test]
fn the_ports_of_targets_are_bulk_as_long_as_they_are_served() {
    with_net(FILE, async |net| {
        let commands = ctl::NetCommands(net.clone());
        let has = |ports: &str| commands.text().contains(&format!("\nbulk {ports}\n"));
        let (one, other) = (net.targets.hold(13_261), net.targets.hold(13_261));
        assert!(has("3260 5640 5641 13261"));
        drop(one);
        assert!(has("3260 5640 5641 13261"), "it is served at another address still");
        drop((other, net.targets.hold(3260)));
        assert!(has("3260 5640 5641"), "a port that was set stays one");
    });
}

#[test]
fn a_cluster_whose_clients_do_not_ask_is_not_paced() {
    with_net(&FILE.replace("pacing = true", ""), async |net| {
        let commands = ctl::NetCommands(net);
        let user = User { uid: 0, gid: 0, groups: vec![] };
        assert!(commands.text().starts_with("off\n"));
        assert!(said(commands.run(&user, &["on"])).contains("pacing = true"));
    });
}

#[test]
fn what_was_tuned_is_the_rate_of_a_link_that_does_not_know_its_own() {
    let rate = rate_of((0.95 * 94.148e6) as u64);
    assert!(rate.abs_diff(100_000_000) < 100_000, "{rate}");
}

#[test]
fn a_link_that_was_measured_to_carry_less_has_a_larger_margin_unless_one_is_set() {
    with_net(FILE, async |net| {
        let slow = (0.95 * 80e6) as u64;
        let law = || net.set.borrow().law_for(Some((100_000_000, slow)));
        assert!((law().margin - (1.0 - 0.95 * 80.0 / 94.148)).abs() < 0.001, "{:?}", law());
        let as_it_says = (0.95 * 94.1e6) as u64;
        let other = net.set.borrow().law_for(Some((100_000_000, as_it_says)));
        assert_eq!(other.margin, Settings::default().margin);
        let user = User { uid: 0, gid: 0, groups: vec![] };
        assert_eq!(said(ctl::NetCommands(net.clone()).run(&user, &["margin", "8"])), "done");
        assert!((law().margin - 0.08).abs() < 1e-9);
    });
}

/// Frames of a connection of bulk and of messages beside it, as if counted for 10 ms on an interface of 100 Mbit/s.
fn counted(bulk: f64, messages: f64) -> counter::Counted {
    use covey_tune::pacer::{Carried, Rest};
    let frames = |packets: f64| Carried { packets, bytes: 1000.0 * packets };
    let (own, other) = ends(2, 7);
    let flow = counter::SeenFlow {
        id: 1,
        ends: (other, own),
        received: frames(bulk),
        sent: Carried::default(),
    };
    let seen = counter::Seen {
        mtu: 1500,
        bits_per_s: Some(100_000_000),
        received: frames(bulk + messages),
        sent: Carried::default(),
        between: 0.0,
        flows: vec![flow],
        messages: [frames(messages), Carried::default()],
        others: vec![],
        rest: Rest::Messages,
    };
    counter::Counted { seconds: 0.01, wires: BTreeMap::from([("eth0".to_owned(), seen)]) }
}

/// Frames of messages that are short, at 100 Mbit/s.
#[test]
fn half_frames_are_asked_for_where_messages_are_short() {
    with_net(FILE, async |net| {
        let judge = |short: f64| {
            let mut counted = counted(20.0, short);
            let seen = counted.wires.get_mut("eth0").unwrap();
            let others = (3..6).map(|peer| {
                let ((own, other), id) = (ends(peer, 7), u64::from(peer));
                counter::SeenFlow { id, ends: (other, own), ..seen.flows[0] }
            });
            let others: Vec<_> = others.collect();
            others.iter().for_each(|flow| {
                seen.received.packets += flow.received.packets;
                seen.received.bytes += flow.received.bytes;
            });
            seen.flows.extend(others);
            seen.messages[0].bytes = 66.0 * short;
            seen.received.bytes -= (1000.0 - 66.0) * short;
            for _ in 0..20 {
                net.judge(&counted);
            }
        };
        let told = || net.news.lines.borrow()[&(ends(2, 7), false)];
        judge(20.0);
        assert!(told().in_half);
        let number = net.news.number.get();
        for _ in 0..20 {
            net.judge(&counted(60.0, 20.0));
        }
        assert!(!told().in_half && net.news.number.get() > number);
        // That alone is news, too.
        let (number, begin) = (net.news.number.get(), net.news.begin.borrow().clone());
        let lines = BTreeMap::from([((ends(2, 7), false), Limit { in_half: true, ..told() })]);
        net.news.tell(lines, begin);
        assert_eq!(net.news.number.get(), number + 1);
    });
}

/// A sender that joins fills the queue until it is seen, unless it is told before what to begin with.
#[test]
fn new_connections_are_told_what_to_begin_with_while_messages_flow() {
    with_net(FILE, async |net| {
        let begin = || net.news.begin.borrow().get(&IpAddr::from([10, 0, 0, 1])).copied();
        for _ in 0..20 {
            net.judge(&counted(60.0, 0.0));
        }
        assert_eq!(begin(), None);
        for _ in 0..20 {
            net.judge(&counted(60.0, 20.0));
        }
        let fair = net.news.lines.borrow()[&(ends(2, 7), false)].rate;
        let rate = begin().expect("messages flow");
        assert!(rate >= fair / 20 && rate <= fair / 5, "{rate} of {fair}");
        net.free();
        assert_eq!(begin(), None);
    });
}

#[test]
fn rates_end_when_the_kernel_does_not_count_any_more() {
    with_net(FILE, async |net| {
        for _ in 0..20 {
            net.judge(&counted(60.0, 20.0));
        }
        let is_limited = || net.news.lines.borrow().contains_key(&(ends(2, 7), false));
        assert!(is_limited());
        net.fail(&std::io::Error::from_raw_os_error(24));
        assert!(!is_limited());
    });
}

/// A program that only computes and sends messages pays neither for questions to other nodes nor for a hundred counts a second.
#[test]
fn a_port_with_messages_alone_is_counted_seldom_and_not_probed() {
    with_net(FILE, async |net| {
        let is_guarded = |wire: &Wire| wire.port(Way::In).is_some_and(|port| port.is_guarded());
        let found =
            || net.wires.borrow().get("eth0").map(|wire| (is_guarded(wire), wire.has_bulk()));
        for _ in 0..20 {
            net.judge(&counted(0.0, 20.0));
        }
        assert_eq!(found(), Some((true, false)));
        net.judge(&counted(60.0, 20.0));
        assert_eq!(found(), Some((true, true)));
    });
}

#[test]
fn a_count_that_takes_long_is_made_less_often() {
    let ms = Duration::from_millis;
    assert_eq!(pause_after(Duration::from_micros(100), true), ms(10));
    assert_eq!(pause_after(Duration::from_micros(100), false), ms(50));
    assert_eq!(pause_after(ms(8), true), ms(80));
    assert_eq!(pause_after(ms(8000), true), ms(500));
}

#[test]
fn rates_end_with_the_interface() {
    with_net(FILE, async |net| {
        for _ in 0..20 {
            net.judge(&counted(60.0, 20.0));
        }
        assert!(!net.news.lines.borrow().is_empty());
        net.judge(&counter::Counted { seconds: 0.01, wires: BTreeMap::new() });
        assert!(net.news.lines.borrow().is_empty() && net.wires.borrow().is_empty());
    });
}

#[test]
fn only_the_owner_of_a_node_changes_its_network() {
    with_net(FILE, async |net| {
        let commands = ctl::NetCommands(net);
        let own = rustix::process::geteuid().as_raw();
        let user = |uid| User { uid, gid: 0, groups: vec![] };
        assert!(commands.allows(&user(own)));
        assert!(!commands.allows(&user(own + 4711)));
    });
}
