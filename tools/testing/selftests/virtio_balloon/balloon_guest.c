// SPDX-License-Identifier: GPL-2.0
/*
 * Init of a guest that the balloon tests run: does what the host side asks for
 * on the second serial port, one command a line, and answers with lines that
 * begin with "= ", followed by "ok" or "error TEXT".
 *
 * It has to work in a guest whose balloon leaves it a few MiB: everything that
 * the command loop uses is static and locked in memory, and whatever needs
 * memory on purpose is done by a child.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#define PAGE_BYTES	4096UL
#define MIB		(1UL << 20)
#define MAX_WORDS	32
#define MAX_JOBS	24
#define MAX_PASSES	16
#define MAX_TIME_MS	3600000UL
/* A job that does nothing for so long is given up. */
#define STALL_MS	120000UL
/* Where a file is taken for one without an end */
#define MAX_READ_BYTES	(64 * MIB)
#define DRIVER_DIR	"/sys/bus/virtio/drivers/virtio_balloon/"
#define DEVICES_DIR	"/sys/bus/virtio/devices/"

enum job_state { JOB_RUNNING, JOB_READY, JOB_EXITED, JOB_KILLED };

/* One time through the work of a job that does it several times */
struct pass {
	uint64_t us;
	uint64_t majfaults;
};

/* What a child tells about itself, in memory shared with it */
struct job_report {
	volatile uint64_t progress_mib;
	volatile uint64_t elapsed_ms;
	volatile uint64_t pages;
	volatile uint64_t bad;
	volatile uint64_t touches;
	volatile struct pass passes[MAX_PASSES];
	volatile unsigned int nr_passes;
	volatile int ready;
	volatile int verify_asked;
	volatile int verify_done;
};

struct job {
	char name[32];
	pid_t pid;
	bool gone;
	int status;
	uint64_t begin_ms;
	uint64_t end_ms;
	struct job_report *report;
};

static struct job jobs[MAX_JOBS];
static struct job_report *reports;
static int channel_in = STDIN_FILENO;
static int channel_out = STDOUT_FILENO;
static char file_buf[512 * 1024];
static char out_buf[64 * 1024];
static size_t out_len;
static bool in_line;		/* the last line of the answer has no end yet */
static char whole_line[4096];	/* the command as it came */

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_BOOTTIME, &ts);
	return (uint64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

static void sleep_ms(long ms)
{
	struct timespec ts = { ms / 1000, (ms % 1000) * 1000000 };

	while (nanosleep(&ts, &ts) && errno == EINTR)
		;
}

/* ---- the channel ------------------------------------------------------- */

static void flush_out(void)
{
	size_t done = 0;

	while (done < out_len) {
		ssize_t n = write(channel_out, out_buf + done, out_len - done);

		if (n < 0 && errno != EINTR && errno != EAGAIN)
			break;
		done += n > 0 ? n : 0;
	}
	out_len = 0;
}

static void put_bytes(const char *bytes, size_t len)
{
	while (len) {
		size_t n = sizeof(out_buf) - out_len;

		if (n > len)
			n = len;
		memcpy(out_buf + out_len, bytes, n);
		out_len += n;
		bytes += n;
		len -= n;
		if (out_len == sizeof(out_buf))
			flush_out();
	}
}

__attribute__((format(printf, 1, 2)))
static void put_line(const char *format, ...)
{
	char line[512];
	va_list args;
	int len;

	va_start(args, format);
	len = vsnprintf(line, sizeof(line) - 1, format, args);
	va_end(args);
	if (len > (int)sizeof(line) - 2)
		len = sizeof(line) - 2;
	line[len++] = '\n';
	put_bytes(line, len);
}

/*
 * A text of several lines, each as one line of the answer. A line may come in
 * parts; end_text() ends the last one.
 */
static void put_text(const char *text, size_t len)
{
	while (len) {
		const char *end = memchr(text, '\n', len);
		size_t n = end ? (size_t)(end - text) + 1 : len;

		if (!in_line)
			put_bytes("= ", 2);
		put_bytes(text, n);
		in_line = !end;
		text += n;
		len -= n;
	}
}

static void end_text(void)
{
	if (in_line)
		put_bytes("\n", 1);
	in_line = false;
}

static void put_ok(void)
{
	put_line("ok");
}

static void put_errno(const char *what)
{
	put_line("error %s: %s", what, strerror(errno));
}

/* ---- files ------------------------------------------------------------- */

static ssize_t read_file(const char *path, char *buf, size_t size)
{
	size_t len = 0;
	ssize_t n = 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	while (len < size && (n = read(fd, buf + len, size - len)) > 0)
		len += n;
	close(fd);
	return n < 0 ? -1 : (ssize_t)len;
}

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t len = strlen(text);
	ssize_t n;
	int err;

	if (fd < 0)
		return -1;
	n = write(fd, text, len);
	err = errno;
	close(fd);
	errno = n >= 0 ? EIO : err;
	return n == len ? 0 : -1;
}

static void make_dirs(const char *path)
{
	char part[256];
	size_t i;

	for (i = 1; path[i] && i < sizeof(part) - 1; i++) {
		if (path[i] != '/')
			continue;
		memcpy(part, path, i);
		part[i] = 0;
		mkdir(part, 0755);
	}
	mkdir(path, 0755);
}

static void answer_write(const char *path, const char *text)
{
	if (write_file(path, text))
		put_errno(path);
	else
		put_ok();
}

/* ---- content that can be verified -------------------------------------- */

/* SplitMix64's finaliser: neighbouring pages differ in all words. */
static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

static void fill_page(uint64_t *page, uint64_t seed, uint64_t index)
{
	uint64_t word = mix(seed ^ mix(index + 1));
	size_t i;

	for (i = 0; i < PAGE_BYTES / sizeof(*page); i++)
		page[i] = word + i;
}

static bool page_is_good(const uint64_t *page, uint64_t seed, uint64_t index)
{
	uint64_t word = mix(seed ^ mix(index + 1));
	size_t i;

	for (i = 0; i < PAGE_BYTES / sizeof(*page); i++)
		if (page[i] != word + i)
			return false;
	return true;
}

/* ---- jobs: children that go on by themselves --------------------------- */

static struct job *find_job(const char *name)
{
	int i;

	for (i = 0; i < MAX_JOBS; i++)
		if (jobs[i].pid && !strcmp(jobs[i].name, name))
			return &jobs[i];
	put_line("error no job named %s", name);
	return NULL;
}

static struct job *new_job(const char *name)
{
	int i;

	if (strlen(name) >= sizeof(jobs[0].name)) {
		put_line("error the name %.32s... is too long", name);
		return NULL;
	}
	for (i = 0; i < MAX_JOBS; i++)
		if (jobs[i].pid && !strcmp(jobs[i].name, name)) {
			put_line("error there is a job named %s", name);
			return NULL;
		}
	for (i = 0; i < MAX_JOBS; i++)
		if (!jobs[i].pid) {
			memset(&jobs[i], 0, sizeof(jobs[i]));
			snprintf(jobs[i].name, sizeof(jobs[i].name), "%s",
				 name);
			jobs[i].report = &reports[i];
			memset(jobs[i].report, 0, sizeof(*reports));
			jobs[i].begin_ms = now_ms();
			return &jobs[i];
		}
	put_line("error too many jobs");
	return NULL;
}

static void look_at_job(struct job *job)
{
	if (job->gone || waitpid(job->pid, &job->status, WNOHANG) != job->pid)
		return;
	job->gone = true;
	job->end_ms = now_ms();
}

static void put_job(struct job *job)
{
	struct job_report *report = job->report;
	uint64_t elapsed_ms = report->elapsed_ms;
	unsigned int i;

	if (!job->gone)
		put_line("= state %s", report->ready ? "ready" : "running");
	else if (WIFSIGNALED(job->status))
		put_line("= state killed %d", WTERMSIG(job->status));
	else
		put_line("= state exited %d", WEXITSTATUS(job->status));
	if (!elapsed_ms)
		elapsed_ms = (job->gone ? job->end_ms : now_ms()) -
			     job->begin_ms;
	put_line("= progress_mib %llu",
		 (unsigned long long)report->progress_mib);
	put_line("= elapsed_ms %llu", (unsigned long long)elapsed_ms);
	put_line("= touches %llu", (unsigned long long)report->touches);
	put_line("= passes %u", report->nr_passes);
	for (i = 0; i < report->nr_passes; i++) {
		put_line("= pass%u_us %llu", i + 1,
			 (unsigned long long)report->passes[i].us);
		put_line("= pass%u_majfaults %llu", i + 1,
			 (unsigned long long)report->passes[i].majfaults);
	}
	put_ok();
}

/* Runs in the child before anything else. */
static void become_job(void)
{
	/* With --stdio nobody else would end it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	write_file("/proc/self/oom_score_adj", "0");
	munlockall();
	close(channel_in);
	if (channel_out != channel_in)
		close(channel_out);
	signal(SIGPIPE, SIG_DFL);
}

/* Forks; returns 0 in the child, 1 in the parent, -1 after an error. */
static int start_job(struct job *job)
{
	flush_out();
	job->pid = fork();
	if (job->pid < 0) {
		job->pid = 0;
		put_errno("fork");
		return -1;
	}
	if (job->pid)
		return 1;
	become_job();
	return 0;
}

static void hold_verify(struct job_report *report, const char *memory,
			uint64_t nr_pages, uint64_t seed)
{
	uint64_t i, bad = 0;

	for (i = 0; i < nr_pages; i++) {
		bad += !page_is_good((const void *)(memory + i * PAGE_BYTES),
				     seed, i);
		report->pages = i + 1;
	}
	report->bad = bad;
	report->verify_done = report->verify_asked;
}

static void hold(struct job *job, uint64_t mib, uint64_t seed)
{
	struct job_report *report = job->report;
	uint64_t i, nr_pages = mib * (MIB / PAGE_BYTES);
	char *memory;

	memory = mmap(NULL, mib * MIB, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		_exit(errno == ENOMEM ? 12 : 1);
	for (i = 0; i < nr_pages; i++) {
		fill_page((void *)(memory + i * PAGE_BYTES), seed, i);
		report->progress_mib = (i + 1) / (MIB / PAGE_BYTES);
	}
	report->elapsed_ms = now_ms() - job->begin_ms;
	report->ready = 1;
	for (;;) {
		if (report->verify_done != report->verify_asked)
			hold_verify(report, memory, nr_pages, seed);
		sleep_ms(20);
	}
}

static void stream(struct job *job, const char *path)
{
	static char buf[MIB];
	uint64_t bytes = 0, pass_bytes;
	ssize_t n;
	int fd = open(path, O_RDONLY);

	if (fd < 0)
		_exit(errno);
	for (;;) {
		pass_bytes = bytes;
		while ((n = read(fd, buf, sizeof(buf))) > 0) {
			bytes += n;
			job->report->progress_mib = bytes / MIB;
		}
		if (n < 0)
			_exit(errno);
		if (bytes == pass_bytes)
			_exit(ENODATA);
		job->report->touches++;	/* passes */
		job->report->ready = 1;
		lseek(fd, 0, SEEK_SET);
	}
}

static volatile const char *map_file(const char *path, uint64_t *bytes)
{
	void *map;
	struct stat st;
	int fd = open(path, O_RDONLY);

	if (fd < 0 || fstat(fd, &st))
		_exit(errno);
	if (!st.st_size)
		_exit(ENODATA);
	map = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		_exit(errno);
	close(fd);
	*bytes = st.st_size;
	return map;
}

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000ULL + ts.tv_nsec / 1000;
}

/* Major faults of this process and of the children that it has waited for */
static uint64_t majfaults(void)
{
	struct rusage self, children;

	getrusage(RUSAGE_SELF, &self);
	getrusage(RUSAGE_CHILDREN, &children);
	return self.ru_majflt + children.ru_majflt;
}

static void begin_pass(struct pass *pass)
{
	pass->us = now_us();
	pass->majfaults = majfaults();
}

static void end_pass(struct job_report *report, struct pass *pass)
{
	unsigned int i = report->nr_passes;

	report->passes[i].us = now_us() - pass->us;
	report->passes[i].majfaults = majfaults() - pass->majfaults;
	report->nr_passes = i + 1;
}

/* Touches pages of a mapped file at random, the same ones in each pass. */
static void maptouch(struct job *job, const char *path, uint64_t touches,
		     uint64_t nr_passes)
{
	struct job_report *report = job->report;
	volatile const char *map;
	uint64_t bytes, x, i;
	struct pass pass;

	map = map_file(path, &bytes);
	report->ready = 1;
	while (report->nr_passes < nr_passes) {
		begin_pass(&pass);
		for (i = 0, x = 1; i < touches; i++) {
			x = mix(x + 0x9e3779b97f4a7c15ULL);
			(void)map[x % bytes];
			report->touches++;
		}
		end_pass(report, &pass);
	}
	_exit(0);
}

/* Reads a mapped file from its begin to its end, again and again. */
static void mapstream(struct job *job, const char *path)
{
	struct job_report *report = job->report;
	volatile const char *map;
	uint64_t bytes, i;

	map = map_file(path, &bytes);
	for (;;) {
		for (i = 0; i < bytes; i += PAGE_BYTES) {
			(void)map[i];
			if (!(i % MIB))
				report->progress_mib++;
		}
		report->touches++;	/* passes */
		report->ready = 1;
	}
}

static void run_program(const char *path)
{
	int status;
	pid_t pid = vfork();

	if (!pid) {
		execl(path, path, (char *)NULL);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		_exit(errno);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 126);
}

static int is_program(const struct dirent *entry)
{
	return entry->d_type == DT_REG;
}

/* Starts the programs of a directory in turn; each pass is all of them. */
static void programs(struct job *job, const char *dir, uint64_t nr_passes)
{
	struct dirent **entries;
	char path[512];
	struct pass pass;
	int i, n = scandir(dir, &entries, is_program, alphasort);

	if (n <= 0)
		_exit(n ? errno : ENODATA);
	job->report->ready = 1;
	while (job->report->nr_passes < nr_passes) {
		begin_pass(&pass);
		for (i = 0; i < n; i++) {
			snprintf(path, sizeof(path), "%s/%s", dir,
				 entries[i]->d_name);
			run_program(path);
			job->report->touches++;
		}
		end_pass(job->report, &pass);
	}
	_exit(0);
}

/* Enters the kernel, and lets others run, as often as it can. */
static void spin(struct job *job)
{
	job->report->ready = 1;
	for (;;) {
		sched_yield();
		job->report->touches++;
	}
}

static bool job_settled(struct job *job, bool until_gone)
{
	look_at_job(job);
	return job->gone || (!until_gone && job->report->ready);
}

static void wait_job(struct job *job, uint64_t timeout_ms, bool until_gone)
{
	uint64_t end_ms = now_ms() + timeout_ms;

	while (!job_settled(job, until_gone) && now_ms() < end_ms)
		sleep_ms(10);
	if (!job_settled(job, until_gone)) {
		put_line("error job %s takes longer than %llu ms", job->name,
			 (unsigned long long)timeout_ms);
		return;
	}
	put_job(job);
	if (until_gone)
		job->pid = 0;
}

/* Waits as long as the job gets on: memory may have to come from swap. */
static void verify_job(struct job *job)
{
	struct job_report *report = job->report;
	uint64_t seen = 0, moved_ms = now_ms();

	report->pages = 0;
	report->verify_asked++;
	while (report->verify_done != report->verify_asked) {
		look_at_job(job);
		if (job->gone) {
			put_line("error job %s is gone", job->name);
			return;
		}
		if (report->pages != seen) {
			seen = report->pages;
			moved_ms = now_ms();
		}
		if (now_ms() - moved_ms > STALL_MS) {
			put_line("error job %s does nothing for %lu ms",
				 job->name, STALL_MS);
			return;
		}
		sleep_ms(10);
	}
	put_line("= pages %llu", (unsigned long long)report->pages);
	put_line("= bad %llu", (unsigned long long)report->bad);
	put_ok();
}

/* After SIGKILL: ends soon, unless the kernel itself is stuck. */
static bool wait_gone(struct job *job)
{
	uint64_t end_ms = now_ms() + STALL_MS;

	look_at_job(job);
	while (!job->gone && now_ms() < end_ms) {
		sleep_ms(5);
		look_at_job(job);
	}
	return job->gone;
}

static void stop_job(struct job *job)
{
	look_at_job(job);
	if (!job->gone)
		kill(job->pid, SIGKILL);
	if (!wait_gone(job)) {
		put_line("error job %s cannot be killed", job->name);
		return;
	}
	put_job(job);
	job->pid = 0;
}

/* ---- modules ----------------------------------------------------------- */

static int load_module(const char *path, const char *params)
{
	size_t len = strlen(path);
	int flags = len > 3 && !strcmp(path + len - 3, ".xz") ? 4 : 0;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int err;

	if (fd < 0)
		return -1;
	err = syscall(SYS_finit_module, fd, params, flags);
	close(fd);
	return err;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void load_modules(void)
{
	struct dirent **list;
	char path[512];
	int i, n = scandir("/modules", &list, NULL, by_name);

	for (i = 0; i < n; i++) {
		if (list[i]->d_name[0] == '.')
			continue;
		snprintf(path, sizeof(path), "/modules/%s", list[i]->d_name);
		if (load_module(path, "") && errno != EEXIST)
			fprintf(stderr, "balloon_guest: %s: %s\n", path,
				strerror(errno));
	}
}

/* Words "virtio_balloon.x=y" of the kernel command line, without the prefix */
static void balloon_params(char *params, size_t size)
{
	static const char prefix[] = "virtio_balloon.";
	char line[4096], *word, *save;
	ssize_t len = read_file("/proc/cmdline", line, sizeof(line) - 1);

	params[0] = 0;
	if (len < 0)
		return;
	line[len] = 0;
	for (word = strtok_r(line, " \n", &save); word;
	     word = strtok_r(NULL, " \n", &save)) {
		size_t used = strlen(params);

		if (!strncmp(word, prefix, sizeof(prefix) - 1))
			snprintf(params + used, size - used, "%s ",
				 word + sizeof(prefix) - 1);
	}
}

static bool on_cmdline(const char *text)
{
	char line[4096];
	ssize_t len = read_file("/proc/cmdline", line, sizeof(line) - 1);

	if (len < 0)
		return false;
	line[len] = 0;
	return strstr(line, text);
}

/* ---- commands ---------------------------------------------------------- */

/* Answers with an error if the word is no number up to @max. */
static bool number(const char *word, uint64_t max, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(word, &end, 0);
	if (!errno && *word != '-' && end != word && !*end && *value <= max)
		return true;
	put_line("error %.64s is no value from 0 to %llu", word,
		 (unsigned long long)max);
	return false;
}

/* What follows the first @n words, with all its spaces */
static const char *rest_of_line(int n)
{
	const char *rest = whole_line + strspn(whole_line, " ");

	while (n--) {
		rest += strcspn(rest, " ");
		rest += strspn(rest, " ");
	}
	return rest;
}

static void do_ping(int n, char **w)
{
	(void)n;
	(void)w;
	put_ok();
}

static void do_read(int n, char **w)
{
	/* Not blocking: a trace pipe ends where it is empty. */
	int fd = open(w[1], O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	size_t bytes = 0;
	ssize_t len = 0;

	(void)n;
	while (fd >= 0 && bytes < MAX_READ_BYTES &&
	       (len = read(fd, file_buf, sizeof(file_buf))) > 0) {
		put_text(file_buf, len);
		bytes += len;
	}
	end_text();
	if (fd < 0 || (len < 0 && errno != EAGAIN))
		put_errno(w[1]);
	else if (len > 0)
		put_line("error %s: has no end", w[1]);
	else
		put_ok();
	if (fd >= 0)
		close(fd);
}

static void do_write(int n, char **w)
{
	(void)n;
	answer_write(w[1], rest_of_line(2));
}

static void do_dmesg(int n, char **w)
{
	int len = klogctl(3, file_buf, sizeof(file_buf));

	(void)n;
	(void)w;
	if (len < 0) {
		put_errno("kernel log");
		return;
	}
	put_text(file_buf, len);
	end_text();
	put_ok();
}

static void put_vmstat(char *buf)
{
	char *line, *save;

	for (line = strtok_r(buf, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		put_line("= vmstat.%s", line);
}

/* Numbers of huge pages have no unit. */
static void put_meminfo(char *buf)
{
	char *line, *save, name[64], unit[4];
	unsigned long long value;
	int n;

	for (line = strtok_r(buf, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		n = sscanf(line, "%63[^:]: %llu %3s", name, &value, unit);
		if (n >= 2)
			put_line("= meminfo.%s %llu", name,
				 n == 3 ? value * 1024 : value);
	}
}

/*
 * Free pages that wait in lists of a CPU. They can be many and are not part of
 * MemFree. /proc/zoneinfo has a line "count: N" for each zone and CPU.
 */
static void put_percpu_pages(char *buf)
{
	char *line, *save;
	unsigned long long sum = 0, count;

	for (line = strtok_r(buf, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		if (sscanf(line, " count: %llu", &count) == 1)
			sum += count;
	put_line("= percpu_free_bytes %llu", sum * PAGE_BYTES);
}

/* Reads all before it answers, so that the counters belong together. */
static void do_counters(int n, char **w)
{
	static struct counter_file {
		const char *path;
		void (*put)(char *buf);
		char buf[32 * 1024];
	} files[] = {
		{ .path = "/proc/zoneinfo", .put = put_percpu_pages },
		{ .path = "/proc/meminfo", .put = put_meminfo },
		{ .path = "/proc/vmstat", .put = put_vmstat },
	};
	uint64_t uptime_ms = now_ms();
	ssize_t len;
	int i;

	(void)n;
	(void)w;
	for (i = 0; i < 3; i++) {
		len = read_file(files[i].path, files[i].buf,
				sizeof(files[i].buf) - 1);
		if (len < 0) {
			put_errno(files[i].path);
			return;
		}
		files[i].buf[len] = 0;
	}
	for (i = 0; i < 3; i++)
		files[i].put(files[i].buf);
	put_line("= uptime_ms %llu", (unsigned long long)uptime_ms);
	put_ok();
}

static void do_mount(int n, char **w)
{
	make_dirs(w[3]);
	if (mount(w[2], w[3], w[1], 0, n > 4 ? w[4] : NULL))
		put_errno("mount");
	else
		put_ok();
}

static void do_umount(int n, char **w)
{
	(void)n;
	if (umount(w[1]))
		put_errno("umount");
	else
		put_ok();
}

static int write_pages(int fd, uint64_t mib)
{
	static uint64_t chunk[MIB / 8];
	uint64_t i, j;

	for (i = 0; i < mib; i++) {
		for (j = 0; j < MIB / PAGE_BYTES; j++)
			fill_page(chunk + j * PAGE_BYTES / 8, 1,
				  i * (MIB / PAGE_BYTES) + j);
		if (write(fd, chunk, MIB) != (ssize_t)MIB)
			return -1;
	}
	return fsync(fd);
}

static void do_mkfile(int n, char **w)
{
	uint64_t mib;
	int fd;

	(void)n;
	if (!number(w[2], MIB, &mib))
		return;
	fd = open(w[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0 || write_pages(fd, mib))
		put_errno(w[1]);
	else
		put_ok();
	if (fd >= 0)
		close(fd);
}

static void answer_started(struct job *job)
{
	put_line("= pid %d", job->pid);
	put_ok();
}

static void do_hold(int n, char **w)
{
	uint64_t mib, seed = 1;
	struct job *job;
	int side;

	if (!number(w[2], MIB, &mib) ||
	    (n > 3 && !number(w[3], UINT64_MAX, &seed)))
		return;
	job = new_job(w[1]);
	side = job ? start_job(job) : -1;
	if (!side)
		hold(job, mib, seed);
	if (side > 0)
		answer_started(job);
}

static void do_stream(int n, char **w)
{
	struct job *job = new_job(w[1]);
	int side = job ? start_job(job) : -1;

	(void)n;
	if (!side)
		stream(job, w[2]);
	if (side > 0)
		answer_started(job);
}

static void do_maptouch(int n, char **w)
{
	uint64_t touches, passes;
	struct job *job;
	int side;

	(void)n;
	if (!number(w[3], UINT64_MAX, &touches) ||
	    !number(w[4], MAX_PASSES, &passes))
		return;
	job = new_job(w[1]);
	side = job ? start_job(job) : -1;
	if (!side)
		maptouch(job, w[2], touches, passes);
	if (side > 0)
		answer_started(job);
}

static void do_mapstream(int n, char **w)
{
	struct job *job = new_job(w[1]);
	int side = job ? start_job(job) : -1;

	(void)n;
	if (!side)
		mapstream(job, w[2]);
	if (side > 0)
		answer_started(job);
}

static void do_programs(int n, char **w)
{
	uint64_t passes;
	struct job *job;
	int side;

	(void)n;
	if (!number(w[3], MAX_PASSES, &passes))
		return;
	job = new_job(w[1]);
	side = job ? start_job(job) : -1;
	if (!side)
		programs(job, w[2], passes);
	if (side > 0)
		answer_started(job);
}

static void do_spin(int n, char **w)
{
	struct job *job = new_job(w[1]);
	int side = job ? start_job(job) : -1;

	(void)n;
	if (!side)
		spin(job);
	if (side > 0)
		answer_started(job);
}

static void do_status(int n, char **w)
{
	struct job *job = find_job(w[1]);

	(void)n;
	if (!job)
		return;
	look_at_job(job);
	put_job(job);
}

static void do_verify(int n, char **w)
{
	struct job *job = find_job(w[1]);

	(void)n;
	if (job)
		verify_job(job);
}

static void do_wait(int n, char **w)
{
	struct job *job = find_job(w[1]);
	uint64_t timeout_ms;

	(void)n;
	if (job && number(w[2], MAX_TIME_MS, &timeout_ms))
		wait_job(job, timeout_ms, false);
}

static void do_join(int n, char **w)
{
	struct job *job = find_job(w[1]);
	uint64_t timeout_ms;

	(void)n;
	if (job && number(w[2], MAX_TIME_MS, &timeout_ms))
		wait_job(job, timeout_ms, true);
}

static void do_stop(int n, char **w)
{
	struct job *job = find_job(w[1]);

	(void)n;
	if (job)
		stop_job(job);
}

/* Passes on what a program writes until it ends, or the time is over. */
static bool follow(struct job *job, int fd, uint64_t end_ms)
{
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	ssize_t n;

	do {
		/* First, so that what a program left behind is read as well. */
		look_at_job(job);
		n = 1;
		while (poll(&pfd, 1, job->gone ? 0 : 5) > 0 &&
		       now_ms() < end_ms) {
			n = read(fd, file_buf, sizeof(file_buf));
			if (n <= 0)
				break;
			put_text(file_buf, n);
		}
		if (n <= 0)	/* closed: nothing more to poll for */
			pfd.fd = -1;
	} while (!job->gone && now_ms() < end_ms);
	end_text();
	return job->gone;
}

static void exec_child(int fd, char **argv)
{
	setpgid(0, 0);
	become_job();
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	execv(argv[0], argv);
	fprintf(stderr, "%s: %s\n", argv[0], strerror(errno));
	_exit(127);
}

static void do_exec(int n, char **w)
{
	struct job job = { .name = "exec", .begin_ms = now_ms() };
	uint64_t timeout_ms;
	bool in_time;
	int fds[2];

	(void)n;
	if (!number(w[1], MAX_TIME_MS, &timeout_ms))
		return;
	flush_out();
	if (pipe2(fds, O_CLOEXEC)) {
		put_errno("pipe");
		return;
	}
	job.pid = fork();
	if (!job.pid)
		exec_child(fds[1], w + 2);
	close(fds[1]);
	if (job.pid > 0)	/* as the child does: whichever is first */
		setpgid(job.pid, job.pid);
	if (job.pid < 0) {
		put_errno("fork");
		close(fds[0]);
		return;
	}
	in_time = follow(&job, fds[0], job.begin_ms + timeout_ms);
	close(fds[0]);
	if (!in_time) {
		kill(-job.pid, SIGKILL);
		wait_gone(&job);
		put_line("error %s did not end in time", w[2]);
		return;
	}
	put_line("= exit %d", WIFEXITED(job.status) ? WEXITSTATUS(job.status) :
		 128 + WTERMSIG(job.status));
	put_line("= elapsed_ms %llu",
		 (unsigned long long)(job.end_ms - job.begin_ms));
	put_ok();
}

static void do_load(int n, char **w)
{
	(void)n;
	if (load_module(w[1], rest_of_line(2)))
		put_errno(w[1]);
	else
		put_ok();
}

static void do_unload(int n, char **w)
{
	(void)n;
	if (syscall(SYS_delete_module, w[1], O_NONBLOCK))
		put_errno(w[1]);
	else
		put_ok();
}

static void put_device(const char *name)
{
	char path[512], id[32] = "?", status[32] = "?", link[512];
	ssize_t len;

	snprintf(path, sizeof(path), DEVICES_DIR "%s/device", name);
	len = read_file(path, id, sizeof(id) - 1);
	id[len > 0 ? strcspn(id, "\n") : 0] = 0;
	snprintf(path, sizeof(path), DEVICES_DIR "%s/status", name);
	len = read_file(path, status, sizeof(status) - 1);
	status[len > 0 ? strcspn(status, "\n") : 0] = 0;
	snprintf(path, sizeof(path), DEVICES_DIR "%s/driver", name);
	len = readlink(path, link, sizeof(link) - 1);
	link[len > 0 ? len : 0] = 0;
	put_line("= %s %s %s %s", name, id,
		 len > 0 ? strrchr(link, '/') + 1 : "none", status);
}

static void do_devices(int n, char **w)
{
	DIR *dir = opendir(DEVICES_DIR);
	struct dirent *entry;

	(void)n;
	(void)w;
	if (!dir) {
		put_errno(DEVICES_DIR);
		return;
	}
	while ((entry = readdir(dir)))
		if (entry->d_name[0] != '.')
			put_device(entry->d_name);
	closedir(dir);
	put_ok();
}

static void do_bind(int n, char **w)
{
	(void)n;
	answer_write(DRIVER_DIR "bind", w[1]);
}

static void do_unbind(int n, char **w)
{
	(void)n;
	answer_write(DRIVER_DIR "unbind", w[1]);
}

static void do_suspend(int n, char **w)
{
	uint64_t begin_ms = now_ms();

	(void)n;
	flush_out();
	if (write_file("/sys/power/state", w[1])) {
		put_errno("suspend");
		return;
	}
	put_line("= elapsed_ms %llu", (unsigned long long)(now_ms() - begin_ms));
	put_ok();
}

static void do_compact(int n, char **w)
{
	(void)n;
	(void)w;
	answer_write("/proc/sys/vm/compact_memory", "1");
}

static void do_hugepages(int n, char **w)
{
	char got[32];
	ssize_t len;

	(void)n;
	if (write_file("/proc/sys/vm/nr_hugepages", w[1])) {
		put_errno("nr_hugepages");
		return;
	}
	len = read_file("/proc/sys/vm/nr_hugepages", got, sizeof(got) - 1);
	got[len > 0 ? strcspn(got, "\n") : 0] = 0;
	put_line("= got %s", got);
	put_ok();
}

/* mkswap and swapon of a disk: the header is the only thing on it that counts */
static void do_swapon(int n, char **w)
{
	static uint32_t header[PAGE_BYTES / 4];
	int fd = open(w[1], O_RDWR | O_CLOEXEC);
	off_t bytes;

	(void)n;
	if (fd < 0) {
		put_errno(w[1]);
		return;
	}
	bytes = lseek(fd, 0, SEEK_END);
	header[256] = 1;
	header[257] = bytes / PAGE_BYTES - 1;
	memcpy((char *)header + PAGE_BYTES - 10, "SWAPSPACE2", 10);
	if (pwrite(fd, header, sizeof(header), 0) != sizeof(header) ||
	    fsync(fd) || syscall(SYS_swapon, w[1], 0))
		put_errno("swapon");
	else
		put_ok();
	close(fd);
}

static void do_sleep(int n, char **w)
{
	uint64_t ms;

	(void)n;
	if (!number(w[1], MAX_TIME_MS, &ms))
		return;
	sleep_ms(ms);
	put_ok();
}

static void do_sync(int n, char **w)
{
	(void)n;
	(void)w;
	sync();
	put_ok();
}

static void do_poweroff(int n, char **w)
{
	(void)n;
	(void)w;
	/* Root may run this with --stdio on a machine that others use. */
	if (getpid() != 1) {
		put_line("error only the init of a guest powers off");
		return;
	}
	put_ok();
	flush_out();
	tcdrain(channel_out);
	sync();
	reboot(RB_POWER_OFF);
}

static const struct command {
	const char *name;
	int min_words;
	void (*run)(int n, char **w);
	const char *usage;
} commands[] = {
	{ "ping", 1, do_ping, "" },
	{ "read", 2, do_read, "PATH" },
	{ "write", 3, do_write, "PATH TEXT..." },
	{ "dmesg", 1, do_dmesg, "" },
	{ "counters", 1, do_counters, "" },
	{ "mount", 4, do_mount, "TYPE SOURCE DIR [OPTIONS]" },
	{ "umount", 2, do_umount, "DIR" },
	{ "mkfile", 3, do_mkfile, "PATH MIB" },
	{ "hold", 3, do_hold, "NAME MIB [SEED]" },
	{ "stream", 3, do_stream, "NAME PATH" },
	{ "maptouch", 5, do_maptouch, "NAME PATH TOUCHES PASSES" },
	{ "mapstream", 3, do_mapstream, "NAME PATH" },
	{ "programs", 4, do_programs, "NAME DIR PASSES" },
	{ "spin", 2, do_spin, "NAME" },
	{ "status", 2, do_status, "NAME" },
	{ "verify", 2, do_verify, "NAME" },
	{ "wait", 3, do_wait, "NAME TIMEOUT_MS" },
	{ "join", 3, do_join, "NAME TIMEOUT_MS" },
	{ "stop", 2, do_stop, "NAME" },
	{ "exec", 3, do_exec, "TIMEOUT_MS PATH [ARGS...]" },
	{ "load", 2, do_load, "PATH [PARAMETERS...]" },
	{ "unload", 2, do_unload, "MODULE" },
	{ "devices", 1, do_devices, "" },
	{ "bind", 2, do_bind, "VIRTIO_DEVICE" },
	{ "unbind", 2, do_unbind, "VIRTIO_DEVICE" },
	{ "suspend", 2, do_suspend, "STATE" },
	{ "compact", 1, do_compact, "" },
	{ "hugepages", 2, do_hugepages, "COUNT" },
	{ "swapon", 2, do_swapon, "DISK" },
	{ "sleep", 2, do_sleep, "MS" },
	{ "sync", 1, do_sync, "" },
	{ "poweroff", 1, do_poweroff, "" },
};

static void run_words(int n, char **words)
{
	size_t i;

	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		if (strcmp(words[0], commands[i].name))
			continue;
		if (n < commands[i].min_words)
			put_line("error usage: %s %s", commands[i].name,
				 commands[i].usage);
		else
			commands[i].run(n, words);
		return;
	}
	put_line("error unknown command %.64s", words[0]);
}

static void run_command(char *line)
{
	char *words[MAX_WORDS + 1], *save;
	int n = 0;

	line[strcspn(line, "\r")] = 0;
	snprintf(whole_line, sizeof(whole_line), "%s", line);
	for (words[n] = strtok_r(line, " ", &save); words[n] && n < MAX_WORDS;
	     words[n] = strtok_r(NULL, " ", &save))
		n++;
	words[n] = NULL;
	if (n)
		run_words(n, words);
	flush_out();
}

static void serve(void)
{
	static char line[sizeof(whole_line)];
	size_t len = 0;
	char c;

	for (;;) {
		ssize_t n = read(channel_in, &c, 1);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return;
		if (c != '\n') {
			/* One byte too many tells that it is too long. */
			if (len < sizeof(line))
				line[len++] = c;
			continue;
		}
		if (len == sizeof(line)) {
			put_line("error the command is too long");
			flush_out();
		} else {
			line[len] = 0;
			run_command(line);
		}
		len = 0;
	}
}

/* ---- start ------------------------------------------------------------- */

static void open_console(void)
{
	int fd = open("/dev/console", O_RDWR);

	if (fd < 0)
		return;
	dup2(fd, STDIN_FILENO);
	dup2(fd, STDOUT_FILENO);
	dup2(fd, STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

static void open_channel(void)
{
	struct termios tio;

	channel_in = open("/dev/ttyS1", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (channel_in < 0) {
		perror("balloon_guest: /dev/ttyS1");
		reboot(RB_POWER_OFF);
	}
	tcgetattr(channel_in, &tio);
	cfmakeraw(&tio);
	tio.c_cflag |= CLOCAL | CREAD;
	cfsetspeed(&tio, B115200);
	tcsetattr(channel_in, TCSANOW, &tio);
	channel_out = channel_in;
}

static void become_init(void)
{
	char params[1024];

	mkdir("/dev", 0755);
	mkdir("/proc", 0755);
	mkdir("/sys", 0755);
	mkdir("/mnt", 0755);
	mkdir("/tmp", 0755);
	mount("devtmpfs", "/dev", "devtmpfs", 0, NULL);
	mount("proc", "/proc", "proc", 0, NULL);
	mount("sysfs", "/sys", "sysfs", 0, NULL);
	mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
	mount("tracefs", "/sys/kernel/tracing", "tracefs", 0, NULL);
	open_console();
	write_file("/proc/self/oom_score_adj", "-1000");
	load_modules();
	balloon_params(params, sizeof(params));
	if (!access("/virtio_balloon.ko", R_OK) && !on_cmdline("vb_noload") &&
	    load_module("/virtio_balloon.ko", params))
		perror("balloon_guest: /virtio_balloon.ko");
	open_channel();
}

static void print_help(void)
{
	size_t i;

	printf("usage: balloon_guest --stdio\n\n"
	       "Init of a guest for the virtio balloon tests. With --stdio it serves its\n"
	       "commands on standard input and output instead of /dev/ttyS1:\n\n");
	for (i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
		printf("  %s %s\n", commands[i].name, commands[i].usage);
}

int main(int argc, char **argv)
{
	bool stdio = argc == 2 && !strcmp(argv[1], "--stdio");

	if (getpid() != 1 && !stdio) {
		print_help();
		return argc == 2 && !strcmp(argv[1], "--help") ? 0 : 2;
	}
	signal(SIGPIPE, SIG_IGN);
	reports = mmap(NULL, MAX_JOBS * sizeof(*reports),
		       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		       0);
	if (reports == MAP_FAILED) {
		perror("balloon_guest");
		return 1;
	}
	if (!stdio)
		become_init();
	mlockall(MCL_CURRENT | MCL_FUTURE);
	put_line("ready");
	flush_out();
	serve();
	if (!stdio)
		reboot(RB_POWER_OFF);
	return 0;
}
