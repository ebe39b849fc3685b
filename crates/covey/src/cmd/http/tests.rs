use super::visits::{VISITS_MAX, Visits};
use super::*;
use std::cell::Cell;
use tokio::sync::Notify;

/// Runs something on one thread, as the commands do.
fn alone(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

async fn settle() {
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn what_was_begun_is_not_begun_again_because_its_reader_went_away() {
    alone(async {
        let (fresh, begun, go_on) =
            (Fresh::default(), Rc::new(Cell::new(0)), Rc::new(Notify::new()));
        let make = || {
            let (begun, go_on) = (begun.clone(), go_on.clone());
            async move {
                begun.set(begun.get() + 1);
                go_on.notified().await;
                Bytes::from_static(b"made")
            }
        };
        for _ in 0..5 {
            let reader = fresh.get(make());
            assert!(tokio::time::timeout(Duration::from_millis(1), reader).await.is_err());
        }
        assert_eq!(begun.get(), 1);
        go_on.notify_one();
        assert_eq!(fresh.get(make()).await, "made");
        assert_eq!(begun.get(), 1);
    });
}

#[test]
fn who_says_nothing_makes_way_and_who_waits_for_an_answer_does_not() {
    alone(async {
        let (visits, ended) = (Rc::new(Visits::default()), Rc::new(RefCell::new(Vec::new())));
        let go_on = Rc::new(Notify::new());
        let visit = async |number: usize| {
            let (ended, go_on) = (ended.clone(), go_on.clone());
            let run = async move |visit: Rc<Visit>| {
                struct End(Rc<RefCell<Vec<usize>>>, usize);
                impl Drop for End {
                    fn drop(&mut self) {
                        self.0.borrow_mut().push(self.1);
                    }
                }
                let _end = End(ended, number);
                if number.is_multiple_of(2) {
                    let _asking = visit.asks();
                    go_on.notified().await;
                }
                std::future::pending::<()>().await;
            };
            visits.admit(run).await;
            settle().await;
        };
        for number in 0..VISITS_MAX {
            visit(number).await;
        }
        assert!(ended.borrow().is_empty());
        for number in 0..3 {
            visit(1001 + 2 * number).await;
        }
        assert_eq!(*ended.borrow(), [1, 3, 5], "the longest silent first");
        // All that is left here asks: the next one waits for the first answer.
        for number in 0..VISITS_MAX / 2 {
            visit(2000 + 2 * number).await;
        }
        assert_eq!(ended.borrow().len(), 3 + VISITS_MAX / 2);
        let next = tokio::time::timeout(Duration::from_millis(1), visit(9001)).await;
        assert!(next.is_err(), "no room was left");
        go_on.notify_one();
        visit(9003).await;
        assert_eq!(ended.borrow().len(), 4 + VISITS_MAX / 2);
    });
}

#[test]
fn a_reader_of_this_machine_calls_it_by_its_name_or_number() {
    let may = |from: From, host: &str| {
        from.may_call_us(Some(&HeaderValue::from_str(host).expect("a header's value")))
    };
    for host in
        ["localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:9564", "[::1]:9564", "10.0.0.7"]
    {
        assert!(may(From::Here, host), "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:9564",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "",
        "a b",
    ] {
        assert!(!may(From::Here, host), "{host}");
        assert!(may(From::Elsewhere, host), "{host}");
    }
    assert!(From::Here.may_call_us(None), "HTTP/1.0 has no Host, and no browser speaks it");
}
