//! Our structures beside those of the headers that are installed.

use crate::abi::*;
use std::mem::{offset_of, size_of};
use std::process::Command;

/// Sizes and offsets of a structure, as statements that a compiler of C checks.
macro_rules! same {
    ($out:ident: $ours:ident is $theirs:literal, $($field:ident is $name:literal),* $(,)?) => {
        $out.push(format!(
            "_Static_assert(sizeof({0}) == {1}, \"{0}\");", $theirs, size_of::<$ours>()
        ));
        same!($out: begin of $ours is $theirs, $($field is $name),*);
    };
    ($out:ident: begin of $ours:ident is $theirs:literal, $($field:ident is $name:literal),* $(,)?) => {
        $($out.push(format!(
            "_Static_assert(offsetof({0}, {1}) == {2}, \"{0}.{1}\");",
            $theirs, $name, offset_of!($ours, $field)
        ));)*
    };
}

fn structures() -> Vec<String> {
    let mut all = Vec::new();
    same!(all: Provider is "struct fi_provider", fi_version is "fi_version", name is "name",
        getinfo is "getinfo", fabric is "fabric", cleanup is "cleanup");
    same!(all: Info is "struct fi_info", caps is "caps", addr_format is "addr_format", src_addr is "src_addr",
        handle is "handle", tx_attr is "tx_attr", fabric_attr is "fabric_attr", nic is "nic");
    same!(all: TxAttr is "struct fi_tx_attr", inject_size is "inject_size", tclass is "tclass");
    same!(all: RxAttr is "struct fi_rx_attr", total_buffered_recv is "total_buffered_recv", iov_limit is "iov_limit");
    same!(all: EpAttr is "struct fi_ep_attr", max_msg_size is "max_msg_size", auth_key is "auth_key");
    same!(all: begin of DomainAttr is "struct fi_domain_attr", threading is "threading", mr_mode is "mr_mode",
        cq_data_size is "cq_data_size", mr_iov_limit is "mr_iov_limit", tclass is "tclass");
    same!(all: FabricAttr is "struct fi_fabric_attr", api_version is "api_version");
    same!(all: Fid is "struct fid", ops is "ops");
    same!(all: begin of Ops is "struct fi_ops", close is "close", ops_open is "ops_open");
    same!(all: FidFabric is "struct fid_fabric", ops is "ops", api_version is "api_version");
    same!(all: begin of OpsFabric is "struct fi_ops_fabric", trywait is "trywait", domain2 is "domain2");
    same!(all: FidDomain is "struct fid_domain", ops is "ops", mr is "mr");
    same!(all: begin of OpsDomain is "struct fi_ops_domain", av_open is "av_open", endpoint2 is "endpoint2");
    same!(all: begin of OpsMr is "struct fi_ops_mr", regattr is "regattr");
    same!(all: FidMr is "struct fid_mr", mem_desc is "mem_desc", key is "key");
    same!(all: begin of MrAttr is "struct fi_mr_attr", access is "access", requested_key is "requested_key",
        iface is "iface", device is "device");
    same!(all: AvAttr is "struct fi_av_attr", name is "name", flags is "flags");
    same!(all: begin of OpsAv is "struct fi_ops_av", insert is "insert", straddr is "straddr", av_set is "av_set");
    same!(all: EqAttr is "struct fi_eq_attr", wait_obj is "wait_obj");
    same!(all: EqEntry is "struct fi_eq_entry", data is "data");
    same!(all: EqErrEntry is "struct fi_eq_err_entry", err is "err", err_data_size is "err_data_size");
    same!(all: OpsEq is "struct fi_ops_eq", strerror is "strerror");
    same!(all: CqAttr is "struct fi_cq_attr", format is "format", wait_set is "wait_set");
    same!(all: CqEntry is "struct fi_cq_tagged_entry", buf is "buf", tag is "tag");
    same!(all: begin of CqErrEntry is "struct fi_cq_err_entry", olen is "olen", err is "err",
        err_data_size is "err_data_size");
    same!(all: begin of OpsCq is "struct fi_ops_cq", signal is "signal", strerror is "strerror");
    same!(all: begin of CntrAttr is "struct fi_cntr_attr", wait_obj is "wait_obj", flags is "flags");
    same!(all: begin of OpsCntr is "struct fi_ops_cntr", wait is "wait", seterr is "seterr");
    same!(all: FidEp is "struct fid_ep", cm is "cm", atomic is "atomic", collective is "collective");
    same!(all: begin of OpsEp is "struct fi_ops_ep", setopt is "setopt", tx_size_left is "tx_size_left");
    same!(all: OpsCm is "struct fi_ops_cm", getname is "getname", join is "join");
    same!(all: Msg is "struct fi_msg", addr is "addr", data is "data");
    same!(all: MsgTagged is "struct fi_msg_tagged", tag is "tag", context is "context", data is "data");
    same!(all: RmaIov is "struct fi_rma_iov", key is "key");
    same!(all: MsgRma is "struct fi_msg_rma", rma_iov is "rma_iov", data is "data");
    same!(all: OpsMsg is "struct fi_ops_msg", sendmsg is "sendmsg", injectdata is "injectdata");
    same!(all: OpsTagged is "struct fi_ops_tagged", sendmsg is "sendmsg", injectdata is "injectdata");
    same!(all: OpsRma is "struct fi_ops_rma", writemsg is "writemsg", injectdata is "injectdata");
    same!(all: AtomicAttr is "struct fi_atomic_attr", size is "size");
    same!(all: Ioc is "struct fi_ioc", count is "count");
    same!(all: RmaIoc is "struct fi_rma_ioc", key is "key");
    same!(all: MsgAtomic is "struct fi_msg_atomic", datatype is "datatype", data is "data");
    same!(all: OpsAtomic is "struct fi_ops_atomic", readwrite is "readwrite", compwritemsg is "compwritemsg",
        compwritevalid is "compwritevalid");
    all
}

fn numbers() -> Vec<String> {
    let flags = [
        ("FI_MSG", MSG),
        ("FI_TAGGED", TAGGED),
        ("FI_RMA", RMA),
        ("FI_ATOMIC", ATOMIC),
        ("FI_READ", READ),
        ("FI_WRITE", WRITE),
        ("FI_RECV", RECV),
        ("FI_SEND", SEND),
        ("FI_REMOTE_READ", REMOTE_READ),
        ("FI_REMOTE_WRITE", REMOTE_WRITE),
        ("FI_MULTI_RECV", MULTI_RECV),
        ("FI_REMOTE_CQ_DATA", REMOTE_CQ_DATA),
        ("FI_MORE", MORE),
        ("FI_PEEK", PEEK),
        ("FI_COMPLETION", COMPLETION),
        ("FI_INJECT", INJECT),
        ("FI_INJECT_COMPLETE", INJECT_COMPLETE),
        ("FI_TRANSMIT_COMPLETE", TRANSMIT_COMPLETE),
        ("FI_DELIVERY_COMPLETE", DELIVERY_COMPLETE),
        ("FI_MATCH_COMPLETE", MATCH_COMPLETE),
        ("FI_LOCAL_COMM", LOCAL_COMM),
        ("FI_REMOTE_COMM", REMOTE_COMM),
        ("FI_SOURCE", SOURCE),
        ("FI_DIRECTED_RECV", DIRECTED_RECV),
        ("FI_CLAIM", CLAIM),
        ("FI_DISCARD", DISCARD),
        ("FI_SELECTIVE_COMPLETION", SELECTIVE_COMPLETION),
        ("FI_SYNC_ERR", SYNC_ERR),
        ("FI_FETCH_ATOMIC", FETCH_ATOMIC),
        ("FI_COMPARE_ATOMIC", COMPARE_ATOMIC),
        ("FI_ORDER_SAS", ORDER_SAS),
    ];
    let numbers = [
        ("FI_AV_TABLE", i64::from(AV_TABLE)),
        ("FI_PROGRESS_MANUAL", PROGRESS_MANUAL.into()),
        ("FI_THREAD_DOMAIN", THREAD_DOMAIN.into()),
        ("FI_THREAD_ENDPOINT", THREAD_ENDPOINT.into()),
        ("FI_RM_ENABLED", RM_ENABLED.into()),
        ("FI_EP_RDM", EP_RDM.into()),
        ("FI_WAIT_FD", WAIT_FD.into()),
        ("FI_WAIT_YIELD", WAIT_YIELD.into()),
        ("FI_CQ_FORMAT_TAGGED", CQ_TAGGED.into()),
        ("FI_GETWAIT", GETWAIT.into()),
        ("FI_ENABLE", ENABLE.into()),
        ("FI_GETWAITOBJ", GETWAITOBJ.into()),
        ("FI_GETOPSFLAG", GETOPSFLAG.into()),
        ("FI_CLASS_EP", CLASS_EP as i64),
        ("FI_CLASS_AV", CLASS_AV as i64),
        ("FI_CLASS_CQ", CLASS_CQ as i64),
        ("FI_CLASS_EQ", CLASS_EQ as i64),
        ("FI_CLASS_MR", CLASS_MR as i64),
        ("FI_CLASS_CNTR", CLASS_CNTR as i64),
        ("FI_CLASS_DOMAIN", CLASS_DOMAIN as i64),
        ("FI_AV_COMPLETE", AV_COMPLETE.into()),
        ("FI_MR_VIRT_ADDR", MR_VIRT_ADDR.into()),
        ("FI_MR_PROV_KEY", MR_PROV_KEY.into()),
        ("FI_EAVAIL", EAVAIL.into()),
        ("FI_ETRUNC", ETRUNC.into()),
        ("FI_ENOKEY", ENOKEY.into()),
        ("FI_ENOCQ", ENOCQ.into()),
        ("FI_ENOAV", ENOAV.into()),
        ("FI_ETOOSMALL", ETOOSMALL.into()),
        ("FI_EOPBADSTATE", EOPBADSTATE.into()),
        ("FI_EDOMAIN", EDOMAIN.into()),
        ("FI_EBADFLAGS", EBADFLAGS.into()),
        ("FI_OPT_FI_HMEM_P2P", OPT_FI_HMEM_P2P.into()),
    ];
    let flags =
        flags.map(|(name, ours)| format!("_Static_assert({name} == {ours}ULL, \"{name}\");"));
    let numbers =
        numbers.map(|(name, ours)| format!("_Static_assert({name} == {ours}, \"{name}\");"));
    flags.into_iter().chain(numbers).collect()
}

#[test]
fn structures_and_numbers_are_those_of_the_headers() {
    if !std::path::Path::new("/usr/include/rdma/fabric.h").exists() {
        return covey_harness::skip("needs gcc and libfabric-dev");
    }
    let headers = [
        "fabric",
        "fi_atomic",
        "fi_cm",
        "fi_domain",
        "fi_endpoint",
        "fi_eq",
        "fi_rma",
        "fi_tagged",
    ];
    let headers = headers.map(|name| format!("#include <rdma/{name}.h>")).into_iter();
    let prov = ["#include <rdma/providers/fi_prov.h>".to_owned(), "#include <stddef.h>".to_owned()];
    let text: Vec<String> = headers.chain(prov).chain(structures()).chain(numbers()).collect();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("same.c");
    std::fs::write(&file, text.join("\n") + "\n").expect("it is ours");
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-fsyntax-only"]).arg(&file);
    if let Some(include) = std::env::var_os("COVEY_FI_HEADERS") {
        gcc.arg("-I").arg(include);
    }
    let done = gcc.output().expect("gcc runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
