// SPDX-License-Identifier: GPL-2.0
/* QEMU processes: command line, life and death, console */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "balloon_host.h"

#define BOOT_TIMEOUT_MS	120000
#define MAX_ARGS	96
#define MAX_VMS		4

/* The VMs that run, for the consoles of a failure */
static struct vm *vms[MAX_VMS];
static unsigned int nr_vms;

/* A guest that prints one of these has failed, whatever else it does. */
static const char * const splats[] = {
	"WARNING:", "BUG:", "INFO: task", "INFO: rcu", "KASAN", "KCSAN",
	"Oops", "Kernel panic", "possible circular locking",
	"possible recursive locking", "inconsistent lock state",
	"suspicious RCU", "blocked for more than", "unreferenced object",
	"general protection fault", "Bad page state", "list_add corruption",
	"list_del corruption", "soft lockup", "pagealloc: memory corruption",
};

const char *scratch(const char *name)
{
	static char paths[16][256];
	static unsigned int turn;
	char *path = paths[turn++ % 16];

	snprintf(path, sizeof(paths[0]), "%s/%s", scratch_dir, name);
	return path;
}

int connect_socket(const char *path, unsigned int timeout_ms)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };
	uint64_t deadline_ms = now_ms() + timeout_ms;
	int fd;

	check(strlen(path) < sizeof(addr.sun_path),
	      "the path of the socket is too long: %s", path);
	memcpy(addr.sun_path, path, strlen(path));
	do {
		fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		check(fd >= 0, "no socket: %s", strerror(errno));
		if (!connect(fd, (struct sockaddr *)&addr, sizeof(addr)))
			return fd;
		close(fd);
		if (nr_vms)
			vm_check_alive(vms[nr_vms - 1]);
		sleep_ms(20);
	} while (now_ms() < deadline_ms);
	fail("nobody listens on %s after %u ms", path, timeout_ms);
}

/* Runs a program to its end; what it prints is shown only if it fails. */
void run_tool(const char *what, char *const argv[])
{
	char log_path[256];
	int status, fd;
	pid_t pid;

	snprintf(log_path, sizeof(log_path), "%s/tool.log", scratch_dir);
	pid = fork();
	if (!pid) {
		fd = open(log_path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
		execvp(argv[0], argv);
		_exit(127);
	}
	check(pid > 0 && waitpid(pid, &status, 0) == pid, "cannot run %s",
	      argv[0]);
	check(!WIFEXITED(status) || WEXITSTATUS(status) != 127,
	      "%s is not installed, it is needed to %s", argv[0], what);
	check(WIFEXITED(status) && !WEXITSTATUS(status),
	      "%s failed to %s, see %s", argv[0], what, log_path);
}

void make_raw(const char *path, unsigned int mib)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	check(fd >= 0 && !ftruncate(fd, mib * MIB), "cannot make %s: %s", path,
	      strerror(errno));
	close(fd);
}

/* An ext4 file system that holds what is in @content_dir */
void make_disk(const char *path, const char *content_dir, unsigned int mib)
{
	char *argv[] = { "mke2fs", "-q", "-F", "-t", "ext4", "-O",
			 "^has_journal", "-d", (char *)content_dir,
			 (char *)path, NULL };

	make_raw(path, mib);
	setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
	run_tool("make a disk", argv);
}

/* No two pages alike, so that nothing on the way can share or skip them */
void make_data_file(const char *path, unsigned int mib)
{
	static uint64_t chunk[MIB / 8];
	uint64_t x = 1;
	unsigned int i;
	size_t j;
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	check(fd >= 0, "cannot make %s: %s", path, strerror(errno));
	for (i = 0; i < mib; i++) {
		for (j = 0; j < MIB / 8; j++)
			chunk[j] = x++ * 0x9e3779b97f4a7c15ULL;
		check(write(fd, chunk, MIB) == (ssize_t)MIB,
		      "cannot write %s: %s", path, strerror(errno));
	}
	close(fd);
}

/* A disk of that name with one file of @mib MiB, called "file" */
const char *disk_with_file(unsigned int mib, const char *name)
{
	const char *disk = strdup(scratch(name));

	check(disk, "out of memory");
	mkdir(scratch("content"), 0700);
	make_data_file(scratch("content/file"), mib);
	make_disk(disk, scratch("content"), mib + mib / 8 + 16);
	unlink(scratch("content/file"));
	return disk;
}

/* Beside this program, unless an option says where */
static const char *program_path(void)
{
	static char path[512];
	ssize_t n;
	char *slash;

	if (opt.program)
		return opt.program;
	n = readlink("/proc/self/exe", path, sizeof(path) - 32);
	check(n > 0, "cannot tell where this program is: %s", strerror(errno));
	path[n] = 0;
	slash = strrchr(path, '/');
	snprintf(slash + 1, path + sizeof(path) - slash - 1, "balloon_program");
	return path;
}

/* A disk of that name with @nr programs of 10 MiB */
const char *disk_with_programs(unsigned int nr, const char *name)
{
	const char *disk = strdup(scratch(name));
	char path[300];
	unsigned int i;

	check(disk, "out of memory");
	check(!access(program_path(), R_OK),
	      "there is no %s, the option --program says where it is",
	      program_path());
	mkdir(scratch("content"), 0700);
	for (i = 0; i < nr; i++) {
		char *argv[] = { "cp", (char *)program_path(), path, NULL };

		snprintf(path, sizeof(path), "%s/program-%02u",
			 scratch("content"), i);
		run_tool("copy a program", argv);
	}
	make_disk(disk, scratch("content"), nr * 12 + 16);
	for (i = 0; i < nr; i++) {
		snprintf(path, sizeof(path), "%s/program-%02u",
			 scratch("content"), i);
		unlink(path);
	}
	return disk;
}

static uint64_t host_available_mib(void)
{
	unsigned long long kib = 0;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "r");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "MemAvailable: %llu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	return kib / 1024;
}

/* ---- command line ------------------------------------------------------ */

static char *args[MAX_ARGS];
static unsigned int nr_args;

__attribute__((format(printf, 1, 2)))
static void add_arg(const char *format, ...)
{
	va_list list;

	check(nr_args < MAX_ARGS - 1, "too many arguments for QEMU");
	va_start(list, format);
	check(vasprintf(&args[nr_args++], format, list) >= 0, "out of memory");
	va_end(list);
	args[nr_args] = NULL;
}

static void add_pair(const char *option, const char *value)
{
	add_arg("%s", option);
	add_arg("%s", value);
}

static void add_balloon_args(const struct vm_config *config)
{
	if (!config->balloon)
		return;
	if (strstr(config->balloon, "iothread="))
		add_pair("-object", "iothread,id=io0");
	add_arg("-device");
	add_arg("virtio-balloon-pci,id=balloon0%s%s",
		*config->balloon ? "," : "", config->balloon);
}

static void add_disk_args(const struct vm_config *config)
{
	if (config->disk) {
		add_arg("-drive");
		add_arg("file=%s,format=raw,if=virtio,index=0,readonly=%s",
			config->disk, config->share_disk ? "on" : "off");
	}
	if (config->disk2) {
		add_arg("-drive");
		add_arg("file=%s,format=raw,if=virtio,index=1", config->disk2);
	}
}

static void add_channel_args(struct vm *vm)
{
	const char *name = vm->config.name;

	add_arg("-chardev");
	add_arg("file,id=console,path=%s", vm->console_path);
	add_pair("-serial", "chardev:console");
	add_arg("-chardev");
	add_arg("socket,id=guest,path=%s/%s.guest,server=on,wait=off",
		scratch_dir, name);
	add_pair("-serial", "chardev:guest");
	add_arg("-qmp");
	add_arg("unix:%s/%s.qmp,server=on,wait=off", scratch_dir, name);
}

static void build_args(struct vm *vm)
{
	const struct vm_config *config = &vm->config;

	nr_args = 0;
	add_arg("%s", opt.qemu);
	add_pair("-nodefaults", "-no-reboot");
	add_pair("-display", "none");
	add_pair("-machine", "pc");
	add_pair("-accel", config->icount ? "tcg" : opt.accel);
	if (!config->icount && !strcmp(opt.accel, "kvm"))
		add_pair("-cpu", "host");
	if (config->icount)
		add_pair("-icount", config->icount);
	add_arg("-m");
	add_arg("%u", config->mem_mib);
	add_arg("-smp");
	add_arg("%u", config->cpus ? config->cpus : 2);
	add_pair("-kernel", opt.kernel);
	add_pair("-initrd", opt.initrd);
	add_arg("-append");
	add_arg("console=ttyS0 panic=-1 loglevel=6 %s %s",
		config->append ? config->append : "",
		opt.append ? opt.append : "");
	add_channel_args(vm);
	add_balloon_args(config);
	add_disk_args(config);
	if (config->trace) {
		add_arg("-trace");
		add_arg("%s", config->trace);
		add_pair("-D", vm->trace_path);
	}
	if (config->incoming) {
		add_arg("-incoming");
		add_arg("unix:%s", config->incoming);
	}
}

/* ---- life -------------------------------------------------------------- */

static void exec_qemu(struct vm *vm)
{
	char path[256];
	int fd;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(path, sizeof(path), "%s/%s.qemu", scratch_dir,
		 vm->config.name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	fd = open("/dev/null", O_RDONLY);
	dup2(fd, STDIN_FILENO);
	execvp(args[0], args);
	fprintf(stderr, "%s: %s\n", args[0], strerror(errno));
	_exit(127);
}

void vm_start(struct vm *vm, const struct vm_config *config)
{
	uint64_t have_mib = host_available_mib();
	char path[256];

	check(have_mib >= config->mem_mib + 128,
	      "the host has %llu MiB available, a guest of %u MiB needs more",
	      (unsigned long long)have_mib, config->mem_mib);
	memset(vm, 0, sizeof(*vm));
	vm->config = *config;
	snprintf(vm->console_path, sizeof(vm->console_path), "%s/%s.console",
		 scratch_dir, config->name);
	snprintf(vm->trace_path, sizeof(vm->trace_path), "%s/%s.trace",
		 scratch_dir, config->name);
	build_args(vm);
	/* Nobody shall connect to what an earlier QEMU has left. */
	snprintf(path, sizeof(path), "%s/%s.guest", scratch_dir, config->name);
	unlink(path);
	snprintf(path, sizeof(path), "%s/%s.qmp", scratch_dir, config->name);
	unlink(path);
	vm->guest_fd = -1;
	vm->pid = fork();
	check(vm->pid >= 0, "cannot fork: %s", strerror(errno));
	if (!vm->pid)
		exec_qemu(vm);
	check(nr_vms < MAX_VMS, "too many VMs in one scenario");
	vms[nr_vms++] = vm;
	qmp_open(&vm->qmp, path, 20000);
}

static void forget_vm(struct vm *vm)
{
	unsigned int i;

	for (i = 0; i < nr_vms; i++)
		if (vms[i] == vm)
			vms[i--] = vms[--nr_vms];
}

static bool vm_has_ended(struct vm *vm)
{
	if (!vm->is_stopped && waitpid(vm->pid, &vm->status, WNOHANG) == vm->pid)
		vm->is_stopped = true;
	return vm->is_stopped;
}

void vm_check_alive(struct vm *vm)
{
	int status;

	if (!vm_has_ended(vm))
		return;
	status = vm->status;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		fail("there is no QEMU at %s", opt.qemu);
	fail("QEMU ended by itself (%s %d)", WIFEXITED(status) ? "exit status" :
	     "signal", WIFEXITED(status) ? WEXITSTATUS(status) :
	     WTERMSIG(status));
}

void vm_connect_guest(struct vm *vm)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s.guest", scratch_dir,
		 vm->config.name);
	vm->guest_fd = connect_socket(path, 10000);
}

/*
 * What is sent before the guest listens may be lost, and so may be what it
 * says before anyone listens: ask, and listen for a while.
 */
static bool vm_is_ready(struct vm *vm)
{
	struct pollfd pfd = { .fd = vm->guest_fd, .events = POLLIN };
	static const char ping[] = "\nping\n";
	char buf[256];
	ssize_t n;

	if (write(vm->guest_fd, ping, sizeof(ping) - 1) < 0 ||
	    poll(&pfd, 1, 500) <= 0)
		return false;
	/* It is there. Let all that was asked so far be answered. */
	do {
		n = read(vm->guest_fd, buf, sizeof(buf));
	} while (n > 0 && poll(&pfd, 1, 300) > 0);
	return n > 0;
}

static bool console_has(struct vm *vm, const char *text)
{
	FILE *f = fopen(vm->console_path, "r");
	bool has = false;
	char line[1024];

	while (f && !has && fgets(line, sizeof(line), f))
		has = strstr(line, text);
	if (f)
		fclose(f);
	return has;
}

static bool wait_ready(struct vm *vm, uint64_t deadline_ms)
{
	while (!vm_is_ready(vm)) {
		if (vm_has_ended(vm))
			return false;
		check(now_ms() < deadline_ms,
		      "the guest does not come up within %d s",
		      BOOT_TIMEOUT_MS / 1000);
	}
	return true;
}

/*
 * QEMU without KVM resets one guest in ten with more than one CPU when it wakes
 * from S3, whatever driver it has, and was seen to do it to one in some hundred
 * that boot, without a word on the console or with an int3 in code that the
 * kernel was just patching. If that is how it looks, and nothing of the driver
 * is to be seen in it, it is worth another try, once, and a note.
 */
static bool has_stale_code(struct vm *vm)
{
	return console_has(vm, "Oops: int3") &&
	       !console_has(vm, "virtballoon_") && !console_has(vm, "balloon_page");
}

static bool was_reset(struct vm *vm)
{
	if (strcmp(opt.accel, "tcg") || vm->config.cpus == 1 ||
	    !WIFEXITED(vm->status) || WEXITSTATUS(vm->status))
		return false;
	if (!has_stale_code(vm))
		vm_check_console(vm);
	note("%s: QEMU ended the guest before it was up, once more",
	     vm->config.name);
	close(vm->guest_fd);
	qmp_close(&vm->qmp);
	forget_vm(vm);
	return true;
}

/* The same, for a guest that got over it */
static bool was_hit(struct vm *vm)
{
	if (strcmp(opt.accel, "tcg") || vm->config.cpus == 1 || vm->is_stopped ||
	    !has_stale_code(vm))
		return false;
	note("%s: int3 while the guest booted, once more", vm->config.name);
	kill(vm->pid, SIGKILL);
	waitpid(vm->pid, NULL, 0);
	close(vm->guest_fd);
	qmp_close(&vm->qmp);
	forget_vm(vm);
	return true;
}

/* Starts a VM and waits until its guest serves commands. */
void vm_boot(struct vm *vm, const struct vm_config *config)
{
	uint64_t begin_ms = now_ms();
	struct counters c;

	vm_start(vm, config);
	vm_connect_guest(vm);
	if ((!wait_ready(vm, begin_ms + BOOT_TIMEOUT_MS) && was_reset(vm)) ||
	    was_hit(vm)) {
		vm_start(vm, config);
		vm_connect_guest(vm);
		wait_ready(vm, begin_ms + BOOT_TIMEOUT_MS);
	}
	vm_check_alive(vm);
	c = guest_counters(vm);
	vm->boot_total_bytes = c.total_bytes;
	vm->boot_usable_bytes = c.free_bytes + c.cached_bytes;
	if (opt.verbose)
		note("%s: up after %llu ms", config->name,
		     (unsigned long long)(now_ms() - begin_ms));
}

static void show_file(const char *what, const char *path, long max_bytes)
{
	FILE *f = fopen(path, "r");
	char line[512];

	if (!f)
		return;
	printf("# ---- %s\n", what);
	fseek(f, 0, SEEK_END);
	if (ftell(f) > max_bytes)
		fseek(f, -max_bytes, SEEK_END);
	else
		rewind(f);
	while (fgets(line, sizeof(line), f))
		printf("# %s%s", line, strchr(line, '\n') ? "" : "\n");
	fclose(f);
}

/* Where the CPUs of a guest are that may not be able to say it themselves */
static void show_cpus(struct vm *vm)
{
	json_t *result;
	const char *at;

	if (vm_has_ended(vm))
		return;
	result = qmp_try(&vm->qmp, "human-monitor-command",
			 json_pack("{s:s}", "command-line",
				   "info registers -a"));
	at = json_string_value(result);
	while (at) {
		if (!strncmp(at, "CPU#", 4) || !strncmp(at, "RIP=", 4))
			printf("# %.*s\n", (int)strcspn(at, "\r\n"), at);
		at = strchr(at, '\n');
		at = at ? at + 1 : NULL;
	}
	json_decref(result);
}

void vm_show_all(void)
{
	char path[256];
	unsigned int i;

	for (i = 0; i < nr_vms; i++) {
		printf("# ---- guest %s\n", vms[i]->config.name);
		snprintf(path, sizeof(path), "%s/%s.qemu", scratch_dir,
			 vms[i]->config.name);
		show_file("QEMU says", path, 4000);
		show_file("console", vms[i]->console_path, 6000);
	}
	fflush(stdout);
	for (i = 0; i < nr_vms; i++)
		show_cpus(vms[i]);
	fflush(stdout);
}

void vm_check_console(struct vm *vm)
{
	FILE *f = fopen(vm->console_path, "r");
	char line[1024];
	size_t i;

	check(f, "the guest has no console");
	while (fgets(line, sizeof(line), f))
		for (i = 0; i < sizeof(splats) / sizeof(splats[0]); i++)
			if (strstr(line, splats[i])) {
				fclose(f);
				fail("the guest's kernel complains: %s", line);
			}
	fclose(f);
}

/* The end of a VM that has done all that was asked: a look at its console */
void vm_stop(struct vm *vm)
{
	uint64_t deadline_ms;
	json_t *result;

	vm_check_alive(vm);
	vm_check_console(vm);
	result = qmp_try(&vm->qmp, "quit", NULL);
	json_decref(result);
	deadline_ms = now_ms() + 10000;
	while (!waitpid(vm->pid, NULL, WNOHANG)) {
		check(now_ms() < deadline_ms, "QEMU does not quit");
		sleep_ms(5);
	}
	vm->is_stopped = true;
	forget_vm(vm);
	qmp_close(&vm->qmp);
	if (vm->guest_fd >= 0)
		close(vm->guest_fd);
	free(vm->reply);
	vm->reply = NULL;
}

uint64_t vm_rss_mib(struct vm *vm)
{
	unsigned long long kib = 0;
	char path[64], line[128];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", vm->pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "VmRSS: %llu", &kib) == 1)
			break;
	if (f)
		fclose(f);
	check(kib, "cannot tell QEMU's resident memory");
	return kib / 1024;
}
