//! Endpoints that glance, often or seldom.

use super::*;

/// More than the clock takes for a tick.
const LONG: Duration = Duration::from_millis(11);

/// Looks as one does that computes between two looks, and says whether it was a glance that found nothing.
fn look(end: &mut End) -> bool {
    let heard = &mut end.heard;
    let glance = end.mixed.glance(|peer, head, payload| heard.packet(peer, head, payload));
    if glance == Glance::Unknown {
        end.mixed.poll(64, &mut end.heard);
    }
    glance == Glance::Nothing
}

/// Looks seldom for long, until a poll: where the next glances do not poll, the next poll is as far away as it can be.
fn look_seldom_for_long(end: &mut End) {
    for at in 0.. {
        std::thread::sleep(LONG);
        if !look(end) && at > GLANCES {
            return;
        }
    }
}

/// Looks this often at most, seldom, until something is so.
fn look_seldom(ends: &mut [End], who: usize, looks: u32, is_so: impl Fn(&[End]) -> bool) {
    for _ in 0..looks {
        for (_, end) in ends.iter_mut().enumerate().filter(|(at, _)| *at != who) {
            for _ in 0..20 {
                end.mixed.poll(64, &mut end.heard);
            }
        }
        std::thread::sleep(LONG);
        look(&mut ends[who]);
        if is_so(ends) {
            return;
        }
    }
    panic!("{looks} looks have not been enough");
}

#[test]
fn one_that_looks_seldom_is_met_after_few_looks() {
    let mut ends = [end(By::Memory), end(By::Memory)];
    let to = ends[1].address;
    look_seldom_for_long(&mut ends[1]);
    ends[0].mixed.call(&to).expect("a peer");
    look_seldom(&mut ends, 1, GLANCES / 2, |ends| !ends[1].heard.joined.is_empty());
}

#[test]
fn one_that_looks_seldom_finds_out_after_few_looks_that_another_is_gone() {
    let mut ends = vec![end(By::Memory), end(By::Memory)];
    let to = ends[0].address;
    let peer = ends[1].mixed.call(&to).expect("a peer");
    say(&mut ends, 1, peer, b"one");
    wait(&mut ends, |ends| has_heard(&ends[0], b"one"));
    look_seldom_for_long(&mut ends[1]);
    ends.swap_remove(0);
    look_seldom(&mut ends, 0, GLANCES / 2, |ends| ends[0].heard.dead == [peer]);
}

#[test]
fn one_that_looks_often_glances_though_it_looked_seldom_before() {
    let mut ends = [end(By::Memory)];
    assert!(!look(&mut ends[0]));
    look_seldom_for_long(&mut ends[0]);
    wait(&mut ends, |ends| look(&mut ends[0]));
}
