//! Images and many who fetch them, in a simulated world: how long it takes, what the first server sends, and
//! what becomes of it when machines die, lie, or the server starts again.
//!
//! The seed of a failure is in its message; `COVEY_SIM_ECHO=1` shows what happened.

#[path = "image_sim/world.rs"]
mod world;

use covey_io::sim::net::Quality;
use covey_io::sim::{NodeId, Rng, Sim};
use covey_io::task;
use covey_launch::image::{Failure, Report, Source};
use covey_ninep::tree::Errno;
use covey_wire::Bytes;
use std::rc::Rc;
use std::time::Duration;
use world::*;

const MIB: usize = 1 << 20;
const HOUR: Duration = Duration::from_secs(3600);
/// Gigabit Ethernet, in bytes per second.
const GIGABIT: u64 = 125_000_000;

type Answer = tokio::sync::oneshot::Receiver<Result<Report, Failure>>;

fn finish(sim: &Sim, seed: u64, answer: Answer) -> Report {
    let done = sim.run(HOUR, answer).unwrap_or_else(|hang| {
        panic!("seed {seed}: {hang:?}\n{}", sim.trace().join("\n"));
    });
    match done {
        Ok(Ok(report)) => report,
        other => panic!("seed {seed}: {other:?}\n{}", sim.trace().join("\n")),
    }
}

/// What a switch with clients that all begin at once came to.
struct Spread {
    last: Duration,
    copies: f64,
}

fn spread(seed: u64, right: &Bytes, clients: usize) -> Spread {
    let (sim, first, nodes) = sim(seed, clients);
    sim.set_network(Quality::switch(GIGABIT));
    boot_first(&sim, first, right, 1);
    let begin = |node: &NodeId| {
        let client = Rc::new(Client::new(sim.control(), right));
        boot_client(&sim, *node, client, want())
    };
    let answers: Vec<Answer> = nodes.iter().map(begin).collect();
    let reports: Vec<Report> =
        answers.into_iter().map(|answer| finish(&sim, seed, answer)).collect();
    Spread {
        last: reports.iter().map(|report| report.time).max().unwrap(),
        copies: sim.bytes_sent(first) as f64 / right.len() as f64,
    }
}

fn assert_spreads(right: &Bytes, clients: usize) {
    let alone = spread(1, right, 1);
    let many = spread(2, right, clients);
    let ratio = many.last.as_secs_f64() / alone.last.as_secs_f64();
    println!(
        "{} MiB: one client {:.3?}; {clients} clients, last {:.3?}, {ratio:.2} times; out of the first server \
         {:.2} copies",
        right.len() / MIB,
        alone.last,
        many.last,
        many.copies
    );
    assert!(ratio <= 2.5, "{ratio}");
    assert!(many.copies <= 3.0, "{}", many.copies);
}

/// The chunks of a small image are as many as those of a large one, so the shape is the same.
#[test]
fn sixty_four_clients_take_hardly_longer_than_two_copies() {
    assert_spreads(&bytes(7, 16 * MIB), 64);
}

#[test]
#[ignore = "16 GiB go through the simulator: cargo test --release -p covey-launch --test image_sim -- --ignored"]
fn sixty_four_clients_with_256_mib() {
    assert_spreads(&bytes(7, 256 * MIB), 64);
}

/// A third of the machines is killed, or loses power, at any time, and one of the others lies.
fn storm(seed: u64) {
    let mut rng = Rng::new(seed ^ 0x1a6e);
    let right = bytes(seed, 4 * MIB + rng.index(MIB));
    let (sim, first, nodes) = sim(seed, 12 + rng.index(12));
    let rate = *rng.pick(&[GIGABIT, 12_500_000]);
    let lost_permille = *rng.pick(&[0, 2, 20]);
    sim.set_network(Quality { lost_permille, ..Quality::switch(rate) });
    boot_first(&sim, first, &right, 1);
    let liar = rng.index(nodes.len());
    let mut victims: Vec<usize> = (0..nodes.len()).filter(|index| *index != liar).collect();
    rng.shuffle(&mut victims);
    victims.truncate(nodes.len() / 3);
    let expected = right.len() as u64 * 1_000_000_000 / rate * 3;
    let mut answers = Vec::new();
    for (index, node) in nodes.iter().copied().enumerate() {
        let lies = index == liar;
        let client = Rc::new(Client { lies, ..Client::new(sim.control(), &right) });
        let within = *rng.pick(&[1, expected]);
        let starts = Duration::from_nanos(rng.below(within));
        let (control, begun) = (sim.control(), client.clone());
        let (sender, answer) = tokio::sync::oneshot::channel();
        sim.spawn(0, async move {
            task::sleep(starts).await;
            if let Ok(done) = boot_client(&control, node, begun, want()).await {
                let _ = sender.send(done);
            }
        });
        if victims.contains(&index) {
            let (control, power) = (sim.control(), rng.chance(500));
            let dies = starts + Duration::from_nanos(rng.below(expected));
            sim.spawn(0, async move {
                task::sleep(dies).await;
                if power { control.lose_power(node) } else { control.kill(node) }
            });
        } else {
            answers.push(answer);
        }
    }
    for answer in answers {
        let report = finish(&sim, seed, answer);
        assert_eq!(report.sum, sum_of(&right), "seed {seed}");
    }
}

#[test]
fn whoever_is_not_killed_has_the_right_image() {
    (0..40).for_each(storm);
}

#[test]
#[ignore = "a campaign: COVEY_SEEDS says how many"]
fn whoever_is_not_killed_has_the_right_image_over_many_seeds() {
    let seeds = std::env::var("COVEY_SEEDS").ok().and_then(|seeds| seeds.parse().ok());
    (1000..1000 + seeds.unwrap_or(1000)).for_each(storm);
}

/// One volunteer that lies, and those whom it was given as their source.
#[test]
fn a_liar_is_left_at_its_first_chunk_and_dropped() {
    let right = bytes(3, 4 * MIB);
    let (sim, first, nodes) = sim(3, 8);
    sim.set_network(Quality::switch(GIGABIT));
    boot_first(&sim, first, &right, 1);
    let clients: Vec<Rc<Client>> = (0..nodes.len())
        .map(|index| Rc::new(Client { lies: index == 0, ..Client::new(sim.control(), &right) }))
        .collect();
    let mut answers = vec![boot_client(&sim, nodes[0], clients[0].clone(), want())];
    sim.run(HOUR, task::sleep(Duration::from_millis(20))).unwrap();
    for (node, client) in nodes.iter().zip(&clients).skip(1) {
        answers.push(boot_client(&sim, *node, client.clone(), want()));
    }
    answers.into_iter().for_each(|answer| drop(finish(&sim, 3, answer)));
    let left: Vec<_> = clients.iter().flat_map(|client| client.left.borrow().clone()).collect();
    assert!((1..=4).contains(&left.len()), "{left:?}");
    for (source, why) in left {
        assert_eq!(source, Source::Volunteer { host: "c2".into(), port: 1 });
        assert!(why.contains("another hash"), "{why}");
    }
    assert!(sim.trace().iter().any(|line| line.contains("c2!1 is bad")), "{:?}", sim.trace());
}

/// One volunteer that is not silent, but takes some seconds for each read; the others have all of a fast network.
#[test]
fn a_slow_volunteer_is_left_for_a_faster_one() {
    let right = bytes(3, 64 * MIB);
    let (sim, first, nodes) = sim(3, 6);
    sim.set_network(Quality::switch(GIGABIT));
    boot_first(&sim, first, &right, 1);
    let slow = |index| if index == 0 { Duration::from_secs(2) } else { Duration::ZERO };
    let clients: Vec<Rc<Client>> = (0..nodes.len())
        .map(|index| Rc::new(Client { slow: slow(index), ..Client::new(sim.control(), &right) }))
        .collect();
    // The slow one has the image before the others begin, so it is chosen.
    let want = covey_launch::image::Want { serve: Some(HOUR), ..want() };
    let slow = boot_client(&sim, nodes[0], clients[0].clone(), want.clone());
    sim.run(HOUR, task::sleep(Duration::from_secs(3))).unwrap();
    let begun = sim.run(HOUR, async { task::now() }).unwrap();
    let answers: Vec<Answer> = nodes
        .iter()
        .zip(&clients)
        .skip(1)
        .map(|(node, client)| boot_client(&sim, *node, client.clone(), want.clone()))
        .collect();
    drop(slow);
    let (fetching, bytes) = (clients.clone(), right.len() as u64);
    let whole = async move {
        while fetching.iter().any(|client| client.arrived.get() < bytes) {
            task::sleep(Duration::from_millis(100)).await;
        }
        task::now()
    };
    let took = sim.run(HOUR, whole).unwrap().saturating_duration_since(begun);
    drop(answers);
    let left: Vec<_> = clients.iter().flat_map(|client| client.left.borrow().clone()).collect();
    assert!(left.iter().any(|(_, why)| why.contains("KiB/s only")), "{left:?}");
    assert!(took < Duration::from_secs(60), "{took:?} {left:?}");
}

#[test]
fn a_server_that_starts_again_is_found_again_and_the_rest_is_resumed() {
    let right = bytes(4, 8 * MIB);
    let (sim, first, nodes) = sim(4, 6);
    sim.set_network(Quality::switch(12_500_000));
    boot_first(&sim, first, &right, 1);
    let clients: Vec<_> =
        nodes.iter().map(|_| Rc::new(Client::new(sim.control(), &right))).collect();
    let begin =
        |(node, client): (&NodeId, &Rc<Client>)| boot_client(&sim, *node, client.clone(), want());
    let answers: Vec<Answer> = nodes.iter().zip(&clients).map(begin).collect();
    sim.run(HOUR, task::sleep(Duration::from_millis(500))).unwrap();
    sim.kill(first);
    let before: Vec<u64> = clients.iter().map(|client| client.arrived.get()).collect();
    sim.run(HOUR, task::sleep(Duration::from_secs(2))).unwrap();
    boot_first(&sim, first, &right, 1);
    let sent = sim.bytes_sent(first);
    answers.into_iter().for_each(|answer| drop(finish(&sim, 4, answer)));
    assert!(before.iter().all(|bytes| *bytes > 0), "{before:?}");
    let again = sim.bytes_sent(first) - sent;
    let least = before.iter().min().unwrap();
    assert!(again < 2 * (right.len() as u64 - least) + MIB as u64, "{again} {before:?}");
}

#[test]
fn an_image_that_is_replaced_is_fetched_whole_in_one_version_or_the_other() {
    let (old, new) = (bytes(5, 8 * MIB), bytes(6, 6 * MIB));
    let (sim, first, nodes) = sim(5, 5);
    sim.set_network(Quality::switch(12_500_000));
    boot_first(&sim, first, &old, 1);
    let clients: Vec<_> = nodes.iter().map(|_| Rc::new(Client::new(sim.control(), &old))).collect();
    let begin =
        |(node, client): (&NodeId, &Rc<Client>)| boot_client(&sim, *node, client.clone(), want());
    let answers: Vec<Answer> = nodes.iter().zip(&clients).map(begin).collect();
    sim.run(HOUR, task::sleep(Duration::from_millis(300))).unwrap();
    sim.kill(first);
    clients.iter().for_each(|client| *client.right.borrow_mut() = new.clone());
    boot_first(&sim, first, &new, 2);
    for answer in answers {
        assert_eq!(finish(&sim, 5, answer).sum, sum_of(&new));
    }
}

#[test]
fn a_full_disk_ends_one_client_and_its_readers_go_elsewhere() {
    let right = bytes(6, 4 * MIB);
    let (sim, first, nodes) = sim(6, 4);
    sim.set_network(Quality::switch(12_500_000));
    boot_first(&sim, first, &right, 1);
    let full = Client { room: MIB as u64, ..Client::new(sim.control(), &right) };
    let full = boot_client(&sim, nodes[0], Rc::new(full), want());
    sim.run(HOUR, task::sleep(Duration::from_millis(20))).unwrap();
    let others: Vec<Answer> = nodes[1..]
        .iter()
        .map(|node| boot_client(&sim, *node, Rc::new(Client::new(sim.control(), &right)), want()))
        .collect();
    let failure = sim.run(HOUR, full).unwrap().unwrap().unwrap_err();
    assert_eq!(failure, Failure::Local(Errno::ENOSPC.into()));
    others.into_iter().for_each(|answer| drop(finish(&sim, 6, answer)));
}

#[test]
fn an_image_that_is_not_there_or_another_one_is_refused_at_once() {
    let right = bytes(8, 100);
    let (sim, first, nodes) = sim(8, 2);
    boot_first(&sim, first, &right, 1);
    let client = || Rc::new(Client::new(sim.control(), &right));
    let other = covey_launch::image::Want { image: "other".into(), ..want() };
    let none = sim.run(HOUR, boot_client(&sim, nodes[0], client(), other)).unwrap().unwrap();
    assert!(none.unwrap_err().to_string().contains("no image other for sim or any"));
    let pinned = covey_launch::image::Want { sha256: Some([7; 32]), ..want() };
    let wrong = sim.run(HOUR, boot_client(&sim, nodes[1], client(), pinned)).unwrap().unwrap();
    assert!(wrong.unwrap_err().to_string().contains("another one"));
}

#[test]
fn a_link_that_is_slow_is_not_taken_for_a_silent_server() {
    let right = bytes(10, 2 * MIB);
    let (sim, first, nodes) = sim(10, 1);
    sim.set_network(Quality::switch(60_000));
    boot_first(&sim, first, &right, 1);
    let answer = boot_client(&sim, nodes[0], Rc::new(Client::new(sim.control(), &right)), want());
    let report = finish(&sim, 10, answer);
    assert_eq!(report.left, 0, "{report:?}");
}

#[test]
fn nobody_waits_for_ever_for_a_server_that_is_gone() {
    let right = bytes(9, MIB);
    let (sim, first, nodes) = sim(9, 1);
    sim.set_network(Quality::switch(12_500_000));
    boot_first(&sim, first, &right, 1);
    let answer = boot_client(&sim, nodes[0], Rc::new(Client::new(sim.control(), &right)), want());
    sim.run(HOUR, task::sleep(Duration::from_millis(50))).unwrap();
    sim.lose_power(first);
    let failure = sim.run(HOUR, answer).unwrap().unwrap().unwrap_err();
    assert!(matches!(&failure, Failure::Lost(why) if why.contains("120 s")), "{failure}");
}
