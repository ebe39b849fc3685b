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
CHANGE(events, i->caps = FI_MSG | FI_RMA | FI_RMA_EVENT)
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

CHANGE(prefix, i->ep_attr->msg_prefix_size = 64)
CHANGE(ordered_raw, i->ep_attr->max_order_raw_size = 1 << 30)
CHANGE(ordered_war, i->ep_attr->max_order_war_size = 1 << 30)
CHANGE(ordered_waw, i->ep_attr->max_order_waw_size = 1 << 30)
CHANGE(receive_contexts, i->ep_attr->rx_ctx_cnt = 2)
CHANGE(shared_send_context, i->ep_attr->tx_ctx_cnt = FI_SHARED_CONTEXT)
CHANGE(remote_pieces, i->tx_attr->rma_iov_limit = 2)
CHANGE(fenced, i->tx_attr->op_flags = FI_FENCE)
CHANGE(receives_everything, i->caps = FI_TAGGED; i->rx_attr->caps = FI_TAGGED | FI_RMA)
CHANGE(receive_strict, i->rx_attr->msg_order = FI_ORDER_STRICT)
CHANGE(receive_in_order, i->rx_attr->comp_order = FI_ORDER_DATA)
CHANGE(receive_flags, i->rx_attr->op_flags = FI_INJECT)
CHANGE(receives, i->rx_attr->size = 1 << 30)
CHANGE(threading, i->domain_attr->threading = 77)
CHANGE(control_progress, i->domain_attr->control_progress = 77)
CHANGE(data_progress, i->domain_attr->data_progress = 77)
CHANGE(resources, i->domain_attr->resource_mgmt = 77)
CHANGE(vectors, i->domain_attr->av_type = 77)
CHANGE(queues, i->domain_attr->cq_cnt = 1 << 30)
CHANGE(endpoints, i->domain_attr->ep_cnt = 1 << 30)
CHANGE(domain_sends, i->domain_attr->tx_ctx_cnt = 1 << 30)
CHANGE(domain_receives, i->domain_attr->rx_ctx_cnt = 1 << 30)
CHANGE(sends_each, i->domain_attr->max_ep_tx_ctx = 2)
CHANGE(receives_each, i->domain_attr->max_ep_rx_ctx = 2)
CHANGE(shared_sends, i->domain_attr->max_ep_stx_ctx = 1)
CHANGE(shared_receives, i->domain_attr->max_ep_srx_ctx = 1)
CHANGE(counters, i->domain_attr->cntr_cnt = 1 << 30)
CHANGE(registered_pieces, i->domain_attr->mr_iov_limit = 2)
CHANGE(domain_caps, i->domain_attr->caps = FI_SHARED_AV)
CHANGE(error_data, i->domain_attr->max_err_data = 64)
CHANGE(registrations, i->domain_attr->mr_cnt = 1 << 30)
CHANGE(short_source, i->src_addr = calloc(1, 16); i->src_addrlen = 16)
CHANGE(short_destination, i->dest_addr = calloc(1, 16); i->dest_addrlen = 16)
CHANGE(passive, i->ep_attr->type = FI_EP_SOCK_STREAM)

static const struct {
    const char *name;
    void (*change)(struct fi_info *);
} met[] = {
#define MET(name) {#name, name}
    MET(nothing), MET(tagged), MET(both),  MET(manual),             MET(automatic),
    MET(safe),    MET(ordered), MET(named), MET(keys_and_addresses), MET(events),
}, refused[] = {
#define REFUSED(name) {#name, name}
    REFUSED(multicast), REFUSED(collective), REFUSED(device_memory), REFUSED(triggers),
    REFUSED(named_contexts), REFUSED(more_than_all), REFUSED(connected), REFUSED(datagrams),
    REFUSED(protocol), REFUSED(longest), REFUSED(contexts), REFUSED(auth), REFUSED(strict),
    REFUSED(in_order), REFUSED(injected), REFUSED(pieces), REFUSED(committed), REFUSED(many),
    REFUSED(ahead), REFUSED(other_name), REFUSED(other_fabric), REFUSED(long_keys),
    REFUSED(wide_data), REFUSED(domain_auth), REFUSED(sockets), REFUSED(shared_context),
    REFUSED(prefix), REFUSED(ordered_raw), REFUSED(ordered_war), REFUSED(ordered_waw),
    REFUSED(receive_contexts), REFUSED(shared_send_context), REFUSED(remote_pieces), REFUSED(fenced),
    REFUSED(receives_everything), REFUSED(receive_strict), REFUSED(receive_in_order),
    REFUSED(receive_flags), REFUSED(receives), REFUSED(threading), REFUSED(control_progress),
    REFUSED(data_progress), REFUSED(resources), REFUSED(vectors), REFUSED(queues), REFUSED(endpoints),
    REFUSED(domain_sends), REFUSED(domain_receives), REFUSED(sends_each), REFUSED(receives_each),
    REFUSED(shared_sends), REFUSED(shared_receives), REFUSED(counters), REFUSED(registered_pieces),
    REFUSED(domain_caps), REFUSED(error_data), REFUSED(registrations), REFUSED(short_source),
    REFUSED(short_destination), REFUSED(passive),
};

static uint64_t found_caps(void (*change)(struct fi_info *)) {
    struct fi_info *wish = hints(), *found;
    if (change) change(wish);
    IS(fi_getinfo(FI_VERSION(1, 17), NULL, NULL, 0, wish, &found), 0);
    uint64_t caps = found->caps;
    fi_freeinfo(wish);
    fi_freeinfo(found);
    return caps;
}

int main(void) {
    for (size_t at = 0; at < count_of(met); at++) {
        int result = with(met[at].change);
        if (result) fprintf(stderr, "wish %s: %d\n", met[at].name, result);
        CHECK(!result);
    }
    for (size_t at = 0; at < count_of(refused); at++) {
        int result = with(refused[at].change);
        if (result != -FI_ENODATA) fprintf(stderr, "wish %s: %d\n", refused[at].name, result);
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
    /* What has its price is given to those only that ask for it. */
    CHECK(!(found_caps(NULL) & FI_RMA_EVENT));
    CHECK(found_caps(events) & FI_RMA_EVENT);
    IS(fi_getinfo(FI_VERSION(1, 0), NULL, NULL, 0, wish, &found), 0);
    IS(found->domain_attr->mr_mode, FI_MR_SCALABLE);
    fi_freeinfo(found);
    fi_freeinfo(wish);
    puts("right");
    return 0;
}
