// SPDX-License-Identifier: GPL-2.0
/* Boots a kernel that has KUnit tests built in, and passes on what they say */
#include <stdlib.h>
#include <string.h>

#include "balloon_host.h"

#define FILTER	"virtio_balloon*"

/* The text of a console line, without the time in brackets before it */
static char *text_of(char *line)
{
	char *end;

	line[strcspn(line, "\r\n")] = 0;
	if (*line != '[')
		return line;
	end = strstr(line, "] ");
	return end ? end + 2 : line;
}

/*
 * Suites are at depth one of KTAP, cases at depth two. Each case becomes a line
 * of TAP, and what a case says before its result a comment.
 */
static int pass_on(FILE *console)
{
	unsigned int number = 0, failed = 0, indent, suites = 0, n;
	char line[1024], suite[128] = "", name[128];
	bool in_tests = false;

	while (fgets(line, sizeof(line), console)) {
		char *text = text_of(line);

		indent = strspn(text, " ");
		if (!strncmp(text, "KTAP version", 12))
			in_tests = true;
		if (!in_tests || strstr(text, "# module:") ||
		    strstr(text, ".speed:"))
			continue;
		text += indent;
		if (!indent && sscanf(text, "1..%u", &n) == 1)
			suites = n;
		if (!indent && (!strncmp(text, "ok ", 3) ||
				!strncmp(text, "not ok ", 7)) && !--suites)
			break;
		if (indent == 4 && sscanf(text, "# Subtest: %127s", suite) == 1)
			continue;
		if (indent == 4 && (sscanf(text, "ok %*u %127s", name) == 1 ||
				    sscanf(text, "not ok %*u %127s", name) == 1)) {
			failed += *text == 'n';
			printf("%s %u %s.%s%s\n", *text == 'n' ? "not ok" : "ok",
			       ++number, suite, name,
			       strstr(text, "# SKIP") ? " # SKIP" : "");
		} else if (indent >= 4 && strncmp(text, "1..", 3) &&
			   strncmp(text, "KTAP", 4)) {
			printf("# %s\n", text + strspn(text, "# "));
		}
	}
	check(number, "the kernel has run no KUnit test named %s: is it built with them?",
	      FILTER);
	printf("1..%u\n", number);
	return failed ? 1 : 0;
}

int kunit(void)
{
	struct vm_config config = {
		.name = "kunit", .mem_mib = opt.mem_mib ? opt.mem_mib : 1024,
		.append = "loglevel=8 kunit.enable=1 kunit.filter_glob=" FILTER,
	};
	FILE *console;
	struct vm vm;
	int status;

	printf("TAP version 13\n");
	vm_boot(&vm, &config);
	console = fopen(vm.console_path, "r");
	check(console, "the guest has no console");
	status = pass_on(console);
	fclose(console);
	vm_stop(&vm);
	return status;
}
