//! Refusals that have to do with quotas.

use super::Row;
use crate::lab::*;
use crate::quotas::{count_all, limit};
use covey_ninep::tree::Errno;
use covey_stripe::meta::{mode, quota};
use covey_stripe::ops::*;

pub const REFUSALS: &[Row] = &[
    ("there are no quotas of kind {}", Errno::EINVAL, |lab| {
        lab.reply(0, Op::SetQuota { quota: Quota { kind: 3, ..Quota::default() } })
    }),
    ("{LIMITS_MAX} users, groups and directories have a limit already", Errno::ENOSPC, |lab| {
        for id in 0..60_000 {
            limit(lab, (quota::USER, id), 1, 1);
        }
        lab.reply(0, Op::SetQuota { quota: Quota { kind: quota::GROUP, ..Quota::default() } })
    }),
    ("{whose} has {} files, the quota is {limit}", Errno::EDQUOT, |lab| {
        lab.reply(0, chmod(ROOT, 0o777));
        limit(lab, (quota::USER, ALICE), 0, quota::NO_LIMIT);
        count_all(lab);
        lab.caller = user(ALICE, &[ALICE]);
        lab.reply(0, create(ROOT, "f", mode::REGULAR | 0o644))
    }),
    (
        "{whose} has {had} bytes, with {bytes} more the quota {limit} is passed",
        Errno::EDQUOT,
        |lab| {
            lab.reply(0, chmod(ROOT, 0o777));
            limit(lab, (quota::GROUP, ALICE), quota::NO_LIMIT, 9);
            count_all(lab);
            lab.caller = user(ALICE, &[ALICE]);
            let id = lab.file("f").id;
            lab.reply(0, truncate(id, 10))
        },
    ),
    ("the quota of {whose} is passed", Errno::EDQUOT, |lab| {
        limit(lab, (quota::USER, BOB), quota::NO_LIMIT, 9);
        count_all(lab);
        let id = lab.create(ROOT, "f", mode::REGULAR | 0o666).id;
        let uid = BOB;
        lab.reply(0, Attributes { uid, ..attributes(id, set::UID) }.into());
        lab.caller = user(ALICE, &[ALICE]);
        lab.reply(0, truncate(id, 10))
    }),
    ("there is no project {}", Errno::EINVAL, |lab| {
        lab.reply(0, Op::SetQuota { quota: Quota { kind: quota::PROJECT, ..Quota::default() } })
    }),
    ("there is no project {project}", Errno::EINVAL, |lab| {
        lab.reply(0, Op::SetProject { id: ROOT, project: 1 })
    }),
    ("there is no project {number}", Errno::ENOENT, |lab| {
        lab.reply(0, Op::EndProject { number: 1, whole: true })
    }),
    ("directory {dir} lies in one that has a quota", Errno::EINVAL, |lab| {
        let dir = lab.mkdir(ROOT, "d").id;
        lab.reply(0, Op::MakeProject { dir });
        let dir = lab.mkdir(dir, "below").id;
        lab.reply(0, Op::MakeProject { dir })
    }),
    ("directory {}, which lies in it, has a quota", Errno::EINVAL, |lab| {
        let dir = lab.mkdir(ROOT, "d").id;
        lab.reply(0, Op::MakeProject { dir });
        lab.reply(0, Op::MakeProject { dir: ROOT })
    }),
    ("{PROJECTS_MAX} directories have a quota already", Errno::ENOSPC, |lab| {
        let made = (0..=10_000).map(|at| {
            let dir = lab.mkdir(ROOT, &format!("d{at}")).id;
            lab.reply(0, Op::MakeProject { dir })
        });
        made.last().expect("there are some")
    }),
    ("the border of a directory that has a quota lies between", Errno::EXDEV, |lab| {
        let dir = lab.mkdir(ROOT, "d").id;
        lab.reply(0, Op::MakeProject { dir });
        let id = lab.file("f").id;
        lab.reply(0, Op::Link { id, parent: dir, name: "link".into() })
    }),
];
