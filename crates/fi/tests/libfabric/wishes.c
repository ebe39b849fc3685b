/* What is asked of fi_getinfo, and refused there. */
#include "fabric.h"

static int with(void (*change)(struct fi_info *)) {
    struct fi_info *wish = hints(), *found = NULL;
    change(wish);
    int result = fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, wish, &found);
    fi_freeinfo(wish);
    if (!result) {
        CHECK(!strcmp(found->fabric_attr->prov_name, "covey"));
        fi_freeinfo(found);
    }
    return result;
}

#define CHANGE(name, what)                                                                                             \
    static void name(struct fi_info *i) { what; }

CHANGE(nothing, (void)i)
CHANGE(tagged, i->caps = FI_TAGGED)
CHANGE(both, i->caps = FI_TAGGED | FI_MSG | FI_DIRECTED_RECV | FI_LOCAL_COMM | FI_REMOTE_COMM | FI_SOURCE)
CHANGE(manual, i->domain_attr->data_progress = FI_PROGRESS_MANUAL)
CHANGE(automatic, i->domain_attr->data_progress = FI_PROGRESS_AUTO)
CHANGE(safe, i->domain_attr->threading = FI_THREAD_SAFE)
CHANGE(ordered, i->tx_attr->msg_order = i->rx_attr->msg_order = FI_ORDER_SAS)
CHANGE(named, i->domain_attr->name = strdup("covey"))
CHANGE(keys_and_addresses, i->domain_attr->mr_mode = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY)

CHANGE(multicast, i->caps = FI_MULTICAST)
CHANGE(collective, i->caps = FI_COLLECTIVE)
CHANGE(device_memory, i->caps = FI_TAGGED | FI_HMEM)
CHANGE(triggers, i->caps = FI_TAGGED | FI_TRIGGER)
CHANGE(named_contexts, i->caps = FI_TAGGED | FI_NAMED_RX_CTX)
CHANGE(more_than_all, i->caps = FI_TAGGED; i->tx_attr->caps = FI_TAGGED | FI_MSG)
CHANGE(connected, i->ep_attr->type = FI_EP_MSG)
CHANGE(datagrams, i->ep_attr->type = FI_EP_DGRAM)
CHANGE(protocol, i->ep_attr->protocol = FI_PROTO_RXM)
CHANGE(longest, i->ep_attr->max_msg_size = (size_t)1 << 50)
CHANGE(contexts, i->ep_attr->tx_ctx_cnt = 2)
CHANGE(shared_context, i->ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT)
CHANGE(auth, i->ep_attr->auth_key_size = 4)
CHANGE(strict, i->tx_attr->msg_order = FI_ORDER_STRICT)
CHANGE(in_order, i->tx_attr->comp_order = FI_ORDER_STRICT)
CHANGE(injected, i->tx_attr->inject_size = 1 << 20)
CHANGE(pieces, i->tx_attr->iov_limit = 100)
CHANGE(committed, i->tx_attr->op_flags = FI_COMMIT_COMPLETE)
CHANGE(many, i->tx_attr->size = 1 << 30)
CHANGE(ahead, i->rx_attr->iov_limit = 100)
CHANGE(other_name, i->domain_attr->name = strdup("eth0"))
CHANGE(other_fabric, i->fabric_attr->name = strdup("192.0.2.0"))
CHANGE(long_keys, i->domain_attr->mr_key_size = 64)
CHANGE(wide_data, i->domain_attr->cq_data_size = 64)
CHANGE(domain_auth, i->domain_attr->auth_key_size = 8)
CHANGE(sockets, i->addr_format = FI_SOCKADDR_IN)

static void (*const met[])(struct fi_info *) = {
    nothing, tagged, both, manual, automatic, safe, ordered, named, keys_and_addresses,
};

static void (*const refused[])(struct fi_info *) = {
    multicast,    collective,  device_memory,  triggers, named_contexts, more_than_all, connected, datagrams,
    protocol,     longest,     contexts,       auth,     strict,         in_order,      injected,  pieces,
    committed,    many,        ahead,          other_name, other_fabric, long_keys,     wide_data, domain_auth,
    sockets,      shared_context,
};

int main(void) {
    for (size_t at = 0; at < count_of(met); at++) IS(with(met[at]), 0);
    for (size_t at = 0; at < count_of(refused); at++) {
        int result = with(refused[at]);
        if (result != -FI_ENODATA) fprintf(stderr, "wish %zu: %d\n", at, result);
        CHECK(result == -FI_ENODATA);
    }
    struct fi_info *wish = hints(), *found;
    wish->domain_attr->threading = FI_THREAD_DOMAIN;
    wish->domain_attr->control_progress = wish->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    IS(fi_getinfo(FI_VERSION(1, 5), NULL, NULL, 0, wish, &found), 0);
    IS(found->domain_attr->threading, FI_THREAD_DOMAIN);
    IS(found->domain_attr->data_progress, FI_PROGRESS_MANUAL);
    IS(found->mode, 0);
    CHECK(found->caps & FI_REMOTE_COMM && found->caps & FI_LOCAL_COMM && found->caps & FI_TAGGED);
    /* Where peers may be is the domain's; an endpoint's address is there whether it was asked for or not. */
    CHECK(!((found->tx_attr->caps | found->rx_attr->caps) & (FI_REMOTE_COMM | FI_LOCAL_COMM)));
    CHECK(found->src_addr && found->src_addrlen);
    fi_freeinfo(found);
    IS(fi_getinfo(FI_VERSION(1, 0), NULL, NULL, 0, wish, &found), 0);
    IS(found->domain_attr->mr_mode, FI_MR_SCALABLE);
    fi_freeinfo(found);
    fi_freeinfo(wish);
    puts("right");
    return 0;
}
