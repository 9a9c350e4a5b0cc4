// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Virtio traditional memory balloon: guest driver.
 *
 * The host names a number of pages that it would like to have; the driver
 * takes them from the page allocator and tells the host which they are. What
 * the device expects is in the virtio specification, chapter "Traditional
 * Memory Balloon Device"; the remarks "spec:" below refer to it.
 *
 * The device counts balloon pages of 4 KiB, Linux counts pages of PAGE_SIZE.
 * Here names that end in _bp count balloon pages and names that end in _pages
 * count guest pages.
 */

#include <linux/atomic.h>
#include <linux/balloon_compaction.h>
#include <linux/bits.h>
#include <linux/cleanup.h>
#include <linux/crash_dump.h>
#include <linux/delay.h>
#include <linux/jiffies.h>
#include <linux/ktime.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/oom.h>
#include <linux/page_reporting.h>
#include <linux/pm_wakeup.h>
#include <linux/scatterlist.h>
#include <linux/shrinker.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/swap.h>
#include <linux/virtio.h>
#include <linux/virtio_balloon.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ring.h>
#include <linux/vmstat.h>
#include <linux/wait.h>
#include <linux/workqueue.h>

/*
 * Terms
 *
 * target	what the host asks for (num_pages of the config space)
 * size		what the balloon holds: pages that the host has acknowledged
 * slot		one buffer of page frame numbers and its fate
 * ring		the slots of the inflate queue, or those of the deflate queue
 * settle	what is left to do for a slot once the device has used its buffer
 * gone		the device has been reset: it owns nothing and is told nothing
 *
 * A page on its way in belongs to its slot, not to the balloon, until the
 * device has used the buffer: no one may touch it, deflate it or move it
 * before. A page on its way out is free at once, unless the device insists on
 * being told first (MUST_TELL_HOST); then it, too, belongs to its slot.
 *
 * Locks, outermost first
 *
 * @lock	mutex: size, rings, target bookkeeping, `gone'. Taken by
 *		the works, by the OOM notifier and, tried only, by page
 *		migration. Never held while memory is allocated or while the
 *		host is waited for.
 * page lock, pages_lock	see balloon_compaction.h
 * @hint_lock	spinlock: blocks lent to the host, shared with the shrinker
 * @event_lock	irq-safe spinlock, a leaf: what callbacks of the device
 *		share with the rest
 */

/* Guest pages are a power of two of balloon pages, at least one. */
#define VIRTBALLOON_BP_SHIFT	(PAGE_SHIFT - VIRTIO_BALLOON_PFN_SHIFT)
#define VIRTBALLOON_BP_PER_PAGE	BIT(VIRTBALLOON_BP_SHIFT)

/* The longest buffer that every device takes (Firecracker drops others). */
#define VIRTBALLOON_SLOT_BP	256U
#define VIRTBALLOON_SLOT_PAGES	(VIRTBALLOON_SLOT_BP >> VIRTBALLOON_BP_SHIFT)

/*
 * Buffers in flight per ring. Devices work off a whole queue per kick in their
 * main thread, so that more would make their other duties wait.
 */
#define VIRTBALLOON_RING_SLOTS	16U

/* How long the worker waits for the device before it goes to sleep over it. */
#define VIRTBALLOON_ACK_MS	5000
/* The same for the OOM notifier, which others wait for. */
#define VIRTBALLOON_OOM_ACK_MS	500
/* When to give up on a device that does not answer a free page report. */
#define VIRTBALLOON_REPORT_MS	(300 * MSEC_PER_SEC)
/* How long removal and suspend wait for a device that makes no progress. */
#define VIRTBALLOON_STOP_MS	2000
/* How long pages that migration exchanged wait to be settled by the worker */
#define VIRTBALLOON_TIDY_MS	20
/* Nothing wakes a waiter when a queue breaks, so look now and then. */
#define VIRTBALLOON_POLL_MS	100

/* Back-off of the worker while the target cannot be reached */
#define VIRTBALLOON_RETRY_MIN_MS	200U
#define VIRTBALLOON_RETRY_MAX_MS	10000U
/* ... and from which sleep on that is worth a line in the log */
#define VIRTBALLOON_RETRY_NOTE_MS	800U

/* Rescue: what the releases of one episode amount to, and what follows */
#define VIRTBALLOON_RESCUE_MIN_BYTES	SZ_4M
#define VIRTBALLOON_RESCUE_DOUBLINGS	3U
#define VIRTBALLOON_RESCUE_MAX_BYTES	(VIRTBALLOON_RESCUE_MIN_BYTES << \
					 VIRTBALLOON_RESCUE_DOUBLINGS)
#define VIRTBALLOON_RESCUE_AHEAD_BYTES	SZ_16M
#define VIRTBALLOON_RESCUE_SHARE	5
/* The part of a release that is still there when more is released */
#define VIRTBALLOON_RESCUE_LEFT		4
#define VIRTBALLOON_OOM_PRIORITY	80
#define VIRTBALLOON_HOLD_MIN_MS		5000U
#define VIRTBALLOON_HOLD_MAX_MS		60000U
/* How long what is mapped is not given away after a rescue */
#define VIRTBALLOON_WARY_MS		(600 * MSEC_PER_SEC)
/* The way back to the target after a rescue: in so many steps, one a look */
#define VIRTBALLOON_RETURN_STEPS	32

/* How often to look: after a release, when there are major faults, else */
#define VIRTBALLOON_FOLLOW_MS		10U
#define VIRTBALLOON_WATCH_MS		250U
#define VIRTBALLOON_QUIET_MS		1000U
/* For how long after a release */
#define VIRTBALLOON_FOLLOW_FOR_MS	200U
/* What is thrashing: major faults that are refaults */
#define VIRTBALLOON_THRASH_PER_S	24U

/* Memory that inflation and hinting leave available to the guest */
#define VIRTBALLOON_RESERVE_MIN_BYTES	SZ_4M
#define VIRTBALLOON_RESERVE_MAX_BYTES	SZ_64M
#define VIRTBALLOON_RESERVE_SHARE	32

/* Blocks of free page hinting: their order, those in flight, their stay */
#define VIRTBALLOON_HINT_ORDER		MAX_PAGE_ORDER
#define VIRTBALLOON_HINT_PAGES		BIT(VIRTBALLOON_HINT_ORDER)
#define VIRTBALLOON_HINT_DEPTH		16U
#define VIRTBALLOON_HINT_HOLD_MS	(120 * MSEC_PER_SEC)
/* Only what is free: hinting must not cause any reclaim. */
#define VIRTBALLOON_HINT_GFP		(__GFP_HIGHMEM | __GFP_NOMEMALLOC | \
					 __GFP_NORETRY | __GFP_NOWARN)

/* Smallest block that is worth a report, on any page size */
#define VIRTBALLOON_REPORT_ORDER	(ilog2(SZ_2M) - PAGE_SHIFT)

/* What becomes of the pages of a slot when the device has used its buffer */
enum virtballoon_fate {
	VIRTBALLOON_FREE_SLOT,	/* no buffer */
	VIRTBALLOON_ENTER,	/* inflate: pages enter the balloon */
	VIRTBALLOON_REPLACE,	/* inflate: a page enters for another one */
	VIRTBALLOON_LEAVE,	/* deflate: pages go to the page allocator */
	VIRTBALLOON_REPLACED,	/* deflate: the other one goes there */
	VIRTBALLOON_TOLD,	/* deflate: nothing is left to do */
};

/**
 * struct virtballoon_slot - one buffer
 * @fate: see there
 * @used: the device has returned the buffer, but it is not settled yet
 * @nr_bp: entries of @pfns that count
 * @pfns: the buffer; also the only record of the pages that the slot owns
 */
struct virtballoon_slot {
	enum virtballoon_fate fate;
	bool used;
	unsigned int nr_bp;
	__virtio32 pfns[VIRTBALLOON_SLOT_BP];
};

/**
 * struct virtballoon_ring - the slots of one queue
 * @vq: the queue; valid unless the device is gone
 * @nr_slots: slots that may be used, bounded by the queue's size
 * @nr_busy: slots with a buffer
 * @owned_pages: guest pages that the busy slots own and that are on the way
 *	into the balloon (inflate) or out of it (deflate)
 * @slots: VIRTBALLOON_RING_SLOTS of them
 */
struct virtballoon_ring {
	struct virtqueue *vq;
	unsigned int nr_slots;
	unsigned int nr_busy;
	unsigned long owned_pages;
	struct virtballoon_slot *slots;
};

/* Reasons to keep the system awake, bits of virtballoon.awake */
enum virtballoon_awake {
	VIRTBALLOON_AWAKE_SIZE,
	VIRTBALLOON_AWAKE_STATS,
};

/**
 * struct virtballoon_relief - rescues, in the eyes of the policy
 * @nr_releases: releases of the present or last episode, 0 if there was none
 * @released_pages: what they amount to
 * @last_pages: the last one
 * @limit_pages: memory in use when all that was released is
 * @last_ms: time of the last release
 * @hold_ms: how long inflation holds off after it
 */
struct virtballoon_relief {
	unsigned int nr_releases;
	unsigned long released_pages;
	unsigned long last_pages;
	unsigned long limit_pages;
	u64 last_ms;
	unsigned int hold_ms;
};

/**
 * struct virtballoon_watch - what tells thrashing
 * @last_ms: time of the last look, 0 if there was none
 * @majfaults: major faults since boot, at that time
 * @refaults: pages read back after their eviction since boot, at that time
 * @has_majfaults: there were any before the last look
 * @level: faults that were both, those of the last second counting most
 * @low_free_pages: the least memory that was free in this episode of releases,
 *	or when the last look before it was taken
 */
struct virtballoon_watch {
	u64 last_ms;
	unsigned long majfaults;
	unsigned long refaults;
	bool has_majfaults;
	unsigned long level;
	unsigned long low_free_pages;
};

struct virtballoon {
	struct virtio_device *vdev;
	struct workqueue_struct *wq;
	/* What was negotiated. Constant after probe. */
	bool must_tell;
	bool deflate_on_oom;

	/* The balloon and the way into and out of it. Protected by @lock. */
	struct mutex lock;
	struct balloon_dev_info pages;
	struct virtballoon_ring inflate;
	struct virtballoon_ring deflate;
	unsigned long size_pages;
	/* All pages that ever left; tells a waiter what its wait brought. */
	unsigned long freed_pages;
	/* What the device last read or wrote as `actual', in balloon pages */
	u32 actual_bp;
	/* Written under @lock, read anywhere by waits */
	bool gone;
	/* The queues exist. Only start and stop look at it. */
	bool have_vqs;
	struct virtballoon_relief relief;
	struct notifier_block oom_nb;

	/* Worker that moves the size to the target; its fields are its own. */
	struct delayed_work size_work;
	unsigned int retry_ms;
	unsigned int nr_changes_seen;	/* nr_changes before the last look */
	u64 short_target_bp;	/* target that was reported as out of reach */
	bool is_short;
	bool is_stalled;

	/* Looks for a guest in need, ahead of OOM; all of it the work's own. */
	struct delayed_work watch_work;
	struct virtballoon_watch watch;
	unsigned long watch_events[NR_VM_EVENT_ITEMS];

	/* Shared with the callbacks. Protected by @event_lock. */
	spinlock_t event_lock;
	bool stopping;		/* also read without: once set, stays */
	bool hint_changed;
	unsigned int nr_changes;	/* of the config space, to compare */
	unsigned long awake;
	/* Bumped by every callback of a queue, so that waiters can look. */
	atomic_t acks;
	wait_queue_head_t acked;

	/* Statistics; the work's own, apart from start. */
	struct virtqueue *stats_vq;
	struct work_struct stats_work;
	unsigned long events[NR_VM_EVENT_ITEMS];
	struct virtio_balloon_stat stats[VIRTIO_BALLOON_S_NR];

	/* Free page hinting; the work's own but for the lists. */
	struct virtqueue *hint_vq;
	struct delayed_work hint_work;
	struct shrinker *shrinker;
	u32 hint_id;		/* of the request served last */
	__virtio32 hint_start;	/* the two buffers with command ids */
	__virtio32 hint_stop;
	unsigned int hint_busy;	/* buffers in flight */
	/* Protects the lists of blocks and their count */
	spinlock_t hint_lock;
	struct list_head hint_sent;	/* blocks in flight */
	struct list_head hint_held;	/* blocks that the host has seen */
	unsigned long hint_nr_held;

	/* Free page reporting */
	struct virtqueue *report_vq;
	struct page_reporting_dev_info reporting;
	bool reporting_on;
};

static bool thrash_rescue = true;
module_param(thrash_rescue, bool, 0644);
MODULE_PARM_DESC(thrash_rescue,
		 "with DEFLATE_ON_OOM: deflate when the guest re-reads from disk what it runs (default: on)");

static int reserve_mib = -1;
module_param(reserve_mib, int, 0644);
MODULE_PARM_DESC(reserve_mib,
		 "MiB of available memory that inflation leaves to the guest (default: -1, a 32nd of its memory, from 4 to 64)");

/* ------------------------------------------------------------------------
 * Policy: pure functions of plain numbers
 */

/* The only two conversions between balloon pages and guest pages */
static u64 virtballoon_bp_to_pages(u64 nr_bp)
{
	return (nr_bp + VIRTBALLOON_BP_PER_PAGE - 1) >> VIRTBALLOON_BP_SHIFT;
}

static u64 virtballoon_pages_to_bp(u64 nr_pages)
{
	return nr_pages << VIRTBALLOON_BP_SHIFT;
}

/**
 * virtballoon_calc_reserve() - memory that the balloon leaves alone
 * @total_pages: memory of the guest, the balloon included
 * @fixed_mib: what the administrator wants it to be, negative if nothing
 *
 * Available memory is already counted above the watermarks; this comes on top,
 * for whatever the guest does next: a 32nd of its memory, 4 MiB at least and
 * 64 MiB at most.
 *
 * Return: guest pages, never more than the guest has.
 */
static unsigned long virtballoon_calc_reserve(unsigned long total_pages,
					      int fixed_mib)
{
	if (fixed_mib >= 0)
		return min_t(u64, (u64)fixed_mib << (20 - PAGE_SHIFT),
			     total_pages);
	return clamp(total_pages / VIRTBALLOON_RESERVE_SHARE,
		     VIRTBALLOON_RESERVE_MIN_BYTES >> PAGE_SHIFT,
		     VIRTBALLOON_RESERVE_MAX_BYTES >> PAGE_SHIFT);
}

/**
 * virtballoon_calc_retry() - how long to sleep over a target out of reach
 * @last_ms: the previous sleep, 0 if there was progress since
 *
 * Return: milliseconds, doubled from sleep to sleep up to a bound.
 */
static unsigned int virtballoon_calc_retry(unsigned int last_ms)
{
	return clamp(2 * last_ms, VIRTBALLOON_RETRY_MIN_MS,
		     VIRTBALLOON_RETRY_MAX_MS);
}

/* What the worker does next */
enum virtballoon_action {
	VIRTBALLOON_REST,	/* at the target, or nothing may be done */
	VIRTBALLOON_INFLATE,
	VIRTBALLOON_DEFLATE,
	VIRTBALLOON_WAIT,	/* target out of reach for now */
};

struct virtballoon_step {
	enum virtballoon_action action;
	unsigned long nr_pages;
};

/**
 * struct virtballoon_view - what the plan depends on
 * @target_bp: the host's num_pages as read
 * @size_pages: the balloon with what is on its way in, without what is on its
 *	way out
 * @spare_pages: available memory above the reserve, negative if below
 * @room_pages: what the rings take in one go
 * @hold_ms: how long inflation still holds off after a rescue
 * @wary_pages: what more the guest keeps since a rescue, 0 if there was none
 * @kdump: this kernel only writes a dump
 */
struct virtballoon_view {
	u32 target_bp;
	unsigned long size_pages;
	long spare_pages;
	unsigned long room_pages;
	unsigned int hold_ms;
	unsigned long wary_pages;
	bool kdump;
};

/**
 * virtballoon_plan_size() - the next step towards the target
 * @view: the state of affairs
 *
 * The target is rounded up to guest pages; rounded down, a guest with pages
 * larger than the device's would give away and take back the difference for
 * ever.
 *
 * Return: the step. Inflation takes no more than what is spare, and does not
 * start for less than a buffer's worth unless that is all that is missing.
 * After a rescue the same goes for much more: what the rescue released in
 * excess shall not go back and forth.
 */
static struct virtballoon_step
virtballoon_plan_size(const struct virtballoon_view *view)
{
	u64 target_pages = virtballoon_bp_to_pages(view->target_bp);
	struct virtballoon_step step = { VIRTBALLOON_REST, 0 };
	u64 missing_pages, least_pages;

	if (target_pages < view->size_pages) {
		step.action = VIRTBALLOON_DEFLATE;
		step.nr_pages = min_t(u64, view->size_pages - target_pages,
				      view->room_pages);
		return step;
	}
	missing_pages = target_pages - view->size_pages;
	if (!missing_pages || view->kdump)
		return step;
	step.action = VIRTBALLOON_WAIT;
	least_pages = max_t(u64, view->wary_pages, VIRTBALLOON_SLOT_PAGES);
	if (view->hold_ms ||
	    view->spare_pages < (long)min(missing_pages, least_pages))
		return step;
	step.action = VIRTBALLOON_INFLATE;
	step.nr_pages = min3(missing_pages, (u64)view->spare_pages,
			     (u64)view->room_pages);
	return step;
}

/**
 * virtballoon_calc_pause() - how long to pause after a batch
 * @view: the state of affairs before it
 * @action: inflation or deflation
 * @done_pages: the batch
 *
 * On the way back to the target after a rescue, inflation takes a 32nd of what
 * is missing, or a full ring, between two looks at whether the guest thrashes.
 *
 * Return: milliseconds, 0 to go on at once.
 */
static unsigned int virtballoon_calc_pause(const struct virtballoon_view *view,
					   enum virtballoon_action action,
					   unsigned long done_pages)
{
	unsigned long target_pages = virtballoon_bp_to_pages(view->target_bp);
	unsigned long step_pages;

	if (action != VIRTBALLOON_INFLATE || !view->wary_pages)
		return 0;
	step_pages = max_t(unsigned long, (target_pages - view->size_pages) /
					  VIRTBALLOON_RETURN_STEPS,
			   VIRTBALLOON_RING_SLOTS * VIRTBALLOON_SLOT_PAGES);
	return min(done_pages, step_pages) * VIRTBALLOON_WATCH_MS / step_pages;
}

/**
 * virtballoon_plan_relief() - how much to release to a guest in need
 * @relief: history, updated
 * @now_ms: monotonic time
 * @in_use_pages: memory in use before the release
 * @is_oom: the kernel is out of memory
 *
 * Releases that follow each other while inflation still holds off are one
 * episode: each is twice the one before, from 4 to 32 MiB, and later a fifth of
 * all that the episode has released, so that the excess stays in proportion.
 * Ahead of OOM, when the guest has not said how much it lacks, it is 16 MiB at
 * least. A new episode soon after the last one makes inflation hold off longer.
 *
 * Return: guest pages.
 */
static unsigned long virtballoon_plan_relief(struct virtballoon_relief *relief,
					     u64 now_ms,
					     unsigned long in_use_pages,
					     bool is_oom)
{
	u64 quiet_ms = now_ms - relief->last_ms;
	unsigned int doublings;

	if (!relief->nr_releases || quiet_ms >= 4 * (u64)relief->hold_ms) {
		relief->hold_ms = VIRTBALLOON_HOLD_MIN_MS;
		relief->nr_releases = 0;
	} else if (quiet_ms >= relief->hold_ms) {
		relief->hold_ms = min(2 * relief->hold_ms,
				      VIRTBALLOON_HOLD_MAX_MS);
		relief->nr_releases = 0;
	}
	if (!relief->nr_releases)
		relief->released_pages = 0;
	/* On OOM nothing is left, whatever became of earlier releases. */
	if (!relief->nr_releases || is_oom)
		relief->limit_pages = in_use_pages;
	doublings = min(relief->nr_releases, VIRTBALLOON_RESCUE_DOUBLINGS);
	relief->nr_releases++;
	relief->last_ms = now_ms;
	relief->last_pages =
		max3((VIRTBALLOON_RESCUE_MIN_BYTES << doublings) >> PAGE_SHIFT,
		     is_oom ? 0 : VIRTBALLOON_RESCUE_AHEAD_BYTES >> PAGE_SHIFT,
		     relief->released_pages / VIRTBALLOON_RESCUE_SHARE);
	relief->released_pages += relief->last_pages;
	relief->limit_pages += relief->last_pages;
	return relief->last_pages;
}

/**
 * virtballoon_plan_follow() - whether the guest needs more before it asks
 * @relief: history
 * @now_ms: monotonic time
 * @in_use_pages: memory in use
 *
 * A process that was short of memory once is likely to go on, and the kernel
 * tries hard before it declares OOM again. Page cache is not in use: it may
 * grow into what was released, and is no reason to release more.
 *
 * Return: true if three quarters of the last release are in use.
 */
static bool virtballoon_plan_follow(const struct virtballoon_relief *relief,
				    u64 now_ms, unsigned long in_use_pages)
{
	return relief->nr_releases &&
	       now_ms - relief->last_ms < VIRTBALLOON_FOLLOW_FOR_MS &&
	       in_use_pages >= relief->limit_pages -
			       relief->last_pages / VIRTBALLOON_RESCUE_LEFT;
}

/**
 * virtballoon_calc_watch() - when to look again
 * @relief: history
 * @now_ms: monotonic time
 * @has_majfaults: the last look saw major faults
 *
 * Return: milliseconds.
 */
static unsigned int
virtballoon_calc_watch(const struct virtballoon_relief *relief, u64 now_ms,
		       bool has_majfaults)
{
	if (relief->nr_releases &&
	    now_ms - relief->last_ms < VIRTBALLOON_FOLLOW_FOR_MS)
		return VIRTBALLOON_FOLLOW_MS;
	return has_majfaults ? VIRTBALLOON_WATCH_MS : VIRTBALLOON_QUIET_MS;
}

/**
 * virtballoon_calc_hold() - what is left of the time to hold off
 * @relief: history
 * @now_ms: monotonic time
 *
 * Return: milliseconds, 0 if inflation may go on.
 */
static unsigned int
virtballoon_calc_hold(const struct virtballoon_relief *relief, u64 now_ms)
{
	u64 since_ms = now_ms - relief->last_ms;

	if (!relief->nr_releases || since_ms >= relief->hold_ms)
		return 0;
	return relief->hold_ms - since_ms;
}

/**
 * virtballoon_calc_wary() - what more the guest keeps since a rescue
 * @relief: history
 * @now_ms: monotonic time
 *
 * Return: guest pages: a quarter of what was released and the largest first
 * release, 0 ten minutes after the last one.
 */
static unsigned long
virtballoon_calc_wary(const struct virtballoon_relief *relief, u64 now_ms)
{
	if (!relief->nr_releases ||
	    now_ms - relief->last_ms >= VIRTBALLOON_WARY_MS)
		return 0;
	return relief->released_pages / VIRTBALLOON_RESCUE_LEFT +
	       (VIRTBALLOON_RESCUE_MAX_BYTES >> PAGE_SHIFT);
}

/* What a counter has grown by; some of the kernel's may step back a little. */
static unsigned long virtballoon_calc_growth(unsigned long now,
					     unsigned long before)
{
	return (long)(now - before) > 0 ? now - before : 0;
}

/**
 * virtballoon_plan_watch() - whether the guest is thrashing
 * @watch: what the last look saw, updated
 * @now: the counters and the time now
 *
 * A major fault stands for a page that a program needs at once and that has to
 * be read; a refault for a page that was here before. A guest that streams a
 * file has refaults without major faults, a program that starts for the first
 * time major faults without refaults. A program whose pages are evicted and
 * read back has both, at the same rate.
 *
 * Return: true if both come at 24 a second. Streams of 10,000 mapped pages a
 * second were seen to have 5, programs started one after the other 45.
 */
static bool virtballoon_plan_watch(struct virtballoon_watch *watch,
				   const struct virtballoon_watch *now)
{
	unsigned long nr_thrashed =
		min(virtballoon_calc_growth(now->majfaults, watch->majfaults),
		    virtballoon_calc_growth(now->refaults, watch->refaults));
	/* At most an hour, so that no product below overflows. */
	unsigned long elapsed_ms = min_t(u64, now->last_ms - watch->last_ms,
					 3600 * MSEC_PER_SEC);
	bool is_first = !watch->last_ms;

	/* Too little time says nothing; keep what the last look saw. */
	if (!is_first && elapsed_ms < VIRTBALLOON_WATCH_MS / 2)
		return false;
	watch->has_majfaults = now->majfaults != watch->majfaults;
	watch->last_ms = now->last_ms;
	watch->majfaults = now->majfaults;
	watch->refaults = now->refaults;
	watch->level -= watch->level * min(elapsed_ms, MSEC_PER_SEC) /
			MSEC_PER_SEC;
	if (is_first)
		watch->level = 0;
	else
		watch->level += nr_thrashed * MSEC_PER_SEC /
				max(elapsed_ms, MSEC_PER_SEC);
	return watch->level >= VIRTBALLOON_THRASH_PER_S;
}

/**
 * virtballoon_plan_feed() - whether more memory helps a guest that thrashes
 * @watch: the least memory that was free in this episode, updated
 * @relief: releases so far
 * @now_ms: monotonic time
 * @free_pages: memory that is free now
 * @reserve_pages: reserve of the guest, larger than what its watermarks differ
 *
 * What was evicted has to be read back even when there is room for it again, so
 * the guest gets more only when it has used most of what it was given. To be
 * asked at every look, thrashing or not: an episode may begin with an OOM, and
 * then it is the look before it that says what was free.
 *
 * Return: true if it has, or was not given anything yet.
 */
static bool virtballoon_plan_feed(struct virtballoon_watch *watch,
				  const struct virtballoon_relief *relief,
				  u64 now_ms, unsigned long free_pages,
				  unsigned long reserve_pages)
{
	if (!virtballoon_calc_hold(relief, now_ms)) {
		watch->low_free_pages = free_pages;
		return true;
	}
	watch->low_free_pages = min(watch->low_free_pages, free_pages);
	return free_pages <= watch->low_free_pages + reserve_pages +
			     relief->last_pages / VIRTBALLOON_RESCUE_LEFT;
}

/* What a command id of free page hinting asks for */
enum virtballoon_hint {
	VIRTBALLOON_HINT_NOTHING,
	VIRTBALLOON_HINT_BEGIN,
	VIRTBALLOON_HINT_RELEASE,
};

/**
 * virtballoon_plan_hint() - what to do about a command id
 * @served_id: the request served last, CMD_ID_STOP if none
 * @id: the command id of the config space
 *
 * A request is served once: the device keeps showing its id for a while.
 *
 * Return: what to do.
 */
static enum virtballoon_hint virtballoon_plan_hint(u32 served_id, u32 id)
{
	if (id == VIRTIO_BALLOON_CMD_ID_DONE)
		return VIRTBALLOON_HINT_RELEASE;
	if (id == VIRTIO_BALLOON_CMD_ID_STOP || id == served_id)
		return VIRTBALLOON_HINT_NOTHING;
	return VIRTBALLOON_HINT_BEGIN;
}

/**
 * virtballoon_calc_poison() - what free pages contain
 * @init_on_free: the kernel zeroes pages when they are freed
 *
 * Return: a value for poison_val; meaningless if the kernel does neither that
 * nor page poisoning.
 */
static u32 virtballoon_calc_poison(bool init_on_free)
{
	return init_on_free ? 0 : PAGE_POISON * 0x01010101U;
}

/* ------------------------------------------------------------------------
 * Memory of the guest
 */

/* What inflation leaves to the guest, in guest pages */
static unsigned long virtballoon_reserve_pages(struct virtballoon *vb)
{
	unsigned long total_pages = totalram_pages();

	/* A hint or a rescue more or less does not matter here: no lock. */
	if (!vb->deflate_on_oom)
		total_pages += READ_ONCE(vb->size_pages);
	return virtballoon_calc_reserve(total_pages, READ_ONCE(reserve_mib));
}

/*
 * Available memory above the reserve, in guest pages, negative if below. File
 * pages that programs have mapped count as available; after a rescue, when they
 * may well be what was missing, @keep_mapped takes them off.
 */
static long virtballoon_spare_pages(struct virtballoon *vb, bool keep_mapped)
{
	long spare_pages = si_mem_available() -
			   (long)virtballoon_reserve_pages(vb);

	if (keep_mapped)
		spare_pages -= global_node_page_state(NR_FILE_MAPPED);
	return spare_pages;
}

/*
 * Guest pages that cannot be had by reclaim without swapping. What is free is not
 * asked for, as CPUs keep much of what was freed lately in lists of their own.
 */
static unsigned long virtballoon_in_use_pages(void)
{
	return global_node_page_state(NR_ANON_MAPPED) +
	       global_node_page_state(NR_SHMEM) +
	       global_node_page_state(NR_PAGETABLE) +
	       global_node_page_state_pages(NR_SLAB_UNRECLAIMABLE_B);
}

/*
 * Without DEFLATE_ON_OOM the guest has lost its ballooned pages for good, so
 * they do not count as managed memory; with it they are memory in use.
 * @sign is -1 for pages that entered and 1 for pages that left.
 */
static void virtballoon_account(struct virtballoon *vb,
				struct list_head *pages, int sign)
{
	struct page *page, *first = NULL;
	long nr_pages = 0;

	if (vb->deflate_on_oom)
		return;
	/* The counters are shared by all CPUs: once per run in one zone. */
	list_for_each_entry(page, pages, lru) {
		if (first && page_zone(first) != page_zone(page)) {
			adjust_managed_page_count(first, sign * nr_pages);
			nr_pages = 0;
		}
		first = page;
		nr_pages++;
	}
	if (first)
		adjust_managed_page_count(first, sign * nr_pages);
}

/* Gives pages, linked through lru, to the page allocator. */
static void virtballoon_free_pages(struct list_head *pages)
{
	struct page *page, *next;

	list_for_each_entry_safe(page, next, pages, lru) {
		list_del(&page->lru);
		__free_page(page);
	}
}

/* Whether the device can name the page: its page frame numbers have 32 bits. */
static bool virtballoon_can_name(struct page *page)
{
	return virtballoon_pages_to_bp((u64)page_to_pfn(page) + 1) - 1 <=
	       U32_MAX;
}

/*
 * Allocates up to @nr_pages, linked through lru. Called without locks, as it
 * may reclaim and run the OOM notifier.
 */
static void virtballoon_alloc_pages(struct virtballoon *vb,
				    struct list_head *pages,
				    unsigned long nr_pages)
{
	unsigned long nr_got = 0;
	LIST_HEAD(unnamed);
	struct page *page;

	while (nr_got < nr_pages && !READ_ONCE(vb->stopping)) {
		page = balloon_page_alloc();
		if (!page)
			break;
		if (!virtballoon_can_name(page)) {
			list_add(&page->lru, &unnamed);
			nr_pages--;
			continue;
		}
		list_add_tail(&page->lru, pages);
		nr_got++;
		cond_resched();
	}
	if (!list_empty(&unnamed))
		dev_warn_once(&vb->vdev->dev,
			      "memory above 16 TiB is out of the device's reach\n");
	virtballoon_free_pages(&unnamed);
}

/* ------------------------------------------------------------------------
 * Slots and rings. All of it needs @lock.
 */

static struct virtballoon_slot *
virtballoon_free_slot(struct virtballoon_ring *ring)
{
	unsigned int i;

	for (i = 0; i < ring->nr_slots; i++)
		if (ring->slots[i].fate == VIRTBALLOON_FREE_SLOT)
			return &ring->slots[i];
	return NULL;
}

/* All balloon pages of a guest page go into one buffer, ascending. */
static void virtballoon_slot_add(struct virtballoon *vb,
				 struct virtballoon_slot *slot,
				 struct page *page)
{
	u64 bp = virtballoon_pages_to_bp(page_to_pfn(page));
	unsigned int i;

	for (i = 0; i < VIRTBALLOON_BP_PER_PAGE; i++)
		slot->pfns[slot->nr_bp++] = cpu_to_virtio32(vb->vdev, bp + i);
}

/* Moves pages from the front of @pages to @slot while there is room. */
static void virtballoon_slot_fill(struct virtballoon *vb,
				  struct virtballoon_slot *slot,
				  struct list_head *pages)
{
	struct page *page, *next;

	slot->nr_bp = 0;
	list_for_each_entry_safe(page, next, pages, lru) {
		if (slot->nr_bp + VIRTBALLOON_BP_PER_PAGE > VIRTBALLOON_SLOT_BP)
			break;
		list_del(&page->lru);
		virtballoon_slot_add(vb, slot, page);
	}
}

static struct page *virtballoon_slot_page(struct virtballoon *vb,
					  const struct virtballoon_slot *slot,
					  unsigned int i_bp)
{
	u32 bp = virtio32_to_cpu(vb->vdev, slot->pfns[i_bp]);

	return pfn_to_page((unsigned long)bp >> VIRTBALLOON_BP_SHIFT);
}

/* Adds the pages of @slot to @pages, returns how many. */
static unsigned long virtballoon_slot_list(struct virtballoon *vb,
					   const struct virtballoon_slot *slot,
					   struct list_head *pages)
{
	unsigned int i;

	for (i = 0; i < slot->nr_bp; i += VIRTBALLOON_BP_PER_PAGE)
		list_add_tail(&virtballoon_slot_page(vb, slot, i)->lru, pages);
	return slot->nr_bp >> VIRTBALLOON_BP_SHIFT;
}

/*
 * Hands the filled @slot to the device, without a kick. On error the slot is
 * as free as before, and the pages are the caller's.
 */
static int virtballoon_slot_send(struct virtballoon_ring *ring,
				 struct virtballoon_slot *slot,
				 enum virtballoon_fate fate)
{
	struct scatterlist sg;
	int err;

	sg_init_one(&sg, slot->pfns, slot->nr_bp * sizeof(slot->pfns[0]));
	/* One descriptor in a ring with more entries than slots: no memory. */
	err = virtqueue_add_outbuf(ring->vq, &sg, 1, slot, GFP_NOWAIT);
	if (err)
		return err;
	slot->fate = fate;
	slot->used = false;
	ring->nr_busy++;
	if (fate == VIRTBALLOON_ENTER || fate == VIRTBALLOON_LEAVE)
		ring->owned_pages += slot->nr_bp >> VIRTBALLOON_BP_SHIFT;
	return 0;
}

/* Pages that have left the balloon become ordinary memory. */
static void virtballoon_release(struct virtballoon *vb,
				struct list_head *pages, unsigned long nr_pages)
{
	virtballoon_account(vb, pages, 1);
	virtballoon_free_pages(pages);
	vb->size_pages -= nr_pages;
	vb->freed_pages += nr_pages;
}

/* The device has seen the page that stands in for another one. */
static bool virtballoon_settle_replace(struct virtballoon *vb,
				       const struct virtballoon_slot *slot)
{
	struct page *page = virtballoon_slot_page(vb, slot, 0);

	/* Whoever migrated it has not let go of it yet: the next look will. */
	if (!trylock_page(page))
		return false;
	scoped_guard(spinlock_irqsave, &vb->pages.pages_lock)
		balloon_page_insert(&vb->pages, page);
	unlock_page(page);
	return true;
}

static void virtballoon_settle_enter(struct virtballoon *vb,
				     const struct virtballoon_slot *slot)
{
	unsigned long nr_pages;
	LIST_HEAD(pages);

	nr_pages = virtballoon_slot_list(vb, slot, &pages);
	virtballoon_account(vb, &pages, -1);
	balloon_page_list_enqueue(&vb->pages, &pages);
	vb->inflate.owned_pages -= nr_pages;
	vb->size_pages += nr_pages;
}

static void virtballoon_settle_leave(struct virtballoon *vb,
				     const struct virtballoon_slot *slot)
{
	unsigned long nr_pages;
	LIST_HEAD(pages);

	nr_pages = virtballoon_slot_list(vb, slot, &pages);
	vb->deflate.owned_pages -= nr_pages;
	virtballoon_release(vb, &pages, nr_pages);
}

/* Does what is left to do for a used buffer. False: not possible yet. */
static bool virtballoon_settle(struct virtballoon *vb,
			       struct virtballoon_slot *slot)
{
	switch (slot->fate) {
	case VIRTBALLOON_ENTER:
		virtballoon_settle_enter(vb, slot);
		break;
	case VIRTBALLOON_REPLACE:
		return virtballoon_settle_replace(vb, slot);
	case VIRTBALLOON_LEAVE:
		virtballoon_settle_leave(vb, slot);
		break;
	case VIRTBALLOON_REPLACED:
		put_page(virtballoon_slot_page(vb, slot, 0));
		break;
	case VIRTBALLOON_TOLD:
	case VIRTBALLOON_FREE_SLOT:
		break;
	}
	return true;
}

/* Collects used buffers and settles what can be settled. */
static void virtballoon_reap(struct virtballoon *vb,
			     struct virtballoon_ring *ring)
{
	struct virtballoon_slot *slot;
	unsigned int i, len;

	lockdep_assert_held(&vb->lock);
	if (vb->gone)
		return;
	/* The length is up to the device (M8): nothing is read from it. */
	while ((slot = virtqueue_get_buf(ring->vq, &len)))
		slot->used = true;
	for (i = 0; i < ring->nr_slots; i++) {
		slot = &ring->slots[i];
		if (slot->used && virtballoon_settle(vb, slot)) {
			slot->used = false;
			slot->fate = VIRTBALLOON_FREE_SLOT;
			ring->nr_busy--;
		}
	}
}

/*
 * A page that was to stand in for another one, when the device has gone: its
 * predecessor has left, so the balloon has one page less.
 */
static void virtballoon_recall_replace(struct virtballoon *vb,
				       const struct virtballoon_slot *slot)
{
	struct page *page = virtballoon_slot_page(vb, slot, 0);

	if (!vb->deflate_on_oom)
		adjust_managed_page_count(page, 1);
	put_page(page);
	count_vm_event(BALLOON_DEFLATE);
	vb->size_pages--;
	vb->freed_pages++;
}

static void virtballoon_recall_slot(struct virtballoon *vb,
				    struct virtballoon_slot *slot)
{
	LIST_HEAD(pages);

	if (slot->fate == VIRTBALLOON_REPLACE) {
		virtballoon_recall_replace(vb, slot);
	} else if (slot->fate == VIRTBALLOON_ENTER) {
		vb->inflate.owned_pages -=
			virtballoon_slot_list(vb, slot, &pages);
		virtballoon_free_pages(&pages);
	} else {
		virtballoon_settle(vb, slot);
	}
	slot->used = false;
	slot->fate = VIRTBALLOON_FREE_SLOT;
}

/* After a reset the device owns nothing: what slots own is ours again. */
static void virtballoon_recall(struct virtballoon *vb,
			       struct virtballoon_ring *ring)
{
	unsigned int i;

	for (i = 0; i < ring->nr_slots; i++)
		if (ring->slots[i].fate != VIRTBALLOON_FREE_SLOT)
			virtballoon_recall_slot(vb, &ring->slots[i]);
	ring->nr_busy = 0;
}

/* ------------------------------------------------------------------------
 * Waiting, and giving up
 */

/* Callback of the inflate, deflate, hint and report queues */
static void virtballoon_acked(struct virtqueue *vq)
{
	struct virtballoon *vb = vq->vdev->priv;

	atomic_inc(&vb->acks);
	wake_up(&vb->acked);
}

/* Sleeps until a queue called back after @acks was read, at most POLL_MS. */
static void virtballoon_doze(struct virtballoon *vb, int acks)
{
	wait_event_timeout(vb->acked, atomic_read(&vb->acks) != acks,
			   msecs_to_jiffies(VIRTBALLOON_POLL_MS));
}

/*
 * A PCI device that has been pulled out reads as ones. It owns nothing, and
 * the transport would wait for its status to become zero for ever.
 */
static void virtballoon_reset_device(struct virtio_device *vdev)
{
	if (vdev->config->get_status(vdev) != U8_MAX)
		virtio_reset_device(vdev);
}

/*
 * Resets the device, for good or until start() is called. Whatever it had is
 * the guest's again. The caller holds @lock, or nobody else is left.
 */
static void virtballoon_reset(struct virtballoon *vb)
{
	lockdep_assert_held(&vb->lock);
	if (vb->gone)
		return;
	virtballoon_reset_device(vb->vdev);
	WRITE_ONCE(vb->gone, true);
	virtballoon_recall(vb, &vb->inflate);
	virtballoon_recall(vb, &vb->deflate);
	wake_up_all(&vb->acked);
}

/*
 * Has the worker run after @delay_ms unless it is going to run anyway: a run
 * that the host's change of target asked for is not put off.
 */
static void virtballoon_queue_size(struct virtballoon *vb,
				   unsigned int delay_ms)
{
	guard(spinlock_irqsave)(&vb->event_lock);
	if (!vb->stopping)
		queue_delayed_work(vb->wq, &vb->size_work,
				   msecs_to_jiffies(delay_ms));
}

/* Has the guest watched for need of memory, in @delay_ms if not before. */
static void virtballoon_queue_watch(struct virtballoon *vb,
				    unsigned int delay_ms)
{
	if (!vb->deflate_on_oom)
		return;
	guard(spinlock_irqsave)(&vb->event_lock);
	if (!vb->stopping)
		queue_delayed_work(vb->wq, &vb->watch_work,
				   msecs_to_jiffies(delay_ms));
}

/* The same, and not later than that. */
static void virtballoon_hurry_watch(struct virtballoon *vb)
{
	guard(spinlock_irqsave)(&vb->event_lock);
	if (!vb->stopping)
		mod_delayed_work(vb->wq, &vb->watch_work,
				 msecs_to_jiffies(VIRTBALLOON_FOLLOW_MS));
}

/* Has the worker look at the state of affairs now. */
static void virtballoon_run_size(struct virtballoon *vb)
{
	guard(spinlock_irqsave)(&vb->event_lock);
	if (!vb->stopping)
		mod_delayed_work(vb->wq, &vb->size_work, 0);
}

static void virtballoon_run_hint(struct virtballoon *vb)
{
	guard(spinlock_irqsave)(&vb->event_lock);
	if (!vb->stopping && vb->hint_vq)
		mod_delayed_work(vb->wq, &vb->hint_work, 0);
}

/*
 * The device is of no use any more. Without a reset it could still discard
 * pages that it was told of; after it the guest can have them all back, which
 * the worker sees to.
 */
static void virtballoon_fail(struct virtballoon *vb, const char *why)
{
	scoped_guard(mutex, &vb->lock) {
		if (vb->gone)
			return;
		dev_err(&vb->vdev->dev,
			"%s: device reset, memory taken back; bind the driver again to use it\n",
			why);
		virtio_break_device(vb->vdev);
		virtballoon_reset(vb);
	}
	virtballoon_run_size(vb);
	virtballoon_run_hint(vb);
}

/**
 * virtballoon_wait() - waits until a ring has at most some busy slots
 * @vb: the balloon, @lock not held
 * @ring: the ring
 * @nr_busy: go on when no more slots than this are busy
 * @timeout_ms: without any progress
 * @may_stop: give up when the driver is about to stop
 *
 * Return: 0, -ETIMEDOUT, -EINTR when stopping, -EIO when the device is gone or
 * its queue broken. The pages stay with their slots in every case.
 */
static int virtballoon_wait(struct virtballoon *vb,
			    struct virtballoon_ring *ring, unsigned int nr_busy,
			    unsigned int timeout_ms, bool may_stop)
{
	unsigned long patience = msecs_to_jiffies(timeout_ms);
	unsigned long deadline = jiffies + patience;
	unsigned int last_busy = UINT_MAX;

	for (;;) {
		int acks = atomic_read(&vb->acks);

		scoped_guard(mutex, &vb->lock) {
			virtballoon_reap(vb, ring);
			/* Also with nothing to wait for: no more will work. */
			if (vb->gone || virtqueue_is_broken(ring->vq))
				return -EIO;
			if (ring->nr_busy <= nr_busy)
				return 0;
			if (ring->nr_busy < last_busy)
				deadline = jiffies + patience;
			last_busy = ring->nr_busy;
			if (time_after(jiffies, deadline)) {
				/* StratoVirt forgets kicks while it migrates */
				virtqueue_notify(ring->vq);
				return -ETIMEDOUT;
			}
		}
		if (may_stop && READ_ONCE(vb->stopping))
			return -EINTR;
		virtballoon_doze(vb, acks);
	}
}

/* ------------------------------------------------------------------------
 * Inflate and deflate
 */

/* Sends as many of @pages as the slots take; the rest stays on the list. */
static unsigned long virtballoon_send_inflate(struct virtballoon *vb,
					      struct list_head *pages)
{
	struct virtballoon_ring *ring = &vb->inflate;
	struct virtballoon_slot *slot;
	unsigned long nr_sent = 0;

	lockdep_assert_held(&vb->lock);
	virtballoon_reap(vb, ring);
	while (!vb->gone && !list_empty(pages)) {
		slot = virtballoon_free_slot(ring);
		if (!slot)
			break;
		virtballoon_slot_fill(vb, slot, pages);
		if (virtballoon_slot_send(ring, slot, VIRTBALLOON_ENTER)) {
			virtballoon_slot_list(vb, slot, pages);
			break;
		}
		nr_sent += slot->nr_bp >> VIRTBALLOON_BP_SHIFT;
	}
	if (nr_sent)
		virtqueue_kick(ring->vq);
	return nr_sent;
}

/*
 * One batch towards a larger balloon. Returns the pages that were sent, 0 if
 * there is no memory, or why the device did not take them.
 */
static long virtballoon_inflate_batch(struct virtballoon *vb,
				      unsigned long nr_pages)
{
	unsigned long nr_sent = 0;
	LIST_HEAD(pages);
	int err;

	/*
	 * A page that was just deflated may still be named in a buffer that
	 * the device has not used. It must not be named in two at a time.
	 */
	err = virtballoon_wait(vb, &vb->deflate, 0, VIRTBALLOON_ACK_MS, true);
	/* Left behind by a batch that the device was too slow for */
	err = err ?: virtballoon_wait(vb, &vb->inflate, 0, VIRTBALLOON_ACK_MS,
				      true);
	if (err)
		return err;
	virtballoon_alloc_pages(vb, &pages, nr_pages);
	scoped_guard(mutex, &vb->lock) {
		virtballoon_reap(vb, &vb->deflate);
		/* A rescue meanwhile wants the memory, and may name it, too. */
		if (!vb->deflate.nr_busy && !READ_ONCE(vb->stopping))
			nr_sent = virtballoon_send_inflate(vb, &pages);
	}
	virtballoon_free_pages(&pages);
	err = virtballoon_wait(vb, &vb->inflate, 0, VIRTBALLOON_ACK_MS, true);
	return err ?: (long)nr_sent;
}

/*
 * Takes pages out of the balloon into one slot and tells the device. Returns
 * how many left; fewer than asked for if pages are isolated, or no slot or no
 * device is there.
 */
static unsigned long virtballoon_deflate_slot(struct virtballoon *vb,
					      unsigned long nr_pages)
{
	struct virtballoon_ring *ring = &vb->deflate;
	struct virtballoon_slot *slot;
	LIST_HEAD(pages);
	int err;

	slot = virtballoon_free_slot(ring);
	if (!slot || vb->gone)
		return 0;
	nr_pages = min_t(unsigned long, nr_pages, VIRTBALLOON_SLOT_PAGES);
	nr_pages = balloon_page_list_dequeue(&vb->pages, &pages, nr_pages);
	if (!nr_pages)
		return 0;
	virtballoon_slot_fill(vb, slot, &pages);
	err = virtballoon_slot_send(ring, slot, vb->must_tell ?
				    VIRTBALLOON_LEAVE : VIRTBALLOON_TOLD);
	if (!err && vb->must_tell)
		return nr_pages;
	virtballoon_slot_list(vb, slot, &pages);
	if (err && vb->must_tell) {
		balloon_page_list_enqueue(&vb->pages, &pages);
		return 0;
	}
	/* Told, or the queue is broken and there is no one to be told. */
	virtballoon_release(vb, &pages, nr_pages);
	return nr_pages;
}

/* As many slots of it as there are free, and one kick. */
static unsigned long virtballoon_send_deflate(struct virtballoon *vb,
					      unsigned long nr_pages)
{
	unsigned long nr_sent = 0, nr_now;

	lockdep_assert_held(&vb->lock);
	virtballoon_reap(vb, &vb->deflate);
	while (nr_sent < nr_pages) {
		nr_now = virtballoon_deflate_slot(vb, nr_pages - nr_sent);
		if (!nr_now)
			break;
		nr_sent += nr_now;
	}
	if (nr_sent)
		virtqueue_kick(vb->deflate.vq);
	return nr_sent;
}

/*
 * One batch towards a smaller balloon. Returns the pages that left it, 0 if
 * all are busy, or why the device did not answer.
 */
static long virtballoon_deflate_batch(struct virtballoon *vb,
				      unsigned long nr_pages,
				      unsigned int timeout_ms, bool may_stop)
{
	unsigned long nr_sent;
	int err;

	scoped_guard(mutex, &vb->lock)
		nr_sent = virtballoon_send_deflate(vb, nr_pages);
	err = virtballoon_wait(vb, &vb->deflate, 0, timeout_ms, may_stop);
	return err ?: (long)nr_sent;
}

/*
 * Empties the balloon of a device that has gone. Pages that compaction has
 * isolated come back within moments, so the caller asks again.
 */
static void virtballoon_drain(struct virtballoon *vb)
{
	unsigned long nr_pages;

	do {
		LIST_HEAD(pages);

		guard(mutex)(&vb->lock);
		nr_pages = balloon_page_list_dequeue(&vb->pages, &pages,
						     VIRTBALLOON_SLOT_PAGES);
		virtballoon_release(vb, &pages, nr_pages);
		cond_resched();
	} while (nr_pages);
}

/*
 * Tells the device how large the balloon is, unless it knows. Under @lock, so
 * that the last one to change the size is also the last one to write it.
 */
static void virtballoon_write_actual(struct virtballoon *vb)
{
	u32 actual_bp;

	guard(mutex)(&vb->lock);
	if (vb->gone)
		return;
	actual_bp = min_t(u64, virtballoon_pages_to_bp(vb->size_pages),
			  U32_MAX);
	if (actual_bp == vb->actual_bp)
		return;
	vb->actual_bp = actual_bp;
	virtio_cwrite_le(vb->vdev, struct virtio_balloon_config, actual,
			 &actual_bp);
}

/* ------------------------------------------------------------------------
 * Page migration
 */

#ifdef CONFIG_BALLOON_COMPACTION
/* Whether a buffer that the device has not used yet names @page */
static bool virtballoon_ring_names(struct virtballoon *vb,
				   const struct virtballoon_ring *ring,
				   struct page *page)
{
	unsigned int i, j;

	for (i = 0; i < ring->nr_slots; i++) {
		const struct virtballoon_slot *slot = &ring->slots[i];

		if (slot->fate == VIRTBALLOON_FREE_SLOT)
			continue;
		for (j = 0; j < slot->nr_bp; j += VIRTBALLOON_BP_PER_PAGE)
			if (virtballoon_slot_page(vb, slot, j) == page)
				return true;
	}
	return false;
}

/* Names @page alone in a free slot. */
static int virtballoon_send_page(struct virtballoon *vb,
				 struct virtballoon_ring *ring,
				 struct page *page, enum virtballoon_fate fate)
{
	struct virtballoon_slot *slot = virtballoon_free_slot(ring);

	if (!slot)
		return -EAGAIN;
	slot->nr_bp = 0;
	virtballoon_slot_add(vb, slot, page);
	return virtballoon_slot_send(ring, slot, fate);
}

/* Both buffers, or none of them that matters. */
static int virtballoon_send_exchange(struct virtballoon *vb,
				     struct page *newpage, struct page *page)
{
	int err;

	if (!virtballoon_free_slot(&vb->inflate))
		return -EAGAIN;
	err = virtballoon_send_page(vb, &vb->deflate, page, vb->must_tell ?
				    VIRTBALLOON_REPLACED : VIRTBALLOON_TOLD);
	if (err)
		return err;
	err = virtballoon_send_page(vb, &vb->inflate, newpage,
				    VIRTBALLOON_REPLACE);
	if (err) {
		/*
		 * The queue is broken, with a free slot there is no other
		 * reason. @page stays in the balloon; that the device has
		 * been told otherwise has no meaning any more.
		 */
		if (vb->must_tell)
			get_page(page);
		return -EBUSY;
	}
	virtqueue_kick(vb->deflate.vq);
	virtqueue_kick(vb->inflate.vq);
	return 0;
}

/*
 * Replaces @page, which is isolated and locked, by @newpage, locked as well.
 *
 * The device is told of both and not waited for. @newpage belongs to its slot
 * until the device has seen it, like any page on its way in. @page is free at
 * once; if the device insists on being told first, its slot keeps the
 * balloon's reference until then.
 */
static int virtballoon_migratepage(struct balloon_dev_info *pages,
				   struct page *newpage, struct page *page,
				   enum migrate_mode mode)
{
	struct virtballoon *vb = container_of(pages, struct virtballoon, pages);
	int err;

	if (!virtballoon_can_name(newpage))
		return -EBUSY;
	/* The worker, or this very task, may hold it: not worth a wait. */
	if (!mutex_trylock(&vb->lock))
		return -EAGAIN;
	virtballoon_reap(vb, &vb->inflate);
	virtballoon_reap(vb, &vb->deflate);
	err = -EAGAIN;
	if (vb->gone || READ_ONCE(vb->stopping) ||
	    virtballoon_ring_names(vb, &vb->deflate, newpage))
		goto unlock;
	err = virtballoon_send_exchange(vb, newpage, page);
	if (err)
		goto unlock;

	get_page(newpage);
	if (!vb->deflate_on_oom && page_zone(page) != page_zone(newpage)) {
		adjust_managed_page_count(page, 1);
		adjust_managed_page_count(newpage, -1);
	}
	scoped_guard(spinlock_irqsave, &pages->pages_lock) {
		pages->isolated_pages--;
		__count_vm_event(BALLOON_MIGRATE);
	}
	balloon_page_finalize(page);
	if (!vb->must_tell)
		put_page(page);
	virtballoon_queue_size(vb, VIRTBALLOON_TIDY_MS);
unlock:
	mutex_unlock(&vb->lock);
	return err ?: MIGRATEPAGE_SUCCESS;
}
#endif /* CONFIG_BALLOON_COMPACTION */

/* ------------------------------------------------------------------------
 * Keeping the system awake while there is work for the host
 */

static void virtballoon_stay_awake(struct virtballoon *vb,
				   enum virtballoon_awake reason)
{
	lockdep_assert_held(&vb->event_lock);
	if (!vb->awake)
		pm_stay_awake(&vb->vdev->dev);
	__set_bit(reason, &vb->awake);
}

static void virtballoon_relax(struct virtballoon *vb,
			      enum virtballoon_awake reason)
{
	guard(spinlock_irqsave)(&vb->event_lock);
	if (!test_bit(reason, &vb->awake))
		return;
	/* A change that the worker has not looked at yet keeps it awake. */
	if (reason == VIRTBALLOON_AWAKE_SIZE && !vb->stopping && !vb->gone &&
	    vb->nr_changes != vb->nr_changes_seen)
		return;
	__clear_bit(reason, &vb->awake);
	if (!vb->awake)
		pm_relax(&vb->vdev->dev);
}

static u64 virtballoon_now_ms(void)
{
	return ktime_to_ms(ktime_get_boottime());
}

/* ------------------------------------------------------------------------
 * The worker that follows the target
 */

static void virtballoon_look(struct virtballoon *vb,
			     struct virtballoon_view *view)
{
	u64 now_ms = virtballoon_now_ms();

	scoped_guard(spinlock_irqsave, &vb->event_lock)
		vb->nr_changes_seen = vb->nr_changes;
	view->kdump = is_kdump_kernel();
	/* Little endian on legacy devices, too (spec: "Legacy Interface"). */
	virtio_cread_le(vb->vdev, struct virtio_balloon_config, num_pages,
			&view->target_bp);
	guard(mutex)(&vb->lock);
	view->wary_pages = virtballoon_calc_wary(&vb->relief, now_ms);
	view->hold_ms = virtballoon_calc_hold(&vb->relief, now_ms);
	view->spare_pages = virtballoon_spare_pages(vb, view->wary_pages);
	/* What the device was slow to answer is settled here at the latest. */
	virtballoon_reap(vb, &vb->inflate);
	virtballoon_reap(vb, &vb->deflate);
	view->size_pages = vb->size_pages + vb->inflate.owned_pages -
			   vb->deflate.owned_pages;
	view->room_pages = (unsigned long)VIRTBALLOON_SLOT_PAGES *
			   min(vb->inflate.nr_slots, vb->deflate.nr_slots);
}

/* One line when a target turns out to be out of reach, not one a retry. */
static void virtballoon_note_short(struct virtballoon *vb,
				   const struct virtballoon_view *view)
{
	if (vb->is_short && vb->short_target_bp == view->target_bp)
		return;
	vb->is_short = true;
	vb->short_target_bp = view->target_bp;
	dev_info(&vb->vdev->dev,
		 "balloon of %lu KiB, host asks for %llu KiB: waiting for memory\n",
		 view->size_pages << (PAGE_SHIFT - 10),
		 (u64)view->target_bp << (VIRTIO_BALLOON_PFN_SHIFT - 10));
}

static void virtballoon_note_reached(struct virtballoon *vb)
{
	if (vb->is_short)
		dev_info(&vb->vdev->dev, "balloon at the host's target\n");
	vb->is_short = false;
}

/* One line when the device stops answering, one when it answers again. */
static void virtballoon_note_stalled(struct virtballoon *vb, bool stalled)
{
	if (stalled == vb->is_stalled)
		return;
	vb->is_stalled = stalled;
	if (stalled)
		dev_warn(&vb->vdev->dev,
			 "no answer from the device for %d s: pages it was told of are kept for it\n",
			 VIRTBALLOON_ACK_MS / 1000);
	else
		dev_info(&vb->vdev->dev, "the device answers again\n");
}

/* Carries out @step. Returns how long to sleep before the next one. */
static unsigned int virtballoon_do_step(struct virtballoon *vb,
					const struct virtballoon_view *view,
					struct virtballoon_step step)
{
	long nr_done = 0;

	if (step.action == VIRTBALLOON_INFLATE)
		nr_done = virtballoon_inflate_batch(vb, step.nr_pages);
	else if (step.action == VIRTBALLOON_DEFLATE)
		nr_done = virtballoon_deflate_batch(vb, step.nr_pages,
						    VIRTBALLOON_ACK_MS, true);
	if (nr_done == -EIO) {
		virtballoon_fail(vb, "queue broken");
		return 0;
	}
	if (nr_done == -EINTR)
		return 0;
	if (step.action != VIRTBALLOON_WAIT)
		virtballoon_note_stalled(vb, nr_done == -ETIMEDOUT);
	virtballoon_write_actual(vb);
	if (step.action == VIRTBALLOON_INFLATE && nr_done > 0)
		virtballoon_queue_watch(vb, VIRTBALLOON_WATCH_MS);
	/*
	 * Beside a file that is read, allocations fail now and then although
	 * reclaim makes progress. As long as it does, go on.
	 */
	if (nr_done > 0 &&
	    nr_done >= min_t(unsigned long, step.nr_pages,
			     VIRTBALLOON_SLOT_PAGES)) {
		vb->retry_ms = 0;
		return virtballoon_calc_pause(view, step.action, nr_done);
	}
	vb->retry_ms = virtballoon_calc_retry(vb->retry_ms);
	/* Memory that is only under way somewhere is back by then. */
	if (step.action != VIRTBALLOON_DEFLATE && nr_done >= 0 &&
	    vb->retry_ms >= VIRTBALLOON_RETRY_NOTE_MS)
		virtballoon_note_short(vb, view);
	return max(vb->retry_ms, view->hold_ms);
}

/* At the target, apart from buffers that the device may still have. */
static void virtballoon_rest(struct virtballoon *vb)
{
	bool busy, broken;

	scoped_guard(mutex, &vb->lock) {
		busy = vb->inflate.nr_busy || vb->deflate.nr_busy;
		broken = virtqueue_is_broken(vb->inflate.vq) ||
			 virtqueue_is_broken(vb->deflate.vq);
	}
	if (broken) {
		virtballoon_fail(vb, "queue broken");
		return;
	}
	virtballoon_write_actual(vb);
	virtballoon_relax(vb, VIRTBALLOON_AWAKE_SIZE);
	if (busy) {
		vb->retry_ms = virtballoon_calc_retry(vb->retry_ms);
		virtballoon_queue_size(vb, vb->retry_ms);
		return;
	}
	vb->retry_ms = 0;
	virtballoon_note_reached(vb);
	virtballoon_note_stalled(vb, false);
}

/*
 * One batch a run: the workqueue is freezable, and suspend waits for the end
 * of a run, not for the end of an inflation.
 */
static void virtballoon_size_func(struct work_struct *work)
{
	struct virtballoon *vb = container_of(to_delayed_work(work),
					      struct virtballoon, size_work);
	struct virtballoon_view view = {};
	struct virtballoon_step step;
	unsigned int delay_ms;

	if (READ_ONCE(vb->gone)) {
		virtballoon_drain(vb);
		virtballoon_relax(vb, VIRTBALLOON_AWAKE_SIZE);
		/* Compaction will put back what it has isolated. */
		if (READ_ONCE(vb->size_pages))
			virtballoon_queue_size(vb, VIRTBALLOON_RETRY_MIN_MS);
		return;
	}
	virtballoon_look(vb, &view);
	step = virtballoon_plan_size(&view);
	if (step.action == VIRTBALLOON_REST) {
		virtballoon_rest(vb);
		return;
	}
	delay_ms = virtballoon_do_step(vb, &view, step);
	/* Out of reach: no reason to keep anyone awake. */
	if (delay_ms)
		virtballoon_relax(vb, VIRTBALLOON_AWAKE_SIZE);
	virtballoon_queue_size(vb, delay_ms);
}

/* ------------------------------------------------------------------------
 * Rescue on OOM
 */

/*
 * One look at a rescue that ends when @goal_pages have been freed since the
 * driver was bound. Returns whether a wait could bring it further.
 */
static bool virtballoon_rescue_some(struct virtballoon *vb,
				    unsigned long goal_pages)
{
	unsigned long left_pages;

	guard(mutex)(&vb->lock);
	virtballoon_reap(vb, &vb->inflate);
	virtballoon_reap(vb, &vb->deflate);
	if (vb->freed_pages >= goal_pages || vb->gone)
		return false;
	left_pages = goal_pages - vb->freed_pages;
	if (left_pages > vb->deflate.owned_pages)
		virtballoon_send_deflate(vb, left_pages -
					 vb->deflate.owned_pages);
	/* Either acknowledgments free pages, or they free slots for more. */
	return vb->freed_pages < goal_pages && vb->size_pages &&
	       vb->deflate.nr_busy;
}

/*
 * The guest is out of memory and others wait: where the device insists on
 * being told first, or is slow to return the slots, the wait is short.
 */
static void virtballoon_rescue(struct virtballoon *vb, unsigned long goal_pages)
{
	unsigned long deadline = jiffies +
				 msecs_to_jiffies(VIRTBALLOON_OOM_ACK_MS);

	for (;;) {
		int acks = atomic_read(&vb->acks);

		if (!virtballoon_rescue_some(vb, goal_pages) ||
		    time_after(jiffies, deadline))
			return;
		virtballoon_doze(vb, acks);
	}
}

/*
 * Releases what the policy says. Returns the guest pages that left the balloon
 * meanwhile, whoever released them.
 */
static unsigned long virtballoon_relieve(struct virtballoon *vb, bool is_oom)
{
	unsigned long in_use_pages = virtballoon_in_use_pages();
	unsigned long before_pages, nr_pages;

	scoped_guard(mutex, &vb->lock) {
		if (!vb->size_pages && !vb->inflate.owned_pages)
			return 0;
		nr_pages = virtballoon_plan_relief(&vb->relief,
						   virtballoon_now_ms(),
						   in_use_pages, is_oom);
		before_pages = vb->freed_pages;
	}
	if (READ_ONCE(vb->gone))
		virtballoon_drain(vb);
	else
		virtballoon_rescue(vb, before_pages + nr_pages);
	/* It writes `actual' and sees to the way back. */
	virtballoon_run_size(vb);
	guard(mutex)(&vb->lock);
	return vb->freed_pages - before_pages;
}

/*
 * Called with oom_lock held, before anything is killed. Takes @lock, whose
 * holders neither allocate nor wait: a notifier that gave up on a busy lock
 * would have processes killed while the balloon has pages.
 */
static int virtballoon_oom_notify(struct notifier_block *nb,
				  unsigned long unused, void *parm)
{
	struct virtballoon *vb = container_of(nb, struct virtballoon, oom_nb);
	unsigned long *freed_pages = parm;

	*freed_pages += virtballoon_relieve(vb, true);
	virtballoon_hurry_watch(vb);
	return NOTIFY_OK;
}

/* ------------------------------------------------------------------------
 * Rescue before OOM: long before memory is out, a guest can spend all its time
 * on reading back the programs that it has just evicted.
 */

/*
 * Takes one look at the counters. Sees no thrashing without
 * CONFIG_VM_EVENT_COUNTERS: they stay 0.
 */
static bool virtballoon_is_thrashing(struct virtballoon *vb, u64 now_ms)
{
	struct virtballoon_watch now = { .last_ms = now_ms };

	all_vm_events(vb->watch_events);
	now.majfaults = vb->watch_events[PGMAJFAULT];
	now.refaults = global_node_page_state(WORKINGSET_REFAULT_ANON) +
		       global_node_page_state(WORKINGSET_REFAULT_FILE);
	return virtballoon_plan_watch(&vb->watch, &now);
}

/* Whether it is time for a release, for either reason. */
static bool virtballoon_needs_relief(struct virtballoon *vb, u64 now_ms)
{
	unsigned long free_pages = global_zone_page_state(NR_FREE_PAGES);
	unsigned long reserve_pages = virtballoon_reserve_pages(vb);
	bool is_thrashing = virtballoon_is_thrashing(vb, now_ms);
	bool may_feed;

	guard(mutex)(&vb->lock);
	may_feed = virtballoon_plan_feed(&vb->watch, &vb->relief, now_ms,
					 free_pages, reserve_pages);
	if (is_thrashing && READ_ONCE(thrash_rescue))
		return may_feed;
	return virtballoon_plan_follow(&vb->relief, now_ms,
				       virtballoon_in_use_pages());
}

/* Looks while there is something to give. */
static void virtballoon_watch_func(struct work_struct *work)
{
	struct virtballoon *vb = container_of(to_delayed_work(work),
					      struct virtballoon, watch_work);
	u64 now_ms = virtballoon_now_ms();
	unsigned int delay_ms;

	if (!READ_ONCE(vb->size_pages) || READ_ONCE(vb->gone)) {
		vb->watch.last_ms = 0;
		return;
	}
	if (virtballoon_needs_relief(vb, now_ms))
		virtballoon_relieve(vb, false);
	scoped_guard(mutex, &vb->lock)
		delay_ms = virtballoon_calc_watch(&vb->relief, now_ms,
						  vb->watch.has_majfaults);
	virtballoon_queue_watch(vb, delay_ms);
}

/* ------------------------------------------------------------------------
 * Statistics
 */

/* Counters that the device is told as they are, or in bytes */
static const struct {
	u16 tag;
	u16 event;
	u16 shift;
} virtballoon_events[] = {
	{ VIRTIO_BALLOON_S_SWAP_IN,		PSWPIN, PAGE_SHIFT },
	{ VIRTIO_BALLOON_S_SWAP_OUT,		PSWPOUT, PAGE_SHIFT },
	{ VIRTIO_BALLOON_S_MAJFLT,		PGMAJFAULT, 0 },
	{ VIRTIO_BALLOON_S_MINFLT,		PGFAULT, 0 },
	{ VIRTIO_BALLOON_S_OOM_KILL,		OOM_KILL, 0 },
	{ VIRTIO_BALLOON_S_ASYNC_SCAN,		PGSCAN_KSWAPD, PAGE_SHIFT },
	{ VIRTIO_BALLOON_S_DIRECT_SCAN,		PGSCAN_DIRECT, PAGE_SHIFT },
	{ VIRTIO_BALLOON_S_ASYNC_RECLAIM,	PGSTEAL_KSWAPD, PAGE_SHIFT },
	{ VIRTIO_BALLOON_S_DIRECT_RECLAIM,	PGSTEAL_DIRECT, PAGE_SHIFT },
#ifdef CONFIG_HUGETLB_PAGE
	{ VIRTIO_BALLOON_S_HTLB_PGALLOC,	HTLB_BUDDY_PGALLOC, 0 },
	{ VIRTIO_BALLOON_S_HTLB_PGFAIL,		HTLB_BUDDY_PGALLOC_FAIL, 0 },
#endif
};

static void virtballoon_stat_set(struct virtballoon *vb, unsigned int i,
				 u16 tag, u64 val)
{
	vb->stats[i].tag = cpu_to_virtio16(vb->vdev, tag);
	vb->stats[i].val = cpu_to_virtio64(vb->vdev, val);
}

/* Direct reclaims are counted by zone. */
static u64 virtballoon_count_stalls(const unsigned long *events)
{
	const unsigned long *stalls = events + ALLOCSTALL_NORMAL - ZONE_NORMAL;
	u64 sum = 0;
	int zone;

	for (zone = 0; zone < MAX_NR_ZONES; zone++)
		sum += stalls[zone];
	return sum;
}

/* Fills in what comes from event counters, returns how many. */
static unsigned int virtballoon_stat_events(struct virtballoon *vb)
{
	unsigned int i;

	/* Not counted by this kernel: the device gets a smaller set. */
	if (!IS_ENABLED(CONFIG_VM_EVENT_COUNTERS))
		return 0;
	all_vm_events(vb->events);
	for (i = 0; i < ARRAY_SIZE(virtballoon_events); i++)
		virtballoon_stat_set(vb, i, virtballoon_events[i].tag,
				     (u64)vb->events[virtballoon_events[i].event]
				     << virtballoon_events[i].shift);
	virtballoon_stat_set(vb, i++, VIRTIO_BALLOON_S_ALLOC_STALL,
			     virtballoon_count_stalls(vb->events));
	return i;
}

/* Fills in the whole buffer; the set is the same each time (spec). */
static unsigned int virtballoon_stat_all(struct virtballoon *vb)
{
	unsigned int i = virtballoon_stat_events(vb);
	struct sysinfo info;

	BUILD_BUG_ON(ARRAY_SIZE(virtballoon_events) + 5 > VIRTIO_BALLOON_S_NR);
	si_meminfo(&info);
	virtballoon_stat_set(vb, i++, VIRTIO_BALLOON_S_MEMFREE,
			     (u64)info.freeram << PAGE_SHIFT);
	virtballoon_stat_set(vb, i++, VIRTIO_BALLOON_S_MEMTOT,
			     (u64)info.totalram << PAGE_SHIFT);
	virtballoon_stat_set(vb, i++, VIRTIO_BALLOON_S_AVAIL,
			     (u64)si_mem_available() << PAGE_SHIFT);
	virtballoon_stat_set(vb, i++, VIRTIO_BALLOON_S_CACHES,
			     (u64)global_node_page_state(NR_FILE_PAGES)
			     << PAGE_SHIFT);
	return i;
}

/* Makes the one buffer available, without a kick. */
static int virtballoon_stat_send(struct virtballoon *vb)
{
	unsigned int nr_stats = virtballoon_stat_all(vb);
	struct scatterlist sg;

	sg_init_one(&sg, vb->stats, nr_stats * sizeof(vb->stats[0]));
	return virtqueue_add_outbuf(vb->stats_vq, &sg, 1, vb, GFP_KERNEL);
}

/*
 * The device asks for statistics by giving the buffer back, and may take its
 * time or never do it. Some devices call back with nothing given back; then
 * the buffer is still theirs and is not touched.
 */
static void virtballoon_stats_func(struct work_struct *work)
{
	struct virtballoon *vb = container_of(work, struct virtballoon,
					      stats_work);
	unsigned int len;

	/* First, as the next request may come before this is over. */
	virtballoon_relax(vb, VIRTBALLOON_AWAKE_STATS);
	if (!READ_ONCE(vb->gone) && virtqueue_get_buf(vb->stats_vq, &len)) {
		if (virtballoon_stat_send(vb))
			dev_warn(&vb->vdev->dev,
				 "statistics queue broken: no more statistics\n");
		else
			virtqueue_kick(vb->stats_vq);
	}
}

static void virtballoon_stats_asked(struct virtqueue *vq)
{
	struct virtballoon *vb = vq->vdev->priv;

	guard(spinlock_irqsave)(&vb->event_lock);
	if (vb->stopping)
		return;
	virtballoon_stay_awake(vb, VIRTBALLOON_AWAKE_STATS);
	queue_work(vb->wq, &vb->stats_work);
}

/* ------------------------------------------------------------------------
 * Free page hinting
 *
 * Around a migration the host asks which memory is free. The driver allocates
 * blocks, names them, and keeps them until the host is done, so that their
 * state does not change under the host's feet. A block is never let go while
 * the device still has its buffer: some devices discard what a buffer names
 * when they come to it.
 */

/* Frees up to @nr_blocks of @list; returns how many. */
static unsigned long virtballoon_hint_free(struct virtballoon *vb,
					   struct list_head *list,
					   unsigned long nr_blocks)
{
	unsigned long nr_freed;
	struct page *block;

	for (nr_freed = 0; nr_freed < nr_blocks; nr_freed++) {
		scoped_guard(spinlock, &vb->hint_lock) {
			block = list_first_entry_or_null(list, struct page,
							 lru);
			if (block)
				list_del(&block->lru);
			if (block && list == &vb->hint_held)
				vb->hint_nr_held--;
		}
		if (!block)
			break;
		__free_pages(block, VIRTBALLOON_HINT_ORDER);
		cond_resched();
	}
	return nr_freed;
}

/* Collects used buffers: the host has seen these blocks. */
static void virtballoon_hint_reap(struct virtballoon *vb)
{
	unsigned int len;
	void *token;

	while (!READ_ONCE(vb->gone) &&
	       (token = virtqueue_get_buf(vb->hint_vq, &len))) {
		vb->hint_busy--;
		if (token == &vb->hint_start || token == &vb->hint_stop)
			continue;
		guard(spinlock)(&vb->hint_lock);
		list_move_tail(&((struct page *)token)->lru, &vb->hint_held);
		vb->hint_nr_held++;
	}
}

/* Waits until at most @nr_busy buffers are in flight. */
static int virtballoon_hint_wait(struct virtballoon *vb, unsigned int nr_busy)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(VIRTBALLOON_ACK_MS);

	for (;;) {
		int acks = atomic_read(&vb->acks);

		virtballoon_hint_reap(vb);
		if (vb->hint_busy <= nr_busy)
			return 0;
		if (READ_ONCE(vb->gone) || virtqueue_is_broken(vb->hint_vq))
			return -EIO;
		if (READ_ONCE(vb->stopping))
			return -EINTR;
		if (time_after(jiffies, deadline))
			return -ETIMEDOUT;
		virtballoon_doze(vb, acks);
	}
}

/* Command ids go in native endianness on legacy devices (spec). */
static int virtballoon_hint_send_id(struct virtballoon *vb, __virtio32 *buf,
				    u32 id)
{
	struct scatterlist sg;
	int err;

	*buf = cpu_to_virtio32(vb->vdev, id);
	sg_init_one(&sg, buf, sizeof(*buf));
	err = virtqueue_add_outbuf(vb->hint_vq, &sg, 1, buf, GFP_KERNEL);
	if (err)
		return err;
	vb->hint_busy++;
	virtqueue_kick(vb->hint_vq);
	return 0;
}

/* Allocates and names one block. -ENOMEM: there is none to spare. */
static int virtballoon_hint_block(struct virtballoon *vb)
{
	struct scatterlist sg;
	struct page *block;
	int err;

	if (virtballoon_spare_pages(vb, false) < (long)VIRTBALLOON_HINT_PAGES)
		return -ENOMEM;
	block = alloc_pages(VIRTBALLOON_HINT_GFP, VIRTBALLOON_HINT_ORDER);
	if (!block)
		return -ENOMEM;
	sg_init_table(&sg, 1);
	sg_set_page(&sg, block, VIRTBALLOON_HINT_PAGES << PAGE_SHIFT, 0);
	err = virtqueue_add_inbuf(vb->hint_vq, &sg, 1, block, GFP_KERNEL);
	if (err) {
		__free_pages(block, VIRTBALLOON_HINT_ORDER);
		return err;
	}
	vb->hint_busy++;
	guard(spinlock)(&vb->hint_lock);
	list_add_tail(&block->lru, &vb->hint_sent);
	return 0;
}

/* The host changed something, or this is to end: look again. */
static bool virtballoon_hint_interrupted(struct virtballoon *vb)
{
	return READ_ONCE(vb->hint_changed) || READ_ONCE(vb->stopping) ||
	       READ_ONCE(vb->gone);
}

/* Names blocks until there are none, or the host wants something else. */
static int virtballoon_hint_blocks(struct virtballoon *vb)
{
	/* One entry stays free for the id that ends the sequence. */
	unsigned int depth = min(VIRTBALLOON_HINT_DEPTH,
				 virtqueue_get_vring_size(vb->hint_vq) - 1);
	int err = depth ? 0 : -ENOSPC;

	while (!err && !virtballoon_hint_interrupted(vb)) {
		cond_resched();
		while (!err && vb->hint_busy < depth)
			err = virtballoon_hint_block(vb);
		virtqueue_kick(vb->hint_vq);
		if (!err)
			err = virtballoon_hint_wait(vb, depth / 2);
	}
	return err == -ENOMEM ? 0 : err;
}

/*
 * Serves one request: its id, blocks, and STOP (spec: "Free Page Hinting").
 * Without its id nothing of it is sent.
 */
static void virtballoon_hint_serve(struct virtballoon *vb, u32 id)
{
	int err;

	/* The buffers of the ids must be back before they are used again. */
	err = virtballoon_hint_wait(vb, 0);
	if (!err)
		err = virtballoon_hint_send_id(vb, &vb->hint_start, id);
	if (!err) {
		vb->hint_id = id;
		err = virtballoon_hint_blocks(vb);
		if (!err || err == -ETIMEDOUT)
			err = virtballoon_hint_send_id(vb, &vb->hint_stop,
						       VIRTIO_BALLOON_CMD_ID_STOP);
		err = err ?: virtballoon_hint_wait(vb, 0);
	}
	if (err == -EIO)
		virtballoon_fail(vb, "queue broken");
	else if (err && err != -EINTR)
		dev_warn_ratelimited(&vb->vdev->dev,
				     "free page hinting ended early: %d\n",
				     err);
}

/* Returns what may be returned; what the device still has, later. */
static void virtballoon_hint_release(struct virtballoon *vb)
{
	virtballoon_hint_reap(vb);
	virtballoon_hint_free(vb, &vb->hint_held, ULONG_MAX);
}

static void virtballoon_hint_queue(struct virtballoon *vb, unsigned int ms)
{
	guard(spinlock_irqsave)(&vb->event_lock);
	if (!vb->stopping)
		queue_delayed_work(vb->wq, &vb->hint_work,
				   msecs_to_jiffies(ms));
}

/*
 * Runs when the config space has changed, and once more a while after the last
 * request: a host that never says DONE does not keep the memory.
 *
 * QEMU shows the command id only until the sequence has begun, so it is read
 * when the config space has changed and at no other time.
 */
static void virtballoon_hint_func(struct work_struct *work)
{
	struct virtballoon *vb = container_of(to_delayed_work(work),
					      struct virtballoon, hint_work);
	bool changed;
	u32 id;

	if (READ_ONCE(vb->gone)) {
		virtballoon_hint_free(vb, &vb->hint_sent, ULONG_MAX);
		virtballoon_hint_free(vb, &vb->hint_held, ULONG_MAX);
		vb->hint_busy = 0;
		return;
	}
	scoped_guard(spinlock_irqsave, &vb->event_lock) {
		changed = vb->hint_changed;
		WRITE_ONCE(vb->hint_changed, false);
	}
	if (!changed) {
		virtballoon_hint_release(vb);
	} else {
		virtio_cread_le(vb->vdev, struct virtio_balloon_config,
				free_page_hint_cmd_id, &id);
		switch (virtballoon_plan_hint(vb->hint_id, id)) {
		case VIRTBALLOON_HINT_BEGIN:
			virtballoon_hint_serve(vb, id);
			break;
		case VIRTBALLOON_HINT_RELEASE:
			virtballoon_hint_release(vb);
			vb->hint_id = VIRTIO_BALLOON_CMD_ID_STOP;
			break;
		case VIRTBALLOON_HINT_NOTHING:
			break;
		}
	}
	if (vb->hint_busy || READ_ONCE(vb->hint_nr_held))
		virtballoon_hint_queue(vb, VIRTBALLOON_HINT_HOLD_MS);
}

/* Hinted blocks are the only thing that the shrinker shrinks. */
static unsigned long virtballoon_shrink_count(struct shrinker *shrinker,
					      struct shrink_control *sc)
{
	struct virtballoon *vb = shrinker->private_data;

	return READ_ONCE(vb->hint_nr_held) * VIRTBALLOON_HINT_PAGES ?:
	       SHRINK_EMPTY;
}

static unsigned long virtballoon_shrink_scan(struct shrinker *shrinker,
					     struct shrink_control *sc)
{
	struct virtballoon *vb = shrinker->private_data;
	unsigned long nr_blocks = DIV_ROUND_UP(sc->nr_to_scan,
					       VIRTBALLOON_HINT_PAGES);

	nr_blocks = virtballoon_hint_free(vb, &vb->hint_held, nr_blocks);
	return nr_blocks ? nr_blocks * VIRTBALLOON_HINT_PAGES : SHRINK_STOP;
}

/* ------------------------------------------------------------------------
 * Free page reporting
 */

/*
 * Waits for the device. The pages are nobody's meanwhile: without an answer
 * only a reset makes it safe to let them go, so giving up comes late, unless
 * the driver is about to stop.
 */
static int virtballoon_report_wait(struct virtballoon *vb)
{
	unsigned long begin = jiffies;
	unsigned int len;

	for (;;) {
		int acks = atomic_read(&vb->acks);
		unsigned int limit_ms = READ_ONCE(vb->stopping) ?
			VIRTBALLOON_STOP_MS : VIRTBALLOON_REPORT_MS;

		if (READ_ONCE(vb->gone))
			return -EIO;
		if (virtqueue_get_buf(vb->report_vq, &len))
			return 0;
		if (virtqueue_is_broken(vb->report_vq) ||
		    time_after(jiffies, begin + msecs_to_jiffies(limit_ms))) {
			virtballoon_fail(vb, "no answer to a free page report");
			return -EIO;
		}
		virtballoon_doze(vb, acks);
	}
}

/* Reports @nents blocks that fit into the queue. */
static int virtballoon_report_some(struct virtballoon *vb,
				   struct scatterlist *sg, unsigned int nents)
{
	int err;

	if (READ_ONCE(vb->stopping) || READ_ONCE(vb->gone))
		return -EBUSY;
	/* Writable for the device; without INDIRECT_DESC nothing is allocated */
	err = virtqueue_add_inbuf(vb->report_vq, sg, nents, vb, GFP_NOWAIT);
	if (err)
		return err;
	virtqueue_kick(vb->report_vq);
	return virtballoon_report_wait(vb);
}

static int virtballoon_report(struct page_reporting_dev_info *reporting,
			      struct scatterlist *sg, unsigned int nents)
{
	struct virtballoon *vb = container_of(reporting, struct virtballoon,
					      reporting);
	unsigned int room = virtqueue_get_vring_size(vb->report_vq);
	int err = 0;

	for (; nents > room && !err; nents -= room, sg += room) {
		sg_mark_end(&sg[room - 1]);
		err = virtballoon_report_some(vb, sg, room);
		sg_unmark_end(&sg[room - 1]);
	}
	return err ?: virtballoon_report_some(vb, sg, nents);
}

/* The guest runs well without it: a failure is no reason to do without all. */
static void virtballoon_start_reporting(struct virtballoon *vb)
{
	int err;

	if (!vb->report_vq)
		return;
	vb->reporting.report = virtballoon_report;
	vb->reporting.order = min(VIRTBALLOON_REPORT_ORDER, MAX_PAGE_ORDER);
	err = page_reporting_register(&vb->reporting);
	if (err)
		dev_warn(&vb->vdev->dev, "no free page reporting: %d\n", err);
	vb->reporting_on = !err;
}

static void virtballoon_stop_reporting(struct virtballoon *vb)
{
	if (vb->reporting_on)
		page_reporting_unregister(&vb->reporting);
	vb->reporting_on = false;
}

/* ------------------------------------------------------------------------
 * Start and stop, shared by probe, remove, freeze and restore
 */

static void virtballoon_config_changed(struct virtio_device *vdev)
{
	struct virtballoon *vb = vdev->priv;

	scoped_guard(spinlock_irqsave, &vb->event_lock) {
		if (vb->stopping)
			return;
		virtballoon_stay_awake(vb, VIRTBALLOON_AWAKE_SIZE);
		vb->nr_changes++;
		WRITE_ONCE(vb->hint_changed, vb->hint_vq);
	}
	virtballoon_run_size(vb);
	virtballoon_run_hint(vb);
}

/*
 * Queues exist for negotiated features only, and are numbered without gaps.
 * The specification's text numbers them by feature; devices do not.
 */
static int virtballoon_find_vqs(struct virtballoon *vb)
{
	struct virtqueue_info info[5] = {
		{ "inflate", virtballoon_acked },
		{ "deflate", virtballoon_acked },
	};
	struct virtqueue **place[5] = { &vb->inflate.vq, &vb->deflate.vq };
	struct virtqueue *vqs[5];
	unsigned int i, n = 2;
	int err;

	if (virtio_has_feature(vb->vdev, VIRTIO_BALLOON_F_STATS_VQ)) {
		info[n].name = "stats";
		info[n].callback = virtballoon_stats_asked;
		place[n++] = &vb->stats_vq;
	}
	if (virtio_has_feature(vb->vdev, VIRTIO_BALLOON_F_FREE_PAGE_HINT)) {
		info[n].name = "free_page_hint";
		info[n].callback = virtballoon_acked;
		place[n++] = &vb->hint_vq;
	}
	if (virtio_has_feature(vb->vdev, VIRTIO_BALLOON_F_REPORTING)) {
		info[n].name = "reporting";
		info[n].callback = virtballoon_acked;
		place[n++] = &vb->report_vq;
	}
	err = virtio_find_vqs(vb->vdev, n, vqs, info, NULL);
	if (err)
		return err;
	for (i = 0; i < n; i++)
		*place[i] = vqs[i];
	return 0;
}

static void virtballoon_del_vqs(struct virtballoon *vb)
{
	vb->vdev->config->del_vqs(vb->vdev);
	vb->inflate.vq = NULL;
	vb->deflate.vq = NULL;
	vb->stats_vq = NULL;
	vb->hint_vq = NULL;
	vb->report_vq = NULL;
	vb->have_vqs = false;
}

static void virtballoon_size_ring(struct virtballoon_ring *ring)
{
	ring->nr_slots = min(VIRTBALLOON_RING_SLOTS,
			     virtqueue_get_vring_size(ring->vq));
}

/* What the device must find before DRIVER_OK (spec: "Device Initialization") */
static int virtballoon_prepare(struct virtballoon *vb)
{
	u32 poison_val = virtballoon_calc_poison(want_init_on_free());

	virtballoon_size_ring(&vb->inflate);
	virtballoon_size_ring(&vb->deflate);
	if (virtio_has_feature(vb->vdev, VIRTIO_BALLOON_F_PAGE_POISON))
		virtio_cwrite_le(vb->vdev, struct virtio_balloon_config,
				 poison_val, &poison_val);
	return vb->stats_vq ? virtballoon_stat_send(vb) : 0;
}

/* The balloon is empty, everything else initialised, the device reset. */
static int virtballoon_start(struct virtballoon *vb)
{
	int err;

	err = virtballoon_find_vqs(vb);
	if (err)
		return err;
	vb->have_vqs = true;
	err = virtballoon_prepare(vb);
	if (err) {
		virtio_reset_device(vb->vdev);
		virtballoon_del_vqs(vb);
		return err;
	}
	vb->hint_id = VIRTIO_BALLOON_CMD_ID_STOP;
	scoped_guard(spinlock_irqsave, &vb->event_lock) {
		WRITE_ONCE(vb->hint_changed, vb->hint_vq);
		WRITE_ONCE(vb->stopping, false);
	}
	virtio_device_ready(vb->vdev);
	scoped_guard(mutex, &vb->lock) {
		/* Left by whoever had the device before */
		virtio_cread_le(vb->vdev, struct virtio_balloon_config, actual,
				&vb->actual_bp);
		WRITE_ONCE(vb->gone, false);
	}
	if (vb->stats_vq) {
		virtqueue_kick(vb->stats_vq);
		/* The device may have asked while it still counted as gone. */
		scoped_guard(spinlock_irqsave, &vb->event_lock)
			queue_work(vb->wq, &vb->stats_work);
	}
	virtballoon_start_reporting(vb);
	virtballoon_run_size(vb);
	virtballoon_run_hint(vb);
	return 0;
}

/* Empties the balloon and tells the device, as long as it answers. */
static void virtballoon_give_back(struct virtballoon *vb)
{
	long nr_done;

	virtballoon_wait(vb, &vb->inflate, 0, VIRTBALLOON_STOP_MS, false);
	do {
		nr_done = virtballoon_deflate_batch(vb, ULONG_MAX,
						    VIRTBALLOON_STOP_MS, false);
		cond_resched();
	} while (nr_done > 0);
	virtballoon_write_actual(vb);
}

/*
 * Takes back what is left after the reset. What compaction has isolated comes
 * back by itself, soon; it must, since those pages refer to the balloon.
 */
static bool virtballoon_empty(struct virtballoon *vb)
{
	unsigned int tries;

	for (tries = 0; tries < 500; tries++) {
		virtballoon_drain(vb);
		if (!vb->size_pages)
			return true;
		msleep(20);
	}
	dev_err(&vb->vdev->dev, "%lu pages of the balloon do not come back\n",
		vb->size_pages);
	return false;
}

/*
 * Undoes start, from any state. Returns false if pages still refer to the
 * balloon, which then must not be freed.
 */
static bool virtballoon_stop(struct virtballoon *vb)
{
	bool empty;

	scoped_guard(spinlock_irqsave, &vb->event_lock)
		WRITE_ONCE(vb->stopping, true);
	virtballoon_stop_reporting(vb);
	cancel_delayed_work_sync(&vb->size_work);
	cancel_delayed_work_sync(&vb->watch_work);
	cancel_delayed_work_sync(&vb->hint_work);
	cancel_work_sync(&vb->stats_work);
	if (!vb->gone)
		virtballoon_give_back(vb);
	scoped_guard(mutex, &vb->lock)
		virtballoon_reset(vb);
	empty = virtballoon_empty(vb);
	virtballoon_hint_free(vb, &vb->hint_sent, ULONG_MAX);
	virtballoon_hint_free(vb, &vb->hint_held, ULONG_MAX);
	vb->hint_busy = 0;
	if (vb->have_vqs)
		virtballoon_del_vqs(vb);
	virtballoon_relax(vb, VIRTBALLOON_AWAKE_SIZE);
	virtballoon_relax(vb, VIRTBALLOON_AWAKE_STATS);
	return empty;
}

/* ------------------------------------------------------------------------
 * The driver
 */

/* Everything that a callback or a notifier could look at, with no queue yet */
static struct virtballoon *virtballoon_new(struct virtio_device *vdev)
{
	struct virtballoon *vb;

	vb = kzalloc(sizeof(*vb), GFP_KERNEL);
	if (!vb)
		return NULL;
	vb->vdev = vdev;
	vb->gone = true;
	vb->stopping = true;
	vb->must_tell = virtio_has_feature(vdev,
					   VIRTIO_BALLOON_F_MUST_TELL_HOST);
	vb->deflate_on_oom = virtio_has_feature(vdev,
						VIRTIO_BALLOON_F_DEFLATE_ON_OOM);
	mutex_init(&vb->lock);
	spin_lock_init(&vb->event_lock);
	spin_lock_init(&vb->hint_lock);
	init_waitqueue_head(&vb->acked);
	INIT_LIST_HEAD(&vb->hint_sent);
	INIT_LIST_HEAD(&vb->hint_held);
	INIT_DELAYED_WORK(&vb->size_work, virtballoon_size_func);
	INIT_DELAYED_WORK(&vb->watch_work, virtballoon_watch_func);
	INIT_DELAYED_WORK(&vb->hint_work, virtballoon_hint_func);
	INIT_WORK(&vb->stats_work, virtballoon_stats_func);
	balloon_devinfo_init(&vb->pages);
#ifdef CONFIG_BALLOON_COMPACTION
	vb->pages.migratepage = virtballoon_migratepage;
#endif
	vb->oom_nb.notifier_call = virtballoon_oom_notify;
	vb->oom_nb.priority = VIRTBALLOON_OOM_PRIORITY;
	vb->inflate.slots = kcalloc(VIRTBALLOON_RING_SLOTS,
				    sizeof(*vb->inflate.slots), GFP_KERNEL);
	vb->deflate.slots = kcalloc(VIRTBALLOON_RING_SLOTS,
				    sizeof(*vb->deflate.slots), GFP_KERNEL);
	/* Deflating must be possible when no thread can be created for it. */
	vb->wq = alloc_workqueue("virtio_balloon", WQ_FREEZABLE | WQ_UNBOUND |
				 WQ_MEM_RECLAIM, 0);
	return vb;
}

static void virtballoon_delete(struct virtballoon *vb)
{
	if (vb->wq)
		destroy_workqueue(vb->wq);
	kfree(vb->deflate.slots);
	kfree(vb->inflate.slots);
	kfree(vb);
}

static int virtballoon_add_shrinker(struct virtballoon *vb)
{
	if (!virtio_has_feature(vb->vdev, VIRTIO_BALLOON_F_FREE_PAGE_HINT))
		return 0;
	vb->shrinker = shrinker_alloc(0, "virtio-balloon");
	if (!vb->shrinker)
		return -ENOMEM;
	vb->shrinker->count_objects = virtballoon_shrink_count;
	vb->shrinker->scan_objects = virtballoon_shrink_scan;
	vb->shrinker->private_data = vb;
	shrinker_register(vb->shrinker);
	return 0;
}

static void virtballoon_remove_shrinker(struct virtballoon *vb)
{
	if (vb->shrinker)
		shrinker_free(vb->shrinker);
}

static int virtballoon_probe(struct virtio_device *vdev)
{
	struct virtballoon *vb;
	int err = -ENOMEM;

	if (!vdev->config->get) {
		dev_err(&vdev->dev, "the device has no config space\n");
		return -EINVAL;
	}
	vb = virtballoon_new(vdev);
	if (!vb)
		return -ENOMEM;
	vdev->priv = vb;
	if (!vb->wq || !vb->inflate.slots || !vb->deflate.slots)
		goto err_delete;
	err = virtballoon_add_shrinker(vb);
	if (err)
		goto err_delete;
	if (vb->deflate_on_oom) {
		err = register_oom_notifier(&vb->oom_nb);
		if (err)
			goto err_remove_shrinker;
	}
	device_set_wakeup_capable(&vdev->dev, true);
	err = virtballoon_start(vb);
	if (err)
		goto err_unregister_oom;
	return 0;

err_unregister_oom:
	device_set_wakeup_capable(&vdev->dev, false);
	if (vb->deflate_on_oom)
		unregister_oom_notifier(&vb->oom_nb);
err_remove_shrinker:
	virtballoon_remove_shrinker(vb);
err_delete:
	vdev->priv = NULL;
	virtballoon_delete(vb);
	return err;
}

static void virtballoon_remove(struct virtio_device *vdev)
{
	struct virtballoon *vb = vdev->priv;
	bool empty;

	if (vb->deflate_on_oom)
		unregister_oom_notifier(&vb->oom_nb);
	empty = virtballoon_stop(vb);
	/* A restore that failed leaves the device in an odd state. */
	if (vdev->config->get_status(vdev))
		virtballoon_reset_device(vdev);
	virtballoon_remove_shrinker(vb);
	device_set_wakeup_capable(&vdev->dev, false);
	vdev->priv = NULL;
	if (empty)
		virtballoon_delete(vb);
	else
		__module_get(THIS_MODULE);
}

#ifdef CONFIG_PM_SLEEP
/*
 * The works are frozen by now. The device loses its state in suspend, and does
 * not get pages back from it: the balloon is emptied, and filled again later.
 */
static int virtballoon_freeze(struct virtio_device *vdev)
{
	virtballoon_stop(vdev->priv);
	return 0;
}

static int virtballoon_restore(struct virtio_device *vdev)
{
	return virtballoon_start(vdev->priv);
}
#endif

/*
 * Free pages have a content that must survive if the kernel zeroes or poisons
 * them. A device that does not learn about it must not be told of free pages
 * (spec: PAGE_REPORTING without PAGE_POISON).
 */
static int virtballoon_validate(struct virtio_device *vdev)
{
	if (!want_init_on_free() && !page_poisoning_enabled_static())
		__virtio_clear_bit(vdev, VIRTIO_BALLOON_F_PAGE_POISON);
	else if (!virtio_has_feature(vdev, VIRTIO_BALLOON_F_PAGE_POISON))
		__virtio_clear_bit(vdev, VIRTIO_BALLOON_F_REPORTING);
	/* Adding a buffer must not allocate: that is what is short here. */
	__virtio_clear_bit(vdev, VIRTIO_RING_F_INDIRECT_DESC);
	/* Page frame numbers are physical, no IOMMU translates them. */
	__virtio_clear_bit(vdev, VIRTIO_F_ACCESS_PLATFORM);
	return 0;
}

static const unsigned int virtballoon_features[] = {
	/* How pages are handed over, and what they contain */
	VIRTIO_BALLOON_F_DEFLATE_ON_OOM,
	VIRTIO_BALLOON_F_MUST_TELL_HOST,
	VIRTIO_BALLOON_F_PAGE_POISON,
	/* Each of these has a queue. */
	VIRTIO_BALLOON_F_STATS_VQ,
	VIRTIO_BALLOON_F_FREE_PAGE_HINT,
	VIRTIO_BALLOON_F_REPORTING,
};

static const struct virtio_device_id virtballoon_ids[] = {
	{ VIRTIO_ID_BALLOON, VIRTIO_DEV_ANY_ID },
	{ },
};
MODULE_DEVICE_TABLE(virtio, virtballoon_ids);

static struct virtio_driver virtballoon_driver = {
	.driver.name		= KBUILD_MODNAME,
	.id_table		= virtballoon_ids,
	.feature_table		= virtballoon_features,
	.feature_table_size	= ARRAY_SIZE(virtballoon_features),
	.validate		= virtballoon_validate,
	.probe			= virtballoon_probe,
	.remove			= virtballoon_remove,
	.config_changed		= virtballoon_config_changed,
#ifdef CONFIG_PM_SLEEP
	.freeze			= virtballoon_freeze,
	.restore		= virtballoon_restore,
#endif
};
module_virtio_driver(virtballoon_driver);

#ifdef CONFIG_VIRTIO_BALLOON_KUNIT_TEST
#include "tests/virtio_balloon_kunit.c"
#endif

MODULE_DESCRIPTION("Virtio memory balloon driver");
MODULE_LICENSE("GPL");
