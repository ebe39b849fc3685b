//! Endpoints that glance, and do so seldom.

use super::*;

/// Looks as one does that computes between two looks, and says whether it was a glance that found nothing.
fn look(end: &mut End) -> bool {
    let heard = &mut end.heard;
    let glance = end.mixed.glance(|peer, head, payload| heard.packet(peer, head, payload));
    if glance == Glance::Unknown {
        end.mixed.poll(64, &mut end.heard);
    }
    glance == Glance::Nothing
}

/// Glances until a poll was due, so that the next one is as far away as it can be.
fn glance_to_a_poll(end: &mut End) {
    let mut glances = 0;
    while look(end) || glances < GLANCES / 2 {
        glances += 1;
        assert!(glances < 100 * GLANCES, "it does not glance");
    }
}

/// Looks this often at most, each time after longer than the clock takes for a tick, until something is so.
fn look_seldom(ends: &mut [End], who: usize, looks: u32, is_so: impl Fn(&[End]) -> bool) {
    for _ in 0..looks {
        for (_, end) in ends.iter_mut().enumerate().filter(|(at, _)| *at != who) {
            for _ in 0..20 {
                end.mixed.poll(64, &mut end.heard);
            }
        }
        std::thread::sleep(Duration::from_millis(11));
        look(&mut ends[who]);
        if is_so(ends) {
            return;
        }
    }
    panic!("{looks} looks have not been enough");
}

#[test]
fn one_that_glances_seldom_is_met_after_few_glances() {
    let mut ends = [end(By::Memory), end(By::Memory)];
    let to = ends[1].address;
    glance_to_a_poll(&mut ends[1]);
    ends[0].mixed.call(&to).expect("a peer");
    look_seldom(&mut ends, 1, 3 * CLOCK_GLANCES, |ends| !ends[1].heard.joined.is_empty());
}

#[test]
fn one_that_glances_seldom_finds_out_after_few_glances_that_another_is_gone() {
    let mut ends = vec![end(By::Memory), end(By::Memory)];
    let to = ends[0].address;
    let peer = ends[1].mixed.call(&to).expect("a peer");
    say(&mut ends, 1, peer, b"one");
    wait(&mut ends, |ends| has_heard(&ends[0], b"one"));
    ends.swap_remove(0);
    glance_to_a_poll(&mut ends[0]);
    look_seldom(&mut ends, 0, 3 * CLOCK_GLANCES, |ends| ends[0].heard.dead == [peer]);
}
