//! Quotas whose counts are not what files add up to.

use super::*;
use crate::meta::quota;
use crate::ops::Quota;

#[test]
fn what_is_owned_is_compared_with_what_files_say_and_counted_anew() {
    let lab = planted(Class::WrongQuota, |lab| {
        let (kind, id, files_max) = (quota::USER, 5, quota::NO_LIMIT);
        let limit = Quota { kind, id, bytes_max: 1 << 40, files_max, bytes: 0, files: 0 };
        lab.op(0, Op::SetQuota { quota: limit });
        lab.op(0, Op::CountOwned { rows_max: 1000 });
        assert_eq!(lab.check(false).0.findings, BTreeMap::new(), "what is counted is right");
        let id = lab.find(lab.find(ROOT, "d0"), "f0");
        lab.change(id, |stored| stored.inode.uid = 77);
    });
    assert!(lab.store.borrow().has_owners_to_count());
    lab.op(0, Op::CountOwned { rows_max: 1000 });
    assert!(!lab.store.borrow().has_owners_to_count());
    assert_eq!(lab.check(false).0.findings, BTreeMap::new());
}
