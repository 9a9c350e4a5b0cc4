// SPDX-License-Identifier: GPL-2.0
/*
 * A program to be started from disk: 10 MiB of code, all of which it runs
 * through, a page at a time. Exit status 0 if every page was there.
 *
 * Copies of it on a disk are so many programs of that size.
 */
#include <stdint.h>

#define NR_PAGES	2560

/* Each page adds one to its argument and goes on to the next. */
#if defined(__x86_64__)
__asm__(".text\n"
	".p2align 12\n"
	"run_through:\n"
	"	mov	%rdi, %rax\n"
	".rept 2560\n"
	"	inc	%rax\n"
	"	jmp	1f\n"
	"	.p2align 12\n"
	"1:\n"
	".endr\n"
	"	ret\n");
#elif defined(__aarch64__)
__asm__(".text\n"
	".p2align 12\n"
	"run_through:\n"
	".rept 2560\n"
	"	add	x0, x0, #1\n"
	"	b	1f\n"
	"	.p2align 12\n"
	"1:\n"
	".endr\n"
	"	ret\n");
#else
#error "no code for this architecture"
#endif

uint64_t run_through(uint64_t start);

int main(void)
{
	return run_through(1) == NR_PAGES + 1 ? 0 : 1;
}
