// SPDX-License-Identifier: GPL-2.0
/* Scenarios: the guest's memory runs short while a balloon has some of it */
#include <stdlib.h>
#include <string.h>

#include "balloon_host.h"

static uint64_t streamed_mib(struct vm *vm)
{
	const char *reply = guest(vm, 10000, "status reader");

	check(!strcmp(reply_word(reply, "state"), "ready"), "the reader is %s",
	      reply_word(reply, "state"));
	return reply_number(reply, "progress_mib");
}

/*
 * B12: a file larger than memory is streamed in a loop while the balloon
 * inflates. Reclaim drops page cache all the time; the balloon must not give
 * way to it, neither now nor later.
 */
static void file_stream(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 512, .balloon = "deflate-on-oom=on",
		.disk = disk_with_file(640, "disk"),
	};
	struct counters before, c;
	uint64_t begin_mib, end_mib;
	struct vm vm;
	double s;

	vm_boot(&vm, &config);
	guest(&vm, 30000, "mount ext4 /dev/vda /mnt ro");
	guest(&vm, 10000, "stream reader /mnt/file");
	guest(&vm, 120000, "wait reader 120000");
	begin_mib = streamed_mib(&vm);
	before = guest_counters(&vm);
	s = balloon_go(&vm, 256, 120000);
	c = guest_counters(&vm);
	check(c.deflate == before.deflate,
	      "%llu pages deflated while inflating against page cache",
	      (unsigned long long)(c.deflate - before.deflate));
	sleep_ms(10000);
	c = guest_counters(&vm);
	check(c.deflate == before.deflate,
	      "%llu pages deflated in the 10 s after the target was reached",
	      (unsigned long long)(c.deflate - before.deflate));
	check(balloon_actual(&vm) == 256 * MIB, "the balloon left its target");
	end_mib = streamed_mib(&vm);
	note("256 of 512 MiB inflated in %.2f s beside a stream of %llu MiB",
	     s, (unsigned long long)(end_mib - begin_mib));
	check(end_mib > begin_mib + 640,
	      "only %llu MiB were streamed meanwhile, less than the file has",
	      (unsigned long long)(end_mib - begin_mib));
	check(!c.oom_kill, "%llu OOM kills", (unsigned long long)c.oom_kill);

	/* Dropping caches by hand is no reason to deflate either. */
	guest(&vm, 10000, "stop reader");
	guest(&vm, 60000, "write /proc/sys/vm/drop_caches 3");
	c = guest_counters(&vm);
	check(c.deflate == before.deflate, "drop_caches deflated the balloon");
	check_books(&vm);
	check_empty(&vm);
	vm_stop(&vm);
}

/* A process needs what is in the balloon, and the host lets it. */
static void oom_deflate(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 1024, .balloon = "deflate-on-oom=on",
	};
	struct counters before, c;
	uint64_t elapsed_ms;
	const char *reply;
	struct vm vm;

	vm_boot(&vm, &config);
	balloon_go(&vm, 256, 60000);
	before = guest_counters(&vm);
	guest(&vm, 10000, "hold eater 600 42");
	reply = guest(&vm, 120000, "wait eater 120000");
	check(!strcmp(reply_word(reply, "state"), "ready"),
	      "the process is %s", reply_word(reply, "state"));
	elapsed_ms = reply_number(reply, "elapsed_ms");
	c = guest_counters(&vm);
	note("600 MiB had in %.2f s, %llu MiB deflated, the guest has %llu MiB now",
	     elapsed_ms / 1000.0,
	     (unsigned long long)(c.deflate - before.deflate) / 256,
	     (unsigned long long)(balloon_actual(&vm) / MIB));
	check(!c.oom_kill, "%llu OOM kills", (unsigned long long)c.oom_kill);
	check(c.deflate - before.deflate >= 400 * 256,
	      "balloon_deflate shows only %llu pages",
	      (unsigned long long)(c.deflate - before.deflate));
	reply = guest(&vm, 120000, "verify eater");
	check(!reply_number(reply, "bad"), "%llu pages have a wrong content",
	      (unsigned long long)reply_number(reply, "bad"));
	guest(&vm, 10000, "stop eater");
	check_books(&vm);
	check_empty(&vm);
	vm_stop(&vm);
}

/* After the rescue the host gets its memory back without asking again. */
static void oom_return(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 1024, .balloon = "deflate-on-oom=on",
	};
	struct counters before, c;
	uint64_t begin_ms;
	struct vm vm;

	vm_boot(&vm, &config);
	balloon_go(&vm, 256, 60000);
	guest(&vm, 10000, "hold eater 500");
	guest(&vm, 120000, "wait eater 120000");
	sleep_ms(1000);
	before = guest_counters(&vm);
	sleep_ms(20000);
	c = guest_counters(&vm);
	check(c.inflate - before.inflate + c.deflate - before.deflate <
	      768 * 256 / 50,
	      "%llu pages went back and forth while the process held its memory",
	      (unsigned long long)(c.inflate - before.inflate + c.deflate -
				   before.deflate));
	guest(&vm, 10000, "stop eater");
	begin_ms = now_ms();
	check(balloon_reaches(&vm, 256, 30000),
	      "the balloon is not back at its target within 30 s");
	note("back at the target %.1f s after the process has ended",
	     (now_ms() - begin_ms) / 1000.0);
	check_empty(&vm);
	vm_stop(&vm);
}

/* The same process when the balloon is the host's: it does not get it. */
static void oom_normal(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 1024, .balloon = "",
	};
	struct counters before, c;
	const char *state;
	struct vm vm;

	vm_boot(&vm, &config);
	balloon_go(&vm, 256, 60000);
	before = guest_counters(&vm);
	/* Let it begin, so that it is killed rather than refused at once. */
	guest(&vm, 10000, "write /proc/sys/vm/overcommit_memory 1");
	guest(&vm, 10000, "hold eater 600");
	guest(&vm, 120000, "wait eater 120000");
	state = guest_state(&vm, "eater");
	check(!strcmp(state, "killed 9"), "the process is %s", state);
	c = guest_counters(&vm);
	check(c.oom_kill == before.oom_kill + 1, "%llu OOM kills, not one",
	      (unsigned long long)(c.oom_kill - before.oom_kill));
	check(c.deflate == before.deflate, "the balloon deflated by itself");
	check(balloon_actual(&vm) == 256 * MIB, "the balloon left its target");
	note("the process was killed, the balloon did not move");
	guest(&vm, 10000, "stop eater");
	check_books(&vm);
	check_empty(&vm);
	vm_stop(&vm);
}

/*
 * Calls of the kernel's OOM handling, which begin with the notifiers. Counted
 * by a probe where the kernel has them.
 */
static bool count_ooms(struct vm *vm)
{
	static const char dir[] = "/sys/kernel/tracing";

	guest_try(vm, 10000, "mount tracefs none %s", dir);
	return guest_try(vm, 10000, "write %s/kprobe_events p:oom out_of_memory",
			 dir) &&
	       guest_try(vm, 10000, "write %s/events/kprobes/oom/enable 1", dir);
}

static uint64_t nr_ooms(struct vm *vm)
{
	const char *line = guest(vm, 10000,
				 "read /sys/kernel/tracing/kprobe_profile");

	line = strstr(line, "oom");
	check(line, "the probe is gone");
	return strtoull(line + 3, NULL, 10);
}

static uint64_t nr_stalls(struct vm *vm)
{
	const char *reply = guest(vm, 30000, "counters");
	static const char * const zones[] = { "dma", "dma32", "normal",
					      "movable" };
	uint64_t sum = 0;
	char key[64];
	size_t i;

	for (i = 0; i < sizeof(zones) / sizeof(zones[0]); i++) {
		snprintf(key, sizeof(key), "vmstat.allocstall_%s", zones[i]);
		if (reply_has(reply, key))
			sum += reply_number(reply, key);
	}
	return sum;
}

/* Touches 1400 MiB. Returns the time that it takes the guest. */
static uint64_t take_1400_mib(struct vm *vm)
{
	const char *reply;

	guest(vm, 10000, "hold eater 1400");
	reply = guest(vm, 900000, "wait eater 900000");
	check(!strcmp(reply_word(reply, "state"), "ready"),
	      "the process is %s", reply_word(reply, "state"));
	return reply_number(reply, "elapsed_ms");
}

/*
 * What a rescue costs: a guest of 2 GiB left with 300 MiB, and a process that
 * needs 1400 MiB. One instruction is one nanosecond of the guest's time. Both
 * times without huge pages, which would hide what a page costs.
 */
static void rescue_cost(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 2048, .cpus = 1,
		.icount = "shift=0,sleep=off", .balloon = "deflate-on-oom=on",
		.append = "transparent_hugepage=never",
	};
	uint64_t without_ms, with_ms, stalls, needed_mib, deflated_mib;
	uint64_t excess_mib;
	struct counters before, c;
	bool counts_ooms;
	struct vm vm;

	vm_boot(&vm, &config);
	without_ms = take_1400_mib(&vm);
	guest(&vm, 10000, "stop eater");
	counts_ooms = count_ooms(&vm);
	balloon_go(&vm, 300, 300000);
	before = guest_counters(&vm);
	stalls = nr_stalls(&vm);
	with_ms = take_1400_mib(&vm);
	stalls = nr_stalls(&vm) - stalls;
	c = guest_counters(&vm);
	needed_mib = 1400 - before.available_bytes / MIB;
	deflated_mib = (c.deflate - before.deflate) / 256;
	excess_mib = deflated_mib > needed_mib ? deflated_mib - needed_mib : 0;
	figure("million instructions", without_ms, "1400 MiB without a balloon");
	figure("million instructions", with_ms, "1400 MiB with a rescue");
	figure("x", (double)with_ms / without_ms, "their ratio");
	figure("", stalls, "allocation stalls");
	figure("MiB", excess_mib, "released beyond the %llu MiB needed",
	       (unsigned long long)needed_mib);
	if (counts_ooms) {
		figure("", nr_ooms(&vm), "OOM notifications");
		expect(nr_ooms(&vm) <= 40, "more than 40 OOM notifications");
	}
	check(!c.oom_kill, "%llu OOM kills", (unsigned long long)c.oom_kill);
	expect(with_ms * 100 <= without_ms * 120,
	       "%llu million instructions, without a balloon %llu",
	       (unsigned long long)with_ms, (unsigned long long)without_ms);
	expect(stalls <= 1500, "%llu allocation stalls",
	       (unsigned long long)stalls);
	expect(excess_mib <= 64 || excess_mib <= needed_mib / 4,
	       "%llu MiB released beyond what was needed",
	       (unsigned long long)excess_mib);
	guest(&vm, 10000, "stop eater");
	vm_stop(&vm);
}

/* 16 processes race for memory: none is killed while the balloon has pages. */
static void rescue_race(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 1024, .balloon = "deflate-on-oom=on",
	};
	struct counters c;
	const char *reply;
	struct vm vm;
	int i;

	vm_boot(&vm, &config);
	balloon_go(&vm, 256, 60000);
	for (i = 0; i < 16; i++)
		guest(&vm, 30000, "hold eater-%d 36 %d", i, i + 1);
	for (i = 0; i < 16; i++) {
		reply = guest(&vm, 120000, "wait eater-%d 120000", i);
		check(!strcmp(reply_word(reply, "state"), "ready"),
		      "process %d is %s", i, reply_word(reply, "state"));
	}
	c = guest_counters(&vm);
	note("16 processes have 576 MiB, the guest has %llu MiB",
	     (unsigned long long)(balloon_actual(&vm) / MIB));
	check(!c.oom_kill, "%llu OOM kills", (unsigned long long)c.oom_kill);
	for (i = 0; i < 16; i++) {
		reply = guest(&vm, 60000, "verify eater-%d", i);
		check(!reply_number(reply, "bad"), "memory of process %d is damaged",
		      i);
		guest(&vm, 10000, "stop eater-%d", i);
	}
	check_books(&vm);
	check_empty(&vm);
	vm_stop(&vm);
}

const struct scenario pressure_scenarios[] = {
	{ "rescue-cost", rescue_cost, 900, NEED_ANY },
	{ "rescue-race", rescue_race, 240, NEED_ANY },
	{ "file-stream", file_stream, 240, NEED_ANY },
	{ "oom-deflate", oom_deflate, 180, NEED_ANY },
	{ "oom-return", oom_return, 180, NEED_ANY },
	{ "oom-normal", oom_normal, 180, NEED_ANY },
	{ }
};
