//! A measurement as it is told: in words, and as values separated by commas.

use super::{Caches, DiskReport, Rate};
use crate::config::size;
use crate::environment::Environment;
use covey_plot::table;
use covey_tune::Estimate;
use covey_tune::diagnose::noise;
use std::io::Write;

impl DiskReport {
    /// In words.
    pub fn tell(&self, out: &mut Vec<u8>) -> std::io::Result<()> {
        let threads = match self.threads {
            1 => "1 thread".to_string(),
            count => format!("{count} threads"),
        };
        let times = match self.repetitions {
            1 => "once".to_string(),
            count => format!("{count} times"),
        };
        writeln!(
            out,
            "{}{}: {}, {threads}, {times}, {:.1} s\n",
            self.place.path.display(),
            self.place.words(),
            size::rounded(self.size_bytes),
            self.environment.seconds
        )?;
        let rows: Vec<Vec<String>> = self.rates.iter().map(row).collect();
        let heading = ["", ">RECORD", ">MEDIAN", self.interval(), ">CPU", "CACHES"];
        table(out, &heading, &rows);
        writeln!(out)?;
        self.notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
        let Environment { cpu_pressure, outside_cpus, steal, .. } = self.environment;
        match noise(cpu_pressure, outside_cpus, steal) {
            Some(why) => writeln!(
                out,
                "\nwarning: not trustworthy: {why}, so rates are too low by an unknown amount"
            ),
            None => Ok(()),
        }
    }

    /// What the interval is depends on how many there are.
    fn interval(&self) -> &'static str {
        match self.rates.iter().map(|rate| rate.each.len()).max() {
            Some(6..) => "95 % WITHIN",
            _ => "LEAST TO GREATEST",
        }
    }

    /// What a reader must know of the numbers.
    pub(super) fn remarks(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let writes = self.rates.iter().any(|rate| rate.caches == Caches::Written);
        if writes {
            notes.push(
                "writes include fsync, but for files that were only made, and for unlink".into(),
            );
        }
        let (size, memory) = (self.size_bytes, self.place.memory_bytes);
        let is_memory = matches!(self.place.file_system.as_deref(), Some("tmpfs" | "ramfs"));
        if is_memory {
            notes.push("this file system is main memory: nothing of it can be dropped".into());
        } else if size < 2 * memory {
            notes.push(format!(
                "{} is less than twice the memory ({}), so caches count wherever they were warm, and those of \
                 servers and disks everywhere",
                size::rounded(size),
                size::rounded(memory)
            ));
        }
        if self.rates.iter().any(|rate| rate.caches == Caches::Advised) {
            notes.push(
                "this machine's caches were not dropped (root may, without --keep-caches): the kernel was only asked to \
                 forget the files"
                    .into(),
            );
        }
        if let Some(why) = &self.direct_refused {
            notes.push(format!("O_DIRECT is refused here: {why}"));
        }
        notes.push(if self.verified {
            "all that was read was what had been written".into()
        } else {
            "what was read was not compared with anything: nothing was written".into()
        });
        notes.push(
            "CPU is that of this program, in seconds for each GiB, or for each operation".into(),
        );
        notes
    }

    /// As values separated by commas.
    pub fn csv(&self) -> String {
        let mut text = "test,record_bytes,direct,caches,unit,median,low,high,repetitions,\
                        cpu_s_per_gib,cpu_us_per_operation\n"
            .to_string();
        let number =
            |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.6}"));
        for rate in &self.rates {
            let Estimate { value, low, high } = rate.rate;
            let test = serde_json::to_value(rate.test).unwrap_or_default();
            text.push_str(&format!(
                "{},{},{},{},{},{value:.1},{low:.1},{high:.1},{},{},{}\n",
                test.as_str().unwrap_or_default(),
                rate.record_bytes,
                rate.direct,
                rate.caches.word(),
                rate.unit,
                rate.each.len(),
                number(rate.cpu_s_per_gib),
                number(rate.cpu_us_per_operation)
            ));
        }
        text
    }
}

impl super::Place {
    fn words(&self) -> String {
        match (&self.file_system, &self.source) {
            (Some(kind), Some(source)) => format!(" ({kind} of {source})"),
            _ => format!(" ({})", self.kind),
        }
    }
}

impl Rate {
    /// A value of it as a person reads it.
    pub fn text(&self, value: f64) -> String {
        if !self.test.counts_operations() {
            format!("{}/s", size::rounded(value as u64))
        } else if value < 99.95 {
            format!("{value:.1} /s")
        } else {
            format!("{value:.0} /s")
        }
    }
}

fn row(rate: &Rate) -> Vec<String> {
    let cpu = match (rate.cpu_us_per_operation, rate.cpu_s_per_gib) {
        (Some(us), _) => format!("{us:.1} us"),
        (None, Some(seconds)) => format!("{seconds:.2} s/GiB"),
        (None, None) => "-".into(),
    };
    let Estimate { value, low, high } = rate.rate;
    vec![
        rate.test.words().into(),
        size::exact(rate.record_bytes),
        rate.text(value),
        format!("{} to {}", rate.text(low), rate.text(high)),
        cpu,
        rate.caches.word().into(),
    ]
}
