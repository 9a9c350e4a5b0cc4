// SPDX-License-Identifier: GPL-2.0
/* The guest's commands (balloon_guest.c), as the host side uses them */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "balloon_host.h"

static char last_command[512];

/* Most likely QEMU is about to end: say how, when it has. */
__attribute__((noreturn))
static void channel_lost(struct vm *vm)
{
	uint64_t deadline_ms = now_ms() + 3000;

	while (now_ms() < deadline_ms) {
		vm_check_alive(vm);
		sleep_ms(20);
	}
	fail("the guest's command channel is closed");
}

static void send_text(struct vm *vm, const char *text)
{
	size_t done = 0, len = strlen(text);

	while (done < len) {
		ssize_t n = write(vm->guest_fd, text + done, len - done);

		if (n < 0 && errno == EPIPE)
			channel_lost(vm);
		check(n > 0 || errno == EINTR,
		      "cannot send a command to the guest: %s",
		      strerror(errno));
		done += n > 0 ? n : 0;
	}
}

static void vsend(struct vm *vm, const char *format, va_list args)
{
	char line[sizeof(last_command) + 2];

	vsnprintf(last_command, sizeof(last_command), format, args);
	snprintf(line, sizeof(line), "%s\n", last_command);
	send_text(vm, line);
}

void guest_send(struct vm *vm, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsend(vm, format, args);
	va_end(args);
}

/* One line without its end; false when time is over */
static bool read_line(struct vm *vm, char *line, size_t size,
		      uint64_t deadline_ms)
{
	struct pollfd pfd = { .fd = vm->guest_fd, .events = POLLIN };
	size_t len = 0;
	char c;

	for (;;) {
		uint64_t now = now_ms();

		if (now >= deadline_ms)
			return false;
		if (poll(&pfd, 1, deadline_ms - now < 200 ?
			 deadline_ms - now : 200) <= 0) {
			vm_check_alive(vm);
			continue;
		}
		if (read(vm->guest_fd, &c, 1) != 1)
			channel_lost(vm);
		if (c == '\n')
			break;
		if (c != '\r' && len < size - 1)
			line[len++] = c;
	}
	line[len] = 0;
	return true;
}

static void append_reply(struct vm *vm, const char *text)
{
	size_t used = strlen(vm->reply), need = used + strlen(text) + 2;

	if (need > vm->reply_size) {
		vm->reply_size = 2 * need;
		vm->reply = realloc(vm->reply, vm->reply_size);
		check(vm->reply, "out of memory");
	}
	sprintf(vm->reply + used, "%s\n", text);
}

/* True: "ok". False: "error", whose text is then the reply. */
bool guest_answer(struct vm *vm, unsigned int timeout_ms)
{
	uint64_t deadline_ms = now_ms() + timeout_ms;
	char line[4096];

	if (!vm->reply) {
		vm->reply_size = 4096;
		vm->reply = malloc(vm->reply_size);
		check(vm->reply, "out of memory");
	}
	vm->reply[0] = 0;
	for (;;) {
		check(read_line(vm, line, sizeof(line), deadline_ms),
		      "the guest does not answer \"%s\" within %u ms",
		      last_command, timeout_ms);
		if (!strncmp(line, "= ", 2)) {
			append_reply(vm, line + 2);
		} else if (!strcmp(line, "ok")) {
			return true;
		} else if (!strncmp(line, "error ", 6)) {
			vm->reply[0] = 0;
			append_reply(vm, line + 6);
			return false;
		} else if (strcmp(line, "ready")) {
			fail("the guest answers \"%s\" with \"%s\"",
			     last_command, line);
		}
	}
}

bool guest_try(struct vm *vm, unsigned int timeout_ms, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsend(vm, format, args);
	va_end(args);
	return guest_answer(vm, timeout_ms);
}

const char *guest(struct vm *vm, unsigned int timeout_ms,
		  const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsend(vm, format, args);
	va_end(args);
	check(guest_answer(vm, timeout_ms), "guest: \"%s\": %s", last_command,
	      vm->reply);
	return vm->reply;
}

/* What follows "@key " on a line of its own, to the end of the line */
const char *reply_word(const char *reply, const char *key)
{
	static char words[8][256];
	static unsigned int turn;
	char *word = words[turn++ % 8];
	size_t len = strlen(key);

	for (; reply && *reply; reply = strchr(reply, '\n') + 1) {
		if (strncmp(reply, key, len) || reply[len] != ' ')
			continue;
		snprintf(word, sizeof(words[0]), "%.*s",
			 (int)strcspn(reply + len + 1, "\n"), reply + len + 1);
		return word;
	}
	return NULL;
}

bool reply_has(const char *reply, const char *key)
{
	return reply_word(reply, key);
}

uint64_t reply_number(const char *reply, const char *key)
{
	const char *word = reply_word(reply, key);

	check(word, "the guest's answer lacks %s", key);
	return strtoull(word, NULL, 10);
}

struct counters guest_counters(struct vm *vm)
{
	const char *reply = guest(vm, 30000, "counters");
	struct counters c = {
		.inflate = reply_number(reply, "vmstat.balloon_inflate"),
		.deflate = reply_number(reply, "vmstat.balloon_deflate"),
		.migrate = reply_number(reply, "vmstat.balloon_migrate"),
		.oom_kill = reply_number(reply, "vmstat.oom_kill"),
		.total_bytes = reply_number(reply, "meminfo.MemTotal"),
		.memfree_bytes = reply_number(reply, "meminfo.MemFree"),
		.free_bytes = reply_number(reply, "meminfo.MemFree") +
			      reply_number(reply, "percpu_free_bytes"),
		.available_bytes = reply_number(reply, "meminfo.MemAvailable"),
		.cached_bytes = reply_number(reply, "meminfo.Cached"),
		.majfault = reply_number(reply, "vmstat.pgmajfault"),
		.minfault = reply_number(reply, "vmstat.pgfault"),
	};

	return c;
}

/* Name of the virtio device with the balloon's id, NULL if there is none */
const char *guest_balloon_device(struct vm *vm)
{
	static char name[32];
	const char *line = guest(vm, 10000, "devices");
	char id[32];

	for (; line && *line; line = strchr(line, '\n') + 1)
		if (sscanf(line, "%31s %31s", name, id) == 2 &&
		    strtoul(id, NULL, 16) == 5)
			return name;
	return NULL;
}

const char *guest_state(struct vm *vm, const char *job)
{
	return reply_word(guest(vm, 10000, "status %s", job), "state");
}
