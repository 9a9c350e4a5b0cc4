// SPDX-License-Identifier: GPL-2.0
/* Options, the scenarios' processes and their time limits, TAP output */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <getopt.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "balloon_host.h"

struct options opt = {
	.qemu = "qemu-system-x86_64",
	.accel = "auto",
	.lane = "",
};

char scratch_dir[128];
/* The process that a scenario, or the demo, runs in; 0 in that process */
static pid_t child_pid;
static volatile sig_atomic_t got_signal;
/* In a child: not the place to remove what the parent removes */
static bool is_child;

uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

void sleep_ms(unsigned int ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

static void vsay(const char *format, va_list args)
{
	printf("# ");
	vprintf(format, args);
	printf("\n");
	fflush(stdout);
}

void note(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsay(format, args);
	va_end(args);
}

/* The reason reaches the parent through a file, as the line is the parent's. */
static void leave_reason(const char *format, va_list args)
{
	FILE *f = fopen(scratch("reason"), "w");

	if (!f)
		return;
	vfprintf(f, format, args);
	fclose(f);
}

__attribute__((noreturn))
static void vfail(const char *format, va_list args)
{
	static bool is_failing;
	va_list again;

	/* What looks at the guests of a failure may fail as well. */
	if (is_failing)
		exit(1);
	is_failing = true;
	va_copy(again, args);
	if (is_child) {
		vsay(format, args);
		leave_reason(format, again);
		vm_show_all();
	} else {
		fprintf(stderr, "balloon_host: ");
		vfprintf(stderr, format, args);
		fprintf(stderr, "\n");
	}
	va_end(again);
	exit(1);
}

void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfail(format, args);
	va_end(args);
}

void figure(const char *unit, double value, const char *format, ...)
{
	va_list args;

	printf("# figure: ");
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf(" = %.4g %s\n", value, unit);
	fflush(stdout);
}

void expect(bool is_so, const char *format, ...)
{
	va_list args;

	if (is_so)
		return;
	va_start(args, format);
	if (strncmp(opt.lane, "stock", 5))
		vfail(format, args);
	printf("# not as this driver does: ");
	vprintf(format, args);
	printf("\n");
	va_end(args);
}

void skip(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	leave_reason(format, args);
	va_end(args);
	exit(KSFT_SKIP);
}

/* ---- the scratch directory --------------------------------------------- */

static void make_scratch(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(scratch_dir, sizeof(scratch_dir), "%.60s/balloon.XXXXXX",
		 tmp ? tmp : "/tmp");
	if (!mkdtemp(scratch_dir))
		fail("cannot make a directory in %s: %s", tmp ? tmp : "/tmp",
		     strerror(errno));
}

static int remove_one(const char *path, const struct stat *st, int flag,
		      struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static void remove_scratch(void)
{
	if (!is_child && scratch_dir[0])
		nftw(scratch_dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	if (!is_child)
		scratch_dir[0] = 0;
}

/* ---- processes --------------------------------------------------------- */

static void on_signal(int number)
{
	got_signal = number;
}

static void catch_signals(void)
{
	struct sigaction action = { .sa_handler = on_signal };

	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* Kills the child with all that it has started. */
static void kill_child(void)
{
	if (child_pid <= 0)
		return;
	kill(-child_pid, SIGKILL);
	waitpid(child_pid, NULL, 0);
	child_pid = 0;
}

static void leave_on_signal(void)
{
	if (!got_signal)
		return;
	kill_child();
	remove_scratch();
	fprintf(stderr, "balloon_host: interrupted, QEMU is stopped and nothing is left behind\n");
	exit(128 + got_signal);
}

static pid_t start_child(void)
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid)
		return pid;
	is_child = true;
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	return 0;
}

/* Returns the exit status, 124 when time was over. */
static int wait_child(unsigned int limit_s)
{
	uint64_t deadline_ms = now_ms() + limit_s * 1000ULL;
	int status;

	setpgid(child_pid, child_pid);
	while (waitpid(child_pid, &status, WNOHANG) != child_pid) {
		leave_on_signal();
		if (now_ms() > deadline_ms) {
			kill_child();
			return 124;
		}
		sleep_ms(20);
	}
	/* A QEMU that the scenario left behind */
	kill(-child_pid, SIGKILL);
	child_pid = 0;
	return WIFEXITED(status) ? WEXITSTATUS(status) :
	       128 + WTERMSIG(status);
}

/* ---- what the machine can do ------------------------------------------- */

/* Nothing can be run on this machine, or with these options. */
__attribute__((format(printf, 1, 2), noreturn))
static void give_up(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fprintf(stderr, "balloon_host: ");
	vfprintf(stderr, format, args);
	fprintf(stderr, "\n");
	va_end(args);
	exit(KSFT_SKIP);
}

static void check_file(const char *what, const char *option, const char *path)
{
	if (!path)
		give_up("no %s given, use %s FILE", what, option);
	if (access(path, R_OK))
		give_up("cannot read the %s %s: %s", what, path,
			strerror(errno));
}

static bool qemu_works(void)
{
	int status, fd;
	pid_t pid = fork();

	if (!pid) {
		fd = open("/dev/null", O_RDWR);
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
		execlp(opt.qemu, opt.qemu, "--version", (char *)NULL);
		_exit(127);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid &&
	       WIFEXITED(status) && !WEXITSTATUS(status);
}

/*
 * An open /dev/kvm is not enough: some nested setups accept a VM and cannot
 * run a kernel in it. So boot this one.
 */
static bool kvm_works(void)
{
	struct vm_config config = { .name = "probe", .mem_mib = 512 };
	int status;
	struct vm vm;

	if (access("/dev/kvm", R_OK | W_OK))
		return false;
	make_scratch();
	child_pid = start_child();
	if (!child_pid) {
		freopen("/dev/null", "w", stdout);
		opt.accel = "kvm";
		vm_boot(&vm, &config);
		exit(0);
	}
	status = wait_child(30);
	remove_scratch();
	return !status;
}

static void choose_accel(void)
{
	if (strcmp(opt.accel, "auto"))
		return;
	opt.accel = kvm_works() ? "kvm" : "tcg";
}

static void check_machine(void)
{
	if (!qemu_works())
		give_up("there is no working QEMU at %s (Debian package qemu-system-x86)",
			opt.qemu);
	check_file("kernel", "--kernel", opt.kernel);
	check_file("initramfs", "--initrd", opt.initrd);
	choose_accel();
}

/* ---- scenarios --------------------------------------------------------- */

static const struct scenario * const tables[] = {
	size_scenarios, pressure_scenarios, thrash_scenarios, host_scenarios,
	lifecycle_scenarios,
};

static const struct scenario *next_scenario(const struct scenario *s)
{
	static unsigned int table;

	if (!s)
		table = 0;
	s = s ? s + 1 : tables[0];
	while (!s->name) {
		if (++table == sizeof(tables) / sizeof(tables[0]))
			return NULL;
		s = tables[table];
	}
	return s;
}

static bool is_chosen(const struct scenario *s, int n, char **names)
{
	int i;

	for (i = 0; i < n; i++)
		if (!strcmp(names[i], s->name))
			return true;
	return !n;
}

static bool is_known(const char *name)
{
	const struct scenario *s;

	for (s = next_scenario(NULL); s; s = next_scenario(s))
		if (!strcmp(s->name, name))
			return true;
	return false;
}

static const char *lane_skips(const struct scenario *s)
{
	if (s->need == NEED_MODULE && !strncmp(opt.lane, "tree", 4))
		return "the driver is built into this kernel";
	return NULL;
}

static void read_reason(char *reason, size_t size)
{
	FILE *f = fopen(scratch("reason"), "r");

	snprintf(reason, size, "no reason given");
	if (f && fgets(reason, size, f))
		reason[strcspn(reason, "\n")] = 0;
	if (f)
		fclose(f);
}

static int run_one(const struct scenario *s, char *reason, size_t size)
{
	int status;

	make_scratch();
	child_pid = start_child();
	if (!child_pid) {
		s->run();
		exit(0);
	}
	status = wait_child(s->limit_s);
	read_reason(reason, size);
	if (status == 124)
		snprintf(reason, size, "not done within its limit of %u s",
			 s->limit_s);
	remove_scratch();
	return status;
}

/* Prints the TAP line. Returns whether it is a failure. */
static bool report_one(const struct scenario *s, unsigned int number,
		       unsigned int *skipped)
{
	const char *why = lane_skips(s);
	uint64_t begin_ms = now_ms();
	char reason[256];
	int status;

	if (why) {
		printf("ok %u %s # SKIP %s\n", number, s->name, why);
		++*skipped;
		return false;
	}
	note("%s ...", s->name);
	status = run_one(s, reason, sizeof(reason));
	note("%s: %.1f s", s->name, (now_ms() - begin_ms) / 1000.0);
	if (status == KSFT_SKIP)
		printf("ok %u %s # SKIP %s\n", number, s->name, reason);
	else if (status)
		printf("not ok %u %s # %s\n", number, s->name, reason);
	else
		printf("ok %u %s\n", number, s->name);
	fflush(stdout);
	*skipped += status == KSFT_SKIP;
	return status && status != KSFT_SKIP;
}

static int run_scenarios(int n, char **names)
{
	unsigned int number = 0, total = 0, failed = 0, skipped = 0;
	const struct scenario *s;
	int i;

	for (i = 0; i < n; i++)
		if (!is_known(names[i]))
			fail("there is no scenario named %s, see \"list\"",
			     names[i]);
	for (s = next_scenario(NULL); s; s = next_scenario(s))
		total += is_chosen(s, n, names);
	printf("TAP version 13\n1..%u\n", total);
	note("kernel %s, lane %s, QEMU with %s", opt.kernel,
	     *opt.lane ? opt.lane : "unnamed", opt.accel);
	for (s = next_scenario(NULL); s; s = next_scenario(s))
		if (is_chosen(s, n, names))
			failed += report_one(s, ++number, &skipped);
	printf("# Totals: pass:%u fail:%u skip:%u\n",
	       number - failed - skipped, failed, skipped);
	return failed ? 1 : 0;
}

static int run_alone(int (*run)(void))
{
	int status;

	make_scratch();
	child_pid = start_child();
	if (!child_pid)
		exit(run());
	/* The terminal is the child's, which may want to read from it. */
	signal(SIGTTOU, SIG_IGN);
	setpgid(child_pid, child_pid);
	if (isatty(STDIN_FILENO))
		tcsetpgrp(STDIN_FILENO, child_pid);
	status = wait_child(24 * 3600);
	if (isatty(STDIN_FILENO))
		tcsetpgrp(STDIN_FILENO, getpgrp());
	remove_scratch();
	return status;
}

static int list_scenarios(void)
{
	const struct scenario *s;

	for (s = next_scenario(NULL); s; s = next_scenario(s))
		printf("%s\n", s->name);
	return 0;
}

/* ---- command line ------------------------------------------------------ */

static const char help_text[] =
"usage: balloon_host [OPTIONS] run [SCENARIO...] | list | kunit | demo | boot\n"
"\n"
"Tests the virtio balloon in guests under QEMU. Without a command: run.\n"
"\n"
"  run        the named scenarios, or all; TAP on standard output\n"
"  list       names of the scenarios\n"
"  kunit      the KUnit tests that are built into the kernel; TAP as well\n"
"  demo       one balloon cycle, with progress and a table\n"
"  boot       one guest, driven by hand\n"
"\n"
"  --kernel FILE    kernel image (or VB_KERNEL in the environment)\n"
"  --initrd FILE    initramfs made by mkinitramfs.sh (VB_INITRD)\n"
"  --qemu PATH      QEMU (VB_QEMU; default qemu-system-x86_64)\n"
"  --accel A        kvm, tcg or auto: whichever boots a guest (default auto)\n"
"  --append TEXT    more for the kernel command line\n"
"  --lane NAME      what is tested: names that begin with \"tree\" have the\n"
"                   driver built in; on those that begin with \"stock\" figures\n"
"                   are taken, not judged\n"
"  --program FILE   balloon_program, if it is not beside this program\n"
"  --csv FILE       demo: the course of it\n"
"  --table FILE     demo: the table\n"
"  --mem MIB        boot: memory (default 1024)\n"
"  --cpus N         boot: CPUs (default 2)\n"
"  --target MIB     boot: what the balloon is to leave\n"
"  --verbose\n"
"\n"
"Exit status: 0 all passed, 1 something failed, 2 wrong usage, 4 nothing could\n"
"be run, 128 + N after signal N.\n";

static void print_help(FILE *f)
{
	fputs(help_text, f);
}

static const struct option long_options[] = {
	{ "kernel", required_argument, NULL, 'k' },
	{ "initrd", required_argument, NULL, 'i' },
	{ "qemu", required_argument, NULL, 'q' },
	{ "accel", required_argument, NULL, 'a' },
	{ "append", required_argument, NULL, 'p' },
	{ "lane", required_argument, NULL, 'l' },
	{ "program", required_argument, NULL, 'P' },
	{ "csv", required_argument, NULL, 'c' },
	{ "table", required_argument, NULL, 't' },
	{ "mem", required_argument, NULL, 'm' },
	{ "cpus", required_argument, NULL, 'n' },
	{ "target", required_argument, NULL, 'g' },
	{ "verbose", no_argument, NULL, 'v' },
	{ "help", no_argument, NULL, 'h' },
	{ }
};

static unsigned int parse_number(const char *text, const char *what)
{
	unsigned long value;
	char *end;

	errno = 0;
	value = strtoul(text, &end, 10);
	if (errno || end == text || *end || !value || value > 1 << 24)
		fail("%s is not a number for %s", text, what);
	return value;
}

static const char **text_option(int c)
{
	switch (c) {
	case 'k':
		return &opt.kernel;
	case 'i':
		return &opt.initrd;
	case 'q':
		return &opt.qemu;
	case 'a':
		return &opt.accel;
	case 'p':
		return &opt.append;
	case 'l':
		return &opt.lane;
	case 'P':
		return &opt.program;
	case 'c':
		return &opt.csv;
	case 't':
		return &opt.table;
	}
	return NULL;
}

static void parse_option(int c)
{
	const char **text = text_option(c);

	if (text) {
		*text = optarg;
		return;
	}
	switch (c) {
	case 'm':
		opt.mem_mib = parse_number(optarg, "--mem");
		break;
	case 'n':
		opt.cpus = parse_number(optarg, "--cpus");
		break;
	case 'g':
		opt.target_mib = parse_number(optarg, "--target");
		break;
	case 'v':
		opt.verbose = true;
		break;
	case 'h':
		print_help(stdout);
		exit(0);
	default:
		print_help(stderr);
		exit(2);
	}
}

static void take_environment(void)
{
	opt.kernel = getenv("VB_KERNEL");
	opt.initrd = getenv("VB_INITRD");
	if (getenv("VB_QEMU"))
		opt.qemu = getenv("VB_QEMU");
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} alone[] = {
		{ "demo", demo }, { "boot", boot }, { "kunit", kunit },
	};
	const char *command;
	size_t i;
	int c;

	take_environment();
	while ((c = getopt_long(argc, argv, "h", long_options, NULL)) != -1)
		parse_option(c);
	command = optind < argc ? argv[optind++] : "run";
	if (!strcmp(command, "list"))
		return list_scenarios();
	/* As one test of the kernel's many: without a guest there is none. */
	if (argc == 1 && (!opt.kernel || !opt.initrd)) {
		printf("TAP version 13\n1..0 # SKIP set VB_KERNEL and VB_INITRD to a kernel and an initramfs\n");
		return KSFT_SKIP;
	}
	catch_signals();
	if (!strcmp(command, "run")) {
		check_machine();
		return run_scenarios(argc - optind, argv + optind);
	}
	for (i = 0; i < sizeof(alone) / sizeof(alone[0]); i++) {
		if (strcmp(command, alone[i].name))
			continue;
		check_machine();
		return run_alone(alone[i].run);
	}
	fprintf(stderr, "balloon_host: there is no command \"%s\"\n", command);
	print_help(stderr);
	return 2;
}
