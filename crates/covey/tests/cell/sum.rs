//! A worker's program in Rust: coroutines that sum what a file holds, or fail as they are told.

use covey_cell_lib::api::{File, From, Mode, id, log, remove, spawn, yield_now};
use std::cell::Cell;
use std::rc::Rc;

const BLOCK: usize = 4096;

fn main(worker: u64, words: Vec<String>) {
    match &*words[1] {
        "sum" => sum(worker, &words[2]),
        "errors" => errors(),
        "panic" => panic!("on purpose"),
        "panic in a coroutine" => drop(spawn(64 << 10, || panic!("on purpose"))),
        other => log(&format!("what is {other}?\n")),
    }
}
covey_cell_lib::program!(main);

/// Four coroutines share the blocks of a file, and the last one to end says what they have found.
fn sum(worker: u64, path: &str) {
    let (total, left) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(4)));
    let file = Rc::new(File::open(path, Mode::Read).expect("it is there"));
    for first in 0..4 {
        let (file, total, left) = (file.clone(), total.clone(), left.clone());
        let body = move || {
            let mut block = vec![0; BLOCK];
            for number in (first..).step_by(4) {
                let count = file.read_at(&mut block, number * BLOCK as u64).expect("read");
                total.set(
                    total.get() + block[..count].iter().map(|byte| u64::from(*byte)).sum::<u64>(),
                );
                if count < BLOCK {
                    break;
                }
            }
            left.set(left.get() - 1);
            if left.get() == 0 {
                log(&format!("worker {worker}, coroutine {}: {}\n", id(), total.get()));
            }
        };
        spawn(64 << 10, body).expect("room for a stack");
    }
    yield_now();
}

/// What is refused says why, and everything else of a file works.
fn errors() {
    let file = File::create("#r/board", 0o600, Mode::Both).expect("made");
    assert_eq!(file.write(b"one two").expect("written"), 7);
    assert_eq!(file.seek(-3, From::End).expect("moved"), 4);
    let mut word = [0; 8];
    assert_eq!(file.read(&mut word).expect("read"), 3);
    file.write_at(b"six", 4).expect("written");
    assert_eq!(file.seek(-3, From::Here).expect("moved"), 4);
    assert_eq!(file.read(&mut word).expect("read"), 3);
    log(&format!("{}\n", String::from_utf8_lossy(&word[..3])));
    drop(file);
    remove("#r/board").expect("removed");
    let gone = File::open("#r/board", Mode::Read).expect_err("it is gone");
    log(&format!("{gone}\n"));
    let large = spawn(1 << 30, || ()).expect_err("there is no such room");
    log(&format!("{large}\n"));
}
