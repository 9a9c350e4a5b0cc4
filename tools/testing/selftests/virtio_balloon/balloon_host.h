/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Host side of the balloon tests: starts guests under QEMU, speaks QMP with
 * QEMU and the line protocol of balloon_guest.c with the guest, runs scenarios.
 *
 * A scenario runs in a process of its own. It fails by leaving that process
 * through fail(), from however deep; QEMU dies with it (PR_SET_PDEATHSIG), and
 * the parent removes the directory in which everything of the scenario lives.
 */
#ifndef BALLOON_HOST_H
#define BALLOON_HOST_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define MIB		(1024ULL * 1024)
#define KSFT_SKIP	4

struct options {
	const char *qemu;
	const char *kernel;
	const char *initrd;
	const char *accel;	/* "kvm" or "tcg" once probed */
	const char *append;
	const char *lane;
	const char *program;	/* balloon_program, NULL: beside this one */
	const char *csv;
	const char *table;
	unsigned int mem_mib;	/* boot only; scenarios know what they need */
	unsigned int cpus;
	unsigned int target_mib;
	bool verbose;
};

extern struct options opt;
/* Directory of this scenario, removed by the parent */
extern char scratch_dir[];

/* host_main.c */
uint64_t now_ms(void);
void sleep_ms(unsigned int ms);
void note(const char *format, ...) __attribute__((format(printf, 1, 2)));
void fail(const char *format, ...)
	__attribute__((format(printf, 1, 2), noreturn));
void skip(const char *format, ...)
	__attribute__((format(printf, 1, 2), noreturn));
/*
 * What is measured, and what is expected of it. On lanes that begin with
 * "stock" an expectation that fails is only noted: they are there to compare.
 */
void figure(const char *unit, double value, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
void expect(bool is_so, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
#define check(cond, ...) do { if (!(cond)) fail(__VA_ARGS__); } while (0)

/* host_qmp.c: one connection to QEMU's monitor */
struct qmp {
	int fd;
	char *buf;
	size_t len;
	size_t size;
	json_t *events;		/* array of events nobody has asked for yet */
};

void qmp_open(struct qmp *qmp, const char *path, unsigned int timeout_ms);
void qmp_close(struct qmp *qmp);
/* Both steal @arguments, which may be NULL. The result is the caller's. */
json_t *qmp_call(struct qmp *qmp, const char *command, json_t *arguments);
json_t *qmp_try(struct qmp *qmp, const char *command, json_t *arguments);
bool qmp_wait_event(struct qmp *qmp, const char *name, unsigned int timeout_ms);

/* host_vm.c */
struct vm_config {
	const char *name;	/* unique among the VMs of a scenario */
	unsigned int mem_mib;
	unsigned int cpus;	/* 0: 2 */
	const char *balloon;	/* options of the device, NULL: no device */
	const char *disk;	/* image that becomes /dev/vda */
	bool share_disk;	/* the first one is read by other VMs as well */
	const char *disk2;	/* image that becomes /dev/vdb */
	const char *append;
	const char *incoming;	/* socket to be migrated to */
	const char *trace;	/* trace event to log to trace_path */
	const char *icount;	/* options of -icount */
	bool hotplug_bus;	/* put the balloon where it can be unplugged */
};

struct vm {
	struct vm_config config;
	pid_t pid;
	struct qmp qmp;
	int guest_fd;
	char console_path[256];
	char trace_path[256];
	char *reply;		/* of the last guest command, a line each */
	size_t reply_size;
	uint64_t boot_total_bytes;	/* MemTotal without a balloon */
	uint64_t boot_usable_bytes;	/* free, or page cache, at that time */
	bool is_stopped;
	int status;		/* of QEMU's process, once it has ended */
};

void vm_start(struct vm *vm, const struct vm_config *config);
void vm_boot(struct vm *vm, const struct vm_config *config);
void vm_connect_guest(struct vm *vm);
void vm_stop(struct vm *vm);
void vm_check_alive(struct vm *vm);
void vm_check_console(struct vm *vm);
void vm_show_all(void);
uint64_t vm_rss_mib(struct vm *vm);
void make_disk(const char *path, const char *content_dir, unsigned int mib);
void make_raw(const char *path, unsigned int mib);
void make_data_file(const char *path, unsigned int mib);
const char *disk_with_file(unsigned int mib, const char *name);
const char *disk_with_programs(unsigned int nr, const char *name);
int connect_socket(const char *path, unsigned int timeout_ms);
void run_tool(const char *what, char *const argv[]);
const char *scratch(const char *name);

/* host_guest.c */
void guest_send(struct vm *vm, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
bool guest_answer(struct vm *vm, unsigned int timeout_ms);
const char *guest(struct vm *vm, unsigned int timeout_ms,
		  const char *format, ...)
	__attribute__((format(printf, 3, 4)));
bool guest_try(struct vm *vm, unsigned int timeout_ms, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
const char *reply_word(const char *reply, const char *key);
uint64_t reply_number(const char *reply, const char *key);
bool reply_has(const char *reply, const char *key);

/* What a guest says about its memory at one moment */
struct counters {
	uint64_t inflate;
	uint64_t deflate;
	uint64_t migrate;
	uint64_t oom_kill;
	uint64_t total_bytes;
	uint64_t memfree_bytes;
	uint64_t free_bytes;	/* MemFree and the free lists of the CPUs */
	uint64_t available_bytes;
	uint64_t cached_bytes;
	uint64_t majfault;
	uint64_t minfault;
};

struct counters guest_counters(struct vm *vm);
const char *guest_balloon_device(struct vm *vm);
const char *guest_state(struct vm *vm, const char *job);

/* host_balloon.c: the balloon as the host sees it */
uint64_t balloon_actual(struct vm *vm);
void balloon_set(struct vm *vm, uint64_t mib);
bool balloon_reaches(struct vm *vm, uint64_t mib, unsigned int timeout_ms);
double balloon_go(struct vm *vm, uint64_t mib, unsigned int timeout_ms);
void check_books(struct vm *vm);
void check_empty(struct vm *vm);

/* host_lifecycle.c */
void suspend_and_wake(struct vm *vm);

/* scenarios */
enum lane_need { NEED_ANY, NEED_MODULE };

struct scenario {
	const char *name;
	void (*run)(void);
	unsigned int limit_s;
	enum lane_need need;
};

extern const struct scenario size_scenarios[];
extern const struct scenario pressure_scenarios[];
extern const struct scenario thrash_scenarios[];
extern const struct scenario host_scenarios[];
extern const struct scenario lifecycle_scenarios[];

/* host_kunit.c */
int kunit(void);

/* host_demo.c */
int demo(void);
int boot(void);

#endif
