// SPDX-License-Identifier: GPL-2.0
/* Scenarios: the driver, the device and the guest come and go */
#include <stdlib.h>
#include <string.h>

#include "balloon_host.h"

static void unbind_rebind(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 512, .balloon = "",
	};
	uint64_t begin_ms, total_bytes;
	char device[32];
	struct vm vm;
	int i;

	vm_boot(&vm, &config);
	snprintf(device, sizeof(device), "%s", guest_balloon_device(&vm));
	balloon_go(&vm, 448, 60000);
	begin_ms = now_ms();
	for (i = 0; i < 50; i++) {
		guest(&vm, 30000, "unbind %s", device);
		total_bytes = guest_counters(&vm).total_bytes;
		check(total_bytes == vm.boot_total_bytes,
		      "MemTotal is %llu KiB without a driver in round %d, it was %llu KiB at boot",
		      (unsigned long long)total_bytes / 1024, i,
		      (unsigned long long)vm.boot_total_bytes / 1024);
		guest(&vm, 30000, "bind %s", device);
		/* Every other round unbinds in the middle of inflation. */
		if (i % 2)
			check(balloon_reaches(&vm, 448, 30000),
			      "the balloon does not come back in round %d", i);
	}
	check(balloon_reaches(&vm, 448, 30000), "the balloon does not come back");
	note("50 rounds of unbind and bind in %.1f s",
	     (now_ms() - begin_ms) / 1000.0);
	check_books(&vm);
	check_empty(&vm);
	vm_stop(&vm);
}

/* Removing the module does the same for all devices, and more. */
static void load_unload(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 512, .balloon = "deflate-on-oom=on",
	};
	struct counters c;
	struct vm vm;
	int i;

	vm_boot(&vm, &config);
	for (i = 0; i < 5; i++) {
		balloon_go(&vm, 320, 60000);
		guest(&vm, 30000, "unload virtio_balloon");
		c = guest_counters(&vm);
		check(c.inflate == c.deflate,
		      "%llu pages are missing after the module is gone",
		      (unsigned long long)(c.inflate - c.deflate));
		guest(&vm, 30000, "load /virtio_balloon.ko");
	}
	check(balloon_reaches(&vm, 320, 60000), "the balloon does not come back");
	check_empty(&vm);
	vm_stop(&vm);
}

/*
 * Sends the guest to sleep with a command that it answers when awake again.
 *
 * For guests with one CPU: under TCG one resume in ten with a second CPU to
 * bring up ends in a triple fault, with the stock driver as well.
 */
void suspend_and_wake(struct vm *vm)
{
	check(vm->config.cpus == 1, "S3 is for guests with one CPU");
	guest_send(vm, "suspend mem");
	check(qmp_wait_event(&vm->qmp, "SUSPEND", 60000),
	      "the guest does not go to sleep");
	sleep_ms(200);
	json_decref(qmp_call(&vm->qmp, "system_wakeup", NULL));
	check(guest_answer(vm, 60000), "suspend: %s", vm->reply);
}

static void suspend_s3(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 512, .cpus = 1,
		.balloon = "free-page-reporting=on",
	};
	struct vm vm;
	int i;

	vm_boot(&vm, &config);
	guest(&vm, 10000, "hold keep 64 3");
	guest(&vm, 60000, "wait keep 60000");
	for (i = 0; i < 3; i++) {
		balloon_go(&vm, 320 - i, 60000);
		suspend_and_wake(&vm);
		check(balloon_reaches(&vm, 320 - i, 30000),
		      "the balloon does not come back after suspend");
		check_books(&vm);
	}
	check(!reply_number(guest(&vm, 60000, "verify keep"), "bad"),
	      "suspend damaged memory in use");
	note("balloon at its target again after each of 3 S3 cycles");
	guest(&vm, 10000, "stop keep");
	check_empty(&vm);
	vm_stop(&vm);
}

static void pm_test(void)
{
	static const char * const levels[] = {
		"freezer", "devices", "platform", "core"
	};
	struct vm_config config = {
		.name = "vm", .mem_mib = 512,
		.balloon = "free-page-reporting=on,deflate-on-oom=on",
	};
	struct vm vm;
	size_t i;

	vm_boot(&vm, &config);
	if (!guest_try(&vm, 10000, "read /sys/power/pm_test"))
		skip("this kernel has no /sys/power/pm_test (CONFIG_PM_DEBUG)");
	guest_try(&vm, 10000,
		  "write /sys/module/suspend/parameters/pm_test_delay 0");
	for (i = 0; i < sizeof(levels) / sizeof(levels[0]); i++) {
		balloon_go(&vm, 320 - i, 60000);
		guest(&vm, 10000, "write /sys/power/pm_test %s", levels[i]);
		guest(&vm, 60000, "suspend mem");
		check(balloon_reaches(&vm, 320 - i, 30000),
		      "the balloon does not come back after pm_test %s",
		      levels[i]);
		check_books(&vm);
	}
	note("pm_test freezer, devices, platform and core passed");
	check_empty(&vm);
	vm_stop(&vm);
}

/*
 * Writes an image of the guest to swap and resumes from it without a power
 * cycle: the driver's freeze, restore and, in between, thaw.
 */
static void hibernate(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 512, .balloon = "deflate-on-oom=on",
		.disk = scratch("swap"),
	};
	const char *number;
	struct vm vm;

	make_raw(config.disk, 1024);
	vm_boot(&vm, &config);
	if (!guest_try(&vm, 10000, "read /sys/power/disk"))
		skip("this kernel cannot hibernate");
	guest(&vm, 10000, "swapon /dev/vda");
	number = guest(&vm, 10000, "read /sys/class/block/vda/dev");
	guest(&vm, 10000, "write /sys/power/resume %.*s",
	      (int)strcspn(number, "\n"), number);
	guest(&vm, 10000, "write /sys/power/disk test_resume");
	guest(&vm, 10000, "hold keep 64 5");
	guest(&vm, 60000, "wait keep 60000");
	balloon_go(&vm, 400, 60000);
	guest(&vm, 120000, "suspend disk");
	check(balloon_reaches(&vm, 400, 60000),
	      "the balloon does not come back after hibernation");
	check_books(&vm);
	check(!reply_number(guest(&vm, 60000, "verify keep"), "bad"),
	      "hibernation damaged memory in use");
	guest(&vm, 10000, "stop keep");
	check_empty(&vm);
	vm_stop(&vm);
}

static void unplug(struct vm *vm)
{
	json_decref(qmp_call(&vm->qmp, "device_del",
			     json_pack("{s:s}", "id", "balloon0")));
	check(qmp_wait_event(&vm->qmp, "DEVICE_DELETED", 30000),
	      "the device is not gone 30 s after device_del");
}

static void hot_unplug(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 1024, .balloon = "",
	};
	uint64_t actual_bytes, deadline_ms;
	struct counters c;
	struct vm vm;

	vm_boot(&vm, &config);
	deadline_ms = now_ms() + 10000;
	balloon_set(&vm, 300);
	do {
		actual_bytes = balloon_actual(&vm);
		check(now_ms() < deadline_ms, "the balloon does not inflate");
	} while (actual_bytes == 1024 * MIB);
	check(actual_bytes > 300 * MIB, "the balloon was full too early");
	note("unplugged with %llu MiB to go",
	     (unsigned long long)(actual_bytes / MIB - 300));
	unplug(&vm);
	c = guest_counters(&vm);
	check(c.inflate == c.deflate, "%llu pages are gone with the device",
	      (unsigned long long)(c.inflate - c.deflate));
	check(c.total_bytes == vm.boot_total_bytes,
	      "MemTotal is %llu KiB without the device, it was %llu KiB at boot",
	      (unsigned long long)c.total_bytes / 1024,
	      (unsigned long long)vm.boot_total_bytes / 1024);
	json_decref(qmp_call(&vm.qmp, "device_add",
			     json_pack("{s:s,s:s}", "driver",
				       "virtio-balloon-pci", "id",
				       "balloon0")));
	deadline_ms = now_ms() + 30000;
	while (!guest_balloon_device(&vm)) {
		check(now_ms() < deadline_ms,
		      "the guest does not see the device 30 s after device_add");
		sleep_ms(100);
	}
	balloon_go(&vm, 600, 60000);
	check_books(&vm);
	check_empty(&vm);
	vm_stop(&vm);
}

/* Content of other pages survives, and huge pages can be built. */
static void compaction(void)
{
	struct vm_config config = {
		.name = "vm", .mem_mib = 512, .balloon = "deflate-on-oom=on",
	};
	struct counters before, c;
	uint64_t got = 0;
	unsigned int round;
	struct vm vm;

	vm_boot(&vm, &config);
	/* The balloon between pages in use, and holes where others were */
	guest(&vm, 10000, "hold a 60 1");
	guest(&vm, 60000, "wait a 60000");
	balloon_go(&vm, 300, 60000);
	guest(&vm, 10000, "hold b 60 2");
	guest(&vm, 60000, "wait b 60000");
	balloon_go(&vm, 360, 60000);
	guest(&vm, 10000, "stop a");
	balloon_go(&vm, 330, 60000);
	/*
	 * Which pages compaction picks depends on where they happen to lie:
	 * stir memory until it had to pick some of the balloon's.
	 */
	before = guest_counters(&vm);
	for (round = 0; round < 20; round++) {
		guest(&vm, 120000, "compact");
		got = reply_number(guest(&vm, 120000, "hugepages 40"), "got");
		c = guest_counters(&vm);
		if (c.migrate > before.migrate + 100)
			break;
		guest(&vm, 30000, "hugepages 0");
		guest(&vm, 10000, "hold stir %u", 20 + round);
		guest(&vm, 60000, "wait stir 60000");
		balloon_go(&vm, 320 + round, 60000);
		guest(&vm, 10000, "stop stir");
		balloon_go(&vm, 330 - round, 60000);
	}
	note("%llu balloon pages migrated, %llu of 40 huge pages had",
	     (unsigned long long)(c.migrate - before.migrate),
	     (unsigned long long)got);
	check(c.migrate > before.migrate, "compaction moved no balloon page");
	check(got == 40, "only %llu of 40 huge pages",
	      (unsigned long long)got);
	check(!reply_number(guest(&vm, 60000, "verify b"), "bad"),
	      "compaction damaged memory in use");
	check_books(&vm);
	guest(&vm, 30000, "hugepages 0");
	guest(&vm, 10000, "stop b");
	check_empty(&vm);
	vm_stop(&vm);
}

const struct scenario lifecycle_scenarios[] = {
	{ "unbind-rebind", unbind_rebind, 180, NEED_ANY },
	{ "load-unload", load_unload, 120, NEED_MODULE },
	{ "suspend-s3", suspend_s3, 120, NEED_ANY },
	{ "pm-test", pm_test, 120, NEED_ANY },
	{ "hibernate", hibernate, 240, NEED_ANY },
	{ "hot-unplug", hot_unplug, 120, NEED_ANY },
	{ "compaction", compaction, 180, NEED_ANY },
	{ }
};
