// SPDX-License-Identifier: GPL-2.0
/*
 * The balloon as the host sees it. QMP's "actual" is what the guest is left
 * with: its memory less the balloon.
 */
#include <stdlib.h>
#include <string.h>

#include "balloon_host.h"

/* What a kernel may have come to use for itself since boot */
#define SLACK_BYTES	(16 * MIB)

uint64_t balloon_actual(struct vm *vm)
{
	json_t *result = qmp_call(&vm->qmp, "query-balloon", NULL);
	uint64_t bytes = json_integer_value(json_object_get(result, "actual"));

	json_decref(result);
	return bytes;
}

void balloon_set(struct vm *vm, uint64_t mib)
{
	json_t *arguments = json_pack("{s:I}", "value", (json_int_t)(mib * MIB));

	json_decref(qmp_call(&vm->qmp, "balloon", arguments));
}

bool balloon_reaches(struct vm *vm, uint64_t mib, unsigned int timeout_ms)
{
	uint64_t deadline_ms = now_ms() + timeout_ms;

	while (balloon_actual(vm) != mib * MIB) {
		vm_check_alive(vm);
		if (now_ms() > deadline_ms)
			return false;
		sleep_ms(20);
	}
	return true;
}

/* Sets a target that must be reached. Returns the seconds that it took. */
double balloon_go(struct vm *vm, uint64_t mib, unsigned int timeout_ms)
{
	uint64_t begin_ms = now_ms();

	balloon_set(vm, mib);
	check(balloon_reaches(vm, mib, timeout_ms),
	      "target %llu MiB not reached within %u ms, the guest has %llu MiB",
	      (unsigned long long)mib, timeout_ms,
	      (unsigned long long)(balloon_actual(vm) / MIB));
	return (now_ms() - begin_ms) / 1000.0;
}

/*
 * Pages that entered less pages that left are the pages in the balloon. They
 * move together but not at the same instant, and a balloon that is still on
 * its way moves on: look until both sides stand still and agree.
 */
void check_books(struct vm *vm)
{
	uint64_t deadline_ms = now_ms() + 30000;
	uint64_t in_guest_bytes, in_host_bytes;
	struct counters c;

	for (;;) {
		c = guest_counters(vm);
		in_guest_bytes = (c.inflate - c.deflate) * 4096;
		in_host_bytes = vm->config.mem_mib * MIB - balloon_actual(vm);
		if (in_guest_bytes == in_host_bytes)
			return;
		if (now_ms() > deadline_ms)
			break;
		sleep_ms(100);
	}
	fail("the books do not balance: %llu KiB in the balloon by the guest, %llu by the host",
	     (unsigned long long)in_guest_bytes / 1024,
	     (unsigned long long)in_host_bytes / 1024);
}

/* The balloon is empty and the guest has all its memory back. */
void check_empty(struct vm *vm)
{
	struct counters c;

	balloon_go(vm, vm->config.mem_mib, 60000);
	check_books(vm);
	c = guest_counters(vm);
	check(c.total_bytes == vm->boot_total_bytes,
	      "MemTotal is %llu KiB with the balloon empty, it was %llu KiB at boot",
	      (unsigned long long)c.total_bytes / 1024,
	      (unsigned long long)vm->boot_total_bytes / 1024);
	check(c.free_bytes + c.cached_bytes + SLACK_BYTES >
	      vm->boot_usable_bytes,
	      "%llu KiB free or page cache with the balloon empty, it was %llu KiB at boot",
	      (unsigned long long)(c.free_bytes + c.cached_bytes) / 1024,
	      (unsigned long long)vm->boot_usable_bytes / 1024);
}
