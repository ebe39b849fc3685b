//! About a hundred seeds of the simulated cluster; `examples/simulate.rs` runs as many as one likes.

#[path = "sim/ahead.rs"]
mod ahead;
#[path = "sim/chain_attack.rs"]
mod chain_attack;
#[path = "sim/chain_move.rs"]
mod chain_move;
#[path = "sim/kept.rs"]
mod kept;
#[path = "sim/linked.rs"]
mod linked;
#[path = "sim/listed.rs"]
mod listed;
#[path = "sim/lost_disk.rs"]
mod lost_disk;
#[path = "sim/made_dirs.rs"]
mod made_dirs;
#[path = "sim/removed.rs"]
mod removed;
#[path = "sim/rot.rs"]
mod rot;
#[path = "sim/scenes.rs"]
mod scenes;
#[path = "sim/settings.rs"]
mod settings;
#[path = "sim/mod.rs"]
mod sim;

use rot::{Outcome, rot};
use scenes::Since;
use sim::simulate;

/// Seeds that have found something.
const ONCE_BROKEN: [u64; 15] =
    [103, 133, 228, 891, 950, 1057, 1138, 1140, 1443, 1558, 1745, 1851, 3494, 6668, 8931];

#[test]
fn some_seeds_break_no_promise() {
    let seeds = (0..100).chain(ONCE_BROKEN);
    let failed: Vec<_> = seeds.filter_map(|seed| simulate(seed, false).err()).collect();
    if let Some(first) = failed.first() {
        let seeds: Vec<u64> = failed.iter().map(|failure| failure.seed).collect();
        panic!("{first}\nseeds that failed: {seeds:?}");
    }
}

#[test]
fn a_seed_is_repeated_exactly() {
    for seed in 1000..1005 {
        let run = || simulate(seed, false).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!(run(), run(), "seed {seed}");
    }
}

#[test]
fn a_client_that_goes_twice_with_the_grace_between_keeps_its_locks() {
    scenes::a_client_goes_twice();
}

#[test]
fn a_server_that_was_added_is_used_whenever_it_was_formatted() {
    scenes::a_server_is_added_late();
}

#[test]
fn a_disk_that_was_lost_is_replaced_while_servers_die_and_nobody_reads_zeros() {
    let lost: usize = (0..60).map(lost_disk::replaced).sum();
    assert!((60..480).contains(&lost), "{lost} of 480 files have lost something");
}

#[test]
fn a_chain_moves_while_servers_die_and_what_was_synced_is_there() {
    let done: Vec<(u32, u32)> = (0..24).map(chain_move::back_and_forth).collect();
    let (moved, failed) = done.iter().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    assert!(moved >= 40 && failed >= 5, "{moved} moves, {failed} that were broken off");
}

#[test]
fn a_file_that_was_open_while_its_chain_has_moved_is_synced_and_only_a_loss_is_told() {
    for power_fails in [false, true] {
        chain_attack::an_open_file_is_synced(power_fails, false);
        chain_attack::an_open_file_is_synced(power_fails, true);
    }
}

#[test]
fn a_mover_that_was_overtaken_brings_no_old_bytes() {
    chain_attack::a_mover_has_been_overtaken();
}

#[test]
fn a_mover_does_not_speak_for_another() {
    chain_attack::a_mover_speaks_for_another();
}

#[test]
fn a_write_back_that_has_failed_is_told_and_its_chain_stays() {
    (0..8).for_each(chain_attack::a_write_back_fails);
}

#[test]
fn a_mover_waits_until_another_chain_is_not_held_any_more() {
    chain_attack::a_mover_waits_for_another();
}

#[test]
fn a_chain_has_moved_although_its_mover_does_not_hear_of_it() {
    (10..30).for_each(chain_attack::an_answer_to_a_switch_is_lost);
}

#[test]
fn a_sync_tells_when_the_size_that_a_write_lies_within_is_lost() {
    for since in [Since::Nothing, Since::Appends, Since::Grows, Since::Seen] {
        let is_told = |&seed: &u64| scenes::a_write_rests_on_a_lost_size(seed, since);
        assert!((0..40).filter(is_told).count() > 0, "the size was never lost: {since:?}");
    }
}

#[test]
fn what_is_done_late_undoes_nothing_that_others_did_meanwhile() {
    let told = (0..40).filter(|&seed| scenes::a_late_write_comes_too_late(seed)).count();
    assert!(told > 0, "it was never late");
}

#[test]
fn a_late_write_that_was_refused_is_told_however_late_it_is_asked_for() {
    let answered = (0..10).filter(|&seed| scenes::a_refusal_is_told_late(seed)).count();
    assert!(answered > 0, "it was never late");
}

#[test]
fn a_file_that_is_made_and_not_said_is_there_for_all_who_ask() {
    kept::another_asks();
}

#[test]
fn a_file_that_is_made_and_not_said_is_there_for_its_maker() {
    kept::its_maker_asks();
}

#[test]
fn a_large_file_is_said_before_the_io_servers_hear_of_it() {
    kept::large_ones_are_whole();
}

#[test]
fn one_of_two_who_take_a_name_at_once_is_told_so() {
    kept::a_name_is_taken_by_its_maker();
}

#[test]
fn a_file_that_was_made_is_forgotten_with_its_directory() {
    kept::what_was_made_is_forgotten_with_its_directory();
}

#[test]
fn where_quotas_are_counted_files_are_made_when_they_are_opened() {
    kept::quotas_end_it();
}

#[test]
fn a_close_tells_that_the_name_was_taken_meanwhile() {
    let told = (0..20).filter(|&seed| kept::a_name_is_taken_meanwhile(seed)).count();
    assert!(told > 0, "no name was taken");
}

#[test]
fn a_name_that_is_removed_and_not_said_is_gone_for_all_who_ask() {
    removed::another_asks();
}

#[test]
fn a_name_that_is_removed_and_not_said_is_gone_for_its_remover() {
    removed::its_remover_asks();
}

#[test]
fn of_many_names_that_are_removed_none_is_left_and_no_other_goes() {
    removed::many_are_removed();
}

#[test]
fn what_came_by_a_name_after_it_was_removed_stays() {
    (0..20).for_each(removed::what_came_meanwhile_stays);
}

#[test]
fn a_name_that_a_file_was_given_and_that_is_not_said_is_there_for_all_who_ask() {
    linked::another_asks();
}

#[test]
fn a_name_that_a_file_was_given_and_that_is_not_said_is_there_for_its_maker() {
    linked::its_maker_asks();
}

#[test]
fn a_link_that_is_refused_after_all_takes_no_file_with_it() {
    (0..20).for_each(linked::a_link_that_is_refused_takes_no_file_with_it);
}

#[test]
fn a_removal_at_once_tells_of_a_link_that_was_refused_after_all() {
    let taken =
        (0..20).filter(|&seed| linked::a_removal_at_once_tells_of_the_link_that_was_refused(seed));
    assert!(taken.count() > 0, "no name was taken");
}

#[test]
fn a_file_that_is_closed_late_is_there_and_is_said_soon() {
    (0..20).for_each(linked::a_file_that_is_closed_late_is_there);
}

#[test]
fn a_link_asked_for_around_a_loss_of_power_is_of_the_file_that_was_found() {
    let lost = (0..20).filter(|&seed| scenes::a_link_outlives_the_power(seed)).count();
    assert!((1..20).contains(&lost), "the rename was lost {lost} times of 20");
}

#[test]
fn a_failed_sync_of_the_metadata_log_is_made_good_before_anything_is_acknowledged() {
    for seed in 0..40 {
        scenes::a_sync_of_the_log_fails(seed, 1);
        // The checkpoint fails, too: the server ends and starts again.
        scenes::a_sync_of_the_log_fails(seed, 2);
        scenes::a_sync_of_the_log_fails(seed, 4);
    }
}

#[test]
fn a_full_map_refuses_names_removes_them_and_starts() {
    (0..10).for_each(scenes::a_full_map);
}

#[test]
fn a_bit_that_rots_in_the_log_is_named_or_ends_it_where_nothing_was_synced() {
    let outcomes: Vec<Outcome> = (0..60).map(rot).collect();
    let is_cut = |outcome: &&Outcome| matches!(outcome, Outcome::Cut { made, kept } if kept < made);
    let (named, cut) = (
        outcomes.iter().filter(|outcome| **outcome == Outcome::Named).count(),
        outcomes.iter().filter(is_cut).count(),
    );
    assert!(named > 5 && cut > 5, "{outcomes:?}");
}

#[test]
fn what_was_read_ahead_is_not_changed_by_another_client_as_long_as_it_is_used() {
    ahead::another_changes_it();
}

#[test]
fn a_file_whose_readers_were_in_the_way_is_not_read_ahead_for_a_while() {
    ahead::it_was_in_the_way();
}

#[test]
fn a_truncation_takes_what_was_read_ahead() {
    ahead::another_truncates_it();
}

#[test]
fn who_reads_ahead_finds_what_it_has_written_itself() {
    ahead::its_reader_changes_it();
}

#[test]
fn an_io_server_that_starts_anew_lets_nobody_write_to_what_was_read_ahead_before() {
    ahead::its_server_starts_anew();
}

#[test]
fn who_makes_a_directory_is_alone_with_it() {
    made_dirs::nothing_is_asked_for_before();
}

#[test]
fn directories_that_others_want_at_the_same_time_count_once() {
    made_dirs::another_lists_them_all();
}

#[test]
fn a_directory_that_others_want_before_anything_is_done_in_it_is_not_kept() {
    made_dirs::another_comes_first();
}

#[test]
fn what_files_hold_comes_with_the_listing_to_who_goes_through_a_tree() {
    listed::a_tree_is_read();
}

#[test]
fn what_came_with_a_listing_is_never_older_than_what_was_acknowledged() {
    let at_once: u32 = (0..40).map(listed::another_writes_meanwhile).sum();
    assert!(at_once > 100, "{at_once}");
}

#[test]
fn attributes_of_a_directory_that_were_set_late_are_told_to_whoever_asks() {
    settings::another_asks();
}

#[test]
fn attributes_of_a_directory_keep_their_place_between_names_that_change() {
    settings::names_change_before_and_after();
}

#[test]
fn attributes_that_are_said_too_late_are_refused_and_that_is_told() {
    let said = (0..40).filter(|&seed| settings::another_sets_them_meanwhile(seed)).count();
    assert!((1..40).contains(&said), "{said} of 40 were said before");
}

#[test]
fn attributes_of_a_directory_are_set_although_the_metadata_server_starts_anew() {
    (0..20).for_each(settings::nobody_is_known_to_be_alone);
}
