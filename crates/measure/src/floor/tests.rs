use super::*;

/// Knows how to double a number.
#[derive(Default)]
struct Double(u64);

impl Part for Double {
    fn prepare(&mut self, first: u64, second: u64) -> io::Result<u64> {
        match first {
            0 => Err(io::Error::from_raw_os_error(Errno::DOM.raw_os_error())),
            _ => Ok(first * 2 + second + self.0),
        }
    }

    fn run(&mut self, _: u64, second: u64) -> io::Result<()> {
        self.0 = second;
        Ok(())
    }
}

/// Two halves, as two threads of this process: it is its own other process, too.
fn halves(ask: impl FnOnce(&mut Asker)) {
    let mut asker = Asker::new().unwrap();
    let path = asker.path();
    let answerer =
        std::thread::spawn(move || Answerer::open(&path).unwrap().serve(&mut Double::default()));
    ask(&mut asker);
    asker.end().unwrap();
    answerer.join().unwrap().unwrap();
}

fn is_numbers(bytes: &[u8]) -> bool {
    let mut expected = vec![0; bytes.len()];
    numbers(&mut expected);
    bytes == expected
}

#[test]
fn lines_go_to_and_fro_as_often_as_asked() {
    halves(|asker| {
        for rounds in [1, 20, 0, 3] {
            asker.line(rounds).unwrap();
        }
        assert_eq!(asker.map.word(Word::Pong as usize).value(), 24);
    });
}

#[test]
fn the_others_memory_is_read_mapped_and_through_the_kernel() {
    halves(|asker| {
        asker.fill_mapped(40_000).unwrap();
        assert!(asker.mapped().len() == 40_000 && is_numbers(asker.mapped()));
        assert!(asker.fill_mapped(MAPPED_BYTES_MAX + 1).is_err());
        assert!(asker.mapped().is_empty());
        asker.fill_heap(8192).unwrap();
        let mut all = vec![0; 8192];
        asker.read_heap(0, &mut all[..4096]).unwrap();
        asker.read_heap(4096, &mut all[4096..]).unwrap();
        assert!(is_numbers(&all));
        assert!(asker.read_heap(1, &mut all).is_err(), "it has no more");
    });
}

#[test]
fn blocks_come_back_whether_one_sleeps_or_not() {
    halves(|asker| {
        for is_busy in [false, true, false] {
            for bytes in [1, 64, 300_000] {
                asker.echo(bytes, 3, is_busy).unwrap();
            }
        }
        asker.cpu_time_of_other().unwrap();
    });
}

#[test]
fn a_part_is_prepared_before_it_runs_and_its_errors_come_back() {
    halves(|asker| {
        assert_eq!(asker.part(5, 1).unwrap(), 11);
        assert_eq!(asker.part(5, 0).unwrap(), 11, "it remembers the last one that ran");
        assert_eq!(asker.part(0, 9).unwrap_err().raw_os_error(), Some(Errno::DOM.raw_os_error()));
        assert_eq!(asker.part(5, 0).unwrap(), 10, "one that failed did not run");
    });
}
