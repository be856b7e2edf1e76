/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Runs a function of the `*_steps.bpf.c` that this file is linked with. Reads its argument, of SIZE bytes, from standard
 * input and writes it back after the step, again and again.
 *
 *     NAME SIZE
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **words)
{
	int (*step)(void *) = count == 3 ? dlsym(dlopen(NULL, RTLD_NOW), words[1]) : NULL;
	ssize_t size = step ? atoi(words[2]) : 0;
	_Alignas(8) char argument[256];

	if (size <= 0 || size > (ssize_t)sizeof(argument))
		return 1;
	while (read(STDIN_FILENO, argument, size) == size)
		if (step(argument) || write(STDOUT_FILENO, argument, size) != size)
			return 1;
	return 0;
}
