//! The `covey` binary: see the library of this crate.

#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    covey::run_process()
}
