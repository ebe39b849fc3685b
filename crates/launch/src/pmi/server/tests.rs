use super::*;

fn server(nodes: usize, ranks: u32, node: usize) -> Server {
    let names: Vec<String> = (0..nodes).map(|node| format!("n{node}")).collect();
    Server::new("j1", Placement::new(&names, Some(ranks), None).unwrap(), node)
}

/// Sends a line; answers what comes back at once.
fn say(server: &mut Server, connection: u64, line: &str) -> Vec<Event> {
    server.handle_input(connection, format!("{line}\n").as_bytes());
    events(server)
}

fn events(server: &mut Server) -> Vec<Event> {
    std::iter::from_fn(|| server.poll_event()).collect()
}

fn reply(connection: u64, text: &str) -> Vec<Event> {
    vec![Event::Reply(connection, format!("{text}\n").into_bytes())]
}

/// A rank that has gone through the beginning.
fn joined(server: &mut Server, rank: u32) -> u64 {
    let connection = 100 + u64::from(rank);
    server.connected(connection);
    say(server, connection, &format!("cmd=initack pmiid={rank}"));
    let answer = say(server, connection, "cmd=init pmi_version=1 pmi_subversion=1");
    let ok = reply(connection, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0");
    assert_eq!(answer, [vec![Event::Joined { rank }], ok].concat());
    connection
}

#[test]
fn a_rank_that_says_who_it_is_learns_the_size() {
    let mut server = server(2, 4, 1);
    server.connected(7);
    let answer = say(&mut server, 7, "cmd=initack pmiid=3");
    assert_eq!(
        answer,
        reply(7, "cmd=initack rc=0\ncmd=set size=4\ncmd=set rank=3\ncmd=set debug=0")
    );
}

#[test]
fn questions_are_answered_in_the_words_of_mpich() {
    let mut server = server(2, 4, 0);
    let rank = joined(&mut server, 1);
    for (question, answer) in [
        ("cmd=get_maxes", "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"),
        ("cmd=get_appnum", "cmd=appnum appnum=0"),
        ("cmd=get_my_kvsname", "cmd=my_kvsname kvsname=j1"),
        ("cmd=get_universe_size", "cmd=universe_size size=4"),
        ("cmd=put kvsname=j1 key=a value=b", "cmd=put_result rc=0 msg=success"),
        ("cmd=put kvsname=j1 key=a", "cmd=put_result rc=-1 msg=no_key_or_value"),
        ("cmd=get kvsname=j1 key=a", "cmd=get_result rc=0 msg=success value=b"),
        ("cmd=get kvsname=j1 key=none", "cmd=get_result rc=-1 msg=key_not_found value=unknown"),
        (
            "cmd=get kvsname=j1 key=PMI_process_mapping",
            "cmd=get_result rc=0 msg=success value=(vector,(0,2,2))",
        ),
        ("cmd=lookup_name service=s", "cmd=lookup_result rc=-1 msg=not_supported"),
        ("cmd=finalize", "cmd=finalize_ack"),
    ] {
        assert_eq!(say(&mut server, rank, question), reply(rank, answer), "{question}");
    }
}

#[test]
fn a_barrier_brings_what_the_other_nodes_have_put() {
    let mut server = server(2, 4, 0);
    let (zero, one) = (joined(&mut server, 0), joined(&mut server, 1));
    say(&mut server, zero, "cmd=put kvsname=j1 key=a0 value=x");
    assert_eq!(say(&mut server, zero, "cmd=barrier_in"), []);
    let events_of = say(&mut server, one, "cmd=barrier_in");
    let mut ours = Vec::new();
    entries::put(b"a0", b"x", &mut ours);
    assert_eq!(events_of, [Event::Fence(ours.clone())]);

    let mut all = ours;
    entries::put(b"a2", b"y", &mut all);
    server.fenced(all.clone().into()).unwrap();
    let out = [reply(zero, "cmd=barrier_out"), reply(one, "cmd=barrier_out")].concat();
    assert_eq!(events(&mut server), out);
    let answer = say(&mut server, one, "cmd=get kvsname=j1 key=a2");
    assert_eq!(answer, reply(one, "cmd=get_result rc=0 msg=success value=y"));
    // The next barrier tells only what is new.
    say(&mut server, zero, "cmd=barrier_in");
    assert_eq!(say(&mut server, one, "cmd=barrier_in"), [Event::Fence(Vec::new())]);
    assert!(server.fenced(vec![1].into()).is_err(), "no entries");
    assert!(server.fenced(all.into()).is_err(), "no barrier is on its way");
}

#[test]
fn an_abort_is_passed_on_and_its_end_is_no_second_event() {
    let mut server = server(1, 2, 0);
    let rank = joined(&mut server, 1);
    let events_of = say(&mut server, rank, "cmd=abort exitcode=42");
    assert_eq!(events_of, [Event::Abort { rank: 1, code: 42, why: String::new() }]);
    server.closed(rank);
    assert_eq!(events(&mut server), []);
}

#[test]
fn only_a_rank_that_ends_without_a_word_is_gone() {
    let mut server = server(1, 3, 0);
    let (zero, one) = (joined(&mut server, 0), joined(&mut server, 1));
    say(&mut server, zero, "cmd=finalize");
    server.closed(zero);
    assert_eq!(events(&mut server), []);
    server.closed(one);
    assert_eq!(events(&mut server), [Event::Gone { rank: 1 }]);
    server.connected(9);
    server.closed(9);
    assert_eq!(events(&mut server), []);
}

#[test]
fn a_spawn_is_refused_at_its_end() {
    let mut server = server(1, 1, 0);
    let rank = joined(&mut server, 0);
    for line in ["mcmd=spawn", "nprocs=2", "execname=./a.out", "argcnt=0"] {
        assert_eq!(say(&mut server, rank, line), []);
    }
    let refused = reply(rank, "cmd=spawn_result rc=-1 msg=not_supported");
    assert_eq!(say(&mut server, rank, "endcmd"), refused);
    assert_eq!(say(&mut server, rank, "cmd=get_appnum"), reply(rank, "cmd=appnum appnum=0"));
}

#[test]
fn strangers_and_rule_breakers_are_closed() {
    for lines in [
        &["cmd=initack pmiid=2"][..],
        &["cmd=initack pmiid=x"],
        &["cmd=init pmi_version=1 pmi_subversion=1"],
        &["cmd=initack pmiid=1", "cmd=get_appnum"],
        &["nonsense"],
        &["cmd=initack pmiid=1", "cmd=init pmi_version=1 pmi_subversion=1", "cmd=what"],
        &["cmd=initack pmiid=1", "cmd=init pmi_version=1 pmi_subversion=1", "cmd=initack pmiid=1"],
    ] {
        // Rank 2 is another node's.
        let mut server = server(2, 4, 0);
        server.connected(5);
        let all: Vec<Event> = lines.iter().flat_map(|line| say(&mut server, 5, line)).collect();
        assert!(all.contains(&Event::Close(5)), "{lines:?}: {all:?}");
        assert_eq!(say(&mut server, 5, "cmd=get_appnum"), [], "nothing is answered after that");
    }
}

#[test]
fn one_rank_is_one_connection() {
    let mut server = server(1, 2, 0);
    joined(&mut server, 0);
    server.connected(5);
    assert_eq!(say(&mut server, 5, "cmd=initack pmiid=0"), [Event::Close(5)]);
}

#[test]
fn long_lines_keys_and_values_are_refused_from_both_sides() {
    let mut server = server(1, 1, 0);
    let rank = joined(&mut server, 0);
    let put = |key: usize, value: usize| {
        format!("cmd=put kvsname=j1 key={} value={}", "k".repeat(key), "v".repeat(value))
    };
    let success = reply(rank, "cmd=put_result rc=0 msg=success");
    let long = reply(rank, "cmd=put_result rc=-1 msg=too_long");
    assert_eq!(say(&mut server, rank, &put(KEY_BYTES_MAX, VALUE_BYTES_MAX)), success);
    assert_eq!(say(&mut server, rank, &put(KEY_BYTES_MAX + 1, 1)), long);
    assert_eq!(say(&mut server, rank, &put(1, VALUE_BYTES_MAX + 1)), long);
    server.handle_input(rank, &vec![b'x'; LINE_BYTES_MAX]);
    assert_eq!(events(&mut server), []);
    server.handle_input(rank, b"x");
    assert_eq!(events(&mut server), [Event::Close(rank), Event::Gone { rank: 0 }]);
}

#[test]
fn lines_may_arrive_in_any_pieces() {
    let mut server = server(1, 1, 0);
    server.connected(1);
    for byte in b"cmd=initack pmiid=0\ncmd=init pmi_version=1 pmi_subversion=1\ncmd=get_appnum\n" {
        server.handle_input(1, &[*byte]);
    }
    assert_eq!(events(&mut server).len(), 4);
}
