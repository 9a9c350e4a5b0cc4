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

/* B02, B04: a target that would kill the guest is approached, not reached. */
static void impossible_target_with(const char *options)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 1024, .balloon = options,
	};
	struct counters c;
	unsigned int lines;
	struct vm vm;

	vm_boot(&vm, &config);
	lines = count_log(&vm, "virtio_balloon virtio");
	balloon_set(&vm, 8);
	sleep_ms(10000);
	c = guest_counters(&vm);
	lines = count_log(&vm, "virtio_balloon virtio") - lines;
	note("target 8 MiB of 1024 (%s): the guest keeps %llu MiB, %u lines logged",
	     *options ? options : "plain",
	     (unsigned long long)(balloon_actual(&vm) / MIB), lines);
	check(!c.oom_kill, "%llu processes killed by OOM",
	      (unsigned long long)c.oom_kill);
	check(lines <= 4, "%u lines logged over one target", lines);
	check(balloon_actual(&vm) < 400 * MIB,
	      "an idle guest of 1 GiB keeps %llu MiB",
	      (unsigned long long)(balloon_actual(&vm) / MIB));
	guest(&vm, 30000, "hold little 8");
	guest(&vm, 30000, "wait little 30000");
	guest(&vm, 30000, "stop little");
	note("then target 512 MiB: %.2f s", balloon_go(&vm, 512, 10000));
	check_empty(&vm);
	vm_stop(&vm);
}

static void impossible_target(void)
{
	impossible_target_with("");
	impossible_target_with("deflate-on-oom=on");
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
	{ "kdump", kdump, 60, NEED_ANY },
	{ }
};
