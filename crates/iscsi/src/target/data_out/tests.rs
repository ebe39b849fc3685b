use super::*;

const PARAMETERS: Parameters = Parameters {
    initial_r2t: false,
    first_burst_bytes_max: 100,
    burst_bytes_max: 300,
    r2t_max: 1,
    ..Parameters::DEFAULT
};

fn bytes(length: usize) -> Bytes {
    vec![1; length].into()
}

fn arrived(ttt: u32, data_sn: u32, offset: u64, length: usize, is_final: bool) -> Arrived {
    Arrived { ttt, data_sn, offset, data: bytes(length), is_final, is_sound: true }
}

#[test]
fn what_comes_unasked_is_bounded_on_both_sides() {
    let begin = |expected, immediate, is_final| {
        DataOut::begin(expected, bytes(immediate), is_final, &PARAMETERS).map(|out| out.is_owed())
    };
    assert_eq!(begin(1000, 100, true), Ok(false));
    assert_eq!(begin(1000, 101, true), Err(reject::PROTOCOL));
    assert_eq!(begin(50, 51, true), Err(reject::PROTOCOL));
    assert_eq!(begin(1000, 99, false), Ok(true));
    assert_eq!(begin(1000, 100, false), Ok(false), "nothing can follow");
    let mut out = DataOut::begin(1000, bytes(60), false, &PARAMETERS).unwrap();
    out.want(1000);
    out.take(arrived(NO_TAG, 0, 60, 40, true)).unwrap();
    assert!(!out.is_broken());
    let mut out = DataOut::begin(1000, bytes(60), false, &PARAMETERS).unwrap();
    out.want(1000);
    out.take(arrived(NO_TAG, 0, 60, 41, true)).unwrap();
    assert!(out.is_broken() && out.is_complete());
    assert_eq!(out.next_r2t_bytes(&PARAMETERS), None, "nothing more is asked for");
}

#[test]
fn unsolicited_data_may_end_early_and_the_rest_is_asked_for() {
    let mut out = DataOut::begin(1000, bytes(0), false, &PARAMETERS).unwrap();
    out.want(600);
    assert_eq!(out.next_r2t_bytes(&PARAMETERS), None);
    out.take(arrived(NO_TAG, 0, 0, 30, false)).unwrap();
    out.take(arrived(NO_TAG, 1, 30, 20, true)).unwrap();
    assert_eq!(out.next_r2t_bytes(&PARAMETERS), Some(300));
    let r2t = out.ask(5, 300);
    assert_eq!((r2t.sn, r2t.offset, r2t.end), (0, 50, 350));
    assert_eq!(out.next_r2t_bytes(&PARAMETERS), None, "one at a time");
    out.take(arrived(5, 0, 50, 300, true)).unwrap();
    assert_eq!(out.next_r2t_bytes(&PARAMETERS), Some(250));
    out.ask(6, 250);
    out.take(arrived(6, 0, 350, 250, true)).unwrap();
    assert!(out.is_complete() && !out.is_broken());
    assert_eq!((out.collect().len(), out.r2t_count()), (600, 2));
}

#[test]
fn what_has_come_is_given_out_in_whole_blocks_and_a_good_deal_at_a_time() {
    const LONG: Parameters =
        Parameters { first_burst_bytes_max: 1 << 20, burst_bytes_max: 100_000, ..PARAMETERS };
    let mut out = DataOut::begin(300_032, bytes(65_000), true, &LONG).unwrap();
    out.want(300_032);
    assert_eq!(out.collect_some(512), None, "that is little");
    let r2t = out.ask(5, 100_000);
    out.take(arrived(5, 0, 65_000, 70_000, false)).unwrap();
    let some = out.collect_some(512).unwrap();
    assert_eq!((r2t.offset, some.len()), (65_000, 263 * 512));
    assert_eq!(out.collect_some(512), None, "less than a block is left");
    out.take(arrived(5, 1, 135_000, 30_000, true)).unwrap();
    assert!(!out.is_owed() && !out.is_complete());
    out.ask(6, 100_000);
    out.take(arrived(6, 0, 165_000, 100_000, true)).unwrap();
    let more = out.collect_some(512).unwrap();
    out.ask(7, 35_032);
    out.take(arrived(7, 0, 265_000, 35_032, true)).unwrap();
    assert!(out.is_complete());
    let rest = out.collect_some(512).unwrap();
    assert_eq!(some.len() + more.len() + rest.len(), 300_032);
    assert_eq!(more.len() % 512, 0);
}

#[test]
fn nothing_is_given_out_behind_what_was_lost() {
    let mut out = DataOut::begin(300_000, bytes(10), true, &PARAMETERS).unwrap();
    out.want(300_000);
    out.ask(5, 200_000);
    out.take(arrived(5, 0, 11, 100_000, false)).unwrap();
    assert_eq!(out.collect_some(1), None);
    out.take(arrived(5, 1, 100_011, 99_999, true)).unwrap();
    assert!(out.is_broken() && out.is_complete());
    assert_eq!(out.collect_some(1), None);
}

#[test]
fn data_for_nobody_is_told() {
    let mut out = DataOut::begin(1000, bytes(0), true, &PARAMETERS).unwrap();
    out.want(1000);
    assert_eq!(out.take(arrived(NO_TAG, 0, 0, 1, true)), Err(reject::PROTOCOL));
    out.ask(5, 300);
    assert_eq!(out.take(arrived(6, 0, 0, 300, true)), Err(reject::INVALID));
    // An R2T that is not answered whole.
    out.take(arrived(5, 0, 0, 299, true)).unwrap();
    assert!(out.is_broken() && out.is_complete());
}

#[test]
fn only_what_is_wanted_is_kept() {
    let mut out = DataOut::begin(100, bytes(60), false, &PARAMETERS).unwrap();
    out.want(10);
    out.take(arrived(NO_TAG, 0, 60, 40, true)).unwrap();
    assert_eq!(out.pieces.len(), 1);
    assert_eq!(out.collect().len(), 10);
    let mut out = DataOut::begin(100, bytes(60), false, &PARAMETERS).unwrap();
    out.want(0);
    assert!(out.pieces.is_empty());
}
