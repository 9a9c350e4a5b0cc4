// SPDX-License-Identifier: GPL-2.0
/* QEMU Machine Protocol: JSON objects, one a line (qemu: docs/interop/qmp-spec) */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "balloon_host.h"

#define QMP_TIMEOUT_MS 30000

static bool fill_buffer(struct qmp *qmp, uint64_t deadline_ms)
{
	struct pollfd pfd = { .fd = qmp->fd, .events = POLLIN };
	uint64_t now = now_ms();
	ssize_t n;

	if (now >= deadline_ms || poll(&pfd, 1, deadline_ms - now) <= 0)
		return false;
	if (qmp->len + 4096 > qmp->size) {
		qmp->size = qmp->len + 65536;
		qmp->buf = realloc(qmp->buf, qmp->size);
		check(qmp->buf, "out of memory");
	}
	n = read(qmp->fd, qmp->buf + qmp->len, qmp->size - qmp->len);
	check(n > 0, "QEMU has closed its monitor");
	qmp->len += n;
	return true;
}

/* The next object that QEMU sends, NULL if there is none in time */
static json_t *next_object(struct qmp *qmp, uint64_t deadline_ms)
{
	json_error_t error;
	json_t *object;
	char *end;

	while (!(end = memchr(qmp->buf ? qmp->buf : "", '\n', qmp->len)))
		if (!fill_buffer(qmp, deadline_ms))
			return NULL;
	object = json_loadb(qmp->buf, end - qmp->buf, 0, &error);
	qmp->len -= end + 1 - qmp->buf;
	memmove(qmp->buf, end + 1, qmp->len);
	check(object, "QEMU sent what is not JSON: %s", error.text);
	return object;
}

/* Events are kept, as the answer to a command may come after them. */
static json_t *next_answer(struct qmp *qmp, const char *command)
{
	uint64_t deadline_ms = now_ms() + QMP_TIMEOUT_MS;

	for (;;) {
		json_t *object = next_object(qmp, deadline_ms);

		check(object, "QEMU does not answer %s within %d s", command,
		      QMP_TIMEOUT_MS / 1000);
		if (!json_object_get(object, "event"))
			return object;
		json_array_append_new(qmp->events, object);
	}
}

static void send_command(struct qmp *qmp, const char *command,
			 json_t *arguments)
{
	json_t *object = json_pack("{s:s}", "execute", command);
	size_t done = 0, len;
	char *text;

	if (arguments)
		json_object_set_new(object, "arguments", arguments);
	text = json_dumps(object, JSON_COMPACT);
	json_decref(object);
	check(text, "cannot encode %s", command);
	len = strlen(text);
	text[len++] = '\n';
	while (done < len) {
		ssize_t n = write(qmp->fd, text + done, len - done);

		check(n > 0 || errno == EINTR, "cannot send %s to QEMU: %s",
		      command, strerror(errno));
		done += n > 0 ? n : 0;
	}
	free(text);
}

static const char *error_text(json_t *answer)
{
	json_t *error = json_object_get(answer, "error");

	return json_string_value(json_object_get(error, "desc"));
}

/* Returns NULL, with a note, if QEMU refuses. */
json_t *qmp_try(struct qmp *qmp, const char *command, json_t *arguments)
{
	json_t *answer, *result;

	send_command(qmp, command, arguments);
	answer = next_answer(qmp, command);
	result = json_object_get(answer, "return");
	if (result)
		json_incref(result);
	else
		note("QEMU refuses %s: %s", command, error_text(answer));
	json_decref(answer);
	return result;
}

json_t *qmp_call(struct qmp *qmp, const char *command, json_t *arguments)
{
	json_t *result = qmp_try(qmp, command, arguments);

	check(result, "QMP command %s failed", command);
	return result;
}

static bool take_event(struct qmp *qmp, const char *name)
{
	json_t *event;
	size_t i;

	json_array_foreach(qmp->events, i, event) {
		const char *what =
			json_string_value(json_object_get(event, "event"));

		if (what && !strcmp(what, name)) {
			json_array_remove(qmp->events, i);
			return true;
		}
	}
	return false;
}

bool qmp_wait_event(struct qmp *qmp, const char *name, unsigned int timeout_ms)
{
	uint64_t deadline_ms = now_ms() + timeout_ms;
	json_t *object;

	while (!take_event(qmp, name)) {
		object = next_object(qmp, deadline_ms);
		if (!object)
			return false;
		json_array_append_new(qmp->events, object);
	}
	return true;
}

void qmp_open(struct qmp *qmp, const char *path, unsigned int timeout_ms)
{
	json_t *greeting;

	memset(qmp, 0, sizeof(*qmp));
	qmp->events = json_array();
	qmp->fd = connect_socket(path, timeout_ms);
	greeting = next_object(qmp, now_ms() + timeout_ms);
	check(greeting && json_object_get(greeting, "QMP"),
	      "what listens on %s is not QEMU's monitor", path);
	json_decref(greeting);
	json_decref(qmp_call(qmp, "qmp_capabilities", NULL));
}

void qmp_close(struct qmp *qmp)
{
	close(qmp->fd);
	free(qmp->buf);
	json_decref(qmp->events);
	memset(qmp, 0, sizeof(*qmp));
	qmp->fd = -1;
}
