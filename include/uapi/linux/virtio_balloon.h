/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Virtio traditional memory balloon device: what driver and device share.
 * Virtio specification, chapter "Traditional Memory Balloon Device".
 *
 * Device implementations import this header: names, values and layout are
 * fixed. The BSD licence lets anyone do so.
 */
#ifndef _LINUX_VIRTIO_BALLOON_H
#define _LINUX_VIRTIO_BALLOON_H

#include <linux/types.h>
#include <linux/virtio_types.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_config.h>

/* Feature bits */
#define VIRTIO_BALLOON_F_MUST_TELL_HOST	0 /* no use of a page before the ack */
#define VIRTIO_BALLOON_F_STATS_VQ	1 /* statistics queue */
#define VIRTIO_BALLOON_F_DEFLATE_ON_OOM	2 /* driver may deflate by itself */
#define VIRTIO_BALLOON_F_FREE_PAGE_HINT	3 /* free page hinting queue */
#define VIRTIO_BALLOON_F_PAGE_POISON	4 /* poison_val is valid */
#define VIRTIO_BALLOON_F_REPORTING	5 /* free page reporting queue */

/* A balloon page is 4 KiB, whatever the page size of the guest. */
#define VIRTIO_BALLOON_PFN_SHIFT 12

/* Command ids of free page hinting that are not the id of a request */
#define VIRTIO_BALLOON_CMD_ID_STOP	0 /* stop sending hints */
#define VIRTIO_BALLOON_CMD_ID_DONE	1 /* hinted pages may be used again */

/* Little endian on legacy devices, too. */
struct virtio_balloon_config {
	/* Balloon pages that the host wants (device writes) */
	__le32 num_pages;
	/* Balloon pages that the host has (driver writes) */
	__le32 actual;
	/* Request of free page hinting (device writes), F_FREE_PAGE_HINT */
	union {
		__le32 free_page_hint_cmd_id;
		/* The first name of the field, kept for old users */
		__le32 free_page_report_cmd_id;
	};
	/* What free pages are filled with (driver writes), F_PAGE_POISON */
	__le32 poison_val;
};

/*
 * Tags of struct virtio_balloon_stat. Amounts of memory are in bytes, the
 * others are counts since boot unless noted.
 */
#define VIRTIO_BALLOON_S_SWAP_IN  0   /* swapped in */
#define VIRTIO_BALLOON_S_SWAP_OUT 1   /* swapped out */
#define VIRTIO_BALLOON_S_MAJFLT   2   /* major faults, count */
#define VIRTIO_BALLOON_S_MINFLT   3   /* minor faults, count */
#define VIRTIO_BALLOON_S_MEMFREE  4   /* free now */
#define VIRTIO_BALLOON_S_MEMTOT   5   /* total now */
#define VIRTIO_BALLOON_S_AVAIL    6   /* available now without swapping */
#define VIRTIO_BALLOON_S_CACHES   7   /* disk caches now */
#define VIRTIO_BALLOON_S_HTLB_PGALLOC  8  /* huge page allocations, count */
#define VIRTIO_BALLOON_S_HTLB_PGFAIL   9  /* failed ones, count */
#define VIRTIO_BALLOON_S_OOM_KILL      10 /* OOM kills, count */
#define VIRTIO_BALLOON_S_ALLOC_STALL   11 /* direct reclaims, count */
#define VIRTIO_BALLOON_S_ASYNC_SCAN    12 /* scanned by kswapd */
#define VIRTIO_BALLOON_S_DIRECT_SCAN   13 /* scanned by direct reclaim */
#define VIRTIO_BALLOON_S_ASYNC_RECLAIM 14 /* reclaimed by kswapd */
#define VIRTIO_BALLOON_S_DIRECT_RECLAIM 15 /* reclaimed by direct reclaim */
#define VIRTIO_BALLOON_S_NR       16

/* Names for people, in the order of the tags */
#define VIRTIO_BALLOON_S_NAMES_WITH_PREFIX(prefix) { \
	prefix "swap-in", \
	prefix "swap-out", \
	prefix "major-faults", \
	prefix "minor-faults", \
	prefix "free-memory", \
	prefix "total-memory", \
	prefix "available-memory", \
	prefix "disk-caches", \
	prefix "hugetlb-allocations", \
	prefix "hugetlb-failures", \
	prefix "oom-kills", \
	prefix "alloc-stalls", \
	prefix "async-scans", \
	prefix "direct-scans", \
	prefix "async-reclaims", \
	prefix "direct-reclaims" \
}

#define VIRTIO_BALLOON_S_NAMES VIRTIO_BALLOON_S_NAMES_WITH_PREFIX("")

/*
 * One statistic, 10 bytes without padding: the device takes a buffer of them
 * back to back.
 */
struct virtio_balloon_stat {
	__virtio16 tag;
	__virtio64 val;
} __attribute__((packed));

#endif /* _LINUX_VIRTIO_BALLOON_H */
