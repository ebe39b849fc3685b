use super::*;

fn did(count: u64) -> Sums {
    Sums { bytes: 2 * count, count, ns: 5 * count }
}

/// Requests by account, as a collector reads them: of clients that have ended, and of those that are connected.
fn read(accounts: &mut Accounts, connected: &[(String, Standing, Sums)]) -> BTreeMap<String, u64> {
    accounts.read();
    let mut all = BTreeMap::<String, u64>::new();
    for line in accounts.text("meta").lines() {
        let (name, values) = line.strip_prefix("ended meta \"").unwrap().split_once("\" ").unwrap();
        let count = values.split(' ').nth(3).unwrap().parse::<u64>().unwrap();
        assert!(all.insert(name.to_owned(), count).is_none(), "{name} twice");
    }
    for (client, standing, did) in connected {
        accounts.reads(client, *standing, *did);
        let own = account(client);
        let name = if *standing == Standing::Others { OTHERS.to_owned() } else { own.0 };
        *all.entry(name).or_default() += did.count;
    }
    all
}

/// What a collector makes of the next reading: what has risen, all of what has fallen or is new.
fn increase(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> u64 {
    let risen = after.iter().map(|(name, now)| match before.get(name) {
        Some(before) if before <= now => now - before,
        _ => *now,
    });
    risen.sum()
}

#[test]
fn accounts_are_bounded_and_new_ones_are_seen() {
    let mut accounts = Accounts::default();
    accounts.leave("idle@n1 pid 1", Standing::New, did(0));
    assert_eq!(accounts.text("meta"), "");
    for number in 0..3 * ACCOUNTS_MAX {
        accounts.leave(&format!("user{number}@n1 job 7 pid 9"), Standing::New, did(1));
    }
    accounts.leave("user2999@n1 job 7 pid 10", Standing::New, did(1));
    let text = accounts.text("meta");
    assert_eq!(text.lines().count(), ACCOUNTS_MAX + 1);
    assert!(
        text.contains("ended meta \"user2999@n1 job 7\" bytes 4 count 2 sum_ns 10\n"),
        "{text}"
    );
    // Nobody has read them: nothing is lost.
    assert!(text.contains("ended meta \"others\" bytes 4000 count 2000 sum_ns 10000\n"), "{text}");
}

#[test]
fn a_collector_counts_each_request_once_through_a_thousand_jobs_and_more() {
    let mut accounts = Accounts::default();
    let mut before = BTreeMap::new();
    let (mut counted, mut done) = (0, 0);
    for round in 0..30_u64 {
        for job in 0..97 {
            let name = format!("job{}@n1 pid 3", round * 80 + job);
            accounts.leave(&name, Standing::New, did(1 + job % 3));
            done += 1 + job % 3;
        }
        // Some readings are further apart.
        if round % 3 != 1 {
            let after = read(&mut accounts, &[]);
            counted += increase(&before, &after);
            before = after;
        }
    }
    assert!(before.len() <= ACCOUNTS_MAX + 1);
    assert!(before.contains_key("job2416@n1"), "the last one has its own account");
    assert!(!before.contains_key("job0@n1"), "the first one makes room");
    assert_eq!(counted, done);
}

#[test]
fn who_is_connected_keeps_its_account_and_its_requests_stay_on_it() {
    let mut accounts = Accounts::default();
    let running = "run@n1 job 1 pid 1".to_owned();
    let standing = accounts.enter(&running);
    assert_eq!(standing, Standing::Named);
    let before = read(&mut accounts, &[(running.clone(), standing, did(70))]);
    for number in 0..2 * ACCOUNTS_MAX {
        accounts.leave(&format!("user{number}@n1"), Standing::New, did(1));
    }
    let after = read(&mut accounts, &[(running.clone(), standing, did(80))]);
    assert_eq!((before["run@n1"], after["run@n1"]), (70, 80));
    accounts.leave(&running, standing, did(90));
    // 10 of it were not read when it has to go.
    for number in 0..ACCOUNTS_MAX {
        accounts.leave(&format!("next{number}@n1"), Standing::New, did(1));
    }
    let last = read(&mut accounts, &[]);
    assert!(!last.contains_key("run@n1"));
    assert_eq!(last[OTHERS] - after[OTHERS], 10);
}

#[test]
fn where_all_are_connected_a_new_client_is_one_of_the_others_until_it_ends() {
    let mut accounts = Accounts::default();
    for number in 0..ACCOUNTS_MAX {
        assert_eq!(accounts.enter(&format!("user{number}@n1")), Standing::Named);
    }
    let late = accounts.enter("late@n1 pid 4");
    assert_eq!(late, Standing::Others);
    accounts.leave("user0@n1", Standing::Named, did(3));
    accounts.leave("late@n1 pid 4", late, did(2));
    let all = read(&mut accounts, &[]);
    assert_eq!(all, BTreeMap::from([("user0@n1".into(), 3), (OTHERS.into(), 2)]));
    // Who calls itself so is one of them, too.
    assert_eq!(accounts.enter(OTHERS), Standing::Others);
    accounts.reset();
    assert_eq!(accounts.text("meta"), "");
    assert_eq!(accounts.named.len(), ACCOUNTS_MAX - 1, "they are still connected");
}

#[test]
fn processes_and_ports_are_no_accounts_and_names_are_short() {
    for (name, client, job) in [
        ("ann@n1 pid 7", "ann@n1", ""),
        ("ann@n1 job 12_3 pid 7 #2", "ann@n1", "12_3"),
        ("tcp!10.0.0.7!40112", "tcp!10.0.0.7", ""),
        ("tcp!fe80::1!9 #3", "tcp!fe80::1", ""),
        ("unix!pid 2204", "unix", ""),
        ("pid 7", "pid 7", ""),
        ("metadata server", "metadata server", ""),
    ] {
        assert_eq!(account(name), (client.to_owned(), job.to_owned()), "{name}");
    }
    let (client, job) = account(&format!("{} job {}", "ä".repeat(60_000), "b".repeat(60_000)));
    for name in [client, job] {
        assert_eq!(name.chars().count(), NAME_CHARS_MAX + 1);
        assert_eq!(account(&name).0, name, "an account's account is itself");
    }
}
