//! What a hostile neighbour tries, and what failing disks, dying processes and lost power do: one file per area.

#[macro_use]
extern crate covey_harness_macro;

mod attack;
mod campaign;
mod crash_campaign;
mod disks;
mod ends;
mod figures;
mod nine;
mod power_loss;
mod starts;
mod stores;
mod strangers;
#[path = "../support/mod.rs"]
mod support;
mod terminal;
mod users;

fn main() {
    covey_harness::run()
}
