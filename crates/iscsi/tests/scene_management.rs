//! Task management: what is aborted, and when that is answered; and what is held of commands meanwhile.

mod line;

use covey_iscsi::message::{Header, flags};
use covey_iscsi::scsi::Function;
use covey_iscsi::target::{Connection, Room, Ticket};
use covey_wire::Machine;
use line::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const COMPLETE: u8 = 0;
const NO_TASK: u8 = 1;
const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const LOGICAL_UNIT_RESET: u8 = 5;
const TARGET_WARM_RESET: u8 = 6;

#[test]
fn an_aborted_task_has_no_answer_and_its_data_is_forgotten() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[]);
    let task = line.write(0, &[1; 1024], 0);
    let r2t = line.r2t(task);
    let itt = line.manage(ABORT_TASK, task, 10);
    assert_eq!(line.managed(itt), COMPLETE);
    line.data_out(task, r2t.0, 0, 0, &[1; 1024], true);
    assert!(line.next().is_none());
    assert_eq!(toy.state.lock().unwrap().writes, 0);
    let itt = line.manage(ABORT_TASK, task, 10);
    assert_eq!(line.managed(itt), NO_TASK);
    let itt = line.read(0, 1);
    assert_eq!(line.data(itt).1, 0);
}

#[test]
fn a_task_that_is_in_the_store_is_aborted_too() {
    let toy = Toy::new(64);
    toy.state.lock().unwrap().is_slow = true;
    let mut line = Line::logged_in(&portal(&toy), &[]);
    let task = line.read(0, 1);
    let itt = line.manage(ABORT_TASK, task, 10);
    assert_eq!(line.managed(itt), COMPLETE);
    toy.release();
    line.poll();
    assert!(line.next().is_none());
    // The tag is free again, and its old answer is nobody's.
    let task = line.read(1, 1);
    toy.release();
    line.poll();
    assert_eq!(line.data(task), (vec![1; BLOCK], 0));
}

#[test]
fn a_command_that_has_not_come_counts_as_come_when_it_is_aborted() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[]);
    line.command_as(5, 11, flags::FINAL, cdb(0, 0, 0), 0, &[]);
    assert!(line.next().is_none(), "number 10 is missing");
    let itt = line.manage(ABORT_TASK, 4, 10);
    assert_eq!((line.status(5), line.managed(itt)), (0, COMPLETE));
}

#[test]
fn a_task_set_is_that_of_its_nexus_and_a_reset_concerns_all() {
    let toy = Toy::new(64);
    let portal = portal(&toy);
    let mut one = Line::logged_in(&portal, &[]);
    let mut other = Line::new(&portal);
    other.isid[5] = 9;
    other.enter(&[]);
    toy.state.lock().unwrap().is_slow = true;
    one.read(0, 1);
    one.read(1, 1);
    let theirs = other.read(2, 1);
    let itt = one.manage(ABORT_TASK_SET, 0xffff_ffff, 0);
    // The function is for immediate delivery: what has a lower number is aborted.
    assert_eq!(one.managed(itt), COMPLETE);
    while toy.release() {}
    one.poll();
    other.poll();
    assert!(one.next().is_none());
    assert_eq!(other.data(theirs).1, 0);
    other.read(3, 1);
    let itt = one.manage(LOGICAL_UNIT_RESET, 0xffff_ffff, 0);
    assert!(one.next().is_none(), "a task of the other one is still there");
    assert!(toy.state.lock().unwrap().managed.is_empty());
    other.poll();
    one.poll();
    assert_eq!(one.managed(itt), COMPLETE);
    assert_eq!(toy.state.lock().unwrap().managed, [Function::LogicalUnitReset]);
    while toy.release() {}
    other.poll();
    assert!(other.next().is_none());
    let itt = one.manage(TARGET_WARM_RESET, 0xffff_ffff, 0);
    assert_eq!(one.managed(itt), COMPLETE);
    assert_eq!(toy.state.lock().unwrap().managed[1], Function::TargetReset);
}

#[test]
fn what_is_not_there_and_what_is_not_known_is_refused() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[]);
    for (function, response) in [(8, 4), (3, 5), (7, 5), (99, 5)] {
        let itt = line.manage(function, 0xffff_ffff, 0);
        assert_eq!(line.managed(itt), response, "{function}");
    }
    let header = Header::TaskRequest {
        function: 0x80 | LOGICAL_UNIT_RESET,
        reserved: Default::default(),
        lengths: Default::default(),
        lun: 7 << 48,
        itt: 99,
        referenced_itt: 0xffff_ffff,
        cmd_sn: 10,
        exp_stat_sn: 0,
        ref_cmd_sn: 0,
        exp_data_sn: 0,
        reserved_2: Default::default(),
    };
    line.send(&header, true, Default::default());
    assert_eq!(line.managed(99), 2, "there is no such unit");
}

#[test]
fn tasks_of_another_connection_of_the_session_are_aborted_there() {
    let toy = Toy::new(64);
    let portal = portal(&toy);
    let mut first = Line::logged_in(&portal, &[("MaxConnections", "2")]);
    let mut second = Line::beside(&portal, &first, 2);
    second.enter(&[]);
    toy.state.lock().unwrap().is_slow = true;
    second.command_as(500, 10, flags::FINAL | flags::READ, cdb(0x28, 0, 1), 512, &[]);
    let itt = first.manage(ABORT_TASK, 500, 10);
    assert!(first.next().is_none());
    second.poll();
    first.poll();
    assert_eq!(first.managed(itt), COMPLETE);
    toy.release();
    second.poll();
    assert!(second.next().is_none());
    // A connection that goes takes its tasks with it.
    second.command_as(501, 11, flags::FINAL | flags::READ, cdb(0x28, 0, 1), 512, &[]);
    let itt = first.manage(ABORT_TASK, 501, 11);
    drop(second);
    first.poll();
    assert_eq!(first.managed(itt), COMPLETE);
    assert_eq!(target(&portal).sessions()[0].tasks(), 0);
}

/// A unit's number can be written in two ways, and its tasks are the same.
#[test]
fn a_function_finds_the_tasks_of_a_unit_whichever_way_it_is_addressed() {
    let toy = Toy::new(64);
    let portal = portal(&toy);
    for (theirs, mine) in [(FLAT, 0), (0, FLAT)] {
        let mut one = Line::logged_in(&portal, &[]);
        let mut other = Line::new(&portal);
        (other.isid[5], other.lun, one.lun) = (9, theirs, mine);
        other.enter(&[]);
        toy.state.lock().unwrap().is_slow = true;
        other.write(0, &[1; BLOCK], BLOCK);
        let itt = one.manage(LOGICAL_UNIT_RESET, 0xffff_ffff, 0);
        assert!(one.next().is_none(), "a task of the other one is still there");
        other.poll();
        one.poll();
        assert_eq!(one.managed(itt), COMPLETE);
        let task = one.read(1, 1);
        one.lun = theirs;
        let itt = one.manage(ABORT_TASK, task, one.cmd_sn - 1);
        assert_eq!(one.managed(itt), COMPLETE);
        while toy.release() {}
        other.poll();
        one.poll();
        assert!(other.next().is_none() && one.next().is_none());
    }
}

const ORDERED: u8 = 2;

/// A command that waits for others is aborted as any other is, and nobody hears of its turn.
#[test]
fn a_command_waits_for_its_turn_and_can_be_aborted_meanwhile() {
    let toy = Toy::new(64);
    let mut line = Line::logged_in(&portal(&toy), &[]);
    let ordered = line.command(flags::FINAL | ORDERED, cdb(0, 0, 0), 0, &[]);
    assert!(line.next().is_none() && toy.is_heard());
    toy.release();
    line.poll();
    assert_eq!(line.status(ordered), 0);
    let ordered = line.command(flags::FINAL | ORDERED, cdb(0, 0, 0), 0, &[]);
    let itt = line.manage(ABORT_TASK, ordered, line.cmd_sn - 1);
    assert_eq!(line.managed(itt), COMPLETE);
    toy.release();
    line.poll();
    assert!(line.next().is_none());
}

/// What a connection holds, and how much room it is told that there is.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<(u64, Room)>>);

impl Ticket for Ledger {
    fn admit(&mut self) -> bool {
        true
    }

    fn hold(&mut self, bytes: u64) -> Room {
        let mut state = self.0.lock().unwrap();
        state.0 = bytes;
        state.1
    }
}

impl Ledger {
    fn bytes(&self) -> u64 {
        self.0.lock().unwrap().0
    }

    fn set(&self, room: Room) {
        self.0.lock().unwrap().1 = room;
    }
}

fn with_ledger(toy: &Arc<Toy>) -> (Line, Ledger) {
    let (portal, ledger) = (portal(toy), Ledger::default());
    let mut line = Line::new(&portal);
    let connection = Connection::new(portal, "a:1".into(), [7; 33], line.now);
    line.connection = connection.with_ticket(Box::new(ledger.clone()));
    line.enter(&[("MaxBurstLength", "65536")]);
    (line, ledger)
}

const BURST: usize = 64 << 10;

/// It goes on when what has come is written, and its silence meanwhile is no reason to end it.
#[test]
fn an_initiator_is_not_read_on_while_too_much_is_held_for_it() {
    let toy = Toy::new(1024);
    let (mut line, ledger) = with_ledger(&toy);
    toy.state.lock().unwrap().is_slow = true;
    ledger.set(Room::None);
    let mut count = 0;
    while !line.connection.is_full() {
        line.write(0, &[1; BURST], BURST);
        count += 1;
        assert!(count < 100, "the window alone is no limit");
    }
    // Everybody has a command's worth.
    assert!(ledger.bytes() > 1 << 20 && ledger.bytes() < 2 << 20, "{}", ledger.bytes());
    for _ in 0..4 {
        line.wait(Duration::from_secs(15));
    }
    assert!(line.end.is_none(), "{:?}", line.end);
    while toy.release() {
        line.poll();
    }
    assert!(!line.connection.is_full());
    assert_eq!(ledger.bytes(), 0);
    let itt = line.write(0, &[1; BURST], BURST);
    assert!(toy.release());
    line.poll();
    (1..=itt).for_each(|itt| assert_eq!(line.status(itt), 0));
}

/// What is awaited must be read, and what else comes cannot be refused: it is the end.
#[test]
fn an_initiator_that_sends_on_where_nothing_may_be_held_is_lost() {
    let toy = Toy::new(1024);
    let (mut line, ledger) = with_ledger(&toy);
    for _ in 0..40 {
        line.write(0, &[1; 2 * BURST], BURST);
    }
    assert!(line.end.is_none() && ledger.bytes() as usize == 40 * BURST);
    ledger.set(Room::None);
    line.write(0, &[1; 2 * BURST], BURST);
    let end = format!("{:?}", line.end);
    assert!(end.contains("more may not be"), "{end}");
}

/// Where memory is scarce, the data of one command is asked for after the other's.
#[test]
fn with_little_memory_commands_have_it_one_after_the_other() {
    let toy = Toy::new(1024);
    for (room, expected) in [(Room::Ample, 4), (Room::Scarce, 1)] {
        let (mut line, ledger) = with_ledger(&toy);
        ledger.set(room);
        // It is told when much has changed.
        line.write(0, &[1; 2 * BURST], BURST);
        let first = line.r2t(1).0;
        for _ in 0..3 {
            line.write(0, &[1; BURST], 0);
        }
        let asked = std::iter::from_fn(|| line.next()).count();
        assert_eq!(asked + 1, expected, "{room:?}");
        line.data_out(1, first, 0, BURST, &[1; BURST], true);
        assert!(line.end.is_none());
        if room == Room::Scarce {
            assert_eq!(line.status(1), 0);
            line.r2t(2);
        }
    }
}

/// An initiator that aborts what its store does not get done would have memory without end.
#[test]
fn the_data_of_an_aborted_write_counts_until_its_store_has_let_go() {
    let toy = Toy::new(1024);
    let (mut line, ledger) = with_ledger(&toy);
    toy.state.lock().unwrap().is_slow = true;
    for turn in 1..=4 {
        let task = line.write(0, &[1; BURST], BURST);
        let itt = line.manage(ABORT_TASK, task, line.cmd_sn - 1);
        assert_eq!(line.managed(itt), COMPLETE);
        assert_eq!(ledger.bytes() as usize, turn * BURST);
    }
    while toy.release() {
        line.poll();
    }
    assert_eq!(ledger.bytes(), 0);
    let itt = line.read(0, 1);
    toy.release();
    line.poll();
    assert_eq!(line.data(itt).1, 0);
}

/// The unit goes to another node: that it is not here any more must not be heard as that there is none.
#[test]
fn a_session_that_is_ended_answers_nothing_more() {
    const LOGICAL_UNIT: u64 = 1 << 48;
    let toy = Toy::new(64);
    let portal = portal(&toy);
    let ended = |act: &dyn Fn(&mut Line)| {
        toy.state.lock().unwrap().is_slow = true;
        let mut line = Line::logged_in(&portal, &[]);
        let asked = line.write(0, &[1; BLOCK], BLOCK);
        target(&portal).disconnect("another node serves the volume");
        toy.release();
        toy.state.lock().unwrap().is_slow = false;
        act(&mut line);
        line.poll();
        let answer = line.next().map(|pdu| pdu.header);
        assert!(answer.is_none(), "{answer:?}, of {asked} or what came later");
        assert!(line.end.take().unwrap().to_string().contains("another node"));
    };
    ended(&|_| {});
    // A command that the device does not know, as none is known where there is no unit.
    ended(&|line| _ = line.command(flags::FINAL, cdb(0xff, 0, 0), 0, &[]));
    ended(&|line| _ = line.write(1, &[2; BLOCK], BLOCK));
    ended(&|line| _ = line.manage(LOGICAL_UNIT_RESET, 0, 0));
    ended(&|line| {
        let header = Header::TaskRequest {
            function: 0x80 | LOGICAL_UNIT_RESET,
            reserved: Default::default(),
            lengths: Default::default(),
            lun: LOGICAL_UNIT,
            itt: 99,
            referenced_itt: 0,
            cmd_sn: line.cmd_sn,
            exp_stat_sn: 0,
            ref_cmd_sn: 0,
            exp_data_sn: 0,
            reserved_2: Default::default(),
        };
        line.send(&header, true, Default::default());
    });
}
