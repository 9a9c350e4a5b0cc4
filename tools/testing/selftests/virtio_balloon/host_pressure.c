// SPDX-License-Identifier: GPL-2.0
/* Scenarios: the guest's memory runs short while a balloon has some of it */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "balloon_host.h"

/* A disk with one file of @mib MiB on it */
static const char *disk_with_file(unsigned int mib)
{
	const char *disk = scratch("disk");

	mkdir(scratch("content"), 0700);
	make_data_file(scratch("content/file"), mib);
	make_disk(disk, scratch("content"), mib + mib / 8 + 16);
	unlink(scratch("content/file"));
	return disk;
}

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
		.disk = disk_with_file(640),
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
	sleep_ms(15000);
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

const struct scenario pressure_scenarios[] = {
	{ "file-stream", file_stream, 240, NEED_ANY },
	{ "oom-deflate", oom_deflate, 180, NEED_ANY },
	{ "oom-return", oom_return, 180, NEED_ANY },
	{ "oom-normal", oom_normal, 180, NEED_ANY },
	{ }
};
