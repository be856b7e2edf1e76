/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Runs the function NAME of the `*_steps.bpf.c` that this file is linked with. Until standard input ends, reads an
 * argument of SIZE bytes, calls the function with it, and writes the changed argument to standard output.
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
