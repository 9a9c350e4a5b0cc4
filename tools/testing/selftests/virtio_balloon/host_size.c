// SPDX-License-Identifier: GPL-2.0
/* Scenarios: the size of the balloon follows the host's target */
#include <stdlib.h>
#include <string.h>

#include "balloon_host.h"

static void check_total(struct vm *vm, bool deflate_on_oom, uint64_t left_mib)
{
	uint64_t gone_bytes = deflate_on_oom ? 0 :
		(vm->config.mem_mib - left_mib) * MIB;
	struct counters c = guest_counters(vm);

	check(c.total_bytes == vm->boot_total_bytes - gone_bytes,
	      "MemTotal is %llu KiB at target %llu MiB, expected %llu KiB",
	      (unsigned long long)c.total_bytes / 1024,
	      (unsigned long long)left_mib,
	      (unsigned long long)(vm->boot_total_bytes - gone_bytes) / 1024);
}

/*
 * What left the free list is what the balloon has. Reclaim, which a small
 * guest may need, makes memory free besides; the rest of the slack is what the
 * kernel itself does meanwhile.
 */
static void check_free(struct vm *vm, const struct counters *before,
		       uint64_t left_mib)
{
	const int64_t slack_bytes = 16 * MIB;
	struct counters c = guest_counters(vm);
	int64_t balloon_bytes = (vm->config.mem_mib - left_mib) * MIB;
	int64_t reclaimed_bytes = before->cached_bytes - c.cached_bytes;
	int64_t missing_bytes = (int64_t)before->free_bytes + reclaimed_bytes -
				(int64_t)c.free_bytes - balloon_bytes;

	check(llabs(missing_bytes) < slack_bytes,
	      "at target %llu MiB, MemFree and the balloon differ by %lld KiB from what was free at boot",
	      (unsigned long long)left_mib, (long long)missing_bytes / 1024);
}

static void inflate_deflate_with(const char *options, bool deflate_on_oom)
{
	static const unsigned int targets_mib[] = {
		767, 512, 300, 301, 640, 1, 1024, 400, 1024
	};
	struct vm_config config = {
		.name = "vm", .mem_mib = 1024, .balloon = options,
	};
	struct counters before;
	struct vm vm;
	size_t i;

	vm_boot(&vm, &config);
	before = guest_counters(&vm);
	for (i = 0; i < sizeof(targets_mib) / sizeof(targets_mib[0]); i++) {
		unsigned int mib = targets_mib[i];
		double s;

		if (mib == 1) {
			/* Out of reach on purpose: only survival counts. */
			balloon_set(&vm, mib);
			sleep_ms(3000);
			guest(&vm, 20000, "ping");
			check_books(&vm);
			continue;
		}
		s = balloon_go(&vm, mib, 60000);
		check_books(&vm);
		check_total(&vm, deflate_on_oom, mib);
		check_free(&vm, &before, mib);
		note("%s: target %u MiB reached in %.2f s",
		     deflate_on_oom ? "deflate-on-oom" : "plain", mib, s);
	}
	check_empty(&vm);
	vm_stop(&vm);
}

static void inflate_deflate(void)
{
	inflate_deflate_with("", false);
	inflate_deflate_with("deflate-on-oom=on", true);
}

/* Targets that change faster than they can be reached; the last one counts. */
static void target_changes(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 1024, .balloon = "deflate-on-oom=on",
	};
	unsigned int i, x = 1;
	struct vm vm;

	vm_boot(&vm, &config);
	for (i = 0; i < 200; i++) {
		x = x * 1103515245 + 12345;
		balloon_set(&vm, 256 + (x >> 16) % 768);
		sleep_ms(x >> 28);
	}
	balloon_go(&vm, 333, 60000);
	check_books(&vm);
	balloon_set(&vm, 256);
	sleep_ms(100);
	note("deflate from mid-inflation: %.2f s", balloon_go(&vm, 1024, 60000));
	check_empty(&vm);
	vm_stop(&vm);
}

static unsigned int count_lines(const char *path, const char *what)
{
	unsigned int n = 0;
	char line[512];
	FILE *f = fopen(path, "r");

	check(f, "QEMU wrote no trace to %s", path);
	while (fgets(line, sizeof(line), f))
		n += !!strstr(line, what);
	fclose(f);
	return n;
}

/* How often the guest stops for the host while its balloon changes */
static void kicks(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 1536, .balloon = "",
		.trace = "virtio_queue_notify",
	};
	unsigned int inflate_kicks, deflate_kicks;
	struct vm vm;

	vm_boot(&vm, &config);
	balloon_go(&vm, 512, 60000);
	balloon_go(&vm, 1536, 60000);
	check_books(&vm);
	vm_stop(&vm);
	inflate_kicks = count_lines(vm.trace_path, " n 0 ");
	deflate_kicks = count_lines(vm.trace_path, " n 1 ");
	note("1 GiB: %u kicks to inflate, %u to deflate", inflate_kicks,
	     deflate_kicks);
	check(inflate_kicks && inflate_kicks <= 128,
	      "%u kicks to inflate 1 GiB, at most 128 are allowed",
	      inflate_kicks);
	check(deflate_kicks && deflate_kicks <= 128,
	      "%u kicks to deflate 1 GiB, at most 128 are allowed",
	      deflate_kicks);
}

static unsigned int count_log(struct vm *vm, const char *what)
{
	const char *line = guest(vm, 60000, "dmesg");
	unsigned int n = 0;

	while ((line = strstr(line, what))) {
		n++;
		line += strlen(what);
	}
	return n;
}

/* The best of three starts of a program that has to be read from the disk */
static uint64_t start_program_ms(struct vm *vm)
{
	uint64_t best_ms = UINT64_MAX, ms;
	const char *reply;
	int i;

	for (i = 0; i < 3; i++) {
		guest(vm, 60000, "write /proc/sys/vm/drop_caches 1");
		reply = guest(vm, 60000, "exec 60000 /mnt/program-00");
		check(!reply_number(reply, "exit"), "the program failed");
		ms = reply_number(reply, "elapsed_ms");
		best_ms = ms < best_ms ? ms : best_ms;
	}
	return best_ms;
}

/* Time that CPUs were busy since boot */
static uint64_t busy_ms(struct vm *vm)
{
	const char *line = guest(vm, 10000, "read /proc/stat");
	unsigned long long user, nice, system, irq, softirq;

	check(sscanf(line, "cpu %llu %llu %llu %*u %*u %llu %llu", &user, &nice,
		     &system, &irq, &softirq) == 5,
	      "/proc/stat does not begin with the CPUs' times");
	return (user + nice + system + irq + softirq) * 10;	/* USER_HZ 100 */
}

struct impossible {
	struct vm vm;
	uint64_t normal_ms;
	unsigned int lines;
};

static void impossible_begin(struct impossible *it, const char *name,
			     const char *options, const char *disk)
{
	struct vm_config config = {
		.name = name, .mem_mib = 1024, .balloon = options,
		.disk = disk, .share_disk = true,
	};

	vm_boot(&it->vm, &config);
	guest(&it->vm, 30000, "mount ext4 /dev/vda /mnt ro");
	it->normal_ms = start_program_ms(&it->vm);
	it->lines = count_log(&it->vm, "virtio_balloon virtio");
	balloon_set(&it->vm, 8);
}

static void impossible_end(struct impossible *it)
{
	const char *name = it->vm.config.name;
	uint64_t start_ms, busy = busy_ms(&it->vm);
	struct counters c;
	double s;

	sleep_ms(10000);
	busy = busy_ms(&it->vm) - busy;
	c = guest_counters(&it->vm);
	it->lines = count_log(&it->vm, "virtio_balloon virtio") - it->lines;
	check(!c.oom_kill, "%s: %llu processes killed by OOM", name,
	      (unsigned long long)c.oom_kill);
	figure("MiB", balloon_actual(&it->vm) / MIB, "%s: the guest keeps", name);
	check(balloon_actual(&it->vm) < 400 * MIB,
	      "%s: an idle guest of 1 GiB keeps %llu MiB", name,
	      (unsigned long long)(balloon_actual(&it->vm) / MIB));
	figure("", it->lines, "%s: lines logged", name);
	expect(it->lines <= 4, "%s: %u lines logged over one target", name,
	       it->lines);
	figure("%", busy / 100.0, "%s: CPU while it waits", name);
	expect(busy < 100, "%s: busy for %llu ms of 10 s", name,
	       (unsigned long long)busy);
	start_ms = start_program_ms(&it->vm);
	figure("x", (double)start_ms / it->normal_ms,
	       "%s: start of a program, time relative to no balloon", name);
	expect(start_ms <= 3 * it->normal_ms + 20,
	       "%s: a program starts in %llu ms, without a balloon in %llu",
	       name, (unsigned long long)start_ms,
	       (unsigned long long)it->normal_ms);
	guest(&it->vm, 30000, "hold little 8");
	guest(&it->vm, 30000, "wait little 30000");
	guest(&it->vm, 30000, "stop little");
	s = balloon_go(&it->vm, 512, 10000);
	figure("s", s, "%s: then target 512 MiB", name);
	expect(s <= 2, "%s: target 512 MiB took %.2f s", name, s);
	check_empty(&it->vm);
	vm_stop(&it->vm);
}

/*
 * B02, B04: a target that would kill the guest is approached, not reached, and
 * the guest lives well with it.
 */
static void impossible_target(void)
{
	const char *disk = disk_with_programs(1, "programs");
	static struct impossible plain, deflating;

	impossible_begin(&plain, "plain", "", disk);
	impossible_begin(&deflating, "deflate-on-oom", "deflate-on-oom=on",
			 disk);
	sleep_ms(50000);
	impossible_end(&plain);
	impossible_end(&deflating);
}

/* A small guest still gives half of its memory away. */
static void half(void)
{
	unsigned int mib = strncmp(opt.lane, "tree", 4) ? 512 : 128;
	struct vm_config config = {
		.name = "vm", .mem_mib = mib, .balloon = "deflate-on-oom=on",
	};
	struct counters before, c;
	struct vm vm;

	vm_boot(&vm, &config);
	before = guest_counters(&vm);
	balloon_go(&vm, mib / 2, 60000);
	sleep_ms(5000);
	c = guest_counters(&vm);
	check(c.deflate == before.deflate && !c.oom_kill,
	      "the guest does not live with half of its memory");
	note("a guest of %u MiB gave half of it", mib);
	check_empty(&vm);
	vm_stop(&vm);
}

/* V20: a kernel that writes a dump has little memory and none to give. */
static void kdump(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 512, .balloon = "",
		/* Beyond its memory: there is no dump to be had. */
		.append = "elfcorehdr=0x38000000",
	};
	struct counters c;
	struct vm vm;

	vm_boot(&vm, &config);
	check(strstr(guest(&vm, 10000, "devices"), " virtio_balloon 0x0000000f"),
	      "no driver is bound to the balloon: %s", vm.reply);
	balloon_set(&vm, 256);
	sleep_ms(3000);
	c = guest_counters(&vm);
	check(!c.inflate, "a kernel for dumps gave %llu pages away",
	      (unsigned long long)c.inflate);
	vm_stop(&vm);
}

const struct scenario size_scenarios[] = {
	{ "inflate-deflate", inflate_deflate, 180, NEED_ANY },
	{ "target-changes", target_changes, 120, NEED_ANY },
	{ "kicks", kicks, 120, NEED_ANY },
	{ "impossible-target", impossible_target, 180, NEED_ANY },
	{ "half", half, 90, NEED_ANY },
	{ "kdump", kdump, 60, NEED_ANY },
	{ }
};
