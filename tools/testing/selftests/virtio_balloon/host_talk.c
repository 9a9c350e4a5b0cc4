// SPDX-License-Identifier: GPL-2.0
/* Scenarios: statistics, free page reporting, free page hinting */
#include <stdlib.h>
#include <string.h>

#include "balloon_host.h"

static const char balloon_path[] = "/machine/peripheral/balloon0";

static json_t *qom_get(struct vm *vm, const char *property)
{
	return qmp_call(&vm->qmp, "qom-get", json_pack("{s:s,s:s}", "path",
			balloon_path, "property", property));
}

static void poll_stats(struct vm *vm, unsigned int seconds)
{
	json_decref(qmp_call(&vm->qmp, "qom-set",
			     json_pack("{s:s,s:s,s:i}", "path", balloon_path,
				       "property",
				       "guest-stats-polling-interval",
				       "value", seconds)));
}

static uint64_t stats_time(json_t *stats)
{
	return json_integer_value(json_object_get(stats, "last-update"));
}

static uint64_t stat_of(json_t *stats, const char *name)
{
	json_t *all = json_object_get(stats, "stats");
	json_t *value = json_object_get(all, name);

	check(value, "QEMU has no statistic %s", name);
	return json_integer_value(value);
}

/* Waits for statistics that the guest has sent after this call. */
static json_t *fresh_stats(struct vm *vm, unsigned int timeout_ms)
{
	uint64_t deadline_ms = now_ms() + timeout_ms;
	json_t *stats = qom_get(vm, "guest-stats");
	uint64_t first = stats_time(stats);

	while (stats_time(stats) <= first) {
		json_decref(stats);
		check(now_ms() < deadline_ms, "no statistics within %u ms",
		      timeout_ms);
		sleep_ms(50);
		stats = qom_get(vm, "guest-stats");
	}
	return stats;
}

static void check_near(json_t *stats, const char *name, uint64_t guest_value,
		       uint64_t slack)
{
	uint64_t value = stat_of(stats, name);
	uint64_t distance = value > guest_value ? value - guest_value :
			    guest_value - value;

	check(distance <= slack, "%s: the host is told %llu, the guest has %llu",
	      name, (unsigned long long)value,
	      (unsigned long long)guest_value);
}

static void check_stats(struct vm *vm)
{
	json_t *stats = fresh_stats(vm, 5000);
	const char *reply = guest(vm, 30000, "counters");

	check_near(stats, "stat-total-memory",
		   reply_number(reply, "meminfo.MemTotal"), 0);
	check_near(stats, "stat-free-memory",
		   reply_number(reply, "meminfo.MemFree"), 4 * MIB);
	check_near(stats, "stat-available-memory",
		   reply_number(reply, "meminfo.MemAvailable"), 4 * MIB);
	check_near(stats, "stat-disk-caches",
		   reply_number(reply, "vmstat.nr_file_pages") * 4096, MIB);
	check_near(stats, "stat-major-faults",
		   reply_number(reply, "vmstat.pgmajfault"), 20);
	check_near(stats, "stat-minor-faults",
		   reply_number(reply, "vmstat.pgfault"), 500);
	check_near(stats, "stat-swap-in",
		   reply_number(reply, "vmstat.pswpin") * 4096, 0);
	check_near(stats, "stat-swap-out",
		   reply_number(reply, "vmstat.pswpout") * 4096, 0);
	check_near(stats, "stat-htlb-pgalloc",
		   reply_number(reply, "vmstat.htlb_buddy_alloc_success"), 0);
	check_near(stats, "stat-htlb-pgfail",
		   reply_number(reply, "vmstat.htlb_buddy_alloc_fail"), 0);
	json_decref(stats);
}

static void stats(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 512, .cpus = 1, .balloon = "",
	};
	char device[32];
	struct vm vm;

	vm_boot(&vm, &config);
	poll_stats(&vm, 1);
	check_stats(&vm);
	guest(&vm, 10000, "hold eater 100");
	guest(&vm, 60000, "wait eater 60000");
	check_stats(&vm);
	balloon_go(&vm, 320, 60000);
	check_stats(&vm);
	guest(&vm, 30000, "hugepages 4");
	check_stats(&vm);
	guest(&vm, 30000, "hugepages 0");

	/* The one buffer is there again after the driver was away. */
	snprintf(device, sizeof(device), "%s", guest_balloon_device(&vm));
	guest(&vm, 60000, "unbind %s", device);
	guest(&vm, 60000, "bind %s", device);
	check(balloon_reaches(&vm, 320, 60000), "the balloon is not back");
	check_stats(&vm);
	/* ... and when the VM was stopped while QEMU had it. */
	json_decref(qmp_call(&vm.qmp, "stop", NULL));
	sleep_ms(500);
	json_decref(qmp_call(&vm.qmp, "cont", NULL));
	check_stats(&vm);
	/* ... and when the guest has slept, which resets the device. */
	suspend_and_wake(&vm);
	check(balloon_reaches(&vm, 320, 60000), "the balloon is not back");
	check_stats(&vm);
	note("statistics agree after boot, allocation, inflation, huge pages, rebind, stop and S3");
	guest(&vm, 10000, "stop eater");
	check_empty(&vm);
	vm_stop(&vm);
}

/* B09: memory that a process has freed leaves QEMU. */
static void reporting(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 1024,
		.balloon = "free-page-reporting=on",
	};
	uint64_t full_mib, rss_mib, deadline_ms;
	struct vm vm;

	vm_boot(&vm, &config);
	guest(&vm, 10000, "hold eater 600 7");
	guest(&vm, 120000, "wait eater 120000");
	full_mib = vm_rss_mib(&vm);
	check(full_mib > 600, "QEMU has only %llu MiB",
	      (unsigned long long)full_mib);
	check(!reply_number(guest(&vm, 60000, "verify eater"), "bad"),
	      "reporting damaged memory in use");
	guest(&vm, 10000, "stop eater");
	deadline_ms = now_ms() + 20000;
	do {
		sleep_ms(200);
		rss_mib = vm_rss_mib(&vm);
	} while (rss_mib > full_mib - 500 && now_ms() < deadline_ms);
	note("QEMU's resident memory: %llu MiB, %llu MiB after 600 MiB were freed",
	     (unsigned long long)full_mib, (unsigned long long)rss_mib);
	check(rss_mib <= full_mib - 500,
	      "QEMU keeps %llu of %llu MiB 20 s after the guest freed 600 MiB",
	      (unsigned long long)rss_mib, (unsigned long long)full_mib);
	/* What was reported is usable again. */
	guest(&vm, 10000, "hold eater 600 8");
	guest(&vm, 120000, "wait eater 120000");
	check(!reply_number(guest(&vm, 60000, "verify eater"), "bad"),
	      "reported memory is not usable");
	guest(&vm, 10000, "stop eater");
	balloon_go(&vm, 512, 60000);
	check_empty(&vm);
	vm_stop(&vm);
}

/* Whether the driver has accepted a feature, by its bit */
static bool has_feature(struct vm *vm, unsigned int bit)
{
	const char *features;

	features = guest(vm, 10000, "read /sys/bus/virtio/devices/%s/features",
			 guest_balloon_device(vm));
	check(strlen(features) > bit, "cannot tell features from \"%s\"",
	      features);
	return features[bit] == '1';
}

#define PAGE_POISON_BIT	4
#define REPORTING_BIT	5

/* Fills most of the guest's memory and lets go of it again. */
static void use_memory(struct vm *vm, unsigned int mib)
{
	guest(vm, 10000, "hold user %u 9", mib);
	guest(vm, 120000, "wait user 120000");
	check(!reply_number(guest(vm, 60000, "verify user"), "bad"),
	      "memory does not keep its content");
	guest(vm, 10000, "stop user");
}

/* F3: a device that does not know what free pages contain gets no reports. */
static void poison_unknown(void)
{
	struct vm_config config = {
		.name = "unknown", .mem_mib = 512, .append = "init_on_free=1",
		.balloon = "free-page-reporting=on,page-poison=off",
	};
	struct vm vm;

	vm_boot(&vm, &config);
	check(!has_feature(&vm, PAGE_POISON_BIT), "PAGE_POISON was not offered");
	check(!has_feature(&vm, REPORTING_BIT),
	      "REPORTING accepted although the device may change free pages");
	balloon_go(&vm, 320, 60000);
	check_empty(&vm);
	vm_stop(&vm);
}

/* F2, P2: accepted if pages are zeroed when freed, and reporting works. */
static void poison_zero(void)
{
	struct vm_config config = {
		.name = "zero", .mem_mib = 512, .append = "init_on_free=1",
		.balloon = "free-page-reporting=on",
	};
	struct vm vm;

	vm_boot(&vm, &config);
	check(has_feature(&vm, PAGE_POISON_BIT) &&
	      has_feature(&vm, REPORTING_BIT),
	      "PAGE_POISON or REPORTING not accepted with init_on_free");
	use_memory(&vm, 256);
	sleep_ms(5000);
	use_memory(&vm, 256);
	check_empty(&vm);
	vm_stop(&vm);
}

/*
 * B10: after a suspend the device knows again that free pages are filled with
 * 0xaa, and does not replace them by zeroes. The kernel reports it when it
 * finds anything else in a free page.
 */
static void poison_suspend(void)
{
	struct vm_config config = {
		.name = "suspend", .mem_mib = 512, .append = "page_poison=1",
		.cpus = 1, .balloon = "free-page-reporting=on",
	};
	struct vm vm;

	vm_boot(&vm, &config);
	if (!has_feature(&vm, PAGE_POISON_BIT)) {
		note("B10 is for kernels with CONFIG_PAGE_POISONING, this one has none");
		vm_stop(&vm);
		return;
	}
	use_memory(&vm, 200);
	suspend_and_wake(&vm);
	use_memory(&vm, 200);
	sleep_ms(6000);
	use_memory(&vm, 256);
	check_empty(&vm);
	vm_stop(&vm);
	note("no free page was damaged by suspend and reporting (B10)");
}

static void poison(void)
{
	poison_unknown();
	poison_zero();
	poison_suspend();
}

/* A legacy device: other registers, guest endianness, the same balloon */
static void legacy(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 512,
		.balloon = "disable-modern=on,disable-legacy=off,deflate-on-oom=on",
	};
	struct vm vm;

	vm_boot(&vm, &config);
	check(!has_feature(&vm, 32), "this is not a legacy device");
	poll_stats(&vm, 1);
	balloon_go(&vm, 320, 60000);
	check_books(&vm);
	check_stats(&vm);
	check_empty(&vm);
	vm_stop(&vm);
}

static const char *migration_state(struct vm *vm, uint64_t *sent_bytes)
{
	static char state[32];
	json_t *info = qmp_call(&vm->qmp, "query-migrate", NULL);
	json_t *ram = json_object_get(info, "ram");

	snprintf(state, sizeof(state), "%s",
		 json_string_value(json_object_get(info, "status")));
	if (ram)
		*sent_bytes = json_integer_value(json_object_get(ram,
								 "transferred"));
	json_decref(info);
	return state;
}

/* How often the dirty bitmap has been fetched */
static unsigned int dirty_rounds(struct vm *vm)
{
	json_t *info = qmp_call(&vm->qmp, "query-migrate", NULL);
	json_t *ram = json_object_get(info, "ram");
	unsigned int n = json_integer_value(json_object_get(ram,
							    "dirty-sync-count"));

	json_decref(info);
	return n;
}

static void set_bandwidth(struct vm *vm, unsigned int kib_per_s)
{
	json_decref(qmp_call(&vm->qmp, "migrate-set-parameters",
			     json_pack("{s:I}", "max-bandwidth",
				       (json_int_t)(kib_per_s * 1024ULL))));
}

static void begin_migration(struct vm *vm, const char *path,
			    unsigned int kib_per_s)
{
	char uri[300];

	snprintf(uri, sizeof(uri), "unix:%s", path);
	set_bandwidth(vm, kib_per_s);
	json_decref(qmp_call(&vm->qmp, "migrate",
			     json_pack("{s:s}", "uri", uri)));
}

static uint64_t finish_migration(struct vm *vm)
{
	uint64_t deadline_ms = now_ms() + 120000, sent_bytes = 0;
	const char *state;

	do {
		sleep_ms(100);
		state = migration_state(vm, &sent_bytes);
		check(strcmp(state, "failed"), "the migration failed");
		check(now_ms() < deadline_ms, "the migration takes too long");
	} while (strcmp(state, "completed"));
	return sent_bytes;
}

/*
 * Lets the guest run for the first round of the migration, in which it hints,
 * and stops it for the rest.
 *
 * Before version 9, QEMU without KVM misses writes that go through an entry of
 * the CPU's TLB that was there when the dirty bitmap was fetched (QEMU commit
 * "physmem: Fix migration dirty bitmap coherency with TCG memory access"). At
 * the start the TLB is flushed, but just before the bitmap is fetched, and with
 * the guest running when it is fetched again, one guest in four does not
 * survive, whatever its driver. What is written unseen does harm only where it
 * had been sent before. So two processes that pass the CPU to each other change
 * page tables, and so flush the TLB, while next to nothing is sent for a moment.
 */
static void migrate_first_round(struct vm *vm, const char *path)
{
	uint64_t sent_bytes = 0;

	guest(vm, 10000, "spin flush-1");
	guest(vm, 10000, "spin flush-2");
	begin_migration(vm, path, 4);
	sleep_ms(1500);
	set_bandwidth(vm, 16 * 1024);
	sleep_ms(3000);
	check(!strcmp(migration_state(vm, &sent_bytes), "active"),
	      "the first round is over already");
	json_decref(qmp_call(&vm->qmp, "stop", NULL));
	check(dirty_rounds(vm) <= 1,
	      "the dirty bitmap was fetched while the guest was running");
	set_bandwidth(vm, 400 * 1024);
}

/*
 * The guest was stopped when it left, and so it is when it has arrived: "cont"
 * before that would be forgotten.
 */
static void continue_target(struct vm *vm)
{
	uint64_t deadline_ms = now_ms() + 60000;
	bool arrived;

	do {
		json_t *status = qmp_call(&vm->qmp, "query-status", NULL);

		arrived = strcmp(json_string_value(json_object_get(status,
								   "status")),
				 "inmigrate");
		json_decref(status);
		check(now_ms() < deadline_ms,
		      "the guest does not arrive within 60 s");
		sleep_ms(20);
	} while (!arrived);
	json_decref(qmp_call(&vm->qmp, "cont", NULL));
}

/*
 * Migrates a guest that has 200 MiB of free memory that is not zero, and 64
 * MiB that are in use. Returns the bytes that went over the wire.
 */
static uint64_t migrate_guest(const char *options)
{
	struct vm_config config = {
		.name = "source", .mem_mib = 384, .cpus = 1, .balloon = options,
	};
	struct vm_config incoming = config;
	struct counters before, after;
	struct vm source, target;
	uint64_t sent_bytes;

	vm_boot(&source, &config);
	guest(&source, 10000, "hold keep 64 11");
	guest(&source, 60000, "wait keep 60000");
	guest(&source, 10000, "hold dirt 200 12");
	guest(&source, 60000, "wait dirt 60000");
	guest(&source, 10000, "stop dirt");
	before = guest_counters(&source);

	incoming.name = "target";
	incoming.incoming = scratch("migration");
	vm_start(&target, &incoming);
	migrate_first_round(&source, incoming.incoming);
	sent_bytes = finish_migration(&source);
	vm_check_console(&source);
	vm_stop(&source);

	vm_connect_guest(&target);
	continue_target(&target);
	guest(&target, 10000, "stop flush-1");
	guest(&target, 10000, "stop flush-2");
	target.boot_total_bytes = source.boot_total_bytes;
	target.boot_usable_bytes = source.boot_usable_bytes;
	check(!reply_number(guest(&target, 60000, "verify keep"), "bad"),
	      "memory in use was damaged by the migration");
	/* All hinted blocks are back, and usable. */
	guest(&target, 10000, "hold refill 200 13");
	guest(&target, 60000, "wait refill 60000");
	check(!reply_number(guest(&target, 60000, "verify refill"), "bad"),
	      "memory that had been hinted is not usable");
	guest(&target, 10000, "stop refill");
	sleep_ms(1000);
	after = guest_counters(&target);
	check(after.free_bytes + 24 * MIB > before.free_bytes,
	      "%llu KiB free before the migration, %llu KiB after it",
	      (unsigned long long)before.free_bytes / 1024,
	      (unsigned long long)after.free_bytes / 1024);
	balloon_go(&target, 256, 60000);
	guest(&target, 10000, "stop keep");
	check_empty(&target);
	vm_stop(&target);
	return sent_bytes;
}

static void hinting(void)
{
	uint64_t plain_bytes = migrate_guest("");
	uint64_t hinted_bytes = migrate_guest("free-page-hint=on,iothread=io0");

	note("a guest with 200 MiB of free memory that is not zero: %llu MiB migrated without hints, %llu MiB with",
	     (unsigned long long)(plain_bytes / MIB),
	     (unsigned long long)(hinted_bytes / MIB));
	check(hinted_bytes + 100 * MIB < plain_bytes,
	      "hinting did not save 100 MiB");
}

/* The driver goes away in the middle of hinting: nothing may leak. */
static void hinting_unbind(void)
{
	struct vm_config config = {
		.name = "source", .mem_mib = 512,
		.balloon = "free-page-hint=on,iothread=io0",
	};
	struct vm_config incoming = config;
	struct counters before, after;
	uint64_t sent_bytes, deadline_ms;
	struct vm source, target;
	char device[32];

	vm_boot(&source, &config);
	before = guest_counters(&source);
	snprintf(device, sizeof(device), "%s", guest_balloon_device(&source));
	incoming.name = "target";
	incoming.incoming = scratch("migration");
	vm_start(&target, &incoming);
	begin_migration(&source, incoming.incoming, 1024);
	sleep_ms(700);
	after = guest_counters(&source);
	note("%llu MiB lent to the host in the middle of hinting",
	     (unsigned long long)(before.free_bytes - after.free_bytes) / MIB);
	check(after.free_bytes + 64 * MIB < before.free_bytes,
	      "the driver did not hint");
	guest(&source, 60000, "unbind %s", device);
	after = guest_counters(&source);
	check(after.free_bytes + 8 * MIB > before.free_bytes,
	      "%llu KiB free before hinting, %llu KiB after unbinding",
	      (unsigned long long)before.free_bytes / 1024,
	      (unsigned long long)after.free_bytes / 1024);
	json_decref(qmp_call(&source.qmp, "migrate_cancel", NULL));
	deadline_ms = now_ms() + 30000;
	while (strcmp(migration_state(&source, &sent_bytes), "cancelled")) {
		check(now_ms() < deadline_ms,
		      "the migration is not cancelled after 30 s");
		sleep_ms(50);
	}
	guest(&source, 60000, "bind %s", device);
	check_empty(&source);
	vm_stop(&source);
}

const struct scenario host_scenarios[] = {
	{ "stats", stats, 120, NEED_ANY },
	{ "legacy", legacy, 60, NEED_ANY },
	{ "reporting", reporting, 180, NEED_ANY },
	{ "poison", poison, 180, NEED_ANY },
	{ "hinting", hinting, 240, NEED_ANY },
	{ "hinting-unbind", hinting_unbind, 120, NEED_ANY },
	{ }
};
