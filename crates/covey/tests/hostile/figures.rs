//! What a node tells of all its users is for those who run it.

use crate::nine::{Nine, O_RDONLY};
use crate::support::Cluster;

const EACCES: u32 = 13;
const ALICE: u32 = 61_001;

#[test]
fn figures_of_all_users_are_for_root_and_the_servers_own_user() {
    let cluster = Cluster::up(1);
    let own = rustix::process::geteuid().as_raw();
    for node in ["meta", "io1"] {
        let mut alice = Nine::attach(&cluster.socket(node), "/", ALICE);
        let mut owner = Nine::attach(&cluster.socket(node), "/", own);
        let mut root = Nine::attach(&cluster.socket(node), "/", 0);
        for file in ["stats", "times", "slow", "ctl"] {
            assert_eq!(alice.open(file, O_RDONLY), Err(EACCES), "{node}: {file}");
            let fid = alice.walk(file);
            assert_eq!(alice.stat(fid).1, 0, "{node}: the length of {file} tells, too");
            for who in [&mut owner, &mut root] {
                assert!(who.open(file, O_RDONLY).is_ok(), "{node}: {file}");
            }
        }
        for file in ["config", "version"] {
            assert!(alice.open(file, O_RDONLY).is_ok(), "{node}: {file}");
        }
    }
}
