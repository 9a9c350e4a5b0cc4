// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * KUnit tests of the virtio balloon driver: the policy, by its edges, and the
 * whole driver against a device that does what no good one would.
 *
 * Included at the end of virtio_balloon.c, so that what is tested can stay
 * static there.
 */

#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/xarray.h>

#define PAGES_PER_MIB	(SZ_1M >> PAGE_SHIFT)

static void units(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, virtballoon_bp_to_pages(0), 0);
	/* Rounded up: a guest with larger pages gives a whole one. */
	KUNIT_EXPECT_EQ(test, virtballoon_bp_to_pages(1), 1);
	KUNIT_EXPECT_EQ(test, virtballoon_bp_to_pages(VIRTBALLOON_BP_PER_PAGE),
			1);
	KUNIT_EXPECT_EQ(test,
			virtballoon_bp_to_pages(VIRTBALLOON_BP_PER_PAGE + 1), 2);
	KUNIT_EXPECT_GE(test, virtballoon_bp_to_pages(U32_MAX),
			U32_MAX >> VIRTBALLOON_BP_SHIFT);
	KUNIT_EXPECT_EQ(test, virtballoon_pages_to_bp(BIT_ULL(32)),
			BIT_ULL(32) << VIRTBALLOON_BP_SHIFT);
}

static void reserve(struct kunit *test)
{
	/* A microVM of 128 MiB can give half away, and more. */
	KUNIT_EXPECT_EQ(test,
			virtballoon_calc_reserve(128 * PAGES_PER_MIB, -1),
			4 * PAGES_PER_MIB);
	KUNIT_EXPECT_EQ(test,
			virtballoon_calc_reserve(1024 * PAGES_PER_MIB, -1),
			32 * PAGES_PER_MIB);
	KUNIT_EXPECT_EQ(test, virtballoon_calc_reserve(LONG_MAX, -1),
			64 * PAGES_PER_MIB);
	KUNIT_EXPECT_EQ(test, virtballoon_calc_reserve(0, -1),
			4 * PAGES_PER_MIB);
	KUNIT_EXPECT_EQ(test, virtballoon_calc_reserve(0, INT_MIN),
			4 * PAGES_PER_MIB);
	/* What the administrator says goes, up to all there is. */
	KUNIT_EXPECT_EQ(test,
			virtballoon_calc_reserve(1024 * PAGES_PER_MIB, 0), 0);
	KUNIT_EXPECT_EQ(test,
			virtballoon_calc_reserve(1024 * PAGES_PER_MIB, 100),
			100 * PAGES_PER_MIB);
	KUNIT_EXPECT_EQ(test,
			virtballoon_calc_reserve(1024 * PAGES_PER_MIB, INT_MAX),
			1024 * PAGES_PER_MIB);
}

static void retry(struct kunit *test)
{
	unsigned int ms = 0, total_ms = 0, n = 0;

	while (ms < VIRTBALLOON_RETRY_MAX_MS) {
		unsigned int next_ms = virtballoon_calc_retry(ms);

		KUNIT_ASSERT_GT(test, next_ms, ms);
		ms = next_ms;
		total_ms += ms;
		KUNIT_ASSERT_LT(test, ++n, 20);
	}
	/* Then it stays there: a minute of waiting costs few looks. */
	KUNIT_EXPECT_EQ(test, virtballoon_calc_retry(ms), ms);
	KUNIT_EXPECT_EQ(test, ms, 10000);
	KUNIT_EXPECT_LE(test, n, 8);
}

static struct virtballoon_view view_of(u32 target_pages,
				       unsigned long size_pages)
{
	struct virtballoon_view view = {
		.target_bp = virtballoon_pages_to_bp(target_pages),
		.size_pages = size_pages,
		.spare_pages = LONG_MAX,
		.room_pages = 4096,
	};

	return view;
}

static void expect_step(struct kunit *test, const struct virtballoon_view *view,
			enum virtballoon_action action, unsigned long nr_pages)
{
	struct virtballoon_step step = virtballoon_plan_size(view);

	KUNIT_EXPECT_EQ(test, step.action, action);
	if (action == VIRTBALLOON_INFLATE || action == VIRTBALLOON_DEFLATE)
		KUNIT_EXPECT_EQ(test, step.nr_pages, nr_pages);
}

static void size_towards_target(struct kunit *test)
{
	struct virtballoon_view view;

	view = view_of(0, 0);
	expect_step(test, &view, VIRTBALLOON_REST, 0);
	view = view_of(1, 0);
	expect_step(test, &view, VIRTBALLOON_INFLATE, 1);
	view = view_of(0, 1);
	expect_step(test, &view, VIRTBALLOON_DEFLATE, 1);
	view = view_of(100000, 100000);
	expect_step(test, &view, VIRTBALLOON_REST, 0);
	view = view_of(100000, 0);
	expect_step(test, &view, VIRTBALLOON_INFLATE, 4096);
	view = view_of(0, 100000);
	expect_step(test, &view, VIRTBALLOON_DEFLATE, 4096);
	/* All that a target can say */
	view = view_of(0, 0);
	view.target_bp = U32_MAX;
	expect_step(test, &view, VIRTBALLOON_INFLATE, 4096);
	/* Part of a guest page: one more page, and then rest (B17) */
	view = view_of(10, 11);
	view.target_bp++;
	expect_step(test, &view, VIRTBALLOON_REST, 0);
}

static void size_leaves_the_reserve(struct kunit *test)
{
	struct virtballoon_view view = view_of(100000, 1000);

	view.spare_pages = 0;
	expect_step(test, &view, VIRTBALLOON_WAIT, 0);
	view.spare_pages = LONG_MIN;
	expect_step(test, &view, VIRTBALLOON_WAIT, 0);
	/* Not for less than a buffer's worth ... */
	view.spare_pages = VIRTBALLOON_SLOT_PAGES - 1;
	expect_step(test, &view, VIRTBALLOON_WAIT, 0);
	view.spare_pages = VIRTBALLOON_SLOT_PAGES;
	expect_step(test, &view, VIRTBALLOON_INFLATE, VIRTBALLOON_SLOT_PAGES);
	/* ... unless nothing else is missing */
	view = view_of(1002, 1000);
	view.spare_pages = 2;
	expect_step(test, &view, VIRTBALLOON_INFLATE, 2);
	view.spare_pages = 1;
	expect_step(test, &view, VIRTBALLOON_WAIT, 0);
	/* Deflation needs no memory. */
	view = view_of(0, 1000);
	view.spare_pages = LONG_MIN;
	expect_step(test, &view, VIRTBALLOON_DEFLATE, 1000);
}

static void size_after_a_rescue(struct kunit *test)
{
	struct virtballoon_view view = view_of(100000, 1000);

	view.hold_ms = 1;
	expect_step(test, &view, VIRTBALLOON_WAIT, 0);
	view.hold_ms = 0;
	view.wary_pages = 10000;
	view.spare_pages = 9999;
	expect_step(test, &view, VIRTBALLOON_WAIT, 0);
	view.spare_pages = 10000;
	expect_step(test, &view, VIRTBALLOON_INFLATE, 4096);
	/* A target that is within what is spare is reached. */
	view = view_of(1100, 1000);
	view.wary_pages = 10000;
	view.spare_pages = 100;
	expect_step(test, &view, VIRTBALLOON_INFLATE, 100);
	/* The host lowers its target: no reason to hold anything. */
	view = view_of(500, 1000);
	view.hold_ms = 60000;
	expect_step(test, &view, VIRTBALLOON_DEFLATE, 500);
}

static void size_in_a_dump_kernel(struct kunit *test)
{
	struct virtballoon_view view = view_of(100000, 0);

	view.kdump = true;
	expect_step(test, &view, VIRTBALLOON_REST, 0);
	view.size_pages = 200000;
	expect_step(test, &view, VIRTBALLOON_DEFLATE, 4096);
}

static void pause_on_the_way_back(struct kunit *test)
{
	struct virtballoon_view view = view_of(1000000, 0);
	unsigned int batch_ms;

	KUNIT_EXPECT_EQ(test, virtballoon_calc_pause(&view, VIRTBALLOON_INFLATE,
						     4096), 0);
	view.wary_pages = 1;
	KUNIT_EXPECT_EQ(test, virtballoon_calc_pause(&view, VIRTBALLOON_DEFLATE,
						     4096), 0);
	/* From 4 GiB and from 64 MiB, back within seconds, not at once */
	batch_ms = virtballoon_calc_pause(&view, VIRTBALLOON_INFLATE, 4096);
	KUNIT_EXPECT_GT(test, batch_ms, 0);
	KUNIT_EXPECT_LT(test, batch_ms * 1000000 / 4096, 10000);
	view = view_of(0, 0);
	view.target_bp = virtballoon_pages_to_bp(64 * PAGES_PER_MIB);
	view.wary_pages = 1;
	KUNIT_EXPECT_EQ(test,
			virtballoon_calc_pause(&view, VIRTBALLOON_INFLATE,
					       VIRTBALLOON_RING_SLOTS *
					       VIRTBALLOON_SLOT_PAGES),
			VIRTBALLOON_WATCH_MS);
	KUNIT_EXPECT_EQ(test, virtballoon_calc_pause(&view, VIRTBALLOON_INFLATE,
						     ULONG_MAX),
			VIRTBALLOON_WATCH_MS);
}

#define IN_USE	1000000UL	/* memory in use in the tests of rescues */

static void relief_in_proportion(struct kunit *test)
{
	struct virtballoon_relief relief = {};
	unsigned long sum_pages = 0, last_pages = 0, nr_pages;
	unsigned int n;

	for (n = 0; sum_pages < 1400 * PAGES_PER_MIB; n++) {
		nr_pages = virtballoon_plan_relief(&relief, 1000 + n, IN_USE,
						   true);
		KUNIT_EXPECT_GE(test, nr_pages, last_pages);
		/* The excess is bounded: 32 MiB, or a fifth of all before. */
		KUNIT_EXPECT_LE(test, nr_pages,
				max(32 * PAGES_PER_MIB, sum_pages / 5));
		last_pages = nr_pages;
		sum_pages += nr_pages;
	}
	KUNIT_EXPECT_LE(test, n, 40);
	KUNIT_EXPECT_EQ(test, relief.released_pages, sum_pages);
}

static void relief_begins_small(struct kunit *test)
{
	struct virtballoon_relief relief = {};

	KUNIT_EXPECT_EQ(test, virtballoon_plan_relief(&relief, 0, IN_USE, true),
			4 * PAGES_PER_MIB);
	/* ... with more ahead of OOM */
	relief = (struct virtballoon_relief){};
	KUNIT_EXPECT_EQ(test,
			virtballoon_plan_relief(&relief, 0, IN_USE, false),
			16 * PAGES_PER_MIB);
}

static void relief_by_episodes(struct kunit *test)
{
	struct virtballoon_relief relief = {};
	u64 now_ms = 5;
	int i;

	for (i = 0; i < 10; i++)
		virtballoon_plan_relief(&relief, now_ms, IN_USE, true);
	KUNIT_EXPECT_EQ(test, virtballoon_calc_hold(&relief, now_ms), 5000);
	/* Within the time to hold off, it is the same one. */
	now_ms += 4999;
	KUNIT_EXPECT_EQ(test, virtballoon_calc_hold(&relief, now_ms), 1);
	KUNIT_EXPECT_GT(test,
			virtballoon_plan_relief(&relief, now_ms, IN_USE, true),
			4 * PAGES_PER_MIB);
	/* After it, a new one, and a longer time. */
	for (i = 0; i < 10; i++) {
		unsigned int hold_ms = relief.hold_ms;

		now_ms += hold_ms;
		KUNIT_EXPECT_EQ(test, virtballoon_calc_hold(&relief, now_ms), 0);
		KUNIT_EXPECT_EQ(test,
				virtballoon_plan_relief(&relief, now_ms, IN_USE,
							true),
				4 * PAGES_PER_MIB);
		KUNIT_EXPECT_EQ(test, relief.hold_ms,
				min(2 * hold_ms, 60000U));
	}
	/* Long after, all is forgotten. */
	now_ms += 4 * 60000;
	virtballoon_plan_relief(&relief, now_ms, IN_USE, true);
	KUNIT_EXPECT_EQ(test, relief.hold_ms, 5000);
}

static void relief_and_the_clock(struct kunit *test)
{
	struct virtballoon_relief relief = {};
	int i;

	KUNIT_EXPECT_EQ(test, virtballoon_calc_hold(&relief, 0), 0);
	KUNIT_EXPECT_EQ(test, virtballoon_calc_wary(&relief, 0), 0);
	KUNIT_EXPECT_EQ(test, virtballoon_calc_hold(&relief, U64_MAX), 0);
	/* A clock that stands still makes one episode. */
	for (i = 0; i < 1000; i++)
		virtballoon_plan_relief(&relief, 0, IN_USE, true);
	KUNIT_EXPECT_EQ(test, relief.nr_releases, 1000);
	KUNIT_EXPECT_EQ(test, virtballoon_calc_hold(&relief, 0), 5000);
	KUNIT_EXPECT_GT(test, virtballoon_calc_wary(&relief, 599999), 0);
	KUNIT_EXPECT_EQ(test, virtballoon_calc_wary(&relief, 600000), 0);
}

static void follow_what_is_used(struct kunit *test)
{
	struct virtballoon_relief relief = {};
	unsigned long pages;

	KUNIT_EXPECT_FALSE(test, virtballoon_plan_follow(&relief, 0, ULONG_MAX));
	pages = virtballoon_plan_relief(&relief, 1000, IN_USE, true);
	/* Not before three quarters are in use: page cache is not in use. */
	KUNIT_EXPECT_FALSE(test, virtballoon_plan_follow(&relief, 1001, IN_USE));
	KUNIT_EXPECT_FALSE(test,
			   virtballoon_plan_follow(&relief, 1001, IN_USE +
						   pages - pages / 4 - 1));
	KUNIT_EXPECT_TRUE(test,
			  virtballoon_plan_follow(&relief, 1001, IN_USE +
						  pages - pages / 4));
	/* Not for ever. */
	KUNIT_EXPECT_TRUE(test, virtballoon_plan_follow(&relief, 1199, ULONG_MAX));
	KUNIT_EXPECT_FALSE(test, virtballoon_plan_follow(&relief, 1200, ULONG_MAX));
	/* What was left does not add up from release to release. */
	virtballoon_plan_relief(&relief, 1001, IN_USE + pages - pages / 4,
				false);
	KUNIT_EXPECT_EQ(test, relief.limit_pages,
			IN_USE + pages + relief.last_pages);
	/* But OOM says that nothing is left, whatever the counters say. */
	virtballoon_plan_relief(&relief, 1002, 7, true);
	KUNIT_EXPECT_EQ(test, relief.limit_pages, 7 + relief.last_pages);
}

static void when_to_look(struct kunit *test)
{
	struct virtballoon_relief relief = {};

	KUNIT_EXPECT_EQ(test, virtballoon_calc_watch(&relief, 0, false), 1000);
	KUNIT_EXPECT_EQ(test, virtballoon_calc_watch(&relief, 0, true), 250);
	virtballoon_plan_relief(&relief, 1000, IN_USE, true);
	KUNIT_EXPECT_EQ(test, virtballoon_calc_watch(&relief, 1199, false), 10);
	KUNIT_EXPECT_EQ(test, virtballoon_calc_watch(&relief, 1200, false),
			1000);
}

/* One look after @ms in which there were so many faults */
static bool look(struct virtballoon_watch *watch, unsigned int ms,
		 unsigned long majfaults, unsigned long refaults)
{
	struct virtballoon_watch now = {
		.last_ms = watch->last_ms + ms,
		.majfaults = watch->majfaults + majfaults,
		.refaults = watch->refaults + refaults,
	};

	return virtballoon_plan_watch(watch, &now);
}

static void watch_thrashing(struct kunit *test)
{
	struct virtballoon_watch watch = {};
	int i;

	/* The first look cannot compare, whatever it sees. */
	KUNIT_EXPECT_FALSE(test, look(&watch, 1000, 1000000, 1000000));
	KUNIT_EXPECT_TRUE(test, look(&watch, 250, 24, 24));
	/* It fades. */
	KUNIT_EXPECT_FALSE(test, look(&watch, 1000, 0, 0));
	/* Programs one after the other, each with a few faults */
	for (i = 0; i < 4; i++)
		look(&watch, 250, 11, 4000);
	KUNIT_EXPECT_TRUE(test, look(&watch, 250, 11, 4000));
	/* A pause between looks is no excuse, nor a reason. */
	KUNIT_EXPECT_TRUE(test, look(&watch, 60000, 60 * 24, 60 * 24));
	KUNIT_EXPECT_FALSE(test, look(&watch, 60000, 60 * 24 - 60, 60 * 24));
}

static void watch_streams(struct kunit *test)
{
	struct virtballoon_watch watch = {};
	int i;

	look(&watch, 1000, 0, 0);
	/* A file by read(), a program for the first time, a mapped file */
	for (i = 0; i < 100; i++)
		KUNIT_EXPECT_FALSE(test, look(&watch, 250, 0, 100000));
	for (i = 0; i < 100; i++)
		KUNIT_EXPECT_FALSE(test, look(&watch, 250, 5000, 0));
	for (i = 0; i < 100; i++)
		KUNIT_EXPECT_FALSE(test, look(&watch, 250, 2, 100000));
}

static void watch_odd_counters(struct kunit *test)
{
	struct virtballoon_watch watch = {
		.majfaults = ULONG_MAX - 10, .refaults = ULONG_MAX - 10,
	};

	look(&watch, 1000, 0, 0);
	/* They wrap ... */
	KUNIT_EXPECT_TRUE(test, look(&watch, 250, 100, 100));
	look(&watch, 1000, 0, 0);
	/* ... and may step back a little. */
	KUNIT_EXPECT_FALSE(test, look(&watch, 250, 100, -3UL));
	KUNIT_EXPECT_FALSE(test, look(&watch, 250, -1UL, 100));
	/* The clock stands still, or nearly: nothing is lost. */
	KUNIT_EXPECT_FALSE(test, look(&watch, 0, 100, 100));
	KUNIT_EXPECT_FALSE(test, look(&watch, 124, 100, 100));
	KUNIT_EXPECT_TRUE(test, look(&watch, 250, 100, 100));
}

static void feed_what_is_used(struct kunit *test)
{
	struct virtballoon_watch watch = {};
	struct virtballoon_relief relief = {};
	unsigned long reserve_pages = 100, pages;

	/* The first time, without looking at what is free. */
	KUNIT_EXPECT_TRUE(test,
			  virtballoon_plan_feed(&watch, &relief, 1000, 5000,
						reserve_pages));
	pages = virtballoon_plan_relief(&relief, 1000, IN_USE, false);
	/* While the guest reads back into what it got, not more. */
	KUNIT_EXPECT_FALSE(test,
			   virtballoon_plan_feed(&watch, &relief, 1250,
						 5000 + pages, reserve_pages));
	KUNIT_EXPECT_FALSE(test,
			   virtballoon_plan_feed(&watch, &relief, 1500,
						 5000 + reserve_pages +
						 pages / 4 + 1, reserve_pages));
	KUNIT_EXPECT_TRUE(test,
			  virtballoon_plan_feed(&watch, &relief, 1750,
						5000 + reserve_pages +
						pages / 4, reserve_pages));
	/* What counts is the least that was free: no creeping up. */
	virtballoon_plan_feed(&watch, &relief, 1800, 4000, reserve_pages);
	KUNIT_EXPECT_FALSE(test,
			   virtballoon_plan_feed(&watch, &relief, 1900,
						 4000 + reserve_pages +
						 pages / 4 + 1, reserve_pages));
}

/* An episode that begins with an OOM, long after one that left less free */
static void feed_after_oom(struct kunit *test)
{
	struct virtballoon_watch watch = { .low_free_pages = 10 };
	struct virtballoon_relief relief = {};

	virtballoon_plan_feed(&watch, &relief, 1000, 50000, 100);
	virtballoon_plan_relief(&relief, 1100, IN_USE, true);
	KUNIT_EXPECT_TRUE(test,
			  virtballoon_plan_feed(&watch, &relief, 1200, 50000,
						100));
}

static void hint_requests(struct kunit *test)
{
	u32 stop = VIRTIO_BALLOON_CMD_ID_STOP, done = VIRTIO_BALLOON_CMD_ID_DONE;

	KUNIT_EXPECT_EQ(test, virtballoon_plan_hint(stop, stop),
			VIRTBALLOON_HINT_NOTHING);
	KUNIT_EXPECT_EQ(test, virtballoon_plan_hint(stop, done),
			VIRTBALLOON_HINT_RELEASE);
	KUNIT_EXPECT_EQ(test, virtballoon_plan_hint(stop, 2),
			VIRTBALLOON_HINT_BEGIN);
	/* Served once, however long the device shows it */
	KUNIT_EXPECT_EQ(test, virtballoon_plan_hint(2, 2),
			VIRTBALLOON_HINT_NOTHING);
	KUNIT_EXPECT_EQ(test, virtballoon_plan_hint(2, 3),
			VIRTBALLOON_HINT_BEGIN);
	KUNIT_EXPECT_EQ(test, virtballoon_plan_hint(U32_MAX, 2),
			VIRTBALLOON_HINT_BEGIN);
	KUNIT_EXPECT_EQ(test, virtballoon_plan_hint(2, stop),
			VIRTBALLOON_HINT_NOTHING);
}

static void poison_values(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, virtballoon_calc_poison(true), 0);
	KUNIT_EXPECT_EQ(test, virtballoon_calc_poison(false), 0xaaaaaaaa);
}

static struct kunit_case virtballoon_policy_cases[] = {
	KUNIT_CASE(units),
	KUNIT_CASE(reserve),
	KUNIT_CASE(retry),
	KUNIT_CASE(size_towards_target),
	KUNIT_CASE(size_leaves_the_reserve),
	KUNIT_CASE(size_after_a_rescue),
	KUNIT_CASE(size_in_a_dump_kernel),
	KUNIT_CASE(pause_on_the_way_back),
	KUNIT_CASE(relief_in_proportion),
	KUNIT_CASE(relief_begins_small),
	KUNIT_CASE(relief_by_episodes),
	KUNIT_CASE(relief_and_the_clock),
	KUNIT_CASE(follow_what_is_used),
	KUNIT_CASE(when_to_look),
	KUNIT_CASE(watch_thrashing),
	KUNIT_CASE(watch_streams),
	KUNIT_CASE(watch_odd_counters),
	KUNIT_CASE(feed_what_is_used),
	KUNIT_CASE(feed_after_oom),
	KUNIT_CASE(hint_requests),
	KUNIT_CASE(poison_values),
	{}
};

static struct kunit_suite virtballoon_policy_suite = {
	.name = "virtio_balloon_policy",
	.test_cases = virtballoon_policy_cases,
};

/* ------------------------------------------------------------------------
 * A device on the virtio bus. Its queues are real vrings; its side of them is a
 * work that a kick queues. What it does wrong is up to the test.
 */

#define FAKE_QUEUES	5
#define FAKE_ENTRIES	128

struct fake_queue {
	struct virtqueue *vq;
	struct vring vring;
	void *memory;
	u16 last_avail;
	/* The device leaves the buffers of this queue where they are. */
	bool is_silent;
	unsigned int nr_buffers;
	unsigned int max_bytes;
	unsigned int nr_descs_in_chains;
};

struct fake {
	struct kunit *test;
	struct virtio_device vdev;
	struct completion released;
	u64 offered;
	u8 status;
	struct virtio_balloon_config config;
	unsigned int max_queues;	/* more make find_vqs fail */
	unsigned int nr_queues;
	const char *names[FAKE_QUEUES];
	struct fake_queue queues[FAKE_QUEUES];
	struct work_struct work;
	struct mutex lock;		/* queues and books of the device */
	struct xarray owned;		/* pages that the guest has given */
	unsigned long nr_owned;
	unsigned int nr_wrong;		/* given twice, or taken back too often */
};

static struct fake *fake_of(struct virtio_device *vdev)
{
	return container_of(vdev, struct fake, vdev);
}

static void fake_get(struct virtio_device *vdev, unsigned int offset, void *buf,
		     unsigned int len)
{
	memcpy(buf, (u8 *)&fake_of(vdev)->config + offset, len);
}

static void fake_set(struct virtio_device *vdev, unsigned int offset,
		     const void *buf, unsigned int len)
{
	memcpy((u8 *)&fake_of(vdev)->config + offset, buf, len);
}

static u8 fake_get_status(struct virtio_device *vdev)
{
	return fake_of(vdev)->status;
}

static void fake_set_status(struct virtio_device *vdev, u8 status)
{
	fake_of(vdev)->status = status;
}

static void fake_reset(struct virtio_device *vdev)
{
	struct fake *fake = fake_of(vdev);

	fake->status = 0;
	cancel_work_sync(&fake->work);
}

static u64 fake_get_features(struct virtio_device *vdev)
{
	return fake_of(vdev)->offered;
}

static int fake_finalize_features(struct virtio_device *vdev)
{
	vring_transport_features(vdev);
	return 0;
}

static bool fake_notify(struct virtqueue *vq)
{
	schedule_work(&fake_of(vq->vdev)->work);
	return true;
}

static void fake_del_vqs(struct virtio_device *vdev)
{
	struct fake *fake = fake_of(vdev);
	unsigned int i;

	cancel_work_sync(&fake->work);
	guard(mutex)(&fake->lock);
	for (i = 0; i < fake->nr_queues; i++) {
		vring_del_virtqueue(fake->queues[i].vq);
		free_pages_exact(fake->queues[i].memory,
				 vring_size(FAKE_ENTRIES, PAGE_SIZE));
		fake->queues[i].vq = NULL;
	}
	fake->nr_queues = 0;
}

static int fake_add_queue(struct fake *fake, struct virtqueue_info *info)
{
	struct fake_queue *queue = &fake->queues[fake->nr_queues];

	queue->memory = alloc_pages_exact(vring_size(FAKE_ENTRIES, PAGE_SIZE),
					  GFP_KERNEL | __GFP_ZERO);
	if (!queue->memory)
		return -ENOMEM;
	queue->vq = vring_new_virtqueue(fake->nr_queues, FAKE_ENTRIES, PAGE_SIZE,
					&fake->vdev, true, false, queue->memory,
					fake_notify, info->callback, info->name);
	if (!queue->vq) {
		free_pages_exact(queue->memory,
				 vring_size(FAKE_ENTRIES, PAGE_SIZE));
		return -ENOMEM;
	}
	vring_init(&queue->vring, FAKE_ENTRIES, queue->memory, PAGE_SIZE);
	queue->last_avail = 0;
	fake->names[fake->nr_queues++] = info->name;
	return 0;
}

static int fake_find_vqs(struct virtio_device *vdev, unsigned int nvqs,
			 struct virtqueue *vqs[], struct virtqueue_info info[],
			 struct irq_affinity *desc)
{
	struct fake *fake = fake_of(vdev);
	unsigned int i;
	int err = 0;

	for (i = 0; !err && i < nvqs; i++) {
		err = i < fake->max_queues ? fake_add_queue(fake, &info[i]) :
					     -ENOENT;
		if (!err)
			vqs[i] = fake->queues[i].vq;
	}
	if (err)
		fake_del_vqs(vdev);
	return err;
}

static const char *fake_bus_name(struct virtio_device *vdev)
{
	return "fake";
}

static const struct virtio_config_ops fake_ops = {
	.get = fake_get,
	.set = fake_set,
	.get_status = fake_get_status,
	.set_status = fake_set_status,
	.reset = fake_reset,
	.find_vqs = fake_find_vqs,
	.del_vqs = fake_del_vqs,
	.get_features = fake_get_features,
	.finalize_features = fake_finalize_features,
	.bus_name = fake_bus_name,
};

/* Enters the pages of a buffer into the device's books. */
static void fake_take_pfns(struct fake *fake, bool inflate, const __le32 *pfns,
			   unsigned int nr_bp)
{
	unsigned int i;

	for (i = 0; i < nr_bp; i++) {
		unsigned long pfn = le32_to_cpu(pfns[i]);
		void *old;

		if (inflate)
			old = xa_store(&fake->owned, pfn, xa_mk_value(1),
				       GFP_KERNEL);
		else
			old = xa_erase(&fake->owned, pfn);
		fake->nr_wrong += inflate ? !!old : !old;
		fake->nr_owned += inflate ? 1 : -1;
	}
}

static void fake_use_buffer(struct fake *fake, struct fake_queue *queue, u16 head)
{
	struct vring *vring = &queue->vring;
	struct vring_desc *desc = &vring->desc[head];
	unsigned int bytes = le32_to_cpu((__force __le32)desc->len);
	u64 addr = le64_to_cpu((__force __le64)desc->addr);
	u16 used = le16_to_cpu((__force __le16)vring->used->idx);

	queue->nr_buffers++;
	queue->max_bytes = max(queue->max_bytes, bytes);
	if (le16_to_cpu((__force __le16)desc->flags) & VRING_DESC_F_NEXT)
		queue->nr_descs_in_chains++;
	if (queue - fake->queues < 2)
		fake_take_pfns(fake, queue == fake->queues, phys_to_virt(addr),
			       bytes / sizeof(__le32));
	vring->used->ring[used % FAKE_ENTRIES].id =
		(__force __virtio32)cpu_to_le32(head);
	vring->used->ring[used % FAKE_ENTRIES].len = 0;
	/* The entry before the index that says it is there */
	virt_wmb();
	vring->used->idx = (__force __virtio16)cpu_to_le16(used + 1);
}

static void fake_serve(struct work_struct *work)
{
	struct fake *fake = container_of(work, struct fake, work);
	unsigned int i;

	guard(mutex)(&fake->lock);
	for (i = 0; i < fake->nr_queues; i++) {
		struct fake_queue *queue = &fake->queues[i];
		struct vring *vring = &queue->vring;
		bool has_used = false;

		/* One buffer of statistics stays with the device. */
		if (!strcmp(fake->names[i], "stats"))
			continue;
		while (!READ_ONCE(queue->is_silent) && queue->last_avail !=
		       le16_to_cpu((__force __le16)
				   READ_ONCE(vring->avail->idx))) {
			/* The index before the entry that it says is there */
			virt_rmb();
			fake_use_buffer(fake, queue, le16_to_cpu((__force __le16)
				vring->avail->ring[queue->last_avail++ %
						   FAKE_ENTRIES]));
			has_used = true;
		}
		if (has_used)
			vring_interrupt(0, queue->vq);
	}
}

static void fake_released(struct device *dev)
{
	complete(&fake_of(dev_to_virtio(dev))->released);
}

static struct fake *fake_new(struct kunit *test, u64 features)
{
	struct fake *fake = kunit_kzalloc(test, sizeof(*fake), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, fake);
	fake->test = test;
	fake->offered = features | BIT_ULL(VIRTIO_F_VERSION_1);
	fake->max_queues = FAKE_QUEUES;
	fake->vdev.id.device = VIRTIO_ID_BALLOON;
	fake->vdev.config = &fake_ops;
	fake->vdev.dev.release = fake_released;
	init_completion(&fake->released);
	mutex_init(&fake->lock);
	xa_init(&fake->owned);
	INIT_WORK(&fake->work, fake_serve);
	return fake;
}

static struct fake *fake_plug(struct kunit *test, u64 features)
{
	struct fake *fake = fake_new(test, features);

	KUNIT_ASSERT_EQ(test, register_virtio_device(&fake->vdev), 0);
	return fake;
}

/* Takes it away, which must not take longer than @most_ms. */
static void fake_unplug(struct fake *fake, unsigned int most_ms)
{
	unsigned long begin = jiffies;

	unregister_virtio_device(&fake->vdev);
	KUNIT_EXPECT_LE(fake->test, jiffies_to_msecs(jiffies - begin), most_ms);
	wait_for_completion(&fake->released);
	cancel_work_sync(&fake->work);
	KUNIT_EXPECT_EQ(fake->test, fake->nr_wrong, 0);
	xa_destroy(&fake->owned);
}

static struct virtballoon *fake_driver(struct fake *fake)
{
	return fake->vdev.priv;
}

static void fake_ask(struct fake *fake, u32 target_bp)
{
	fake->config.num_pages = cpu_to_le32(target_bp);
	virtio_config_changed(&fake->vdev);
}

static u32 fake_actual(struct fake *fake)
{
	return le32_to_cpu(READ_ONCE(fake->config.actual));
}

static void fake_expect_actual(struct fake *fake, u32 bp, unsigned int most_ms)
{
	unsigned long deadline = jiffies + msecs_to_jiffies(most_ms);

	while (fake_actual(fake) != bp && time_before(jiffies, deadline))
		msleep(20);
	KUNIT_EXPECT_EQ(fake->test, fake_actual(fake), bp);
}

static void fake_silence(struct fake *fake, unsigned int queue, bool is_silent)
{
	WRITE_ONCE(fake->queues[queue].is_silent, is_silent);
	if (!is_silent)
		schedule_work(&fake->work);
}

#define FEATURE(name)	BIT_ULL(VIRTIO_BALLOON_F_##name)

static void device_cycle(struct kunit *test)
{
	struct fake *fake = fake_plug(test, 0);

	fake_ask(fake, 10000);
	fake_expect_actual(fake, 10000, 20000);
	KUNIT_EXPECT_EQ(test, fake->nr_owned, 10000);
	fake_ask(fake, 3);
	fake_expect_actual(fake, 3, 20000);
	/* H1, M1: no buffer of more than 256 entries, none in two parts */
	KUNIT_EXPECT_EQ(test, fake->queues[0].max_bytes, 1024);
	KUNIT_EXPECT_EQ(test, fake->queues[1].max_bytes, 1024);
	KUNIT_EXPECT_EQ(test, fake->queues[0].nr_descs_in_chains, 0);
	fake_unplug(fake, 2000);
	KUNIT_EXPECT_EQ(test, fake->nr_owned, 0);
}

/* All that a target can be: the guest lives, and the balloon comes back. */
static void device_asks_for_anything(struct kunit *test)
{
	static const u32 targets_bp[] = { 1, U32_MAX, 0, U32_MAX - 1, 1U << 31 };
	u64 features = 0;
	struct fake *fake;
	unsigned int i;

	do {
		fake = fake_plug(test, features);
		for (i = 0; i < ARRAY_SIZE(targets_bp); i++) {
			fake_ask(fake, targets_bp[i]);
			msleep(1500);
			KUNIT_EXPECT_LE(test, fake_actual(fake), targets_bp[i]);
			KUNIT_EXPECT_LT(test, fake_actual(fake), totalram_pages() +
					fake_actual(fake));
			KUNIT_EXPECT_GT(test, si_mem_available(),
					3 * PAGES_PER_MIB);
		}
		fake_ask(fake, 0);
		fake_expect_actual(fake, 0, 20000);
		fake_unplug(fake, 2000);
		features ^= FEATURE(DEFLATE_ON_OOM);
	} while (features);
}

/* MUST_TELL_HOST: a page is not free before the device has used its buffer. */
static void device_must_be_told(struct kunit *test)
{
	struct fake *fake = fake_plug(test, FEATURE(MUST_TELL_HOST));
	struct virtballoon *vb = fake_driver(fake);

	fake_ask(fake, 4000);
	fake_expect_actual(fake, 4000, 20000);
	fake_silence(fake, 1, true);
	fake_ask(fake, 0);
	msleep(500);
	KUNIT_EXPECT_EQ(test, READ_ONCE(vb->freed_pages), 0);
	KUNIT_EXPECT_EQ(test, fake->nr_owned, 4000);
	fake_silence(fake, 1, false);
	fake_expect_actual(fake, 0, 20000);
	KUNIT_EXPECT_EQ(test, READ_ONCE(vb->freed_pages),
			virtballoon_bp_to_pages(4000));
	fake_unplug(fake, 2000);
}

/* The same without: free at once, told in passing. */
static void device_need_not_be_told(struct kunit *test)
{
	struct fake *fake = fake_plug(test, 0);
	struct virtballoon *vb = fake_driver(fake);

	fake_ask(fake, 4000);
	fake_expect_actual(fake, 4000, 20000);
	fake_silence(fake, 1, true);
	fake_ask(fake, 0);
	msleep(500);
	KUNIT_EXPECT_EQ(test, READ_ONCE(vb->freed_pages),
			virtballoon_bp_to_pages(4000));
	fake_silence(fake, 1, false);
	fake_expect_actual(fake, 0, 20000);
	fake_unplug(fake, 2000);
}

/* B13: the device does not answer, and is taken away. */
static void device_is_silent(struct kunit *test)
{
	struct fake *fake = fake_plug(test, 0);

	fake_silence(fake, 0, true);
	fake_ask(fake, 4000);
	msleep(500);
	KUNIT_EXPECT_EQ(test, fake_actual(fake), 0);
	fake_unplug(fake, 10000);
	/* Silent in the middle of deflation */
	fake = fake_plug(test, FEATURE(MUST_TELL_HOST));
	fake_ask(fake, 8000);
	fake_expect_actual(fake, 8000, 20000);
	fake_silence(fake, 1, true);
	fake_ask(fake, 0);
	msleep(500);
	fake_unplug(fake, 10000);
}

/* B13: the guest is out of memory, and the device does not answer. */
static void device_is_silent_on_oom(struct kunit *test)
{
	struct fake *fake = fake_plug(test, FEATURE(MUST_TELL_HOST) |
					    FEATURE(DEFLATE_ON_OOM));
	struct virtballoon *vb = fake_driver(fake);
	unsigned long freed_pages = 0, begin;

	fake_ask(fake, 8000);
	fake_expect_actual(fake, 8000, 20000);
	fake_silence(fake, 1, true);
	begin = jiffies;
	virtballoon_oom_notify(&vb->oom_nb, 0, &freed_pages);
	KUNIT_EXPECT_LE(test, jiffies_to_msecs(jiffies - begin), 1500);
	/* The truth: nothing that may be used yet */
	KUNIT_EXPECT_EQ(test, freed_pages, 0);
	KUNIT_EXPECT_EQ(test, fake->nr_owned, 8000);
	fake_silence(fake, 1, false);
	msleep(200);
	virtballoon_oom_notify(&vb->oom_nb, 0, &freed_pages);
	KUNIT_EXPECT_GE(test, freed_pages, 4 * PAGES_PER_MIB);
	fake_unplug(fake, 2000);
}

/* A queue that breaks: the device is given up, the guest has all it had. */
static void device_breaks(struct kunit *test)
{
	struct fake *fake = fake_plug(test, 0);
	struct virtballoon *vb = fake_driver(fake);
	unsigned long deadline = jiffies + msecs_to_jiffies(10000);

	fake_ask(fake, 4000);
	fake_expect_actual(fake, 4000, 20000);
	virtio_break_device(&fake->vdev);
	fake_ask(fake, 8000);
	while (READ_ONCE(vb->size_pages) && time_before(jiffies, deadline))
		msleep(20);
	KUNIT_EXPECT_EQ(test, READ_ONCE(vb->size_pages), 0);
	KUNIT_EXPECT_TRUE(test, READ_ONCE(vb->gone));
	fake_unplug(fake, 2000);
}

/* B14: queues are numbered without gaps. */
static void device_has_few_queues(struct kunit *test)
{
	struct fake *fake = fake_plug(test, FEATURE(REPORTING));

	/* Free pages with a content may forbid the feature (spec). */
	if (virtio_has_feature(&fake->vdev, VIRTIO_BALLOON_F_REPORTING)) {
		KUNIT_EXPECT_EQ(test, fake->nr_queues, 3);
		KUNIT_EXPECT_STREQ(test, fake->names[2], "reporting");
	}
	fake_unplug(fake, 2000);
	fake = fake_plug(test, FEATURE(FREE_PAGE_HINT) | FEATURE(STATS_VQ));
	KUNIT_EXPECT_EQ(test, fake->nr_queues, 4);
	KUNIT_EXPECT_STREQ(test, fake->names[2], "stats");
	KUNIT_EXPECT_STREQ(test, fake->names[3], "free_page_hint");
	fake_unplug(fake, 2000);
}

/* Probe fails, undoes what it did, and can be tried again. */
static void device_lacks_queues(struct kunit *test)
{
	unsigned int i;

	for (i = 0; i < 4; i++) {
		struct fake *fake = fake_new(test, FEATURE(STATS_VQ) |
						   FEATURE(FREE_PAGE_HINT) |
						   FEATURE(DEFLATE_ON_OOM));

		fake->max_queues = i;
		KUNIT_ASSERT_EQ(test, register_virtio_device(&fake->vdev), 0);
		KUNIT_EXPECT_NULL(test, fake->vdev.dev.driver);
		KUNIT_EXPECT_NULL(test, fake_driver(fake));
		KUNIT_EXPECT_EQ(test, fake->nr_queues, 0);
		fake_unplug(fake, 2000);
	}
}

/* The target changes faster than anyone can follow. */
static void device_changes_its_mind(struct kunit *test)
{
	struct fake *fake = fake_plug(test, 0);
	unsigned int i;

	for (i = 0; i < 1000; i++) {
		fake_ask(fake, (i * 7919) % 20000);
		usleep_range(500, 1000);
	}
	fake_ask(fake, 1234);
	fake_expect_actual(fake, 1234, 20000);
	KUNIT_EXPECT_EQ(test, fake->nr_owned, 1234);
	fake_unplug(fake, 2000);
}

/* B07: a block stays lent until its buffer has been used, whatever happens. */
static void device_is_slow_to_hint(struct kunit *test)
{
	struct fake *fake = fake_plug(test, FEATURE(FREE_PAGE_HINT));
	struct virtballoon *vb = fake_driver(fake);
	unsigned long deadline = jiffies + msecs_to_jiffies(10000);

	fake_silence(fake, 2, true);
	fake->config.free_page_hint_cmd_id = cpu_to_le32(2);
	virtio_config_changed(&fake->vdev);
	msleep(500);
	KUNIT_EXPECT_GT(test, READ_ONCE(vb->hint_busy), 0);
	/* The shrinker has nothing: all blocks are still the device's. */
	KUNIT_EXPECT_EQ(test, READ_ONCE(vb->hint_nr_held), 0);
	fake_silence(fake, 2, false);
	msleep(500);
	fake->config.free_page_hint_cmd_id =
		cpu_to_le32(VIRTIO_BALLOON_CMD_ID_DONE);
	virtio_config_changed(&fake->vdev);
	while ((READ_ONCE(vb->hint_busy) || READ_ONCE(vb->hint_nr_held)) &&
	       time_before(jiffies, deadline))
		msleep(20);
	KUNIT_EXPECT_EQ(test, READ_ONCE(vb->hint_nr_held), 0);
	KUNIT_EXPECT_EQ(test, READ_ONCE(vb->hint_busy), 0);
	fake_unplug(fake, 5000);
}

static struct kunit_case virtballoon_device_cases[] = {
	KUNIT_CASE_SLOW(device_cycle),
	KUNIT_CASE_SLOW(device_asks_for_anything),
	KUNIT_CASE_SLOW(device_must_be_told),
	KUNIT_CASE_SLOW(device_need_not_be_told),
	KUNIT_CASE_SLOW(device_is_silent),
	KUNIT_CASE_SLOW(device_is_silent_on_oom),
	KUNIT_CASE_SLOW(device_breaks),
	KUNIT_CASE_SLOW(device_has_few_queues),
	KUNIT_CASE_SLOW(device_lacks_queues),
	KUNIT_CASE_SLOW(device_changes_its_mind),
	KUNIT_CASE_SLOW(device_is_slow_to_hint),
	{}
};

static struct kunit_suite virtballoon_device_suite = {
	.name = "virtio_balloon_device",
	.test_cases = virtballoon_device_cases,
};

kunit_test_suites(&virtballoon_policy_suite, &virtballoon_device_suite);
