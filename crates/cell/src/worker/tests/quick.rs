//! What coroutines do by themselves, where no trace is made, is what their worker would do.

use super::*;

/// Coroutines that read, and write more or less than may be written in a row: who has done what, in order.
fn order(trace: Trace, cors: u64) -> Vec<(u64, u64)> {
    let order = Rc::new(RefCell::new(Vec::new()));
    let noted = order.clone();
    let (ended, _) = run(&toy(1), 7, trace, move |me| {
        let fd = me.open("#r/a", mode::ANY);
        let from = me.put(0, &[7; 64]);
        assert_eq!(me.ask(Request::Write { fd, from, at: Some(64 * 63) }), Ok(64));
        for cor in 0..cors {
            let noted = noted.clone();
            let body = move |me: Me| {
                let own = Span::new(4096 * (cor + 1), 64);
                for step in 0..20 {
                    assert_eq!(me.ask(Request::Read { fd, to: own, at: Some(cor * 64) }), Ok(64));
                    noted.borrow_mut().push((cor, step));
                    for count in 0..(step * cor) % 24 {
                        let write = Request::Write { fd, from: own, at: Some(cor * 64) };
                        assert_eq!(me.ask(write), Ok(64));
                        noted.borrow_mut().push((cor, 100 + count));
                    }
                    if step == cor {
                        assert_eq!(me.ask(Request::Yield), Ok(0));
                    }
                }
            };
            me.spawn(body).expect("there is room");
        }
    });
    ended.expect("it ends");
    order.take()
}

#[test]
fn coroutines_run_in_the_same_order_with_and_without_a_trace() {
    for cors in 1..=5 {
        let (quick, traced) = (order(Trace::off(), cors), order(Trace::record(), cors));
        assert!(quick.len() >= 20 * cors as usize);
        assert_eq!(quick, traced, "{cors} coroutines");
    }
}

#[test]
fn a_read_whose_file_is_cut_off_before_its_turn_brings_what_is_left_and_moves_nothing() {
    for trace in [Trace::off(), Trace::record()] {
        let (ended, _) = run(&toy(1), 1, trace, |me| {
            let fd = me.open("#r/a", mode::ANY);
            let from = me.put(0, &[1; 128]);
            assert_eq!(me.ask(Request::Write { fd, from, at: Some(0) }), Ok(128));
            let cuts = |me: Me| {
                let path = me.put(1024, b"#r/a");
                let create = Request::Create { path, perm: 0o600, mode: mode::BOTH };
                me.ask(create).expect("it is made");
            };
            let reads = move |me: Me| {
                let to = Span::new(2048, 64);
                assert_eq!(me.ask(Request::Read { fd, to, at: None }), Ok(0));
                assert_eq!(me.ask(Request::Seek { fd, offset: 0, whence: 1 }), Ok(0));
            };
            me.spawn(cuts).expect("there is room");
            me.spawn(reads).expect("there is room");
        });
        ended.expect("it ends");
    }
}

#[test]
fn a_read_whose_descriptor_is_another_file_s_by_its_turn_brings_nothing_of_that() {
    let mut refused = 0;
    for seed in 1..=50 {
        for trace in [Trace::off(), Trace::record()] {
            let answers = Rc::new(RefCell::new(Vec::new()));
            let answered = answers.clone();
            let (ended, _) = run(&toy(1), seed, trace, move |me| {
                let fill = |path: &str, byte| {
                    let fd = me.open(path, mode::ANY);
                    let from = me.put(0, &[byte; 64]);
                    assert_eq!(me.ask(Request::Write { fd, from, at: Some(0) }), Ok(64));
                    fd
                };
                let other = fill("#r/b", 2);
                me.ask(Request::Close { fd: other }).expect("it is open");
                let fd = fill("#r/a", 1);
                let path = me.put(1024, b"#r/a");
                me.ask(Request::Remove { path }).expect("it is there");
                let opens = |me: Me| assert!(me.open("#r/b", mode::ANY) >= 0);
                me.spawn(opens).expect("there is room");
                let reads = move |me: Me| {
                    let to = me.put(2048, &[0; 64]);
                    let read = me.ask(Request::Read { fd, to, at: Some(0) });
                    answered.borrow_mut().push((read, me.get(2048, 1)[0]));
                };
                me.spawn(reads).expect("there is room");
                let closes = move |me: Me| assert_eq!(me.ask(Request::Close { fd }), Ok(0));
                me.spawn(closes).expect("there is room");
            });
            ended.expect("it ends");
            match answers.take()[..] {
                [(Err(Errno::EBADF), 0)] => refused += 1,
                [(Ok(64), 1)] => {}
                ref other => panic!("{seed}: {other:?}"),
            }
        }
    }
    assert!(refused > 0);
}
