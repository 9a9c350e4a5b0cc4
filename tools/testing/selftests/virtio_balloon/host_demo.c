// SPDX-License-Identifier: GPL-2.0
/* The demo: one balloon cycle, watched; and a guest to play with */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "balloon_host.h"

#define DEMO_MIB	1024
#define DEMO_LEFT_MIB	320
#define DEMO_NEED_MIB	560
#define SAMPLE_MS	200
#define MAX_PHASES	8

struct phase {
	const char *name;
	double seconds;
	unsigned int target_mib;
	uint64_t actual_mib;
	struct counters counters;
};

static struct phase phases[MAX_PHASES];
static unsigned int nr_phases;
static uint64_t demo_begin_ms;
static unsigned int demo_target_mib = DEMO_MIB;
static FILE *demo_csv;

static void sample(struct vm *vm, const char *phase)
{
	static double next_line_s;
	double s = (now_ms() - demo_begin_ms) / 1000.0;
	uint64_t actual_mib = balloon_actual(vm) / MIB;
	struct counters c = guest_counters(vm);

	if (demo_csv)
		fprintf(demo_csv, "%.2f,%u,%llu,%llu,%llu,%llu\n", s,
			demo_target_mib, (unsigned long long)actual_mib,
			(unsigned long long)c.inflate,
			(unsigned long long)c.deflate,
			(unsigned long long)(c.memfree_bytes / MIB));
	/* A log needs no more than a line a second. */
	if (!isatty(STDERR_FILENO) && s < next_line_s)
		return;
	next_line_s = s + 1;
	fprintf(stderr, "%s%6.1f s  %-24s target %4u MiB, guest has %4llu MiB, free %4llu MiB%s",
		isatty(STDERR_FILENO) ? "\r" : "", s, phase, demo_target_mib,
		(unsigned long long)actual_mib,
		(unsigned long long)(c.memfree_bytes / MIB),
		isatty(STDERR_FILENO) ? " " : "\n");
}

static void begin_phase(const char *name)
{
	check(nr_phases < MAX_PHASES, "too many phases");
	phases[nr_phases].name = name;
	phases[nr_phases].seconds = now_ms() / 1000.0;
}

static void end_phase(struct vm *vm)
{
	struct phase *phase = &phases[nr_phases++];

	phase->seconds = now_ms() / 1000.0 - phase->seconds;
	phase->target_mib = demo_target_mib;
	phase->actual_mib = balloon_actual(vm) / MIB;
	phase->counters = guest_counters(vm);
	if (isatty(STDERR_FILENO))
		fputc('\n', stderr);
}

static void watch_for(struct vm *vm, const char *name, unsigned int ms)
{
	uint64_t end_ms = now_ms() + ms;

	do {
		sample(vm, name);
		sleep_ms(SAMPLE_MS);
	} while (now_ms() < end_ms);
}

static void watch_until(struct vm *vm, const char *name, unsigned int left_mib,
			unsigned int timeout_ms)
{
	uint64_t end_ms = now_ms() + timeout_ms;

	do {
		sample(vm, name);
		if (balloon_actual(vm) == left_mib * MIB)
			return;
		sleep_ms(SAMPLE_MS / 4);
	} while (now_ms() < end_ms);
	fail("%s: %u MiB not reached within %u s", name, left_mib,
	     timeout_ms / 1000);
}

static void go_phase(struct vm *vm, const char *name, unsigned int target_mib)
{
	begin_phase(name);
	demo_target_mib = target_mib;
	balloon_set(vm, target_mib);
	watch_until(vm, name, target_mib, 60000);
	end_phase(vm);
}

static void need_phase(struct vm *vm)
{
	static const char name[] = "a process needs memory";
	const char *state;

	begin_phase(name);
	guest(vm, 10000, "hold process %d 1", DEMO_NEED_MIB);
	do {
		sample(vm, name);
		sleep_ms(SAMPLE_MS / 2);
		state = guest_state(vm, "process");
	} while (!strcmp(state, "running"));
	check(!strcmp(state, "ready"), "the process is %s", state);
	sample(vm, name);
	end_phase(vm);
}

static void print_phases(FILE *f)
{
	unsigned int i;

	fprintf(f, "%-26s %8s %8s %8s %15s %15s %9s\n", "phase", "seconds",
		"target", "actual", "balloon_inflate", "balloon_deflate",
		"MemFree");
	fprintf(f, "%-26s %8s %8s %8s %15s %15s %9s\n", "", "", "MiB", "MiB",
		"pages", "pages", "MiB");
	for (i = 0; i < nr_phases; i++)
		fprintf(f, "%-26s %8.1f %8u %8llu %15llu %15llu %9llu\n",
			phases[i].name, phases[i].seconds,
			phases[i].target_mib,
			(unsigned long long)phases[i].actual_mib,
			(unsigned long long)phases[i].counters.inflate,
			(unsigned long long)phases[i].counters.deflate,
			(unsigned long long)(phases[i].counters.memfree_bytes /
					     MIB));
}

/* Written beside, then renamed: half a result is never taken for a whole. */
static FILE *open_result(const char *path, char *tmp, size_t size)
{
	FILE *f;

	if (!path)
		return NULL;
	snprintf(tmp, size, "%s.tmp", path);
	f = fopen(tmp, "w");
	check(f, "cannot write %s: %s", tmp, strerror(errno));
	return f;
}

static void close_result(FILE *f, const char *tmp, const char *path)
{
	if (!f)
		return;
	check(!fclose(f) && !rename(tmp, path), "cannot write %s: %s", path,
	      strerror(errno));
}

static void boot_phase(struct vm *vm)
{
	struct vm_config config = {
		.name = "demo", .mem_mib = DEMO_MIB,
		.balloon = "deflate-on-oom=on",
	};

	fprintf(stderr, "booting a guest of %d MiB under %s ...\n", DEMO_MIB,
		!strcmp(opt.accel, "kvm") ? "KVM" : "TCG (no usable KVM here)");
	begin_phase("boot");
	vm_boot(vm, &config);
	demo_begin_ms = now_ms();
	end_phase(vm);
}

int demo(void)
{
	char csv_tmp[512], table_tmp[512];
	FILE *table;
	struct vm vm;

	demo_csv = open_result(opt.csv, csv_tmp, sizeof(csv_tmp));
	table = open_result(opt.table, table_tmp, sizeof(table_tmp));
	if (demo_csv)
		fprintf(demo_csv, "seconds,target_mib,actual_mib,%s\n",
			"balloon_inflate_pages,balloon_deflate_pages,memfree_mib");
	boot_phase(&vm);
	watch_for(&vm, "at rest", 1000);
	go_phase(&vm, "inflate", DEMO_LEFT_MIB);
	begin_phase("at the target");
	watch_for(&vm, "at the target", 2000);
	end_phase(&vm);
	need_phase(&vm);
	begin_phase("the process holds it");
	watch_for(&vm, "the process holds it", 4000);
	end_phase(&vm);
	begin_phase("back after it has ended");
	guest(&vm, 10000, "stop process");
	watch_until(&vm, "back after it has ended", DEMO_LEFT_MIB, 60000);
	end_phase(&vm);
	go_phase(&vm, "deflate", DEMO_MIB);
	check(!guest_counters(&vm).oom_kill, "the guest had to kill a process");
	check_books(&vm);
	watch_for(&vm, "at rest", 1000);
	vm_stop(&vm);

	print_phases(stdout);
	if (table)
		print_phases(table);
	close_result(table, table_tmp, opt.table);
	close_result(demo_csv, csv_tmp, opt.csv);
	return 0;
}

static void relay(int from, int to)
{
	char buf[4096];
	ssize_t n = read(from, buf, sizeof(buf));

	if (n > 0 && write(to, buf, n) != n)
		fail("cannot write: %s", strerror(errno));
}

/* The guest's command channel on the terminal; "target MIB" goes to QEMU. */
static void talk(struct vm *vm)
{
	struct pollfd pfds[2] = {
		{ .fd = STDIN_FILENO, .events = POLLIN },
		{ .fd = vm->guest_fd, .events = POLLIN },
	};
	char line[1024];
	unsigned int mib;

	for (;;) {
		vm_check_alive(vm);
		if (poll(pfds, 2, 200) <= 0)
			continue;
		if (pfds[1].revents)
			relay(vm->guest_fd, STDOUT_FILENO);
		if (!pfds[0].revents)
			continue;
		if (!fgets(line, sizeof(line), stdin) ||
		    !strcmp(line, "quit\n"))
			return;
		if (sscanf(line, "target %u", &mib) == 1)
			balloon_set(vm, mib);
		else if (!strcmp(line, "actual\n"))
			printf("%llu MiB\n",
			       (unsigned long long)(balloon_actual(vm) / MIB));
		else
			guest_send(vm, "%.*s", (int)strcspn(line, "\n"), line);
	}
}

int boot(void)
{
	struct vm_config config = {
		.name = "guest",
		.mem_mib = opt.mem_mib ? opt.mem_mib : DEMO_MIB,
		.cpus = opt.cpus,
		.balloon = "deflate-on-oom=on,free-page-reporting=on",
	};
	struct vm vm;

	setvbuf(stdin, NULL, _IONBF, 0);
	vm_boot(&vm, &config);
	fprintf(stderr, "The guest is up; its console is in %s.\n"
		"Commands: target MIB, actual, quit, and those of the guest (counters, dmesg, hold NAME MIB, stop NAME, ...).\n",
		vm.console_path);
	if (opt.target_mib)
		balloon_set(&vm, opt.target_mib);
	talk(&vm);
	vm_stop(&vm);
	return 0;
}
