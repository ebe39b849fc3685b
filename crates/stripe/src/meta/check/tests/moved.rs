//! Metadata that is older than the move of a file.

use super::*;
use crate::objects::LEFT;

#[test]
fn what_has_moved_since_the_metadata_is_not_removed_and_what_it_left_is_no_finding() {
    let lab = Lab::filled();
    let id = lab.find(lab.find(ROOT, "d0"), "f0");
    lab.change(id, |stored| {
        let striping = stored.inode.striping.as_mut().unwrap();
        striping.servers = List(striping.servers.0[..1].to_vec());
    });
    let servers = lab.stored(id).inode.striping.unwrap().servers.0;
    let mut others = (0..SERVERS).filter(|at| !servers.contains(at));
    let (left, stray) = (others.next().unwrap(), others.next().unwrap());
    lab.objects.borrow_mut().insert((left, id), Object { id, epoch: LEFT | 1, bytes: 0 });
    lab.objects.borrow_mut().insert((stray, id), Object { id, epoch: 2, bytes: 5 });
    let other = lab.find(lab.find(ROOT, "d0"), "f4");
    let holds = lab.stored(other).inode.striping.unwrap().servers.0[0];
    let emptied = Object { id: other, epoch: LEFT | 7, bytes: 0 };
    lab.objects.borrow_mut().insert((holds, other), emptied);
    for _ in 0..3 {
        let (_, told) = lab.check(true);
        let ahead = told.iter().find(|one| one.class == Class::AheadObject).unwrap();
        assert!(matches!(&ahead.outcome, Outcome::Left(why) if why.contains("has moved")));
        let strays: Vec<_> = told.iter().filter(|one| one.class == Class::StrayObject).collect();
        assert_eq!(strays.len(), 1, "{told:?}");
        assert_eq!(strays[0].finding.parent, u64::from(stray));
        assert!(matches!(&strays[0].outcome, Outcome::Left(why) if why.contains("later layout")));
    }
    assert!(lab.objects.borrow().contains_key(&(stray, id)));
    assert_eq!(lab.objects.borrow()[&(holds, other)], emptied);
}

#[test]
fn a_later_epoch_is_not_followed_where_any_server_says_that_the_file_has_moved() {
    let lab = Lab::filled();
    let id = lab.find(lab.find(ROOT, "d0"), "f0");
    let servers = lab.stored(id).inode.striping.unwrap().servers.0;
    let put = |server, epoch, bytes| {
        lab.objects.borrow_mut().insert((server, id), Object { id, epoch, bytes });
    };
    let ahead = |lab: &Lab| {
        let (_, told) = lab.check(true);
        let ahead = told.into_iter().filter(|one| one.class == Class::AheadObject);
        ahead.map(|one| one.outcome).collect::<Vec<_>>()
    };
    let is_left =
        |outcome: &Outcome| matches!(outcome, Outcome::Left(why) if why.contains("moved"));
    // It lies on one server less.
    servers.iter().for_each(|server| put(*server, 2, 2500));
    put(servers[1], LEFT | 1, 0);
    let told = ahead(&lab);
    assert!(!told.is_empty() && told.iter().all(is_left), "{told:?}");
    // Another has taken a server's place; what was left there has not been emptied yet.
    lab.change(id, |stored| {
        let striping = stored.inode.striping.as_mut().unwrap();
        striping.servers = List(servers[..2].to_vec());
    });
    put(servers[1], 1, 2500);
    put(servers[0], 2, 2500);
    put(servers[2], 2, 2500);
    let told = ahead(&lab);
    assert!(!told.is_empty() && told.iter().all(is_left), "{told:?}");
    assert_eq!(lab.objects.borrow()[&(servers[2], id)].bytes, 2500);
    assert_eq!(lab.stored(id).inode.epoch, 0);
}
